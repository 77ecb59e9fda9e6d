"""`omnibus dlq`: events that failed for good."""

from __future__ import annotations

import time

import click

from bus import subjects
from bus.contracts import DeadLetter
from bus.contracts.codec import decode, encode
from bus.errors import UnknownRequestError
from bus.nats.bus import NatsBus
from functions.cancel import Cancellations
from functions.flow.router import event_headers
from infra.cli.connect import open_bus, run
from infra.cli.table import print_table


@click.group()
def dlq() -> None:
    """List, show and replay dead letters; they are kept for 7 days."""


@dlq.command()
@click.option("--function", default=">", help="Only letters of this function.")
def ls(function: str) -> None:
    """List dead letters, oldest first."""
    print_table(
        ("REQUEST", "FUNCTION", "STAGE", "AGE", "TRIES", "ERROR"),
        [
            (
                letter.event.request,
                letter.event.function,
                letter.event.stage,
                f"{time.time() - letter.dead_s:.0f} s",
                str(letter.attempts),
                f"{letter.error.code}: {letter.error.message}",
            )
            for letter in run(_letters(function))
        ],
    )


@dlq.command()
@click.argument("request")
def show(request: str) -> None:
    """Print the dead letters of a request, whole."""
    for letter in run(_of_request(request)):
        click.echo(letter.model_dump_json(indent=2))


@dlq.command()
@click.argument("request")
def replay(request: str) -> None:
    """Try the failed stages of a request again; what follows them runs, too."""
    count = run(_replay(request))
    click.echo(f"{count} published again; follow it with `omnibus trace {request}`")


async def _letters(function: str) -> list[DeadLetter]:
    async with open_bus() as bus:
        return [decode(DeadLetter, data) for _, data in await bus.history(subjects.dead(function), limit=10_000)]


async def _of_request(request: str) -> list[DeadLetter]:
    letters = [letter for letter in await _letters(">") if letter.event.request == request]
    if not letters:
        raise UnknownRequestError(f"no dead letter of request {request!r}; see `omnibus dlq ls`", request=request)
    return letters


async def _replay(request: str) -> int:
    letters = await _of_request(request)
    async with open_bus() as bus:
        await replay_letters(bus, letters)
    return len(letters)


async def replay_letters(bus: NatsBus, letters: list[DeadLetter]) -> None:
    """Publish the events of dead letters again, as new runs, and forget that their requests had failed."""
    cancellations = Cancellations(await bus.bucket("cancels"))
    for letter in letters:
        event = letter.event.model_copy(update={"sequence": letter.event.sequence + 1, "deadline_s": None})
        await cancellations.withdraw(event.request)
        await bus.forget(subjects.result(event.request))
        await bus.publish(
            subjects.work(event.function, event.lane),
            encode(event),
            message_id=event.message_id,
            headers=event_headers(event),
        )
