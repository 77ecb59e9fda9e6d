"""EfficientNet-Lite0 as an ONNX graph with its batch norms folded, built from a PyTorch checkpoint.

Source: Tan and Le, EfficientNet (2019), table 1; the Lite variant drops squeeze-and-excitation and uses ReLU6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bus.errors import ModelCorruptError
from runtime.graphs.ops import Graph
from runtime.repository.recipe import BuildJob, Built
from runtime.weights.checkpoint import Tensors, read_checkpoint

CLASSES = 1000
EMBEDDING = 1280
_SIDE = 224
_NORM_EPSILON = 1e-3

# Repeats, kernel, stride of the first, expansion, input channels, output channels.
_STAGES = (
    (1, 3, 1, 1, 32, 16), (2, 3, 2, 6, 16, 24), (2, 5, 2, 6, 24, 40), (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112), (4, 5, 2, 6, 112, 192), (1, 3, 1, 6, 192, 320),
)  # fmt: skip


def build(job: BuildJob) -> Built:
    """Write `model.onnx` and `labels.txt`, one class name a line.

    Raises:
        ModelCorruptError: The checkpoint or the lists of names are not of this model.
    """
    encoder(read_checkpoint(job.raw / "model.pth")).save(job.out / "model.onnx")
    names = dict(
        line.split("\t", 1) for line in (job.raw / "lemmas.txt").read_text(encoding="utf-8").splitlines() if line
    )
    synsets = (job.raw / "synsets.txt").read_text(encoding="utf-8").split()
    if len(synsets) != CLASSES or not names.keys() >= set(synsets):
        raise ModelCorruptError(f"{len(synsets)} class names were found, the model has {CLASSES} classes")
    # A synset lists synonyms; the first is the common name.
    labels = [names[synset].split(",")[0].strip() for synset in synsets]
    (job.out / "labels.txt").write_text("\n".join(labels), encoding="utf-8")
    return Built()


def encoder(weights: Tensors) -> Graph:
    """Build the graph.

    Input `pixel_values` float32 (batch, 3, 224, 224); outputs `logits` float32 (batch, 1000) and `embedding` float32
    (batch, 1280), the pooled features.

    Raises:
        ModelCorruptError: A weight is missing.
    """
    net = _Net(Graph("efficientnet-lite0"), weights)
    value = net.graph.input("pixel_values", np.float32, ("batch", 3, _SIDE, _SIDE))
    value = net.conv(value, "_conv_stem", "_bn0", stride=2)
    number = 0
    for repeats, _, stride, expansion, inputs, outputs in _STAGES:
        for repeat in range(repeats):
            first = repeat == 0
            skips = not first or (stride == 1 and inputs == outputs)
            value = net.block(value, f"_blocks.{number}.", stride if first else 1, expansion, skips=skips)
            number += 1
    value = net.conv(value, "_conv_head", "_bn1")
    pooled = net.graph.node("GlobalAveragePool", [value])
    embedding = net.graph.node("Flatten", [pooled], axis=1)
    weight = net.graph.weight("_fc.weight", net.tensor("_fc.weight"))
    logits = net.graph.node("Gemm", [embedding, weight, net.graph.weight("_fc.bias", net.tensor("_fc.bias"))], transB=1)
    net.graph.output(logits, "logits", np.float32, ("batch", CLASSES))
    net.graph.output(embedding, "embedding", np.float32, ("batch", EMBEDDING))
    return net.graph


class _Net:
    def __init__(self, graph: Graph, weights: Tensors) -> None:
        self.graph = graph
        self._weights = weights

    def tensor(self, name: str) -> NDArray[Any]:
        if name not in self._weights:
            raise ModelCorruptError(f"the checkpoint has no weight {name!r}; it is not an EfficientNet-Lite0")
        return self._weights[name].astype(np.float32)

    def block(self, value: str, prefix: str, stride: int, expansion: int, *, skips: bool) -> str:
        """An inverted bottleneck."""
        inner = value
        if expansion > 1:
            inner = self.conv(inner, f"{prefix}_expand_conv", f"{prefix}_bn0")
        inner = self.conv(inner, f"{prefix}_depthwise_conv", f"{prefix}_bn1", stride=stride, depthwise=True)
        inner = self.conv(inner, f"{prefix}_project_conv", f"{prefix}_bn2", activate=False)
        return self.graph.node("Add", [inner, value]) if skips else inner

    def conv(
        self,
        value: str,
        name: str,
        norm: str,
        *,
        stride: int = 1,
        depthwise: bool = False,
        activate: bool = True,
    ) -> str:
        """A convolution with its batch norm folded in, then ReLU6."""
        kernel = self.tensor(f"{name}.weight")
        scale = self.tensor(f"{norm}.weight") / np.sqrt(self.tensor(f"{norm}.running_var") + _NORM_EPSILON)
        shift = self.tensor(f"{norm}.bias") - self.tensor(f"{norm}.running_mean") * scale
        convolved = self.graph.node(
            "Conv",
            [
                value,
                self.graph.weight(f"{name}.weight", kernel * scale[:, None, None, None]),
                self.graph.weight(f"{name}.bias", shift),
            ],
            strides=[stride, stride],
            group=len(kernel) if depthwise else 1,
            # TensorFlow's rule: what cannot be split evenly is padded at the bottom and on the right.
            auto_pad="SAME_UPPER",
        )
        if not activate:
            return convolved
        bounds = [self.graph.weight(f"relu6.{limit}", np.array(limit, np.float32)) for limit in (0, 6)]
        return self.graph.node("Clip", [convolved, *bounds])
