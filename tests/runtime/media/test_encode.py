"""Sound to files, read back by the standard library and by FFmpeg."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest

from bus.contracts import MediaLimits
from bus.errors import InvalidInputError
from runtime.media.audio import decode
from runtime.media.encode import FORMATS, SoundEncoder, encode
from tests.made.sounds import loudest_hz, tone


def test_wav_is_what_the_standard_library_reads() -> None:
    samples = tone(440, 0.5, 24_000)
    data, media_type = encode(samples, 24_000, "wav")
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        read = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32767
    assert media_type == "audio/wav"
    assert np.abs(read - samples).max() < 1e-4


def test_pcm_is_the_samples_alone() -> None:
    data, media_type = encode(np.array([0.0, 0.5, -1.0, 2.0], np.float32), 24_000, "pcm")
    assert media_type == "audio/pcm"
    assert np.frombuffer(data, "<i2").tolist() == [0, 16384, -32767, 32767]


@pytest.mark.parametrize("kind", ["mp3", "opus", "flac", "wav"])
@pytest.mark.parametrize("rate", [16_000, 22_050, 24_000])
def test_every_format_keeps_pitch_and_length(kind: str, rate: int) -> None:
    data, _ = encode(tone(440, 1.0, rate), rate, kind)
    samples = decode(data, MediaLimits())
    assert len(samples) == pytest.approx(16_000, abs=800)
    assert loudest_hz(samples, 16_000) == pytest.approx(440, abs=2)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_sound_gives_the_same_bytes(kind: str) -> None:
    assert encode(tone(300, 0.3, 24_000), 24_000, kind) == encode(tone(300, 0.3, 24_000), 24_000, kind)


@pytest.mark.parametrize("kind", ["mp3", "opus", "flac", "wav"])
def test_pieces_make_one_file_and_come_while_it_is_made(kind: str) -> None:
    sound = tone(440, 4.0, 24_000)
    encoder = SoundEncoder(kind, 24_000)
    parts = [encoder.add(piece) for piece in (sound[:50_000], sound[50_000:50_000], sound[50_000:])]
    data = b"".join([*parts, encoder.finish()])
    assert len(decode(parts[0], MediaLimits())) > 8_000
    samples = decode(data, MediaLimits())
    assert len(samples) == pytest.approx(64_000, abs=1_200)
    assert loudest_hz(samples, 16_000) == pytest.approx(440, abs=1)
    middle = samples[8_000:56_000]
    assert np.abs(middle).reshape(-1, 200).max(axis=1).min() > 0.4  # no gap where the pieces meet


def test_pieces_of_pcm_are_the_samples() -> None:
    sound, encoder = tone(440, 0.2, 24_000), SoundEncoder("pcm", 24_000)
    assert encoder.add(sound[:999]) + encoder.add(sound[999:]) + encoder.finish() == encode(sound, 24_000, "pcm")[0]


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'aiff'"):
        encode(tone(300, 0.1, 24_000), 24_000, "aiff")
