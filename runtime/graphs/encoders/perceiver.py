"""A perceiver that resamples pictures of any size to a fixed number of tokens.

Each layer's learned tokens look at the picture's patches and at each other.

Source: Jaegle et al., Perceiver (2021); Alayrac et al., Flamingo (2022), section 2.1; Laurençon et al., What matters
when building vision-language models? (2024), section 3 (Idefics2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, NodeProto, helper

from runtime.graphs.encoders.runs import gathering, over_runs
from runtime.graphs.encoders.transformer import linear
from runtime.graphs.families.config import ModelConfig
from runtime.graphs.ops import MICROSOFT, Graph
from runtime.weights.tensors import CheckedTensors

_MOST = 65_536
BENDS = ("silu", "gelu", "gelu_pytorch_tanh")
"""Nonlinearities of a gated feed-forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerceiverShape:
    """Sizes of a perceiver.

    Attributes:
        hidden: Width, which is that of the decoder's embeddings.
        latents: Learned tokens, which is how many come out.
        layers: How many there are.
        heads: Query heads.
        kv_heads: Key and value heads.
        head_dim: Width of a head.
        norm_epsilon: Of the norms.
        bend: Nonlinearity of the feed-forward, one of `BENDS`.
    """

    hidden: int
    latents: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_epsilon: float
    bend: str

    @classmethod
    def read(cls, config: ModelConfig, hidden: int, norm_epsilon: float) -> PerceiverShape:
        """Read a `perceiver_config`.

        Args:
            config: The configuration.
            hidden: Width of the decoder.
            norm_epsilon: Of the decoder's norms, which is the perceiver's where its own width is another one.

        Raises:
            ModelUnsupportedError: An activation that is not known.
            ModelCorruptError: Sizes that make no sense.
        """
        heads, kv_heads = config.size("resampler_n_heads", 16, most=4096), config.size("num_key_value_heads", 4)
        if heads % kv_heads:
            raise config.wrong("num_key_value_heads", f"a number that divides {heads} heads")
        own = config.size("hidden_size", 4096) == hidden
        return cls(
            hidden=hidden,
            latents=config.size("resampler_n_latents", 64, most=_MOST),
            layers=config.size("resampler_depth", 3, most=4096),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=config.size("resampler_head_dim", 96, most=4096),
            norm_epsilon=config.number("rms_norm_eps", 1e-6) if own else norm_epsilon,
            bend=config.choice("hidden_act", dict(zip(BENDS, BENDS, strict=True)), "silu"),
        )


def gated(graph: Graph, read: CheckedTensors, value: str, name: str, sizes: tuple[int, int, int], bend: str) -> str:
    """A feed-forward with a gate.

    Args:
        graph: Gets the nodes.
        read: Gives the weights.
        value: float32 `(batch, token, in)`.
        name: Before the names of its three matrices.
        sizes: Widths of what goes in, inside, and of what comes out.
        bend: One of `BENDS`.
    """
    narrow, wide, out = sizes
    gate, up = (linear(graph, read, value, f"{name}.{way}_proj", (wide, narrow), bias=False) for way in ("gate", "up"))
    if bend == "silu":
        gate = graph.node("QuickGelu", [gate], domain=MICROSOFT, alpha=1.0)
    else:
        gate = graph.node("Gelu", [gate], approximate="none" if bend == "gelu" else "tanh")
    return linear(graph, read, graph.node("Mul", [gate, up]), f"{name}.down_proj", (out, wide), bias=False)


class Perceiver:
    """Adds a perceiver to a graph.

    Args:
        graph: Gets the nodes.
        read: Gives the weights.
        shape: Sizes.
        prefix: What stands before every name.
    """

    def __init__(self, graph: Graph, read: CheckedTensors, shape: PerceiverShape, prefix: str) -> None:
        self._graph, self._read, self._shape, self._prefix = graph, read, shape, prefix

    def resample(self, context: str, runs: str, tiles: str) -> str:
        """The tokens of every picture, float32 `(tile, latent, hidden)`.

        Args:
            context: float32 `(1, patch, hidden)`, patches of all pictures one behind the other.
            runs: int64 `(run, 3)`, see `attention_over_runs`.
            tiles: int64 `(run, 2)`, the first picture of each run and the one behind its last.
        """
        graph, shape = self._graph, self._shape
        table = self._read(f"{self._prefix}latents", shape.latents, shape.hidden)
        last = graph.node("ReduceMax", [tiles], keepdims=0)
        size = graph.node("Concat", [graph.node("Unsqueeze", [last, graph.constant(0)]), graph.constant(1, 1)], axis=0)
        stream = graph.node("Expand", [graph.weight(f"{self._prefix}latents", table[None]), size])
        for layer in range(shape.layers):
            name = f"{self._prefix}layers.{layer}."
            normed = self._norm(stream, f"{name}input_latents_norm")
            seen = self._attention(name, normed, self._norm(context, f"{name}input_context_norm"), runs, tiles)
            stream = graph.node("Add", [stream, seen])
            normed = self._norm(stream, f"{name}post_attention_layernorm")
            sizes = (shape.hidden, 4 * shape.hidden, shape.hidden)
            fed = gated(graph, self._read, normed, f"{name}mlp", sizes, shape.bend)
            stream = graph.node("Add", [stream, fed])
        return self._norm(stream, f"{self._prefix}norm")

    def _attention(self, name: str, latents: str, context: str, runs: str, tiles: str) -> str:
        graph, shape = self._graph, self._shape
        wide = shape.heads * shape.head_dim
        query = linear(graph, self._read, latents, f"{name}self_attn.q_proj", (wide, shape.hidden), bias=False)
        both = []
        for part in ("k", "v"):
            matrix = self._spread(f"{name}self_attn.{part}_proj.weight")
            flat = graph.node("Squeeze", [graph.node("MatMul", [context, matrix]), graph.constant(0)])
            both.append((flat, graph.node("MatMul", [latents, matrix])))
        sizes = (graph.constant(0), graph.constant(-1), graph.constant(wide))
        body = _body(f"{name}look", (runs, tiles), query, both, shape.heads, sizes)
        seen = over_runs(graph, runs, body, (shape.latents, wide), f"{name}looks")
        return linear(graph, self._read, seen, f"{name}self_attn.o_proj", (shape.hidden, wide), bias=False)

    def _spread(self, name: str) -> str:
        """Keys or values for every query head, `(in, out)`: the operator knows no heads that share them."""
        shape = self._shape
        weight = self._read(name, shape.kv_heads * shape.head_dim, shape.hidden)
        by_head = weight.reshape(shape.kv_heads, shape.head_dim, shape.hidden)
        spread = np.repeat(by_head, shape.heads // shape.kv_heads, axis=0).reshape(-1, shape.hidden)
        return self._graph.weight(name, spread.T)

    def _norm(self, value: str, name: str) -> str:
        weight = self._graph.weight(f"{name}.weight", self._read(f"{name}.weight", self._shape.hidden))
        operator = "SimplifiedLayerNormalization"
        return self._graph.node(operator, [value, weight], axis=-1, epsilon=self._shape.norm_epsilon)


def _body(
    name: str,
    bounds: tuple[str, str],
    query: str,
    memory: list[tuple[str, str]],
    heads: int,
    sizes: tuple[str, str, str],
) -> GraphProto:
    """One run: the latents of its pictures look at their patches and at each other.

    Args:
        name: Of the body, and before the names of the values in it.
        bounds: `runs` and `tiles` of `Perceiver.resample`.
        query: float32 `(tile, latent, width)`.
        memory: Keys and values: of patches `(patch, width)` and of latents `(tile, latent, width)`.
        heads: Attention heads.
        sizes: Constants around the body: 0, -1 and the width of all heads.
    """
    node = helper.make_node
    inputs = [f"{name}.query", f"{name}.0", f"{name}.1"]
    made = [
        *_parts(name, bounds, query, memory, sizes),
        node("MultiHeadAttention", inputs, [f"{name}.seen"], domain=MICROSOFT, num_heads=heads),
    ]
    return gathering(name, made, f"{name}.seen", 3)


def _parts(
    name: str, bounds: tuple[str, str], query: str, memory: list[tuple[str, str]], sizes: tuple[str, str, str]
) -> list[NodeProto]:
    """The queries, keys and values of a run, out of those of all; see `_body`."""
    (zero, all_left, width), node = sizes, helper.make_node
    ends = [f"{name}.{end}" for end in ("start", "stop", "length", "first", "behind")]
    made = [
        node("Gather", [bounds[0], f"{name}.number"], [f"{name}.run"]),
        node("Split", [f"{name}.run"], ends[:3], num_outputs=3),
        node("Gather", [bounds[1], f"{name}.number"], [f"{name}.tiles"]),
        node("Split", [f"{name}.tiles"], ends[3:], num_outputs=2),
        node("Concat", [all_left, ends[2], width], [f"{name}.shape"], axis=0),
        node("Slice", [query, *ends[3:], zero], [f"{name}.query"]),
    ]
    for place, (patches, latents) in enumerate(memory):
        made += [
            node("Slice", [patches, *ends[:2], zero], [f"{name}.{place}.rows"]),
            node("Reshape", [f"{name}.{place}.rows", f"{name}.shape"], [f"{name}.{place}.patches"]),
            node("Slice", [latents, *ends[3:], zero], [f"{name}.{place}.latents"]),
            node("Concat", [f"{name}.{place}.patches", f"{name}.{place}.latents"], [f"{name}.{place}"], axis=1),
        ]
    return made
