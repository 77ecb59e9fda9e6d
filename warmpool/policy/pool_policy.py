"""Everything together: what a pool should run, from what it sees."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from warmpool.policy.fairness import in_turn
from warmpool.policy.group_forecast import GroupForecast
from warmpool.policy.levels import Levels
from warmpool.policy.room import Claim, Why, admit
from warmpool.policy.shadow import Shadow
from warmpool.policy.staffing import Rate, for_backlog, for_rate
from warmpool.policy.view import Decision, GroupView, Target

_SOON_S = 5.0
_ALLOWED_S = 600.0
"""What may be spent on waiting: as much as if every worker waited for so long after its work."""


class PoolPolicy:
    """Decides for one host. It has no clock: whoever asks says what time it is.

    Args:
        allowed_s: Waiting workers may take as much memory over time as if each waited for so long after its work.
    """

    def __init__(self, allowed_s: float = _ALLOWED_S) -> None:
        self.forecast = GroupForecast()
        self._shadow = Shadow(allowed_s)
        self._levels: dict[str, Levels] = {}
        self._rates: dict[str, Rate] = defaultdict(Rate)
        self._ahead: dict[str, list[float]] = defaultdict(list)
        self._surplus_since: dict[str, float] = {}
        self._now_s: float | None = None
        self._waiting_nbytes = 0.0

    def arrived(self, group: str, function: str, lane: str, now_s: float, count: int = 1) -> None:
        """Requests came for a function of the group since it was looked at last."""
        self.forecast.arrived(group, (function, lane), now_s)
        self._rates[group].add(now_s, count)

    def ahead(self, group: str, due_s: float) -> None:
        """A request that is on its way will need the group then."""
        self._ahead[group].append(due_s)

    def decide(self, groups: Sequence[GroupView], room_nbytes: float, now_s: float) -> Decision:
        """What each group is to have now.

        Args:
            groups: What the pool sees.
            room_nbytes: What all workers may take together.
            now_s: The time, in seconds from anywhere; never less than before.
        """
        self._pass(now_s)
        for view in groups:
            self._update(view, now_s)
        admitted = admit(self._claims(groups, now_s), room_nbytes)
        targets = {view.group: self._target(view, admitted[view.group], now_s) for view in groups}
        self._waiting_nbytes = sum(
            max(0, view.alive - max(view.floor, self._levels[view.group].needed)) * view.cost.nbytes for view in groups
        )
        return Decision(targets=targets, look_again_s=self._look_again(groups, now_s))

    def _pass(self, now_s: float) -> None:
        seconds = 0.0 if self._now_s is None else now_s - self._now_s
        allowed = self._shadow.pass_to(now_s)
        if seconds > 0:
            self.forecast.account(seconds, self._waiting_nbytes, allowed / seconds)
        self._now_s = now_s

    def _update(self, view: GroupView, now_s: float) -> None:
        if view.group not in self._levels:
            self._levels[view.group] = Levels(view.group, self.forecast, self._shadow)
        self.forecast.keep_at_least(view.group, view.warm.keep_alive_s or 0.0)
        levels = self._levels[view.group]
        if view.running is not None and view.waiting is not None:
            levels.need(self._workers(view, view.running + view.waiting, now_s), view.cost, now_s)
        levels.look(view.cost, now_s)
        self._ahead[view.group] = [due_s for due_s in self._ahead[view.group] if due_s + _SOON_S > now_s]

    def _workers(self, view: GroupView, requests: int, now_s: float) -> int:
        """How many workers requests need that run or wait, and those that come at this rate behind them."""
        if view.share is not None:
            return min(view.ceiling, view.share)
        if not requests:
            return 0
        target_wait_s = view.warm.target_wait_ms / 1e3
        now = for_backlog(requests, view.slots, view.service_s, target_wait_s)
        rate_per_s = self._rates[view.group].at(now_s)
        steady = for_rate(rate_per_s, view.slots, view.service_s, target_wait_s) if target_wait_s else now
        return min(view.ceiling, max(now, steady))

    def _claims(self, groups: Sequence[GroupView], now_s: float) -> Iterator[Claim]:
        for view in groups:
            for number in range(view.floor):
                yield _claim(view, number, Why.MINIMUM)
        yield from self._needed(groups)
        for view in groups:
            levels = self._levels[view.group]
            there = max(view.floor, levels.needed)
            ahead = max(there, min(view.ceiling, int(self._is_ahead(view, now_s))))
            for number in range(there, ahead):
                yield _claim(view, number, Why.AHEAD)
            for number in range(ahead, min(view.ceiling, levels.needed + levels.kept)):
                idle_s = levels.idle_s(now_s) or 0.0
                yield _claim(view, number, Why.KEPT, self.forecast.rate((view.group, number), idle_s, now_s))

    def _needed(self, groups: Sequence[GroupView]) -> Iterator[Claim]:
        """Claims of the groups with work, in the order of whose turn it is."""
        views = {view.group: view for view in groups}
        wanted: dict[str, dict[str, int]] = defaultdict(dict)
        for view in groups:
            requests = sum(view.tenants.values())
            for tenant, count in (view.tenants or {"": 1}).items():
                share = math.ceil(self._levels[view.group].needed * count / max(1, requests))
                if share:
                    wanted[tenant][view.group] = share
        number = {view.group: view.floor for view in groups}
        for _, group in in_turn(wanted, {view.group: view.cost.nbytes for view in groups}):
            if number[group] < self._levels[group].needed:
                yield _claim(views[group], number[group], Why.NEEDED)
                number[group] += 1

    def _is_ahead(self, view: GroupView, now_s: float) -> bool:
        """Whether a worker that starts now would be ready just in time for somebody, or is waited for."""
        return (
            view.warm.look_ahead
            and view.leads
            and any(due_s - view.cost.start_s <= now_s for due_s in self._ahead[view.group])
        )

    def _target(self, view: GroupView, admitted: int, now_s: float) -> Target:
        levels = self._levels[view.group]
        unknown = view.running is None or view.waiting is None
        surplus = view.alive - admitted
        if surplus <= 0:
            self._surplus_since.pop(view.group, None)
            return self._told(view, admitted)
        since_s = self._surplus_since.setdefault(view.group, now_s)
        wanted = max(view.floor, levels.needed + levels.kept)
        squeezed = admitted < min(wanted, view.ceiling)  # there is no room for all that there should be
        if unknown or (not squeezed and now_s < since_s + self._linger_s(view)):
            return self._told(view, view.alive, "unknown" if unknown else "lingers")
        return self._told(view, admitted, "no room" if squeezed else "")

    def _told(self, view: GroupView, workers: int, why: str = "") -> Target:
        levels = self._levels[view.group]
        why = why or f"needed {levels.needed}, kept {levels.kept}, min {view.floor}"
        return Target(workers=workers, needed=min(workers, levels.needed), tier=view.warm.tier, why=why)

    def _linger_s(self, view: GroupView) -> float:
        """How long nothing is stopped after it became too much: load goes up and down within a start's time."""
        return max(_SOON_S, 2 * view.cost.start_s)

    def _look_again(self, groups: Sequence[GroupView], now_s: float) -> float:
        times = [math.inf]
        for view in groups:
            times.append(self._levels[view.group].edge_s)
            if view.group in self._surplus_since:
                times.append(self._surplus_since[view.group] + self._linger_s(view))
            for due_s in self._ahead[view.group]:
                times += [due_s - view.cost.start_s, due_s + _SOON_S]
        return min((when_s for when_s in times if when_s > now_s), default=math.inf)


def _claim(view: GroupView, number: int, why: Why, rate_per_s: float = 0.0) -> Claim:
    return Claim(
        group=view.group,
        nbytes=view.cost.nbytes,
        why=why,
        value=rate_per_s * view.cost.weight,
        held=number < view.alive,
    )
