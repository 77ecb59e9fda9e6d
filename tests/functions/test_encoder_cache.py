"""What was encoded is found by content, model and settings; under a budget, and not by other tenants."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bus.contracts import Modality, TokenBlock
from bus.contracts.codec import decode
from bus.memory import MemoryBus
from bus.ports import KeyValue, ObjectStore
from bus.store.bucket import S3Config
from bus.store.directory import DirectoryObjectStore
from bus.store.s3 import S3ObjectStore
from bus.tensors.plane import Plane
from functions.encoder_cache import EncodedMedia, EncoderCache

LARGE = 20_000
"""Numbers of an embedding that is too large to ride inside a message."""


class Desk:
    """A bucket and a store, and caches over them."""

    def __init__(self, bucket: KeyValue, store: ObjectStore, plane: Plane) -> None:
        self.bucket, self.store, self.plane = bucket, store, plane
        self.now_s = 1_000.0

    @asynccontextmanager
    async def cache(self, **settings: Any) -> AsyncIterator[EncoderCache]:
        async with EncoderCache(self.bucket, self.store, clock=lambda: self.now_s, **settings) as cache:
            yield cache

    async def block(self, seed: int, numbers: int = 8) -> TokenBlock:
        rows = np.random.default_rng(seed).standard_normal((2, numbers // 2)).astype(np.float32)
        return TokenBlock(
            modality=Modality.IMAGE, embeddings=await self.plane.put(rows), encoder="eyes@1", source=f"media {seed}"
        )


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    bucket = await MemoryBus().bucket("encoded")
    async with DirectoryObjectStore(tmp_path / "store") as store, Plane(store, directory=tmp_path / "shm") as plane:
        yield Desk(bucket, store, plane)


async def test_a_block_is_found_by_whoever_asks_for_the_same(desk: Desk) -> None:
    block = await desk.block(1)
    async with desk.cache() as one, desk.cache() as other:
        key = one.key("anna", "digest", "eyes", "low", 4)
        assert await one.get(key) is None
        await one.put(key, block)
        await asyncio.sleep(0)  # the other one is told
        assert await one.get(key) == await other.get(key) == block
        assert (one.statistics, other.statistics) == (
            {"hits": 1, "misses": 1, "evicted": 0, "entries": 1, "nbytes": 32},
            {"hits": 1, "misses": 0, "evicted": 0, "entries": 1, "nbytes": 32},
        )
    async with desk.cache() as later:
        assert await later.get(key) == block


@pytest.mark.parametrize(
    "change",
    [
        lambda cache: cache.key("bert", "digest", "eyes", "low", 4),
        lambda cache: cache.key("anna", "other", "eyes", "low", 4),
        lambda cache: cache.key("anna", "digest", "ears", "low", 4),
        lambda cache: cache.key("anna", "digest", "eyes", "high", 4),
        lambda cache: cache.key("anna", "digest", "eyes", "low", None),
    ],
    ids=["tenant", "media", "model", "detail", "budget"],
)
async def test_whatever_differs_is_another_block(desk: Desk, change: Callable[[EncoderCache], str]) -> None:
    async with desk.cache() as cache:
        await cache.put(cache.key("anna", "digest", "eyes", "low", 4), await desk.block(1))
        assert await cache.get(change(cache)) is None


async def test_tenants_share_only_where_the_deployer_lets_them(desk: Desk) -> None:
    block = await desk.block(1)
    async with desk.cache(shared=True) as cache, desk.cache() as strict:
        key = cache.key("anna", "digest", "eyes")
        await cache.put(key, block)
        assert await cache.get(cache.key("bert", "digest", "eyes")) == block
        await asyncio.sleep(0)
        assert await strict.get(strict.key("", "digest", "eyes")) is None


async def test_over_the_budget_what_was_unused_for_longest_goes(desk: Desk) -> None:
    async with desk.cache(budget_nbytes=100) as cache:
        for seed in range(3):
            desk.now_s += 1
            await cache.put(f"key-{seed}", await desk.block(seed))
        desk.now_s += 100
        assert await cache.get("key-0") is not None
        desk.now_s += 1
        await cache.put("key-3", await desk.block(3))
        kept = [seed for seed in range(4) if await cache.get(f"key-{seed}") is not None]
        assert kept == [0, 3]
        assert cache.statistics["evicted"] == 2
        assert cache.statistics["nbytes"] == 64
        assert set(await desk.bucket.entries()) == {"key-0", "key-3"}


async def test_what_is_larger_than_the_budget_is_not_kept(desk: Desk) -> None:
    async with desk.cache(budget_nbytes=0) as cache:
        await cache.put("key", await desk.block(1))
        assert await cache.get("key") is None
        assert await desk.bucket.entries() == {}


async def test_a_block_whose_tensor_has_vanished_is_no_hit(desk: Desk) -> None:
    block = await desk.block(1, LARGE)
    assert block.embeddings is not None
    assert block.embeddings.key is not None
    async with desk.cache() as cache:
        await cache.put("key", block)
        assert await cache.get("key") == block
        await desk.store.delete(block.embeddings.key)
        assert await cache.get("key") is None
        assert cache.statistics["entries"] == 0
        await cache.put("key", await desk.block(1, LARGE))
        assert await cache.get("key") == block


async def test_what_is_so_old_that_its_tensors_go_soon_is_made_again(desk: Desk) -> None:
    async with desk.cache() as cache:
        await cache.put("key", await desk.block(1))
        desk.now_s += 6.9 * 86_400
        assert await cache.get("key") is not None
        desk.now_s += 0.2 * 86_400
        assert await cache.get("key") is None


async def test_what_is_too_old_is_removed_though_nobody_asks_for_it(desk: Desk) -> None:
    async with desk.cache() as cache:
        await cache.put("old", await desk.block(1))
        desk.now_s += 8 * 86_400
        await cache.put("new", await desk.block(2))
        assert set(await desk.bucket.entries()) == {"new"}
        assert (cache.statistics["entries"], cache.statistics["nbytes"]) == (1, 32)


async def test_the_bytes_that_are_kept_are_those_of_the_entries_whoever_wrote_them(desk: Desk) -> None:
    async with desk.cache(budget_nbytes=1000) as one, desk.cache(budget_nbytes=1000) as other:
        for seed in range(50):
            desk.now_s += 1
            await (one, other)[seed % 2].put(f"key-{seed % 7}", await desk.block(seed, 8 * (seed % 5 + 1)))
        await desk.bucket.delete("key-3")
        blocks = [decode(EncodedMedia, value).block for value in (await desk.bucket.entries()).values()]
        kept = sum(block.embeddings.nbytes for block in blocks if block.embeddings is not None)
        async with asyncio.timeout(30):  # each hears of what the other one wrote a moment later
            while not one.statistics["nbytes"] == other.statistics["nbytes"] == kept:
                await asyncio.sleep(0)
        assert one.statistics["entries"] == len(blocks) == 6


async def test_an_entry_that_nobody_here_understands_is_no_hit(desk: Desk) -> None:
    async with desk.cache() as cache:
        await cache.put("key", await desk.block(1))
        await desk.bucket.put("key", b"\x81\xa6schema\xa8newer/99")
        assert await cache.get("key") is None
        await asyncio.sleep(0)
        assert await cache.get("key") is None


async def test_a_store_that_does_not_answer_makes_no_request_fail(desk: Desk) -> None:
    block = await desk.block(1, LARGE)
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        # Bound and not listening: every connection is refused.
        config = S3Config(bucket="media", endpoint=f"127.0.0.1:{reserved.getsockname()[1]}", secure=False)
        elsewhere = EncoderCache(desk.bucket, S3ObjectStore(config), clock=lambda: desk.now_s)
        async with desk.cache() as cache, elsewhere as cut_off:
            await cache.put("key", block)
            await asyncio.sleep(0)
            assert await cut_off.get("key") is None
            assert cut_off.statistics["entries"] == 1
            assert await cache.get("key") == block
