"""Qwen2-VL and Qwen2.5-VL: pictures and films of any shape, in tokens of 28 × 28 pixels.

Source: Wang et al., Qwen2-VL (2024); Bai et al., Qwen2.5-VL (2025); how films are looked at: `vision_process.py` of
Qwen's qwen-vl-utils.
"""

from __future__ import annotations

from typing import Any

from bus.errors import ModelUnsupportedError
from runtime.graphs.encoders.family import EncoderFamily, EncoderJob, Encoders
from runtime.graphs.encoders.pixels import Normalisation
from runtime.graphs.encoders.preprocessing import Preprocessing
from runtime.graphs.encoders.qwen_tower import QwenTowerShape, qwen_vision
from runtime.graphs.families.config import ModelConfig

VISION = "vision.onnx"
"""The graph's file."""

_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_BICUBIC = 3
_TOKEN = 28 * 28
_FILM_TOKENS = 128_000
_SHARE = 3 / 4
"""Of a prompt and its answer that one picture or film may be, where nobody asks for more."""


def vision(job: EncoderJob, shape: QwenTowerShape, ticks_per_second: float | None) -> Encoders:
    """The vision graph, and what pictures and films are prepared by.

    Args:
        job: What it is built from.
        shape: Sizes and choices of the tower.
        ticks_per_second: How far time goes on in positions; None: by one from patch to patch.

    Raises:
        ModelUnsupportedError: Films that are normalised otherwise than pictures, or preparation without resizing.
        ModelCorruptError: Values that are missing or make no sense.
    """
    image, normalisation = job.preprocessing.image, Normalisation.read(job.preprocessing.image, _MEAN, _STD)
    if not image.flag("do_resize", True):
        raise ModelUnsupportedError(f"{image.file} turns do_resize off, which is not built here")
    parameters = {
        "encoders": {"image": VISION, "video": VISION},
        "patch": shape.patch,
        "frames": shape.frames,
        "merge": shape.merge,
        "window": shape.window,
        "resample": image.get("resample", _BICUBIC),
        "image": _pixels(image, 4 * _TOKEN, 1280 * _TOKEN),
        "video": _video(job.preprocessing, normalisation),
        "ticks_per_second": ticks_per_second,
        "most_tokens": int(job.context * _SHARE),
    }
    return Encoders({VISION: qwen_vision(shape, job.read, normalisation)}, parameters)


def _video(preprocessing: Preprocessing, normalisation: Normalisation) -> dict[str, Any]:
    # What a folder says of pictures alone is not meant for films, each frame of which would cost as much as a picture.
    video = ModelConfig({}) if preprocessing.video is preprocessing.image else preprocessing.video
    if Normalisation.read(video.filled(**_normalised(preprocessing.image)), _MEAN, _STD) != normalisation:
        raise ModelUnsupportedError(f"{video.file} normalises films otherwise than pictures, which is not built here")
    return {
        **_pixels(video, 128 * _TOKEN, 768 * _TOKEN),
        "frames_per_second": video.number("fps", 2.0),
        "min_frames": video.size("min_frames", 4),
        "max_frames": video.size("max_frames", 768),
        "tokens": video.size("max_video_tokens", _FILM_TOKENS),
    }


def _normalised(image: ModelConfig) -> dict[str, Any]:
    names = ("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std")
    return {name: image.get(name) for name in names if image.get(name) is not None}


def _pixels(config: ModelConfig, fewest: int, most: int) -> dict[str, int]:
    """The fewest and the most pixels of a picture, in their newer form or the older one."""
    size = config.inner("size") or ModelConfig({}, file=config.file)
    found = {
        "min_pixels": config.size("min_pixels", size.size("shortest_edge", fewest)),
        "max_pixels": config.size("max_pixels", size.size("longest_edge", most)),
    }
    if found["min_pixels"] > found["max_pixels"]:
        raise config.wrong("min_pixels", f"at most max_pixels, {found['max_pixels']}")
    return found


def _build(job: EncoderJob, *, windows: bool) -> Encoders:
    config = job.config.inner("vision_config") or ModelConfig({})
    shape = QwenTowerShape.read(config, job.hidden, windows=windows)
    built = vision(job, shape, config.number("tokens_per_second", 4) if windows else None)
    tokens = {
        "image_token": job.token(job.config.size("image_token_id", 151_655)),
        "video_token": job.token(job.config.size("video_token_id", 151_656)),
    }
    return Encoders(built.graphs, {**built.parameters, **tokens})


def _build_2(job: EncoderJob) -> Encoders:
    return _build(job, windows=False)


def _build_2_5(job: EncoderJob) -> Encoders:
    return _build(job, windows=True)


_HOMES = {"visual.": "vision.", "model.visual.": "vision."}
FAMILY = EncoderFamily(model_types=("qwen2_vl",), modalities=("image", "video"), homes=_HOMES, build=_build_2)
FAMILY_2_5 = EncoderFamily(model_types=("qwen2_5_vl",), modalities=("image", "video"), homes=_HOMES, build=_build_2_5)
