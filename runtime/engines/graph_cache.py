"""Optimised graphs with their prepared weights, saved once for all processes of a host.

ONNX Runtime rewrites a graph for the processor and copies its weights into the layout that the kernels read. Done in
each process, these copies are private: two workers hold the weights twice. Saved, they lie in a file that every
process maps, and the kernel's page cache holds them once.

Source: ONNX Runtime, `onnxruntime_session_options_config_keys.h`, the entry
`session.save_external_prepacked_constant_initializers`.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from bus.errors import OmnibusError
from runtime.engines.identity import Identity
from runtime.repository.durable import sync
from runtime.repository.location import GRAPHS
from runtime.repository.lock import exclusive

log = logging.getLogger("omnibus.engine")

MODEL, DATA = "model.onnx", "model.data"

_ENTRY = "entry.json"
_FORMAT = "1"
_KEEP = 3
_SPACE = 3
"""Free disk space that saving wants, as a multiple of the model's files."""


@dataclass(frozen=True, slots=True)
class GraphKey:
    """What an optimised graph depends on.

    Attributes:
        model: Its id.
        version: Its version.
        stem: Name of the model file without its ending.
        digest: Of the model's files, the runtime's version, the device and the processor; hex.
        nbytes: Size of the model's files.
        folder: Where the model lies.
    """

    model: str
    version: str
    stem: str
    digest: str
    nbytes: int
    folder: Path

    @classmethod
    def of(cls, identity: Identity, path: Path, *depends: str) -> GraphKey:
        """The key of a model file that an identity vouches for, and of whatever else the graph depends on."""
        digest = sha256("\n".join((_FORMAT, identity.digest, path.name, *depends)).encode()).hexdigest()
        manifest = identity.manifest
        nbytes = sum(file.nbytes for file in manifest.files)
        return cls(manifest.id, manifest.version, path.stem, digest[:24], nbytes, identity.folder)


class GraphCache:
    """Saved graphs of a host, safe to use from several processes at once.

    Args:
        folder: Where they are kept; None: in `.graphs` of the models folder that the model lies in.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def find(self, key: GraphKey) -> Path | None:
        """The saved model file; None when there is none, or none that is whole."""
        place = self._place(key)
        try:
            sizes = json.loads((place / _ENTRY).read_bytes())
            whole = all((place / name).stat().st_size == nbytes for name, nbytes in sizes.items())
        except (OSError, ValueError, AttributeError):
            return None
        return place / MODEL if whole and MODEL in sizes else None

    def make(self, key: GraphKey, save: Callable[[Path], None]) -> Path | None:
        """The saved model file, saved now by the first process that asks while the others wait.

        Args:
            key: Which one.
            save: Writes `model.onnx` and `model.data` into the folder that it is given.

        Returns:
            None where nothing can be saved: a folder that cannot be written, a full disk, a graph that the runtime
            cannot write. The model is then used as it is.
        """
        place = self._place(key)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with exclusive(place.parent / f".{place.name}.lock"):
                found = self.find(key)
                if found is None and self._has_room(key, place.parent):
                    _write(place, save)
                    found = self.find(key)
                    self._prune(place)
                    self._sweep(key)
                return found
        except (OSError, OmnibusError) as error:
            log.warning("the optimised graph of %s@%s is not kept: %s", key.model, key.version, error)
            return None

    def discard(self, key: GraphKey) -> None:
        """Remove a saved graph that does not open; whoever has it mapped keeps it."""
        shutil.rmtree(self._place(key), ignore_errors=True)

    def engines(self, identity: Identity) -> Path:
        """Folder for the engines that TensorRT builds of a model."""
        manifest = identity.manifest
        return self._root(identity.folder) / manifest.id / manifest.version / f"tensorrt-{identity.digest[:24]}"

    def _place(self, key: GraphKey) -> Path:
        return self._root(key.folder) / key.model / key.version / f"{key.stem}-{key.digest}"

    def _root(self, model: Path) -> Path:
        return self._folder or model.parent.parent / GRAPHS

    def _has_room(self, key: GraphKey, folder: Path) -> bool:
        free = shutil.disk_usage(folder).free
        if free < _SPACE * key.nbytes:
            log.warning(
                "the optimised graph of %s@%s is not kept: %.1f GB are free, it wants %.1f GB",
                key.model, key.version, free / 1e9, _SPACE * key.nbytes / 1e9,
            )  # fmt: skip
        return free >= _SPACE * key.nbytes

    def _prune(self, place: Path) -> None:
        """Keep the newest few graphs of a model file: older ones are of runtimes and processors of the past."""
        stem = place.name.rpartition("-")[0]
        same = [one for one in place.parent.iterdir() if one.is_dir() and one.name.rpartition("-")[0] == stem]
        for old in sorted(same, key=lambda one: one.stat().st_mtime_ns, reverse=True)[_KEEP:]:
            shutil.rmtree(old, ignore_errors=True)

    def _sweep(self, key: GraphKey) -> None:
        """Remove graphs of versions that are not installed any more, where it is known what is."""
        models = key.folder.parent.parent
        if self._folder is not None:
            return
        for version in self._root(key.folder).glob("*/*"):
            if not (models / version.parent.name / version.name).exists():
                shutil.rmtree(version, ignore_errors=True)


_cache: GraphCache | None = GraphCache()


def use_graph_cache(cache: GraphCache | None) -> None:
    """Let sessions that are opened from now on keep their graphs there; None: nowhere."""
    global _cache  # one process, one cache
    _cache = cache


def graph_cache() -> GraphCache | None:
    """The cache that this process's sessions use; None: none."""
    return _cache


def _write(place: Path, save: Callable[[Path], None]) -> None:
    # Only the holder of the lock is here, so what lies around was left by a process that died.
    work = place.with_name(f".{place.name}.new")
    for stale in (work, place):
        shutil.rmtree(stale, ignore_errors=True)
    work.mkdir()
    started_s = time.monotonic()
    try:
        save(work)
        sizes = {path.name: path.stat().st_size for path in work.iterdir()}
        (work / _ENTRY).write_text(json.dumps(sizes), encoding="utf-8")
        for name in (*sizes, _ENTRY):
            sync(work / name)
        work.rename(place)
    finally:
        with suppress(OSError):
            shutil.rmtree(work, ignore_errors=True)
    log.info("kept the optimised graph %s in %.2f s", place, time.monotonic() - started_s)
