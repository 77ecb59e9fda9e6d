"""A small LLaVA-OneVision of transformers beside the same model as it is served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration, PreTrainedTokenizerFast
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor

from runtime.multimodal.family import Detail
from tests.runtime import reference
from tests.runtime.multimodal import merged
from tests.runtime.multimodal.agreement import MergedPrompt
from tests.runtime.multimodal.served import Served
from tests.runtime.multimodal.words import VOCABULARY, number, tokenizer

IMAGE, VIDEO = "<image>", "<video>"
TILE, SIDE, MOST = 60, 4, 4
GRIDS = [[TILE * rows, TILE * columns] for rows in range(1, 5) for columns in range(1, 5)]
PLAIN, ONE_OF_SEVERAL = Detail(), Detail(alone=False)
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }} {% for part in message.content %}"
    "{% if part.type == 'image' %}<image>\n{% elif part.type == 'video' %}<video>\n{% endif %}{% endfor %}"
    "{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>"
    "{% endfor %}<|im_start|>assistant\n"
)
TEXT = {
    "model_type": "qwen2", "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
TOWER = {
    "model_type": "siglip_vision_model", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
    "num_attention_heads": 4, "image_size": TILE, "patch_size": 14, "vision_use_head": False,
}  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """Both, with the reference's tokenizer and processor."""

    model: LlavaOnevisionForConditionalGeneration
    words: PreTrainedTokenizerFast
    pictures: Any
    served: Served

    def given(self, text: str, images: Sequence[Image.Image]) -> dict[str, torch.Tensor]:
        """The reference's inputs; `text` has `<image>` for each picture of one prompt."""
        given = self.pictures([list(images)], return_tensors="pt")
        writer: Any = SimpleNamespace(
            num_image_tokens=SIDE**2,
            image_processor=self.pictures,
            image_token="<IMAGE>",
            vision_feature_select_strategy="full",
            vision_aspect_ratio=f"anyres_max_{MOST}",
        )
        for name in ("_get_number_of_features", "_get_unpadded_features"):
            setattr(writer, name, getattr(LlavaOnevisionProcessor, name).__get__(writer))
        for place in range(len(images)):
            text = text.replace(IMAGE, LlavaOnevisionProcessor.replace_image_token(writer, given, place), 1)
        ids = self.words(text.replace("<IMAGE>", IMAGE), add_special_tokens=False, return_tensors="pt")["input_ids"]
        return {"input_ids": ids, **given}

    def right(self, text: str, images: Sequence[Image.Image]) -> MergedPrompt:
        """The reference's prompt."""
        given = self.given(text, images)
        return MergedPrompt(given["input_ids"][0].tolist(), self.embedded(given))

    def embedded(self, given: dict[str, torch.Tensor]) -> torch.Tensor:
        """What the reference gives to its language model."""
        return merged.embedded(self.model, self.model.model.language_model, **given)

    def features(self, given: dict[str, torch.Tensor]) -> list[NDArray[np.float32]]:
        """Tokens of each picture."""
        counts = {name: given[name] for name in ("pixel_values", "image_sizes", "batch_num_images")}
        with torch.inference_mode():
            found = self.model.model.get_image_features(**counts).pooler_output
        return [one.numpy() for one in found]


def make(folder: Path, root: Path) -> Pair:
    """Save a model with random weights, and build it.

    Args:
        folder: Where to save.
        root: The models folder.
    """
    words = tokenizer("<|im_start|>", "<|im_end|>", IMAGE, VIDEO, template=TEMPLATE)
    config = LlavaOnevisionConfig(
        text_config=TEXT,
        vision_config=TOWER,
        image_token_index=number(words, IMAGE),
        video_token_index=number(words, VIDEO),
        image_grid_pinpoints=GRIDS,
        vision_aspect_ratio=f"anyres_max_{MOST}",
    )
    model = LlavaOnevisionForConditionalGeneration(config)
    reference.randomise(model)
    model.train(False)
    pictures = LlavaOnevisionImageProcessorPil(size={"height": TILE, "width": TILE}, image_grid_pinpoints=GRIDS)
    for part in (model, words, pictures):
        part.save_pretrained(folder)
    return Pair(model, words, pictures, Served(folder, root))
