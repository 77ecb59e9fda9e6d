"""Media without a part of them: what is missing is missing, what is not is as before."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from bus.contracts import MediaLimits, Modality
from bus.errors import InvalidInputError, MediaUnreadableError
from runtime.media import audio, images, video
from runtime.media.encode import encode
from runtime.media.masking import Place, masked_files
from tests.made.films import drifting, film

LIMITS = MediaLimits()


def noise_png(width: int, height: int) -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def test_every_cell_of_a_picture_is_grey_once_and_all_of_it_at_last() -> None:
    plain, *cells, whole = masked_files(noise_png(60, 40), Modality.IMAGE, LIMITS, 4)
    assert plain.place is None
    assert [one.place for one in cells][:2] == [Place((0, 0, 0.25, 0.25)), Place((0.25, 0, 0.5, 0.25))]
    pixels = {one: np.asarray(Image.open(io.BytesIO(one.data))).astype(int) for one in (plain, *cells, whole)}
    changed = np.stack([(pixels[one] != pixels[plain]).any(axis=2) for one in cells])
    assert changed.sum() > 0.9 * 60 * 40
    assert (changed.sum(axis=0) <= 1).all()
    grey = np.asarray(Image.open(io.BytesIO(plain.data)), float).mean(axis=(0, 1))
    assert (np.abs(pixels[whole] - grey).max(axis=2) <= 1).all()
    assert len(cells) == 16


def test_a_large_picture_is_written_smaller() -> None:
    plain, *_ = masked_files(noise_png(3000, 10), Modality.IMAGE, LIMITS, 1)
    assert Image.open(io.BytesIO(plain.data)).size == (1024, 3)


def test_every_stretch_of_a_clip_is_silent_once() -> None:
    samples = (0.5 * np.sin(np.arange(16_000 * 2) * 0.3)).astype(np.float32)
    plain, *stretches, whole = masked_files(encode(samples, 16_000, "wav")[0], Modality.AUDIO, LIMITS, 5)
    assert [one.place for one in stretches][-1] == Place(span_s=(1.6, 2.0))
    before = audio.decode(plain.data, LIMITS)
    for index, one in enumerate(stretches):
        after = audio.decode(one.data, LIMITS)
        inside = slice(index * 6400, (index + 1) * 6400)
        assert not after[inside].any()
        assert np.array_equal(np.delete(after, inside), np.delete(before, inside))
    assert not audio.decode(whole.data, LIMITS).any()
    assert np.abs(before - samples).max() < 1e-3


def test_every_stretch_of_a_film_is_grey_and_silent_once() -> None:
    samples = (0.5 * np.sin(np.arange(16_000 * 4) * 0.3)).astype(np.float32)
    data = film(range(0, 4000, 100), width=96, height=64, samples=samples, drawn=drifting(96, 64))
    plain, *stretches, whole = masked_files(data, Modality.VIDEO, LIMITS, 4)
    clips = [video.decode(one.data, LIMITS, frames=16, frames_per_second=4.0) for one in (plain, *stretches, whole)]
    first = clips[0]
    assert first.seconds == pytest.approx(4, abs=0.3)
    assert len({len(clip.frames) for clip in clips}) == 1
    for index, clip in enumerate(clips[1:-1]):
        for before, after in zip(first.frames, clip.frames, strict=True):
            contrast = np.asarray(after.image, float).std() / np.asarray(before.image, float).std()
            assert (contrast < 0.4) == (index <= after.time_s < index + 1), (index, after.time_s, contrast)
        assert clip.samples is not None
        assert np.abs(clip.samples[index * 16_000 + 2000 : (index + 1) * 16_000 - 2000]).max() < 1e-3
    assert all(np.asarray(frame.image, float).std() < 15 for frame in clips[-1].frames)


def test_what_cannot_be_decoded_or_has_no_parts_is_refused() -> None:
    with pytest.raises(MediaUnreadableError, match="empty"):
        list(masked_files(b"", Modality.IMAGE, LIMITS, 2))
    with pytest.raises(InvalidInputError, match="no parts"):
        masked_files(b"x", Modality.TEXT, LIMITS, 2)
    assert images.decode(noise_png(2, 2), LIMITS)[0].width == 2
