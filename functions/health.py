"""How workers, functions and a deployment are, told from leases and their age: pure functions.

| state | a worker | a function | a deployment |
|---|---|---|---|
| STARTING | loads its models | a worker of it loads | answers no pipeline yet |
| READY | takes messages | is answered; cold: by a worker that is started then | answers every pipeline |
| BUSY | has no free slot, or takes nothing new | all of its workers are | all functions with workers are |
| DEGRADED | cannot run some of its functions | is answered, but one of its workers fails | some of it fails |
| UNHEALTHY | is silent, or can run nothing | is not answered, or with an error | answers no pipeline |

A lease that was not renewed twice is of a worker that is silent. The bus removes those of the dead by its own clock, so
that one that seems to be older than it keeps any is of a host whose clock is wrong, and not of a silent worker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from bus.contracts import ErrorRecord, Lease, WorkerState
from bus.subjects import LEASE_TTL_S

SILENT_S = 2 * LEASE_TTL_S / 3
"""A worker renews its lease three times in its time to live."""

_KEPT_S = LEASE_TTL_S + 2.0
"""No lease is older, but by the clock of another host; the bus may be late by a second."""


class Health(StrEnum):
    """How something that serves is."""

    STARTING = "STARTING"
    READY = "READY"
    BUSY = "BUSY"
    DEGRADED = "DEGRADED"
    UNHEALTHY = "UNHEALTHY"

    @property
    def answers(self) -> bool:
        """Whether what is asked is done."""
        return self not in (Health.STARTING, Health.UNHEALTHY)


@dataclass(frozen=True, kw_only=True)
class FunctionHealth:
    """How a function is.

    Attributes:
        state: One of the five.
        cold: Whether no worker is there, and one is started when something is asked.
        workers: Those that can run it now.
        error: Why a worker cannot run it.
    """

    state: Health
    cold: bool = False
    workers: int = 0
    error: ErrorRecord | None = None


def worker_health(lease: Lease, now_s: float) -> Health:
    """How a worker is.

    Args:
        lease: What it has told last.
        now_s: Unix time.
    """
    if _gone(lease, now_s):
        return Health.UNHEALTHY
    if lease.state is WorkerState.STARTING:
        return Health.STARTING
    if any(status.error is not None for status in lease.status.values()):
        return Health.DEGRADED if lease.functions else Health.UNHEALTHY
    full = bool(lease.functions) and all(_full(lease, name) for name in lease.functions)
    return Health.BUSY if full or lease.state is WorkerState.DRAINING else Health.READY


def function_health(
    function: str, group: str | None, leases: Iterable[Lease], now_s: float, *, pooled: bool = False
) -> FunctionHealth:
    """How a function is.

    Args:
        function: Its name.
        group: Its group; None: unknown, and no worker that has only begun counts for it.
        leases: Of all workers.
        now_s: Unix time.
        pooled: Whether a pool starts workers for it when something is asked.
    """
    leases = list(leases)
    mine = [lease for lease in leases if function in lease.functions or function in lease.status]
    heard = [lease for lease in mine if not _gone(lease, now_s)]
    silent = len(heard) < len(mine)
    errors = (lease.status[function].error for lease in heard if function in lease.status)
    error = next((one for one in errors if one is not None), None)
    able = [lease for lease in heard if lease.state is WorkerState.READY and function in lease.functions]
    if able:
        troubled = error is not None or silent
        full = all(_full(lease, function) for lease in able)
        state = Health.DEGRADED if troubled else Health.BUSY if full else Health.READY
    elif error is not None or silent:
        state = Health.UNHEALTHY
    elif pooled:
        return FunctionHealth(state=Health.READY, cold=True)
    else:
        starting = any(_starts(lease, function, group, now_s) for lease in leases)
        state = Health.STARTING if starting else Health.UNHEALTHY
    return FunctionHealth(state=state, workers=len(able), error=error)


def total_health(functions: Mapping[str, FunctionHealth], pipelines: Iterable[Collection[str]]) -> Health:
    """How a deployment is.

    Args:
        functions: How each function is.
        pipelines: Names of the functions that each pipeline needs, all of them.
    """
    states = [one.state for one in functions.values()]
    answered = [all(functions[name].state.answers for name in needed) for needed in pipelines]
    if not any(answered):
        return Health.STARTING if Health.STARTING in states else Health.UNHEALTHY
    if not all(answered) or Health.DEGRADED in states:
        return Health.DEGRADED
    warm = [one.state for one in functions.values() if not one.cold]
    return Health.BUSY if warm and all(state is Health.BUSY for state in warm) else Health.READY


def _silent(lease: Lease, now_s: float) -> bool:
    return SILENT_S < now_s - lease.renewed_s <= _KEPT_S


def _gone(lease: Lease, now_s: float) -> bool:
    return lease.state is WorkerState.FAILED or _silent(lease, now_s)


def _full(lease: Lease, function: str) -> bool:
    """Whether it takes no more of a function's messages; a worker that does not tell of each is taken as one."""
    status = lease.status.get(function)
    return 0 < lease.slots <= lease.busy if status is None else status.full


def _starts(lease: Lease, function: str, group: str | None, now_s: float) -> bool:
    if lease.state is not WorkerState.STARTING or _silent(lease, now_s):
        return False
    # A worker's groups are joined by the hyphens that they may have, too.
    return function in lease.functions or f"-{group}-" in f"-{lease.group}-" or lease.group == "all"
