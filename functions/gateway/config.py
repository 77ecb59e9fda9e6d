"""What a deployer sets for the gateway."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bus.nats.connection import NatsConfig


@dataclass(frozen=True, kw_only=True)
class GatewayConfig:
    """Settings of one gateway process.

    Attributes:
        nats: The bus.
        store_url: Object store, as `bus.store.location.open_store` reads it.
        store_access_key: For S3.
        store_secret_key: For S3; never shown.
        tensors: Folder of this host's shared tensors; None: the default one.
        modules: Packages with functions of the deployer's own, beside `functions.stages`.
        pipelines: Folders with pipelines of the deployer's own; a later one replaces pipelines of an earlier one.
        warm: Deployment file: how warm functions are kept; None: as their code says.
        api_key: Key that clients must send as `Authorization: Bearer <key>`; None: no check.
        max_body_nbytes: The largest request body; a larger one is refused with 413.
        max_buffered_nbytes: Bytes of all bodies that are being handled; beyond it, requests get 429.
        max_requests: Requests that are being handled at once; beyond it, requests get 429.
        timeout_s: Deadline of a request that names none.
        max_timeout_s: The longest deadline that a request may name.
        inline_max_nbytes: A raw body above this size goes to the object store and travels as a reference.
    """

    nats: NatsConfig = field(default_factory=NatsConfig)
    store_url: str = ""
    store_access_key: str = ""
    store_secret_key: str = field(default="", repr=False)
    tensors: Path | None = None
    modules: tuple[str, ...] = ()
    pipelines: tuple[Path, ...] = ()
    warm: Path | None = None
    api_key: str | None = field(default=None, repr=False)
    max_body_nbytes: int = 100 * 1024 * 1024
    max_buffered_nbytes: int = 256 * 1024 * 1024
    max_requests: int = 1024
    timeout_s: float = 300.0
    max_timeout_s: float = 3600.0
    inline_max_nbytes: int = 64 * 1024
