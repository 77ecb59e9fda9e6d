"""A mirror knows what was there and what changed, until it is closed."""

from __future__ import annotations

import asyncio

from bus.memory import MemoryBus
from bus.mirror import Mirror
from bus.ports import KeyValue


class Words(Mirror):
    """Keeps the entries as they are."""

    def __init__(self, bucket: KeyValue) -> None:
        super().__init__(bucket)
        self.known: dict[str, bytes | None] = {}

    def _on_change(self, key: str, value: bytes | None) -> None:
        self.known[key] = value


async def test_what_is_there_and_what_changes_is_known_until_it_is_closed() -> None:
    bucket = await MemoryBus().bucket("cancels")
    await bucket.put("early", b"1")
    words = Words(bucket)
    async with words as opened:
        assert opened is words
        assert words.known == {"early": b"1"}
        await bucket.put("late", b"2")
        await bucket.delete("early")
        async with asyncio.timeout(20):
            while words.known != {"early": None, "late": b"2"}:
                await asyncio.sleep(0.005)
    await bucket.put("later", b"3")
    assert words.known == {"early": None, "late": b"2"}
    await words.__aexit__(None, None, None)
