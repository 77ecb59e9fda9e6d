"""Sounds and films that are broken, endless, odd or neither, through the whole stack."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from functools import lru_cache

import httpx
import numpy as np
import pytest

from tests.hostile.stack import Stack, answered, refused
from tests.made.films import film
from tests.made.pictures import corners, saved
from tests.made.sounds import encoded, tone, wav

pytestmark = pytest.mark.models

TONE = wav(tone(440, 1.0, 16_000), 16_000)
MP4 = film([0, 200, 400], container="mp4")
SONG = encoded(tone(440, 1.0, 48_000), 48_000, "mp4", "aac", "mono")


@lru_cache
def ten_hours() -> bytes:
    """A real MP3: half a minute, 1,200 times."""
    return encoded(tone(440, 30.0, 8_000), 8_000, "mp3", "libmp3lame", "mono") * 1200


def flac_of_ten_hours() -> bytes:
    """One second whose header says ten hours.

    Source: RFC 9639, section 8.2: the number of samples is the low 36 bits that end at byte 26.
    """
    data = bytearray(encoded(tone(440, 1.0, 8_000), 8_000, "flac", "flac", "mono"))
    (bits,) = struct.unpack(">Q", data[18:26])
    data[18:26] = struct.pack(">Q", bits >> 36 << 36 | 36_000 * 8_000)
    return bytes(data)


def without_end() -> bytes:
    """A WAV of 61 minutes that was written to a pipe, so that its header knows no length."""
    form = struct.pack("<HHIIHH", 1, 1, 8_000, 8_000, 1, 8)
    unknown = b"\xff" * 4
    head = b"RIFF" + unknown + b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + unknown
    return head + b"\x80" * (61 * 60 * 8_000)


def patched(place: int, value: bytes) -> bytes:
    return TONE[:place] + value + TONE[place + len(value) :]


REFUSED: dict[str, tuple[Callable[[], bytes], int, str, str]] = {
    "nothing": (lambda: b"", 400, "media_unreadable", "0 bytes"),
    "one byte": (lambda: b"x", 415, "media_unsupported", "no known format"),
    "text": (lambda: b"hello, I am a text file", 415, "media_unsupported", "no known format"),
    "a picture": (lambda: saved(corners(), "PNG"), 415, "media_unsupported", "no sound"),
    "a header alone": (lambda: TONE[:30], 400, "media_unreadable", "truncated"),
    "no samples": (lambda: wav(np.zeros(0, np.float32), 16_000), 400, "media_unreadable", "no sound"),
    "no channels": (lambda: patched(22, b"\0\0"), 400, "media_unreadable", "not be decoded"),
    "65,535 channels": (lambda: patched(22, b"\xff\xff"), 400, "media_unreadable", "not be decoded"),
    "0 Hz": (lambda: patched(24, bytes(4)), 400, "media_unreadable", "corrupt"),
    "1 Hz": (lambda: wav(np.zeros(3000, np.float32), 1), 415, "media_unsupported", "samples a second"),
    "an unknown codec": (lambda: patched(20, b"\x34\x12"), 415, "media_unsupported", "codec"),
    "half a song": (lambda: SONG[: len(SONG) // 2], 400, "media_unreadable", "corrupt"),
    "a film without sound": (lambda: MP4, 415, "media_unsupported", "no sound"),
    "ten hours": (ten_hours, 413, "media_too_large", "at most 3,600 s"),
    "a header that claims ten hours": (flac_of_ten_hours, 413, "media_too_large", "36,000 s"),
    "an hour without a known end": (without_end, 413, "media_too_large", "at most 3,600 s"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_usable_sound_is_refused(stack: Stack, what: str) -> None:
    data, status, code, words = REFUSED[what]
    refused(stack.transcribe(data()), status, code, words)


def noise(seconds: float = 2.0) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(0).normal(0, 0.2, int(seconds * 16_000)).astype(np.float32)


def music() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    chord = sum(tone(hertz, 4.0, 16_000, 0.15) for hertz in (220, 277, 330, 440))
    return np.asarray(chord * (tone(2, 4.0, 16_000) > 0), np.float32)


WORDLESS = {
    "silence": wav(np.zeros(32_000, np.float32), 16_000),
    "noise": wav(noise(), 16_000),
    "music": wav(music(), 16_000),
    "one sample": wav(np.zeros(1, np.float32), 16_000),
    "8 kHz": wav(tone(440, 1.0, 8_000), 8_000),
    "192 kHz": wav(tone(440, 1.0, 192_000), 192_000),
    "stereo": wav(np.stack([tone(440, 1.0, 16_000)] * 2), 16_000),
    "5.1": wav(np.stack([tone(440, 1.0, 16_000)] * 6), 16_000),
    "twenty channels": wav(np.stack([tone(440, 0.5, 16_000)] * 20), 16_000),
    "samples that are no numbers": encoded(np.full(16_000, np.nan, np.float32), 16_000, "wav", "pcm_f32le", "mono"),
    "half of a WAV": TONE[: len(TONE) // 2],
    "a song": SONG,
}


@pytest.mark.parametrize("what", WORDLESS)
def test_where_nobody_speaks_nothing_is_written(stack: Stack, what: str) -> None:
    assert answered(stack.transcribe(WORDLESS[what], media_type="audio/wav"))["text"] == ""


@pytest.mark.parametrize("written", ["text", "srt", "vtt", "verbose_json"])
def test_silence_is_an_empty_transcript_in_every_form(stack: Stack, written: str) -> None:
    response = stack.transcribe(WORDLESS["silence"], response_format=written)
    assert response.status_code == 200
    assert "-->" not in response.text


FORMS = {
    "an unknown model": ({"model": "nobody"}, 404, "model_not_found", "nobody"),
    "an unknown language": ({"language": "klingon"}, 400, "invalid_input", "klingon"),
    "an endless language": ({"language": "x" * 100_000}, 400, "invalid_input", "xxx"),
    "an unknown format": ({"response_format": "xml"}, 400, "invalid_input", "'xml'"),
    "a stream of subtitles": ({"stream": "true", "response_format": "srt"}, 400, "invalid_input", "stream"),
    "words in plain text": ({"timestamp_granularities[]": "word"}, 400, "invalid_input", "verbose_json"),
}


@pytest.mark.parametrize("what", FORMS)
def test_a_form_that_asks_for_what_is_not_there_is_refused(stack: Stack, what: str) -> None:
    fields, status, code, words = FORMS[what]
    refused(stack.transcribe(TONE, **fields), status, code, words)


@pytest.mark.parametrize("name", ["../../etc/passwd\0.wav", "a\r\nb.wav", "音.wav", ""])
def test_a_file_name_means_nothing(stack: Stack, name: str) -> None:
    response = stack.transcribe(TONE, name)
    if name:
        assert answered(response)["text"] == ""
    else:
        refused(response, 400, "invalid_input", "file")


def watched(stack: Stack, data: bytes, media_type: str = "video/mp4") -> httpx.Response:
    url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    return stack.chat([{"type": "video_url", "video_url": {"url": url}}, {"type": "text", "text": "What is it?"}])


FILMS = {
    "a film without pictures": (SONG, 415, "media_unsupported", "no video stream"),
    "a picture": (saved(corners(), "PNG"), 415, "media_unsupported", "image/png"),
    "the head of a film": (MP4[:500], 400, "media_unreadable", "truncated"),
    "a film without its end": (MP4[:-200], 400, "media_unreadable", ""),
    "a film of zeros": (MP4[:40] + bytes(5_000), 400, "media_unreadable", ""),
}


@pytest.mark.parametrize("what", FILMS)
def test_what_is_no_usable_film_is_refused(stack: Stack, what: str) -> None:
    data, status, code, words = FILMS[what]
    refused(watched(stack, data), status, code, words)


def test_a_film_whose_frames_come_when_they_want_is_watched(stack: Stack) -> None:
    uneven = film([0, 10, 500, 510, 3_000, 9_000], samples=tone(440, 9.0, 16_000))
    answer = answered(watched(stack, uneven))
    assert answer["usage"]["prompt_tokens_details"]["video_tokens"] > 0


@pytest.mark.parametrize("seed", range(12))
def test_a_film_with_bytes_thrown_over_is_watched_or_refused(stack: Stack, seed: int) -> None:
    random = np.random.default_rng(seed)
    data = bytearray(film([0, 200, 400], samples=tone(440, 0.6, 16_000)) if seed % 2 else MP4)
    for place in random.integers(8, len(data), 20):
        data[place] = random.integers(256)
    response = watched(stack, bytes(data))
    assert response.status_code in (200, 400, 413, 415)
