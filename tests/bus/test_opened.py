"""What is opened in parts is whole or not there."""

from __future__ import annotations

import pytest

from bus.errors import StackConfigError
from bus.opened import Opened


class House(Opened):
    """Three parts, of which one may not open."""

    def __init__(self, broken: str = "") -> None:
        super().__init__()
        self._broken = broken
        self.told: list[str] = []

    async def _open(self) -> None:
        for part in ("walls", "roof", "door"):
            if part == self._broken:
                raise StackConfigError(f"no {part}")
            self.told.append(part)
            self._stack.callback(self.told.append, f"no {part}")


async def test_parts_are_closed_the_other_way_round_and_once() -> None:
    house = House()
    async with house:
        assert house.told == ["walls", "roof", "door"]
    await house.__aexit__(None, None, None)
    assert house.told[3:] == ["no door", "no roof", "no walls"]


async def test_where_a_part_does_not_open_those_before_it_are_closed() -> None:
    house = House(broken="door")
    with pytest.raises(StackConfigError, match="no door"):
        async with house:
            raise AssertionError("it is not open")
    assert house.told == ["walls", "roof", "no roof", "no walls"]
