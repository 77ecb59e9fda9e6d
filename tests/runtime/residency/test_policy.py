"""Who leaves for whom: tables, and what holds whatever the numbers are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.residency.policy import Resident, make_room


def resident(name: str, nbytes: int, last_used: int, *, pinned: bool = False, leases: int = 0) -> Resident:
    return Resident(name, (f"{name}@1",), "cpu", nbytes, pinned, leases, last_used)


OLD, NEW = resident("old", 40, 1), resident("new", 40, 2)
PINNED, BUSY = resident("pinned", 40, 0, pinned=True), resident("busy", 40, 0, leases=1)


@pytest.mark.parametrize(
    ("need", "residents", "budget", "free", "evicted", "missing"),
    [
        (30, (), None, None, (), 0),
        (30, (OLD, NEW), None, None, (), 0),
        (20, (OLD, NEW), 100, None, (), 0),
        (30, (OLD, NEW), 100, None, ("old",), 0),
        (30, (NEW, OLD), 100, None, ("old",), 0),
        (70, (OLD, NEW), 100, None, ("old", "new"), 0),
        (101, (OLD, NEW), 100, None, (), 1),
        (30, (PINNED, NEW), 100, None, ("new",), 0),
        (30, (BUSY, NEW), 100, None, ("new",), 0),
        (70, (BUSY, NEW), 100, None, (), 10),
        (70, (BUSY, PINNED), 100, None, (), 50),
        (30, (OLD,), None, 30, (), 0),
        (30, (OLD, NEW), None, 10, ("old",), 0),
        (90, (OLD, NEW), None, 0, (), 10),
        (30, (OLD, NEW), 100, 5, ("old",), 0),
        (0, (OLD,), 40, 0, (), 0),
    ],
)
def test_the_least_recently_used_leave_and_only_when_it_helps(
    need: int,
    residents: tuple[Resident, ...],
    budget: int | None,
    free: int | None,
    evicted: tuple[str, ...],
    missing: int,
) -> None:
    room = make_room(need, residents, budget_nbytes=budget, free_nbytes=free)
    assert tuple(one.name for one in room.evict) == evicted
    assert room.missing_nbytes == missing


RESIDENTS = st.lists(
    st.builds(
        Resident,
        name=st.text("abc", min_size=1, max_size=3),
        refs=st.just(()),
        device=st.just("cpu"),
        nbytes=st.integers(0, 100),
        pinned=st.booleans(),
        leases=st.integers(0, 2),
        last_used=st.integers(0, 50),
    ),
    max_size=8,
)


@given(
    need=st.integers(0, 200), residents=RESIDENTS, budget=st.none() | st.integers(0, 400),
    free=st.none() | st.integers(0, 200),
)  # fmt: skip
def test_what_was_promised_is_there_and_nobody_left_in_vain(
    need: int, residents: list[Resident], budget: int | None, free: int | None
) -> None:
    room = make_room(need, residents, budget_nbytes=budget, free_nbytes=free)
    assert all(one.movable for one in room.evict)
    used, given_back = sum(one.nbytes for one in residents), sum(one.nbytes for one in room.evict)
    if room.missing_nbytes:
        assert room.evict == ()
        movable = sum(one.nbytes for one in residents if one.movable)
        assert (budget is not None and used - movable + need > budget) or (free is not None and need > free + movable)
        return
    assert budget is None or used - given_back + need <= budget or used + need <= budget
    assert free is None or need <= free + given_back
    if room.evict:  # one fewer would not have done
        fewer = given_back - room.evict[-1].nbytes
        assert (budget is not None and used - fewer + need > budget) or (free is not None and need > free + fewer)
