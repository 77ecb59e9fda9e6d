"""Knowing what the stages take and give loads none of what they run on."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("av", "PIL", "onnx", "onnxruntime", "tokenizers", "gruut", "httpx", "scipy", "torch", "transformers")

PROGRAM = """
import sys
from functions.registry import registry
registry.load("functions.stages")
print(*[spec.name for spec in registry])
print(*[name for name in {heavy!r} if name in sys.modules])
"""


def test_contracts_of_all_stages_are_known_without_a_driver() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(heavy=HEAVY)], capture_output=True, text=True, check=True
    )
    names, loaded = done.stdout.splitlines()
    assert {"media.fetch", "image.preprocess", "audio.transcribe", "video.preprocess", "speak", "image.ocr"} <= set(
        names.split()
    )
    assert loaded == ""
