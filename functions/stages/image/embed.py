"""`image.embed`: pictures as vectors that can be compared with those of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from bus.contracts import Contract, TensorRef
from functions.context import Context
from functions.decorator import function
from functions.stages.image.looking import look
from functions.stages.parts import ImageTensor

if TYPE_CHECKING:
    from runtime.repository import Repository
    from runtime.vision.label_space import LabelSpace
    from runtime.vision.looking import Looking


class ImageEmbedInputs(Contract):
    """Preprocessed pictures."""

    images: tuple[ImageTensor, ...] = Field(min_length=1, max_length=2048)


class ImageEmbedOutputs(Contract):
    """A vector a picture."""

    vectors: TensorRef = Field(description="float32 (image, dim), each of length 1.")
    parts: tuple[int, ...] = Field(description="Which of the request's media each vector is of.")
    model: str = Field(description="`id@version` of the composition.")
    texts: str = Field(description="`id@version` of the text encoder whose vectors they can be compared with.")
    composition: str = Field(description="How the vectors were put together: no model was trained for them.")


@dataclass(frozen=True, slots=True)
class Space:
    """What `image.embed` needs: the vision encoder, and the space of its labels."""

    looking: Looking
    labels: LabelSpace

    def close(self) -> None:
        """End its thread."""
        self.looking.close()


def setup(repository: Repository) -> Space:
    """Load both."""
    from runtime.vision.label_space import LabelSpace
    from runtime.vision.looking import Looking

    return Space(Looking.load(repository, "efficientnet-lite0"), LabelSpace.load(repository))


async def warm_up(model: Space) -> None:
    """Look at a black picture."""
    from runtime.vision.square import SIDE

    await model.looking.look([np.zeros((3, SIDE, SIDE), np.float32)])


@function(
    "image.embed",
    setup=setup,
    warm_up=warm_up,
    models=("label-space", "efficientnet-lite0"),
    group="encode",
    slots=8,
    cacheable=True,
)
async def embed(context: Context[Space], inputs: ImageEmbedInputs) -> ImageEmbedOutputs:
    """Embed every picture; the label space is a composition and the vectors say so.

    Raises:
        InvalidInputError: Pixels of another dtype or shape than the encoder takes, or that are no numbers.
    """
    from runtime.vision.label_space import COMPOSITION

    model = context.model
    seen = await look(context, model.looking, inputs.images)
    vectors = model.labels.vectors(np.stack([one.probabilities for one in seen]))
    context.note(images=len(vectors))
    return ImageEmbedOutputs(
        vectors=await context.tensors.put(vectors),
        parts=tuple(image.part for image in inputs.images),
        model=model.labels.ref,
        texts=model.labels.texts,
        composition=COMPOSITION,
    )
