"""Reading a model's `tokenizer.json`."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from bus.errors import ModelCorruptError


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a file; a vocabulary of 50,000 words takes a tenth of a second.

    It holds the interpreter meanwhile. A session does not while it opens, so both are done at the same time.

    Raises:
        ModelCorruptError: Missing or damaged.
    """
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare exceptions
        raise ModelCorruptError(f"the tokenizer {path} cannot be read: {error}", file=str(path)) from error
