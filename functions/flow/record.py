"""Errors and notes as they travel: plain values of a bounded size, whatever a handler put into them."""

from __future__ import annotations

from typing import Any

import ormsgpack

from bus.contracts import ErrorRecord
from bus.errors import OmnibusError

MOST_TEXT = 4_000
"""Characters of an error's message that travel."""

MOST_NBYTES = 16_000
"""Bytes of one detail or note that travel."""


def error_record(error: OmnibusError, stage: str | None = None) -> ErrorRecord:
    """The error as it travels."""
    return ErrorRecord(
        code=error.code,
        message=_text(error.message),
        retryable=error.retryable,
        retry_after_s=error.retry_after_s,
        stage=stage,
        details=plain(error.details),
    )


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """The values, where they can travel; else what they look like, or how large they were."""
    return {_text(name): _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    value = getattr(value, "item", lambda: value)() if getattr(value, "shape", None) == () else value
    try:
        nbytes = len(ormsgpack.packb(value))
    except TypeError:
        return _text(repr(value))
    return value if nbytes <= MOST_NBYTES else f"left out: {nbytes} bytes"


def _text(text: str) -> str:
    # Names of files that are not UTF-8 come as lone surrogates, which no message can carry.
    text = text.encode(errors="replace").decode()
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "…"
