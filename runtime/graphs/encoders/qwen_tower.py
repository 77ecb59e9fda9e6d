"""The vision tower of Qwen2-VL and what came after it: pictures of any shape in one row of patches.

Patches of all pictures and frames lie one behind the other, so that matrices waste nothing on padding; attention looks
within a frame, or, in most layers of the later models, within a window of it (`runs`).

Source: Wang et al., Qwen2-VL (2024), section 2.1; Bai et al., Qwen2.5-VL (2025), section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bus.errors import ModelUnsupportedError
from runtime.graphs.encoders.patches import FLOAT
from runtime.graphs.encoders.pixels import Floats, Normalisation
from runtime.graphs.encoders.runs import attention_over_runs
from runtime.graphs.encoders.transformer import linear
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.ops import MICROSOFT, Graph
from runtime.weights.tensors import CheckedTensors

_EPSILON = 1e-6
_MOST, _DEEPEST = 65_536, 4096
# x · sigmoid(alpha · x): GELU's quick form, and SiLU.
_BENDS = {"quick_gelu": 1.702, "silu": 1.0, "swish": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class QwenTowerShape:
    """Sizes and choices of a tower.

    Attributes:
        layers: How many there are.
        hidden: Width.
        heads: Attention heads.
        feed_forward: Width inside the feed-forward.
        bend: Factor inside the sigmoid of its nonlinearity.
        patch: Rows and columns of pixels in a patch.
        frames: Frames in a patch.
        merge: Rows and columns of patches that become one token.
        out: Width of the decoder's embeddings.
        whole: Layers that look at whole frames, the others at windows; None: all look at whole frames, and norms and
            feed-forward are those of the first model.
        window: Rows and columns of tokens in a window.
        apart: Whether queries, keys and values are stored in matrices of their own.
    """

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    bend: float
    patch: int
    frames: int
    merge: int
    out: int
    whole: tuple[int, ...] | None = None
    window: int = 0
    apart: bool = False

    @classmethod
    def read(cls, config: ModelConfig, out: int, *, windows: bool, apart: bool = False) -> QwenTowerShape:
        """Read a `vision_config`.

        Args:
            config: The configuration.
            out: Width of the decoder's embeddings.
            windows: Whether it is of a model with windows.
            apart: See the attribute.

        Raises:
            ModelUnsupportedError: Pictures of other than three channels, or an activation that is not known.
            ModelCorruptError: Sizes that are missing or do not fit together.
        """
        if config.size("in_channels", config.size("in_chans", 3)) != 3:
            raise ModelUnsupportedError(f"{config.file} asks for pictures of other than 3 channels; 3 are taken")
        hidden = config.size("hidden_size" if windows else "embed_dim", most=_MOST)
        heads = config.size("num_heads", most=_MOST)
        if hidden % heads or (hidden // heads) % 8:
            raise config.wrong("num_heads", f"a number that cuts a width of {hidden} into heads of whole eights")
        patch, merge = config.size("patch_size", 14, most=1024), config.size("spatial_merge_size", 2, most=64)
        found = config.size("out_hidden_size" if windows else "hidden_size", out)
        if found != out:
            raise config.wrong("out_hidden_size" if windows else "hidden_size", f"the decoder's width, {out}")
        return cls(
            layers=config.size("depth", most=_DEEPEST),
            hidden=hidden,
            heads=heads,
            feed_forward=config.size("intermediate_size") if windows else int(hidden * config.number("mlp_ratio", 4)),
            bend=config.choice("hidden_act", _BENDS, "silu" if windows else "quick_gelu"),
            patch=patch,
            frames=config.size("temporal_patch_size", 2, most=64),
            merge=merge,
            out=out,
            whole=_whole(config) if windows else None,
            window=max(1, config.size("window_size", 112) // merge // patch) if windows else 0,
            apart=apart,
        )


def _whole(config: ModelConfig) -> tuple[int, ...]:
    layers = config.get("fullatt_block_indexes", [7, 15, 23, 31])
    if not isinstance(layers, list) or not all(type(layer) is int for layer in layers):
        raise config.wrong("fullatt_block_indexes", "a list of layers")
    return tuple(layers)


def qwen_vision(shape: QwenTowerShape, read: CheckedTensors, normalisation: Normalisation) -> Graph:
    """Build the graph.

    Inputs: `patches` uint8 (patch, frame · row · column · channel), those of a token beside each other, frame by
    frame; `places` int64 (patch, 2), row and column of each in its frame; `frames` int64 (run, 3), see
    `attention_over_runs`; with windows, `windows` int64 (run, 3) of the patches in the order `window_order` int64
    (patch,), and `frame_order` int64 (patch,), which undoes it.
    Output: `embeddings` float32 (token, out).

    Args:
        shape: Sizes and choices.
        read: Gives the weights, by the checkpoint's names under `vision.`.
        normalisation: What bytes become.
    """
    graph = Graph("qwen_vision")
    width = shape.frames * shape.patch**2 * 3
    patches = graph.input("patches", np.uint8, ("patch", width))
    size = (shape.hidden, 3, shape.frames, shape.patch, shape.patch)
    matrix, offset = normalisation.into(read("vision.patch_embed.proj.weight", *size), None)
    row = graph.node("Unsqueeze", [graph.node("Cast", [patches], to=FLOAT), graph.constant(0)])
    stream = graph.node("Add", [graph.matmul(row, "patch_embed", matrix), graph.weight("patch_embed.offset", offset)])
    layers = _Layers(graph, shape, read)
    normed, merged = layers.first_norm(stream), shape.merge**2 * shape.hidden
    for layer in range(shape.layers):
        normed, stream = layers.layer(layer, normed, stream)
    normed = graph.node("Reshape", [normed, graph.constant(0, -1, merged)])
    value = linear(graph, read, normed, "vision.merger.mlp.0", (merged, merged), bias=True)
    value = linear(graph, read, graph.node("Gelu", [value]), "vision.merger.mlp.2", (shape.out, merged), bias=True)
    graph.output(graph.node("Squeeze", [value, graph.constant(0)]), "embeddings", np.float32, ("token", shape.out))
    return graph


class _Layers:
    """Layers of the tower: values go in and come out by name, float32 `(1, patch, hidden)`."""

    def __init__(self, graph: Graph, shape: QwenTowerShape, read: CheckedTensors) -> None:
        self._graph, self._shape, self._read = graph, shape, read
        self._angles = self._declare_angles()
        self._frames = graph.input("frames", np.int64, ("run", 3))
        if shape.whole is not None:
            self._windows = graph.input("windows", np.int64, ("window_run", 3))
            self._orders = [graph.input(name, np.int64, ("patch",)) for name in ("window_order", "frame_order")]

    def first_norm(self, stream: str) -> str:
        """The norm before the first layer."""
        operator = "LayerNormalization" if self._shape.whole is None else "SimplifiedLayerNormalization"
        return self._graph.node(operator, [stream, *self._norm("vision.blocks.0.norm1")], axis=-1, epsilon=_EPSILON)

    def layer(self, layer: int, normed: str, stream: str) -> tuple[str, str]:
        """What the next layer reads, normed already, and the stream itself."""
        name = f"vision.blocks.{layer}"
        last = layer + 1 == self._shape.layers
        seen = self._attention(layer, normed)
        normed, stream = self._added(seen, stream, f"{name}.attn.proj", f"{name}.norm2")
        following = "vision.merger.ln_q" if last else f"vision.blocks.{layer + 1}.norm1"
        fed, bias = self._feed_forward(f"{name}.mlp", normed)
        return self._added(fed, stream, bias, following)

    def _attention(self, layer: int, value: str) -> str:
        """What the heads of a layer see, and their projection, whose bias the sum behind it adds."""
        graph, hidden, name = self._graph, self._shape.hidden, f"vision.blocks.{layer}.attn"
        weight, bias = self._packed(name)
        packed = graph.node("Add", [graph.matmul(value, f"{name}.qkv", weight), graph.weight(f"{name}.qkv.bias", bias)])
        query, key, each = graph.nodes("Split", [packed], 3, axis=-1, num_outputs=3)
        parts = (self._turned(query), self._turned(key), each)
        whole = self._shape.whole is None or layer in self._shape.whole
        if not whole:
            query, key, each = (graph.node("Gather", [part, self._orders[0]], axis=1) for part in parts)
            parts = (query, key, each)
        runs = self._frames if whole else self._windows
        seen = attention_over_runs(graph, parts, runs, heads=self._shape.heads, hidden=hidden, name=name)
        if not whole:
            seen = graph.node("Gather", [seen, self._orders[1]], axis=1)
        return graph.matmul(seen, f"{name}.proj", self._read(f"{name}.proj.weight", hidden, hidden))

    def _packed(self, name: str) -> tuple[Floats, Floats]:
        """Queries, keys and values in one matrix and one bias."""
        hidden = self._shape.hidden
        if not self._shape.apart:
            return self._read(f"{name}.qkv.weight", 3 * hidden, hidden), self._read(f"{name}.qkv.bias", 3 * hidden)
        weights = [self._read(f"{name}.{part}.weight", hidden, hidden) for part in "qkv"]
        return np.concatenate(weights), np.concatenate([self._read(f"{name}.{part}.bias", hidden) for part in "qkv"])

    def _feed_forward(self, name: str, value: str) -> tuple[str, str]:
        """The value without its last bias, and whose bias that is."""
        graph, hidden, wide = self._graph, self._shape.hidden, self._shape.feed_forward
        if self._shape.whole is None:
            bent = self._bent(linear(graph, self._read, value, f"{name}.fc1", (wide, hidden), bias=True))
            last = f"{name}.fc2"
        else:
            ways = (f"{name}.gate_proj", f"{name}.up_proj")
            gate, up = (linear(graph, self._read, value, way, (wide, hidden), bias=True) for way in ways)
            bent, last = graph.node("Mul", [self._bent(gate), up]), f"{name}.down_proj"
        return graph.matmul(bent, f"{last}.weight", self._read(f"{last}.weight", hidden, wide)), last

    def _bent(self, value: str) -> str:
        return self._graph.node("QuickGelu", [value], domain=MICROSOFT, alpha=self._shape.bend)

    def _added(self, value: str, stream: str, bias_of: str, name: str) -> tuple[str, str]:
        """The normed sum of a value, its bias and the stream, and the sum itself."""
        bias = self._graph.weight(f"{bias_of}.bias", self._read(f"{bias_of}.bias", self._shape.hidden))
        normed, total = f"{name}.normed", f"{name}.sum"
        self._graph.nodes(
            "SkipLayerNormalization" if self._shape.whole is None else "SkipSimplifiedLayerNormalization",
            [value, stream, *self._norm(name), bias],
            [normed, "", "", total],
            domain=MICROSOFT,
            epsilon=_EPSILON,
        )
        return normed, total

    def _norm(self, name: str) -> list[str]:
        vectors = ("weight", "bias") if self._shape.whole is None else ("weight",)
        return [
            self._graph.weight(f"{name}.{vector}", self._read(f"{name}.{vector}", self._shape.hidden))
            for vector in vectors
        ]

    def _turned(self, value: str) -> str:
        cosine, sine, numbers = self._angles
        return self._graph.node("RotaryEmbedding", [value, numbers, cosine, sine], domain=MICROSOFT)

    def _declare_angles(self) -> tuple[str, str, str]:
        """Cosines and sines of every patch, `(patch, pair)`, half of them by its row and half by its column."""
        graph = self._graph
        places = graph.input("places", np.int64, ("patch", 2))
        quarter = self._shape.hidden // self._shape.heads // 4
        frequencies = (1.0 / 10_000.0 ** (np.arange(quarter, dtype=np.float32) / quarter)).astype(np.float32)
        turns = graph.node("Unsqueeze", [graph.node("Cast", [places], to=FLOAT), graph.constant(-1)])
        angles = graph.node("Mul", [turns, graph.weight("turns", frequencies)])
        angles = graph.node("Reshape", [angles, graph.constant(0, 2 * quarter)])
        size = graph.node("Shape", [places], start=0, end=1)
        ends = [graph.weight(f"angles.{value}", np.array(value, np.int64)) for value in (0, 1)]
        numbers = graph.node("Range", [ends[0], graph.node("Squeeze", [size]), ends[1]])
        numbers = graph.node("Unsqueeze", [numbers, graph.constant(0)])
        return graph.node("Cos", [angles]), graph.node("Sin", [angles]), numbers
