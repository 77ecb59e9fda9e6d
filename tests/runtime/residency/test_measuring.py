"""What a model takes is measured, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from bus.errors import ModelTooLargeError
from runtime.residency.ledger import MemoryLedger
from tests.runtime.residency.hosts import MB, Host, use


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
