"""Bodies that are not what an endpoint takes, told by the places that a client wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi.exceptions import RequestValidationError

from bus.contracts.codec import got
from bus.errors import InvalidInputError

_MOST_PROBLEMS = 8

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class _Problem:
    """What is wrong at a place of the body; `form`: whether only because it is not of one of several forms."""

    place: Place
    form: bool
    said: str

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.place)) or 'body'}: {self.said}"


def invalid_body(error: RequestValidationError) -> InvalidInputError:
    """The error that names what is wrong with a body, and where.

    What may have one of several forms is measured by all of them; only the one that comes furthest is told of.

    Args:
        error: As the framework raised it.
    """
    found = error.errors()
    if found[0]["type"] == "json_invalid":
        reason = found[0].get("ctx", {}).get("error", found[0]["msg"])
        return InvalidInputError(f"the body is not JSON: {reason}")
    every = [_problem(one, error.body) for one in found]
    # Each place that another one is inside of; a body may have as many problems as it has bytes.
    around = {one.place[:length] for one in every for length in range(len(one.place))}
    told = [one for one in every if not (one.form and one.place in around)]
    said = [str(one) for one in told[:_MOST_PROBLEMS]]
    if len(told) > len(said):
        said.append(f"and {len(told) - len(said)} more")
    return InvalidInputError("; ".join(said), param=".".join(map(str, told[0].place)) or None)


def _problem(one: Mapping[str, Any], body: Any) -> _Problem:
    where, *loc = one["loc"]
    place = _place(loc, body, missing=one["type"] == "missing") if where == "body" else tuple(loc)
    return _Problem(place, len(place) < len(loc), f"{one['msg']}{got(one['input'])}")


def _place(loc: Sequence[str | int], body: Any, *, missing: bool) -> Place:
    """The place without the names of forms that stand between its parts, which the body does not have."""
    place: list[str | int] = []
    for index, part in enumerate(loc):
        held = _held(body, part)
        if held:
            (body,) = held
        elif isinstance(part, str) and not (missing and index == len(loc) - 1):
            continue
        place.append(part)
    return tuple(place)


def _held(body: Any, part: str | int) -> tuple[Any, ...]:
    """What a map or a list has there; empty: nothing."""
    if isinstance(body, Mapping) and part in body:
        return (body[part],)
    if isinstance(body, list) and isinstance(part, int) and part < len(body):
        return (body[part],)
    return ()
