"""What a worker tells the registry of itself."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from bus.contracts.base import Contract
from bus.contracts.event import ErrorRecord


class WorkerState(StrEnum):
    """Where a worker is in its life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


class Tier(StrEnum):
    """How far a worker is on its way to an answer; each one is a step behind the one before."""

    TEMPLATE = "template"
    """No process of its own: a fork away. No worker tells this of itself."""

    PRIMED = "primed"
    """Everything is imported and connected; nothing is loaded, nothing is taken."""

    LOADED = "loaded"
    """Its models are ready, and it takes messages."""

    HOT = "hot"
    """Its models have run on the shapes that they will meet."""

    @property
    def rank(self) -> int:
        """Place in the order; a higher one answers sooner."""
        return list(Tier).index(self)

    @property
    def serves(self) -> bool:
        """Whether a worker that is so warm takes messages."""
        return self.rank >= Tier.LOADED.rank


class FunctionStatus(Contract):
    """One function of one worker."""

    slots: int = Field(default=0, ge=0, description="Messages that it runs at once.")
    busy: int = Field(default=0, ge=0, description="Messages that it has.")
    full: bool = Field(default=False, description="Whether the next message of some lane has to wait.")
    error: ErrorRecord | None = Field(
        default=None, description="Why it cannot run here: what is asked of it gets this error. It is tried again."
    )


class Lease(Contract):
    """A worker's entry in the registry; it vanishes when the worker stops renewing it."""

    schema_name = "omnibus.lease"
    schema_version = 1

    worker: str
    group: str
    host: str
    pid: int
    state: WorkerState
    functions: tuple[str, ...] = Field(description="Those that it can run now.")
    models: tuple[str, ...] = Field(default=(), description="Names of the models that they are made of.")
    slots: int = 0
    busy: int = 0
    served: int = 0
    started_s: float
    renewed_s: float
    unique_nbytes: int | None = Field(default=None, description="Memory that only this process holds.")
    encoder_cache: dict[str, int] = Field(
        default_factory=dict,
        description="Its `hits`, `misses` and `evicted`; and `entries` and `nbytes` of all workers together.",
    )
    tier: Tier | None = Field(default=None, description="How warm it is; None: it does not tell.")
    error: ErrorRecord | None = None
    status: dict[str, FunctionStatus] = Field(
        default_factory=dict, description="By function, of those that it can run and of those that it cannot."
    )
    resident: dict[str, int] = Field(
        default_factory=dict,
        description="Bytes that the models in its memory now take, runs included, by what they are made of: "
        "`id@version`, joined by `+`; by its function what is made of none.",
    )
