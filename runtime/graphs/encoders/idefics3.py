"""Idefics3 and SmolVLM: square tiles, a SigLIP tower, and a connector that puts neighbouring patches into one token.

Source: Laurençon et al., Building and better understanding vision-language models (2024), section 3.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.graphs.encoders.family import EncoderFamily, EncoderJob, Encoders
from runtime.graphs.encoders.patches import MOST_ON_A_SIDE, PatchShape, embedding, positions, square_patches
from runtime.graphs.encoders.pixels import Normalisation, resampling
from runtime.graphs.encoders.transformer import Tower, TowerShape, linear
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.ops import Graph
from runtime.multimodal.shares import shares

_FILE = "vision.onnx"
_HALF = (0.5, 0.5, 0.5)
_LANCZOS = 1
_FAKE, _GLOBAL, _VIDEO = "<fake_token_around_image>", "<global-img>", "<video>"
# How templates write a picture: the part's type and what stands for it.
_PICTURE = re.compile(
    r"""{%-? elif (\w+(?:\.type|\['type'\]|\["type"\])) == 'image' -?%}(?:<image>|{{ ?'<image>' ?}})"""
)
# What configurations leave out.
_TOWER = {
    "hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 16,
    "image_size": 224, "patch_size": 32,
}  # fmt: skip
_HOMES = {"model.vision_model.": "vision.", "model.connector.": "connector."}


def _build(job: EncoderJob) -> Encoders:
    image = job.preprocessing.image
    tile, side = _tile(job.config, image)
    parameters = {**_pictures(job, image, tile, side), "encoders": {"image": _FILE}}
    return Encoders({_FILE: _graph(job, tile, side)}, parameters)


def _build_smolvlm(job: EncoderJob) -> Encoders:
    built = _build(job)
    video = _films(job, built.parameters["tile"])
    encoders = {"image": _FILE, "video": _FILE}
    return Encoders(built.graphs, {**built.parameters, "video": video, "encoders": encoders})


def _tile(config: ModelConfig, image: ModelConfig) -> tuple[int, int]:
    """Pixels on the side of a tile, and tokens on it; pixels that are left of whole patches are not looked at."""
    tower, scale = _tower(config), config.size("scale_factor", 2)
    tile = _edge(image, "max_image_size", 364)
    patch = PatchShape.read(tower).patch
    if tile // patch % scale or not 1 <= tile // patch <= MOST_ON_A_SIDE:
        raise ModelUnsupportedError(
            f"{image.file} cuts tiles of {tile} pixels: {tile // patch} patches of {patch} on a side are no squares of "
            f"{scale} × {scale}"
        )
    return tile, tile // patch // scale


def _tower(config: ModelConfig) -> ModelConfig:
    return (config.inner("vision_config") or ModelConfig({})).filled(**_TOWER)


def _graph(job: EncoderJob, tile: int, side: int) -> Graph:
    """Input `pixels` uint8 (tile, row, column, channel); output `embeddings` float32 (tile, token, hidden)."""
    tower, scale, read = _tower(job.config), job.config.size("scale_factor", 2), job.read
    shape, cut = TowerShape.read(tower), PatchShape.read(tower)
    graph, rows = Graph("idefics3"), side * scale
    pixels = graph.input("pixels", np.uint8, ("tile", tile, tile, 3))
    matrix, bias = embedding(read, cut, Normalisation.read(job.preprocessing.image, _HALF, _HALF), "vision.")
    places = shares(rows, cut.trained)
    table = positions(read, cut, "vision.")[(places[:, None] * cut.trained + places).reshape(-1)]
    value = square_patches(graph, pixels, rows, cut.patch, matrix, table + bias)
    value = Tower(graph, read, shape, "vision.").layers(value, norm="post_layernorm")
    # Squares of neighbours become one token, row by row.
    value = graph.node("Reshape", [value, graph.constant(0, side, scale, side, scale, shape.hidden)])
    value = graph.node("Transpose", [value], perm=[0, 1, 3, 2, 4, 5])
    wide = scale * scale * shape.hidden
    value = graph.node("Reshape", [value, graph.constant(0, side * side, wide)])
    value = linear(graph, read, value, "connector.modality_projection.proj", (job.hidden, wide), bias=False)
    graph.output(value, "embeddings", np.float32, ("tile", side * side, job.hidden))
    return graph


def _pictures(job: EncoderJob, image: ModelConfig, tile: int, side: int) -> dict[str, Any]:
    given = job.preprocessing.processor.size("image_seq_len", side * side)
    if given != side * side:
        raise ModelCorruptError(f"the processor writes {given} tokens for a tile, the encoder makes {side * side}")
    if not image.flag("do_resize", True):
        raise ModelUnsupportedError(f"{image.file} turns do_resize off, which is not built here")
    job.need(_FAKE)
    patch = PatchShape.read(_tower(job.config)).patch
    return {
        "tile": tile,
        "side": side,
        "seen": tile // patch * patch / tile,
        "longest_edge": _edge(image, "size", 4 * 364),
        "splitting": image.flag("do_image_splitting", True),
        "resample": resampling(image, _LANCZOS),
        "image_token": job.token(job.config.size("image_token_id", 128_257)),
        "around": _FAKE,
        "whole": _GLOBAL,
    }


def _films(job: EncoderJob, tile: int) -> dict[str, Any]:
    """How films are looked at; older folders keep it beside the pictures."""
    video = job.preprocessing.video
    sampling = video.inner("video_sampling") or video
    # The reference lets the pictures' size win over what was written for films.
    size = video.inner("size") or sampling.inner("video_size") or ModelConfig({})
    return {
        "frames": sampling.size("max_frames", sampling.size("num_frames", 64)),
        "frames_per_second": sampling.number("fps", 1.0, most=1000),
        "longest_edge": size.size("longest_edge", tile),
        "token": _VIDEO,
    }


def _with_films(template: str) -> str:
    """A chat template that has a place for films: the ones on the hub are older than those are."""
    return template if _VIDEO in template else _PICTURE.sub(rf"\g<0>{{% elif \1 == 'video' %}}{_VIDEO}", template)


def _edge(image: ModelConfig, name: str, default: int) -> int:
    """A size that is given by its longest edge."""
    given = image.inner(name)
    if given is None:
        return default
    if given.get("longest_edge") is None:
        raise ModelUnsupportedError(f"{image.file} gives {name} as {dict.fromkeys(given)!r}; a longest_edge is taken")
    return given.size("longest_edge", most=65_536)


FAMILY = EncoderFamily(model_types=("idefics3",), modalities=("image",), homes=_HOMES, build=_build)
SMOLVLM = EncoderFamily(
    model_types=("smolvlm",),
    modalities=("image", "video"),
    homes=_HOMES,
    build=_build_smolvlm,
    template=_with_films,
)
