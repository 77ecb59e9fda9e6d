"""`omnibus workers`: who serves what, and how."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from textwrap import wrap

import click

from bus.contracts import Lease, WorkerState
from functions.health import worker_health
from functions.leases import read_leases
from infra.cli.connect import open_bus, run
from infra.cli.table import table_lines

_WIDTH = 120
_TITLES = ("WORKER", "STATE", "TIER", "AGE s", "BUSY", "SERVED", "ENCODED", "UNIQUE MB")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Everything that they tell of themselves, as JSON.")
def workers(as_json: bool) -> None:
    """List every worker that is alive: its state, its functions, its models and their bytes."""
    leases, now_s = run(_leases()), time.time()
    if as_json:
        told = [{**lease.model_dump(mode="json"), "health": worker_health(lease, now_s)} for lease in leases]
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    if not leases:
        click.echo("no worker is alive")
        return
    for line in report(leases, now_s):
        click.echo(line)


def report(leases: Iterable[Lease], now_s: float) -> Iterator[str]:
    """Lines of at most 120 columns, where no name is longer: a row for each worker, and what it serves below it.

    Args:
        leases: Of the workers.
        now_s: Unix time.
    """
    leases = list(leases)
    title, *rows = table_lines(_TITLES, [_row(lease, now_s) for lease in leases])
    yield title
    for lease, row in zip(leases, rows, strict=True):
        yield row
        yield from _listed("group", [lease.group])
        yield from _listed("functions", lease.functions)
        yield from _listed("models", _models(lease))
        for failure in _failures(lease):
            yield from wrap(
                failure, _WIDTH, initial_indent="  ! ", subsequent_indent="    ",
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip


def warn_of_failures(leases: Iterable[Lease]) -> None:
    """Say which functions cannot run, and why."""
    for lease in leases:
        for failure in _failures(lease):
            click.secho(f"{failure}; it is tried again when models change", fg="red", err=True)


def _failures(lease: Lease) -> Iterator[str]:
    for name, status in lease.status.items():
        if status.error is not None:
            yield f"{name} cannot run [{status.error.code}]: {status.error.message}"


def _row(lease: Lease, now_s: float) -> tuple[str, ...]:
    draining = lease.state is WorkerState.DRAINING
    return (
        lease.worker,
        "DRAINING" if draining else worker_health(lease, now_s).value,
        "" if lease.tier is None else lease.tier.value,
        f"{now_s - lease.started_s:.0f}",
        f"{lease.busy}/{lease.slots}",
        str(lease.served),
        _encoded(lease.encoder_cache),
        "" if lease.unique_nbytes is None else f"{lease.unique_nbytes / 1e6:.0f}",
    )


def _models(lease: Lease) -> list[str]:
    """What is in memory, the largest first; of a worker that does not tell, what its functions are made of."""
    loaded = sorted(lease.resident.items(), key=lambda one: -one[1])
    return [f"{name} {nbytes / 1e6:.0f} MB" for name, nbytes in loaded] or list(lease.models)


def _listed(what: str, names: Iterable[str]) -> Iterator[str]:
    text = ", ".join(names)
    if text:
        indent = " " * 13
        yield from wrap(
            text, _WIDTH, initial_indent=f"  {what:<11}", subsequent_indent=indent,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


def _encoded(cache: dict[str, int]) -> str:
    """Media that were encoded before, of those that the worker was asked for."""
    asked = cache.get("hits", 0) + cache.get("misses", 0)
    return f"{cache['hits']}/{asked}" if asked else ""


async def _leases() -> list[Lease]:
    async with open_bus() as bus:
        return await read_leases(await bus.bucket("workers"))
