"""Inputs and outputs that stay where they are between runs: arrays of the caller's, or tensors on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from bus.errors import InvalidInputError
from runtime.engines.ports import Port, check_axes, check_inputs

if TYPE_CHECKING:
    from runtime.engines.onnx import OnnxSession

Array = NDArray[Any]


class DeviceTensor:
    """A tensor where a session runs: what one run wrote, another run reads without a copy.

    Args:
        value: ONNX Runtime's value.
        port: The output that it came from.
    """

    def __init__(self, value: Any, port: Port) -> None:
        self.value = value
        self._port = port

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self._port.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return tuple(self.value.shape())

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""
        return str(self.value.device_name()).lower()

    def array(self) -> Array:
        """Its elements in memory of this process; on a CPU nothing is copied."""
        found: Array = self.value.numpy()
        return found


class Binding:
    """Inputs and outputs in memory of the caller's: nothing is copied or allocated in a run.

    The arrays must stay alive and in place while the binding is used; it keeps references to them.
    """

    def __init__(self, session: OnnxSession, driver: onnxruntime.InferenceSession) -> None:
        self._owner, self._driver = session, driver
        self._binding = driver.io_binding()
        self._kept: dict[str, Array] = {}
        self._unchecked = True

    def input(self, name: str, array: Array) -> Self:
        """Bind an input to a C-contiguous array.

        Raises:
            InvalidInputError: Another type or shape than the model takes.
        """
        self._owner.inputs[name].check(array)
        self._unchecked = True
        self._binding.bind_input(name, "cpu", 0, array.dtype, array.shape, self._pointer(name, array))
        return self

    def output(self, name: str, array: Array) -> Self:
        """Bind an output to a C-contiguous array of just its shape."""
        pointer = self._pointer(f"output {name}", array)
        self._binding.bind_output(name, "cpu", 0, array.dtype, array.shape, pointer)
        return self

    def run(self) -> None:
        """Run on what is bound.

        Raises:
            InvalidInputError: Inputs that do not fit each other.
            EngineError: The runtime failed.
        """
        if self._unchecked:
            bound = {name: array for name, array in self._kept.items() if name in self._owner.inputs}
            check_axes(self._owner.inputs, bound)
            self._unchecked = False
        with self._owner.translated():
            self._driver.run_with_iobinding(self._binding)

    def _pointer(self, key: str, array: Array) -> int:
        if not array.flags.c_contiguous:
            raise InvalidInputError(f"{key} is bound to memory that is not contiguous")
        self._kept[key] = array
        return int(array.ctypes.data)


def run_on_device(
    session: OnnxSession,
    driver: onnxruntime.InferenceSession,
    inputs: Mapping[str, Array | DeviceTensor],
    outputs: Sequence[str],
    device: str,
) -> dict[str, DeviceTensor]:
    """One run whose outputs stay on the device.

    Args:
        session: Whose ports the inputs are checked against.
        driver: Its session of ONNX Runtime.
        inputs: Arrays, which are copied to the device, and tensors that are there.
        outputs: Names of the wanted outputs.
        device: `cpu` or `cuda`.

    Raises:
        InvalidInputError: An input or the name of an output that does not fit.
        EngineError: The runtime failed.
    """
    check_inputs(session.name, session.inputs, inputs)
    if unknown := set(outputs) - session.outputs.keys():
        raise InvalidInputError(f"model {session.name} has no output {', '.join(sorted(unknown))}")
    binding = driver.io_binding()
    with session.translated():
        for name, value in inputs.items():
            if isinstance(value, DeviceTensor):
                binding.bind_ortvalue_input(name, value.value)
            else:
                binding.bind_cpu_input(name, np.ascontiguousarray(value))
        for name in outputs:
            binding.bind_output(name, device)
        driver.run_with_iobinding(binding)
        found = binding.get_outputs()
    return {name: DeviceTensor(value, session.outputs[name]) for name, value in zip(outputs, found, strict=True)}
