"""One copy of a model for all who ask; room made and refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from bus.errors import ModelNotFoundError, ModelTooLargeError, OmnibusError, OverloadedError
from runtime.residency.entry import ModelSource
from tests.runtime.residency.hosts import MB, Host, Model, names, use


def test_callers_that_come_together_share_one_load(host: Host) -> None:
    residency, together = host.residency(), Barrier(8)
    residency.add("a", host.source("a", 10 * MB))

    def ask() -> Model:
        together.wait()
        with residency.lease("a") as lease:
            found: Model = lease.model
            return found

    with ThreadPoolExecutor(8) as threads:
        models = {id(found.result()) for found in [threads.submit(ask) for _ in range(8)]}
    assert len(models) == 1
    assert host.loads == ["a"]


def test_what_is_there_is_had_without_waiting(host: Host) -> None:
    residency = host.residency()
    residency.add("a", host.source("a", MB))
    assert residency.try_lease("a") is None
    use(residency, "a")
    lease = residency.try_lease("a")
    assert lease is not None
    assert lease.refs == ("a@1",)
    lease.release()
    lease.release()
    assert residency.residents()[0].leases == 0


def test_the_least_recently_used_leaves_and_comes_back_on_demand(host: Host) -> None:
    residency = host.residency(budget=250 * MB)
    for name in "abc":
        residency.add(name, host.source(name, 100 * MB))
    use(residency, "a", "b", "a", "c")
    assert names(residency) == ["a", "c"]
    assert host.closed == ["b"]
    use(residency, "b")
    assert names(residency) == ["b", "c"]


def test_when_the_host_has_less_than_before_the_next_load_puts_out_who_was_unused_for_longest(host: Host) -> None:
    residency = host.residency()
    for name in "abcd":
        residency.add(name, host.source(name, 100 * MB))
    use(residency, "a", "b", "c")
    assert names(residency) == ["a", "b", "c"]
    host.used += 500 * MB  # somebody else's; of the 200 that are left a hundred are kept for runs
    use(residency, "a")
    assert host.closed == []  # what is there needs no room
    host.used += 50 * MB
    use(residency, "d")
    assert names(residency) == ["a", "c", "d"]
    assert host.closed == ["b"]


def test_pinned_models_and_models_in_use_stay(host: Host) -> None:
    residency = host.residency(budget=250 * MB)
    residency.add("pinned", host.source("pinned", 100 * MB), pinned=True)
    for name in "abc":
        residency.add(name, host.source(name, 100 * MB))
    use(residency, "pinned")
    with residency.lease("a"):
        with pytest.raises(OverloadedError, match=r"no room for b on cpu.*50 MB more.*pinned 100 MB.*a 100 MB"):
            residency.lease("b")
        assert host.closed == []
    use(residency, "b")
    assert names(residency) == ["b", "pinned"]


def test_a_refusal_says_what_is_needed_and_who_holds_it(host: Host) -> None:
    residency = host.residency(budget=250 * MB)
    residency.add("a", host.source("a", 200 * MB))
    residency.add("b", host.source("b", 100 * MB))
    with residency.lease("a"), pytest.raises(OverloadedError) as refused:
        residency.lease("b")
    assert refused.value.retryable
    assert refused.value.details == {"need_nbytes": 100 * MB, "missing_nbytes": 50 * MB, "held_by": ["a"]}
    assert "b" not in host.loads


def test_a_model_that_can_never_fit_is_not_to_be_tried_again(host: Host) -> None:
    residency = host.residency(budget=50 * MB)
    residency.add("a", host.source("a", 200 * MB))
    said = r"a \(a@1\) takes 200 MB on cpu, and all models together may take 50 MB; raise OMNIBUS_MODEL_MEMORY"
    for had in (residency.lease, residency.warm):
        with pytest.raises(ModelTooLargeError, match=said) as refused:
            had("a")
        assert not refused.value.retryable
        assert refused.value.details == {"need_nbytes": 200 * MB, "budget_nbytes": 50 * MB}
    assert host.loads == []


def test_a_host_without_memory_refuses_before_it_loads(host: Host) -> None:
    residency = host.residency()
    residency.add("a", host.source("a", 950 * MB))
    with pytest.raises(OverloadedError, match="the host's memory"):
        residency.lease("a")
    assert host.loads == []
    residency.add("b", host.source("b", 850 * MB))
    use(residency, "b")


def test_warming_puts_nobody_out(host: Host) -> None:
    residency = host.residency(budget=250 * MB)
    for name in "abc":
        residency.add(name, host.source(name, 100 * MB))
    assert [residency.warm(name) for name in "abca"] == [True, True, False, True]
    assert names(residency) == ["a", "b"]


def test_warming_what_is_pinned_puts_out_who_is_not(host: Host) -> None:
    residency = host.residency(budget=500 * MB)
    residency.add("a", host.source("a", 300 * MB))
    residency.add("b", host.source("b", 300 * MB), pinned=True)
    assert [residency.warm(name) for name in "aba"] == [True, True, False]
    assert names(residency) == ["b"]


def test_a_load_that_fails_holds_nothing_and_may_be_tried_again(host: Host) -> None:
    residency, broken = host.residency(), [True]

    def load() -> Model:
        if broken.pop():
            raise OmnibusError("damaged")
        return Model(host, "a", MB)

    residency.add("a", ModelSource(refs=("a@1",), load=load))
    broken[:] = [False, True]
    with pytest.raises(OmnibusError, match="damaged"):
        residency.lease("a")
    assert residency.residents() == ()
    use(residency, "a")


def test_an_unknown_name_is_answered_with_the_known_ones(host: Host) -> None:
    residency = host.residency()
    residency.add("a", host.source("a", MB))
    with pytest.raises(ModelNotFoundError, match="added: a"):
        residency.lease("b")


def test_closing_lets_running_work_end(host: Host) -> None:
    residency = host.residency()
    for name in "ab":
        residency.add(name, host.source(name, MB))
    use(residency, "a")
    running = residency.lease("b")
    residency.close()
    assert host.closed == ["a"]
    running.release()
    assert host.closed == ["a", "b"]
