"""`image.encode`: pictures as tokens in the language model's space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bus.contracts import Contract, Modality, TokenBlock
from functions.context import Context
from functions.decorator import function
from functions.stages.image.looking import look
from functions.stages.parts import Block, ImageLabels, ImageTensor

if TYPE_CHECKING:
    from runtime.repository import Repository
    from runtime.vision.label_bridge import LabelBridge
    from runtime.vision.looking import Looking

_NAMES = 3
_GRID = 7
"""Rows and columns of the encoder's last feature map."""


class ImageEncodeInputs(Contract):
    """Preprocessed pictures."""

    images: tuple[ImageTensor, ...] = ()


class ImageEncodeOutputs(Contract):
    """A block and the likeliest names for each picture, in their order."""

    blocks: tuple[Block, ...] = ()
    labels: tuple[ImageLabels, ...] = ()


@dataclass(frozen=True, slots=True)
class Encoder:
    """What `image.encode` needs: the vision encoder and the bridge to the language model."""

    looking: Looking
    bridge: LabelBridge

    def close(self) -> None:
        """End its thread."""
        self.looking.close()


def setup(repository: Repository) -> Encoder:
    """Load both."""
    from runtime.vision.label_bridge import LabelBridge
    from runtime.vision.looking import Looking

    return Encoder(Looking.load(repository, "efficientnet-lite0"), LabelBridge.load(repository))


async def warm_up(model: Encoder) -> None:
    """Look at a black picture."""
    from runtime.vision.square import SIDE

    await model.looking.look([np.zeros((3, SIDE, SIDE), np.float32)])


@function(
    "image.encode",
    setup=setup,
    warm_up=warm_up,
    models=("efficientnet-lite0", "label-bridge"),
    group="encode",
    slots=8,
    cacheable=True,
)
async def encode(context: Context[Encoder], inputs: ImageEncodeInputs) -> ImageEncodeOutputs:
    """Encode every picture; the label bridge is a composition and the blocks say so.

    Raises:
        InvalidInputError: Pixels of another dtype or shape than the encoder takes, or that are no numbers.
    """
    seen = await look(context, context.model.looking, inputs.images)
    blocks = [await _block(context, image, one.probabilities) for image, one in zip(inputs.images, seen, strict=True)]
    labels = [_labels(context, image, one.probabilities) for image, one in zip(inputs.images, seen, strict=True)]
    context.note(images=len(blocks), tokens=sum(_tokens(one) for one in blocks))
    return ImageEncodeOutputs(blocks=tuple(blocks), labels=tuple(labels))


async def _block(context: Context[Encoder], image: ImageTensor, probabilities: NDArray[np.float32]) -> Block:
    from runtime.vision.label_bridge import COMPOSITION

    model = context.model
    tokens = model.bridge.tokens(probabilities)
    # A name's tokens follow each other like words: the one-dimensional case, in which all three axes count on.
    positions = np.tile(np.arange(len(tokens), dtype=np.int32), (3, 1))
    block = TokenBlock(
        modality=Modality.IMAGE if image.time_s is None else Modality.VIDEO,
        embeddings=await context.tensors.put(tokens),
        positions=await context.tensors.put(positions),
        encoder=model.looking.classifier.ref,
        composition=COMPOSITION,
        compression=_GRID * _GRID / len(tokens),
        start_s=image.time_s,
        source=image.source,
    )
    return Block(part=image.part, block=block, time_s=image.time_s)


def _labels(context: Context[Encoder], image: ImageTensor, probabilities: NDArray[np.float32]) -> ImageLabels:
    from runtime.vision.label_bridge import top

    likeliest = top(probabilities, _NAMES)
    return ImageLabels(
        part=image.part,
        names=tuple(context.model.looking.classifier.labels[place] for place in likeliest),
        probabilities=tuple(round(float(probabilities[place]), 6) for place in likeliest),
    )


def _tokens(block: Block) -> int:
    return block.block.embeddings.shape[0] if block.block.embeddings else 0
