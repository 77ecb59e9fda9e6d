"""Runs go in side by side; one that is to be alone is."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.gate import Gate


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.booleans()), max_size=12))
def test_whoever_is_to_be_alone_is_alone_and_everybody_gets_in(visits: list[tuple[bool, int, bool]]) -> None:
    inside: list[int] = []

    async def visit(gate: Gate, number: int, alone: bool, turns: int) -> None:
        async with gate.enter(alone=alone):
            inside.append(number)
            try:
                for _ in range(turns + 1):
                    assert not alone or inside == [number]
                    await asyncio.sleep(0)
            finally:
                inside.remove(number)

    async def visit_all() -> None:
        gate, tasks = Gate(), []
        for number, (alone, turns, cancelled) in enumerate(visits):
            task = asyncio.ensure_future(visit(gate, number, alone, turns))
            await asyncio.sleep(0)
            if cancelled:  # wherever it is now
                task.cancel()
            else:
                tasks.append(task)
        async with asyncio.timeout(5):
            await asyncio.gather(*tasks)

    asyncio.run(visit_all())


async def test_those_that_come_later_do_not_overtake_one_that_waits_to_be_alone() -> None:
    gate, order = Gate(), list[str]()

    async def visit(name: str, alone: bool = False) -> None:
        async with gate.enter(alone=alone):
            order.append(name)
            await asyncio.sleep(0)

    async with asyncio.timeout(5), asyncio.TaskGroup() as visits:
        for name in ("first", "alone", "later"):
            visits.create_task(visit(name, name == "alone"))
    assert order == ["first", "alone", "later"]


async def test_an_error_inside_opens_the_gate_again() -> None:
    gate = Gate()
    for alone in (True, False):
        with pytest.raises(ValueError, match="inside"):
            async with gate.enter(alone=alone):
                raise ValueError("inside")
    async with asyncio.timeout(5), gate.enter(alone=True):
        pass
