"""Hugging Face folders as transformers saves them: a small random model, and a tokenizer of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tests.runtime import reference
from tests.runtime.graphs.families.cases import CASES, VOCABULARY

TEMPLATE = """{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>
{{ message.content | trim }}{{ eos_token }}
{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}"""
_SPECIAL = ["<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>"]
_TEXT = ["The cat sat on the mat.", "What is the capital of France?", "Grüße aus Köln, 日本語 and 😀."]


@dataclass(frozen=True)
class Saved:
    """A folder and what it was saved from."""

    folder: Path
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast


def chat_folder(folder: Path, shard: str = "5GB") -> Saved:
    """A small Qwen 3 that chats."""
    case = next(case for case in CASES if case.name == "qwen3")
    model, words = case.model(), _words()
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", pad_token="<pad>", chat_template=TEMPLATE
    )
    reference.save(model, folder, shard)
    tokenizer.save_pretrained(folder)
    return Saved(folder, model, tokenizer)


def _words() -> Tokenizer:
    """Byte-level BPE."""
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    words.train_from_iterator(_TEXT, trainer)
    return words
