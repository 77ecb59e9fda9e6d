"""A small Idefics3 with random weights, as a folder, and what transformers answers with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import Idefics3Config, Idefics3ForConditionalGeneration, PreTrainedModel
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor

from runtime.export.hugging_face import BuildOptions, build_model
from runtime.repository import Catalog, Repository
from tests.runtime import reference
from tests.runtime.multimodal.words import VOCABULARY, control_tokens, number, tokenizer

CONTEXT = 1024
FAKE, IMAGE, GLOBAL = "<fake_token_around_image>", "<image>", "<global-img>"
TILE, SIDE, LONGEST = 56, 2, 224
TEMPLATE = (
    "<s>{% for message in messages %}{{ message.role | capitalize }}:{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% elif part.type == 'image' and message.role == 'user' %}<image>"
    "{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}Assistant:"
)
TEXT = {
    "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
TOWER = {
    "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 70,
    "patch_size": 14,
}  # fmt: skip
PICTURES: dict[str, Any] = {
    "size": {"longest_edge": LONGEST}, "max_image_size": {"longest_edge": TILE}, "return_row_col_info": True,
}  # fmt: skip


@dataclass(frozen=True)
class NativeModel:
    """The reference, and the name under which ours is installed."""

    model: PreTrainedModel
    processor: Any
    name: str = "eyes"

    def prompt(self, messages: Sequence[dict[str, Any]], pictures: Sequence[Image.Image] = ()) -> dict[str, Any]:
        """The reference's inputs for messages whose content is a list of parts."""
        text = self.processor.apply_chat_template(list(messages), add_generation_prompt=True)
        given = [list(pictures)] if pictures else None
        found: dict[str, Any] = dict(self.processor(text=text, images=given, return_tensors="pt"))
        return found

    def answer(self, messages: Sequence[dict[str, Any]], pictures: Sequence[Image.Image] = (), count: int = 24) -> str:
        """What `generate` of transformers goes on with, greedily."""
        given = self.prompt(messages, pictures)
        with torch.inference_mode():
            made: Any = self.model.generate(**given, max_new_tokens=count, do_sample=False)  # type: ignore[operator]
        tokens = made[0, given["input_ids"].shape[1] :]
        return str(self.processor.tokenizer.decode(tokens, skip_special_tokens=True)).replace("\ufffd", "")


def save(folder: Path) -> NativeModel:
    """Write the Hugging Face folder of the model."""
    words = tokenizer(*control_tokens(4, 4, FAKE, IMAGE, GLOBAL, "<end_of_utterance>"), template=TEMPLATE)
    config = Idefics3Config(text_config=TEXT, vision_config=TOWER, image_token_id=number(words, IMAGE))
    model = Idefics3ForConditionalGeneration(config)
    pictures = Idefics3ImageProcessorPil(**PICTURES)
    processor = Idefics3Processor(pictures, words, image_seq_len=SIDE**2, chat_template=TEMPLATE)
    processor.save_pretrained(folder)
    reference.randomise(model)
    model.train(False)
    reference.save(model, folder)
    return NativeModel(model, processor)


def install(folder: Path, root: Path, name: str = "eyes") -> NativeModel:
    """Build the model into a models folder, as `omnibus models build` does."""
    saved = save(folder)
    options = BuildOptions(id=name, quantisation="float32", context_tokens=CONTEXT)
    build_model(str(folder), Repository(root, catalog=Catalog(())), options)
    return saved
