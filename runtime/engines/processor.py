"""Which processor this is, as far as prepared weights depend on it."""

from __future__ import annotations

import hashlib
import platform
from functools import lru_cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_TELLING = ("flags", "Features", "model name", "CPU implementer", "CPU part")


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """Sixteen hex digits that differ where instruction sets may: the layout of prepared weights follows them."""
    try:
        told = _told(_CPUINFO.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        told = ()
    known = (platform.machine(), *(told or (platform.processor(),)))
    return hashlib.blake2s("\n".join(known).encode(), digest_size=8).hexdigest()


def _told(cpuinfo: str) -> tuple[str, ...]:
    """What the first processor says of itself, in an order of its own."""
    first = cpuinfo.partition("\n\n")[0]
    fields = dict(line.partition(":")[::2] for line in first.splitlines() if ":" in line)
    told = {name.strip(): value for name, value in fields.items()}
    return tuple(f"{name}={' '.join(sorted(told[name].split()))}" for name in _TELLING if name in told)
