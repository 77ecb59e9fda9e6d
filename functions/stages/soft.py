"""From blocks to the embeddings that stand in a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bus.errors import InvalidInputError, ModelUnsupportedError
from functions.context import Context
from functions.stages.blame import about
from functions.stages.parts import Block
from functions.stages.pieces import Piece, SoftTokens, Words

if TYPE_CHECKING:
    from runtime.multimodal.family import MultimodalFamily


async def soft_tokens(context: Context[Any], block: Block) -> SoftTokens:
    """The embeddings of a block.

    Args:
        context: Of the running stage; its model has `hidden` and `ref`.
        block: With embeddings.

    Raises:
        ModelUnsupportedError: A composition that was made for another model.
        InvalidInputError: It has none, or of another width than the model's.
        ObjectMissingError: They are nowhere any more.
    """
    held, model = block.block, context.model
    if held.composition is not None and held.embeddings is not None and held.embeddings.shape[1] != model.hidden:
        raise ModelUnsupportedError(
            f"media {block.part}: {model.ref} takes no {held.modality}: it has no encoder of its own, and "
            f"the composition {held.composition} was made for another one; send text, or choose another model",
            part=block.part,
            model=model.ref,
        )
    if held.embeddings is None or held.embeddings.shape[1] != model.hidden:
        have = "no embeddings" if held.embeddings is None else f"embeddings of {held.embeddings.shape[1]} dimensions"
        raise InvalidInputError(
            f"the block of media {block.part} from {held.encoder} has {have}; {model.ref} takes {model.hidden}",
            part=block.part,
            model=model.ref,
        )
    with about(block.part):
        rows = (await context.tensors.get(held.embeddings)).astype(np.float32, copy=False)
        places = np.tile(np.arange(len(rows), dtype=np.int32), (3, 1))
        if held.positions is not None:
            places = await context.tensors.get(held.positions)
    return SoftTokens(held.modality, rows, places, block.part, held.frame)


async def native_media(
    context: Context[Any], family: MultimodalFamily, blocks: Sequence[Block]
) -> dict[int, list[Piece]]:
    """What stands for each piece of media in the prompt of a model that takes media itself.

    Args:
        context: Of the running stage; its model has `hidden` and `ref`.
        family: Of the model.
        blocks: Of the model's own encoders; a film's picture comes before its sound.

    Raises:
        InvalidInputError: A block that another model, or another version of this one, has encoded.
    """
    media: dict[int, list[Piece]] = {}
    for block in blocks:
        _check_encoder(context, block)
        pieces = media.setdefault(block.part, [])
        if block.block.text is not None:
            pieces += [Words(block.block.modality, block.block.text, block.part)] if block.block.text.strip() else []
            continue
        soft = await soft_tokens(context, block)
        before = pieces[-1] if pieces else None
        together = _joined(family, before, soft) if isinstance(before, SoftTokens) else None
        media[block.part] = [*pieces, soft] if together is None else [*pieces[:-1], together]
    return media


def _check_encoder(context: Context[Any], block: Block) -> None:
    if block.block.encoder != context.model.ref:
        raise InvalidInputError(
            f"media {block.part} was encoded by {block.block.encoder}, the language model is {context.model.ref}; both "
            "have to be the same version of one model",
            part=block.part,
            model=context.model.ref,
        )


def _joined(family: MultimodalFamily, picture: SoftTokens, sound: SoftTokens) -> SoftTokens | None:
    """A film and its sound on one axis of time, where the model was trained so."""
    from runtime.multimodal.family import Laid

    laid = family.join(
        Laid(picture.embeddings, picture.positions, picture.frame), Laid(sound.embeddings, sound.positions, sound.frame)
    )
    if laid is None:
        return None
    return SoftTokens(picture.modality, laid.embeddings, laid.positions, picture.part, laid.frame)
