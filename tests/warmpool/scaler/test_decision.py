from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bus.contracts import Capacity, GroupCapacity
from warmpool.scaler.decision import Demand, Shares, assign

GB = 1_000_000_000


def host(name: str, *, room: int = 4 * GB, alive: int = 0, running: int = 0, **fields: float) -> Capacity:
    given = {"slots": 1, "most": 8, "nbytes": GB, "service_s": 1.0, **fields}
    groups = {"encode": GroupCapacity(alive=alive, running=running, **given)}  # type: ignore[arg-type]
    return Capacity(host=name, room_nbytes=room, groups=groups, renewed_s=0.0)


def asked(requests: int | None, **fields: int) -> dict[str, Demand]:
    return {"encode": Demand(requests=requests, target_wait_s=0.0, **fields)}


def counts(shares: Shares) -> dict[str, int]:
    return {name: groups["encode"] for name, groups in shares.items()}


def test_one_request_is_the_work_of_one_host():
    assert counts(assign([host("a"), host("b")], asked(1))) == {"a": 1, "b": 0}


def test_a_backlog_is_shared_by_free_memory():
    assert counts(assign([host("a", room=2 * GB), host("b", room=6 * GB)], asked(6))) == {"a": 1, "b": 5}


def test_without_work_there_is_nobody():
    assert counts(assign([host("a", alive=3), host("b")], asked(0))) == {"a": 0, "b": 0}


def test_what_is_not_known_changes_nothing():
    hosts = [host("a", alive=3), host("b", alive=1)]
    assert counts(assign(hosts, asked(None))) == {"a": 3, "b": 1}
    assert counts(assign(hosts, {})) == {"a": 3, "b": 1}


def test_who_is_alive_stays_rather_than_start_elsewhere():
    assert counts(assign([host("a", room=9 * GB), host("b", room=2 * GB, alive=2)], asked(2))) == {"a": 0, "b": 2}


def test_who_does_least_ends_first():
    assert counts(assign([host("a", alive=1), host("b", alive=1, running=1)], asked(1))) == {"a": 0, "b": 1}


def test_the_least_is_for_all_hosts_together_and_so_is_the_most():
    hosts = [host("a"), host("b")]
    assert sum(counts(assign(hosts, asked(0, least=3))).values()) == 3
    assert sum(counts(assign(hosts, asked(50, most=4))).values()) == 4


def test_a_host_that_is_gone_is_replaced_by_the_others():
    before = counts(assign([host("a", alive=2, running=2), host("b", alive=1, running=1)], asked(3)))
    after = counts(assign([host("b", alive=1, running=1)], asked(3)))
    assert before == {"a": 2, "b": 1}
    assert after == {"b": 3}


def test_a_wait_that_is_wanted_saves_workers():
    demands = {"encode": Demand(requests=12, target_wait_s=2.0)}
    assert sum(counts(assign([host("a"), host("b")], demands)).values()) == 4


GROUPS = ("encode", "speech")


@st.composite
def clusters(draw: st.DrawFn) -> list[Capacity]:
    nbytes = {group: draw(st.integers(1, 4)) for group in GROUPS}
    hosts = []
    for number in range(draw(st.integers(1, 4))):
        room = draw(st.integers(0, 30))
        groups, left = {}, room
        for group in draw(st.sets(st.sampled_from(GROUPS), min_size=1)):
            most = draw(st.integers(0, 6))
            alive = draw(st.integers(0, min(most, left // nbytes[group])))
            left -= alive * nbytes[group]
            groups[group] = GroupCapacity(alive=alive, running=alive, most=most, nbytes=nbytes[group], service_s=1.0)
        hosts.append(Capacity(host=f"h{number}", room_nbytes=room, groups=groups, renewed_s=0.0))
    return hosts


demands = st.fixed_dictionaries(
    {group: st.builds(Demand, requests=st.none() | st.integers(0, 30), target_wait_s=st.just(0.0)) for group in GROUPS}
)


@given(clusters(), demands, st.randoms())
def test_no_host_has_more_than_it_can_and_all_agree(hosts: list[Capacity], wanted: dict[str, Demand], random: object):
    shares = assign(hosts, wanted)
    for one in hosts:
        share = shares[one.host]
        assert sum(share[group] * told.nbytes for group, told in one.groups.items()) <= one.room_nbytes
        assert all(0 <= share[group] <= told.most for group, told in one.groups.items())
    shuffled = list(hosts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assign(shuffled, wanted) == shares


@given(clusters(), demands)
def test_what_was_decided_is_decided_again(hosts: list[Capacity], wanted: dict[str, Demand]):
    """No thrash: once every host has its share, nobody starts or ends anything."""
    shares = assign(hosts, wanted)
    settled = [
        one.model_copy(
            update={
                "groups": {
                    group: told.model_copy(update={"alive": shares[one.host][group], "running": 0})
                    for group, told in one.groups.items()
                }
            }
        )
        for one in hosts
    ]
    assert assign(settled, wanted) == shares


@given(clusters(), st.integers(0, 40))
def test_there_are_as_many_as_are_needed_unless_nothing_more_fits(hosts: list[Capacity], requests: int):
    shares = assign(hosts, {"encode": Demand(requests=requests, target_wait_s=0.0)})
    total = sum(share.get("encode", 0) for share in shares.values())
    able = [
        one
        for one in hosts
        if "encode" in one.groups
        and shares[one.host]["encode"] < one.groups["encode"].most
        and sum(shares[one.host][group] * told.nbytes for group, told in one.groups.items())
        + one.groups["encode"].nbytes
        <= one.room_nbytes
    ]
    assert total <= requests
    assert total == requests or not able
