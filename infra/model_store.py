"""Where models come from, by the settings: this machine's repository, and the store that models are published to."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bus.contracts import ModelManifest
from bus.errors import ModelCorruptError, ModelNotFoundError, ModelSourceError
from bus.store.location import open_bucket
from functions.registry import load_functions
from infra.settings import Settings
from runtime.repository import Progress, Repository, TransferConfig, Wanted
from runtime.repository.download import download
from runtime.repository.progress import silent
from runtime.repository.published import fetch
from runtime.repository.sources import http_client

if TYPE_CHECKING:
    from bus.store.bucket import S3Bucket

log = logging.getLogger("omnibus.models")


def open_repository(settings: Settings) -> Repository:
    """The models of this machine, which can be made of objects in a bucket, too."""
    transfer = TransferConfig(part_nbytes=settings.download_part, connections=settings.download_connections)

    def from_s3(wanted: Wanted) -> Path:
        """One object, read like any file over HTTP."""
        bucket, (key, mark, options) = wanted.source.name, wanted.source.version.partition("?")
        with _bucket(settings, f"s3://{bucket}{mark}{options}") as store, http_client(of_system=True) as client:
            return download(
                store.signed_url(key),
                wanted.downloads / "s3" / bucket / key,
                client=client,
                sha256=wanted.sha256,
                config=wanted.transfer,
                on_bytes=wanted.on_bytes,
            )

    return Repository(settings.models, fetchers={"s3": from_s3}, transfer=transfer)


@contextmanager
def model_store(settings: Settings, place: str | None = None) -> Iterator[S3Bucket | None]:
    """The store that models are published to; None: there is none.

    Args:
        settings: Their `models_from` is the store where no other one is named.
        place: `s3://bucket/prefix`; where it has no options, with those of the settings' object store.

    Raises:
        InvalidInputError: Not of that form.
    """
    named = place or settings.models_from
    if named is None:
        yield None
        return
    with _bucket(settings, named) as store:
        yield store


def pull_models(
    repository: Repository, name: str, store: S3Bucket | None, progress: Progress = silent, *, force: bool = False
) -> tuple[ModelManifest, ...]:
    """Install a model or a set: what is published out of the store, the rest from where the catalog says.

    Raises:
        ModelNotFoundError: Neither has it.
        OmnibusError: See `Repository.pull` and `published.fetch`.
    """
    if store is None or force:
        return repository.pull(name, progress, force=force)
    catalog = repository.catalog
    if name not in catalog.sets() and all(name not in entry.names for entry in catalog):
        return (fetch(repository, name, store, progress),)
    pulled: list[ModelManifest] = []
    for entry in catalog.expand(name):
        ref = f"{entry.id}@{entry.version}"
        try:
            pulled.append(
                repository.resolve(ref) if _is_here(repository, ref) else fetch(repository, ref, store, progress)
            )
        except ModelNotFoundError:
            pulled += repository.pull(entry.id, progress)
    return tuple(pulled)


def bring_models(settings: Settings, groups: tuple[str, ...] = ()) -> None:
    """Fetch what functions need, or is pinned, and this machine does not have, out of the store of the settings.

    What the store does not have either, or not whole, is left to whoever needs it: its function says so when it starts.

    Args:
        settings: Where no store is named, nothing happens.
        groups: Of the functions; none: all.

    Raises:
        StoreUnavailableError: (retryable) the store does not answer.
        OmnibusError: See `published.fetch`.
    """
    if settings.models_from is None:
        return
    repository = open_repository(settings)
    specs = list(load_functions(settings.modules))
    wanted = {name for spec in specs if not groups or spec.group in groups for name in spec.models}
    wanted |= set(settings.pinned_models) - {spec.name for spec in specs}
    missing = sorted(name for name in wanted if not _is_here(repository, name))
    with _bucket(settings, settings.models_from) as store:
        for name in missing:
            try:
                log.info("%s is fetched from %s", name, urlsplit(settings.models_from)._replace(query="").geturl())
                log.info("%s is ready", fetch(repository, name, store).ref)
            except (ModelNotFoundError, ModelCorruptError) as error:
                log.warning("%s", error.message)
            except ModelSourceError as error:
                if error.retryable:
                    raise
                log.warning("%s is not whole in the store: %s", name, error.message)


def _is_here(repository: Repository, name: str) -> bool:
    try:
        repository.resolve(name)
    except ModelNotFoundError:
        return False
    return True


@contextmanager
def _bucket(settings: Settings, url: str) -> Iterator[S3Bucket]:
    own = settings.store_url or ""
    if not urlsplit(url).query and own.startswith("s3://") and urlsplit(own).query:
        url = f"{url}?{urlsplit(own).query}"
    secret = settings.store_secret_key.get_secret_value()
    bucket = open_bucket(url, access_key=settings.store_access_key, secret_key=secret)
    try:
        yield bucket
    finally:
        bucket.close()
