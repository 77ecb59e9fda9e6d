"""Workers for the later stages of requests that were just heard of, and whether they were needed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from functions.flow.plan import Plan
from warmpool.policy.look_ahead import LookAhead, by_group
from warmpool.policy.pool_policy import PoolPolicy

_PATIENCE_S = 30.0
"""A group that has had no work so long after it was due was not needed."""


class Ahead:
    """Tells the policy what is on its way, and learns what gets there.

    Args:
        policy: Is told.
        group_of: Group by function.
    """

    def __init__(self, policy: PoolPolicy, group_of: Mapping[str, str]) -> None:
        self._policy, self._group_of = policy, group_of
        self._look_ahead = LookAhead()
        self._expected: dict[str, tuple[str, str, float]] = {}
        """By group: the pipeline and the function that it is expected for, and until when."""

    def start(
        self, plan: Plan, service_s: Mapping[str, float], now_s: float, stages: Collection[str] | None = None
    ) -> None:
        """A request of a plan has begun.

        Args:
            plan: Of its pipeline.
            service_s: How long functions run.
            now_s: On the policy's clock.
            stages: Names of those that it can get to; None: all.
        """
        expected = self._look_ahead.expect(plan, service_s, stages)
        likely = by_group((due for due in expected if due.likely), self._group_of)
        for group, due in likely.items():
            self._policy.ahead(group, now_s + due.after_s)
        # What is not started for is looked at all the same: else it would be taken for unlikely for ever.
        for group, due in (by_group(expected, self._group_of) | likely).items():
            self._expected.setdefault(group, (plan.pipeline, due.function, now_s + due.after_s + _PATIENCE_S))

    def look(self, group: str, now_s: float, *, works: bool) -> None:
        """Whether a group has work now."""
        if group not in self._expected:
            return
        pipeline, function, until_s = self._expected[group]
        if works or now_s > until_s:
            self._look_ahead.learn(pipeline, function, reached=works)
            del self._expected[group]
