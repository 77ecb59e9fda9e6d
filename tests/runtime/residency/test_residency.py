"""One copy of a model for all who ask; room made and refused; a version switched while it is used."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import numpy as np
import pytest

from bus.errors import ModelNotFoundError, ModelTooLargeError, OmnibusError, OverloadedError
from runtime.engines.onnx import OnnxSession
from runtime.residency.entry import ModelSource
from runtime.residency.ledger import MemoryLedger
from runtime.residency.residency import Residency
from tests.runtime.engines.small_model import install, weight

MB = 1_000_000


class Host:
    """A host of 1000 MB, on which models take what they are said to take."""

    def __init__(self) -> None:
        self.used = 0
        self.closed: list[str] = []
        self.loads: list[str] = []

    def free(self) -> int:
        return 1000 * MB - self.used

    def resident(self) -> int:
        return self.used

    def source(self, name: str, nbytes: int, *, key: str = "", estimate: int | None = None) -> ModelSource:
        return ModelSource(
            refs=(f"{name}@1",),
            load=lambda: Model(self, name, nbytes),
            key=key,
            estimate_nbytes=nbytes if estimate is None else estimate,
        )

    def residency(self, budget: int | None = None, ledger: MemoryLedger | None = None) -> Residency:
        budgets = {} if budget is None else {"cpu": budget}
        return Residency(budgets, ledger=ledger, free=self.free, resident=self.resident, reserve_nbytes=100 * MB)


class Model:
    """Takes memory of its host until it is closed."""

    def __init__(self, host: Host, name: str, nbytes: int) -> None:
        self._host, self.name, self._nbytes = host, name, nbytes
        host.used += nbytes
        host.loads.append(name)

    def close(self) -> None:
        self._host.used -= self._nbytes
        self._host.closed.append(self.name)


def names(residency: Residency) -> list[str]:
    return sorted(one.name for one in residency.residents())


def use(residency: Residency, *wanted: str) -> None:
    for name in wanted:
        with residency.lease(name) as lease:
            assert lease.model.name == name


@pytest.fixture
def host() -> Host:
    return Host()


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


def test_what_was_measured_counts_the_next_time_and_not_what_was_guessed(host: Host, tmp_path: Path) -> None:
    ledger = MemoryLedger(tmp_path / "memory.json")
    first = host.residency(ledger=ledger)
    first.add("a", host.source("a", 300 * MB, key="digest", estimate=MB))
    assert first.warm("a")
    for _ in range(4):
        lease = first.lease("a")
        host.used += 25 * MB  # what its runs take; only the first few are looked at
        lease.release()
    assert first.residents()[0].nbytes == 375 * MB
    assert ledger.get("digest") == 375 * MB
    again = Host().residency(budget=320 * MB, ledger=MemoryLedger(tmp_path / "memory.json"))
    again.add("a", host.source("a", 300 * MB, key="digest", estimate=MB))
    with pytest.raises(ModelTooLargeError, match="375 MB"):
        again.lease("a")


def test_what_others_take_meanwhile_is_not_counted(host: Host, tmp_path: Path) -> None:
    ledger = MemoryLedger(tmp_path / "memory.json")
    residency = host.residency(ledger=ledger)
    for name in "ab":
        residency.add(name, host.source(name, 100 * MB, key=name))
        assert residency.warm(name)
    with residency.lease("a"):
        with residency.lease("b"):
            host.used += 40 * MB  # of either
        host.used += 40 * MB  # of a, which began beside b
    assert (ledger.get("a"), ledger.get("b")) == (100 * MB, 100 * MB)
    with residency.lease("a"):
        host.used += 7 * MB
    host.used += 90 * MB  # of no model
    with residency.lease("b"):
        host.used += 5 * MB
    assert (ledger.get("a"), ledger.get("b")) == (107 * MB, 105 * MB)


def test_a_model_that_is_loaded_while_another_one_runs_takes_what_it_may_until_it_was_measured(
    host: Host, tmp_path: Path
) -> None:
    ledger = MemoryLedger(tmp_path / "memory.json")
    residency = host.residency(ledger=ledger)
    residency.add("a", host.source("a", 10 * MB))
    residency.add("b", host.source("b", 100 * MB, key="b", estimate=120 * MB))
    with residency.lease("a"):
        use(residency, "b")
    assert residency.residents()[1].nbytes == 120 * MB
    assert ledger.get("b") is None


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


def test_a_switch_waits_for_nobody_and_the_old_version_leaves_with_its_last_run(host: Host) -> None:
    residency = host.residency()
    residency.add("m", host.source("old", MB))
    running = residency.lease("m")
    residency.switch("m", host.source("new", MB))
    with residency.lease("m") as lease:
        assert lease.model.name == "new"
    assert running.model.name == "old"
    assert host.closed == []
    assert len(residency.residents()) == 2
    running.release()
    assert host.closed == ["old"]
    assert residency.refs("m") == ("new@1",)


def test_an_old_version_lingers_for_what_was_made_for_it(host: Host) -> None:
    now = [0.0]
    residency = Residency(free=host.free, resident=host.resident, reserve_nbytes=0, clock=lambda: now[0])
    residency.add("m", host.source("old", MB))
    use_old = residency.lease("m", "old@1")
    residency.switch("m", host.source("new", MB), linger_s=30)
    use_old.release()
    for version, expected in (("old@1", "old"), ("new@1", "new"), (None, "new")):
        with residency.lease("m", version) as lease:
            assert lease.model.name == expected
    with pytest.raises(OverloadedError, match="has new@1 here, not newer@1") as refused:
        residency.lease("m", "newer@1")
    assert refused.value.retryable
    now[0] = 29.0
    residency.sweep()
    assert host.closed == []
    now[0] = 30.0
    residency.sweep()
    assert host.closed == ["old"]
    with pytest.raises(OverloadedError, match="has new@1 here, not old@1"):
        residency.try_lease("m", "old@1")


def test_what_lingers_makes_room_for_what_is_needed(host: Host) -> None:
    residency = host.residency(budget=250 * MB)
    residency.add("m", host.source("old", 100 * MB))
    residency.add("a", host.source("a", 100 * MB))
    residency.lease("m").release()
    residency.switch("m", host.source("new", 100 * MB), linger_s=1000)
    use(residency, "a")
    assert host.closed == ["old"]


def test_a_version_that_does_not_load_changes_nothing(host: Host) -> None:
    residency = host.residency()
    residency.add("m", host.source("old", MB))
    use_old = residency.lease("m")
    use_old.release()

    def fail() -> Model:
        raise OmnibusError("damaged")

    with pytest.raises(OmnibusError, match="damaged"):
        residency.switch("m", ModelSource(refs=("new@1",), load=fail))
    with residency.lease("m") as lease:
        assert lease.model.name == "old"
    assert len(residency.residents()) == 1


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


def test_no_request_fails_or_mixes_versions_while_a_real_model_is_switched(tmp_path: Path) -> None:
    paths = [install(tmp_path, version=str(seed), seed=seed) for seed in (1, 2)]
    x = np.random.default_rng(3).standard_normal((2, 64)).astype(np.float32)
    expected = {f"tiny@{seed}": x @ weight(seed=seed) for seed in (1, 2)}

    def source(version: int) -> ModelSource:
        return ModelSource(refs=(f"tiny@{version}",), load=lambda: OnnxSession(paths[version - 1], threads=1))

    residency = Residency()
    residency.add("tiny", source(1))
    warmed, over = Barrier(5), Event()

    def serve() -> list[str]:
        seen: list[str] = []
        while not over.is_set() or len(seen) < 200:
            with residency.lease("tiny") as lease:
                (found,) = lease.model.run({"x": x})
                np.testing.assert_allclose(found, expected[lease.refs[0]], rtol=1e-4, atol=1e-4)
                seen.append(lease.refs[0])
            if len(seen) == 20:
                warmed.wait()
        return seen

    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(serve) for _ in range(4)]
        warmed.wait()
        for version in (2, 1, 2):
            residency.switch("tiny", source(version))
        over.set()
        seen = [one.result() for one in running]
    assert all(mine[0] == "tiny@1" and mine[-1] == "tiny@2" for mine in seen)
    (left,) = residency.residents()
    assert (left.refs, left.leases) == (("tiny@2",), 0)
