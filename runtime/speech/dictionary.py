"""gruut's English dictionary, made fast: how a written text becomes words with their phonemes."""

from __future__ import annotations

import sqlite3
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gruut.text_processor import TextProcessor

LANGUAGE = "en-us"


def english() -> TextProcessor:
    """A text processor of its own; it keeps caches, so one thread at a time may use it.

    The dictionary ships without an index, so that a word that is not in it costs a read of the whole table, tens
    of milliseconds each; a copy in memory with an index answers in microseconds, to any thread.
    """
    from gruut.lang import get_settings
    from gruut.phonemize import SqlitePhonemizer
    from gruut.text_processor import TextProcessor
    from gruut.utils import remove_non_word_chars

    lexicon = SqlitePhonemizer(
        _indexed(_path()),
        # As gruut looks a word up: as it is, in lower case, without signs, and both.
        word_transform_funcs=[str.lower, remove_non_word_chars, lambda word: remove_non_word_chars(word.lower())],
    )
    settings = get_settings(LANGUAGE, lookup_phonemes=lexicon)
    return TextProcessor(default_lang=LANGUAGE, settings={LANGUAGE: settings})


def _path() -> str:
    return str(files("gruut_lang_en") / "lexicon.db")


def _indexed(path: str) -> sqlite3.Connection:
    memory = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    memory.execute("ATTACH ? AS shipped", (path,))
    memory.execute("CREATE TABLE word_phonemes AS SELECT word, pron_order, phonemes, role FROM shipped.word_phonemes")
    memory.execute("CREATE INDEX by_word ON word_phonemes (word, pron_order)")
    memory.execute("DETACH shipped")
    return memory
