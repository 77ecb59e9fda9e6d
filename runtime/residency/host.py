"""How much memory this host and this process's control groups have left, and how much this process takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


def free_nbytes(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Bytes that can be taken before the kernel kills somebody; None where the system does not tell.

    The least of what the host has available and of what each control group above this process may still take; pages
    of files that a group could drop count as free.

    Source: Linux, Documentation/filesystems/proc.rst (MemAvailable) and Documentation/admin-guide/cgroup-v2.rst.

    Args:
        proc: The proc file system.
        cgroups: The cgroup file system, version 2.
    """
    limits = [*_available(proc), *_groups(proc, cgroups)]
    return min(limits) if limits else None


def resident_nbytes(proc: Path = _PROC) -> int:
    """Bytes of memory that this process has mapped and in use, shared ones too; 0 where the system does not tell."""
    try:
        pages = int((proc / "self" / "statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _available(proc: Path) -> Iterator[int]:
    try:
        lines = (proc / "meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return
    yield from (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _groups(proc: Path, cgroups: Path) -> Iterator[int]:
    try:
        own = next(
            line.partition("::")[2]
            for line in (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
            if line.startswith("0::")
        )
    except (OSError, StopIteration):
        return
    path = PurePosixPath(own.lstrip("/"))
    for group in (path, *path.parents):
        limit = _number(cgroups / group / "memory.max")
        used = _number(cgroups / group / "memory.current")
        if limit is not None and used is not None:
            yield max(0, limit - used + _droppable(cgroups / group / "memory.stat"))


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max" is no limit


def _droppable(stat: Path) -> int:
    try:
        lines = stat.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
