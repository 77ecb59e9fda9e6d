"""`omnibus workers`: who serves what."""

from __future__ import annotations

import time
from collections.abc import Iterable

import click

from bus.contracts import Lease
from infra.cli.connect import open_bus, run
from infra.cli.table import print_table
from warmpool.lease import read_leases


@click.command()
def workers() -> None:
    """List every worker that is alive."""
    leases = run(_leases())
    if not leases:
        click.echo("no worker is alive")
        return
    print_table(
        ("WORKER", "STATE", "TIER", "AGE", "BUSY", "SERVED", "MEMORY MB", "ENCODED", "FUNCTIONS", "MODELS"),
        [
            (
                lease.worker,
                lease.state.value,
                "" if lease.tier is None else lease.tier.value,
                f"{time.time() - lease.started_s:.0f} s",
                f"{lease.busy}/{lease.slots}",
                str(lease.served),
                "" if lease.unique_nbytes is None else f"{lease.unique_nbytes / 1e6:.0f}",
                _encoded(lease.encoder_cache),
                ", ".join(lease.functions),
                ", ".join(lease.models),
            )
            for lease in leases
        ],
    )


def warn_of_failures(leases: Iterable[Lease]) -> None:
    """Say which functions cannot run, and why."""
    for lease in leases:
        for name, status in lease.status.items():
            if status.error is not None:
                failure = f"{name} cannot run [{status.error.code}]: {status.error.message}"
                click.secho(f"{failure}; it is tried again when models change", fg="red", err=True)


def _encoded(cache: dict[str, int]) -> str:
    """Media that were encoded before, of those that the worker was asked for."""
    asked = cache.get("hits", 0) + cache.get("misses", 0)
    return f"{cache['hits']}/{asked}" if asked else ""


async def _leases() -> list[Lease]:
    async with open_bus() as bus:
        return await read_leases(await bus.bucket("workers"))
