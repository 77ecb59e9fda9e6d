"""What a worker is told by the settings."""

from __future__ import annotations

from infra.settings import Settings
from warmpool.config import WorkerConfig


def worker_config(settings: Settings, groups: tuple[str, ...]) -> WorkerConfig:
    """The configuration of a worker of those function groups; none: all of them."""
    return WorkerConfig(
        groups=groups,
        nats=settings.nats,
        store_url=settings.store,
        store_access_key=settings.store_access_key,
        store_secret_key=settings.store_secret_key.get_secret_value(),
        tensors=settings.tensors,
        models=settings.models,
        modules=settings.modules,
        pipelines=settings.pipeline_folders,
        threads=settings.threads,
        device=settings.device,
        device_fallback=settings.device_fallback,
        repeatable=settings.repeatable,
        model_memory_nbytes=settings.model_memory,
        pinned=settings.pinned_models,
        encoder_cache_nbytes=settings.encoder_cache,
        share_encoded=settings.share_encoded,
        graphs=settings.graphs,
        keep_graphs=settings.keep_graphs,
        keep_objects_s=settings.keep_days * 86_400,
        on_demand=settings.scale_to_zero,
        grace_s=settings.grace_s,
    )
