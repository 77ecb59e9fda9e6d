"""`omnibus workers`: who serves what."""

from __future__ import annotations

import time

import click
from rich.console import Console
from rich.table import Table

from bus.contracts import Lease
from infra.cli.connect import open_bus, run
from warmpool.lease import read_leases


@click.command()
def workers() -> None:
    """List every worker that is alive."""
    leases = run(_leases())
    if not leases:
        click.echo("no worker is alive")
        return
    table = Table(box=None, pad_edge=False)
    for title in ("WORKER", "STATE", "AGE", "BUSY", "SERVED", "MEMORY", "FUNCTIONS", "MODELS"):
        table.add_column(title, no_wrap=title in ("WORKER", "STATE"))
    for lease in leases:
        memory = "" if lease.unique_nbytes is None else f"{lease.unique_nbytes / 1e6:.0f} MB"
        table.add_row(
            lease.worker,
            lease.state.value,
            f"{time.time() - lease.started_s:.0f} s",
            f"{lease.busy}/{lease.slots}",
            str(lease.served),
            memory,
            ", ".join(lease.functions),
            ", ".join(lease.models),
        )
    Console().print(table)


async def _leases() -> list[Lease]:
    async with open_bus() as bus:
        return await read_leases(await bus.bucket("workers"))
