"""Which model names each door takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from bus.contracts import ModelManifest
from bus.errors import ModelNotFoundError, OmnibusError
from functions.flow.catalog import Pipelines
from functions.registry import Registry
from functions.spec import ModelChoice
from runtime.repository.catalog import builtin_catalog


@dataclass(frozen=True)
class Door:
    """An endpoint that names a model.

    Attributes:
        pipeline: What it runs.
        function: The stage whose model is meant.
        aliases: Names that clients of OpenAI's service send when they cannot send another.
    """

    pipeline: str
    function: str
    aliases: tuple[str, ...] = ()


DOORS = {
    "chat": Door("chat", "generate"),
    "transcribe": Door("transcribe", "audio.transcribe", ("asr", "whisper-1")),
    "speak": Door("speak", "speak", ("tts", "tts-1", "tts-1-hd", "gpt-4o-mini-tts")),
    "embed": Door("embed", "text.embed"),
    "label-space": Door("label-space", "image.embed"),
}
"""Doors by name."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A model that a request named.

    Attributes:
        id: What the answer calls it.
        name: What the stages are to look for; None: their own default.
        manifest: As a worker announced it; None: only its name is known.
    """

    id: str
    name: str | None = None
    manifest: ModelManifest | None = None


class ModelNames:
    """The names that this deployment's functions answer to: the model's id and aliases, and the pipeline's name.

    Args:
        pipelines: What is deployed.
        functions: Whose models are meant.
        installed: What workers have announced; a door whose function has a choice takes all that it serves.
    """

    def __init__(self, pipelines: Pipelines, functions: Registry, installed: Iterable[ModelManifest] = ()) -> None:
        deployed = {plan.pipeline for plan in pipelines}
        self._installed = installed
        self._names: dict[str, dict[str, str]] = {}
        self._choices: dict[str, ModelChoice] = {}
        for key, door in DOORS.items():
            if door.pipeline not in deployed:
                continue
            self._names[key] = _names(door, functions)
            if (choice := _choice(door, functions)) is not None:
                self._choices[key] = choice

    def check(self, door: str, name: str) -> str:
        """The id of the model that is meant.

        Raises:
            ModelNotFoundError: No such model behind this door.
        """
        return self.choose(door, name).id

    def choose(self, door: str, name: str) -> Chosen:
        """The model that is meant.

        Raises:
            ModelNotFoundError: No such model behind this door.
            ModelUnsupportedError: A model that is installed, and of another kind than the door's.
        """
        names, choice = self._names.get(door, {}), self._choices.get(door)
        default = names.get(name)
        own = self._find(default) if default is not None and choice is not None else None
        manifest = self._find(name) if choice is not None else None
        # The door's own names mean what it runs now, also where the deployer has put another model in its own one's
        # place; unless they were given to another model themselves.
        if default is not None and (manifest is None or manifest == own or manifest.id == default):
            return Chosen(default, None, own)
        if manifest is None or choice is None:
            known = ", ".join(sorted({*names, *(one.id for one in self._served(door))})) or "none"
            raise ModelNotFoundError(f"no model {name!r} here; this endpoint takes: {known}", model=name, param="model")
        choice.check(manifest)
        return Chosen(manifest.id, name if "@" in name else manifest.ref, manifest)

    def takes(self, door: str, name: str) -> bool:
        """Whether a door is deployed and knows the name."""
        return name in self._names.get(door, {})

    def __iter__(self) -> Iterator[str]:
        """Every id, once."""
        own = {model for names in self._names.values() for model in names.values()}
        return iter(sorted(own.union(one.id for door in self._choices for one in self._served(door))))

    def find(self, name: str) -> Chosen:
        """The model of that name behind any door.

        Raises:
            ModelNotFoundError: No such model.
        """
        for names in self._names.values():
            if name in names:
                return Chosen(names[name], None, self._find(names[name]))
        manifest = self._find(name)
        if manifest is not None and any(choice.serves(manifest) for choice in self._choices.values()):
            return Chosen(manifest.id, manifest.ref, manifest)
        raise ModelNotFoundError(f"no model {name!r} here; known: {', '.join(self)}", model=name, param="model")

    def _find(self, name: str) -> ModelManifest | None:
        wanted, at, _ = name.partition("@")
        found = [one for one in self._installed if name in one.aliases or name == one.ref]
        # A version that no name means is not announced; the workers know whether it is there.
        return next(iter(found or [one for one in self._installed if at and one.id == wanted]), None)

    def _served(self, door: str) -> Iterator[ModelManifest]:
        choice = self._choices.get(door)
        return (one for one in self._installed if choice is not None and choice.serves(one))


def models_of(connection: HTTPConnection) -> ModelNames:
    """The names of the app that the request came to."""
    names: ModelNames = connection.app.state.models
    return names


def _choice(door: Door, functions: Registry) -> ModelChoice | None:
    try:
        return functions.get(door.function).choice
    except OmnibusError:
        return None


def _names(door: Door, functions: Registry) -> dict[str, str]:
    try:
        declared = functions.get(door.function).models
    except OmnibusError:
        declared = ()
    model: str = door.pipeline
    also: tuple[str, ...] = ()
    if declared:
        model, also = _catalog_names(declared[0])
    return dict.fromkeys((model, *also, door.pipeline, *door.aliases), model)


def _catalog_names(name: str) -> tuple[str, tuple[str, ...]]:
    try:
        entry = builtin_catalog().get(name)
    except ModelNotFoundError:
        return name, ()  # a deployer's own model
    return entry.id, entry.names
