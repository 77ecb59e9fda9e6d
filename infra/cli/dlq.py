"""`omnibus dlq`: events that failed for good."""

from __future__ import annotations

import time

import click

from bus.contracts import DeadLetter
from functions.replay import dead_letters, dead_letters_of
from functions.replay import replay as replay_letters
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
        return await dead_letters(bus, function)


async def _of_request(request: str) -> list[DeadLetter]:
    async with open_bus() as bus:
        return await dead_letters_of(bus, request)


async def _replay(request: str) -> int:
    async with open_bus() as bus:
        return await replay_letters(bus, await dead_letters_of(bus, request))
