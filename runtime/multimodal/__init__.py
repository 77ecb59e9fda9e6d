"""Unified tokens: every modality becomes embeddings in the language model's space, with positions of three axes."""
