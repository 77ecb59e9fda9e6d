"""What a configuration leaves out inside that of a model of several modalities.

Such a file holds only what differs from its text model's own defaults, while a text model's own file holds everything.

Source: `LlamaConfig`, `MistralConfig` and `Qwen2Config` of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OMITTED: Mapping[str, Mapping[str, Any]] = {
    "llama": {
        "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "max_position_embeddings": 2048, "eos_token_id": 2,
    },
    "mistral": {
        "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131_072,
        "sliding_window": 4096, "eos_token_id": 2,
    },
    "qwen2": {
        "vocab_size": 151_936, "hidden_size": 4096, "intermediate_size": 22_016, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 32_768,
        "sliding_window": 4096, "max_window_layers": 28,
    },
    "qwen2_5_omni_text": {"eos_token_id": 151_645},
}  # fmt: skip
"""Values by `model_type` and key."""
