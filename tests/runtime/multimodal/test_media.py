"""From the bytes of a picture to what a family takes."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from bus.contracts import MediaLimits, Modality
from runtime.media.images import decode
from runtime.multimodal.families.llava_onevision import LlavaOnevision
from runtime.multimodal.family import Detail
from runtime.multimodal.media import Readier
from tests.made.pictures import saved
from tests.runtime.multimodal.drawn import scene

FAMILY = LlavaOnevision({
    "encoders": {"image": "vision.onnx", "video": "vision.onnx"}, "tile": 60, "side": 4, "patch": 14, "most_tiles": 9,
    "grids": [[60, 60], [60, 120], [120, 60]], "resample": 3, "background": [122, 116, 104],
    "image_token": "<image>", "video_token": "<video>", "frames": 32, "frames_per_second": 1.0,
})  # fmt: skip
LIMITS = MediaLimits()


@pytest.fixture(scope="module")
def photo() -> bytes:
    return saved(scene(400, 300).resize((1600, 1200), Image.Resampling.BICUBIC), "JPEG", quality=90)


def test_pictures_are_made_from_whole_photos_where_a_model_asks_for_it(photo: bytes) -> None:
    (whole,) = decode(photo, LIMITS)
    right = FAMILY.image(whole.image, Detail()).inputs["pixels"].astype(int)
    readiers = (Readier(FAMILY, exact_pixels=exact) for exact in (True, False))
    exact, near = (one.ready(photo, Modality.IMAGE, Detail(), LIMITS)[0].prepared.inputs["pixels"] for one in readiers)
    np.testing.assert_array_equal(exact, right)
    assert 0 < np.abs(near - right).max() <= 4


def test_a_picture_that_is_one_of_several_is_looked_at_less_closely(photo: bytes) -> None:
    readier = Readier(FAMILY)
    assert readier.closer_alone
    alone, together = (
        readier.ready(photo, Modality.IMAGE, Detail(alone=alone), LIMITS)[0].prepared.tokens for alone in (True, False)
    )
    assert alone > together == 4 * 4 + 1
