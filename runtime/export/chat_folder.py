"""Build a served chat model out of a Hugging Face folder: graph, embedding table, tokenizer and chat template."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.export.chat_template import chat_template
from runtime.export.checkpoint import open_decoder
from runtime.export.decoder import write_decoder
from runtime.export.words import check_words
from runtime.graphs.decoder.weights import store_of
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.known import text_model
from runtime.repository.recipe import BuildJob, Built


def build(job: BuildJob) -> Built:
    """Write `model.onnx`, `model.data`, `embeddings.npy`, `tokenizer.json`, `chat.jinja`.

    Parameters: `quantisation`, see `store_of`; `context_tokens`, the most tokens of a row.

    Raises:
        ModelUnsupportedError: A family, a feature or a tokenizer that is not built here, or no chat template.
        ModelCorruptError: Files that are missing, damaged, or do not fit together.
        InvalidInputError: No such quantisation.
    """
    return build_chat(job)


def build_chat(
    job: BuildJob,
    beside: tuple[str, ...] = (),
    *,
    in_parts: bool = False,
    change: Callable[[str], str] = lambda template: template,
) -> Built:
    """Build the part of a model that chats.

    Args:
        job: See `build`.
        beside: Beginnings of tensors that are there for the model's other parts.
        in_parts: Whether a message is a list of parts.
        change: Changes the chat template.

    Raises:
        OmnibusError: See `build`.
    """
    store = store_of(job.parameters["quantisation"])
    template = change(chat_template(job.raw))
    shape, weights = open_decoder(job.raw, job.parameters["context_tokens"], beside)
    ends = _end_tokens(job.raw, shape.vocabulary)
    tokenizer = job.raw / "tokenizer.json"
    if not tokenizer.is_file():
        raise ModelUnsupportedError("the folder has no tokenizer.json; save it with a fast tokenizer of transformers")
    shutil.copyfile(tokenizer, job.out / "tokenizer.json")
    (job.out / "chat.jinja").write_text(template, encoding="utf-8")
    check_words(job.out, shape.vocabulary, in_parts=in_parts)
    write_decoder(job.out, shape, weights, store)
    config = text_model(ModelConfig.read(job.raw / "config.json"))
    return Built(dims=shape.dims, parameters={"end_tokens": ends, "pad_token": config.get("pad_token_id", 0)})


def _end_tokens(folder: Path, vocabulary: int) -> list[int]:
    """The tokens that end an answer: the ones to generate until, else the one of the model."""
    path = folder / "generation_config.json"
    config = text_model(ModelConfig.read(folder / "config.json"))
    given = (ModelConfig.read(path).get("eos_token_id") if path.is_file() else None) or config.get("eos_token_id")
    ends = given if isinstance(given, list) else [given]
    if not ends or not all(type(token) is int and 0 <= token < vocabulary for token in ends):
        raise ModelCorruptError(f"the folder gives {given!r} as the tokens that end an answer; answers would not end")
    return ends
