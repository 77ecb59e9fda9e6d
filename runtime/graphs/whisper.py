"""Whisper as ONNX graphs: the encoder with the cross-attention's keys and values, the decoder, and where it looks.

Weights go by CTranslate2's names: `linear_0` of self-attention is q, k and v in one; in cross-attention
`linear_0` is q, `linear_1` is k and v in one, `linear_2` is the output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.graphs.ops import Graph
from runtime.graphs.whisper_layers import Weights, WhisperDims, WhisperLayers

__all__ = ["Weights", "WhisperDims", "alignment_graph", "decoder_graph", "encoder_graph"]


def encoder_graph(weights: Weights, dims: WhisperDims, *, quantised: bool = False) -> Graph:
    """Mel frames to the keys and values that every decoder layer looks at.

    Input `mel`: float32 (batch, mel, 2 × frame), of any length up to the model's.
    Outputs `cross.key.<i>` and `cross.value.<i>`: float32 (batch, head, frame, dim of a head).

    Args:
        weights: By CTranslate2's names.
        dims: Their sizes.
        quantised: Whether matrices are multiplied in 8 bits (`dynamic_matmul`).
    """
    half = WhisperLayers(Graph("whisper_encoder"), weights, dims, quantised, dynamic=True)
    graph = half.graph
    mel = graph.input("mel", np.float32, ("batch", dims.mels, "mel_frame"))
    value = half.convolution(mel, "encoder/conv1", stride=1)
    value = half.convolution(value, "encoder/conv2", stride=2)
    value = graph.node("Transpose", [value], perm=[0, 2, 1])
    frames = graph.node("Shape", [value], start=1, end=2)
    value = graph.node("Add", [value, half.places(frames, "encoder")])
    normed, residual = half.first_norm(value, "encoder/layer_0/self_attention/layer_norm"), value
    for index in range(dims.encoder_layers):
        name = f"encoder/layer_{index}"
        attended = half.self_attention(normed, f"{name}/self_attention")
        normed, residual = half.norm(attended, residual, f"{name}/self_attention/linear_1", f"{name}/ffn/layer_norm")
        last = index + 1 == dims.encoder_layers
        following = "encoder/layer_norm" if last else f"encoder/layer_{index + 1}/self_attention/layer_norm"
        normed, residual = half.norm(half.feed_forward(normed, name), residual, f"{name}/ffn/linear_1", following)
    for index in range(dims.decoder_layers):
        half.cross_memory(normed, index)
    return graph


def decoder_graph(weights: Weights, dims: WhisperDims, *, quantised: bool = True) -> Graph:
    """Tokens to the logits of the next one, over a cache that is written in place.

    Inputs: `tokens` and `positions` int64 (batch, step); `last` int32 (batch,), index of the last valid cache
    entry after this step; `total` int32 (), its largest value plus one; `past.key.<i>`, `past.value.<i>`
    float32 (batch, head, context, dim of a head); `cross.key.<i>`, `cross.value.<i>` as the encoder makes them.
    Outputs: `logits` float32 (batch, vocabulary) of the last step; `present.key.<i>`, `present.value.<i>`, to be
    bound to the memory of the inputs.

    Args:
        weights: By CTranslate2's names.
        dims: Their sizes.
        quantised: Whether matrices are in blocks of 8 bits.
    """
    half = WhisperLayers(Graph("whisper_decoder"), weights, dims, quantised)
    graph = half.graph
    tokens = graph.input("tokens", np.int64, ("batch", "step"))
    positions = graph.input("positions", np.int64, ("batch", "step"))
    lengths = graph.input("last", np.int32, ("batch",)), graph.input("total", np.int32, ())
    places = graph.node("Gather", [half.weight("decoder/position_encodings/encodings"), positions])
    value = graph.node("Add", [half.embedding(tokens), places])
    normed, residual = half.first_norm(value, "decoder/layer_0/self_attention/layer_norm"), value
    for index in range(dims.decoder_layers):
        name = f"decoder/layer_{index}"
        attended = half.cached_attention(normed, f"{name}/self_attention", index, lengths)
        own, cross = f"{name}/self_attention/linear_1", f"{name}/attention"
        normed, residual = half.norm(attended, residual, own, f"{cross}/layer_norm")
        attended = half.cross_attention(normed, cross, index)
        normed, residual = half.norm(attended, residual, f"{cross}/linear_2", f"{name}/ffn/layer_norm")
        last = index + 1 == dims.decoder_layers
        following = "decoder/layer_norm" if last else f"decoder/layer_{index + 1}/self_attention/layer_norm"
        normed, residual = half.norm(half.feed_forward(normed, name), residual, f"{name}/ffn/linear_1", following)
    final = graph.node("Gather", [normed, graph.weight("minus_one", np.array(-1, np.int64))], axis=1)
    logits = half.linear(final, "decoder/embeddings")
    graph.output(logits, "logits", np.float32, ("batch", dims.vocabulary))
    return graph


def alignment_graph(
    weights: Weights, dims: WhisperDims, heads: Sequence[tuple[int, int]], *, quantised: bool = True
) -> Graph:
    """A whole text at once to where each of its tokens looks in the sound.

    Inputs: `tokens` int64 (batch, token); `cross.key.<i>`, `cross.value.<i>` as the encoder makes them, of the layers
    up to the last that is asked for.
    Output: `attention` float32 (batch, alignment head, token, frame), before the softmax.

    Args:
        weights: By CTranslate2's names.
        dims: Their sizes.
        heads: (layer, head) of the cross-attention heads whose gaze follows the words.
        quantised: Whether matrices are in blocks of 8 bits.

    Source: `find_alignment` of OpenAI's Whisper.
    """
    half = WhisperLayers(Graph("whisper_alignment"), weights, dims, quantised)
    graph = half.graph
    tokens = graph.input("tokens", np.int64, ("batch", "token"))
    count = graph.node("Shape", [tokens], start=1, end=2)
    value = graph.node("Add", [half.embedding(tokens), half.places(count, "decoder")])
    normed, residual = half.first_norm(value, "decoder/layer_0/self_attention/layer_norm"), value
    looks, last = [], max(layer for layer, _ in heads)
    for index in range(last + 1):
        name = f"decoder/layer_{index}"
        attended = half.self_attention(normed, f"{name}/self_attention", causal=True)
        own, cross = f"{name}/self_attention/linear_1", f"{name}/attention"
        normed, residual = half.norm(attended, residual, own, f"{cross}/layer_norm")
        looks += half.scores(normed, cross, index, [head for layer, head in heads if layer == index])
        if index < last:
            attended = half.cross_attention(normed, cross, index)
            normed, residual = half.norm(attended, residual, f"{cross}/linear_2", f"{name}/ffn/layer_norm")
            following = f"decoder/layer_{index + 1}/self_attention/layer_norm"
            normed, residual = half.norm(half.feed_forward(normed, name), residual, f"{name}/ffn/linear_1", following)
    attention = graph.node("Concat", looks, axis=1) if len(looks) > 1 else looks[0]
    graph.output(attention, "attention", np.float32, ("batch", len(heads), "token", "frame"))
    return graph
