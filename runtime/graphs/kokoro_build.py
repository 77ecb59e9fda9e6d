"""Kokoro with its convolutions in float32 again.

The published graph rounds the input of every convolution to 8 bits while it runs. ONNX Runtime has no fast
kernel for that: it is most of the time of a run, and several times slower than a float convolution with the
same weights made dense. The weights stay what the 8 bits say; only the rounding of the inputs goes.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from bus.errors import ModelCorruptError
from runtime.repository.recipe import BuildJob, Built


def build(job: BuildJob) -> Built:
    """Write `model.onnx`, `model.data`, `vocab.json` and the voices.

    Raises:
        ModelCorruptError: A graph of another make.
    """
    model = onnx.load(str(job.raw / "model.onnx"))
    count = dense_convolutions(model)
    onnx.save_model(
        model,
        str(job.out / "model.onnx"),
        save_as_external_data=True,
        location="model.data",
        size_threshold=1024,
    )
    (job.out / "model.data").chmod(0o644)  # it is written for its owner alone
    shutil.copyfile(job.raw / "vocab.json", job.out / "vocab.json")
    shutil.copytree(job.raw / "voices", job.out / "voices")
    return Built(parameters={"dense_convolutions": count})


def dense_convolutions(model: onnx.ModelProto) -> int:
    """Replace every dynamically quantised convolution by a plain one; returns how many there were."""
    graph = _Graph(model.graph)
    convolutions = [node for node in model.graph.node if node.op_type == "ConvInteger"]
    for node in convolutions:
        graph.replace(node)
    graph.sweep()
    return len(convolutions)


class _Graph:
    """A graph with its edges."""

    def __init__(self, proto: onnx.GraphProto) -> None:
        self._proto = proto
        self._constants = {one.name: one for one in proto.initializer}
        self._makers = {output: node for node in proto.node for output in node.output}
        self._readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in proto.node:
            for name in node.input:
                self._readers[name].append(node)

    def replace(self, node: onnx.NodeProto) -> None:
        """Put a `Conv` in the place of `ConvInteger` (→ `Add` of an integer bias) → `Cast` → `Mul` by the scales."""
        after = self._only_reader(node)
        bias: list[str] = []
        if after.op_type == "Add":
            bias = [self._float_bias(_other(after, node.output[0]))]
            after = self._only_reader(after)
        scaled = self._only_reader(after) if after.op_type == "Cast" else after
        if scaled.op_type != "Mul":
            raise _foreign(node, f"is followed by {scaled.op_type}")
        scale = self._weight_scale(_other(scaled, after.output[0]))
        weight = self._add_weight(node, scale)
        source = self._makers[node.input[0]].input[0]
        position = list(self._proto.node).index(scaled)
        plain = helper.make_node("Conv", [source, weight, *bias], list(scaled.output), name=f"{node.name}.dense")
        plain.attribute.extend(node.attribute)
        self._proto.node.remove(scaled)
        self._proto.node.insert(position, plain)

    def sweep(self) -> None:
        """Remove nodes and constants that nothing needs any more."""
        needed = {output.name for output in self._proto.output}
        kept = []
        for node in reversed(self._proto.node):
            if needed & set(node.output):
                needed |= set(node.input)
                kept.append(node)
        constants = [one for one in self._proto.initializer if one.name in needed]
        del self._proto.node[:], self._proto.initializer[:], self._proto.value_info[:]
        self._proto.node.extend(reversed(kept))
        self._proto.initializer.extend(constants)

    def _add_weight(self, node: onnx.NodeProto, scale: NDArray[Any]) -> str:
        values = self._constant(node.input[1], node).astype(np.float32)
        zero = self._constant(node.input[3], node).astype(np.float32) if len(node.input) > 3 else np.float32(0)
        shape = (-1,) + (1,) * (values.ndim - 1)
        dense = ((values - np.reshape(zero, shape)) * np.reshape(scale, shape)).astype(np.float32)
        name = f"{node.name}.weight"
        self._proto.initializer.append(numpy_helper.from_array(dense, name))
        return name

    def _weight_scale(self, name: str) -> NDArray[Any]:
        """The constant one of the two scales that are multiplied."""
        maker = self._makers[name]
        constants = [one for one in maker.input if one in self._constants]
        if maker.op_type != "Mul" or len(constants) != 1:
            raise _foreign(maker, "does not multiply the scales of input and weight")
        return self._constant(constants[0], maker)

    def _float_bias(self, name: str) -> str:
        """The bias before it was divided by the scales and rounded."""
        while name in self._makers:
            maker = self._makers[name]
            name = maker.input[0]
            if maker.op_type == "Div":
                break
        flat = numpy_helper.to_array(self._constants[name]).reshape(-1) if name in self._constants else None
        if flat is None or flat.dtype != np.float32:
            raise ModelCorruptError(f"the bias {name!r} of a quantised convolution is not a float constant")
        self._proto.initializer.append(numpy_helper.from_array(flat, f"{name}.flat"))
        return f"{name}.flat"

    def _only_reader(self, node: onnx.NodeProto) -> onnx.NodeProto:
        readers = self._readers[node.output[0]]
        if len(readers) != 1:
            raise _foreign(node, f"is read by {len(readers)} nodes")
        return readers[0]

    def _constant(self, name: str, node: onnx.NodeProto) -> NDArray[Any]:
        if name not in self._constants:
            raise _foreign(node, f"takes {name!r}, which is no constant")
        return numpy_helper.to_array(self._constants[name])


def _other(node: onnx.NodeProto, name: str) -> str:
    return str(next(one for one in node.input if one != name))


def _foreign(node: onnx.NodeProto, problem: str) -> ModelCorruptError:
    return ModelCorruptError(f"node {node.name!r} {problem}; this build knows another graph", node=node.name)
