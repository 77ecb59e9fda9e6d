from __future__ import annotations

from collections.abc import Iterator

import pytest

from runtime.engines.cores import threads_for, use_cores


@pytest.fixture(autouse=True)
def _every_core_afterwards() -> Iterator[None]:
    yield
    use_cores(0)


def test_a_session_takes_what_it_asks_for_else_what_the_process_was_given() -> None:
    assert threads_for(0) == 0
    use_cores(3)
    assert threads_for(0) == 3
    assert threads_for(1) == 1
