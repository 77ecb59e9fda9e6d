"""From CTranslate2's Whisper to served ONNX graphs."""

from __future__ import annotations

import json
import shutil

from bus.errors import ModelCorruptError
from runtime.graphs.whisper import WhisperDims, alignment_graph, decoder_graph, encoder_graph
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
    weights = {name: file.float32(name) for name in file}
    dims = WhisperDims.of(weights)
    config = json.loads((job.raw / "config.json").read_text(encoding="utf-8"))
    heads = [(int(layer), int(head)) for layer, head in config.get("alignment_heads") or ()]
    encoder_graph(weights, dims, quantised=True).save(job.out / "encoder.onnx")
    decoder_graph(weights, dims).save(job.out / "decoder.onnx")
    if heads:
        alignment_graph(weights, dims, heads).save(job.out / "alignment.onnx")
    shutil.copyfile(job.raw / "tokenizer.json", job.out / "tokenizer.json")
    return Built(
        dims={
            "layers": dims.decoder_layers,
            "heads": dims.heads,
            "hidden": dims.hidden,
            "context": dims.context,
            "frames": dims.frames,
            "mels": dims.mels,
            "vocabulary": dims.vocabulary,
        },
        parameters={
            "suppress": [token for token in config["suppress_ids"] if token >= 0],
            "suppress_first": config["suppress_ids_begin"],
            "languages": config["lang_ids"],
        },
    )
