"""What a decoder that was written into a folder needs to be run from there."""

from __future__ import annotations

from pathlib import Path

from bus.contracts import ModelManifest
from runtime.export.decoder import write_decoder
from runtime.generation.decoder import Decoder
from runtime.graphs.decoder.shape import DecoderShape
from runtime.graphs.decoder.weights import ReadTensor, as_float


def serve(folder: Path, shape: DecoderShape, weights: ReadTensor, slots: int) -> Decoder:
    """Write a decoder in float32, and open it."""
    write_decoder(folder, shape, weights, as_float)
    manifest = ModelManifest(
        id="small",
        version="1",
        family="test",
        modalities_in=("text",),
        modalities_out=("text",),
        files=(),
        source=(),
        license="MIT",
        dims=shape.dims,
        parameters={"end_tokens": []},
    )
    return Decoder(folder, manifest, slots=slots, threads=1)
