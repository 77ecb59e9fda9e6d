"""Qwen2.5-Omni's thinker: pictures and films as Qwen2.5-VL takes them, sound in windows of two seconds.

Source: Xu et al., Qwen2.5-Omni (2025), section 2.
"""

from __future__ import annotations

from typing import Any

from runtime.graphs.encoders.family import EncoderFamily, EncoderJob, Encoders
from runtime.graphs.encoders.hearing import HearingNames, HearingShape, hearing, sinusoids
from runtime.graphs.encoders.qwen_audio import AUDIO, check_heard
from runtime.graphs.encoders.qwen_tower import QwenTowerShape
from runtime.graphs.encoders.qwen_vl import vision
from runtime.graphs.families.config import ModelConfig

_MARKS = {
    "vision_begin": "<|vision_bos|>", "vision_end": "<|vision_eos|>", "begin": "<|audio_bos|>", "end": "<|audio_eos|>",
}  # fmt: skip
_TOKENS = {"image": 151_655, "video": 151_656, "audio": 151_646}
_FRAMES_PER_SECOND = 100


def _build(job: EncoderJob) -> Encoders:
    config = job.config
    tower = QwenTowerShape.read(config.inner("vision_config") or ModelConfig({}), job.hidden, windows=True, apart=True)
    ticks = config.number("position_id_per_seconds", 25)
    seen = vision(job, tower, ticks)
    graph, heard = _audio(job)
    job.need(*_MARKS.values())
    numbers = {
        f"{kind}_token": config.size(f"{kind}_token_index", config.size(f"{kind}_token_id", number))
        for kind, number in _TOKENS.items()
    }
    parameters = {
        **seen.parameters,
        **heard,
        **_MARKS,
        **{name: job.token(number) for name, number in numbers.items()},
        "encoders": {**seen.parameters["encoders"], "audio": AUDIO},
        # A film leaves room for its sound.
        "most_tokens": job.context // 2,
        "ticks_per_block": int(ticks * config.number("seconds_per_chunk", 2)),
    }
    return Encoders({**seen.graphs, AUDIO: graph}, parameters)


def _audio(job: EncoderJob) -> tuple[Any, dict[str, Any]]:
    config = job.config.inner("audio_config") or ModelConfig({})
    shape = HearingShape.read(config)
    audio = job.preprocessing.audio
    check_heard(audio, shape.mels)
    # Rows for ends of a sound that only the talker knows.
    job.read("audio.audio_bos_eos_token.weight", 2, job.hidden)
    window = 2 * config.size("n_window", 100, most=1500)
    names = HearingNames("audio.ln_post", "audio.proj", sinusoids(shape.positions, shape.tower.hidden))
    return hearing(shape, job.read, names, job.hidden), {
        "mels": shape.mels,
        "window_frames": window,
        "padded_frames": audio.size("chunk_length", 300) * _FRAMES_PER_SECOND,
    }


FAMILY = EncoderFamily(
    model_types=("qwen2_5_omni", "qwen2_5_omni_thinker"),
    modalities=("image", "video", "audio"),
    homes={
        f"{whole}{stored}": ours
        for whole in ("", "thinker.")
        for stored, ours in (("visual.", "vision."), ("audio_tower.", "audio."))
    },
    build=_build,
    ignored=("talker.", "token2wav."),
    inside="thinker_config",
)
