"""`text.embed`: texts as vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from bus.contracts import Contract, TensorRef
from functions.context import Context
from functions.decorator import function

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from runtime.repository import Repository
    from runtime.text.embedder import TextEmbedder


class TextEmbedInputs(Contract):
    """Texts in any script; what is longer than the model reads is cut."""

    texts: tuple[str, ...] = Field(min_length=1, max_length=2048)


class TextEmbedOutputs(Contract):
    """A vector a text."""

    vectors: TensorRef = Field(description="float32 (text, dim), each of length 1.")
    tokens: int = Field(ge=0, description="Tokens read in all.")
    model: str = Field(description="`id@version`: vectors of different models cannot be compared.")


def setup(repository: Repository) -> TextEmbedder:
    """Load the sentence encoder."""
    from runtime.text.embedder import TextEmbedder

    return TextEmbedder.load(repository, "all-minilm-l6-v2")


@function("text.embed", setup=setup, models=("all-minilm-l6-v2",), group="encode", cacheable=True, timeout_s=300.0)
async def embed(context: Context[TextEmbedder], inputs: TextEmbedInputs) -> TextEmbedOutputs:
    """Embed every text."""
    vectors, tokens = await context.run(_embed, context, inputs.texts)
    context.note(texts=len(inputs.texts), tokens=int(tokens.sum()))
    return TextEmbedOutputs(
        vectors=await context.tensors.put(vectors), tokens=int(tokens.sum()), model=context.model.ref
    )


def _embed(context: Context[TextEmbedder], texts: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    found = context.model.embed(texts, cancelled=lambda: context.cancelled)
    context.check()  # what a cancelled run has left out is no vector
    return found
