"""A vocabulary that was read ahead is the first reader's, as long as the file is the one that was read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from bus.errors import ModelCorruptError
from runtime.text.vocabulary import read_ahead, read_tokenizer

WORDS = ("tiger", "cat", "lemur")


def write(path: Path, *words: str) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))


def damage(path: Path) -> None:
    """Another content that looks like the same file."""
    found = path.stat()
    path.write_bytes(b"{" * found.st_size)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def test_what_was_read_ahead_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    write(path, *WORDS)
    read_ahead(path)
    damage(path)
    assert read_tokenizer(path).encode("cat tiger").ids == [1, 0]


def test_it_is_handed_out_once_since_its_reader_may_change_it(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    write(path, *WORDS)
    read_ahead(path)
    first = read_tokenizer(path)
    first.enable_truncation(1)
    assert read_tokenizer(path).encode("cat tiger").ids == [1, 0]


def test_a_file_that_was_changed_is_read_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    write(path, *WORDS)
    read_ahead(path)
    write(path, *WORDS, "owl")
    assert read_tokenizer(path).encode("owl").ids == [3]


def test_a_file_that_is_replaced_while_it_is_read_ahead_is_read_as_it_is_then(tmp_path: Path) -> None:
    path, old, new = tmp_path / "tokenizer.json", tmp_path / "old.json", tmp_path / "new.json"
    write(old, *WORDS)
    write(new, *reversed(WORDS))
    os.mkfifo(path)  # whoever opens it waits for us

    # Another process, since the library keeps the interpreter to itself while it reads.
    script = "exec 3> tokenizer.json; mv new.json tokenizer.json; cat old.json >&3"
    with subprocess.Popen(["sh", "-c", script], cwd=tmp_path):
        read_ahead(path)
    assert read_tokenizer(path).encode("lemur cat tiger").ids == [0, 1, 2]


def test_one_that_is_missing_or_damaged_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ModelCorruptError, match=r"nowhere\.json"):
        read_tokenizer(tmp_path / "nowhere.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ModelCorruptError, match=r"bad\.json"):
        read_ahead(tmp_path / "bad.json")
    with pytest.raises(ModelCorruptError, match=r"nowhere\.json"):
        read_ahead(tmp_path / "nowhere.json")
