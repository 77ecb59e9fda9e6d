"""What a template has before it forks: all that a worker would import, and what it would read and never change."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from bus.errors import OmnibusError, PipelineInvalidError
from functions.flow.catalog import BUILT_IN, Pipelines
from functions.registry import load_functions
from runtime.engines.heap import give_back
from runtime.engines.providers import installed
from runtime.repository import Repository
from runtime.text.vocabulary import read_ahead

MODULES = (
    *("warmpool.serving", "warmpool.worker", "uvloop"),
    *("numpy.random", "numpy.fft", "onnxruntime", "onnx"),
    *("PIL.Image", "PIL.ImageDraw", "PIL.ImageFont", "PIL.ImageOps", "PIL.ImageSequence", "PIL.ImageChops"),
    *("av", "av.subtitles.stream", "wave"),
    *("tokenizers", "llguidance", "jinja2.ext", "jinja2.sandbox", "gruut", "gruut_lang_en"),
    *("babel.dates", "httpx"),
)
"""Of others; measured by what workers were seen to import after they had been forked."""

PACKAGES = (
    *("runtime.batching", "runtime.engines", "runtime.generation", "runtime.media", "runtime.multimodal"),
    *("runtime.residency", "runtime.speech", "runtime.text", "runtime.vision"),
)
"""Of ours, with all that is below them: stages import them when they load a model."""


def preload(
    modules: Iterable[str] = (), device: str = "auto", pipelines: Iterable[Path] = (), models: Path | None = None
) -> Mapping[str, str]:
    """Import and read it all.

    Args:
        modules: Packages with functions of the deployer's own.
        device: What models will run on.
        pipelines: Folders of the deployer's own pipelines.
        models: See `Repository`. Vocabularies of the models that functions serve by default are read: they take a
            tenth of a second each, and hold the interpreter all the while.

    Returns:
        What the pool is told: under `unsafe`, why workers are not to be forked; empty when they are.
    """
    for name in MODULES:
        importlib.import_module(name)
    for package in PACKAGES:
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(found.name)
    importlib.import_module("PIL.Image").preinit()  # the plug-ins of common formats
    functions = load_functions(modules)
    with suppress(PipelineInvalidError):  # which whoever serves it says
        Pipelines.load(functions, (BUILT_IN, *pipelines))
    for spec in functions:
        spec.digest  # noqa: B018 - of its schemas, which take some milliseconds to write down
    _read_vocabularies(Repository(models), {name for spec in functions for name in spec.models})
    give_back()  # what reading took, every fork would have
    chosen = installed()[0] if device == "auto" else device
    # A process that has forked cannot use what its parent has begun with a GPU.
    return {"unsafe": "" if chosen == "cpu" else f"models run on {chosen}, whose context cannot be forked"}


def _read_vocabularies(repository: Repository, names: Iterable[str]) -> None:
    for name in sorted(names):
        with suppress(OmnibusError):  # not installed, or damaged: whoever serves it says so
            manifest = repository.resolve(name)
            if any(file.path == "tokenizer.json" for file in manifest.files):
                read_ahead(repository.file(manifest, "tokenizer.json"))
