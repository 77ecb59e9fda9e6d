"""Qwen2-Audio: clips of up to half a minute, 25 tokens a second.

Source: Chu et al., Qwen2-Audio (2024), section 2.
"""

from __future__ import annotations

from typing import Any

from bus.errors import ModelUnsupportedError
from runtime.graphs.encoders.family import EncoderFamily, EncoderJob, Encoders
from runtime.graphs.encoders.hearing import HearingNames, HearingShape, hearing
from runtime.graphs.families.config import ModelConfig

AUDIO = "audio.onnx"
"""The graph's file."""

_HEARD = {"sampling_rate": 16_000, "hop_length": 160, "n_fft": 400}
_BEGIN, _END = "<|audio_bos|>", "<|audio_eos|>"


def check_heard(audio: ModelConfig, mels: int) -> None:
    """Make sure that sound is prepared as it is here.

    Raises:
        ModelUnsupportedError: Another sample rate, hop, window or number of bands, or noise on top.
    """
    audio.refuse("dither")
    for name, taken in {**_HEARD, "feature_size": mels}.items():
        if audio.size(name, taken) != taken:
            raise ModelUnsupportedError(f"{audio.file} gives {name} as {audio.get(name)!r}; {taken} is what is taken")


def _build(job: EncoderJob) -> Encoders:
    shape = HearingShape.read(job.config.inner("audio_config") or ModelConfig({}))
    check_heard(job.preprocessing.audio, shape.mels)
    places = job.read("audio.embed_positions.weight", shape.positions, shape.tower.hidden)
    names = HearingNames("audio.layer_norm", "projector.linear", places)
    token = job.token(job.config.size("audio_token_index", job.config.size("audio_token_id", 151_646)))
    job.need(_BEGIN, _END)
    parameters: dict[str, Any] = {
        "encoders": {"audio": AUDIO},
        "mels": shape.mels,
        # Two mel frames become a row of the tower.
        "window_frames": 2 * shape.positions,
        "audio_token": token,
        "begin": _BEGIN,
        "end": _END,
    }
    return Encoders({AUDIO: hearing(shape, job.read, names, job.hidden)}, parameters)


FAMILY = EncoderFamily(
    model_types=("qwen2_audio",),
    modalities=("audio",),
    homes={
        "audio_tower.": "audio.",
        "multi_modal_projector.": "projector.",
        "model.audio_tower.": "audio.",
        "model.multi_modal_projector.": "projector.",
    },
    build=_build,
)
