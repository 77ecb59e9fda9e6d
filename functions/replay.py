"""Dead letters, tried again."""

from __future__ import annotations

from collections.abc import Sequence

from bus import subjects
from bus.contracts import DeadLetter
from bus.contracts.codec import decode, encode
from bus.errors import InvalidInputError, UnknownRequestError
from bus.headers import event_headers
from bus.ports import Bus
from functions.cancel import Cancellations

_MOST_LETTERS = 10_000


async def dead_letters(bus: Bus, function: str = ">") -> list[DeadLetter]:
    """The dead letters of a function, or of all, oldest first."""
    found = await bus.history(subjects.dead(function), limit=_MOST_LETTERS)
    return [decode(DeadLetter, data) for _, data in found]


async def dead_letters_of(bus: Bus, request: str) -> list[DeadLetter]:
    """The dead letters of a request, oldest first.

    Raises:
        UnknownRequestError: It has none.
    """
    letters = [letter for letter in await dead_letters(bus) if letter.event.request == request]
    if not letters:
        raise UnknownRequestError(f"no dead letter of request {request!r}; see `omnibus dlq ls`", request=request)
    return letters


async def replay(bus: Bus, letters: Sequence[DeadLetter]) -> int:
    """Publish the failed stages of requests again, as new runs; returns how many.

    That a request had failed is forgotten first. Of a stage that failed several times the last letter counts.

    Raises:
        InvalidInputError: A letter whose inputs were too large to keep.
    """
    last = {(letter.event.request, letter.event.stage): letter for letter in letters}
    for letter in last.values():
        if "left_out" in letter.error.details:
            raise InvalidInputError(
                f"request {letter.event.request!r} cannot be replayed from {letter.event.stage}: its inputs were too "
                "large for a dead letter; send the request again",
                request=letter.event.request,
            )
    cancellations = Cancellations(await bus.bucket("cancels"))
    for request in {request for request, _ in last}:
        await cancellations.withdraw(request)
        await bus.forget(subjects.result(request))
    for letter in last.values():
        event = letter.event.model_copy(update={"sequence": letter.event.sequence + 1, "deadline_s": None})
        await bus.publish(
            subjects.work(event.function, event.lane),
            encode(event),
            message_id=event.message_id,
            headers=event_headers(event),
        )
    return len(last)
