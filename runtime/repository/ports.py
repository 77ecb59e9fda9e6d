"""What a model's graph says of its inputs and outputs, for the manifest: known without opening the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bus.errors import ModelCorruptError

PORTS = "ports"
"""The manifest's parameter: by model file and port, the element type and then the sizes; None is a free axis."""


def declared_ports(path: Path) -> dict[str, list[Any]]:
    """Inputs and outputs of an ONNX file by name, such as `{"pixels": ["float32", null, 3, 224, 224]}`.

    Raises:
        ModelCorruptError: It is no ONNX file.
    """
    import onnx

    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception as error:  # protobuf's, which has no types
        raise ModelCorruptError(f"{path.name} is no ONNX file: {error}", file=path.name) from error
    return {port.name: _told(port.type.tensor_type) for port in (*graph.input, *graph.output)}


def _told(kind: Any) -> list[Any]:
    import onnx

    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    sizes = [size.dim_value if size.HasField("dim_value") else None for size in kind.shape.dim]
    return [str(dtype), *sizes]
