"""The dictionary is kept once for a host, and is the same wherever it is read."""

from __future__ import annotations

import os
import sqlite3
from importlib.resources import files
from pathlib import Path

import pytest

from runtime.speech.dictionary import english
from runtime.speech.phonemes import EnglishPhonemes

TEXT = "The quick brown fox jumps over the lazy dog, and Dr. Smith read 21 records."


def shipped(word: str) -> str:
    """What the dictionary as it is published says of a word."""
    with sqlite3.connect(str(files("gruut_lang_en") / "lexicon.db")) as lexicon:
        query = "SELECT phonemes FROM word_phonemes WHERE word = ? ORDER BY pron_order LIMIT 1"
        return str(lexicon.execute(query, (word,)).fetchone()[0])


def phonemes(lexicons: Path | None, word: str) -> str:
    (sentence,) = english(lexicons).sentences(*english(lexicons)(word))
    return " ".join(sentence.words[0].phonemes or ())


def the_file(lexicons: Path) -> Path:
    (found,) = lexicons.glob("*.db")
    return found


@pytest.mark.parametrize("word", ["tiger", "question", "kitchen"])
def test_a_kept_dictionary_says_what_the_published_one_says(tmp_path: Path, word: str) -> None:
    assert phonemes(tmp_path, word) == shipped(word)


def test_a_text_is_read_the_same_with_a_kept_dictionary_and_with_one_in_memory(tmp_path: Path) -> None:
    assert EnglishPhonemes(tmp_path).sentences(TEXT) == EnglishPhonemes().sentences(TEXT)


def test_the_second_reader_finds_the_file_of_the_first(tmp_path: Path) -> None:
    english(tmp_path)
    before = the_file(tmp_path).stat()
    english(tmp_path)
    assert the_file(tmp_path).stat() == before


@pytest.mark.parametrize("keep", [0, 100, 4096, -4096])
def test_a_damaged_file_is_made_again(tmp_path: Path, keep: int) -> None:
    english(tmp_path)
    whole = the_file(tmp_path).read_bytes()
    the_file(tmp_path).write_bytes(whole[:keep])
    assert phonemes(tmp_path, "tiger") == shipped("tiger")
    assert the_file(tmp_path).stat().st_size == len(whole)


def test_what_a_process_that_died_left_and_what_is_of_another_release_goes(tmp_path: Path) -> None:
    (tmp_path / ".new").write_bytes(b"half of a file")
    (tmp_path / "en-us-1-2-1.db").write_bytes(b"of another release")
    assert phonemes(tmp_path, "tiger") == shipped("tiger")
    assert sorted(os.listdir(tmp_path)) == sorted([".lock", the_file(tmp_path).name])


def test_where_nothing_can_be_kept_it_is_read_from_memory(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_bytes(b"a file where a folder should be")
    assert phonemes(blocked / "lexicons", "tiger") == shipped("tiger")
