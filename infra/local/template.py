"""The template of the embedded stack's workers.

    python -m infra.local.template CONTROL

CONTROL is the number of a socket to the pool; the settings come from the environment, as for every worker.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from bus.errors import OmnibusError
from infra.cli.connect import log_to_stderr, run
from infra.local.worker_config import worker_config
from infra.settings import Settings, load_settings
from warmpool.preload import preload
from warmpool.protocol import Channel
from warmpool.record import FlightRecord
from warmpool.template import serve_template


def main(control: int) -> None:
    """Import everything and fork workers until the pool hangs up."""
    settings = load_settings()
    log_to_stderr(settings.log_level)

    def become(request: Mapping[str, Any], channel: socket.socket, descriptors: Sequence[int]) -> int:
        return serve_forked(settings, str(request["group"]), channel, descriptors)

    def imports() -> Mapping[str, str]:
        return preload(settings.modules, settings.device, settings.pipeline_folders, settings.models)

    serve_template(socket.socket(fileno=control), imports, become)


def serve_forked(settings: Settings, group: str, channel: socket.socket, descriptors: Sequence[int]) -> int:
    """The life of a forked worker; its exit status."""
    from warmpool.worker import Worker

    (record,) = descriptors
    try:
        run(Worker(worker_config(settings, (group,)), Channel(channel), FlightRecord(record)).run())
    except OmnibusError as error:
        click.secho(f"error [{error.code}]: {error.message}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
