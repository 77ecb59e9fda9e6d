from __future__ import annotations

from functions.gateway.subtitles import to_srt, to_vtt
from functions.stages.parts import SpeechSegment

_SEGMENTS = (
    SpeechSegment(start_s=0.0, end_s=1.2345, text="One\n\ntwo"),
    SpeechSegment(start_s=59.9996, end_s=3723.5, text="a < b & c --> d"),
)


def test_srt_counts_blocks_and_rounds_to_milliseconds() -> None:
    assert to_srt(_SEGMENTS) == (
        "1\n00:00:00,000 --> 00:00:01,234\nOne two\n\n2\n00:01:00,000 --> 01:02:03,500\na < b & c --> d\n"
    )


def test_vtt_escapes_what_would_be_markup() -> None:
    assert to_vtt(_SEGMENTS) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.234\nOne two\n\n00:01:00.000 --> 01:02:03.500\na &lt; b &amp; c --&gt; d\n"
    )


def test_silence_has_no_blocks() -> None:
    assert to_srt(()) == ""
    assert to_vtt(()) == "WEBVTT\n"
