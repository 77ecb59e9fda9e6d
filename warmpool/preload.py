"""What a template imports before it forks: everything that a worker would import later."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping

from functions.registry import load_functions
from runtime.engines.providers import installed

MODULES = (
    "warmpool.serving",
    "warmpool.worker",
    "uvloop",
    "onnxruntime",
    "onnx",
    "PIL.Image",
    "av",
    "tokenizers",
    "llguidance",
    "jinja2",
    "gruut",
)
"""Besides the stages and what they import themselves."""


def preload(modules: Iterable[str] = (), device: str = "auto") -> Mapping[str, str]:
    """Import it all.

    Args:
        modules: Packages with functions of the deployer's own.
        device: What models will run on.

    Returns:
        What the pool is told: under `unsafe`, why workers are not to be forked; empty when they are.
    """
    for name in MODULES:
        importlib.import_module(name)
    load_functions(modules)
    chosen = installed()[0] if device == "auto" else device
    # A process that has forked cannot use what its parent has begun with a GPU.
    return {"unsafe": "" if chosen == "cpu" else f"models run on {chosen}, whose context cannot be forked"}
