"""What holds for pictures of any shape, at any detail, in every family that sees tiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from PIL import Image

from bus.errors import MediaUnreadableError, ModelUnsupportedError
from runtime.multimodal.families.idefics2 import Idefics2
from runtime.multimodal.families.idefics3 import Idefics3
from runtime.multimodal.families.llava_onevision import LlavaOnevision
from runtime.multimodal.family import Detail, Film, MultimodalFamily

FAMILIES: dict[str, MultimodalFamily] = {
    "idefics3": Idefics3({
        "encoders": {"image": "vision.onnx"}, "tile": 40, "side": 3, "seen": 0.9, "longest_edge": 160,
        "splitting": True, "resample": 1, "image_token": "<image>", "around": "<fake>", "whole": "<global-img>",
        "video": {"frames": 8, "frames_per_second": 1.0, "longest_edge": 80, "token": "<video>"},
    }),
    "llava_onevision": LlavaOnevision({
        "encoders": {"image": "vision.onnx", "video": "vision.onnx"}, "tile": 40, "side": 3, "patch": 13,
        "most_tiles": 4, "grids": [[40 * rows, 40 * columns] for rows in range(1, 5) for columns in range(1, 5)],
        "resample": 3, "background": [122, 116, 104], "image_token": "<image>", "video_token": "<video>",
        "frames": 8, "frames_per_second": 1.0,
    }),
    "idefics2": Idefics2({
        "encoders": {"image": "vision.onnx"}, "patch": 13, "latents": 7, "shortest_edge": 40, "longest_edge": 110,
        "splitting": True, "resample": 2, "trained": 5, "image_token": "<image>", "around": "<fake>",
    }),
}  # fmt: skip
EDGES = some.integers(1, 700)
DETAILS = some.builds(
    Detail,
    level=some.sampled_from(["low", "high", "auto"]),
    max_tokens=some.none() | some.integers(1, 400),
    alone=some.booleans(),
)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
@settings(max_examples=60, deadline=None)
@given(width=EDGES, height=EDGES, detail=DETAILS)
def test_a_picture_has_a_place_and_a_region_for_every_token(
    family: MultimodalFamily, width: int, height: int, detail: Detail
) -> None:
    prepared = family.image(Image.new("RGB", (width, height), "orange"), detail)
    assert prepared.tokens == sum(piece.slots for piece in prepared.frame) > 0
    # One position after the other: no two tokens share one.
    np.testing.assert_array_equal(prepared.positions, np.tile(np.arange(prepared.tokens), (3, 1)))
    regions = prepared.regions
    assert regions is not None
    assert ((regions >= 0) & (regions <= 1)).all()
    assert (regions[:, :2] <= regions[:, 2:]).all()
    least = family.image(Image.new("RGB", (width, height)), Detail(level="low", alone=False)).tokens
    assert prepared.tokens <= max(detail.max_tokens or prepared.tokens, least)
    assert min(family.resolution(width, height, detail)) >= 1


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
@settings(max_examples=30, deadline=None)
@given(sizes=some.lists(some.tuples(some.integers(60, 120), some.integers(60, 120)), min_size=1, max_size=4))
def test_pictures_that_run_together_come_out_as_they_went_in(
    family: MultimodalFamily, sizes: list[tuple[int, int]]
) -> None:
    """The red in the middle of each tile tells whose it is, as its tokens would."""
    pictures = [Image.new("RGB", size, (20 * place + 10, 0, 0)) for place, size in enumerate(sizes)]
    pieces = [family.image(picture, Detail(alone=False)) for picture in pictures]
    packed = family.pack(pieces[0].modality, [piece.inputs for piece in pieces])
    if "patches" in packed:
        starts = np.concatenate([np.arange(start, stop, length) for start, stop, length in packed["runs"]])
        marks = packed["patches"][starts, 0][packed["order"]].astype(np.float32)
        tokens = 7
    else:
        middle = packed["pixels"].shape[1] // 2
        marks = packed["pixels"][:, middle, middle, 0].astype(np.float32)
        tokens = 9
    rows = np.broadcast_to(marks[:, None, None], (len(marks), tokens, 2)).copy()
    found = family.unpack(pieces[0].modality, [rows, np.full(2, -1, np.float32)], pieces)
    for place, (piece, embeddings) in enumerate(zip(pieces, found, strict=True)):
        assert len(embeddings) == piece.tokens
        assert set(np.unique(embeddings).tolist()) <= {20 * place + 10.0, -1.0}


@pytest.mark.parametrize("name", ["idefics3", "llava_onevision"])
def test_a_film_without_frames_is_refused(name: str) -> None:
    with pytest.raises(MediaUnreadableError, match="no frames"):
        FAMILIES[name].video(Film([], [], 1.0), Detail())


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_family_does_not_take_is_refused_by_name(name: str) -> None:
    with pytest.raises(ModelUnsupportedError, match="no audio"):
        FAMILIES[name].audio(np.zeros(10, np.float32), Detail())
    if name == "idefics2":
        with pytest.raises(ModelUnsupportedError, match="no video"):
            FAMILIES[name].frames(1.0, 25.0, Detail())
