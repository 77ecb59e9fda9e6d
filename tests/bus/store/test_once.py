from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus.store.directory import DirectoryObjectStore
from bus.store.once import KEEP_S, REFRESH_S, expire, put_once
from bus.subjects import LOGS


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DirectoryObjectStore]:
    async with DirectoryObjectStore(tmp_path) as store:
        yield store


def make_older(store: DirectoryObjectStore, by_s: float) -> None:
    for path in store.root.rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - by_s, time.time() - by_s))


async def test_a_young_object_is_not_written_again(store: DirectoryObjectStore):
    await put_once(store, "tensors/a", b"first")
    await put_once(store, "tensors/a", b"other")
    assert await store.get("tensors/a") == b"first"


async def test_an_object_that_is_made_again_is_kept_from_its_removal(store: DirectoryObjectStore):
    await put_once(store, "tensors/made-again", b"a")
    await put_once(store, "media/forgotten", b"b")
    make_older(store, KEEP_S - 60)
    await put_once(store, "tensors/made-again", b"a")
    assert await expire(store, KEEP_S - 120) == 1
    assert await store.get("tensors/made-again") == b"a"
    assert await store.nbytes("media/forgotten") is None


async def test_other_objects_do_not_expire(store: DirectoryObjectStore):
    await store.put("models/m/1/model.onnx", b"weights")
    make_older(store, 10 * KEEP_S)
    assert await expire(store) == 0


def test_objects_outlive_everything_on_the_bus_that_may_refer_to_them():
    assert max(log.keep_s for log in LOGS) <= KEEP_S - REFRESH_S
