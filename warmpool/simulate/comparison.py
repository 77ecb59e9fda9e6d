"""Policies against each other on one trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from warmpool.policy.group_forecast import GroupForecast
from warmpool.policy.hybrid import HistogramKeepAlive
from warmpool.policy.keep_alive import FixedKeepAlive, KeepAlive
from warmpool.simulate.azure import azure
from warmpool.simulate.engine import Simulation
from warmpool.simulate.report import Report
from warmpool.simulate.trace import Trace, simple

BASELINE_S = 600.0
"""The fixed keep-alive that the others are measured by."""

TRACES = ("azure", "poisson", "bursts", "diurnal")

_FIXED_S = (120.0, 300.0, 600.0, 1200.0, 2400.0, 4800.0)
_RANGES_S = (1800.0, 3600.0, 7200.0, 14_400.0)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One policy with its setting.

    Attributes:
        policy: Its family: `fixed`, `histogram` or `ours`.
        setting_s: The keep-alive, the histogram's range, or the fixed keep-alive whose memory ours may spend.
    """

    policy: str
    setting_s: float

    @property
    def name(self) -> str:
        """For a table."""
        return f"{self.policy} {self.setting_s / 60:g} min"

    def run(self, trace: Trace) -> Report:
        """Replay a trace."""
        makers: Mapping[str, Callable[[], KeepAlive]] = {
            "fixed": lambda: FixedKeepAlive(self.setting_s),
            "histogram": lambda: HistogramKeepAlive(self.setting_s),
            "ours": GroupForecast,
        }
        return Simulation(trace, makers[self.policy](), shadow_s=self.setting_s).run()


BASELINE = Entry(policy="fixed", setting_s=BASELINE_S)
TABLE = (
    BASELINE,
    Entry(policy="histogram", setting_s=3600.0),
    Entry(policy="histogram", setting_s=14_400.0),
    Entry(policy="ours", setting_s=BASELINE_S),
)
"""What is compared by default."""

CURVES = tuple(
    Entry(policy=policy, setting_s=setting_s)
    for policy, settings in (("fixed", _FIXED_S), ("histogram", _RANGES_S), ("ours", _FIXED_S))
    for setting_s in settings
)
"""What curves are drawn through."""


def make_trace(name: str, *, functions: int, duration_s: float, seed: int, slots: int | None = None) -> Trace:
    """A trace of a kind of `TRACES`.

    Args:
        name: The kind.
        functions: How many functions.
        duration_s: How long.
        seed: The same seed gives the same trace.
        slots: Requests that a worker runs at once; None: as is usual for the kind.
    """
    given = {} if slots is None else {"slots": slots}
    if name == "azure":
        return azure(functions=functions, duration_s=duration_s, seed=seed, **given)
    return simple(name, functions=functions, duration_s=duration_s, seed=seed, **given)


def compare(trace: Trace, entries: Sequence[Entry]) -> dict[Entry, Report]:
    """Each policy's result, in order."""
    return {entry: entry.run(trace) for entry in entries}
