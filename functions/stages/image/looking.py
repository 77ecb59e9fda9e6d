"""How stages show pictures to the image encoder: those of all requests together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bus.errors import InvalidInputError
from functions.context import Context
from functions.stages.parts import ImageTensor

if TYPE_CHECKING:
    from runtime.vision.classifier import Seen
    from runtime.vision.looking import Looking


async def look(context: Context[Any], looking: Looking, images: Sequence[ImageTensor]) -> list[Seen]:
    """What the encoder makes of each picture.

    Raises:
        InvalidInputError: Pixels of another dtype or shape than the encoder takes, or that are no numbers.
        CancelledRequestError: Nobody waits any more.
    """
    arrays = [await context.tensors.get(image.pixels) for image in images]
    for image, pixels in zip(images, arrays, strict=True):
        if pixels.dtype.kind == "f" and not np.isfinite(pixels).all():
            raise InvalidInputError(f"picture {image.part} has pixels that are no numbers", part=image.part)
    return await looking.look(arrays, tenant=context.event.tenant, cancelled=lambda: context.cancelled)
