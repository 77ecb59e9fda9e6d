"""The models on this machine: `models/<id>/<version>/` with a manifest beside the files."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bus.contracts import ModelManifest
from bus.errors import EngineError, ModelCorruptError, ModelNotFoundError
from runtime.repository.aliases import Aliases
from runtime.repository.catalog import Catalog, CatalogEntry, builtin_catalog
from runtime.repository.download import sweep
from runtime.repository.location import ALIASES, GRAPHS, default_downloads, default_root
from runtime.repository.lock import exclusive
from runtime.repository.manifest_file import complete, problems_of, read_manifest, update_manifest
from runtime.repository.progress import Progress, silent
from runtime.repository.pull import make
from runtime.repository.ranges import TransferConfig
from runtime.repository.removed import note_removed
from runtime.repository.sources import FETCHERS, Fetcher

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Repository:
    """Finds, pulls, checks and removes models; safe to use from several processes at once.

    Args:
        root: The models folder; None: `location.default_root()`.
        downloads: The folder of downloaded archives; None: beside the models folder.
        catalog: What can be pulled; None: the catalog of this package.
        fetchers: Fetchers by scheme, in addition to the built-in ones or instead of them.
        transfer: How files are brought here.
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        downloads: Path | None = None,
        catalog: Catalog | None = None,
        fetchers: Mapping[str, Fetcher] | None = None,
        transfer: TransferConfig | None = None,
    ) -> None:
        self.root = root if root is not None else default_root()
        self.downloads = downloads or (default_downloads() if root is None else root.parent / "downloads")
        self.catalog = catalog if catalog is not None else builtin_catalog()
        self._fetchers = {**FETCHERS, **(fetchers or {})}
        self.transfer = transfer or TransferConfig()
        self.aliases = Aliases(self.root / ALIASES)

    def resolve(self, name: str) -> ModelManifest:
        """The manifest of an installed model.

        Args:
            name: An id (its newest version), `id@version` or an alias; what the deployer calls so comes first.

        Raises:
            ModelNotFoundError: Not installed; says how to pull it.
            ModelCorruptError: Its manifest cannot be read.
        """
        return self.own(self.aliases.read().get(name, name))

    def own(self, name: str) -> ModelManifest:
        """As `resolve`, whatever the deployer calls so."""
        wanted, _, version = self.canonical(name).partition("@")
        installed = self._installed(wanted)
        if not installed:  # a model that is not of this catalog may have brought an alias with it
            installed = [one for one in self.list() if name in one.aliases]
        chosen = [one for one in installed if version in ("", one.version)]
        if not chosen:
            raise ModelNotFoundError(self._how_to_get(name), model=name)
        return chosen[-1]

    def alias(self, name: str, target: str | None) -> ModelManifest | None:
        """Let a name stand for an installed model, for every process from its next look on.

        Args:
            name: Any name; the id of a model, too, to hold one of its versions.
            target: An id (always its newest version) or `id@version`; None: the name means what it meant before.

        Returns:
            The model that is meant now; None when the alias was taken away.

        Raises:
            ModelNotFoundError: The target is not installed.
            InvalidInputError: Not a name that an alias can have.
        """
        if target is None:
            self.aliases.set(name, None)
            return None
        wanted, _, version = self.canonical(target).partition("@")
        found = [one for one in self._installed(wanted) if version in ("", one.version)]
        if not found:
            raise ModelNotFoundError(self._how_to_get(target), model=target)
        self.aliases.set(name, f"{wanted}@{version}" if version else wanted)
        return found[-1]

    def stamp(self, *names: str) -> tuple[int, ...]:
        """Changes when the names may mean other versions than before; cheap enough to ask every second.

        Args:
            names: As for `resolve`; none: everything that is installed.
        """
        known = self.aliases.read()
        named = {self.canonical(known.get(name, name)).partition("@")[0] for name in names}
        places = sorted(named) if names else [folder.name for folder in self._folders()]
        changed = [folder.stat().st_mtime_ns if (folder := self.root / place).is_dir() else 0 for place in places]
        return (self.aliases.stamp(), *changed)

    def remember_memory(self, manifest: ModelManifest, nbytes: int) -> None:
        """Write what a model was found to take into its manifest, where it says less or nothing."""
        if nbytes > (manifest.memory_nbytes or 0):
            update_manifest(self.folder(manifest), memory_nbytes=nbytes)

    def folder(self, manifest: ModelManifest) -> Path:
        """Where the model's files are."""
        return self.root / manifest.id / manifest.version

    def file(self, manifest: ModelManifest, path: str) -> Path:
        """Where one file of the model is.

        Raises:
            ModelCorruptError: It is not there or has another size than the manifest says.
        """
        place = self.folder(manifest) / path
        expected = next((file.nbytes for file in manifest.files if file.path == path), None)
        if expected is None or not place.is_file() or place.stat().st_size != expected:
            raise ModelCorruptError(
                f"file {path!r} of model {manifest.ref} is missing or cut short; "
                f"run `omnibus models verify {manifest.id} --repair`",
                model=manifest.ref,
                file=path,
            )
        return place

    def list(self) -> tuple[ModelManifest, ...]:
        """Every installed model, by id and version."""
        return tuple(one for folder in self._folders() for one in self._installed(folder.name))

    def pull(self, name: str, progress: Progress = silent, *, force: bool = False) -> tuple[ModelManifest, ...]:
        """Fetch and build a model or a set, and what it needs; what is there already is left alone.

        Args:
            name: Id, alias or set.
            progress: Told about every step.
            force: Make the named models again though they are there.

        Raises:
            ModelNotFoundError: Nothing of that name in the catalog.
            ModelSourceError: (mostly retryable) a source could not be read.
            ModelCorruptError: A source's bytes do not match their digest.
        """
        named = {entry.id for entry in self.catalog if name in (*entry.names, *entry.sets)}
        entries = self.catalog.expand(name)
        return tuple(self._ensure(entry, progress, force and entry.id in named) for entry in entries)

    def add(self, entry: CatalogEntry, progress: Progress = silent) -> ModelManifest:
        """Make a model that no catalog has; what is there already is left alone.

        Raises:
            InvalidInputError: The catalog has something of that name.
            OmnibusError: See `pull`.
        """
        Catalog((*self.catalog, entry))
        return self._ensure(entry, progress, force=False)

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Hold a lock of this folder, as soon as nobody else does, in whatever process.

        Raises:
            EngineError: What is written meanwhile cannot be: no such folder, no right to, no room.
        """
        try:
            with exclusive(self.root / ".locks" / f"{name}.lock"):
                yield
        except OSError as error:
            raise EngineError(
                f"the models folder {self.root} cannot be written: {error}; make room in it, make it writable, or "
                "set OMNIBUS_MODELS to another folder"
            ) from error

    def verify(self, name: str) -> tuple[str, ...]:
        """What is wrong with an installed model's files, one sentence each; empty: nothing.

        Raises:
            ModelNotFoundError: Not installed.
        """
        manifest = self.resolve(name)
        return tuple(problems_of(manifest, self.folder(manifest)))

    def repair(self, name: str, progress: Progress = silent) -> ModelManifest:
        """Make a model anew where it is damaged.

        Raises:
            ModelNotFoundError: Not in the catalog; says how it was made.
        """
        base = name.partition("@")[0]
        if base not in {each for entry in self.catalog for each in entry.names}:
            raise ModelNotFoundError(self._how_to_repair(self.resolve(name)), model=name)
        entry = self.catalog.get(base)
        return self._ensure(entry, progress, force=not self._is_whole(entry))

    def remove(self, name: str) -> ModelManifest:
        """Delete an installed version and its optimised graphs; its downloads stay, and no build gets its number again.

        Raises:
            ModelNotFoundError: Not installed.
        """
        manifest = self.resolve(name)
        with self.held(manifest.id):
            note_removed(self.root, manifest)
            gone = self.root / ".staging" / f"removed-{manifest.id}-{manifest.version}"
            gone.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(gone, ignore_errors=True)
            self.folder(manifest).rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
            shutil.rmtree(self.root / GRAPHS / manifest.id / manifest.version, ignore_errors=True)
        return manifest

    def _ensure(self, entry: CatalogEntry, progress: Progress, force: bool) -> ModelManifest:
        target = self.root / entry.id / entry.version
        # Asked before the lock, too: where all is there, the folder need not be writable.
        if not force and (known := complete(target)) is not None:
            return known
        with self.held(entry.id):
            if not force and (known := complete(target)) is not None:
                return known
            # Only the holder of this model's lock stages it, so whatever is there was left by a dead process.
            for stale in (self.root / ".staging").glob(f"{entry.id}@*"):
                shutil.rmtree(stale, ignore_errors=True)
            sweep(self.downloads)
            needs = {name: self.folder(self.resolve(name)) for name in entry.needs}
            return make(
                entry,
                target,
                staging=self.root / ".staging",
                downloads=self.downloads,
                fetchers=self._fetchers,
                needs=needs,
                transfer=self.transfer,
                progress=progress,
            )

    def _is_whole(self, entry: CatalogEntry) -> bool:
        target = self.root / entry.id / entry.version
        known = read_manifest(target)
        return known is not None and not any(problems_of(known, target))

    def canonical(self, name: str) -> str:
        """The id, or `id@version`, that a name of the catalog stands for; any other name stays as it is."""
        base, at, version = name.partition("@")
        known = next((entry.id for entry in self.catalog if base in entry.names), base)
        return f"{known}{at}{version}"

    def _folders(self) -> Sequence[Path]:
        return [one for one in sorted(self.root.iterdir()) if is_id(one.name)] if self.root.is_dir() else []

    def _installed(self, model: str) -> Sequence[ModelManifest]:
        # A name may come from anywhere, and must not name a folder elsewhere.
        if not is_id(model) or not (folder := self.root / model).is_dir():
            return []
        found = [one for version in folder.iterdir() if (one := read_manifest(version)) is not None]
        return sorted(found, key=lambda one: natural(one.version))

    def _how_to_repair(self, manifest: ModelManifest) -> str:
        places = ", ".join(place.removeprefix("file://") for place in manifest.source)
        return (
            f"{manifest.ref} is not in the catalog: it was built from {places}; "
            f"run `omnibus models rm {manifest.ref}`, and build it again"
        )

    def _how_to_get(self, name: str) -> str:
        known = next((entry for entry in self.catalog if name in entry.names), None)
        if known is not None:
            return f"model {name!r} is not installed in {self.root}; run `omnibus models pull {known.id}`"
        return f"no model {name!r} is installed in {self.root} or known to the catalog{self.catalog.hint(name)}"


def is_id(name: str) -> bool:
    """Whether a model can be called so: also the name of its folder."""
    return _ID.fullmatch(name) is not None


def natural(version: str) -> tuple[tuple[int, int, str], ...]:
    """A key that puts 10 after 9."""
    words = re.findall(r"\d+|\D+", version)
    return tuple((1, int(word), "") if word.isdecimal() else (0, 0, word) for word in words)
