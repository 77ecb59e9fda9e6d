"""How much of a prompt to compute between two decode steps.

Whoever reads an answer waits for the pieces of other prompts that are put between its tokens. A piece is as large as
fits into the time of a decode step, so that a new prompt at most doubles the gap between two tokens of the others;
alone it is as large as is efficient.

Source: Agrawal et al., Sarathi-Serve (OSDI 2024), section 4.
"""

from __future__ import annotations

_LEAST = 8
_NEWEST = 0.2


class PrefillPace:
    """Measures steps and says how large the next piece of a prompt is to be.

    Args:
        most: Tokens of a piece when nobody waits for it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._token_s: float | None = None
        self._decode_s: float | None = None

    def chunk(self, decoding: int) -> int:
        """Tokens of the next piece.

        Args:
            decoding: Rows that are decoded between pieces.
        """
        if not decoding or self._token_s is None or self._decode_s is None:
            return self._most if not decoding else min(self._most, _LEAST)
        return min(self._most, max(_LEAST, int(self._decode_s / self._token_s)))

    def prefilled(self, tokens: int, seconds: float) -> None:
        """A piece of so many tokens took so long."""
        self._token_s = _average(self._token_s, seconds / tokens)

    def decoded(self, seconds: float) -> None:
        """A decode step took so long."""
        self._decode_s = _average(self._decode_s, seconds)


def _average(known: float | None, newest: float) -> float:
    return newest if known is None else (1 - _NEWEST) * known + _NEWEST * newest
