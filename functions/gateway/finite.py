"""JSON whose numbers are numbers: what RFC 8259 has no word for is refused, and told by its place."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json

from bus.errors import InvalidInputError

_SUSPECT = re.compile(rb"NaN|Infinity|[eE]\+?[0-9]{3}|[0-9]{300}")
"""What every body has in which a number may not be finite; few others do, and so are not looked through."""


def finite_json(body: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        InvalidInputError: A number in it is not finite (`NaN`, `Infinity`, `1e999`); names where.
        ValueError: It is not JSON.
    """
    value = from_json(body)
    if _SUSPECT.search(body) is not None:
        for place, number in _numbers(value, ""):
            if not math.isfinite(number):
                raise InvalidInputError(f"{place or 'body'}: {number} is not a finite number", param=place or None)
    return value


def _numbers(value: Any, place: str) -> Iterator[tuple[str, float]]:
    match value:
        case float():
            yield place, value
        case dict():
            for name, held in value.items():
                yield from _numbers(held, f"{place}.{name}" if place else str(name))
        case list():
            for index, held in enumerate(value):
                yield from _numbers(held, f"{place}.{index}" if place else str(index))
