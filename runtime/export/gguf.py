"""Build a served decoder out of a GGUF file: graph, embedding table, tokenizer and chat template."""

from __future__ import annotations

from runtime.export.decoder import write_decoder
from runtime.graphs.decoder.weights import store_of
from runtime.graphs.families.checkpoint import DecoderWeights
from runtime.graphs.families.gguf import GgufCheckpoint
from runtime.graphs.families.known import family_of
from runtime.repository.recipe import BuildJob, Built
from runtime.weights.gguf import GgufFile
from runtime.weights.gguf_tokenizer import chat_template, tokenizer_json


def build(job: BuildJob) -> Built:
    """Write `model.onnx`, `model.data`, `embeddings.npy` float16 (token, hidden), `tokenizer.json`, `chat.jinja`.

    Raises:
        ModelCorruptError: The GGUF file is damaged or incomplete.
        InvalidInputError: The parameter `quantisation` names none that is known.
        ModelUnsupportedError: Its model is of another family than those that are built here.
    """
    store = store_of(job.parameters["quantisation"])
    file = GgufFile(job.raw / "model.gguf")
    checkpoint = GgufCheckpoint(file)
    family = family_of(checkpoint.config)
    shape = family.shape(checkpoint.config)
    # A table in half precision is exact enough: its own source is 8-bit blocks with half-precision scales.
    write_decoder(job.out, shape, DecoderWeights(checkpoint, family, shape), store)
    (job.out / "tokenizer.json").write_text(tokenizer_json(file.metadata), encoding="utf-8")
    (job.out / "chat.jinja").write_text(chat_template(file.metadata), encoding="utf-8")
    metadata = file.metadata
    return Built(
        dims=shape.dims,
        parameters={
            "end_tokens": [metadata["tokenizer.ggml.eos_token_id"]],
            "pad_token": metadata.get("tokenizer.ggml.padding_token_id", 0),
        },
    )
