"""What a worker serves and where everything is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bus.nats.connection import NatsConfig
from bus.store.once import KEEP_S
from functions.encoder_cache import DEFAULT_BUDGET_NBYTES


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """What a worker serves and where everything is.

    Attributes:
        groups: Function groups that it serves; empty: all.
        nats: The bus.
        store_url: The object store.
        store_access_key: For S3.
        store_secret_key: For S3.
        tensors: Folder of this host's shared tensors; None: the default of the tensor plane.
        models: Models folder; None: the default of the repository.
        modules: Packages whose functions are loaded besides the built-in stages.
        pipelines: Folders of pipeline files besides the built-in ones.
        threads: Cores that it may use: threads of a model's run, and blocking calls that run at once.
        device: What models run on: `auto` or a provider's name.
        device_fallback: Whether another provider may stand in for it.
        repeatable: Whether no answer depends on who else is served.
        model_memory_nbytes: Bytes for all models in memory; None: what the host has.
        pinned: Functions and models that stay in memory.
        encoder_cache_nbytes: Bytes of media that stay encoded for all requests; 0: none do.
        share_encoded: Whether tenants share them.
        graphs: Folder of optimised graphs; None: in the models folder.
        keep_graphs: Whether optimised graphs are kept at all.
        keep_objects_s: Media and tensors that nobody has made for so long are removed; 0: never.
        on_demand: Whether workers are started when something is asked: then one of which no function can run stays all
            the same, and answers why.
        grace_s: How long running handlers may go on after the worker was told to stop.
    """

    groups: tuple[str, ...] = ()
    nats: NatsConfig = field(default_factory=NatsConfig)
    store_url: str
    store_access_key: str = field(default="", repr=False)
    store_secret_key: str = field(default="", repr=False)
    tensors: Path | None = None
    models: Path | None = None
    modules: tuple[str, ...] = ()
    pipelines: tuple[Path, ...] = ()
    threads: int = 2
    device: str = "auto"
    device_fallback: bool = False
    repeatable: bool = True
    model_memory_nbytes: int | None = None
    pinned: tuple[str, ...] = ()
    encoder_cache_nbytes: int = DEFAULT_BUDGET_NBYTES
    share_encoded: bool = False
    graphs: Path | None = None
    keep_graphs: bool = True
    keep_objects_s: float = KEEP_S
    on_demand: bool = False
    grace_s: float = 10.0
