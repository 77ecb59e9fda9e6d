"""`text.embed`: texts as vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from bus.contracts import Contract, TensorRef
from functions.context import Context
from functions.decorator import function

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runtime.batching.batcher import Batcher
    from runtime.repository import Repository
    from runtime.text.embedder import TextEmbedder

_SLOTS = 32
"""So many requests wait at once for a run that they share."""


class TextEmbedInputs(Contract):
    """Texts in any script; what is longer than the model reads is cut."""

    texts: tuple[str, ...] = Field(min_length=1, max_length=2048)
    dimensions: int | None = Field(default=None, ge=1, description="Length of the vectors; None: the model's own.")


class TextEmbedOutputs(Contract):
    """A vector a text."""

    vectors: TensorRef = Field(description="float32 (text, dim), each of length 1.")
    tokens: int = Field(ge=0, description="Tokens read in all.")
    model: str = Field(description="`id@version`: vectors of different models cannot be compared.")


@dataclass(frozen=True, slots=True)
class Embedding:
    """What `text.embed` needs: the sentence encoder, and what lets requests share its runs."""

    embedder: TextEmbedder
    batcher: Batcher[NDArray[np.int32], NDArray[np.float32]]

    def close(self) -> None:
        """End its thread."""
        self.batcher.close()


def setup(repository: Repository) -> Embedding:
    """Load the sentence encoder."""
    from runtime.batching.batcher import Batcher
    from runtime.text.embedder import TextEmbedder

    embedder = TextEmbedder.load(repository, "all-minilm-l6-v2")
    return Embedding(embedder, Batcher(embedder.run, embedder.limit))


async def warm_up(model: Embedding) -> None:
    """Embed a short text."""
    (tokens,) = model.embedder.tokenize(["ready"])
    await model.batcher.submit([(model.embedder.bucket(tokens), tokens)])


@function(
    "text.embed",
    setup=setup,
    warm_up=warm_up,
    models=("all-minilm-l6-v2",),
    group="encode",
    slots=_SLOTS,
    cacheable=True,
    timeout_s=300.0,
)
async def embed(context: Context[Embedding], inputs: TextEmbedInputs) -> TextEmbedOutputs:
    """Embed every text; requests that come at about the same time share runs.

    Raises:
        InvalidInputError: Dimensions that the model was not trained for.
        CancelledRequestError: Nobody waits any more.
        DeadlineExceededError: The deadline passed.
    """
    embedder = context.model.embedder
    embedder.check_dimensions(inputs.dimensions)
    ids = await context.run(embedder.tokenize, inputs.texts)
    vectors = await context.model.batcher.submit(
        [(embedder.bucket(tokens), tokens) for tokens in ids],
        tenant=context.event.tenant,
        cancelled=lambda: context.cancelled,
    )
    count = sum(map(len, ids))
    context.note(texts=len(ids), tokens=count)
    short = embedder.shorten(np.stack(vectors), inputs.dimensions)
    return TextEmbedOutputs(vectors=await context.tensors.put(short), tokens=count, model=embedder.ref)
