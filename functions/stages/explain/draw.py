"""`explain.draw`: what each part of a piece of media did for an answer, as a picture."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bus.contracts import Contract, MediaLimits, MediaRef, Modality
from bus.store.media import load_media, save_media
from functions.context import Context
from functions.decorator import function
from functions.stages.explain.influence import Influence


class DrawInputs(Contract):
    """A piece of media and what its parts did."""

    media: MediaRef
    modality: Modality
    places: tuple[Influence, ...] = Field(min_length=1)
    limits: MediaLimits = MediaLimits()


class DrawOutputs(Contract):
    """The picture."""

    picture: MediaRef = Field(description="PNG.")


@function("explain.draw", group="media", timeout_s=120.0)
async def draw(context: Context[Any], inputs: DrawInputs) -> DrawOutputs:
    """Lay a heat map over a picture, or over the course of a sound or a film.

    Raises:
        MediaTooLargeError: Over a limit.
        MediaUnsupportedError: A format that is not decoded here.
        MediaUnreadableError: Empty, truncated or corrupt.
    """
    data = await load_media(context.store, inputs.media, inputs.limits.max_bytes)
    png = await context.run(_drawn, data, inputs)
    return DrawOutputs(picture=await save_media(context.store, png, "image/png"))


def _drawn(data: bytes, inputs: DrawInputs) -> bytes:
    from runtime.media.heat_map import over_film, over_picture, over_sound

    nats = [place.nats for place in inputs.places]
    if inputs.modality is Modality.IMAGE:
        return over_picture(data, [place.box or (0.0, 0.0, 1.0, 1.0) for place in inputs.places], nats, inputs.limits)
    draw_over = over_film if inputs.modality is Modality.VIDEO else over_sound
    return draw_over(data, [place.span_s or (0.0, 0.0) for place in inputs.places], nats, inputs.limits)
