"""Scenes that are too short to be met by chance."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL.Image import Image

from bus.contracts import MediaLimits, Modality
from runtime.media.video import open_video
from runtime.multimodal.families.qwen_vl import QwenVl
from runtime.multimodal.family import Detail, Film
from runtime.multimodal.films import with_scenes
from runtime.multimodal.media import Readier
from tests.made.films import film, grey
from tests.runtime.multimodal.drawn import scene
from tests.runtime.multimodal.test_qwen_vl_sizes import PARAMETERS

LIMITS = MediaLimits()
WIDTH, HEIGHT = 96, 64


def scenes(*ends: int) -> Callable[[int], NDArray[np.uint8]]:
    """Stills of pictures that have nothing in common, each up to a frame."""
    size = (HEIGHT // 8, WIDTH // 8, 3)
    squares = [np.random.default_rng(seed).integers(0, 255, size, np.uint8) for seed in range(len(ends))]
    pictures = [one.repeat(8, axis=0).repeat(8, axis=1) for one in squares]
    return lambda index: pictures[next(place for place, end in enumerate(ends) if index < end)]


def cut_film(container: str, *ends: int) -> bytes:
    """Ten frames a second, a keyframe every five seconds, and where the scene changes."""
    drawn = scenes(*ends)
    return film(
        range(0, ends[-1] * 100, 100), width=WIDTH, height=HEIGHT, container=container, drawn=drawn, keyframe_every=50
    )


@pytest.mark.parametrize("container", ["mp4", "matroska"])
def test_cuts_are_known_without_decoding_anything(container: str) -> None:
    with open_video(cut_film(container, 93, 108, 140, 200), LIMITS) as opened:
        assert opened.frames.cuts(opened.seconds) == pytest.approx([9.3, 10.8, 14.0], abs=0.01)
        assert opened.frames.decoded <= 1
        # And frames are read as if nobody had asked.
        assert [frame.time_s for frame in opened.frames.at([0.05, 9.35])] == pytest.approx([0.0, 9.3])


def test_keyframes_at_regular_distances_say_nothing_of_scenes() -> None:
    data = film(
        range(0, 10_000, 100), width=WIDTH, height=HEIGHT, drawn=scenes(100), container="mp4", keyframe_every=25
    )
    with open_video(data, LIMITS) as opened:
        assert opened.frames.cuts(opened.seconds) == []


def test_scenes_that_no_moment_is_in_get_some_the_longest_first() -> None:
    moments = [1.0 + 2 * index for index in range(12)]
    cuts = [3.1, 3.2, 5.2, 6.1, 9.3, 10.8]
    more = with_scenes(moments, cuts, seconds=24.0, most=100, each=1)
    assert sorted(set(more) - set(moments)) == pytest.approx([5.65, 10.05])
    assert len(with_scenes(moments, cuts, seconds=24.0, most=13, each=1)) == 13
    assert with_scenes(moments, cuts, seconds=24.0, most=13, each=2) == moments
    assert with_scenes(moments, [], seconds=24.0, most=100, each=1) == moments


def test_a_short_scene_in_a_long_film_is_seen_and_time_goes_on_by_the_clock() -> None:
    data = cut_film("mp4", 65, 80, 400)
    video = {**PARAMETERS["video"], "frames_per_second": 0.25, "min_pixels": 784}
    family = QwenVl({**PARAMETERS, "ticks_per_second": 4, "video": video})
    with open_video(data, LIMITS) as opened:
        even = family.frames(opened.seconds, 10, Detail())
        moments = family.frames(opened.seconds, 10, Detail(), opened.frames.cuts(opened.seconds))
    assert not any(6.5 <= moment < 8.0 for moment in even)
    assert sum(6.5 <= moment < 8.0 for moment in moments) == 2
    (ready,) = Readier(family).ready(data, Modality.VIDEO, Detail(), LIMITS)
    time = ready.prepared.positions[0].reshape(len(moments) // 2, -1)[:, 0]
    np.testing.assert_allclose(time, (np.array(moments[::2]) - moments[0]) * 4, atol=1)
    assert all(earlier <= later for earlier, later in pairwise(time))


def test_frames_that_are_evenly_spread_keep_the_even_time_of_the_reference() -> None:
    family = QwenVl({**PARAMETERS, "ticks_per_second": 4})
    moments = family.frames(3.7, 7, Detail())
    frames = [scene(56, 56)] * len(moments)
    positions = family.video(Film(frames, moments, 3.7), Detail()).positions[0]
    step = np.float32(2 * 3.7 / len(moments))
    assert np.unique(positions).tolist() == [int(np.float32(index) * step * 4) for index in range(len(moments) // 2)]


def test_no_more_than_two_frames_of_full_size_are_there_at_once() -> None:
    data = film(range(0, 12_000, 100), width=640, height=480, keyframe_every=20)
    family, kept = QwenVl(PARAMETERS), list[weakref.ref[Image]]()

    def watched() -> Iterator[Image]:
        for frame in opened.frames.at(moments):
            kept.append(weakref.ref(frame.image))
            assert sum(one() is not None for one in kept) <= 2
            yield frame.image

    with open_video(data, LIMITS) as opened:
        moments = family.frames(opened.seconds, opened.frames_per_second, Detail())
        prepared = family.video(Film(watched(), moments, opened.seconds), Detail())
    assert len(kept) == len(moments) == 2 * prepared.grid[0] == 22


def test_a_film_with_an_uneven_clock_is_seen_at_even_times() -> None:
    # Two frames a second at first, then twenty: by their number, most moments would be in the second half.
    times_ms = [*range(0, 6000, 500), *range(6000, 12_000, 50)]
    data = film(times_ms, width=64, height=64)
    family = QwenVl({**PARAMETERS, "ticks_per_second": 2})
    with open_video(data, LIMITS) as opened:
        moments = family.frames(opened.seconds, opened.frames_per_second, Detail())
        frames = list(opened.frames.at(moments))
    assert np.diff(moments) == pytest.approx(0.5, abs=0.13)
    for moment, frame in zip(moments, frames, strict=True):
        on_show = max(index for index, time_ms in enumerate(times_ms) if time_ms <= moment * 1000)
        assert np.asarray(frame.image).mean() == pytest.approx(grey(on_show), abs=4)
    prepared = family.video(Film((frame.image for frame in frames), moments, opened.seconds), Detail())
    ticks = prepared.positions[0].reshape(prepared.grid[0], -1)[:, 0]
    np.testing.assert_allclose(ticks, (np.array(moments[::2]) - moments[0]) * 2, atol=1)
