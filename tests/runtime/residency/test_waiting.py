"""Models that have no room beside each other take turns, however busy one of them is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from bus.errors import ModelTooLargeError, OverloadedError
from runtime.residency.residency import Residency
from tests.runtime.residency.hosts import MB, Host, names, use


def patient(host: Host, patience_s: float) -> Residency:
    """Room for one of `a` and `b`, and whoever waits for it does so for a while."""
    residency = Residency({"cpu": 300 * MB}, free=host.free, resident=host.resident, patience_s=patience_s, tenure_s=0)
    for name in "ab":
        residency.add(name, host.source(name, 200 * MB))
    return residency


def test_a_model_that_is_always_busy_makes_way_for_one_that_waits_and_comes_back() -> None:
    host = Host()
    residency = patient(host, patience_s=30)
    over = Event()

    def busy() -> int:
        """One run always begins before the last one ends, so that there is never a moment without one."""
        runs, lease = 0, residency.lease("a")
        while not over.is_set():
            following = residency.try_lease("a")
            lease.release()
            lease = following or residency.lease("a")
            runs += 1
        lease.release()
        return runs

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(busy)
        while not names(residency):
            pass
        for _ in range(3):
            with residency.lease("b") as lease:
                assert lease.model.name == "b"
        while host.loads[-1] != "a":
            pass
        over.set()
        assert running.result() > 0
    assert host.loads[:2] == ["a", "b"]
    assert host.loads.count("b") >= 1


def test_who_has_waited_long_enough_is_refused_and_the_others_go_on() -> None:
    host = Host()
    residency = patient(host, patience_s=0.05)
    with residency.lease("a"):
        with pytest.raises(OverloadedError, match="no room for b"):
            residency.lease("b")
        use(residency, "a")


def test_nobody_waits_for_what_will_not_fit_when_all_runs_have_ended() -> None:
    host = Host()
    residency = patient(host, patience_s=3600)
    residency.add("large", host.source("large", 301 * MB))
    with residency.lease("a"), pytest.raises(ModelTooLargeError, match="raise OMNIBUS_MODEL_MEMORY"):
        residency.lease("large")
