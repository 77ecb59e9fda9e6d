"""From a catalog entry to a served model: fetch, assemble, build, describe, publish."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bus.contracts import ModelFile, ModelManifest
from bus.errors import ModelCorruptError
from runtime.repository.archive import copy_member
from runtime.repository.catalog import LICENSE_FOLDER, CatalogEntry, RawSource
from runtime.repository.download import sha256_of
from runtime.repository.durable import sync
from runtime.repository.ports import PORTS, declared_ports
from runtime.repository.progress import Progress, Step
from runtime.repository.ranges import TransferConfig
from runtime.repository.recipe import BuildJob, Built, recipe
from runtime.repository.source import Source
from runtime.repository.sources import Fetcher, Wanted

MANIFEST = "manifest.json"
LICENSE = "LICENSE"


def make(
    entry: CatalogEntry,
    target: Path,
    *,
    staging: Path,
    downloads: Path,
    fetchers: Mapping[str, Fetcher],
    needs: Mapping[str, Path],
    transfer: TransferConfig,
    progress: Progress,
) -> ModelManifest:
    """Make a model in a staging folder and put it in its place in one rename.

    Raises:
        ModelSourceError: A source could not be read.
        ModelCorruptError: Bytes that do not match their digest.
    """
    staging.mkdir(parents=True, exist_ok=True)
    # An id has no @ in it, so that no other model's folder begins like this one's.
    with tempfile.TemporaryDirectory(dir=staging, prefix=f"{entry.id}@", ignore_cleanup_errors=True) as work:
        raw, out = Path(work) / "raw", Path(work) / "out"
        raw.mkdir()
        out.mkdir()
        for source in entry.sources:
            _take(entry, source, raw, downloads, fetchers, transfer, progress)
        _check_raw(entry, raw)
        built = _build(entry, raw, out, needs, progress)
        _add_license(entry, raw, out)
        manifest = _describe(entry, out, built)
        (out / MANIFEST).write_text(manifest.model_dump_json(indent=2), encoding="utf-8")
        publish_folder(out, target, Path(work) / "old")
    progress(Step(entry.id, "ready"))
    return manifest


def _take(
    entry: CatalogEntry,
    wanted: RawSource,
    raw: Path,
    downloads: Path,
    fetchers: Mapping[str, Fetcher],
    transfer: TransferConfig,
    progress: Progress,
) -> None:
    def on_bytes(name: str, done: int, total: int | None) -> None:
        progress(Step(entry.id, "download", name, done, total))

    source = Source.parse(wanted.source)
    archive = fetchers[source.scheme](
        Wanted(
            source=source,
            members=tuple(file.member for file in wanted.files),
            downloads=downloads,
            sha256=wanted.sha256,
            filename=wanted.filename,
            digests=_digests(entry, wanted),
            transfer=transfer,
            on_bytes=on_bytes,
        )
    )
    try:
        for file in wanted.files:
            path = raw / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as out:
                copy_member(archive, file.member, out)
    except ModelCorruptError:
        if archive.is_file() and archive.is_relative_to(downloads):
            archive.unlink()  # so that the next pull downloads it again
        raise


def _digests(entry: CatalogEntry, wanted: RawSource) -> dict[str, str]:
    """The digests of members that are a raw file of their own."""
    joined = Counter(file.path for source in entry.sources for file in source.files)
    return {
        file.member: entry.digests[file.path]
        for file in wanted.files
        if file.path in entry.digests and joined[file.path] == 1
    }


def _check_raw(entry: CatalogEntry, raw: Path) -> None:
    for path, expected in entry.digests.items():
        found = sha256_of(raw / path)
        if found != expected:
            raise ModelCorruptError(
                f"raw file {path} of model {entry.id} has sha256 {found}, expected {expected}", model=entry.id
            )


def _build(entry: CatalogEntry, raw: Path, out: Path, needs: Mapping[str, Path], progress: Progress) -> Built:
    if entry.build is None:
        for path in raw.iterdir():
            shutil.move(path, out / path.name)
        return Built()
    progress(Step(entry.id, "build", entry.build))
    return recipe(entry.build)(BuildJob(raw=raw, out=out, parameters=entry.parameters, needs=needs))


def _add_license(entry: CatalogEntry, raw: Path, out: Path) -> None:
    given, text = raw / LICENSE, LICENSE_FOLDER / f"{entry.license}.txt"
    if (out / LICENSE).exists():
        return
    found = given if given.exists() else text
    body = found.read_text(encoding="utf-8") if found.exists() else f"{entry.license}\n"
    head = f"{entry.attribution}\n\n" if entry.attribution else ""
    (out / LICENSE).write_text(head + body, encoding="utf-8")


def _describe(entry: CatalogEntry, out: Path, built: Built) -> ModelManifest:
    paths = sorted(path for path in out.rglob("*") if path.is_file())
    return ModelManifest(
        id=entry.id,
        version=entry.version,
        family=entry.family,
        modalities_in=entry.modalities_in,
        modalities_out=entry.modalities_out,
        files=tuple(
            ModelFile(path=path.relative_to(out).as_posix(), sha256=sha256_of(path), nbytes=path.stat().st_size)
            for path in paths
        ),
        source=tuple(source.source for source in entry.sources),
        license=entry.license,
        aliases=entry.aliases,
        quantisation=entry.quantisation,
        composition=entry.composition,
        dims={**entry.dims, **built.dims},
        limits=entry.limits,
        memory_nbytes=built.memory_nbytes,
        baseline_ms=built.baseline_ms,
        parameters={**entry.parameters, **built.parameters, **_ports(out)},
    )


def _ports(out: Path) -> dict[str, dict[str, dict[str, list[Any]]]]:
    """What the model's graphs take and give, where it has any."""
    graphs = {path.name: declared_ports(path) for path in sorted(out.glob("*.onnx"))}
    return {PORTS: graphs} if graphs else {}


def publish_folder(out: Path, target: Path, old: Path) -> None:
    """Give a version its place: two renames where an older copy stands, which is `old` then.

    A process that has the older copy open or mapped keeps its files.
    """
    for path in out.rglob("*"):
        if path.is_file():
            sync(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        target.rename(old)
    out.rename(target)
    sync(target.parent)
