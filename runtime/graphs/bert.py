"""BERT sentence encoders as one ONNX graph, from token ids to normalised vectors.

Source: Devlin et al., BERT (2019); Reimers and Gurevych, Sentence-BERT (2019), section 3 (mean pooling).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bus.errors import ModelCorruptError
from runtime.graphs.ops import MICROSOFT, Graph
from runtime.repository.recipe import BuildJob, Built
from runtime.weights.safetensors import SafetensorsFile

ReadTensor = Callable[[str], NDArray[Any]]

POOLINGS = ("cls", "last", "mean")
"""How the tokens of a text become one vector: the first one's, the last one's, or the mean of all."""


@dataclass(frozen=True, slots=True)
class BertShape:
    """Sizes of an encoder.

    Attributes:
        layers: Encoder layers.
        hidden: Width.
        heads: Attention heads.
        norm_epsilon: Of the layer norms.
    """

    layers: int
    hidden: int
    heads: int
    norm_epsilon: float


def build(job: BuildJob) -> Built:
    """Write `model.onnx`, `model.data` and `tokenizer.json`.

    Of the entry's parameters, `pooling` is one of `POOLINGS` and `normalise` says whether vectors get the length 1.

    Raises:
        ModelCorruptError: The folder does not hold a BERT encoder, or the entry asks for an unknown pooling.
    """
    config = json.loads((job.raw / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") != "bert" or config.get("hidden_act") != "gelu":
        raise ModelCorruptError(f"config.json describes a {config.get('model_type')!r} model, not a BERT with GELU")
    shape = BertShape(
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        heads=config["num_attention_heads"],
        norm_epsilon=config["layer_norm_eps"],
    )
    pooling, normalise = job.parameters.get("pooling", "mean"), bool(job.parameters.get("normalise", True))
    if pooling not in POOLINGS:
        raise ModelCorruptError(f"pooling is {pooling!r}; known: {', '.join(POOLINGS)}")
    read = SafetensorsFile(job.raw / "model.safetensors").tensor
    encoder(shape, read, pooling=pooling, normalise=normalise).save(job.out / "model.onnx")
    shutil.copyfile(job.raw / "tokenizer.json", job.out / "tokenizer.json")
    return Built(dims={"hidden": shape.hidden, "positions": config["max_position_embeddings"]})


def encoder(shape: BertShape, read: ReadTensor, *, pooling: str = "mean", normalise: bool = True) -> Graph:
    """Build the graph.

    Inputs `input_ids` and `attention_mask` int32 (batch, token), right-padded; output `embedding` float32
    (batch, hidden).

    Args:
        shape: Sizes.
        read: Gives the weights under their Hugging Face names, `(out, in)`.
        pooling: How the real tokens become one vector, one of `POOLINGS`.
        normalise: Whether it gets the length 1.
    """
    net = _Net(Graph("bert"), shape, read)
    graph = net.graph
    ids = graph.input("input_ids", np.int32, ("batch", "token"))
    mask = graph.input("attention_mask", np.int32, ("batch", "token"))
    value = net.embed(ids)
    for layer in range(shape.layers):
        value = net.layer(value, mask, f"encoder.layer.{layer}.")
    pooled = net.pool(value, mask, pooling, exact=not normalise)
    if normalise:
        pooled = graph.node("LpNormalization", [pooled], axis=-1, p=2)
    graph.output(pooled, "embedding", np.float32, ("batch", shape.hidden))
    return graph


class _Net:
    def __init__(self, graph: Graph, shape: BertShape, read: ReadTensor) -> None:
        self.graph = graph
        self._shape, self._read = shape, read

    def embed(self, ids: str) -> str:
        graph = self.graph
        words = graph.node("Gather", [self._weight("embeddings.word_embeddings.weight"), ids])
        # Every token is of the first of two sentences, so its vector can be added to the positions once.
        places = self._read("embeddings.position_embeddings.weight")
        kinds = self._read("embeddings.token_type_embeddings.weight")
        table = graph.weight("embeddings.places", places + kinds[0])
        count = graph.node("Shape", [ids], start=1, end=2)
        used = graph.node("Slice", [table, graph.constant(0), count, graph.constant(0)])
        norm = ["embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"]
        return graph.node(
            "LayerNormalization",
            [graph.node("Add", [words, used]), *map(self._weight, norm)],
            axis=-1,
            epsilon=self._shape.norm_epsilon,
        )

    def layer(self, value: str, mask: str, prefix: str) -> str:
        graph = self.graph
        parts = [f"{prefix}attention.self.{part}" for part in ("query", "key", "value")]
        weight = np.concatenate([self._read(f"{part}.weight") for part in parts]).T
        bias = np.concatenate([self._read(f"{part}.bias") for part in parts])
        attended = graph.node(
            "Attention",
            [
                value,
                graph.weight(f"{prefix}qkv.weight", weight),
                graph.weight(f"{prefix}qkv.bias", bias),
                mask,
            ],
            domain=MICROSOFT,
            num_heads=self._shape.heads,
        )
        value = self._add_and_norm(attended, value, f"{prefix}attention.output")
        wide = self._linear(value, f"{prefix}intermediate.dense")
        wide = graph.node("BiasGelu", [wide, self._weight(f"{prefix}intermediate.dense.bias")], domain=MICROSOFT)
        return self._add_and_norm(wide, value, f"{prefix}output")

    def pool(self, value: str, mask: str, pooling: str, *, exact: bool) -> str:
        """One vector a text; a mean may be left a sum, which has its direction, unless it must be exact."""
        graph = self.graph
        if pooling == "cls":
            return graph.node("Gather", [value, graph.weight("pool.first", np.array(0, np.int64))], axis=1)
        if pooling == "last":
            count = graph.node("ReduceSum", [graph.node("Cast", [mask], to=7), graph.constant(1)], keepdims=1)
            last = graph.node("Sub", [count, graph.constant(1)])
            return graph.node("GatherND", [value, last], batch_dims=1)
        weights = graph.node("Unsqueeze", [graph.node("Cast", [mask], to=1), graph.constant(2)])
        total = graph.node("ReduceSum", [graph.node("Mul", [value, weights]), graph.constant(1)], keepdims=0)
        if not exact:
            return total
        return graph.node("Div", [total, graph.node("ReduceSum", [weights, graph.constant(1)], keepdims=0)])

    def _add_and_norm(self, value: str, stream: str, prefix: str) -> str:
        names = (f"{prefix}.LayerNorm.weight", f"{prefix}.LayerNorm.bias", f"{prefix}.dense.bias")
        return self.graph.node(
            "SkipLayerNormalization",
            [self._linear(value, f"{prefix}.dense"), stream, *map(self._weight, names)],
            domain=MICROSOFT,
            epsilon=self._shape.norm_epsilon,
        )

    def _linear(self, value: str, name: str) -> str:
        return self.graph.matmul(value, f"{name}.weight", self._read(f"{name}.weight"))

    def _weight(self, name: str) -> str:
        return self.graph.weight(name, self._read(name))
