"""Catalog entries for Hugging Face folders, here or on the hub, and for GGUF files: built like any other model."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bus.contracts import ModelManifest
from bus.errors import InvalidInputError, ModelSourceError
from runtime.graphs.decoder.weights import store_of
from runtime.graphs.encoders.known import encoders_of
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.gguf import GgufCheckpoint
from runtime.graphs.families.known import family_of, text_model
from runtime.graphs.families.rope import trained_context
from runtime.repository import CatalogEntry, Repository
from runtime.repository.catalog import LICENSE_FOLDER, RawFile, RawSource
from runtime.repository.download import sha256_of
from runtime.repository.hub import list_hub
from runtime.repository.progress import Progress, silent
from runtime.repository.removed import last_removed
from runtime.repository.source import Source
from runtime.repository.sources import Wanted, from_hub
from runtime.weights.folder import INDEX, SINGLE
from runtime.weights.gguf import GgufFile

_HUB = "hf://"
# An SPDX id or expression, or what the hub has in its place; it becomes a part of a file's name.
_LICENSE = r"[A-Za-z0-9][A-Za-z0-9 .+()-]{0,99}"
_BESIDE = frozenset({
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
    "chat_template.json", "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json",
    "sentence_bert_config.json", "1_Pooling/config.json", "modules.json", "LICENSE",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """What the one who builds can choose.

    Attributes:
        id: What the model is to be called; None: as its folder is.
        quantisation: See `runtime.graphs.decoder.weights.QUANTISATIONS`.
        context_tokens: The most tokens of a prompt and its answer.
        license: SPDX id; None: what the folder says.
        exact_pixels: Whether a model that takes pictures gets them from whole photos, in place of ones that are shrunk
            while they are decoded, in a third of the time and nearly the same.
    """

    id: str | None = None
    quantisation: str = "q8"
    context_tokens: int = 4096
    license: str | None = None
    exact_pixels: bool = False


@dataclass(frozen=True, slots=True)
class _Kind:
    """How models of one sort are built and served."""

    recipe: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    limits: Mapping[str, float]
    parameters: Mapping[str, Any]
    quantisation: str


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder that was looked at."""

    source: str
    name: str
    files: tuple[RawFile, ...]
    config: ModelConfig
    identity: str
    digests: Mapping[str, str]
    license: str


def build_model(
    place: str, repository: Repository, options: BuildOptions, progress: Progress = silent
) -> ModelManifest:
    """Build a folder or a file, and install it; what was built of the same, in the same way, is there already.

    Args:
        place: See `entry_of`.
        repository: Where the model is to be.
        options: Choices.
        progress: Told about every step.

    Raises:
        OmnibusError: See `entry_of`, and what its recipe and the repository raise.
    """
    entry = entry_of(place, repository, options)
    # Whoever builds under the same name waits, and then finds another's version to count on from.
    with repository.held(f"{entry.id}.build"):
        return repository.add(entry.model_copy(update={"version": _version(repository, entry)}), progress)


def entry_of(place: str, repository: Repository, options: BuildOptions) -> CatalogEntry:
    """Describe a folder: what is taken out of it, and which recipe builds it.

    Its version is one more than the newest that is or was installed, unless that is there and was built of the same, in
    the same way.

    Args:
        place: A folder, a `.gguf` file, or `hf://org/repo`, with `@revision` where it is not to be the newest.
        repository: Where the model is to be.
        options: Choices.

    Raises:
        InvalidInputError: No folder of a model, an id that cannot be one, or no such quantisation.
        ModelUnsupportedError: A family that is not built here.
        ModelSourceError: (mostly retryable) the hub does not have it or does not answer.
        ModelCorruptError: `config.json` cannot be read.
    """
    if place.startswith(_HUB):
        found = _on_hub(place, repository.downloads)
    else:
        found = _gguf(Path(place)) if place.endswith(".gguf") else _here(Path(place))
    kind = _kind(found, options)
    name = options.id or re.sub(r"[^a-z0-9.-]+", "-", found.name.lower()).strip("-.")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,99}", name):
        raise InvalidInputError(
            f"{name!r} cannot be the id of a model; use up to 100 small letters, digits, '.' and '-'", id=name
        )
    licence = options.license or found.license
    if not re.fullmatch(_LICENSE, licence):
        raise InvalidInputError(f"{licence!r} is no SPDX id; give one with --license", license=licence)
    entry = CatalogEntry(
        id=name,
        version="1",
        family=found.config.model_type,
        summary=f"Built from {found.source}",
        license=licence,
        sources=(RawSource(source=found.source, files=found.files),),
        digests=dict(found.digests),
        build=kind.recipe,
        modalities_in=kind.takes,
        modalities_out=kind.gives,
        quantisation=kind.quantisation,
        limits=dict(kind.limits),
        parameters={**kind.parameters, "built_from": found.identity},
    )
    return entry.model_copy(update={"version": _version(repository, entry)})


def _kind(found: _Place, options: BuildOptions) -> _Kind:
    if found.config.model_type == "whisper":
        return _Kind("runtime.export.whisper_folder:build", ("audio",), ("text",), {"window_s": 30}, {}, "int8")
    if found.config.model_type == "bert":
        return _Kind("runtime.export.bert_folder:build", ("text",), ("text",), {}, {}, "none")
    encoders = None if found.source.endswith(".gguf") else encoders_of(found.config)
    media = () if encoders is None else encoders.modalities
    chosen: dict[str, Any] = {"quantisation": options.quantisation, "context_tokens": options.context_tokens}
    if "image" in media:
        chosen["exact_pixels"] = options.exact_pixels
    # Before anything large is downloaded or copied.
    config = text_model(found.config if encoders is None else encoders.described(found.config))
    family_of(config)
    store_of(options.quantisation)
    # A row cannot be longer than the positions that the model knows.
    limits = {"context_tokens": trained_context(config.within(options.context_tokens))}
    recipe = "gguf" if found.source.endswith(".gguf") else "multimodal_folder" if media else "chat_folder"
    return _Kind(f"runtime.export.{recipe}:build", ("text", *media), ("text",), limits, chosen, options.quantisation)


def _version(repository: Repository, entry: CatalogEntry) -> str:
    installed = [one for one in repository.list() if one.id == entry.id]
    # Workers that have a removed version open would take another one of that number for it.
    removed = last_removed(repository.root, entry.id)
    if not installed:
        return str(removed + 1)
    newest = installed[-1]
    chosen = {**entry.parameters, "quantisation": entry.quantisation}
    known = {**newest.parameters, "quantisation": newest.quantisation}
    same = all(known.get(key) == value for key, value in chosen.items())
    return newest.version if same else str(max(int(newest.version), removed) + 1)


def _here(folder: Path) -> _Place:
    if not (folder / "config.json").is_file():
        raise InvalidInputError(f"{folder} is no folder with a config.json; give one, a .gguf file, or hf://org/repo")
    files = _wanted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    digests = {file.path: sha256_of(folder / file.member) for file in files}
    return _Place(
        source=f"file://{folder.resolve()}",
        name=folder.resolve().name,
        files=files,
        config=ModelConfig.read(folder / "config.json"),
        identity=_identity(digests),
        digests=digests,
        license=_spdx(_front_matter(folder / "README.md")),
    )


def _gguf(path: Path) -> _Place:
    if not path.is_file():
        raise InvalidInputError(f"{path} does not exist")
    file = GgufFile(path)
    digests = {"model.gguf": sha256_of(path)}
    return _Place(
        source=f"file://{path.resolve()}",
        name=path.stem,
        files=(RawFile(member=path.name, path="model.gguf"),),
        config=GgufCheckpoint(file).config,
        identity=_identity(digests),
        digests=digests,
        license=_spdx(file.metadata.get("general.license")),
    )


def _identity(digests: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:16]


def _on_hub(place: str, downloads: Path) -> _Place:
    repo, _, revision = place.removeprefix(_HUB).partition("@")
    Source.parse(f"{_HUB}{repo}@{revision or 'main'}")
    listing = list_hub(repo, revision or "main")
    source = f"{_HUB}{repo}@{listing.commit}"
    if "config.json" not in listing.files:
        raise ModelSourceError(f"{source} has no config.json, so it holds no model to build", retryable=False)
    folder = from_hub(Wanted(source=Source.parse(source), members=("config.json",), downloads=downloads))
    config = ModelConfig.read(folder / "config.json")
    name = repo.rpartition("/")[2]
    files = _wanted(listing.files)
    digests = {file.path: listing.digests[file.path] for file in files if file.path in listing.digests}
    return _Place(source, name, files, config, listing.commit, digests, _spdx(listing.license))


def _wanted(files: Iterable[str]) -> tuple[RawFile, ...]:
    """The files that a build reads: the weights in one file or in several, and what stands beside them."""
    there = set(files)
    if SINGLE in there:
        weights = {SINGLE}
    else:
        weights = {path for path in there if re.fullmatch(r"model-\d+-of-\d+\.safetensors", path)} | ({INDEX} & there)
    return tuple(RawFile(member=path, path=path) for path in sorted(weights | (_BESIDE & there)))


def _front_matter(readme: Path) -> str | None:
    """The licence that a model card names."""
    head = re.match(r"---\n(.*?)\n---", readme.read_text(encoding="utf-8"), re.DOTALL) if readme.is_file() else None
    found = re.search(r"^license:\s*(\S+)\s*$", head[1], re.MULTILINE) if head else None
    return found[1] if found else None


def _spdx(name: object) -> str:
    """An SPDX id of what model cards write in small letters; another name stays as it is."""
    known = {path.stem.lower(): path.stem for path in LICENSE_FOLDER.iterdir()}
    found = name.strip("\"' ") if isinstance(name, str) else ""
    return known.get(found.lower(), found) or "LicenseRef-unknown"
