"""A version is switched while it is used."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import numpy as np
import pytest

from bus.errors import OmnibusError, OverloadedError
from runtime.engines.onnx import OnnxSession
from runtime.residency.entry import ModelSource
from runtime.residency.residency import Residency
from tests.runtime.engines.small_model import install, weight
from tests.runtime.residency.hosts import MB, Host, Model, use


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
