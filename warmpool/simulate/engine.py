"""Replays a trace against a keep-alive policy.

Level n of a function is its need of an n+1st worker, and each level has idle times of its own. So the policy that keeps
one worker of a function keeps several of a busier one, and which of them do the work does not matter.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from functools import partial

from warmpool.policy.keep_alive import Cost, KeepAlive, next_edge
from warmpool.simulate.meter import Meter, Shadow
from warmpool.simulate.report import Report
from warmpool.simulate.trace import Trace

_LOOK_AGAIN_S = 900.0
"""A plan to be warm for long is looked at again: the price may be another one."""

_ACCOUNT_EVERY_S = 30.0


class _Kind(IntEnum):
    DONE = 0
    READY = 1
    EDGE = 2


class _Level:
    """The need of one more worker."""

    def __init__(self) -> None:
        self.idle_since_s: float | None = None
        self.warm = False
        self.plan = 0
        """Counts its idle times and plans, so that an edge of an older one is known."""


class _Worker:
    def __init__(self, ready_s: float) -> None:
        self.ready_s, self.running = ready_s, 0


class _Function:
    def __init__(self, index: int, cost: Cost, slots: int) -> None:
        self.index, self.cost, self.slots = index, cost, slots
        self.levels: list[_Level] = []
        self.running = self.starting = 0
        self.workers: list[_Worker] = []
        self.waiting: deque[tuple[float, float, int]] = deque()
        """Requests without a worker: when they came, how long they run, which they are."""

    @property
    def needed(self) -> int:
        """Workers for all requests that run or wait."""
        return -(-(self.running + len(self.waiting)) // self.slots)

    @property
    def surplus(self) -> int:
        """Workers more than are needed or kept; negative: so many are missing."""
        kept = sum(level.warm for level in self.levels[self.needed :])
        return len(self.workers) + self.starting - self.needed - kept

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
        self._functions = [
            _Function(index, Cost(nbytes=nbytes, start_s=start_s), trace.slots)
            for index, (nbytes, start_s) in enumerate(zip(trace.nbytes.tolist(), trace.start_s.tolist(), strict=True))
        ]
        self._events: list[tuple[float, int, int, Callable[[float], None]]] = []
        self._count = 0
        self._meter, self._shadow = Meter(), Shadow(shadow_s)
        self._accounted_s, self._kept = 0.0, 0.0
        self._allowed = 0.0
        self._report = Report.empty(trace)

    def run(self) -> Report:
        """Replay everything; what still runs at the end of the trace is run to its end, with nothing kept."""
        trace = self._trace
        rows = zip(trace.times_s.tolist(), trace.functions.tolist(), trace.run_s.tolist(), strict=True)
        for number, (now_s, index, run_s) in enumerate(rows):
            self._until(now_s)
            self._pass(now_s)
            self._arrive(self._functions[index], now_s, run_s, number)
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

    def _arrive(self, function: _Function, now_s: float, run_s: float, number: int) -> None:
        before, worker = function.needed, function.free()
        function.waiting.append((now_s, run_s, number))
        if function.needed > before:
            self._end_idle_time(function, before, now_s)
        if worker is not None:
            self._serve(function, worker, now_s)
        self._settle(function, now_s)

    def _end_idle_time(self, function: _Function, number: int, now_s: float) -> None:
        if number == len(function.levels):
            function.levels.append(_Level())
        level = function.levels[number]
        level.plan += 1
        level.warm = False
        if level.idle_since_s is not None:
            self._policy.observe((function.index, number), now_s - level.idle_since_s)
            self._shadow.end((function.index, number))
            level.idle_since_s = None

    def _serve(self, function: _Function, worker: _Worker, now_s: float) -> None:
        came_s, run_s, number = function.waiting.popleft()
        if not worker.running:
            self._meter.begin(function.cost.nbytes)
        worker.running += 1
        function.running += 1
        self._report.served(number, wait_s=now_s - came_s, cold=worker.ready_s > came_s)
        self._at(now_s + run_s, _Kind.DONE, partial(self._done, function, worker))

    def _done(self, function: _Function, worker: _Worker, now_s: float) -> None:
        before = function.needed
        worker.running -= 1
        function.running -= 1
        if not worker.running:
            self._meter.end(function.cost.nbytes)
        if function.waiting:
            self._serve(function, worker, now_s)
        if function.needed < before:
            number = function.needed
            function.levels[number].idle_since_s = now_s
            self._shadow.begin((function.index, number), now_s, function.cost.nbytes)
            self._plan(function, number, now_s)

    def _ready(self, function: _Function, now_s: float) -> None:
        function.starting -= 1
        self._meter.ready(function.cost.nbytes)
        worker = _Worker(now_s)
        function.workers.append(worker)
        while function.waiting and worker.running < function.slots:
            self._serve(function, worker, now_s)
        self._settle(function, now_s)

    def _plan(self, function: _Function, number: int, now_s: float) -> None:
        """Decide whether a level without work is warm, and when to ask again."""
        level = function.levels[number]
        since_s = level.idle_since_s
        if since_s is None:
            return
        windows = self._policy.windows((function.index, number), function.cost)
        level.warm, edge_s = next_edge(windows, now_s - since_s)
        level.plan += 1
        if edge_s < math.inf:
            again_s = max(min(since_s + edge_s, now_s + _LOOK_AGAIN_S), math.nextafter(now_s, math.inf))
            self._at(again_s, _Kind.EDGE, partial(self._edge, function, number, level.plan))
        self._settle(function, now_s)

    def _edge(self, function: _Function, number: int, plan: int, now_s: float) -> None:
        if function.levels[number].plan == plan:
            self._plan(function, number, now_s)

    def _settle(self, function: _Function, now_s: float) -> None:
        """Start what is wanted and is not there; end what waits and is not wanted."""
        surplus = function.surplus
        for _ in range(-surplus):
            function.starting += 1
            self._meter.start(function.cost.nbytes)
            self._at(now_s + function.cost.start_s, _Kind.READY, partial(self._ready, function))
        if surplus > 0:
            for worker in [worker for worker in function.workers if not worker.running][:surplus]:
                function.workers.remove(worker)
                self._meter.retire(function.cost.nbytes)
