"""Films with any clock, against the frames that were drawn."""

from __future__ import annotations

import io

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from bus.contracts import MediaLimits
from bus.errors import MediaTooLargeError, MediaUnreadableError, MediaUnsupportedError
from runtime.media.video import Clip, decode, open_video
from tests.made.films import drifting, film, grey
from tests.made.sounds import encoded, loudest_hz, tone

LIMITS = MediaLimits()

# Long gaps, bursts, and a start late on the container's clock.
UNEVEN_MS = [0, 40, 80, 500, 1400, 1433, 1466, 1500, 2600, 2640, 2900, 3900]


def levels(clip: Clip) -> list[int]:
    return [int(np.asarray(frame.image).mean().round()) for frame in clip.frames]


def on_show(times_ms: list[int], moment_s: float) -> int:
    """Index of the frame on show: the last one that began by then."""
    return max(index for index, time_ms in enumerate(times_ms) if time_ms <= moment_s * 1000)


def test_variable_frame_rate_is_sampled_by_time_and_not_by_count() -> None:
    clip = decode(film(UNEVEN_MS), LIMITS, frames=5, frames_per_second=10)
    moments = [(index + 0.5) * clip.seconds / 5 for index in range(5)]
    wanted = list(dict.fromkeys(on_show(UNEVEN_MS, moment) for moment in moments))
    assert [frame.time_s for frame in clip.frames] == pytest.approx([UNEVEN_MS[i] / 1000 for i in wanted])
    assert levels(clip) == pytest.approx([grey(index) for index in wanted], abs=4)


def test_short_films_are_sampled_by_the_second() -> None:
    clip = decode(film(range(0, 3000, 100)), LIMITS, frames=8, frames_per_second=1)
    assert clip.seconds == pytest.approx(3.0, abs=0.11)
    assert [frame.time_s for frame in clip.frames] == pytest.approx([0.4, 1.4, 2.4], abs=0.11)


@pytest.mark.parametrize("container", ["matroska", "mp4", "mpegts"])
def test_a_long_film_is_decoded_no_further_than_its_keyframes_are_apart(container: str) -> None:
    data = film(range(0, 600_000, 500), width=32, height=32, container=container)
    moments = [50.1, 150.1, 250.1, 350.1, 450.1, 550.1]
    with open_video(data, LIMITS) as opened:
        frames = list(opened.frames.at(moments))
        decoded = opened.frames.decoded
    assert [frame.time_s for frame in frames] == pytest.approx([50, 150, 250, 350, 450, 550], abs=0.01)
    assert [int(np.asarray(frame.image).mean().round()) for frame in frames] == pytest.approx(
        [grey(int(frame.time_s * 2)) for frame in frames], abs=4
    )
    # A keyframe stands at most twelve frames before a moment; one more tells when the next begins.
    assert decoded <= len(moments) * (12 + 1) + 1


def test_frames_come_one_by_one_and_again_where_they_stay_on_show() -> None:
    with open_video(film(UNEVEN_MS), LIMITS) as opened:
        frames = opened.frames.at([0.0, 0.2, 0.3, 1.41])
        assert next(frames).time_s == 0
        assert opened.frames.decoded < len(UNEVEN_MS)
        assert [frame.time_s for frame in frames] == pytest.approx([0.08, 0.08, 1.4])


def damaged(data: bytes, packet: int) -> bytes:
    """The film with the second half of one of its packets spoilt."""
    with av.open(io.BytesIO(data), "r") as container:
        spoilt = list(container.demux(container.streams.video[0]))[packet]
    assert spoilt.pos is not None
    inside = slice(spoilt.pos + spoilt.size // 2, spoilt.pos + spoilt.size)
    content = bytearray(data)
    content[inside] = bytes(byte ^ 0x5A for byte in content[inside])
    return bytes(content)


def pictures(data: bytes, moments: list[float]) -> tuple[dict[float, NDArray[np.uint8]], list[float]]:
    with open_video(data, LIMITS) as opened:
        found = {frame.time_s: np.asarray(frame.image) for frame in opened.frames.at(moments)}
        return found, opened.frames.damaged_s


@pytest.mark.parametrize("container", ["matroska", "mp4"])
def test_a_damaged_frame_is_passed_over_and_all_that_are_given_are_right(container: str) -> None:
    data = film(range(0, 4000, 100), width=128, height=64, container=container, drawn=drifting(128, 64))
    moments = [index / 10 + 0.05 for index in range(40)]
    whole, _ = pictures(data, moments)
    found, damage = pictures(damaged(data, 17), moments)
    assert len(whole) == 40
    assert len(damage) > 0
    assert 20 < len(found) < 40
    assert [min(found), max(found)] == pytest.approx([0, 3.9])
    for time_s, picture in found.items():
        np.testing.assert_array_equal(picture, whole[time_s])


def test_a_film_that_is_damaged_from_its_start_is_refused_with_the_second() -> None:
    data = film(range(0, 1000, 100), width=128, height=64, drawn=drifting(128, 64), keyframe_every=60)
    with open_video(damaged(data, 0), LIMITS) as opened, pytest.raises(MediaUnreadableError, match="at second 0"):
        list(opened.frames.at([0.5]))


def test_times_are_from_the_start_of_the_film_wherever_its_clock_begins() -> None:
    late = [7_000 + time_ms for time_ms in range(0, 2000, 200)]
    clip = decode(film(late, container="mpegts"), LIMITS, frames=2, frames_per_second=1)
    assert [frame.time_s for frame in clip.frames] == pytest.approx([0.4, 1.4], abs=0.21)


def test_the_sound_track_comes_as_16_khz_mono() -> None:
    clip = decode(film(range(0, 1000, 100), samples=tone(440, 1.0, 16_000)), LIMITS, frames=2, frames_per_second=1)
    assert clip.samples is not None
    assert clip.samples.dtype == np.float32
    assert loudest_hz(clip.samples, 16_000) == pytest.approx(440, abs=2)


def test_a_silent_film_has_no_sound_track() -> None:
    assert decode(film([0, 100]), LIMITS, frames=1, frames_per_second=1).samples is None


def test_one_frame_is_a_film() -> None:
    clip = decode(film([0]), LIMITS, frames=8, frames_per_second=1)
    assert levels(clip) == pytest.approx([grey(0)], abs=4)


def test_never_more_frames_than_the_limits_say() -> None:
    clip = decode(film(range(0, 4000, 100)), MediaLimits(max_frames=3), frames=32, frames_per_second=30)
    assert len(clip.frames) == 3


def test_too_long_is_refused() -> None:
    with pytest.raises(MediaTooLargeError, match="at most 2 s"):
        decode(film(range(0, 6000, 500)), MediaLimits(max_seconds=2), frames=2, frames_per_second=1)


def test_frames_of_too_many_pixels_are_refused() -> None:
    with pytest.raises(MediaTooLargeError, match="64 × 48"):
        decode(film([0, 40]), MediaLimits(max_pixels=1000), frames=1, frames_per_second=1)


def test_an_unknown_codec_is_unsupported() -> None:
    data = film([0, 40, 80], container="avi", codec="mpeg4").replace(b"FMP4", b"Zzzz")
    with pytest.raises((MediaUnsupportedError, MediaUnreadableError)):
        decode(data, LIMITS, frames=1, frames_per_second=1)


def test_sound_alone_is_not_a_film() -> None:
    data = encoded(tone(440, 1.0, 48_000)[None], 48_000, "mp4", "aac", "mono")
    with pytest.raises(MediaUnsupportedError, match="no video stream"):
        decode(data, LIMITS, frames=1, frames_per_second=1)


@pytest.mark.parametrize("container", ["matroska", "mp4", "avi", "mpegts"])
def test_truncated_films_give_what_is_left_or_a_typed_error(container: str) -> None:
    data = film(range(0, 2000, 100), container=container)
    for share in (0.02, 0.3, 0.7):
        cut_off = data[: int(len(data) * share)]
        try:
            clip = decode(cut_off, LIMITS, frames=4, frames_per_second=2)
        except (MediaUnreadableError, MediaUnsupportedError):
            continue
        assert clip.frames
        found = []
        for asked in (False, True):
            with open_video(cut_off, LIMITS) as opened:
                if asked:
                    opened.frames.cuts(opened.seconds)
                found.append([(frame.time_s, np.asarray(frame.image).tolist()) for frame in opened.frames.at([0.1])])
        assert found[0] == found[1]


def test_empty_is_unreadable() -> None:
    with pytest.raises(MediaUnreadableError, match="0 bytes"):
        decode(b"", LIMITS, frames=1, frames_per_second=1)
