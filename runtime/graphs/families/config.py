"""A model's `config.json`, read with errors that say what is wrong or not known."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from bus.errors import ModelCorruptError, ModelUnsupportedError

Choice = TypeVar("Choice")

_MOST = 2**31 - 1


class ModelConfig:
    """The keys and values of a configuration.

    Args:
        values: The document; the text model's part of it, where it describes several.
        context: The most tokens that a row is to have; None: as many as the model was trained on.
        file: What it was read from, for errors.
    """

    def __init__(self, values: Mapping[str, Any], context: int | None = None, file: str = "config.json") -> None:
        self._values = values
        self.context = context
        self.file = file

    @classmethod
    def read(cls, path: Path, context: int | None = None) -> Self:
        """Read a `config.json`.

        Raises:
            ModelCorruptError: Missing, or no JSON object.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ModelCorruptError(f"{path.name} cannot be read: {error}", file=path.name) from error
        if not isinstance(values, dict):
            raise ModelCorruptError(f"{path.name} holds no JSON object", file=path.name)
        return cls(values, context, path.name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    @property
    def model_type(self) -> str:
        """The name of the model's architecture.

        Raises:
            ModelCorruptError: It is not given.
        """
        return self.text("model_type")

    def get(self, name: str, default: Any = None) -> Any:
        """Any value; the default where it is not given or null."""
        value = self._values.get(name)
        return default if value is None else value

    def text(self, name: str) -> str:
        """A string.

        Raises:
            ModelCorruptError: Not given, or no string.
        """
        value = self.get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def size(self, name: str, default: int | None = None, *, most: int = _MOST) -> int:
        """A whole number from 1.

        Args:
            name: The key.
            default: Where it is not given.
            most: The largest that makes sense: what is built of a larger one would fill the memory.

        Raises:
            ModelCorruptError: Not given, or no such number.
        """
        value = self.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise self.wrong(name, f"a whole number from 1 to {most}")
        return value

    def number(self, name: str, default: float | None = None, *, most: float = sys.float_info.max) -> float:
        """A number above 0.

        Args:
            name: The key.
            default: Where it is not given.
            most: The largest that makes sense.

        Raises:
            ModelCorruptError: Not given, or no such number.
        """
        value = self.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= most:
            raise self.wrong(name, f"a number above 0 and up to {most:g}")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false.

        Raises:
            ModelCorruptError: Something else.
        """
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def choice(self, name: str, known: Mapping[str, Choice], default: str | None = None) -> Choice:
        """What a name stands for.

        Raises:
            ModelUnsupportedError: A name that is not known; lists those that are.
        """
        return chosen(name, self.get(name, default), known, self.file)

    def refuse(self, *names: str) -> None:
        """Make sure that features are not asked for.

        Raises:
            ModelUnsupportedError: One is.
        """
        for name in names:
            if self.get(name):
                raise ModelUnsupportedError(
                    f"{self.file} asks for {name} {self.get(name)!r}, which is not built here", feature=name
                )

    def inner(self, name: str) -> Self | None:
        """An object inside, read the same way; None: not given.

        Raises:
            ModelCorruptError: It is no object.
        """
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return type(self)(value, self.context, self.file)

    def having(self, **values: Any) -> Self:
        """The same with other values."""
        return type(self)({**self._values, **values}, self.context, self.file)

    def within(self, context: int) -> Self:
        """The same with the most tokens that a row is to have."""
        return type(self)(self._values, context, self.file)

    def filled(self, **values: Any) -> Self:
        """The same with values for what is not given."""
        return self.having(**{name: self.get(name, value) for name, value in values.items()})

    def wrong(self, name: str, wanted: str) -> ModelCorruptError:
        """The error that a value is, to be raised."""
        return ModelCorruptError(f"{self.file} gives {name} as {self._values.get(name)!r}, not as {wanted}", key=name)


def chosen(name: str, value: Any, known: Mapping[str, Choice], file: str = "config.json") -> Choice:
    """What a value of a configuration stands for.

    Raises:
        ModelUnsupportedError: It is not known; lists what is.
    """
    if not isinstance(value, str) or value not in known:
        raise ModelUnsupportedError(
            f"{file} asks for {name} {value!r}, which is not built here; known: {', '.join(known)}", feature=name
        )
    return known[value]
