"""What models were found to take is known to the next process."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

from runtime.residency.ledger import MemoryLedger


def test_the_largest_measurement_is_remembered(tmp_path: Path) -> None:
    ledger = MemoryLedger(tmp_path / "memory.json")
    assert ledger.get("a") is None
    for nbytes in (5, 9, 7):
        ledger.put("a", nbytes)
    ledger.put("b", 1)
    again = MemoryLedger(tmp_path / "memory.json")
    assert (again.get("a"), again.get("b")) == (9, 1)


def test_measurements_that_come_together_are_all_kept(tmp_path: Path) -> None:
    threads = [
        Thread(target=MemoryLedger(tmp_path / "memory.json").put, args=(f"model {number}", number))
        for number in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [MemoryLedger(tmp_path / "memory.json").get(f"model {number}") for number in range(20)] == [*range(20)]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"a": "many"}', b'{"a": -4}', b"\xff"])
def test_a_damaged_file_is_like_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "memory.json"
    path.write_bytes(content)
    ledger = MemoryLedger(path)
    assert ledger.get("a") is None
    ledger.put("a", 3)
    assert ledger.get("a") == 3


def test_where_nothing_can_be_written_nothing_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    ledger = MemoryLedger(tmp_path / "file" / "memory.json")
    ledger.put("a", 3)
    assert ledger.get("a") is None
