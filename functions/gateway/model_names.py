"""Which model names each door takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from bus.errors import ModelNotFoundError, OmnibusError
from functions.flow.catalog import Pipelines
from functions.registry import Registry
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


class ModelNames:
    """The names that this deployment's functions answer to: the model's id and aliases, and the pipeline's name."""

    def __init__(self, pipelines: Pipelines, functions: Registry) -> None:
        """The names of the models that the functions behind the doors declare."""
        deployed = {plan.pipeline for plan in pipelines}
        self._names: dict[str, dict[str, str]] = {}
        for key, door in DOORS.items():
            if door.pipeline in deployed:
                self._names[key] = _names(door, functions)

    def check(self, door: str, name: str) -> str:
        """The id of the model that is meant.

        Raises:
            ModelNotFoundError: No such model behind this door.
        """
        names = self._names.get(door, {})
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise ModelNotFoundError(f"no model {name!r} here; this endpoint takes: {known}", model=name, param="model")
        return names[name]

    def takes(self, door: str, name: str) -> bool:
        """Whether a door is deployed and knows the name."""
        return name in self._names.get(door, {})

    def __iter__(self) -> Iterator[str]:
        """Every id, once."""
        return iter(sorted({model for names in self._names.values() for model in names.values()}))

    def find(self, name: str) -> str:
        """The id of the model of that name behind any door.

        Raises:
            ModelNotFoundError: No such model.
        """
        for names in self._names.values():
            if name in names:
                return names[name]
        raise ModelNotFoundError(f"no model {name!r} here; known: {', '.join(self)}", model=name, param="model")


def models_of(connection: HTTPConnection) -> ModelNames:
    """The names of the app that the request came to."""
    names: ModelNames = connection.app.state.models
    return names


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
