from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bus.errors import StoreUnavailableError
from bus.store.directory import DirectoryObjectStore

_ENDLESS_WRITER = """
import asyncio, sys
from bus.store.directory import DirectoryObjectStore

async def main():
    async with DirectoryObjectStore(sys.argv[1]) as store:
        print("writing", flush=True)
        while True:
            await store.put("media/key", b"x" * 4_000_000)

asyncio.run(main())
"""


async def test_a_writer_killed_at_any_instant_leaves_a_whole_object_or_none(tmp_path: Path) -> None:
    for _ in range(3):
        writer = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _ENDLESS_WRITER, str(tmp_path), stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        assert await writer.stdout.readline() == b"writing\n"
        writer.kill()
        await writer.wait()
        async with DirectoryObjectStore(tmp_path) as store:
            assert await store.nbytes("media/key") in (None, 4_000_000)
            assert [key async for key in store.keys("media/")] in ([], ["media/key"])


async def test_what_a_killed_writer_left_is_removed_on_open_once_it_is_old(tmp_path: Path) -> None:
    async with DirectoryObjectStore(tmp_path):
        old, fresh = tmp_path / ".pending" / "1-old", tmp_path / ".pending" / "2-fresh"
        old.write_bytes(b"half")
        fresh.write_bytes(b"being written by another process")
        hours_ago = time.time() - 7200
        os.utime(old, (hours_ago, hours_ago))
    async with DirectoryObjectStore(tmp_path):
        assert not old.exists()
        assert fresh.exists()


async def test_a_folder_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreUnavailableError, match=r"cannot open .*file"):
        async with DirectoryObjectStore(tmp_path / "file"):
            pass


async def test_a_folder_removed_while_open_is_made_again_by_the_next_write(tmp_path: Path) -> None:
    async with DirectoryObjectStore(tmp_path / "objects") as store:
        (tmp_path / "objects" / ".pending").rmdir()
        (tmp_path / "objects").rmdir()
        await store.put("a/b", b"x")
        assert await store.get("a/b") == b"x"


async def test_nothing_but_the_objects_stays_behind(tmp_path: Path) -> None:
    async with DirectoryObjectStore(tmp_path) as store:
        for number in range(50):
            await store.put(f"tensors/{number}", b"x")
    assert sum(len(files) for _, _, files in os.walk(tmp_path)) == 50
