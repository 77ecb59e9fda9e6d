"""What a router leaves behind when it cannot go on."""

from __future__ import annotations

import copy
import gc

import pytest

from bus.contracts import Request
from bus.errors import ContractError
from bus.memory import MemoryBus
from functions.flow.join import Joins
from functions.flow.parse import parse
from functions.flow.router import Router
from tests.functions.words import DIAMOND, Log, word_functions


async def test_a_join_that_fails_leaves_no_message_that_is_never_sent() -> None:
    plan = parse(copy.deepcopy(DIAMOND), word_functions(Log()))
    async with MemoryBus() as bus:
        bucket = await bus.bucket("joins")
        await bucket.put("0123abc.both", b"of a version to come")
        request = Request(request="0123abc", pipeline="diamond", inputs={"words": ["a"]})
        with pytest.raises(ContractError):
            # One branch can go; the other one lacks its input and arrives at the join.
            await Router(bus, Joins(bucket)).start(plan, request)
    gc.collect()  # a coroutine that was never awaited would warn now, which fails the test
