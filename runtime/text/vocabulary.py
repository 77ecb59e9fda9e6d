"""Reading a model's `tokenizer.json`."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from bus.errors import ModelCorruptError


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a file, of the caller's own; a vocabulary of 50,000 words takes a tenth of a second.

    Raises:
        ModelCorruptError: Missing or damaged.
    """
    try:
        return _ahead.pop(_key(path), None) or Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare exceptions
        raise _unreadable(path, error) from error


def read_ahead(path: Path) -> None:
    """Read a tokenizer for whoever asks for it first, in each process that is forked from this one.

    Raises:
        ModelCorruptError: Missing or damaged.
    """
    try:
        key = _key(path)  # of before: a file that replaces it meanwhile must not pass for the one that was read
    except OSError as error:
        raise _unreadable(path, error) from error
    _ahead[key] = read_tokenizer(path)


_Key = tuple[Path, int, int, int]

_ahead: dict[_Key, Tokenizer] = {}


def _key(path: Path) -> _Key:
    found = path.stat()
    return path, found.st_ino, found.st_mtime_ns, found.st_size


def _unreadable(path: Path, error: Exception) -> ModelCorruptError:
    return ModelCorruptError(f"the tokenizer {path} cannot be read: {error}", file=str(path))
