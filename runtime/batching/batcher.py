"""Runs what the policy puts together: on an event loop, with the runs themselves in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from bus.errors import CancelledRequestError, EngineError
from runtime.batching.policy import BatchPolicy, Item, Limit

T = TypeVar("T")
R = TypeVar("R")

_Slot = tuple["_Call[T, R]", int, T]


class _Call(Generic[T, R]):
    """One caller: its answers, in their places, and its items that still wait."""

    def __init__(self, count: int, cancelled: Callable[[], bool], done: asyncio.Future[list[R]]) -> None:
        self.cancelled, self.done = cancelled, done
        self.waiting: set[Item[_Slot[T, R]]] = set()
        self._answers: dict[int, R] = {}
        self._count = count

    def answer(self, place: int, value: R) -> None:
        self._answers[place] = value
        if len(self._answers) == self._count and not self.done.done():
            self.done.set_result([self._answers[index] for index in range(self._count)])

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Batcher(Generic[T, R]):
    """Lets calls that come at about the same time share runs.

    A call of any number of items is answered as a whole; its items run in as many batches as they need. An error ends
    the calls whose items were in its batch, and no other. All methods belong to one event loop.

    Args:
        run: Answers a batch of one bucket, in its order; runs in a thread.
        limit: The most items of a batch, by bucket or for all.
        max_wait_ms: The longest that an item waits for others while nothing runs.
        runs: How many batches run at once.
    """

    def __init__(
        self, run: Callable[[Sequence[T]], Sequence[R]], limit: int | Limit, *, max_wait_ms: float = 0.0, runs: int = 1
    ) -> None:
        self._run = run
        self._policy: BatchPolicy[_Slot[T, R]] = BatchPolicy(limit, max_wait_ms / 1000)
        self._threads = ThreadPoolExecutor(runs, thread_name_prefix="omnibus-batch")
        self._free = runs
        self._running: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def submit(
        self,
        items: Sequence[tuple[Hashable, T]],
        *,
        tenant: str = "",
        cancelled: Callable[[], bool] = lambda: False,
    ) -> list[R]:
        """Answers of a call's items, in their order.

        Args:
            items: Bucket and value of each.
            tenant: Whose call it is.
            cancelled: Asked before its items run.

        Raises:
            CancelledRequestError: It was cancelled before all of its items had run.
            InvalidInputError: A bucket that takes no items.
            OmnibusError: What a run raised.
        """
        if not items:
            return []
        loop = asyncio.get_running_loop()
        call: _Call[T, R] = _Call(len(items), cancelled, loop.create_future())
        now_s = time.monotonic()
        try:
            for place, (bucket, value) in enumerate(items):
                item = Item((call, place, value), bucket, tenant, now_s)
                self._policy.add(item)
                call.waiting.add(item)
            self._pump()
            return await call.done
        finally:
            self._withdraw(call)

    def close(self) -> None:
        """Take no more calls; what runs ends."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _pump(self) -> None:
        """Start what is due as far as there is capacity, and look again when the next batch is due."""
        while self._free:
            batch = self._wanted(self._policy.take(time.monotonic()))
            if batch is None:
                break
            if batch:
                self._free -= 1
                task = asyncio.get_running_loop().create_task(self._serve(batch))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_s = self._policy.due_s()
        if self._free and due_s is not None:
            delay_s = max(0.0, due_s - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._pump)

    def _wanted(self, batch: list[Item[_Slot[T, R]]]) -> list[Item[_Slot[T, R]]] | None:
        """The items that somebody still waits for; None for no batch at all."""
        wanted = []
        for item in batch:
            call = item.value[0]
            call.waiting.discard(item)
            if call.done.done():
                continue
            if call.cancelled():
                call.fail(CancelledRequestError("nobody waits for this call any more"))
            else:
                wanted.append(item)
        return wanted if batch else None

    async def _serve(self, batch: list[Item[_Slot[T, R]]]) -> None:
        loop = asyncio.get_running_loop()
        values = [item.value[2] for item in batch]
        try:
            answers = await loop.run_in_executor(self._threads, self._run, values)
            if len(answers) != len(batch):
                raise EngineError(f"a batch of {len(batch)} items was answered with {len(answers)}")
        except BaseException as error:
            for item in batch:
                item.value[0].fail(error)
            if not isinstance(error, Exception):
                raise
        else:
            for item, answer in zip(batch, answers, strict=True):
                call, place, _ = item.value
                call.answer(place, answer)
        finally:
            self._free += 1
            self._pump()

    def _withdraw(self, call: _Call[T, R]) -> None:
        for item in call.waiting:
            self._policy.remove(item)
        call.waiting.clear()
