"""Build a served multimodal model out of a Hugging Face folder: its decoder, and a graph for each encoder."""

from __future__ import annotations

import json
from collections.abc import Mapping

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.export.chat_folder import build_chat
from runtime.generation.tokenizer import ChatTokenizer
from runtime.graphs.encoders.family import EncoderFamily, EncoderJob, Encoders
from runtime.graphs.encoders.known import encoders_of
from runtime.graphs.encoders.preprocessing import Preprocessing
from runtime.graphs.encoders.tensors import EncoderTensors
from runtime.graphs.families.config import ModelConfig
from runtime.multimodal.family import MultimodalFamily
from runtime.multimodal.known import EXACT_PIXELS, FAMILIES, PARAMETERS
from runtime.repository.recipe import BuildJob, Built
from runtime.weights.folder import SafetensorsFolder
from runtime.weights.tensors import CheckedTensors


def build(job: BuildJob) -> Built:
    """Write what `chat_folder` does, and a graph for each encoder with its projector, such as `vision.onnx`.

    Parameters: those of `chat_folder`, and `exact_pixels`, whether pictures are made from whole photos. The encoders
    are float32.

    Raises:
        ModelUnsupportedError: A family, a feature or a tokenizer that is not built here, or no chat template.
        ModelCorruptError: Files that are missing, damaged, or do not fit together.
        InvalidInputError: No such quantisation.
    """
    config = ModelConfig.read(job.raw / "config.json")
    family = encoders_of(config)
    if family is None:
        raise ModelUnsupportedError(f"encoders of model_type {config.model_type!r} are not built here")
    chat = build_chat(job, family.beside, in_parts=True, change=family.template)
    encoders = _encoders(job, config, family, chat.dims)
    _check_places(job, FAMILIES[config.model_type](encoders.parameters))
    for name, graph in encoders.graphs.items():
        graph.save(job.out / name)
    multimodal = {**encoders.parameters, EXACT_PIXELS: bool(job.parameters.get("exact_pixels"))}
    return Built(dims=chat.dims, parameters={**chat.parameters, PARAMETERS: multimodal})


def _encoders(job: BuildJob, config: ModelConfig, family: EncoderFamily, dims: Mapping[str, int]) -> Encoders:
    read = CheckedTensors(EncoderTensors(SafetensorsFolder(job.raw), family.homes))
    encoders = family.build(
        EncoderJob(
            config=family.described(config),
            preprocessing=Preprocessing.read(job.raw),
            read=read,
            hidden=dims["hidden"],
            context=dims["context"],
            tokens=_tokens(job),
        )
    )
    read.check_nothing_left(*encoders.unused)
    return encoders


def _check_places(job: BuildJob, family: MultimodalFamily) -> None:
    """Make sure that the chat template has one place for a piece of media."""
    tokenizer = ChatTokenizer(job.out)
    for modality, mark in family.placeholders.items():
        try:
            prompt = tokenizer.chat([{"role": "user", "content": [{"type": modality.value}]}])
        except Exception as error:  # a template is a program: it may fail in any way
            raise ModelCorruptError(f"the chat template fails at a message with {modality}: {error!r}") from error
        if prompt.count(mark) != 1:
            raise ModelCorruptError(f"the chat template has {prompt.count(mark)} places {mark!r} for {modality}, not 1")


def _tokens(job: BuildJob) -> dict[str, int]:
    """Ids of the tokens that were added to the vocabulary; `build_chat` has read the file before."""
    words = json.loads((job.out / "tokenizer.json").read_text(encoding="utf-8"))
    return {str(token["content"]): int(token["id"]) for token in words.get("added_tokens") or ()}
