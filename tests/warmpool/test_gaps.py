"""What is published while a governor's connection is down brings a worker all the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bus.nats.bus import NatsBus
from bus.nats.connection import NatsConfig
from functions.warm import WarmSpec
from tests.bus.nats.proxy import proxy
from tests.bus.nats_server import nats_server
from tests.warmpool.pools import running, until
from tests.warmpool.test_governor import hurried, spec
from tests.warmpool.test_tenants import ask, counts
from warmpool.governor import Governor
from warmpool.policy.pool_policy import PoolPolicy
from warmpool.policy.view import Decision, GroupView


class Counted(PoolPolicy):
    """Tells how often it has decided."""

    decided = 0

    def decide(self, groups: Sequence[GroupView], room_nbytes: float, now_s: float) -> Decision:
        self.decided += 1
        return super().decide(groups, room_nbytes, now_s)


async def test_work_of_a_time_without_connection_is_found_after_it(tmp_path: Path) -> None:
    with nats_server(tmp_path / "nats") as url:
        async with (
            proxy(url) as network,
            NatsBus(NatsConfig(url=url)) as steady,
            NatsBus(NatsConfig(url=network.url)) as shaky,
            running(tmp_path) as pool,
        ):
            await steady.setup()
            policy, functions = Counted(), [spec("cold.work", "cold")]
            async with Governor(pool, shaky, functions, {"cold": WarmSpec()}, policy=policy, clock=hurried):
                await until(lambda: policy.decided == 2)  # once before it listens, and once for what was before
                network.shut()
                await ask(steady, "cold.work", "somebody", 1)
                await network.let_in()
                await until(lambda: counts(pool, "cold") == [1])
