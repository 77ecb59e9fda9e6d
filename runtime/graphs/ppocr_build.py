"""PP-OCR as it is served: its three models, and the characters out of the recogniser's notes."""

from __future__ import annotations

import json
import shutil

import onnx

from bus.errors import ModelCorruptError
from runtime.repository.recipe import BuildJob, Built

FILES = ("detection.onnx", "recognition.onnx", "angle.onnx")


def build(job: BuildJob) -> Built:
    """Copy the models and write `characters.json`, a list by class index without the blank at 0.

    Raises:
        ModelCorruptError: The recogniser names no characters.
    """
    for name in FILES:
        shutil.copyfile(job.raw / name, job.out / name)
    model = onnx.load(str(job.raw / "recognition.onnx"), load_external_data=False)
    notes = {note.key: note.value for note in model.metadata_props}
    if "character" not in notes:
        raise ModelCorruptError("recognition.onnx does not say which characters it knows")
    # The list is a file of lines; the space, which is no line, comes last.
    characters = [*notes["character"].splitlines(), " "]
    (job.out / "characters.json").write_text(json.dumps(characters, ensure_ascii=False), encoding="utf-8")
    return Built(dims={"characters": len(characters)})
