"""Check the words of a built chat model: its tokenizer and its chat template, as they will be served."""

from __future__ import annotations

from pathlib import Path

from bus.errors import ModelCorruptError, OmnibusError
from runtime.generation.tokenizer import ChatTokenizer
from runtime.text.vocabulary import read_tokenizer

_SAID = "omnibus"


def check_words(folder: Path, vocabulary: int, *, in_parts: bool = False) -> None:
    """Make sure that a chat can be written in the model's tokens.

    Args:
        folder: With `tokenizer.json` and `chat.jinja`.
        vocabulary: Tokens that the model has embeddings for.
        in_parts: Whether a message is a list of parts, as of models that take media, and not a text.

    Raises:
        ModelCorruptError: A file that cannot be read, a template that fails or leaves out what was said, or tokens that
            the model does not have.
    """
    tokenizer = ChatTokenizer(folder)
    words = read_tokenizer(folder / "tokenizer.json")
    largest = max(words.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest >= vocabulary:
        raise ModelCorruptError(
            f"tokenizer.json has tokens up to {largest}, and the model has {vocabulary}; is it of another model?"
        )
    said = [{"type": "text", "text": _SAID}] if in_parts else _SAID
    try:
        prompt = tokenizer.chat([{"role": "user", "content": said}])
    except Exception as error:  # a template is a program: it may fail in any way
        raise ModelCorruptError(f"the chat template fails at a message of a user: {_reason(error)}") from error
    if _SAID not in prompt or not len(tokenizer.encode(prompt, markup=True)):
        raise ModelCorruptError("the chat template leaves out what a user says, or the tokenizer has no tokens for it")


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, OmnibusError) else repr(error)
