from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from functions.environment import FunctionEnvironment


@pytest.fixture
async def environment() -> AsyncIterator[FunctionEnvironment]:
    """Runs stages alone, on a store and a tensor plane of their own."""
    async with FunctionEnvironment() as environment:
        yield environment
