"""Kokoro with its convolutions as matrix products of whole numbers.

The published graph rounds the input of every convolution to 8 bits while it runs, and ONNX Runtime has no fast kernel
for such a convolution. Its matrix product in 8 bits is fast, and a convolution is one over the shifted inputs beside
each other: the same numbers, in three quarters of the time of a float convolution without VNNI, less with it. Where
that cannot be said of a convolution it becomes a float one.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from bus.errors import ModelCorruptError
from runtime.graphs.ops import MICROSOFT
from runtime.repository.recipe import BuildJob, Built

_Replacement = tuple[list[onnx.NodeProto], Mapping[str, NDArray[Any]]]
"""Nodes in their order, and their constants by name."""

_HALF = 64
_TO_THE_END = 2**31


def build(job: BuildJob) -> Built:
    """Write `model.onnx`, `model.data`, `vocab.json` and the voices.

    Raises:
        ModelCorruptError: A graph of another make.
    """
    model = onnx.load(str(job.raw / "model.onnx"))
    products, dense = fast_convolutions(model)
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
    return Built(parameters={"convolutions_as_products": products, "dense_convolutions": dense})


def fast_convolutions(model: onnx.ModelProto) -> tuple[int, int]:
    """Replace every dynamically quantised convolution; returns how many became products, and how many plain ones."""
    graph = _Graph(model.graph)
    found = [graph.convolution(node) for node in model.graph.node if node.op_type == "ConvInteger"]
    products = [one for one in found if one.is_product]
    for one in found:
        graph.put(one, one.product() if one.is_product else one.plain())
    graph.sweep()
    if products and all(opset.domain != MICROSOFT for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return len(products), len(found) - len(products)


@dataclass(frozen=True)
class _Convolution:
    """A dynamically quantised convolution, from its rounded input to its float output.

    Attributes:
        node: The `ConvInteger`.
        last: The node that scales its output.
        source: The float value that was rounded.
        scale: Name of the scale of the rounded input.
        weight: uint8 or int8 (out, in, tap).
        zero: Zero point of the weight, of its dtype.
        weight_scale: float32, of the weight.
        bias: float32 (out,), where there is one.
    """

    node: onnx.NodeProto
    last: onnx.NodeProto
    source: str
    scale: str
    weight: NDArray[Any]
    zero: NDArray[Any]
    weight_scale: NDArray[np.float32]
    bias: NDArray[np.float32] | None

    @property
    def is_product(self) -> bool:
        """One-dimensional, in steps of one, with weights of seven bits.

        With eight the fast kernel saturates on processors without VNNI.
        """
        plain = self._attribute("strides", [1]) == [1] and self._attribute("group", 1) == 1
        seven_bits = self.weight.dtype == np.uint8 and int(self.weight.max()) < 128 and self.zero.size == 1
        return plain and seven_bits and self.weight.ndim == 3

    def plain(self) -> _Replacement:
        """A float convolution with what the integers stand for."""
        shape = (-1,) + (1,) * (self.weight.ndim - 1)
        values = self.weight.astype(np.float32) - np.reshape(self.zero.astype(np.float32), shape)
        constants = {"weight": (values * np.reshape(self.weight_scale, shape)).astype(np.float32)}
        inputs = [self.source, self._name("weight")]
        if self.bias is not None:
            constants["bias"] = self.bias
            inputs.append(self._name("bias"))
        conv = helper.make_node("Conv", inputs, list(self.last.output), name=self._name("plain"))
        conv.attribute.extend(self.node.attribute)
        return [conv], {self._name(key): value for key, value in constants.items()}

    def product(self) -> _Replacement:
        """The input, rounded as before, at each tap's distance side by side; one product; time last again."""
        outputs, channels, taps = self.weight.shape
        signed = (self.weight.astype(np.int16) - _HALF).astype(np.int8)
        nodes, constants = self._columns(taps)
        constants |= {
            "weight": np.ascontiguousarray(signed.transpose(2, 1, 0).reshape(taps * channels, outputs)),
            "zero": np.array(int(self.zero.reshape(-1)[0]) - _HALF, np.int8),
            "scale": np.broadcast_to(self.weight_scale.reshape(-1), (outputs,)).astype(np.float32),
        }
        factors = [self._name("columns"), self._name("weight"), self.scale, self._name("scale"), self.node.input[2]]
        factors.append(self._name("zero"))
        if self.bias is not None:
            constants["bias"] = self.bias
            factors.append(self._name("bias"))
        made = [self._name("product")]
        nodes.append(helper.make_node("MatMulIntegerToFloat", factors, made, name=made[0], domain=MICROSOFT))
        nodes.append(helper.make_node("Transpose", made, list(self.last.output), perm=[0, 2, 1]))
        return nodes, {self._name(key): value for key, value in constants.items()}

    def _columns(self, taps: int) -> tuple[list[onnx.NodeProto], dict[str, NDArray[Any]]]:
        """(1, time, tap × channel): a row is all that one output sees."""
        begin, end = self._attribute("pads", [0, 0])
        step = self._attribute("dilations", [1])[0]
        reach = (taps - 1) * step
        constants = {"pads": np.array([0, begin, 0, 0, end, 0]), "time": np.array([1])}
        padded = [self._name("rows"), self._name("pads"), self.node.input[2]]
        nodes = [
            helper.make_node("Transpose", [self.node.input[0]], [self._name("rows")], perm=[0, 2, 1]),
            helper.make_node("Pad", padded, [self._name("padded")]),
        ]
        for tap in range(taps):
            constants[f"from.{tap}"] = np.array([tap * step])
            constants[f"to.{tap}"] = np.array([tap * step - reach or _TO_THE_END])
            wanted = [self._name(key) for key in ("padded", f"from.{tap}", f"to.{tap}", "time")]
            nodes.append(helper.make_node("Slice", wanted, [self._name(f"tap.{tap}")]))
        beside = [self._name(f"tap.{tap}") for tap in range(taps)]
        nodes.append(helper.make_node("Concat", beside, [self._name("columns")], axis=2))
        return nodes, constants

    def _name(self, key: str) -> str:
        return f"{self.node.name}.{key}"

    def _attribute(self, name: str, default: Any) -> Any:
        return next((helper.get_attribute_value(one) for one in self.node.attribute if one.name == name), default)


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

    def convolution(self, node: onnx.NodeProto) -> _Convolution:
        """A `ConvInteger` (→ `Add` of an integer bias) → `Cast` → `Mul` by the scales.

        Raises:
            ModelCorruptError: Something else follows.
        """
        after = self._only_reader(node)
        bias: NDArray[np.float32] | None = None
        if after.op_type == "Add":
            bias = self._float_bias(_other(after, node.output[0]))
            after = self._only_reader(after)
        last = self._only_reader(after) if after.op_type == "Cast" else after
        if last.op_type != "Mul":
            raise _foreign(node, f"is followed by {last.op_type}")
        scale, weight_scale = self._scales(_other(last, after.output[0]))
        weight = self._constant(node.input[1], node)
        zero = self._constant(node.input[3], node) if len(node.input) > 3 else np.zeros((), weight.dtype)
        source = self._makers[node.input[0]].input[0]
        return _Convolution(node, last, source, scale, weight, zero, weight_scale, bias)

    def put(self, convolution: _Convolution, replacement: _Replacement) -> None:
        """Put nodes and constants in the place of a convolution's last node."""
        nodes, constants = replacement
        place = list(self._proto.node).index(convolution.last)
        self._proto.node.remove(convolution.last)
        for offset, node in enumerate(nodes):
            self._proto.node.insert(place + offset, node)
        self._proto.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())

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

    def _scales(self, name: str) -> tuple[str, NDArray[np.float32]]:
        """Of the two scales that are multiplied: the name of the input's, and the weight's, which is a constant."""
        maker = self._makers[name]
        constants = [one for one in maker.input if one in self._constants]
        if maker.op_type != "Mul" or len(constants) != 1:
            raise _foreign(maker, "does not multiply the scales of input and weight")
        return _other(maker, constants[0]), self._constant(constants[0], maker)

    def _float_bias(self, name: str) -> NDArray[np.float32]:
        """The bias before it was divided by the scales and rounded."""
        while name in self._makers:
            maker = self._makers[name]
            name = maker.input[0]
            if maker.op_type == "Div":
                break
        flat = numpy_helper.to_array(self._constants[name]).reshape(-1) if name in self._constants else None
        if flat is None or flat.dtype != np.float32:
            raise ModelCorruptError(f"the bias {name!r} of a quantised convolution is not a float constant")
        return flat

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
