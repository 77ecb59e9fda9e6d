"""`omnibus pool`: a host's workers, as many as are needed, on a bus that others are on, too."""

from __future__ import annotations

import asyncio
import os

import click

from infra.cli.bringing import bring_published
from infra.cli.connect import log_to_stderr, run
from infra.cli.stopping import stop_asked
from infra.local.host import HostPool
from infra.settings import Settings, load_settings


@click.command()
@click.option("--warm", type=click.Path(dir_okay=False), help="Deployment file: how warm functions are kept.")
@click.option("--group", "groups", multiple=True, help="Function group to serve; may be given again. None: all.")
def pool(warm: str | None, groups: tuple[str, ...]) -> None:
    """Serve functions with as many workers as are needed, from the bus of the settings.

    Pools on one bus share the work by what each of them can run. Without a deployment file all scale to zero. A pool
    for some groups keeps them apart from others: on another device, under another account, with packages of their own.
    """
    settings = load_settings(warm=warm, groups=",".join(groups) or None)
    if settings.warm is None:
        settings = settings.model_copy(update={"scale_to_zero": True})
    log_to_stderr(settings.log_level)
    bring_published(settings, settings.own_groups)
    run(_pool(settings))


async def _pool(settings: Settings) -> None:
    stop = stop_asked()
    logs = settings.data / "logs"
    await asyncio.to_thread(logs.mkdir, parents=True, exist_ok=True)
    async with HostPool(settings, settings.nats, logs, dict(os.environ)) as host:
        click.echo(f"pool on {settings.nats_url}; logs in {logs}; Ctrl-C stops")
        waiting = asyncio.get_running_loop().create_task(stop.wait())
        failed = asyncio.get_running_loop().create_task(host.pool.failed())
        await asyncio.wait([waiting, failed], return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
        failed.cancel()
        waiting.cancel()
