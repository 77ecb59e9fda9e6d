"""A small Idefics2 of transformers beside the same model as it is served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from transformers import Idefics2Config, Idefics2ForConditionalGeneration, PreTrainedTokenizerFast
from transformers.models.idefics2.image_processing_pil_idefics2 import Idefics2ImageProcessorPil
from transformers.models.idefics2.processing_idefics2 import Idefics2Processor

from runtime.graphs.encoders.pixels import Normalisation
from runtime.multimodal.family import Detail
from tests.runtime import reference
from tests.runtime.multimodal import merged
from tests.runtime.multimodal.agreement import MergedPrompt
from tests.runtime.multimodal.served import Served
from tests.runtime.multimodal.words import VOCABULARY, number, tokenizer

FAKE, IMAGE = "<fake_token_around_image>", "<image>"
PATCH, LATENTS, SHORTEST, LONGEST = 14, 5, 47, 103
PLAIN = Detail()
HALF = Normalisation(1 / 255, (0.5,) * 3, (0.5,) * 3)
TEMPLATE = (
    "{% for message in messages %}{{ message.role | capitalize }}:{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% elif part.type == 'image' %}<image>{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
TEXT = {
    "model_type": "mistral", "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "sliding_window": 60, "rms_norm_eps": 1e-5,
}  # fmt: skip
TOWER = {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 70,
    "patch_size": PATCH,
}  # fmt: skip
PERCEIVER = {
    "hidden_size": 64, "resampler_n_latents": LATENTS, "resampler_depth": 2, "resampler_n_heads": 4,
    "resampler_head_dim": 24, "num_key_value_heads": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """Both, with the reference's tokenizer and processor."""

    model: Idefics2ForConditionalGeneration
    processor: Idefics2Processor
    words: PreTrainedTokenizerFast
    served: Served

    def given(self, text: str, images: Sequence[Image.Image]) -> dict[str, torch.Tensor]:
        """The reference's inputs; `text` has `<image>` for each picture of one prompt."""
        given: dict[str, torch.Tensor] = self.processor(text=text, images=[list(images)], return_tensors="pt")
        return given

    def right(self, text: str, images: Sequence[Image.Image]) -> MergedPrompt:
        """The reference's prompt."""
        given = self.given(text, images)
        return MergedPrompt(given["input_ids"][0].tolist(), self.embedded(given))

    def embedded(self, given: dict[str, torch.Tensor]) -> torch.Tensor:
        """What the reference gives to its language model."""
        return merged.embedded(self.model, self.model.model.text_model, **given)

    def features(self, given: dict[str, torch.Tensor]) -> NDArray[np.float32]:
        """Tokens of all pictures."""
        with torch.inference_mode():
            found = self.model.model.get_image_features(given["pixel_values"], given["pixel_attention_mask"])
        features: NDArray[np.float32] = torch.cat(list(found.pooler_output)).numpy()
        return features


def make(folder: Path, root: Path, *, splitting: bool) -> Pair:
    """Save a model with random weights, and build it.

    Args:
        folder: Where to save.
        root: The models folder.
        splitting: Whether pictures are looked at in quarters, too.
    """
    words = tokenizer(FAKE, IMAGE, "<end_of_utterance>", template=TEMPLATE)
    config = Idefics2Config(
        text_config=TEXT, vision_config=TOWER, perceiver_config=PERCEIVER, image_token_id=number(words, IMAGE)
    )
    model = Idefics2ForConditionalGeneration(config)
    reference.randomise(model)
    model.train(False)
    pictures = Idefics2ImageProcessorPil(
        size={"shortest_edge": SHORTEST, "longest_edge": LONGEST}, do_image_splitting=splitting
    )
    processor = Idefics2Processor(pictures, words, image_seq_len=LATENTS, chat_template=TEMPLATE)
    processor.save_pretrained(folder)
    reference.save(model, folder)
    return Pair(model, processor, words, Served(folder, root))
