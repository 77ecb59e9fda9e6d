"""`omnibus up`, `omnibus worker`: what serves functions."""

from __future__ import annotations

import asyncio
import signal
import socket
from functools import partial

import click

from infra.cli.bringing import bring_published
from infra.cli.connect import log_to_stderr, run
from infra.cli.stopping import stop_asked
from infra.cli.workers import warn_of_failures
from infra.local.stack import Stack
from infra.settings import Settings, load_settings


@click.command()
@click.option("--port", type=int, help="Port of the gateway.  [default: 8000]")
@click.option("--data", type=click.Path(file_okay=False), help="Folder of the bus, the objects and the logs.")
@click.option("--workers", help="Workers by group, such as media=1,generate=2.")
@click.option("--warm", type=click.Path(dir_okay=False), help="Deployment file: how warm functions are kept.")
@click.option(
    "--scale-to-zero", is_flag=True, default=None, help="Start workers when they are needed, and let them go."
)
def up(port: int | None, data: str | None, workers: str | None, warm: str | None, scale_to_zero: bool | None) -> None:
    """Serve everything on this machine until Ctrl-C.

    A hang-up (SIGHUP) replaces the workers one after the other by fresh ones, and loses nothing. A second Ctrl-C or
    SIGTERM does not wait for what runs: it is done when everything is served again.
    """
    settings = load_settings(port=port, data=data, workers=workers, warm=warm, scale_to_zero=scale_to_zero)
    log_to_stderr(settings.log_level)
    bring_published(settings, settings.own_groups)
    run(_up(settings))


@click.command()
@click.option("--group", "groups", multiple=True, help="Function group to serve; several are fine.  [default: all]")
@click.option("--channel", type=int, hidden=True, help="Number of the socket to its pool.")
@click.option("--record", type=int, hidden=True, help="Number of its flight record's file.")
def worker(groups: tuple[str, ...], channel: int | None, record: int | None) -> None:
    """Serve functions from the bus of the settings (OMNIBUS_NATS_URL, OMNIBUS_STORE_URL, …)."""
    from infra.local.worker_config import worker_config
    from warmpool.protocol import Channel
    from warmpool.record import FlightRecord
    from warmpool.worker import Worker

    settings = load_settings()
    log_to_stderr(settings.log_level)
    if channel is None:  # else its pool has done so
        bring_published(settings, groups)
    run(
        Worker(
            worker_config(settings, groups),
            None if channel is None else Channel(socket.socket(fileno=channel)),
            None if record is None else FlightRecord(record),
        ).run()
    )


def _renew(stack: Stack, renewing: set[asyncio.Task[None]]) -> None:
    task = asyncio.get_running_loop().create_task(stack.renew())
    renewing.add(task)
    task.add_done_callback(renewing.discard)


async def _up(settings: Settings) -> None:
    stop = stop_asked()
    async with Stack(settings) as stack:
        hang_up = partial(_renew, stack, set[asyncio.Task[None]]())
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up)
        click.echo(f"gateway {stack.info.gateway_url}  bus {stack.info.nats_url}  data {settings.data}")
        waiting = asyncio.get_running_loop().create_task(stop.wait())
        running = asyncio.get_running_loop().create_task(stack.run())
        ready = asyncio.get_running_loop().create_task(stack.wait_until_ready())
        await asyncio.wait([waiting, running, ready], return_when=asyncio.FIRST_COMPLETED)
        if ready.done() and not stop.is_set():
            leases = ready.result()
            click.echo(f"{len(leases)} workers ready; docs at {stack.info.gateway_url}/docs; Ctrl-C stops")
            warn_of_failures(leases)
            await asyncio.wait([waiting, running], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if running.done():
            running.result()
        running.cancel()
        click.echo("stopping")
