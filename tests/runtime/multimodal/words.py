"""Small tokenizers with the control tokens of a family."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 384
SPECIAL = ("<pad>", "<s>", "</s>")
_TEXT = [
    "The cat sat on the mat.",
    "What is the capital of France?\n\n",
    "Grüße aus Köln, 日本語 and 😀.",
    "User: a\nb",
]


def tokenizer(*control: str, template: str, size: int = VOCABULARY) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer.

    Args:
        control: Control tokens of the family, beside the ends of a text.
        template: The chat template.
        size: The most tokens.
    """
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[*SPECIAL, *control],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    words.train_from_iterator(_TEXT, trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", pad_token="<pad>", chat_template=template
    )


def number(words: PreTrainedTokenizerFast, token: str) -> int:
    """The id of a token."""
    found = words.convert_tokens_to_ids(token)
    assert isinstance(found, int)
    return found


def control_tokens(rows: int, columns: int, *others: str) -> Sequence[str]:
    """The control tokens of tiles in a grid, and others."""
    return [*others, *(f"<row_{row + 1}_col_{column + 1}>" for row in range(rows) for column in range(columns))]
