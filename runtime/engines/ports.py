"""What goes into a model and what comes out of it: names, types, shapes, and whether arrays fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bus.errors import InvalidInputError, ModelCorruptError

_DTYPES: Mapping[str, np.dtype[Any]] = {
    f"tensor({name})": np.dtype(kind)
    for name, kind in {
        "float": np.float32, "float16": np.float16, "double": np.float64, "int64": np.int64, "int32": np.int32,
        "int16": np.int16, "int8": np.int8, "uint64": np.uint64, "uint32": np.uint32, "uint16": np.uint16,
        "uint8": np.uint8, "bool": np.bool_, "string": np.object_,
    }.items()
}  # fmt: skip


class Shaped(Protocol):
    """Whatever has an element type and a shape: an array here or a tensor on a device."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a model.

    Attributes:
        name: Its name.
        dtype: Element type; object for strings.
        shape: Sizes; a string is a free axis that is as long wherever that name stands, None any free axis.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...]

    @classmethod
    def of(cls, told: Any, model: str) -> Port:
        """The port that the runtime tells of.

        Raises:
            ModelCorruptError: Of a type that no array has.
        """
        if told.type not in _DTYPES:
            raise ModelCorruptError(
                f"model {model}: {told.name!r} is a {told.type}, which no array here can hold", model=model
            )
        return cls(told.name, _DTYPES[told.type], tuple(map(_axis, told.shape)))

    def check(self, value: Shaped) -> None:
        """Compare an array with what the model takes.

        Raises:
            InvalidInputError: Names what differs.
        """
        if not self._same_type(value.dtype):
            raise InvalidInputError(f"input {self.name!r} takes {self}, not {value.dtype}", input=self.name)
        if len(value.shape) != len(self.shape):
            raise InvalidInputError(
                f"input {self.name!r} takes {self}, which has {len(self.shape)} axes, not {_shown(value.shape)}",
                input=self.name,
            )
        for axis, (want, have) in enumerate(zip(self.shape, value.shape, strict=True)):
            if isinstance(want, int) and want > 0 and want != have:
                raise InvalidInputError(
                    f"input {self.name!r} takes {self}; axis {axis} is {have} in {_shown(value.shape)}",
                    input=self.name,
                )

    def __str__(self) -> str:
        return f"{self.dtype} {_shown(self.shape)}"

    def _same_type(self, dtype: np.dtype[Any]) -> bool:
        return dtype == self.dtype or (self.dtype.kind == "O" and dtype.kind in "OU")


def check_inputs(model: str, ports: Mapping[str, Port], values: Mapping[str, Shaped]) -> None:
    """Compare all inputs of a run with what the model takes, and with each other.

    Args:
        model: Its name, for the message.
        ports: What the model takes.
        values: What it is given.

    Raises:
        InvalidInputError: An input is missing, unknown, of another type or shape, or has another size than the other
            inputs on an axis that they share.
    """
    if values.keys() != ports.keys():
        missing, unknown = ports.keys() - values.keys(), values.keys() - ports.keys()
        raise InvalidInputError(f"model {model}: missing {missing or '-'}, unknown {unknown or '-'}")
    for name, value in values.items():
        ports[name].check(value)
    check_axes(ports, values)


def check_axes(ports: Mapping[str, Port], values: Mapping[str, Shaped]) -> None:
    """Compare the sizes of axes that several inputs share.

    Raises:
        InvalidInputError: Names the axis, the inputs and their sizes.
    """
    first: dict[str, tuple[str, int]] = {}
    for name, value in values.items():
        for axis, size in zip(ports[name].shape, value.shape, strict=True):
            if not isinstance(axis, str):
                continue
            other, expected = first.setdefault(axis, (name, size))
            if size != expected:
                raise InvalidInputError(
                    f"axis {axis!r} is {expected} in input {other!r} and {size} in input {name!r}; "
                    f"{other!r} is {_shown(values[other].shape)}, {name!r} is {_shown(value.shape)}",
                    input=name,
                )


def check_declared(ref: str, declared: Mapping[str, Sequence[Any]], ports: Mapping[str, Port]) -> None:
    """Compare what a manifest says of inputs or outputs with what the model has.

    Args:
        ref: `id@version`, for the message.
        declared: By name: the element type, then the sizes; a string or None is a free axis.
        ports: What the model has.

    Raises:
        ModelCorruptError: They differ; names the port.
    """
    for name, (dtype, *shape) in declared.items():
        port = ports.get(name)
        if port is None:
            raise ModelCorruptError(
                f"the manifest of {ref} names {name!r}, which its model has not; it has {', '.join(ports)}", model=ref
            )
        if str(port.dtype) != dtype or not _agree(shape, port.shape):
            raise ModelCorruptError(
                f"the manifest of {ref} says that {name!r} is {dtype} {_shown(shape)}; in its model it is {port}",
                model=ref,
            )


def _axis(told: Any) -> int | str | None:
    # Some exporters write "?" or "None" for each axis that they know nothing of: no name that two axes could share.
    named = isinstance(told, str) and told.isidentifier() and told != "None"
    return told if named or isinstance(told, int) else None


def _agree(declared: Sequence[int | str | None], real: Sequence[int | str | None]) -> bool:
    same_rank = len(declared) == len(real)
    sizes = zip(declared, real, strict=False)
    return same_rank and all(want == have for want, have in sizes if isinstance(want, int) and isinstance(have, int))


def _shown(shape: Sequence[int | str | None]) -> str:
    sizes = ", ".join("?" if size is None else str(size) for size in shape)
    return f"({sizes},)" if len(shape) == 1 else f"({sizes})"
