"""Qwen2-Audio twice: what the reference makes of a prompt, and what is served here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2AudioConfig,
    Qwen2AudioForConditionalGeneration,
    WhisperFeatureExtractor,
)
from transformers.models.qwen2_audio.processing_qwen2_audio import Qwen2AudioProcessor

from runtime.multimodal.prepared import Prepared
from tests.runtime import reference
from tests.runtime.multimodal import merged
from tests.runtime.multimodal.heard import RATE
from tests.runtime.multimodal.served import Prompt, Served
from tests.runtime.multimodal.words import VOCABULARY, number, tokenizer

Floats = NDArray[np.float32]
BEGIN, AUDIO, END = "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"
CLIP = f"{BEGIN}{AUDIO}{END}"
# What the processor of transformers has for folders that bring none: that of the models themselves.
TEMPLATE: str = vars(Qwen2AudioProcessor)["default_chat_template"].fget(None)
TEXT: dict[str, Any] = {
    "model_type": "qwen2", "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
TOWER = {
    "model_type": "qwen2_audio_encoder", "d_model": 48, "encoder_layers": 2, "encoder_attention_heads": 4,
    "encoder_ffn_dim": 80, "num_mel_bins": 24,
}  # fmt: skip


@dataclass(frozen=True)
class Right:
    """What the reference makes of a prompt."""

    ids: list[int]
    mels: torch.Tensor
    features: list[Floats]
    embedded: torch.Tensor


@dataclass(frozen=True)
class Pair:
    """One model twice."""

    model: PreTrainedModel
    words: PreTrainedTokenizerFast
    processor: Any
    served: Served

    def right(self, text: str, *clips: Floats) -> Right:
        """The reference's inputs and merged embeddings; `text` has a placeholder for each clip."""
        given = self.processor(text=text, audio=list(clips), sampling_rate=RATE, return_tensors="pt")
        embedded = merged.embedded(self.model, self.model.model.language_model, **given)
        slots = given["input_ids"][0] == number(self.words, AUDIO)
        mask = given["feature_attention_mask"]
        counts = [((int(frames) - 1) // 2 + 1 - 2) // 2 + 1 for frames in mask.sum(-1)]
        features = [one.numpy() for one in torch.split(embedded[slots], counts)]
        return Right(given["input_ids"][0].tolist(), given["input_features"], features, embedded)

    def prompt(self, text: str, *pieces: Prepared) -> Prompt:
        """Ours of the same."""
        parts: list[Any] = []
        for piece, embeddings in zip(pieces, self.served.encode(*pieces), strict=True):
            before, _, text = text.partition(AUDIO)
            parts += [before, (piece, embeddings)]
        return self.served.prompt(*parts, text)


def save(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerFast, Any]:
    """Save a model with random weights; the model, its tokenizer and its processor."""
    words = tokenizer(BEGIN, AUDIO, END, "<|im_start|>", "<|im_end|>", template=TEMPLATE)
    config = Qwen2AudioConfig(text_config=TEXT, audio_config=TOWER, audio_token_index=number(words, AUDIO))
    model = Qwen2AudioForConditionalGeneration(config)
    reference.randomise(model)
    model.train(False)
    processor = Qwen2AudioProcessor(WhisperFeatureExtractor(feature_size=24), words, chat_template=TEMPLATE)  # type: ignore[no-untyped-call]
    processor.save_pretrained(folder)
    reference.save(model, folder)
    return model, words, processor


def make(folder: Path, root: Path) -> Pair:
    """Save a model with random weights, and build it.

    Args:
        folder: Where to save.
        root: The models folder.
    """
    return Pair(*save(folder), Served(folder, root, context=2048))
