"""Idefics2: pictures in their own shape, a SigLIP tower, and a perceiver that makes the same few tokens of each.

Source: Laurençon et al., What matters when building vision-language models? (2024), section 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bus.errors import ModelCorruptError, ModelUnsupportedError
from runtime.graphs.encoders.family import EncoderFamily, EncoderJob, Encoders
from runtime.graphs.encoders.patches import FLOAT, PatchShape, embedding, positions
from runtime.graphs.encoders.perceiver import BENDS, Perceiver, PerceiverShape, gated
from runtime.graphs.encoders.pixels import Normalisation, resampling
from runtime.graphs.encoders.transformer import Tower, TowerShape
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.families.known import text_model
from runtime.graphs.ops import Graph

_FILE = "vision.onnx"
_HALF = (0.5, 0.5, 0.5)
_BILINEAR = 2
_FAKE = "<fake_token_around_image>"
# What configurations leave out.
_TOWER = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "image_size": 224, "patch_size": 32,
}  # fmt: skip
_HOMES = {"model.vision_model.": "vision.", "model.connector.": "connector."}


def _build(job: EncoderJob) -> Encoders:
    image = job.preprocessing.image
    text = text_model(job.config)
    perceiver = PerceiverShape.read(
        job.config.inner("perceiver_config") or ModelConfig({}), job.hidden, text.number("rms_norm_eps", 1e-6)
    )
    given = job.preprocessing.processor.size("image_seq_len", perceiver.latents)
    if given != perceiver.latents:
        raise ModelCorruptError(
            f"the processor writes {given} tokens for a picture, the encoder makes {perceiver.latents}"
        )
    if not image.flag("do_resize", True):
        raise ModelUnsupportedError(f"{image.file} turns do_resize off, which is not built here")
    job.need(_FAKE)
    tower = _tower(job.config)
    size = image.inner("size") or ModelConfig({})
    cut = PatchShape.read(tower)
    parameters: dict[str, Any] = {
        "encoders": {"image": _FILE},
        "patch": cut.patch,
        "latents": perceiver.latents,
        "shortest_edge": max(cut.patch, size.size("shortest_edge", 378, most=4096)),
        "longest_edge": size.size("longest_edge", 980, most=65_536),
        "splitting": image.flag("do_image_splitting", False),
        "resample": resampling(image, _BILINEAR),
        "trained": cut.trained,
        "image_token": job.token(job.config.size("image_token_id", 32_001)),
        "around": _FAKE,
    }
    return Encoders({_FILE: _graph(job, tower, perceiver, text)}, parameters)


def _tower(config: ModelConfig) -> ModelConfig:
    return (config.inner("vision_config") or ModelConfig({})).filled(**_TOWER)


def _graph(job: EncoderJob, tower: ModelConfig, perceiver: PerceiverShape, text: ModelConfig) -> Graph:
    """Build the graph.

    Inputs: `patches` uint8 (patch, row · column · channel), those of all pictures one behind the other, pictures of as
    many patches beside each other; `places` int64 (patch,), the row of the table of positions of each; `runs` int64
    (run, 3), see `attention_over_runs`; `tiles` int64 (run, 2), the first picture of each run and the one behind its
    last; `order` int64 (tile,), which picture comes out where.
    Output: `embeddings` float32 (tile, latent, hidden).
    """
    shape, cut, read = TowerShape.read(tower), PatchShape.read(tower), job.read
    graph = Graph("idefics2")
    patches = graph.input("patches", np.uint8, ("patch", cut.patch**2 * 3))
    places = graph.input("places", np.int64, ("patch",))
    runs, tiles = graph.input("runs", np.int64, ("run", 3)), graph.input("tiles", np.int64, ("run", 2))
    order = graph.input("order", np.int64, ("tile",))
    matrix, bias = embedding(read, cut, Normalisation.read(job.preprocessing.image, _HALF, _HALF), "vision.")
    row = graph.node("Unsqueeze", [graph.node("Cast", [patches], to=FLOAT), graph.constant(0)])
    table = graph.weight("patches.positions", positions(read, cut, "vision.") + bias)
    value = graph.node("Add", [graph.matmul(row, "patch_embedding", matrix), graph.node("Gather", [table, places])])
    value = Tower(graph, read, shape, "vision.").layers(value, norm="post_layernorm", runs=runs)
    bend = text.choice("hidden_act", dict(zip(BENDS, BENDS, strict=True)), "silu")
    sizes = (shape.hidden, text.size("intermediate_size"), job.hidden)
    value = gated(graph, read, value, "connector.modality_projection", sizes, bend)
    value = Perceiver(graph, read, perceiver, "connector.perceiver_resampler.").resample(value, runs, tiles)
    value = graph.node("Gather", [value, order])
    graph.output(value, "embeddings", np.float32, ("tile", perceiver.latents, job.hidden))
    return graph


FAMILY = EncoderFamily(model_types=("idefics2",), modalities=("image",), homes=_HOMES, build=_build)
