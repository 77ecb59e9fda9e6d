"""`explain.mask`: a piece of media without each of its parts in turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import Field

from bus.contracts import Contract, MediaLimits, MediaRef, Modality
from bus.errors import InvalidInputError
from bus.store.media import load_media, save_media
from functions.context import Context
from functions.decorator import function
from functions.stages.explain.influence import MaskedMedia
from functions.stages.parts import MediaItem

if TYPE_CHECKING:
    from runtime.media.masking import MaskedFile, Place


class MaskInputs(Contract):
    """One piece of media, in the list of its modality."""

    images: tuple[MediaItem, ...] = ()
    audio: tuple[MediaItem, ...] = ()
    videos: tuple[MediaItem, ...] = ()
    parts: int = Field(default=4, ge=1, le=16, description="Cells a side of a picture; stretches of sound or film.")
    limits: MediaLimits = MediaLimits()


class MaskOutputs(Contract):
    """The piece as often as it has parts."""

    modality: Modality
    plain: MediaRef = Field(description="All of it, written like the others.")
    masked: tuple[MaskedMedia, ...] = Field(description="Without each part.")
    whole: MediaRef = Field(description="Without anything in it.")


@function("explain.mask", group="media", cacheable=True, timeout_s=180.0)
async def mask(context: Context[Any], inputs: MaskInputs) -> MaskOutputs:
    """Write the media anew, without each of its parts in turn.

    Raises:
        InvalidInputError: No media, or more than one.
        MediaTooLargeError: Over a limit.
        MediaUnsupportedError: A format that is not decoded here.
        MediaUnreadableError: Empty, truncated or corrupt.
    """
    given = {Modality.IMAGE: inputs.images, Modality.AUDIO: inputs.audio, Modality.VIDEO: inputs.videos}
    found = [(modality, item) for modality, items in given.items() for item in items]
    if len(found) != 1:
        raise InvalidInputError(f"one piece of media is explained at a time, not {len(found)}")
    modality, item = found[0]
    data = await load_media(context.store, item.ref, inputs.limits.max_bytes)
    kept: list[tuple[MediaRef, Place | None]] = []
    # One by one: all of them together are as many times as large as the media as there are parts.
    files = await context.run(_files, data, modality, inputs)
    while (file := await context.run(next, files, None)) is not None:
        context.check()
        kept.append((await save_media(context.store, file.data, file.media_type), file.place))
    context.note(parts=len(kept) - 2, nbytes=sum(ref.nbytes for ref, _ in kept))
    return MaskOutputs(
        modality=modality,
        plain=kept[0][0],
        masked=tuple(
            MaskedMedia(ref=ref, box=place.box, span_s=place.span_s) for ref, place in kept[1:-1] if place is not None
        ),
        whole=kept[-1][0],
    )


def _files(data: bytes, modality: Modality, inputs: MaskInputs) -> Iterator[MaskedFile]:
    from runtime.media.masking import masked_files

    return masked_files(data, modality, inputs.limits, inputs.parts)
