"""Errors about one of several pieces of media say which one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bus.errors import FunctionError, OmnibusError


@contextmanager
def about(part: int, model: str | None = None) -> Iterator[None]:
    """Whatever goes wrong inside is about this piece of media, unless it says another one.

    The error stays what it is, with `part` in its details and at the head of its message; that a request was cancelled
    or is late is about no piece.

    Args:
        part: Its index in the request's list of media.
        model: `id@version` of the model that it is for; None: of none in particular.
    """
    try:
        yield
    except FunctionError:
        raise
    except OmnibusError as error:
        if "part" not in error.details:
            error.details["part"] = part
            error.message = f"media {part}{f' for {model}' if model else ''}: {error.message}"
            if model is not None:
                error.details.setdefault("model", model)
            error.args = (error.message,)
        raise
