"""The price of waiting memory: raised when more was spent than is allowed, lowered when less was."""

from __future__ import annotations

import math

_GAIN_PER_S = 1 / 3600.0
"""How fast the price follows: a spending that is off by its whole size changes it e-fold in an hour."""

_REMEMBERED_S = 4 * 3600.0
_AIM = 0.97
"""Of what is allowed is aimed at: what was spent cannot be taken back."""

_LOWEST, _HIGHEST = -60.0, 60.0


class Price:
    """One price for all functions, in cold starts (by their weight) a second and byte.

    Args:
        first: What it is before anything is known.

    Attributes:
        spent: Byte-seconds that waited so far.
        allowed: Byte-seconds that were allowed so far.
    """

    def __init__(self, first: float) -> None:
        self._log = math.log(first)
        self.spent = self.allowed = 0.0
        self._lately_spent = self._lately_allowed = 0.0

    @property
    def value(self) -> float:
        """The price now: a worker waits while its hazard × weight ÷ bytes is at least this."""
        behind = max(0.0, self.spent - _AIM * self.allowed)
        # What was overspent is saved again: the price is higher while there is a debt.
        return math.exp(self._log) * (1.0 + 16.0 * behind / max(self._lately_allowed, 1e-9))

    def account(self, seconds: float, kept_nbytes: float, allowed_nbytes: float) -> None:
        """So much was kept and allowed for so long."""
        spent, allowed = seconds * kept_nbytes, seconds * allowed_nbytes
        self.spent += spent
        self.allowed += allowed
        keep = math.exp(-seconds / _REMEMBERED_S)
        self._lately_spent = self._lately_spent * keep + spent
        self._lately_allowed = self._lately_allowed * keep + allowed
        if self._lately_spent + self._lately_allowed > 0:
            aim = _AIM * self._lately_allowed
            off = (self._lately_spent - aim) / max(self._lately_spent, aim)
            self._log = min(_HIGHEST, max(_LOWEST, self._log + _GAIN_PER_S * seconds * off))
