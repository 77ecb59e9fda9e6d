"""Transcripts as subtitles."""

from __future__ import annotations

from collections.abc import Iterable

from functions.stages.parts import SpeechSegment


def to_srt(segments: Iterable[SpeechSegment]) -> str:
    """SubRip: numbered blocks with a comma before the milliseconds."""
    blocks = [
        f"{number}\n{_clock(segment.start_s, ',')} --> {_clock(segment.end_s, ',')}\n{_line(segment)}\n"
        for number, segment in enumerate(segments, start=1)
    ]
    return "\n".join(blocks)


def to_vtt(segments: Iterable[SpeechSegment]) -> str:
    """WebVTT.

    Source: W3C WebVTT, section 4.1.
    """
    blocks = [
        f"{_clock(segment.start_s, '.')} --> {_clock(segment.end_s, '.')}\n{_escaped(_line(segment))}\n"
        for segment in segments
    ]
    return "\n".join(["WEBVTT\n", *blocks])


def _clock(seconds: float, point: str) -> str:
    whole, milliseconds = divmod(round(max(0.0, seconds) * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{milliseconds:03}"


def _line(segment: SpeechSegment) -> str:
    # A blank line would end the block.
    return " ".join(segment.text.split())


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
