"""Qwen's families through the stages: films and pictures on positions of three axes, clips between words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bus.contracts import MediaLimits
from runtime.media import audio
from runtime.media.video import open_video
from runtime.multimodal.family import Detail, Film
from tests.functions.stages.test_native_families import COUNT, png, serving, user, written
from tests.made.films import drifting, film
from tests.made.sounds import wav
from tests.runtime.multimodal import merged, qwen_audio_pair, qwen_vl_pair
from tests.runtime.multimodal.drawn import scene
from tests.runtime.multimodal.heard import RATE, sound

LIMITS = MediaLimits()


def said(words: Any, tokens: list[int]) -> str:
    ends = [place for place, token in enumerate(tokens) if token == words.eos_token_id]
    return str(words.decode(tokens[: ends[0]] if ends else tokens, skip_special_tokens=True)).replace("\ufffd", "")


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl"])
async def test_films_and_pictures_of_several_turns_get_the_answer_of_the_reference(name: str, tmp_path: Path) -> None:
    pair = qwen_vl_pair.make(tmp_path / "saved", tmp_path / "root", name)
    data = film(range(0, 3000, 100), width=96, height=64, container="mp4", drawn=drifting(96, 64))
    family = pair.served.family
    with open_video(data, LIMITS) as video:
        moments = family.frames(video.seconds, video.frames_per_second, Detail())
        shown = Film([frame.image for frame in video.frames.at(moments)], moments, video.seconds)
    pictures = [scene(300, 170), scene(60, 200, 2)]
    turns = [
        user({"part": 0}, {"text": "and"}, {"part": 1}),
        {"role": "assistant", "content": [{"text": "Waves."}]},
        user({"text": "Again:"}, {"part": 2}, {"text": "?"}),
    ]
    media = [png(pictures[0]), data, png(pictures[1])]
    # Jinja takes the line break at the end of a template away.
    text = (
        f"<|im_start|>user\n{qwen_vl_pair.PICTURE}and{qwen_vl_pair.FILM}<|im_end|>\n"
        f"<|im_start|>assistant\nWaves.<|im_end|>\n"
        f"<|im_start|>user\nAgain:{qwen_vl_pair.PICTURE}?<|im_end|>\n<|im_start|>assistant"
    )
    right = pair.right(text, pictures, [shown])
    async with serving(tmp_path / "root") as ask:
        found = await ask(turns, media, "application/octet-stream")
    assert found["text"] == said(pair.words, merged.greedy(pair.model, right.embedded, COUNT, right.positions))
    assert found["usage"]["prompt_tokens"] == len(right.ids)


async def test_clips_between_words_get_the_answer_of_the_reference(tmp_path: Path) -> None:
    pair = qwen_audio_pair.make(tmp_path / "saved", tmp_path / "root")
    clips = [wav(sound(20_000), RATE), wav(sound(9000, 2), RATE)]
    turns = [
        user({"part": 0}, {"text": "What is this?"}),
        {"role": "assistant", "content": [{"text": "A tone."}]},
        user({"text": "Is it higher than"}, {"part": 1}),
    ]
    text = written(pair.words, turns, "audio")
    assert "You are a helpful assistant" in text
    assert f"Audio 2: {qwen_audio_pair.CLIP}" in text
    right = pair.right(text, *(audio.decode(clip, LIMITS) for clip in clips))
    async with serving(tmp_path / "root") as ask:
        found = await ask(turns, clips, "audio/wav")
    assert found["text"] == said(pair.words, merged.greedy(pair.model, right.embedded, COUNT))
    assert found["usage"]["prompt_tokens"] == len(right.ids)
