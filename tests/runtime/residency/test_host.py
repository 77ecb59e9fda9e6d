"""What the kernel's files say of memory."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest

from runtime.residency.host import free_nbytes, resident_nbytes


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """8,000 kB available; a process in the group a/b."""
    write(tmp_path / "proc/meminfo", "MemTotal:  16000 kB\nMemAvailable:   8000 kB\n")
    write(tmp_path / "proc/self/cgroup", "0::/a/b\n")
    return tmp_path


def free(host: Path) -> int | None:
    return free_nbytes(host / "proc", host / "cgroup")


def test_a_process_without_limits_has_what_the_host_has(host: Path) -> None:
    write(host / "cgroup/a/b/memory.max", "max\n")
    write(host / "cgroup/a/b/memory.current", "5\n")
    assert free(host) == 8_000 * 1024


@pytest.mark.parametrize("group", ["a/b", "a", "."])
def test_the_tightest_group_above_the_process_counts(host: Path, group: str) -> None:
    write(host / f"cgroup/{group}/memory.max", "5000000\n")
    write(host / f"cgroup/{group}/memory.current", "4000000\n")
    assert free(host) == 1_000_000


def test_files_that_a_group_could_drop_count_as_free(host: Path) -> None:
    write(host / "cgroup/a/memory.max", "5000000\n")
    write(host / "cgroup/a/memory.current", "4000000\n")
    write(host / "cgroup/a/memory.stat", "anon 7\ninactive_file 2000000\n")
    assert free(host) == 3_000_000


def test_a_group_over_its_limit_has_nothing_left(host: Path) -> None:
    write(host / "cgroup/a/memory.max", "5\n")
    write(host / "cgroup/a/memory.current", "9\n")
    assert free(host) == 0


def test_a_system_that_tells_nothing_is_not_guessed_at(tmp_path: Path) -> None:
    assert free_nbytes(tmp_path, tmp_path) is None
    assert resident_nbytes(tmp_path) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these files")
def test_what_this_process_takes_is_seen_in_its_size() -> None:
    nbytes = 64_000_000
    # Pages of its own: an array may get pages that were given back to the heap, and not to the system, before.
    taken = mmap.mmap(-1, nbytes)
    before = resident_nbytes()
    for page in range(0, nbytes, 4096):
        taken[page] = 1
    grown = resident_nbytes() - before
    taken.close()
    assert 0.9 * nbytes < grown < 1.5 * nbytes
    left = free_nbytes()
    assert left is not None
    assert left > 0
