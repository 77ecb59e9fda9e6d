"""The pool of one host on a bus: what the embedded stack and `omnibus pool` have in common."""

from __future__ import annotations

import math
import os
import secrets
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from bus.contracts import Tier
from bus.errors import StackConfigError
from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from bus.opened import Opened
from functions.deployment import group_settings, read_deployment
from functions.flow.catalog import BUILT_IN, Pipelines
from functions.registry import load_functions
from functions.suspects import Suspects
from infra.settings import PREFIX, Settings
from runtime.residency.host import free_nbytes
from warmpool.casualties import Casualties
from warmpool.forker import Forker
from warmpool.governor import Governor
from warmpool.pool import Pool
from warmpool.slot import SlotConfig
from warmpool.starter import SpawnStarter, Starter, TemplateStarter
from warmpool.streams import make_streams
from warmpool.upkeep import Upkeep, UpkeepConfig

CLOSING_S = 5.0
"""What a process may take to close its connections, after its grace period."""

_ON_DEMAND = f"{PREFIX}SCALE_TO_ZERO"


class HostPool(Opened):
    """A host's workers and who governs them. Use as a context manager.

    Args:
        settings: How many workers there are: as many as are needed where `scale_to_zero` or `warm` is set.
        nats: The bus.
        logs: Folder of the workers' logs.
        environment: Of the workers.

    Attributes:
        pool: The workers.
        bus: The bus.
        least: Workers that are always there.
    """

    def __init__(self, settings: Settings, nats: NatsConfig, logs: Path, environment: Mapping[str, str]) -> None:
        super().__init__()
        self._settings, self._nats = settings, nats
        self._governed = settings.scale_to_zero or settings.warm is not None
        # What the command line says of it does not reach the workers otherwise.
        self._logs, self._environment = logs, {**environment, **({_ON_DEMAND: "true"} if self._governed else {})}
        self.pool: Pool
        self.bus: NatsBus
        self.least = 0

    async def _open(self) -> None:
        """Connect, start the template and what is always there.

        Raises:
            BusUnavailableError: (retryable) no bus.
            WorkerStartError: The template does not start.
            StackConfigError: A deployment file that makes no sense.
        """
        settings = self._settings
        starter = await self._starter()
        self.bus = await self._stack.enter_async_context(NatsBus(self._nats))
        await self.bus.setup()
        casualties = await self._stack.enter_async_context(Casualties(Suspects(await self.bus.bucket("suspects"))))
        slots = SlotConfig(logs=self._logs, grace_s=settings.grace_s + CLOSING_S, on_end=casualties.on_end)
        upkeep = UpkeepConfig(
            max_age_s=settings.worker_age_s,
            max_served=settings.worker_messages,
            max_growth_nbytes=settings.worker_growth,
        )
        self.pool = await self._stack.enter_async_context(Pool(starter, slots, Upkeep(upkeep)))
        if self._governed:
            await self._govern()
        else:
            self.least = sum(settings.worker_counts.values())
            for group, count in settings.worker_counts.items():
                self.pool.want(group, {Tier.LOADED: count})

    async def _govern(self) -> None:
        """Let workers come and go as they are needed, here and on the other hosts of the bus."""
        settings = self._settings
        functions = load_functions(settings.modules)
        specs = list(functions)
        # Not by the first worker, which somebody waits for.
        pipelines = Pipelines.load(functions, (BUILT_IN, *settings.pipeline_folders))
        await make_streams(self.bus, self._nats, pipelines, specs)
        deployment = None if settings.warm is None else read_deployment(settings.warm, specs)
        warm = group_settings(specs, deployment, {} if settings.scale_to_zero else settings.worker_counts)
        if unknown := set(settings.own_groups) - warm.keys():
            raise StackConfigError(
                f"no function is in group {', '.join(sorted(unknown))}; groups: {', '.join(sorted(warm))}"
            )
        warm = {group: one for group, one in warm.items() if not settings.own_groups or group in settings.own_groups}
        self.least = sum(one.min for one in warm.values() if one.tier.serves)
        room_nbytes = float(settings.worker_memory or free_nbytes() or math.inf)
        governor = Governor(self.pool, self.bus, specs, warm, room_nbytes=room_nbytes, host=pool_name())
        await self._stack.enter_async_context(governor)

    async def _starter(self) -> Starter:
        spawning = SpawnStarter(_worker_command, self._environment)
        # Elsewhere a fork is not safe, and nobody adopts orphans.
        if sys.platform != "linux" or not self._settings.fork:
            return spawning
        forker = Forker(_template_command, self._environment, self._logs / "template.log")
        return await self._stack.enter_async_context(TemplateStarter(forker, spawning))


def pool_name() -> str:
    """Names this process's pool among all on a bus; one token of a subject."""
    host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname())
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"


def _worker_command(group: str, channel: int, record: int) -> list[str]:
    command = [sys.executable, "-m", "infra.cli.main", "worker"]
    return [*command, "--group", group, "--channel", str(channel), "--record", str(record)]


def _template_command(control: int) -> list[str]:
    return [sys.executable, "-m", "infra.local.template", str(control)]
