"""From CTranslate2's Whisper to served ONNX graphs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from bus.errors import ModelCorruptError
from runtime.graphs.whisper import Weights, WhisperDims, alignment_graph, decoder_graph, encoder_graph
from runtime.repository.recipe import BuildJob, Built
from runtime.weights.ctranslate2 import CTranslate2File


def build(job: BuildJob) -> Built:
    """Write `encoder.onnx`, `decoder.onnx`, `alignment.onnx` where heads are known for it, and `tokenizer.json`.

    Raises:
        ModelCorruptError: Damaged weights, or another kind of model.
    """
    file = CTranslate2File(job.raw / "model.bin")
    if file.spec != "WhisperSpec":
        raise ModelCorruptError(f"model.bin holds a {file.spec}, not a Whisper")
    config = json.loads((job.raw / "config.json").read_text(encoding="utf-8"))
    heads = [(int(layer), int(head)) for layer, head in config.get("alignment_heads") or ()]
    dims = write_whisper(job.out, {name: file.float32(name) for name in file}, heads)
    shutil.copyfile(job.raw / "tokenizer.json", job.out / "tokenizer.json")
    return Built(
        dims=dims,
        parameters={
            "suppress": [token for token in config["suppress_ids"] if token >= 0],
            "suppress_first": config["suppress_ids_begin"],
            "languages": config["lang_ids"],
        },
    )


def write_whisper(folder: Path, weights: Weights, heads: Sequence[tuple[int, int]]) -> dict[str, int]:
    """Write the graphs of a model; returns its sizes.

    Args:
        folder: Where to.
        weights: By CTranslate2's names.
        heads: See `alignment_graph`; none: no times of words.
    """
    dims = WhisperDims.of(weights)
    encoder_graph(weights, dims, quantised=True).save(folder / "encoder.onnx")
    decoder_graph(weights, dims).save(folder / "decoder.onnx")
    if heads:
        alignment_graph(weights, dims, heads).save(folder / "alignment.onnx")
    return {
        "layers": dims.decoder_layers,
        "heads": dims.heads,
        "hidden": dims.hidden,
        "context": dims.context,
        "frames": dims.frames,
        "mels": dims.mels,
        "vocabulary": dims.vocabulary,
    }
