"""The contract between `fuse` and `generate`."""

from __future__ import annotations

from pydantic import Field

from bus.contracts import Contract, ModelManifest, TensorRef

LANGUAGE_MODEL = "smollm2-135m-instruct"
"""The model that fuses and generates where a request names no other."""


def is_language_model(manifest: ModelManifest) -> bool:
    """Whether a model can fuse and generate: a decoder that knows where its answers end."""
    return "end_tokens" in manifest.parameters and {"layers", "hidden", "vocabulary"} <= manifest.dims.keys()


class FusedPrompt(Contract):
    """A prompt as the language model takes it."""

    ids: TensorRef = Field(description="int32 (token,); -1 where an embedding stands.")
    embeddings: TensorRef | None = Field(
        default=None, description="float32 (slot, dim), one for each -1 in their order; None: there is no -1."
    )
    positions: TensorRef = Field(description="int32 (3, token): time, height, width.")
    counts: dict[str, int] = Field(description="Tokens by modality.")
    model: str = Field(description="`id@version` of the language model that the ids and embeddings belong to.")
