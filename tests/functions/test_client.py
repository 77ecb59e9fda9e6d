"""Starting requests: nothing is left running that nobody waits for."""

from __future__ import annotations

import pytest

from bus.errors import BusUnavailableError, InvalidInputError
from bus.memory import MemoryBus
from functions.client import PipelineClient
from functions.flow.catalog import Pipelines
from functions.flow.parse import parse
from tests.functions.words import DIAMOND, Log, word_functions


async def test_a_request_that_was_started_in_part_is_cancelled() -> None:
    async with MemoryBus() as bus:
        await bus.ensure_function("words.upper")  # `words.lower`, the other first stage, has no stream
        async with PipelineClient(bus, Pipelines([parse(DIAMOND, word_functions(Log()))])) as client:
            with pytest.raises(BusUnavailableError, match=r"words\.lower"):
                async with client.submit("diamond", {"words": ["a"], "more": ["b"]}, request="r"):
                    pass
        assert list(await (await bus.bucket("cancels")).entries()) == ["r"]


async def test_a_request_that_is_refused_leaves_no_trace() -> None:
    async with MemoryBus() as bus, PipelineClient(bus, Pipelines([parse(DIAMOND, word_functions(Log()))])) as client:
        with pytest.raises(InvalidInputError):
            async with client.submit("diamond", {}, request="r"):
                pass
        assert await (await bus.bucket("cancels")).entries() == {}
