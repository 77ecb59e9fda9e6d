"""What a host's pool can run, told to all others."""

from __future__ import annotations

from pydantic import Field

from bus.contracts.base import Contract


class GroupCapacity(Contract):
    """One function group on one host."""

    alive: int = Field(ge=0, description="Workers that start or are ready.")
    running: int = Field(ge=0, description="Requests that they have.")
    requests: int = Field(
        default=0, ge=0, description="Requests on the bus that wait or run anywhere, as the host last saw them."
    )
    slots: int = Field(default=1, ge=1, description="Requests that a worker runs at once.")
    most: int = Field(default=1, ge=0, description="The most workers that the host may run.")
    nbytes: int = Field(default=0, ge=0, description="Memory of a worker.")
    start_s: float = Field(default=0.0, ge=0, description="How long a worker takes to start.")
    service_s: float = Field(default=0.0, ge=0, description="How long a request runs, on average; 0: not known yet.")


class Capacity(Contract):
    """A host's entry in the bucket of pools; it vanishes when the host stops renewing it."""

    schema_name = "omnibus.capacity"
    schema_version = 1

    host: str = Field(description="Names the pool; two on one machine have two names.")
    room_nbytes: int = Field(ge=0, description="Memory that all of its workers may take together.")
    groups: dict[str, GroupCapacity] = Field(description="Groups that it can serve.")
    renewed_s: float
