"""From tokens to text while they come: whole characters only, and nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class Detokenizer:
    """Joins the bytes of tokens to characters.

    A character that is split over tokens is held back until it is whole; bytes that are no character are dropped.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def push(self, token: bytes) -> str:
        """The text that is certain after one more token."""
        return self._decoder.decode(token)

    def finish(self) -> str:
        """What is left at the end: nothing, unless the last character is whole."""
        return self._decoder.decode(b"", final=True)


class StopFilter:
    """Ends a text at the first stop string, wherever the token borders fall.

    Attributes:
        stopped: Whether a stop string has come.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that can be shown: no part of it can become a part of a stop string."""
        if self.stopped:
            return ""
        self._held += text
        found = [(place, text) for text in self._stop if (place := self._held.find(text)) >= 0]
        if found:
            self.stopped = True
            shown, self._held = self._held[: min(found)[0]], ""
            return shown
        keep = self._unsure()
        shown = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        return shown

    def finish(self) -> str:
        """What was held back, when nothing more comes."""
        shown, self._held = self._held, ""
        return shown

    def _unsure(self) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = max((len(text) - 1 for text in self._stop), default=0)
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(text.startswith(self._held[-length:]) for text in self._stop):
                return length
        return 0
