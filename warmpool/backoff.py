"""How long to wait before something that died is started again."""

from __future__ import annotations

FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 10.0
STABLE_S = 30.0
_MOST_DOUBLINGS = 16


class Backoff:
    """Counts the deaths of one thing.

    Attributes:
        failures: How often it died in a row before it was stable.
        ever_stable: Whether it ever was.
    """

    def __init__(self) -> None:
        self.failures = 0
        self.ever_stable = False

    def died(self, lived_s: float) -> float:
        """It has died after so many seconds of life; returns the seconds to wait before the next start."""
        stable = lived_s > STABLE_S
        self.failures = 1 if stable else self.failures + 1
        self.ever_stable = self.ever_stable or stable
        delay_s: float = FIRST_DELAY_S * 2 ** min(self.failures - 1, _MOST_DOUBLINGS)
        return min(LONGEST_DELAY_S, delay_s)

    def hopeless(self, attempts: int) -> bool:
        """Whether it died so often in a row without ever having been stable.

        One that was stable is started again for ever: what it lacks now may come back.
        """
        return self.failures >= attempts and not self.ever_stable
