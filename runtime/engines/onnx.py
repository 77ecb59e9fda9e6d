"""Sessions of ONNX Runtime: opened from a model file, fed with checked arrays, bound to memory that is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from bus.errors import EngineError, InvalidInputError, ModelCorruptError
from runtime.engines.cores import threads_for
from runtime.engines.providers import choose

Array = NDArray[Any]

_DTYPES = {
    "tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64,
    "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8, "tensor(bool)": np.bool_, "tensor(string)": np.str_,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a model.

    Attributes:
        name: Its name.
        dtype: Element type.
        shape: Sizes; a string or None is a free axis.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...]

    def check(self, array: Array) -> None:
        """Compare an array with what the model takes.

        Raises:
            InvalidInputError: Names what differs.
        """
        sizes = zip(self.shape, array.shape, strict=False)
        fits = len(self.shape) == array.ndim and all(
            want == have for want, have in sizes if isinstance(want, int) and want > 0
        )
        if array.dtype != self.dtype or not fits:
            raise InvalidInputError(
                f"input {self.name!r} takes {self.dtype} {self.shape}, got {array.dtype} {array.shape}",
                input=self.name,
            )


class OnnxSession:
    """A loaded model.

    Args:
        path: The model; its external weights lie beside it.
        device: See `providers.choose`.
        threads: Threads of one run on the CPU; 0: the cores that this process was given.
        spin: Whether idle threads spin between operators: faster alone, wasteful beside other work.
        spin_us: The longest that they spin, in microseconds; 0: the runtime's own limit.
        shrink: Whether memory is given back after each run; for inputs of very different sizes, where one large one
            would otherwise hold its memory for good.

    Raises:
        ProviderMissingError: The device is not installed.
        ModelCorruptError: The file is missing or is no model that this runtime can open.
    """

    def __init__(
        self,
        path: Path,
        *,
        device: str = "auto",
        threads: int = 0,
        spin: bool = True,
        spin_us: int = 0,
        shrink: bool = False,
    ) -> None:
        self._path = path
        self._run_options = onnxruntime.RunOptions()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads_for(threads)
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
        if spin and spin_us:  # a runtime that does not know the entry ignores it
            options.add_session_config_entry("session.intra_op.spin_duration_us", str(spin_us))
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=choose(device))
        except Exception as error:  # the driver's exceptions have no common class
            if type(error).__module__.startswith("onnxruntime") or isinstance(error, OSError):
                raise ModelCorruptError(f"model {path} cannot be opened: {error}", file=str(path)) from error
            raise
        if shrink:
            arenas = "cpu:0" if self.providers == ("CPUExecutionProvider",) else "cpu:0;gpu:0"
            self._run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", arenas)
        self.inputs = {port.name: port for port in map(_port, self._session.get_inputs())}
        self.outputs = {port.name: port for port in map(_port, self._session.get_outputs())}

    @property
    def providers(self) -> tuple[str, ...]:
        """What it really runs on, preferred first."""
        return tuple(self._session.get_providers())

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None) -> list[Array]:
        """Run once.

        Args:
            inputs: Arrays by input name; all of them.
            outputs: Names of the wanted outputs; None: all, in the model's order.

        Raises:
            InvalidInputError: An input is missing, unknown, or of another type or shape.
            EngineError: The runtime failed.
        """
        if inputs.keys() != self.inputs.keys():
            missing, unknown = self.inputs.keys() - inputs.keys(), inputs.keys() - self.inputs.keys()
            raise InvalidInputError(f"model {self._path.name}: missing {missing or '-'}, unknown {unknown or '-'}")
        for name, array in inputs.items():
            self.inputs[name].check(array)
        try:
            return list(self._session.run(None if outputs is None else list(outputs), dict(inputs), self._run_options))
        except Exception as error:
            raise self._failed(error) from error

    def bind(self) -> Binding:
        """A set of inputs and outputs that are bound once and run many times."""
        return Binding(self, self._session)

    def _failed(self, error: Exception) -> EngineError:
        return EngineError(f"model {self._path.name} failed: {error}", model=self._path.name)


class Binding:
    """Inputs and outputs in memory of the caller's: nothing is copied or allocated in a run.

    The arrays must stay alive and in place while the binding is used; it keeps references to them.
    """

    def __init__(self, session: OnnxSession, driver: onnxruntime.InferenceSession) -> None:
        self._owner, self._driver = session, driver
        self._binding = driver.io_binding()
        self._kept: dict[str, Array] = {}

    def input(self, name: str, array: Array) -> Self:
        """Bind an input to a C-contiguous array.

        Raises:
            InvalidInputError: Another type or shape than the model takes.
        """
        self._owner.inputs[name].check(array)
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
            EngineError: The runtime failed.
        """
        try:
            self._driver.run_with_iobinding(self._binding)
        except Exception as error:
            raise self._owner._failed(error) from error

    def _pointer(self, key: str, array: Array) -> int:
        if not array.flags.c_contiguous:
            raise InvalidInputError(f"{key} is bound to memory that is not contiguous")
        self._kept[key] = array
        return int(array.ctypes.data)


def _port(value: Any) -> Port:
    shape = tuple(size if isinstance(size, int | str) else None for size in value.shape)
    return Port(value.name, np.dtype(_DTYPES[value.type]), shape)
