"""`omnibus gateway`: the process that serves HTTP, and loads nothing else."""

from __future__ import annotations

import click

from infra.cli.connect import log_to_stderr, run
from infra.local.gateway import serve_gateway
from infra.settings import load_settings


@click.command()
def gateway() -> None:
    """Serve HTTP from the bus of the settings."""
    settings = load_settings()
    log_to_stderr(settings.log_level)
    run(serve_gateway(settings))
