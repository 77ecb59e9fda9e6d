"""A decoder as one ONNX graph on ONNX Runtime's fused operators.

Rows are right-padded: row `r` of a batch has `lengths[r]` tokens in its cache, so no left padding and no mask exist.
GroupQueryAttention appends to a cache buffer of fixed capacity in place, when input and output are bound to the same
memory; where a token's position is its place in the row, it also turns queries and keys.

Source: Touvron et al., LLaMA (2023), section 2.2; GroupQueryAttention in ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

import numpy as np

from runtime.graphs.decoder.attention import Attention
from runtime.graphs.decoder.layers import Layers
from runtime.graphs.decoder.shape import DecoderShape
from runtime.graphs.decoder.weights import ReadTensor, StoreMatrix, in_8_bits
from runtime.graphs.ops import Graph


def decoder(shape: DecoderShape, read: ReadTensor, store: StoreMatrix = in_8_bits) -> Graph:
    """Build the graph.

    Inputs: `inputs_embeds` float32 (batch, token, hidden); `lengths` int32 (batch,), tokens of each row including the
    new ones, minus one; `capacity_used` int32 (), the largest of them plus one; `past_key_values.<layer>.key|value`
    float32 (batch, kv_heads, capacity, head_dim); `logits_at` int64 (wanted,), the places among this step's tokens
    whose logits are wanted; where the shape takes positions, `positions` int32 (3, batch, token): time, height, width.
    Outputs: `logits` float32 (batch, wanted, vocabulary), and `present.<layer>.key|value`, to be bound to the same
    memory as the past.

    Args:
        shape: Sizes and choices.
        read: Gives the weights.
        store: How matrices are kept.
    """
    graph = Graph("decoder")
    layers = Layers(graph, shape, read, store)
    stream = graph.input("inputs_embeds", np.float32, ("batch", "token", shape.hidden))
    wanted = graph.input("logits_at", np.int64, ("wanted",))
    attention = Attention(layers)
    normed = layers.norm(stream, "blocks.0.attention_norm")
    for layer in range(shape.layers):
        attended = attention.of(layer, normed)
        last = layer == shape.layers - 1
        if last:
            # Nothing after the last attention looks at another token: what nobody asked for ends here.
            attended, stream = (graph.node("Gather", [x, wanted], axis=1) for x in (attended, stream))
            normed = graph.node("Gather", [normed, wanted], axis=1) if shape.parallel else normed
        following = "norm" if last else f"blocks.{layer + 1}.attention_norm"
        normed, stream = _rest_of_block(layers, f"blocks.{layer}", attended, normed, stream, following)
    graph.output(_logits(layers, normed), "logits", np.float32, ("batch", "wanted", shape.vocabulary))
    return graph


def _rest_of_block(
    layers: Layers, block: str, attended: str, normed: str, stream: str, following: str
) -> tuple[str, str]:
    """What comes after the heads: the normed stream that the next layer reads, and the stream."""
    shape = layers.shape
    projected = layers.linear(attended, f"{block}.o", bias=shape.out_bias)
    if shape.parallel:
        both = layers.graph.node("Add", [projected, layers.feed_forward(block, normed)])
        return layers.add_and_norm(both, stream, following)
    if shape.post_norms:
        projected = layers.norm(projected, f"{block}.post_attention_norm")
    normed, stream = layers.add_and_norm(projected, stream, f"{block}.feed_forward_norm")
    fed = layers.feed_forward(block, normed)
    if shape.post_norms:
        fed = layers.norm(fed, f"{block}.post_feed_forward_norm")
    return layers.add_and_norm(fed, stream, following)


def _logits(layers: Layers, normed: str) -> str:
    graph, limit = layers.graph, layers.shape.logit_softcap
    logits = layers.linear(normed, "head", bias=layers.shape.head_bias)
    if not limit:
        return logits
    cap = graph.weight("head.softcap", np.array(limit, np.float32))
    return graph.node("Mul", [graph.node("Tanh", [graph.node("Div", [logits, cap])]), cap])
