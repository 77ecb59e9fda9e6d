"""Write ONNX graphs node by node, with the weights in a file of their own that is mapped when it is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from runtime.graphs.quantize import BlockWeight

MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's fused operators."""

Shape = Sequence[int | str]

_OPSET = 21
_IR_VERSION = 10
_PAGE = 4096
_INLINE_NBYTES = 1024


@dataclass(frozen=True, slots=True)
class _Blob:
    name: str
    array: NDArray[Any]


class Graph:
    """A graph under construction; every method returns names of values."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._blobs: list[_Blob] = []
        self._known: dict[str, str] = {}
        self._count = 0

    def input(self, name: str, dtype: Any, shape: Shape) -> str:
        """Declare an input; strings in the shape are free axes."""
        self._inputs.append(_value_info(name, dtype, shape))
        return name

    def output(self, value: str, name: str, dtype: Any, shape: Shape) -> None:
        """Declare a value as an output under a name of its own."""
        self._nodes.append(helper.make_node("Identity", [value], [name], name=f"output.{name}"))
        self._outputs.append(_value_info(name, dtype, shape))

    def weight(self, name: str, array: NDArray[Any]) -> str:
        """Add a constant."""
        if name not in self._known:
            self._known[name] = name
            self._blobs.append(_Blob(name, np.ascontiguousarray(array).reshape(array.shape)))
        return name

    def constant(self, *values: int, dtype: Any = np.int64) -> str:
        """A small one-dimensional constant."""
        return self.weight(f"constant.{np.dtype(dtype).name}.{values}", np.asarray(values, dtype))

    def node(self, op: str, inputs: Sequence[str], *, domain: str = "", name: str = "", **attributes: Any) -> str:
        """Add an operator with one output."""
        return self.nodes(op, inputs, 1, domain=domain, name=name, **attributes)[0]

    def nodes(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: int | Sequence[str],
        *,
        domain: str = "",
        name: str = "",
        **attributes: Any,
    ) -> list[str]:
        """Add an operator with several outputs; named ones become values of those names, `""` is left out."""
        self._count += 1
        label = name or f"{op}.{self._count}"
        names = [f"{label}:{index}" for index in range(outputs)] if isinstance(outputs, int) else list(outputs)
        self._nodes.append(helper.make_node(op, list(inputs), names, name=label, domain=domain, **attributes))
        return names

    def declare_output(self, name: str, dtype: Any, shape: Shape) -> None:
        """Declare a value that an operator already writes under its public name."""
        self._outputs.append(_value_info(name, dtype, shape))

    def matmul(self, value: str, name: str, weight: NDArray[np.float32] | BlockWeight) -> str:
        """`value @ weight.T`, in float32 or in blocks of integers.

        Args:
            value: float32 `(batch, token, in)`.
            name: Name of the weight and, with it, of the node.
            weight: `(out, in)`.
        """
        if not isinstance(weight, BlockWeight):
            return self.node("MatMul", [value, self.weight(name, weight.T)], name=f"{name}.matmul")
        inputs = [
            self._with_means(value, weight.block) if weight.means else value,
            self.weight(name, weight.packed_values()),
            self.weight(f"{name}.scales", weight.scales.reshape(-1)),
        ]
        if (zeros := weight.packed_zeros()) is not None:
            inputs.append(self.weight(f"{name}.zeros", zeros))
        return self.node(
            "MatMulNBits",
            inputs,
            domain=MICROSOFT,
            name=f"{name}.matmul",
            K=weight.inputs + weight.means,
            N=len(weight.values),
            bits=weight.bits,
            block_size=weight.block,
            # 4 lets the kernel round the activations to int8 too: VNNI instead of float32 arithmetic.
            accuracy_level=4,
        )

    def _with_means(self, value: str, block: int) -> str:
        """A value with the means of its blocks behind it, `(batch, token, in + in / block)`."""
        key = f"{value}.means.{block}"
        if key not in self._known:
            means = self.node("AveragePool", [value], kernel_shape=[block], strides=[block])
            self._known[key] = self.node("Concat", [value, means], axis=-1)
        return self._known[key]

    def save(self, path: Path) -> None:
        """Write the graph, and its larger constants into `<name>.data` beside it, aligned to pages."""
        data = path.with_suffix(".data")
        initializers = []
        with data.open("wb") as file:
            for blob in self._blobs:
                if blob.array.nbytes <= _INLINE_NBYTES:
                    initializers.append(onnx.numpy_helper.from_array(blob.array, blob.name))
                    continue
                file.seek(-(-file.tell() // _PAGE) * _PAGE)
                initializers.append(_external(blob, data.name, file.tell()))
                file.write(blob.array.data)
        if data.stat().st_size == 0:
            data.unlink()
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, initializers)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="omnibus")
        path.write_bytes(model.SerializeToString(deterministic=True))


def _value_info(name: str, dtype: Any, shape: Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))


def _external(blob: _Blob, location: str, offset: int) -> onnx.TensorProto:
    tensor = TensorProto(
        name=blob.name,
        data_type=helper.np_dtype_to_tensor_dtype(blob.array.dtype),
        dims=blob.array.shape,
        data_location=TensorProto.EXTERNAL,
    )
    places = {"location": location, "offset": str(offset), "length": str(blob.array.nbytes)}
    for key, value in places.items():
        tensor.external_data.add(key=key, value=value)
    return tensor
