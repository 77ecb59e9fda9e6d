"""Open the decoder that a Hugging Face folder holds."""

from __future__ import annotations

from pathlib import Path

from runtime.graphs.decoder.shape import DecoderShape
from runtime.graphs.families.checkpoint import DecoderWeights
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.known import family_of, text_model
from runtime.weights.folder import SafetensorsFolder


def open_decoder(
    folder: Path, context: int | None = None, beside: tuple[str, ...] = ()
) -> tuple[DecoderShape, DecoderWeights]:
    """The shape and the weights of a folder's decoder, checked against each other.

    Args:
        folder: With `config.json` and safetensors.
        context: The most tokens that a row is to have; None: as many as the model was trained on.
        beside: Beginnings of tensors that are there for something else than the decoder.

    Raises:
        ModelUnsupportedError: A family or a feature that is not built here.
        ModelCorruptError: Files that are missing, damaged, or do not fit together.
    """
    config = text_model(ModelConfig.read(folder / "config.json", context))
    family = family_of(config)
    shape = family.shape(config)
    return shape, DecoderWeights(SafetensorsFolder(folder), family, shape, beside)
