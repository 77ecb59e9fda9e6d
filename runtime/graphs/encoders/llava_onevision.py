"""LLaVA-OneVision: squares of a picture in its best grid, a SigLIP tower, and a projector of two layers.

Source: Li et al., LLaVA-OneVision (2024), section 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bus.errors import ModelUnsupportedError
from runtime.graphs.encoders.family import EncoderFamily, EncoderJob, Encoders
from runtime.graphs.encoders.patches import PatchShape, embedding, positions, square_patches
from runtime.graphs.encoders.pixels import Normalisation, resampling
from runtime.graphs.encoders.transformer import Tower, TowerShape, linear
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.ops import Graph

_FILE = "vision.onnx"
_BICUBIC = 3
_MEAN = (0.48145466, 0.4578275, 0.40821073)
_STD = (0.26862954, 0.26130258, 0.27577711)
# What configurations leave out.
_TOWER = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 26, "num_attention_heads": 16,
    "image_size": 384, "patch_size": 14,
}  # fmt: skip
_MOST_TILES = 256
_EDGES = range(384, 2305, 384)
_ACTIVATIONS = {"gelu": "none", "gelu_pytorch_tanh": "tanh", "gelu_new": "tanh"}
_HOMES = {
    "model.vision_tower.": "vision.",
    "model.vision_tower.vision_model.": "vision.",
    "vision_tower.": "vision.",
    "vision_tower.vision_model.": "vision.",
    "model.multi_modal_projector.": "projector.",
    "multi_modal_projector.": "projector.",
    "model.image_newline": "newline",
    "image_newline": "newline",
}


def _build(job: EncoderJob) -> Encoders:
    config, image = job.config, job.preprocessing.image
    tower = _tower(config)
    cut, tile = PatchShape.read(tower), tower.size("image_size")
    _check(config, image, tile)
    grids = config.get("image_grid_pinpoints", [[height, width] for height in _EDGES for width in _EDGES])
    parameters: dict[str, Any] = {
        "encoders": {"image": _FILE, "video": _FILE},
        "tile": tile,
        "side": cut.trained,
        "patch": cut.patch,
        "grids": _grids(config, grids, tile),
        "most_tiles": _most_tiles(config),
        "resample": resampling(image, _BICUBIC),
        "background": [min(max(int(mean * 255), 0), 255) for mean in Normalisation.read(image, _MEAN, _STD).mean],
        "image_token": job.token(_number(config, "image_token_index", "image_token_id", 151_646)),
        "video_token": job.token(_number(config, "video_token_index", "video_token_id", 151_647)),
        "frames": job.preprocessing.video.size("num_frames", 32),
        "frames_per_second": job.preprocessing.video.number("fps", 1.0, most=1000),
    }
    layers = range(_feature_layer(config, tower.size("num_hidden_layers")), tower.size("num_hidden_layers"))
    unused = ["vision.head.", "vision.post_layernorm.", *(f"vision.encoder.layers.{layer}." for layer in layers)]
    return Encoders({_FILE: _graph(job, tower, tile)}, parameters, tuple(unused))


def _graph(job: EncoderJob, tower: ModelConfig, tile: int) -> Graph:
    """Build the graph.

    Input `pixels` uint8 (tile, row, column, channel); outputs `embeddings` float32 (tile, token, hidden) and `newline`
    float32 (hidden,), what stands behind each row of a picture.
    """
    shape, cut, read = TowerShape.read(tower), PatchShape.read(tower), job.read
    graph, side = Graph("llava_onevision"), cut.trained
    pixels = graph.input("pixels", np.uint8, ("tile", tile, tile, 3))
    matrix, bias = embedding(read, cut, Normalisation.read(job.preprocessing.image, _MEAN, _STD), "vision.")
    value = square_patches(graph, pixels, side, cut.patch, matrix, positions(read, cut, "vision.") + bias)
    count = _feature_layer(job.config, shape.layers)
    value = Tower(graph, read, shape, "vision.").layers(value, count=count, norm=None)
    biased = job.config.flag("multimodal_projector_bias", True)
    value = linear(graph, read, value, "projector.linear_1", (job.hidden, shape.hidden), bias=biased)
    bend = job.config.choice("projector_hidden_act", _ACTIVATIONS, "gelu")
    value = graph.node("Gelu", [value], approximate=bend)
    value = linear(graph, read, value, "projector.linear_2", (job.hidden, job.hidden), bias=biased)
    graph.output(value, "embeddings", np.float32, ("tile", side * side, job.hidden))
    graph.output(graph.weight("newline.row", read("newline", job.hidden)), "newline", np.float32, (job.hidden,))
    return graph


def _tower(config: ModelConfig) -> ModelConfig:
    tower = config.inner("vision_config") or ModelConfig({})
    if tower.get("model_type", "siglip_vision_model") != "siglip_vision_model":
        raise ModelUnsupportedError(
            f"config.json has a tower of model_type {tower.get('model_type')!r}; siglip_vision_model is built"
        )
    return tower.filled(**_TOWER)


def _check(config: ModelConfig, image: ModelConfig, tile: int) -> None:
    """What would make other tokens than the ones that are laid out here."""
    if config.get("vision_feature_select_strategy", "full") != "full":
        raise ModelUnsupportedError("config.json asks for a tower's features without the first; all are taken")
    size = image.inner("size") or ModelConfig({})
    given = size.get("height", size.get("shortest_edge", tile))
    if given != tile or size.get("width", tile) != tile:
        raise ModelUnsupportedError(f"{image.file} makes pictures of {given} pixels, and the tower takes {tile}")
    image.refuse("do_center_crop")
    if not image.flag("do_resize", True):
        raise ModelUnsupportedError(f"{image.file} turns do_resize off, which is not built here")


def _grids(config: ModelConfig, grids: Any, tile: int) -> list[list[int]]:
    """Sizes that pictures are cut from, height and width."""
    whole = isinstance(grids, list) and all(
        isinstance(grid, list) and len(grid) == 2 and all(type(edge) is int and edge > 0 for edge in grid)
        for grid in grids
    )
    tiles = [grid[0] * grid[1] / tile**2 for grid in grids] if whole else []
    if not tiles or max(tiles) > _MOST_TILES or any(edge % tile for grid in grids for edge in grid):
        raise config.wrong("image_grid_pinpoints", f"sizes that at most {_MOST_TILES} squares of {tile} pixels fill")
    return [list(grid) for grid in grids]


def _most_tiles(config: ModelConfig) -> int:
    """Tiles beyond which the tokens of a picture are made fewer."""
    given = config.get("vision_aspect_ratio", "anyres_max_9")
    most = str(given).removeprefix("anyres_max_")
    if not most.isdigit() or not int(most):
        raise ModelUnsupportedError(f"config.json gives vision_aspect_ratio {given!r}; anyres_max_<tiles> is built")
    return int(most)


def _feature_layer(config: ModelConfig, layers: int) -> int:
    """How many layers of the tower are run."""
    given = config.get("vision_feature_layer", -1)
    if type(given) is not int or not -layers - 1 <= given <= layers:
        raise ModelUnsupportedError(f"config.json takes features of layers {given!r}; one of {layers} is built")
    return given if given >= 0 else layers + 1 + given


def _number(config: ModelConfig, older: str, newer: str, default: int) -> int:
    return config.size(older, config.size(newer, default))


FAMILY = EncoderFamily(model_types=("llava_onevision",), modalities=("image", "video"), homes=_HOMES, build=_build)
