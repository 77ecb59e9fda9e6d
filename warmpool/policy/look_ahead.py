"""What a request that was just accepted will need, and when."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from functions.flow.plan import END, Plan

_KEEP = 0.8
_LEAST_REACH = 0.2
"""A stage that fewer requests than this reach is not started ahead for each of them."""


@dataclass(frozen=True)
class Due:
    """A stage that a request will reach.

    Attributes:
        function: What runs there.
        after_s: Seconds from the start of the request until then, as far as is known.
        reach: Which share of such requests gets there, 0 to 1.
    """

    function: str
    after_s: float
    reach: float

    @property
    def likely(self) -> bool:
        """Whether enough of them get there to start it for each."""
        return self.reach >= _LEAST_REACH


class LookAhead:
    """Learns which functions the requests of a pipeline reach."""

    def __init__(self) -> None:
        self._reach: dict[tuple[str, str], float] = {}

    def learn(self, pipeline: str, function: str, *, reached: bool) -> None:
        """A request of the pipeline got to the function, or did not; the latest ones count most."""
        former = self._reach.get((pipeline, function), 1.0)  # until it is known, all are reached: skips show soon
        self._reach[pipeline, function] = _KEEP * former + (1 - _KEEP) * reached

    def expect(
        self, plan: Plan, service_s: Mapping[str, float], stages: Collection[str] | None = None
    ) -> tuple[Due, ...]:
        """The functions that a request which starts now may need, each when it is first due, likely or not.

        A stage is due when the longest way to it is done: it waits for all stages before it.

        Args:
            plan: Of its pipeline.
            service_s: How long functions run; those that are not in it take no time that is known.
            stages: Names of those that it can get to; None: all.
        """
        done_s: dict[str, float] = {}
        due: dict[str, Due] = {}
        for stage in plan.stages:
            if stage.name == END or (stages is not None and stage.name not in stages):
                continue
            after_s = max((done_s.get(before, 0.0) for before in stage.upstream), default=0.0)
            done_s[stage.name] = after_s + service_s.get(stage.function, 0.0)
            reach = self._reach.get((plan.pipeline, stage.function), 1.0)
            known = due.get(stage.function)
            if known is None or after_s < known.after_s:
                due[stage.function] = Due(stage.function, after_s, reach)
        return tuple(sorted(due.values(), key=lambda one: (one.after_s, one.function)))


def by_group(due: Iterable[Due], groups: Mapping[str, str]) -> dict[str, Due]:
    """The first that each group is needed for.

    Args:
        due: In the order of time.
        groups: Group by function; functions that are not in it are not served here.
    """
    first: dict[str, Due] = {}
    for one in due:
        if one.function in groups:
            first.setdefault(groups[one.function], one)
    return first
