from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmpool.policy.fairness import in_turn, max_min
from warmpool.policy.room import Claim, Why, admit

amounts = st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 100), min_size=1)


@given(amounts, st.floats(0, 400))
def test_nobody_gets_more_than_they_want_and_nothing_is_left_that_somebody_wants(wanted: dict[str, float], room: float):
    got = max_min(wanted, room)
    assert all(0 <= got[tenant] <= want for tenant, want in wanted.items())
    assert sum(got.values()) == pytest.approx(min(room, sum(wanted.values())), abs=1e-9)


@given(amounts, st.floats(0, 400))
def test_who_gets_less_than_they_want_has_as_much_as_anybody(wanted: dict[str, float], room: float):
    got = max_min(wanted, room)
    short = [got[tenant] for tenant in wanted if got[tenant] < wanted[tenant] - 1e-9]
    assert all(share >= max(got.values()) - 1e-6 for share in short)


def test_a_flood_of_one_tenant_leaves_the_others_their_share():
    turns = in_turn({"flood": {"encode": 50}, "small": {"encode": 1, "speech": 1}}, {"encode": 1.0, "speech": 1.0})
    first = Counter(tenant for tenant, _ in islice(turns, 4))
    assert first == {"flood": 2, "small": 2}


@given(
    st.dictionaries(
        st.sampled_from("abc"), st.dictionaries(st.sampled_from("xyz"), st.integers(0, 20), min_size=1), min_size=1
    ),
    st.integers(0, 60),
)
def test_turns_come_to_the_max_min_share(wanted: dict[str, dict[str, int]], room: int):
    nbytes = dict.fromkeys("xyz", 1.0)
    got = Counter(tenant for tenant, _ in islice(in_turn(wanted, nbytes), room))
    fair = max_min({tenant: sum(groups.values()) for tenant, groups in wanted.items()}, room)
    assert all(abs(got[tenant] - share) <= 1 for tenant, share in fair.items())


claims = st.lists(
    st.builds(
        Claim,
        group=st.sampled_from("abcdefgh"),
        nbytes=st.floats(1, 50),
        why=st.sampled_from(Why),
        value=st.floats(0, 10),
    ),
    max_size=12,
    unique_by=lambda claim: claim.group,
)


def _nbytes(all_claims: list[Claim], admitted: Counter[str]) -> float:
    return sum(claim.nbytes for claim in all_claims if admitted[claim.group])


@given(claims, st.floats(0, 200))
def test_there_is_never_more_than_fits(wanted: list[Claim], room: float):
    assert _nbytes(wanted, admit(wanted, room)) <= room + 1e-6


@given(claims)
def test_where_there_is_room_all_are_admitted(wanted: list[Claim]):
    assert sum(admit(wanted, 1e9).values()) == len(wanted)


@given(claims, st.floats(0, 200), st.lists(st.floats(0.9, 1.1), min_size=12, max_size=12))
def test_who_is_there_stays_while_values_change_a_little(wanted: list[Claim], room: float, noise: list[float]):
    """No thrash: nobody is evicted for one who is worth about as much."""
    alike = [claim for claim in wanted if claim.why is Why.KEPT]
    alike = [Claim(group=one.group, nbytes=10.0, why=one.why, value=one.value) for one in alike]
    first = admit(alike, room)
    again = [
        Claim(group=one.group, nbytes=10.0, why=one.why, value=one.value * change, held=first[one.group] > 0)
        for one, change in zip(alike, noise, strict=False)
    ]
    assert admit(again, room) == first


def test_the_cheapest_leaves_first():
    kept = [
        Claim(group="often", nbytes=10, why=Why.KEPT, value=1.0, held=True),
        Claim(group="rarely", nbytes=10, why=Why.KEPT, value=0.1, held=True),
        Claim(group="large", nbytes=40, why=Why.KEPT, value=1.0, held=True),
    ]
    assert admit(kept, 50) == Counter(often=1, large=1)
    assert admit(kept, 25) == Counter(often=1, rarely=1)
    assert admit([Claim(group="now", nbytes=10, why=Why.NEEDED), *kept], 20) == Counter(now=1, often=1)


def test_what_is_much_more_worth_takes_the_place():
    kept = [
        Claim(group="old", nbytes=10, why=Why.KEPT, value=1.0, held=True),
        Claim(group="new", nbytes=10, why=Why.KEPT, value=1.2),
        Claim(group="newer", nbytes=10, why=Why.KEPT, value=1.3),
    ]
    assert admit(kept[:2], 10) == Counter(old=1)
    assert admit(kept, 10) == Counter(newer=1)
