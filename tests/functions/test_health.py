"""How workers, functions and a deployment are: a table of what each state means, and what is true of all leases."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.contracts import ErrorRecord, FunctionStatus, Lease, WorkerState
from bus.subjects import LEASE_TTL_S
from functions.health import FunctionHealth, Health, function_health, total_health, worker_health

NOW_S = 1_700_000_000.0
MISSING = ErrorRecord(code="model_not_found", message="no model 'late' is installed")
STARTING, READY, DRAINING, FAILED = WorkerState.STARTING, WorkerState.READY, WorkerState.DRAINING, WorkerState.FAILED
NAMES = ("look", "listen", "speak")


def lease(state: WorkerState, *functions: str, age_s: float = 0.0, **fields: Any) -> Lease:
    return Lease(
        worker="w", group="g", host="h", pid=1, state=state, functions=functions, started_s=NOW_S - 99,
        renewed_s=NOW_S - age_s, **fields,
    )  # fmt: skip


def status(busy: int = 0, error: ErrorRecord | None = None) -> FunctionStatus:
    return FunctionStatus(slots=4, busy=busy, full=busy == 2, error=error)


@pytest.mark.parametrize(
    ("told", "state"),
    [
        (lease(STARTING), Health.STARTING),
        (lease(READY, "look", status={"look": status()}), Health.READY),
        (lease(READY, "look", status={"look": status(2)}), Health.BUSY),
        (lease(READY, "look", "speak", status={"look": status(2), "speak": status(1)}), Health.READY),
        (lease(READY, "look", slots=2, busy=2), Health.BUSY),
        (lease(READY, "look", status={"look": status(2), "speak": status(error=MISSING)}), Health.DEGRADED),
        (lease(READY, status={"speak": status(error=MISSING)}), Health.UNHEALTHY),
        (lease(DRAINING, "look", status={"look": status(1)}), Health.BUSY),
        (lease(FAILED, "look"), Health.UNHEALTHY),
        (lease(READY, "look", age_s=LEASE_TTL_S / 2), Health.READY),
        (lease(READY, "look", age_s=LEASE_TTL_S * 0.9), Health.UNHEALTHY),
        (lease(STARTING, age_s=LEASE_TTL_S * 0.9), Health.UNHEALTHY),
        (lease(READY, "look", age_s=3600), Health.READY),  # the bus still has it: the host's clock is wrong
        (lease(READY, "look", age_s=-3600), Health.READY),
        (lease(STARTING, age_s=3600), Health.STARTING),
    ],
)
def test_a_worker_is_in_one_of_five_states(told: Lease, state: Health) -> None:
    assert worker_health(told, NOW_S) is state


@pytest.mark.parametrize(
    ("leases", "pooled", "health"),
    [
        ([], False, FunctionHealth(state=Health.UNHEALTHY)),
        ([], True, FunctionHealth(state=Health.READY, cold=True)),
        ([lease(STARTING)], False, FunctionHealth(state=Health.STARTING)),
        ([lease(STARTING)], True, FunctionHealth(state=Health.READY, cold=True)),
        ([lease(READY, "speak")], False, FunctionHealth(state=Health.UNHEALTHY)),
        ([lease(READY, "look", status={"look": status(1)})], False, FunctionHealth(state=Health.READY, workers=1)),
        ([lease(READY, "look", status={"look": status(2)})] * 2, True, FunctionHealth(state=Health.BUSY, workers=2)),
        (
            [lease(READY, "look", status={"look": status(2)}), lease(READY, "look", age_s=9)],
            False,
            FunctionHealth(state=Health.DEGRADED, workers=1),
        ),
        (
            [lease(READY, "look"), lease(READY, "speak", status={"look": status(error=MISSING)})],
            False,
            FunctionHealth(state=Health.DEGRADED, workers=1, error=MISSING),
        ),
        (
            [lease(READY, "speak", status={"look": status(error=MISSING)})],
            True,
            FunctionHealth(state=Health.UNHEALTHY, error=MISSING),
        ),
        ([lease(READY, "look", age_s=3600)], False, FunctionHealth(state=Health.READY, workers=1)),
        ([lease(READY, "look", age_s=9)], True, FunctionHealth(state=Health.UNHEALTHY)),
        ([lease(DRAINING, "look")], False, FunctionHealth(state=Health.UNHEALTHY)),
    ],
)
def test_a_function_is_as_its_workers_are(leases: list[Lease], pooled: bool, health: FunctionHealth) -> None:
    assert function_health("look", "g", leases, NOW_S, pooled=pooled) == health


@pytest.mark.parametrize("groups", ["g", "all", "my-eyes", "g-my-eyes", "my-eyes-g"])
def test_a_function_starts_with_a_worker_of_several_groups_whatever_their_names(groups: str) -> None:
    told = lease(STARTING).model_copy(update={"group": groups})
    for group in ("g", "my-eyes"):
        starts = groups == "all" or group in groups
        expected = Health.STARTING if starts else Health.UNHEALTHY
        assert function_health("look", group, [told], NOW_S).state is expected


@st.composite
def any_lease(draw: st.DrawFn) -> Lease:
    served = draw(st.sets(st.sampled_from(NAMES)))
    failing = draw(st.sets(st.sampled_from(NAMES))) - served
    told = {name: status(draw(st.integers(0, 2))) for name in served if draw(st.booleans())}
    told |= {name: status(error=MISSING) for name in failing}
    slots = draw(st.integers(0, 4))
    return lease(
        draw(st.sampled_from(WorkerState)), *sorted(served), age_s=draw(st.floats(-5, 12)), status=told, slots=slots,
        busy=draw(st.integers(0, slots)),
    )  # fmt: skip


def _answered(name: str, leases: list[Lease]) -> bool:
    fresh = [one for one in leases if NOW_S - one.renewed_s <= LEASE_TTL_S * 2 / 3]
    return any(one.state is READY and name in one.functions for one in fresh)


@given(st.lists(any_lease(), max_size=6), st.booleans())
def test_a_function_answers_where_a_worker_that_was_heard_of_lately_can_run_it(
    leases: list[Lease], pooled: bool
) -> None:
    health = function_health("look", "g", leases, NOW_S, pooled=pooled)
    assert (health.state.answers and not health.cold) == _answered("look", leases) == (health.workers > 0)
    if health.cold:
        assert pooled
        assert (health.state, health.workers, health.error) == (Health.READY, 0, None)


@given(st.lists(any_lease(), max_size=6), st.booleans(), st.randoms(use_true_random=False))
def test_it_does_not_matter_who_is_asked_first(leases: list[Lease], pooled: bool, random: Any) -> None:
    health = function_health("look", "g", leases, NOW_S, pooled=pooled)
    random.shuffle(leases)
    assert function_health("look", "g", leases, NOW_S, pooled=pooled) == health


def test_workers_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where half of a thousand fall silent at once, that would take the gateway a quarter of a minute."""

    def compare(one: Lease, other: object) -> bool:
        raise AssertionError("two leases are compared")

    monkeypatch.setattr(Lease, "__eq__", compare)
    leases = [lease(READY, "look", age_s=age_s) for age_s in (9, 0, 9, 0)]
    assert function_health("look", "g", leases, NOW_S) == FunctionHealth(state=Health.DEGRADED, workers=2)


@given(st.lists(any_lease(), max_size=6), st.booleans())
def test_one_more_free_worker_makes_nothing_worse(leases: list[Lease], pooled: bool) -> None:
    order = [Health.UNHEALTHY, Health.STARTING, Health.DEGRADED, Health.BUSY, Health.READY]
    before = function_health("look", "g", leases, NOW_S, pooled=pooled)
    after = function_health("look", "g", [*leases, lease(READY, "look", slots=2)], NOW_S, pooled=pooled)
    assert order.index(after.state) >= order.index(before.state) or before.cold
    assert after.state is not Health.BUSY
    assert after.workers == before.workers + 1


@given(st.lists(any_lease(), max_size=6), st.lists(st.sets(st.sampled_from(NAMES), min_size=1), min_size=1, max_size=4))
def test_a_deployment_answers_where_it_answers_at_least_one_pipeline(
    leases: list[Lease], needed: list[set[str]]
) -> None:
    functions = {name: function_health(name, "g", leases, NOW_S) for name in set().union(*needed)}
    health = total_health(functions, needed)
    answered = [all(_answered(name, leases) for name in names) for names in needed]
    assert health.answers == any(answered)
    if health in (Health.READY, Health.BUSY):
        assert all(answered)
        assert not any(one.error for one in functions.values())
    if health is Health.STARTING:
        assert any(one.state is Health.STARTING for one in functions.values())


def test_a_deployment_at_zero_is_ready_and_one_whose_workers_are_all_full_is_busy() -> None:
    cold, busy, free = (
        FunctionHealth(state=Health.READY, cold=True),
        FunctionHealth(state=Health.BUSY, workers=1),
        FunctionHealth(state=Health.READY, workers=1),
    )
    for functions, state in (
        ({"look": cold, "speak": cold}, Health.READY),
        ({"look": cold, "speak": busy}, Health.BUSY),
        ({"look": free, "speak": busy}, Health.READY),
    ):
        assert total_health(functions, [{"look"}, {"look", "speak"}]) is state
