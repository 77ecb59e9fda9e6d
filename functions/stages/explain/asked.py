"""What was asked, kept for as long as the answer is, so that the answer can be explained."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bus.contracts import Contract
from bus.contracts.codec import decode, encode
from bus.errors import ObjectMissingError, UnknownRequestError
from bus.ports import ObjectStore

PREFIX = "requests/"


class Asked(Contract):
    """A request with media, as it came to its pipeline."""

    schema_name = "omnibus.asked"
    schema_version = 1

    request: str
    pipeline: str
    inputs: dict[str, Any] = Field(description="The pipeline's inputs that the answer depends on, by name.")


async def keep_asked(store: ObjectStore, asked: Asked) -> None:
    """Remember a request.

    Raises:
        StoreUnavailableError: (retryable) the store does not answer.
    """
    await store.put(f"{PREFIX}{asked.request}", encode(asked))


async def find_asked(store: ObjectStore, request: str) -> Asked:
    """What was asked in a request.

    Raises:
        UnknownRequestError: It had no media, or it is too long ago.
        StoreUnavailableError: (retryable) the store does not answer.
    """
    try:
        return decode(Asked, await store.get(f"{PREFIX}{request}"))
    except ObjectMissingError as error:
        raise UnknownRequestError(
            f"nothing can be explained of request {request!r}: no media were in it, or it is too long ago; chats with "
            "media can be explained for as long as media are kept",
            request=request,
        ) from error
