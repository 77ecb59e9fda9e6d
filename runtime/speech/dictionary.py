"""gruut's English dictionary, made fast: how a written text becomes words with their phonemes."""

from __future__ import annotations

import logging
import sqlite3
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.repository.durable import sync
from runtime.repository.lock import exclusive

if TYPE_CHECKING:
    from gruut.text_processor import TextProcessor

log = logging.getLogger("omnibus.speech")

LANGUAGE = "en-us"

_FORMAT = 1
_TABLE = "SELECT word, pron_order, phonemes, role FROM shipped.word_phonemes"


def english(lexicons: Path | None = None) -> TextProcessor:
    """A text processor of its own; it keeps caches, so one thread at a time may use it.

    The dictionary ships without an index, so that a word that is not in it costs a read of the whole table, tens
    of milliseconds each; a copy with an index answers in microseconds, to any thread.

    Args:
        lexicons: Folder where that copy is kept, which every process of the host reads in place; None, or one that
            cannot be written: each makes its own in memory.
    """
    from gruut.lang import get_settings
    from gruut.phonemize import SqlitePhonemizer
    from gruut.text_processor import TextProcessor
    from gruut.utils import remove_non_word_chars

    lexicon = SqlitePhonemizer(
        _indexed(_path(), lexicons),
        # As gruut looks a word up: as it is, in lower case, without signs, and both.
        word_transform_funcs=[str.lower, remove_non_word_chars, lambda word: remove_non_word_chars(word.lower())],
    )
    settings = get_settings(LANGUAGE, lookup_phonemes=lexicon)
    return TextProcessor(default_lang=LANGUAGE, settings={LANGUAGE: settings})


def _path() -> Path:
    return Path(str(files("gruut_lang_en") / "lexicon.db"))


def _indexed(shipped: Path, lexicons: Path | None) -> sqlite3.Connection:
    if lexicons is not None:
        try:
            place = _kept(shipped, lexicons)
            try:
                return _read(place)
            except sqlite3.Error as error:
                log.warning("the dictionary %s is damaged and made again: %s", place, error)
                place.unlink(missing_ok=True)
                return _read(_kept(shipped, lexicons))
        except (OSError, sqlite3.Error) as error:
            log.warning("the dictionary is not kept in %s: %s", lexicons, error)
    memory = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    _write(memory, shipped)
    return memory


def _kept(shipped: Path, lexicons: Path) -> Path:
    """The copy of a dictionary, written now by the first process that asks while the others wait."""
    found = shipped.stat()
    place = lexicons / f"{LANGUAGE}-{found.st_size:x}-{found.st_mtime_ns:x}-{_FORMAT}.db"
    if place.exists():
        return place
    with exclusive(lexicons / ".lock"):
        if not place.exists():
            fresh = lexicons / ".new"
            fresh.unlink(missing_ok=True)  # of a process that died
            try:
                writing = sqlite3.connect(fresh, isolation_level=None)
                try:
                    # A file that is not whole never gets its name: there is nothing to recover.
                    writing.execute("PRAGMA journal_mode = OFF")
                    _write(writing, shipped)
                finally:
                    writing.close()
                sync(fresh)
                for old in lexicons.glob(f"{LANGUAGE}-*.db"):  # of another release; whoever reads it keeps it
                    old.unlink(missing_ok=True)
                fresh.rename(place)
            finally:
                fresh.unlink(missing_ok=True)
    return place


def _write(target: sqlite3.Connection, shipped: Path) -> None:
    target.execute("ATTACH ? AS shipped", (str(shipped),))
    target.execute(f"CREATE TABLE word_phonemes AS {_TABLE}")
    target.execute("CREATE INDEX by_word ON word_phonemes (word, pron_order)")
    target.execute("DETACH shipped")


def _read(place: Path) -> sqlite3.Connection:
    """A file that nobody writes to any more, in the memory that the system keeps it in."""
    nbytes = place.stat().st_size
    reading = sqlite3.connect(
        f"{place.absolute().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False, isolation_level=None
    )
    try:
        (pages,), (page_nbytes,) = (reading.execute(f"PRAGMA {of}").fetchone() for of in ("page_count", "page_size"))
        if pages * page_nbytes != nbytes:
            raise sqlite3.DatabaseError(f"{nbytes} bytes instead of {pages * page_nbytes}")
        reading.execute(f"PRAGMA mmap_size = {nbytes}")
        reading.execute("SELECT phonemes FROM word_phonemes WHERE word = 'ready'").fetchone()
    except BaseException:
        reading.close()
        raise
    return reading
