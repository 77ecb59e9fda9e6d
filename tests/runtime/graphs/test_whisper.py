"""Whisper's graphs against a plain numpy forward pass of a tiny model with random weights."""

from __future__ import annotations

from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from runtime.engines.onnx import OnnxSession
from runtime.graphs.dynamic import dynamic_matmul
from runtime.graphs.ops import Graph
from runtime.graphs.whisper import WhisperDims, alignment_graph, decoder_graph, encoder_graph

HIDDEN, HEADS, LAYERS, FRAMES, CONTEXT, MELS, VOCABULARY = 64, 2, 2, 10, 16, 8, 96
Array = NDArray[Any]


def random_weights() -> dict[str, Array]:
    rng = np.random.default_rng(11)
    weights: dict[str, Array] = {"encoder/num_heads": np.array(HEADS, np.float32)}

    def add(name: str, *shape: int, scale: float = 0.2, offset: float = 0.0) -> None:
        weights[name] = (offset + scale * rng.standard_normal(shape)).astype(np.float32)

    def norm(name: str) -> None:
        add(f"{name}/gamma", HIDDEN, offset=1.0)
        add(f"{name}/beta", HIDDEN)

    def linear(name: str, outputs: int, inputs: int) -> None:
        add(f"{name}/weight", outputs, inputs)
        add(f"{name}/bias", outputs)

    add("encoder/conv1/weight", HIDDEN, MELS, 3)
    add("encoder/conv1/bias", HIDDEN)
    add("encoder/conv2/weight", HIDDEN, HIDDEN, 3)
    add("encoder/conv2/bias", HIDDEN)
    add("encoder/position_encodings/encodings", FRAMES, HIDDEN)
    add("decoder/position_encodings/encodings", CONTEXT, HIDDEN)
    add("decoder/embeddings/weight", VOCABULARY, HIDDEN)
    for half in ("encoder", "decoder"):
        norm(f"{half}/layer_norm")
        for index in range(LAYERS):
            name = f"{half}/layer_{index}"
            norm(f"{name}/self_attention/layer_norm")
            linear(f"{name}/self_attention/linear_0", 3 * HIDDEN, HIDDEN)
            linear(f"{name}/self_attention/linear_1", HIDDEN, HIDDEN)
            norm(f"{name}/ffn/layer_norm")
            linear(f"{name}/ffn/linear_0", 4 * HIDDEN, HIDDEN)
            linear(f"{name}/ffn/linear_1", HIDDEN, 4 * HIDDEN)
            if half == "decoder":
                norm(f"{name}/attention/layer_norm")
                linear(f"{name}/attention/linear_0", HIDDEN, HIDDEN)
                linear(f"{name}/attention/linear_1", 2 * HIDDEN, HIDDEN)
                linear(f"{name}/attention/linear_2", HIDDEN, HIDDEN)
    return weights


class Reference:
    """The forward pass as the paper's figure draws it, for one clip."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self.w = weights
        self.scores: list[list[Array]] = []
        """Of cross-attention, by layer and head, before the softmax."""

    def linear(self, value: Array, name: str) -> Array:
        return value @ self.w[f"{name}/weight"].T + self.w[f"{name}/bias"]

    def norm(self, value: Array, name: str) -> Array:
        centred = value - value.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return np.asarray(scaled * self.w[f"{name}/gamma"] + self.w[f"{name}/beta"])

    def gelu(self, value: Array) -> Array:
        return np.asarray(0.5 * value * (1 + np.vectorize(erf)(value / np.sqrt(2))))

    def conv(self, value: Array, name: str, stride: int) -> Array:
        padded = np.pad(value, ((0, 0), (1, 1)))
        steps = range(0, value.shape[1], stride)
        weight = self.w[f"{name}/weight"].reshape(HIDDEN, -1)
        columns = np.stack([weight @ padded[:, at : at + 3].reshape(-1) for at in steps], axis=1)
        return self.gelu(columns + self.w[f"{name}/bias"][:, None])

    def attention(self, query: Array, key: Array, value: Array, causal: bool) -> Array:
        heads, told = [], list[Array]()
        for part in np.split(np.arange(HIDDEN), HEADS):
            scores = query[:, part] @ key[:, part].T / np.sqrt(len(part))
            told.append(scores)
            if causal:
                scores = np.where(np.tri(*scores.shape, dtype=np.bool_), scores, -np.inf)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(shares / shares.sum(-1, keepdims=True) @ value[:, part])
        if not causal:
            self.scores.append(told)
        return np.concatenate(heads, axis=1)

    def block(self, value: Array, name: str, memory: Array | None) -> Array:
        packed = self.linear(self.norm(value, f"{name}/self_attention/layer_norm"), f"{name}/self_attention/linear_0")
        query, key, each = np.split(packed, 3, axis=1)
        attended = self.attention(query, key, each, causal=memory is not None)
        value = value + self.linear(attended, f"{name}/self_attention/linear_1")
        if memory is not None:
            query = self.linear(self.norm(value, f"{name}/attention/layer_norm"), f"{name}/attention/linear_0")
            key, each = np.split(self.linear(memory, f"{name}/attention/linear_1"), 2, axis=1)
            value = value + self.linear(self.attention(query, key, each, causal=False), f"{name}/attention/linear_2")
        inner = self.linear(self.norm(value, f"{name}/ffn/layer_norm"), f"{name}/ffn/linear_0")
        return value + self.linear(self.gelu(inner), f"{name}/ffn/linear_1")

    def encode(self, mel: Array) -> Array:
        value = self.conv(self.conv(mel, "encoder/conv1", 1), "encoder/conv2", 2).T
        value = value + self.w["encoder/position_encodings/encodings"][: len(value)]
        for index in range(LAYERS):
            value = self.block(value, f"encoder/layer_{index}", None)
        return self.norm(value, "encoder/layer_norm")

    def logits(self, tokens: list[int], memory: Array) -> Array:
        self.scores.clear()
        value = self.w["decoder/embeddings/weight"][tokens]
        value = value + self.w["decoder/position_encodings/encodings"][: len(tokens)]
        for index in range(LAYERS):
            value = self.block(value, f"decoder/layer_{index}", memory)
        return np.asarray(self.norm(value, "decoder/layer_norm")[-1] @ self.w["decoder/embeddings/weight"].T)


class Graphs:
    """Both graphs, run step by step over one cache."""

    def __init__(self, folder: Path, weights: dict[str, Array], quantised: bool) -> None:
        dims = WhisperDims.of(weights)
        assert dims == WhisperDims(HEADS, LAYERS, LAYERS, MELS, FRAMES, CONTEXT, HIDDEN, VOCABULARY)
        encoder_graph(weights, dims, quantised=quantised).save(folder / "encoder.onnx")
        decoder_graph(weights, dims, quantised=quantised).save(folder / "decoder.onnx")
        self.encoder, self.decoder = OnnxSession(folder / "encoder.onnx"), OnnxSession(folder / "decoder.onnx")

    def logits(self, mels: Array, steps: list[list[list[int]]]) -> list[Array]:
        """Logits after each step; a step is one list of tokens for each row."""
        batch = len(mels)
        cross = dict(zip(self.encoder.outputs, self.encoder.run({"mel": mels}), strict=True))
        shape = (batch, HEADS, CONTEXT, HIDDEN // HEADS)
        cache = {f"past.{kind}.{i}": np.zeros(shape, np.float32) for kind in ("key", "value") for i in range(LAYERS)}
        at, found = 0, []
        for tokens in steps:
            ids = np.array(tokens, np.int64)
            positions = np.tile(np.arange(at, at + ids.shape[1]), (batch, 1))
            at += ids.shape[1]
            lengths = {"last": np.full(batch, at - 1, np.int32), "total": np.array(at, np.int32)}
            outputs = dict(
                zip(
                    self.decoder.outputs,
                    self.decoder.run({"tokens": ids, "positions": positions, **lengths, **cache, **cross}),
                    strict=True,
                )
            )
            cache = {name: outputs[name.replace("past", "present")] for name in cache}
            found.append(outputs["logits"])
        return found


MEL = np.random.default_rng(2).standard_normal((2, MELS, 2 * FRAMES)).astype(np.float32)
PROMPT, THEN = [5, 17, 80, 3], [9, 55, 1]


@pytest.fixture
def weights() -> dict[str, Array]:
    return random_weights()


def test_cached_steps_give_the_logits_of_the_whole_pass(tmp_path: Path, weights: dict[str, Array]) -> None:
    steps = [[PROMPT, PROMPT], *[[[token], [token + 1]] for token in THEN]]
    found = Graphs(tmp_path, weights, quantised=False).logits(MEL, steps)
    reference = Reference(weights)
    for row in range(2):
        memory = reference.encode(MEL[row])
        tokens: list[int] = []
        for step, logits in zip(steps, found, strict=True):
            tokens += step[row]
            assert np.abs(logits[row] - reference.logits(tokens, memory)).max() < 1e-3


def test_a_shorter_window_uses_the_first_positions(tmp_path: Path, weights: dict[str, Array]) -> None:
    short = MEL[:1, :, :FRAMES]
    (logits,) = Graphs(tmp_path, weights, quantised=False).logits(short, [[PROMPT]])
    reference = Reference(weights)
    assert np.abs(logits[0] - reference.logits(PROMPT, reference.encode(short[0]))).max() < 1e-3


def test_the_gaze_of_the_chosen_heads_is_told_token_by_token(tmp_path: Path, weights: dict[str, Array]) -> None:
    heads, tokens = [(0, 1), (1, 0), (1, 1)], PROMPT + THEN
    dims = WhisperDims.of(weights)
    encoder_graph(weights, dims).save(tmp_path / "encoder.onnx")
    alignment_graph(weights, dims, heads, quantised=False).save(tmp_path / "alignment.onnx")
    encoder, looks = OnnxSession(tmp_path / "encoder.onnx"), OnnxSession(tmp_path / "alignment.onnx")
    cross = dict(zip(encoder.outputs, encoder.run({"mel": MEL}), strict=True))
    wanted = {name: cross[name] for name in looks.inputs if name != "tokens"}
    (attention,) = looks.run({"tokens": np.array([tokens, tokens]), **wanted})
    assert attention.shape == (2, len(heads), len(tokens), FRAMES)
    reference = Reference(weights)
    for row in range(2):
        reference.logits(tokens, reference.encode(MEL[row]))
        for place, (layer, head) in enumerate(heads):
            assert np.abs(attention[row, place] - reference.scores[layer][head]).max() < 1e-3


@pytest.mark.parametrize("loud", [1.0, 300.0])
def test_each_row_is_rounded_by_its_own_peak(tmp_path: Path, loud: float) -> None:
    rng = np.random.default_rng(5)
    value, weight = rng.standard_normal((1, 6, 48)).astype(np.float32), rng.standard_normal((20, 48)).astype(np.float32)
    value[0, 0] *= loud
    value[0, 1] = 0
    graph = Graph("product")
    product = dynamic_matmul(graph, graph.input("x", np.float32, (1, "row", 48)), "w", weight)
    graph.output(product, "y", np.float32, (1, "row", 20))
    graph.save(tmp_path / "product.onnx")
    (found,) = OnnxSession(tmp_path / "product.onnx").run({"x": value})
    expected = value @ weight.T
    errors = np.abs(found - expected).max(axis=2) / np.maximum(np.abs(expected).max(axis=2), 1e-6)
    assert errors.max() < 0.03


def test_eight_bits_stay_close(tmp_path: Path, weights: dict[str, Array]) -> None:
    (logits,) = Graphs(tmp_path, weights, quantised=True).logits(MEL[:1], [[PROMPT]])
    reference = Reference(weights)
    expected = reference.logits(PROMPT, reference.encode(MEL[0]))
    assert np.corrcoef(logits[0], expected)[0, 1] > 0.999
