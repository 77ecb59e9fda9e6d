"""Replays a trace against a keep-alive policy."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from functools import partial

from warmpool.policy.keep_alive import Cost, KeepAlive
from warmpool.policy.levels import Levels
from warmpool.policy.shadow import Shadow
from warmpool.simulate.meter import Meter
from warmpool.simulate.report import Report
from warmpool.simulate.trace import Trace

_ACCOUNT_EVERY_S = 30.0


class _Kind(IntEnum):
    DONE = 0
    READY = 1
    EDGE = 2


class _Worker:
    def __init__(self, ready_s: float) -> None:
        self.ready_s, self.running = ready_s, 0


class _Group:
    def __init__(self, cost: Cost, slots: int, levels: Levels) -> None:
        self.cost, self.slots, self.levels = cost, slots, levels
        self.running = self.starting = 0
        self.workers: list[_Worker] = []
        self.waiting: deque[tuple[float, float, int]] = deque()
        """Requests without a worker: when they came, how long they run, which they are."""

        self.edge_s = math.inf
        """The next time to look at its levels that is in the queue of events."""

    @property
    def needed(self) -> int:
        """Workers for all requests that run or wait."""
        return -(-(self.running + len(self.waiting)) // self.slots)

    @property
    def surplus(self) -> int:
        """Workers more than are needed or kept; negative: so many are missing."""
        return len(self.workers) + self.starting - self.levels.needed - self.levels.kept

    def free(self) -> _Worker | None:
        """The fullest worker with a free slot: the others can end sooner."""
        able = [worker for worker in self.workers if worker.running < self.slots]
        return max(able, key=lambda worker: worker.running) if able else None


class Simulation:
    """One trace against one policy.

    Args:
        trace: What arrives.
        policy: When workers wait.
        shadow_s: The fixed keep-alive whose memory is what the policy may spend.
    """

    def __init__(self, trace: Trace, policy: KeepAlive, shadow_s: float = 600.0) -> None:
        self._trace, self._policy = trace, policy
        self._meter, self._shadow = Meter(), Shadow(shadow_s)
        self._groups = [
            _Group(Cost(nbytes=nbytes, start_s=start_s), trace.slots, Levels(index, policy, self._shadow))
            for index, (nbytes, start_s) in enumerate(zip(trace.nbytes.tolist(), trace.start_s.tolist(), strict=True))
        ]
        self._events: list[tuple[float, int, int, Callable[[float], None]]] = []
        self._count = 0
        self._accounted_s, self._kept = 0.0, 0.0
        self._allowed = 0.0
        self._report = Report.empty(trace)

    def run(self) -> Report:
        """Replay everything; what runs, starts or waits at the end of the trace is counted until then."""
        trace = self._trace
        groups = None if trace.groups is None else trace.groups.tolist()
        rows = zip(trace.times_s.tolist(), trace.functions.tolist(), trace.run_s.tolist(), strict=True)
        for number, (now_s, function, run_s) in enumerate(rows):
            self._until(now_s)
            self._pass(now_s)
            index = function if groups is None else groups[function]
            self._policy.arrived(index, function, now_s)
            self._arrive(self._groups[index], now_s, run_s, number)
        self._until(trace.duration_s)
        self._pass(trace.duration_s)
        self._report.at_end(self._meter)
        return self._report

    def _until(self, end_s: float) -> None:
        while self._events and self._events[0][0] <= end_s:
            now_s, _, _, happen = heapq.heappop(self._events)
            self._pass(now_s)
            happen(now_s)

    def _pass(self, now_s: float) -> None:
        self._meter.pass_to(now_s)
        self._allowed += self._shadow.pass_to(now_s)
        if now_s - self._accounted_s >= _ACCOUNT_EVERY_S:
            seconds = now_s - self._accounted_s
            kept = self._meter.idle + self._meter.starting
            self._policy.account(seconds, (kept - self._kept) / seconds, self._allowed / seconds)
            self._accounted_s, self._kept, self._allowed = now_s, kept, 0.0

    def _at(self, when_s: float, kind: _Kind, happen: Callable[[float], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when_s, kind, self._count, happen))

    def _arrive(self, group: _Group, now_s: float, run_s: float, number: int) -> None:
        worker = group.free()
        group.waiting.append((now_s, run_s, number))
        group.levels.need(group.needed, group.cost, now_s)
        if worker is not None:
            self._serve(group, worker, now_s)
        self._settle(group, now_s)

    def _serve(self, group: _Group, worker: _Worker, now_s: float) -> None:
        came_s, run_s, number = group.waiting.popleft()
        if not worker.running:
            self._meter.begin(group.cost.nbytes)
        worker.running += 1
        group.running += 1
        self._report.served(number, wait_s=now_s - came_s, cold=worker.ready_s > came_s)
        self._at(now_s + run_s, _Kind.DONE, partial(self._done, group, worker))

    def _done(self, group: _Group, worker: _Worker, now_s: float) -> None:
        worker.running -= 1
        group.running -= 1
        if not worker.running:
            self._meter.end(group.cost.nbytes)
        if group.waiting:
            self._serve(group, worker, now_s)
        group.levels.need(group.needed, group.cost, now_s)
        self._settle(group, now_s)

    def _ready(self, group: _Group, now_s: float) -> None:
        group.starting -= 1
        self._meter.ready(group.cost.nbytes)
        worker = _Worker(now_s)
        group.workers.append(worker)
        while group.waiting and worker.running < group.slots:
            self._serve(group, worker, now_s)
        self._settle(group, now_s)

    def _edge(self, group: _Group, now_s: float) -> None:
        if group.edge_s == now_s:  # else another one has taken its place
            group.edge_s = math.inf
            group.levels.look(group.cost, now_s)
            self._settle(group, now_s)

    def _settle(self, group: _Group, now_s: float) -> None:
        """Start what is wanted and is not there; end what waits and is not wanted."""
        surplus = group.surplus
        for _ in range(-surplus):
            group.starting += 1
            self._meter.start(group.cost.nbytes)
            self._at(now_s + group.cost.start_s, _Kind.READY, partial(self._ready, group))
        if surplus > 0:
            for worker in [worker for worker in group.workers if not worker.running][:surplus]:
                group.workers.remove(worker)
                self._meter.retire(group.cost.nbytes)
        edge_s = group.levels.edge_s
        if edge_s < group.edge_s:
            group.edge_s = edge_s
            self._at(edge_s, _Kind.EDGE, partial(self._edge, group))
