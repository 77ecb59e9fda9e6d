"""Errors about one of several pieces of media say which one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bus.errors import FunctionError, OmnibusError


@contextmanager
def about(part: int) -> Iterator[None]:
    """Whatever goes wrong inside is about this piece of media, unless it says another one.

    The error stays what it is, with `part` in its details and at the head of its message; that a request was cancelled
    or is late is about no piece.

    Args:
        part: Its index in the request's list of media.
    """
    try:
        yield
    except FunctionError:
        raise
    except OmnibusError as error:
        if "part" not in error.details:
            error.details["part"] = part
            error.message = f"media {part}: {error.message}"
            error.args = (error.message,)
        raise
