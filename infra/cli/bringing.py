"""Models that a command's functions need, brought before it serves."""

from __future__ import annotations

from infra.settings import Settings


def bring_published(settings: Settings, groups: tuple[str, ...] = ()) -> None:
    """Fetch what functions need and this machine does not have, where the settings name a store.

    Args:
        settings: Name the store.
        groups: Of the functions; none: all.

    Raises:
        OmnibusError: See `bring_models`.
    """
    if settings.models_from is not None:
        from infra.model_store import bring_models  # with all that it draws in, only where there is something to bring

        bring_models(settings, groups)
