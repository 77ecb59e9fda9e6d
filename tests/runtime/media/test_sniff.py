"""Kinds of files told from content alone."""

from __future__ import annotations

import numpy as np
import pytest

from bus.contracts import Modality
from runtime.media.sniff import sniff
from runtime.media.video import has_pictures
from tests.made.films import film
from tests.made.pictures import corners, saved
from tests.made.sounds import encoded, tone, wav


@pytest.mark.parametrize(
    ("kind", "media_type"),
    [
        ("PNG", "image/png"),
        ("JPEG", "image/jpeg"),
        ("GIF", "image/gif"),
        ("WEBP", "image/webp"),
        ("BMP", "image/bmp"),
        ("TIFF", "image/tiff"),
        ("AVIF", "image/avif"),
    ],
)
def test_pictures(kind: str, media_type: str) -> None:
    found = sniff(saved(corners(32, 32), kind))
    assert found is not None
    assert (found.media_type, found.modalities) == (media_type, frozenset({Modality.IMAGE}))


@pytest.mark.parametrize(
    ("container", "codec", "media_type"),
    [
        ("mp3", "libmp3lame", "audio/mpeg"),
        ("adts", "aac", "audio/aac"),
        ("ogg", "libopus", "audio/ogg"),
        ("flac", "flac", "audio/flac"),
        ("aiff", "pcm_s16be", "audio/aiff"),
        ("au", "pcm_s16be", "audio/basic"),
        ("caf", "pcm_s16le", "audio/x-caf"),
        ("ipod", "aac", "audio/mp4"),
    ],
)
def test_sounds(container: str, codec: str, media_type: str) -> None:
    found = sniff(encoded(tone(440, 0.2, 48_000)[None], 48_000, container, codec, "mono"))
    assert found is not None
    assert (found.media_type, found.modalities) == (media_type, frozenset({Modality.AUDIO}))


def test_wav() -> None:
    found = sniff(wav(tone(440, 0.1, 8_000), 8_000))
    assert found is not None
    assert found.media_type == "audio/wav"


@pytest.mark.parametrize(
    ("container", "media_type"),
    [
        ("mp4", "video/mp4"),
        ("mov", "video/quicktime"),
        ("matroska", "video/x-matroska"),
        ("avi", "video/x-msvideo"),
        ("mpegts", "video/mp2t"),
        ("flv", "video/x-flv"),
    ],
)
def test_films(container: str, media_type: str) -> None:
    data = film([0, 40, 80], container=container)
    found = sniff(data)
    assert found is not None
    assert (found.media_type, found.modalities) == (media_type, frozenset({Modality.VIDEO, Modality.AUDIO}))
    assert has_pictures(data)


def test_a_container_of_films_may_hold_sound_alone() -> None:
    data = encoded(tone(440, 0.5, 48_000)[None], 48_000, "mp4", "aac", "mono")
    assert not has_pictures(data)


@pytest.mark.parametrize("data", [b"", b"x", b"#EXTM3U\n", b"%PDF-1.7", b"RIFF\0\0\0\0ACON", b"<html>", b"\0" * 500])
def test_everything_else_is_nothing(data: bytes) -> None:
    assert sniff(data) is None


def test_noise_is_rarely_something() -> None:
    rng = np.random.default_rng(7)
    found = [sniff(rng.integers(0, 255, 400, np.uint8).tobytes()) for _ in range(500)]
    assert sum(kind is not None for kind in found) < 5
