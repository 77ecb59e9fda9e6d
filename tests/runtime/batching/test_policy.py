"""What runs together and when, on a clock that the tests turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.errors import InvalidInputError
from runtime.batching.policy import BatchPolicy, Item


def item(value: str, *, bucket: str = "b", tenant: str = "t", at: float = 0.0) -> Item[str]:
    return Item(value, bucket, tenant, at)


def policy(*items: Item[str], limit: int = 4, max_wait_s: float = 10.0) -> BatchPolicy[str]:
    made: BatchPolicy[str] = BatchPolicy(limit, max_wait_s)
    for one in items:
        made.add(one)
    return made


def taken(one: BatchPolicy[str], now_s: float) -> str:
    return " ".join(item.value for item in one.take(now_s))


@pytest.mark.parametrize(
    ("items", "now_s", "expected"),
    [
        ([], 0, ""),
        ([item("1")], 9, ""),
        ([item("1")], 10, "1"),
        ([item("1"), item("2"), item("3")], 9, ""),
        ([item("1"), item("2"), item("3"), item("4"), item("5")], 0, "1 2 3 4"),
        ([item("1", at=0), item("2", at=9)], 10, "1 2"),
        # Buckets do not wait for each other, nor run together.
        ([item("1", bucket="x", at=5), item("2", bucket="y", at=0)], 10, "2"),
        ([item("x", bucket="x", at=0), *(item(str(n), at=5) for n in range(4))], 5, "0 1 2 3"),
        # Of several that are due, the item that has waited longest chooses.
        ([item("1", bucket="x", at=1), item("2", bucket="y", at=0)], 11, "2"),
        # One item of each tenant in turn.
        (
            [*(item(f"a{n}", tenant="a") for n in range(9)), item("b0", tenant="b"), item("c0", tenant="c")],
            0,
            "a0 b0 c0 a1",
        ),
    ],
)
def test_a_batch_is_taken_when_it_is_full_or_somebody_has_waited(
    items: list[Item[str]], now_s: float, expected: str
) -> None:
    assert taken(policy(*items), now_s) == expected


@pytest.mark.parametrize(
    ("items", "due_s"),
    [
        ([], None),
        ([item("1", at=3)], 13),
        ([item("1", at=3, bucket="x"), item("2", at=1, bucket="y")], 11),
        ([item(str(n), at=3) for n in range(4)], float("-inf")),
    ],
)
def test_it_is_known_when_the_next_batch_is_due(items: list[Item[str]], due_s: float | None) -> None:
    assert policy(*items).due_s() == due_s


def test_a_flood_delays_the_item_of_another_by_no_more_than_a_batch() -> None:
    flood = policy(*(item(f"a{n}", tenant="a", bucket=str(n % 3)) for n in range(100)), max_wait_s=0)
    taken(flood, 0)
    flood.add(item("b", tenant="b", bucket="another", at=1))
    assert taken(flood, 1) == "b"
    flood.add(item("c", tenant="c", bucket="0", at=1))
    assert taken(flood, 1).split()[0] == "c"


def test_an_item_that_leaves_is_not_taken() -> None:
    first, second = item("1"), item("2")
    one = policy(first, second)
    assert one.remove(first)
    assert not one.remove(first)
    assert len(one) == 1
    assert taken(one, 10) == "2"
    assert not one.remove(second)
    assert one.due_s() is None


def test_an_item_that_leaves_is_compared_with_none_that_stays() -> None:
    compared = 0

    class Counted(Item[str]):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += self is not other
            return self is other

        __hash__ = Item.__hash__

    items = [Counted(str(number), "b", "t", 0.0) for number in range(1000)]
    waiting = policy(*items, limit=2000)
    assert all(waiting.remove(one) for one in items[500:])
    assert taken(waiting, 20.0) == " ".join(map(str, range(500)))
    assert compared < 1000  # of a quarter of a million


def test_a_bucket_may_have_a_limit_of_its_own() -> None:
    one: BatchPolicy[str] = BatchPolicy(lambda bucket: 1 if bucket == "long" else 3)
    for n in range(4):
        one.add(item(f"l{n}", bucket="long"))
    for n in range(4):
        one.add(item(f"s{n}", bucket="short", at=1))
    assert taken(one, 0) == "l0"
    assert [taken(one, 1) for _ in range(5)] == ["l1", "l2", "l3", "s0 s1 s2", "s3"]
    nothing: BatchPolicy[str] = BatchPolicy(lambda bucket: 0)
    with pytest.raises(InvalidInputError, match="'b' takes 0"):
        nothing.add(item("1"))


def test_tenants_that_have_gone_are_forgotten() -> None:
    one = policy(item("stays", tenant="stays", bucket="y"), max_wait_s=0)
    for n in range(5000):
        one.add(item("1", tenant=f"t{n}"))
    while one.take(0):
        pass
    assert len(one) == 0
    assert len(one._served) == 0


ARRIVALS = st.lists(
    st.tuples(st.floats(0, 20), st.sampled_from("abc"), st.sampled_from("xyz"), st.booleans()), max_size=60
)


@given(arrivals=ARRIVALS, limit=st.integers(1, 6), max_wait_s=st.floats(0, 5), run_s=st.floats(0, 3))
def test_whatever_comes_is_answered_once_in_order_and_in_time(
    arrivals: list[tuple[float, str, str, bool]], limit: int, max_wait_s: float, run_s: float
) -> None:
    """One server that takes a batch whenever it is free and one is due, on a simulated clock."""
    policy: BatchPolicy[int] = BatchPolicy(limit, max_wait_s)
    coming = [
        (Item(number, bucket, tenant, at_s), leaves)
        for number, (at_s, tenant, bucket, leaves) in enumerate(sorted(arrivals))
    ]
    left, batches, now_s, free_s = set(), [], 0.0, 0.0
    while coming or len(policy):
        due_s = policy.due_s()
        starts_s = None if due_s is None else max(due_s, free_s, now_s)
        if coming and (starts_s is None or coming[0][0].arrived_s <= starts_s):
            item, leaves = coming.pop(0)
            now_s = max(now_s, item.arrived_s)
            policy.add(item)
            if leaves:
                assert policy.remove(item)
                left.add(item.value)
            continue
        assert starts_s is not None
        now_s = starts_s
        batch = policy.take(now_s)
        assert 1 <= len(batch) <= limit
        assert len({item.bucket for item in batch}) == 1
        full = len(batch) == limit
        assert full or max(now_s - item.arrived_s for item in batch) >= max_wait_s - 1e-9
        if free_s <= min(item.arrived_s for item in batch):  # there was capacity all the time
            assert now_s <= min(item.arrived_s for item in batch) + max_wait_s + 1e-9
        batches.append(batch)
        free_s = now_s + run_s
    answered = [item.value for batch in batches for item in batch]
    assert sorted(answered) == sorted(set(range(len(arrivals))) - left)
    for tenant in "abc":
        for bucket in "xyz":
            own = [item.value for batch in batches for item in batch if (item.tenant, item.bucket) == (tenant, bucket)]
            assert own == sorted(own)


@given(
    flood=st.lists(st.sampled_from("xyz"), min_size=1, max_size=60), limit=st.integers(1, 5),
    bucket=st.sampled_from("xyzw"), before=st.integers(0, 8),
)  # fmt: skip
def test_whoever_comes_alone_is_in_the_next_batch(flood: list[str], limit: int, bucket: str, before: int) -> None:
    policy: BatchPolicy[str] = BatchPolicy(limit)
    for one in flood:
        policy.add(Item("flood", one, "flood", 0.0))
    for _ in range(before):
        policy.take(0)
    alone = Item("alone", bucket, "alone", 1.0)
    policy.add(alone)
    first, second = policy.take(1), policy.take(1)
    assert alone in (first if before else [*first, *second])
