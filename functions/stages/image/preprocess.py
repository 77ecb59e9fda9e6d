"""`image.preprocess`: any picture to the square that the image encoder looks at."""

from __future__ import annotations

from pydantic import Field

from bus.contracts import Contract, MediaLimits
from bus.ports import Array
from bus.store.media import load_media
from functions.context import Context
from functions.decorator import function
from functions.stages.blame import about
from functions.stages.parts import ImageTensor, MediaItem


class ImagePreprocessInputs(Contract):
    """Pictures in the object store."""

    images: tuple[MediaItem, ...] = ()
    frames: int = Field(default=1, ge=1, description="The most frames of an animation; 1: its first.")
    limits: MediaLimits = MediaLimits()


class ImagePreprocessOutputs(Contract):
    """One tensor a picture, several for an animation."""

    images: tuple[ImageTensor, ...] = ()


@function("image.preprocess", group="media", cacheable=True)
async def preprocess(context: Context[None], inputs: ImagePreprocessInputs) -> ImagePreprocessOutputs:
    """Decode, turn upright, crop and normalise.

    Raises:
        MediaTooLargeError: More pixels than allowed; told by the header, nothing is decoded.
        MediaUnsupportedError: Not an image that is decoded here.
        MediaUnreadableError: Empty, truncated or corrupt.
    """
    images: list[ImageTensor] = []
    for item in inputs.images:
        context.check()
        with about(item.part):
            data = await load_media(context.store, item.ref, inputs.limits.max_bytes)
            decoded = await context.run(_decode, data, inputs.limits, inputs.frames)
        for pixels, width, height, time_s in decoded:
            images.append(
                ImageTensor(
                    part=item.part,
                    pixels=await context.tensors.put(pixels),
                    width=width,
                    height=height,
                    source=item.ref.digest,
                    time_s=time_s,
                )
            )
    context.note(images=len(images))
    return ImagePreprocessOutputs(images=tuple(images))


def _decode(data: bytes, limits: MediaLimits, frames: int) -> list[tuple[Array, int, int, float | None]]:
    from runtime.media.images import decode
    from runtime.vision.square import SHORTEST_SIDE, encoder_pixels

    pictures = decode(data, limits, shortest_side=SHORTEST_SIDE, frames=frames)
    return [(encoder_pixels(one.image), one.width, one.height, one.time_s) for one in pictures]
