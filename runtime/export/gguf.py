"""Build a served decoder out of a GGUF file: graph, embedding table, tokenizer and chat template."""

from __future__ import annotations

from bus.errors import ModelCorruptError
from runtime.export.chat_template import with_tokens
from runtime.export.decoder import write_decoder
from runtime.export.words import check_words
from runtime.graphs.decoder.weights import store_of
from runtime.graphs.families.checkpoint import DecoderWeights
from runtime.graphs.families.gguf import GgufCheckpoint
from runtime.graphs.families.known import family_of
from runtime.repository.recipe import BuildJob, Built
from runtime.weights.gguf import GgufFile
from runtime.weights.gguf_tokenizer import chat_template, special_tokens, tokenizer_json


def build(job: BuildJob) -> Built:
    """Write `model.onnx`, `model.data`, `embeddings.npy` float16 (token, hidden), `tokenizer.json`, `chat.jinja`.

    Parameters: `quantisation`, see `store_of`; `context_tokens`, the most tokens of a row, if not as many as the model
    was trained on.

    Raises:
        ModelCorruptError: The GGUF file is damaged or incomplete.
        InvalidInputError: The parameter `quantisation` names none that is known.
        ModelUnsupportedError: Its model is of another family than those that are built here.
    """
    store = store_of(job.parameters["quantisation"])
    file = GgufFile(job.raw / "model.gguf")
    checkpoint = GgufCheckpoint(file, job.parameters.get("context_tokens"))
    family = family_of(checkpoint.config)
    shape = family.shape(checkpoint.config)
    special, words = special_tokens(file.metadata), tokenizer_json(file.metadata)
    ends = sorted({special[name] for name in ("eos", "eot") if name in special})
    if not ends:
        raise ModelCorruptError("the GGUF file does not say which token ends an answer; answers would not end")
    tokens = file.metadata["tokenizer.ggml.tokens"]
    named = {f"{name}_token": tokens[number] for name, number in special.items()}
    (job.out / "tokenizer.json").write_text(words, encoding="utf-8")
    (job.out / "chat.jinja").write_text(with_tokens(chat_template(file.metadata), named), encoding="utf-8")
    check_words(job.out, shape.vocabulary)
    write_decoder(job.out, shape, DecoderWeights(checkpoint, family, shape), store)
    return Built(dims=shape.dims, parameters={"end_tokens": ends, "pad_token": special.get("padding", 0)})
