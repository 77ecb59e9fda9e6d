"""What is asked of cold functions is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bus.contracts import Lane
from bus.errors import BusUnavailableError
from bus.memory import MemoryBus
from bus.memory.state import MemorySubscription
from bus.ports import OnMessage
from bus.subjects import work
from warmpool.demand import Demand, Heard


class Halting(MemoryBus):
    """A bus that does not answer for one function."""

    silent = "fn.second.*"

    async def listen(
        self, subject: str, on_message: OnMessage, on_gap: Callable[[], None] | None = None
    ) -> MemorySubscription:
        if subject == self.silent:
            raise BusUnavailableError("it does not answer")
        return await super().listen(subject, on_message, on_gap)


async def test_what_is_listened_to_is_asked_once_also_where_the_bus_fails_for_another() -> None:
    heard: list[Heard] = []
    missed: list[str] = []
    async with Halting() as bus:
        demand = Demand(bus, heard.append, missed.append)
        with pytest.raises(BusUnavailableError):
            await demand.listen_to(["first", "second"])
        assert missed == ["first"]
        bus.silent = ""
        await demand.listen_to(["first", "second"])
        assert missed == ["first", "second"]
        for function in ("first", "second"):
            await bus.ensure_function(function)
            await bus.publish(work(function, Lane.BATCH), b"", message_id=function, headers={"ce-tenant": "them"})
        await asyncio.sleep(0)  # who listens is told in the loop's next turn
        await demand.close()
    assert heard == [Heard("first", "them", ""), Heard("second", "them", "")]
