"""An answer that is given, to learn how likely the model finds it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class ForcedAnswer:
    """A `Constraint` that leaves one token at a time: those of a given answer, in their order.

    Args:
        tokens: int32 `(token,)`, at least one.
        vocabulary: Tokens that there are.
    """

    def __init__(self, tokens: NDArray[np.int32], vocabulary: int) -> None:
        self._tokens: list[int] = tokens.tolist()
        self._allowed = np.zeros(vocabulary, np.bool_)
        self._place = 0

    def allowed(self) -> NDArray[np.bool_]:
        """The next token of the answer; none behind its end. Valid until the next call."""
        self._allowed[:] = False
        self._allowed[self._tokens[self._place : self._place + 1]] = True
        return self._allowed

    def accept(self, token: int) -> None:
        """Go on to the next one."""
        self._place += 1
