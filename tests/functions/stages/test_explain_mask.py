"""`explain.mask`: a piece of media without each of its parts in turn."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from bus.contracts import MediaRef
from bus.errors import InvalidInputError, MediaUnreadableError
from bus.store.media import load_media, save_media
from functions.environment import FunctionEnvironment
from functions.registry import registry
from functions.stages.explain.mask import MaskOutputs
from tests.made.pictures import corners, saved

registry.load("functions.stages")


async def kept(environment: FunctionEnvironment, ref: MediaRef) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    data = await load_media(environment.store, ref, 2**20)
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), np.int64)


async def test_every_part_is_told_with_the_picture_that_lacks_it() -> None:
    async with FunctionEnvironment() as environment:
        item = {
            "part": 0,
            "ref": (await save_media(environment.store, saved(corners(), "PNG"), "image/png")).model_dump(),
        }
        outputs = MaskOutputs.model_validate(await environment.run("explain.mask", {"images": [item], "parts": 2}))
        boxes = [one.box for one in outputs.masked]
        assert boxes == [(0, 0, 0.5, 0.5), (0.5, 0, 1, 0.5), (0, 0.5, 0.5, 1), (0.5, 0.5, 1, 1)]
        plain = await kept(environment, outputs.plain)
        assert np.array_equal(plain, np.asarray(corners(), np.int64))
        for one in outputs.masked:
            changed = (await kept(environment, one.ref) != plain).any(axis=2)
            assert one.box is not None
            down, across = int(one.box[1] * 240), int(one.box[0] * 320)
            assert changed[down : down + 120, across : across + 160].mean() > 0.9
            assert changed.sum() == changed[down : down + 120, across : across + 160].sum()
        assert len(np.unique((await kept(environment, outputs.whole)).reshape(-1, 3), axis=0)) == 1


async def test_what_cannot_be_cut_is_refused() -> None:
    async with FunctionEnvironment() as environment:
        item = {
            "part": 0,
            "ref": (await save_media(environment.store, saved(corners(), "PNG"), "image/png")).model_dump(),
        }
        with pytest.raises(InvalidInputError, match="one piece of media is explained at a time, not 2"):
            await environment.run("explain.mask", {"images": [item, item]})
        broken = await save_media(environment.store, saved(corners(), "PNG")[:300], "image/png")
        with pytest.raises(MediaUnreadableError):
            await environment.run("explain.mask", {"images": [{"part": 0, "ref": broken.model_dump()}]})
