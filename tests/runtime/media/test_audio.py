"""Sound of every rate, layout and container, against the tones that were synthesised."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
from scipy.signal import resample_poly

from bus.contracts import MediaLimits
from bus.errors import MediaTooLargeError, MediaUnreadableError, MediaUnsupportedError
from runtime.media.audio import decode
from tests.made.films import film
from tests.made.pictures import corners, saved
from tests.made.sounds import encoded, loudest_hz, tone, wav

LIMITS = MediaLimits()


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000, 192_000])
def test_every_rate_becomes_16_khz_with_pitch_length_and_loudness_kept(rate: int) -> None:
    samples = decode(wav(tone(440, 1.5, rate), rate), LIMITS)
    assert samples.dtype == np.float32
    assert len(samples) == pytest.approx(24_000, abs=40)
    assert loudest_hz(samples, 16_000) == pytest.approx(440, abs=1)
    assert np.sqrt(np.mean(samples[2000:-2000] ** 2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.02)


def test_resampling_agrees_with_an_independent_resampler() -> None:
    rng = np.random.default_rng(3)
    slow = np.convolve(rng.standard_normal(48_000), np.hanning(64), mode="same")
    signal = (0.3 * slow / np.abs(slow).max()).astype(np.float32)
    ours = decode(wav(signal, 48_000), LIMITS)
    theirs = resample_poly(signal, 1, 3)
    assert np.abs(ours[200:-200] - theirs[200 : len(ours) - 200]).max() < 0.01


def test_what_16_khz_cannot_hold_is_filtered_and_does_not_fold_back() -> None:
    samples = decode(wav(tone(15_000, 1.0, 48_000), 48_000), LIMITS)
    assert np.abs(samples[1000:-1000]).max() < 0.01


def test_stereo_is_the_mean_of_both_sides() -> None:
    left, right = tone(300, 1.0, 16_000, 0.8), tone(700, 1.0, 16_000, 0.4)
    samples = decode(wav(np.stack([left, right]), 16_000), LIMITS)
    assert np.abs(samples - (left + right) / 2).max() < 2e-3


def test_5_1_leaves_the_subwoofer_out_and_halves_the_power_of_the_back() -> None:
    rate = 16_000
    tones = np.stack([tone(200 + 100 * index, 1.0, rate, 0.6) for index in range(6)])
    data = encoded(tones, rate, "matroska", "pcm_f32le", "5.1")
    gains = np.array([1, 1, 1, 0, 0.5**0.5, 0.5**0.5])  # FL FR FC LFE BL BR
    samples = decode(data, LIMITS)
    assert np.abs(samples - (gains / gains.sum()) @ tones).max() < 2e-3


def test_a_full_scale_mix_never_clips() -> None:
    loud = np.stack([tone(440, 0.5, 16_000, 1.0)] * 6)
    assert np.abs(decode(encoded(loud, 16_000, "matroska", "pcm_f32le", "5.1"), LIMITS)).max() <= 1.0


@pytest.mark.parametrize(
    ("container", "codec", "rate"),
    [
        ("mp3", "libmp3lame", 44_100),
        ("adts", "aac", 44_100),
        ("mp4", "aac", 48_000),
        ("ogg", "libopus", 48_000),
        ("webm", "libopus", 48_000),
        ("flac", "flac", 24_000),
        ("aiff", "pcm_s16be", 22_050),
        ("mpegts", "aac", 48_000),
        ("avi", "pcm_s16le", 16_000),
    ],
)
def test_every_container_is_read(container: str, codec: str, rate: int) -> None:
    stereo = np.stack([tone(500, 1.0, rate)] * 2)
    samples = decode(encoded(stereo, rate, container, codec, "stereo"), LIMITS)
    assert len(samples) == pytest.approx(16_000, abs=1600)
    assert loudest_hz(samples, 16_000) == pytest.approx(500, abs=3)


def test_the_sound_of_a_film_is_taken() -> None:
    data = film([0, 100, 200], samples=tone(600, 0.5, 16_000))
    assert loudest_hz(decode(data, LIMITS), 16_000) == pytest.approx(600, abs=3)


def test_ten_hours_in_the_header_are_refused_without_decoding() -> None:
    data = bytearray(encoded(tone(440, 1.0, 16_000)[None], 16_000, "flac", "flac", "mono"))
    # STREAMINFO: the sample count is the low 36 bits of the eight bytes at 18 (RFC 9639, 8.2).
    fields = struct.unpack(">Q", data[18:26])[0] >> 36 << 36
    data[18:26] = struct.pack(">Q", fields | 36_000 * 16_000)
    with pytest.raises(MediaTooLargeError, match="36,000 s"):
        decode(bytes(data), LIMITS)


def test_a_stream_without_a_length_is_stopped_at_the_limit_and_never_held() -> None:
    data = encoded(np.zeros((1, 16_000 * 120), np.float32), 16_000, "adts", "aac", "mono")
    tracemalloc.start()
    with pytest.raises(MediaTooLargeError):
        decode(data, MediaLimits(max_seconds=5))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 5 * 16_000 * 4 + 500_000


def test_a_header_that_claims_more_than_there_is_gives_what_there_is() -> None:
    data = bytearray(wav(tone(440, 1.0, 16_000), 16_000))
    data[40:44] = struct.pack("<I", 36_000 * 32_000)
    assert len(decode(bytes(data), LIMITS)) == pytest.approx(16_000, abs=40)


def test_empty_file_is_unreadable() -> None:
    with pytest.raises(MediaUnreadableError, match="0 bytes"):
        decode(b"", LIMITS)


def test_a_header_without_sound_is_unreadable() -> None:
    with pytest.raises(MediaUnreadableError):
        decode(wav(tone(440, 1.0, 16_000), 16_000)[:44], LIMITS)


def test_a_truncated_recording_gives_what_is_left() -> None:
    data = encoded(np.stack([tone(500, 2.0, 44_100)]), 44_100, "mp3", "libmp3lame", "mono")
    samples = decode(data[: len(data) // 2], LIMITS)
    assert 8_000 < len(samples) < 20_000
    assert loudest_hz(samples, 16_000) == pytest.approx(500, abs=3)


def test_an_mp4_without_its_index_is_unreadable() -> None:
    data = encoded(np.stack([tone(500, 2.0, 48_000)]), 48_000, "mp4", "aac", "mono")
    with pytest.raises(MediaUnreadableError):
        decode(data[: data.index(b"moov") - 4], LIMITS)


def test_noise_behind_a_good_head_is_unreadable() -> None:
    data = encoded(tone(440, 4.0, 16_000)[None], 16_000, "flac", "flac", "mono")
    junk = np.random.default_rng(0).integers(0, 255, len(data), np.uint8).tobytes()
    with pytest.raises(MediaUnreadableError):
        decode(data[:60] + junk, LIMITS)


def test_a_film_without_sound_is_unsupported_as_audio() -> None:
    with pytest.raises(MediaUnsupportedError, match="no audio stream"):
        decode(film([0, 40, 80]), LIMITS)


@pytest.mark.parametrize("data", [b"hello", saved(corners(), "PNG")])
def test_what_is_no_sound_is_unsupported(data: bytes) -> None:
    with pytest.raises(MediaUnsupportedError):
        decode(data, LIMITS)


def test_more_channels_than_anybody_has_are_mixed_and_do_not_crash() -> None:
    data = wav(np.stack([tone(440, 0.2, 16_000)] * 59), 16_000)
    samples = decode(data, LIMITS)
    assert np.abs(samples - tone(440, 0.2, 16_000)[: len(samples)]).max() < 2e-3


def test_an_unknown_codec_is_unsupported() -> None:
    data = bytearray(wav(tone(440, 0.2, 16_000), 16_000))
    data[20:22] = b"\xee\xee"
    with pytest.raises(MediaUnsupportedError, match="codec"):
        decode(bytes(data), LIMITS)


def test_a_playlist_opens_nothing() -> None:
    playlist = b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///etc/hostname\n#EXT-X-ENDLIST\n"
    with pytest.raises(MediaUnsupportedError):
        decode(playlist, LIMITS)


@pytest.mark.parametrize("rate", [1, 100, 900])
def test_a_few_bytes_that_claim_to_be_an_hour_of_nothing_audible_are_refused(rate: int) -> None:
    with pytest.raises(MediaUnsupportedError, match=f"{rate} samples a second"):
        decode(wav(np.zeros(3000, np.float32), rate), LIMITS)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_samples_that_are_no_numbers_become_sound_within_its_range(value: float) -> None:
    sound = tone(440, 1.0, 16_000)
    sound[1000] = value
    samples = decode(encoded(sound, 16_000, "wav", "pcm_f32le", "mono"), LIMITS)
    assert np.isfinite(samples).all()
    assert np.abs(samples).max() <= 1.0
    assert loudest_hz(samples[2000:], 16_000) == pytest.approx(440, abs=2)


def test_long_sound_is_held_once() -> None:
    file = wav(tone(440, 300, 8_000), 8_000)
    decode(file[: len(file) // 100], LIMITS)
    tracemalloc.start()
    samples = decode(file, LIMITS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(samples) == pytest.approx(300 * 16_000, abs=40)
    assert peak < 1.3 * samples.nbytes


def test_a_file_that_is_longer_than_its_head_says_is_heard_to_its_end() -> None:
    data = bytearray(wav(tone(440, 20.0, 8_000), 8_000))
    data[40:44] = b"\xff\xff\xff\xff"
    data[4:8] = b"\xff\xff\xff\xff"
    assert len(decode(bytes(data), LIMITS)) == pytest.approx(320_000, abs=40)
