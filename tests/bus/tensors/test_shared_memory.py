from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from blake3 import blake3

from bus.errors import InvalidInputError, StackConfigError
from bus.tensors.shared_memory import SharedMemory, shared_memory_root

KIB = 1024

_READER = """
import sys
from bus.tensors.shared_memory import SharedMemory

memory = SharedMemory(sys.argv[1], 1 << 30)
view = memory.read(sys.argv[2], int(sys.argv[3]))
print("mapped", flush=True)
sys.stdin.readline()
sys.stdout.buffer.write(bytes(view))
"""

_ENDLESS_WRITER = """
import sys
from blake3 import blake3
from bus.tensors.shared_memory import SharedMemory

memory = SharedMemory(sys.argv[1], 1 << 28)
print("writing", flush=True)
for number in range(1 << 30):
    data = number.to_bytes(8, "little") * 500_000
    memory.write(blake3(data).hexdigest(), memoryview(data))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    path = shared_memory_root() / f"omnibus-test-{secrets.token_hex(6)}"
    yield path
    SharedMemory(path, 1).sweep()


def _content(number: int, nbytes: int = 100 * KIB) -> tuple[str, memoryview]:
    data = number.to_bytes(4, "little") * (nbytes // 4)
    return blake3(data).hexdigest(), memoryview(data)


def _age(folder: Path, name: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(folder / name, (then, then))


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_another_process_maps_what_this_one_wrote(folder: Path) -> None:
    digest, data = _content(7)
    SharedMemory(folder, 1 << 30).write(digest, data)
    arguments = [sys.executable, "-c", _READER, str(folder), digest, str(len(data))]
    read = subprocess.run(arguments, input=b"\n", stdout=subprocess.PIPE, check=True)
    assert read.stdout == b"mapped\n" + bytes(data)


def test_a_reader_keeps_its_mapping_when_the_writer_evicts_and_sweeps(folder: Path) -> None:
    memory = SharedMemory(folder, 1 << 30)
    digest, data = _content(7)
    memory.write(digest, data)
    arguments = [sys.executable, "-c", _READER, str(folder), digest, str(len(data))]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"mapped\n"
        memory.sweep()
        assert memory.read(digest, len(data)) is None
        read, _ = reader.communicate(b"\n")
    assert read == bytes(data)


def test_a_writer_killed_mid_write_leaves_only_whole_entries(folder: Path) -> None:
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", _ENDLESS_WRITER, str(folder)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"writing\n"
            while not folder.is_dir() or not _names(folder):
                assert writer.poll() is None
            writer.kill()
    memory = SharedMemory(folder, 1 << 30)
    for name in _names(folder):
        if not name.startswith(".pending-"):
            view = memory.read(name, 4_000_000)
            assert view is not None
            assert blake3(view).hexdigest() == name


def test_what_a_killed_writer_left_goes_once_it_is_old(folder: Path) -> None:
    memory = SharedMemory(folder, 1000 * KIB)
    memory.open()
    (folder / ".pending-1-old").write_bytes(b"half")
    (folder / ".pending-2-fresh").write_bytes(b"being written")
    _age(folder, ".pending-1-old", 3600)
    digest, data = _content(1)
    memory.write(digest, data)
    assert _names(folder) == {".pending-2-fresh", digest}


def test_over_the_budget_the_entry_used_longest_ago_goes(folder: Path) -> None:
    memory = SharedMemory(folder, 350 * KIB)
    contents = [_content(number) for number in range(4)]
    for age, (digest, data) in zip((30, 20, 10), contents, strict=False):
        memory.write(digest, data)
        _age(folder, digest, age)
    memory.read(contents[0][0], 100 * KIB)
    memory.write(*contents[3])
    assert _names(folder) == {contents[index][0] for index in (0, 2, 3)}


def test_writing_what_is_there_counts_as_a_use(folder: Path) -> None:
    memory = SharedMemory(folder, 250 * KIB)
    first, second, third = (_content(number) for number in range(3))
    memory.write(*first)
    memory.write(*second)
    _age(folder, first[0], 60)
    _age(folder, second[0], 30)
    memory.write(*first)
    memory.write(*third)
    assert _names(folder) == {first[0], third[0]}


def test_the_budget_is_of_all_processes_together(folder: Path) -> None:
    memories = [SharedMemory(folder, 500 * KIB) for _ in range(5)]
    for number in range(50):
        memories[number % 5].write(*_content(number))
        assert memories[0].used_nbytes() <= 500 * KIB


def test_an_entry_over_the_whole_budget_evicts_nothing(folder: Path) -> None:
    memory = SharedMemory(folder, 150 * KIB)
    small = _content(1)
    memory.write(*small)
    assert not memory.write(*_content(2, nbytes=200 * KIB))
    assert _names(folder) == {small[0]}


def test_writers_of_the_same_content_agree(folder: Path) -> None:
    digest, data = _content(3, nbytes=4000 * KIB)
    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(lambda _: SharedMemory(folder, 1 << 30).write(digest, data), range(40)))
    assert all(done)
    assert _names(folder) == {digest}
    view = SharedMemory(folder, 1 << 30).read(digest, len(data))
    assert view is not None
    assert bytes(view) == bytes(data)


def test_a_file_of_the_wrong_size_is_not_an_entry(folder: Path) -> None:
    memory = SharedMemory(folder, 1 << 30)
    memory.open()
    digest, data = _content(5)
    (folder / digest).write_bytes(b"short")
    assert memory.read(digest, len(data)) is None
    assert memory.write(digest, data)
    view = memory.read(digest, len(data))
    assert view is not None
    assert view == data


@pytest.mark.parametrize("digest", ["", "short", "../" * 21 + "x", "A" * 64, "0" * 64 + "\n"])
def test_a_name_that_is_no_digest_is_refused(folder: Path, digest: str) -> None:
    with pytest.raises(InvalidInputError, match="64 hexadecimal digits"):
        SharedMemory(folder, 1).read(digest, 10)


def test_a_budget_of_nothing_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidInputError, match="more than 0"):
        SharedMemory(folder, 0)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackConfigError, match="choose another folder"):
        SharedMemory(tmp_path / "file" / "below", 1).open()


def test_a_sweep_leaves_what_is_not_ours(folder: Path) -> None:
    memory = SharedMemory(folder, 1 << 30)
    memory.write(*_content(1))
    (folder / ".pending-1-half").write_bytes(b"half")
    (folder / "notes.txt").write_text("somebody else's")
    memory.sweep()
    assert _names(folder) == {"notes.txt"}
    (folder / "notes.txt").unlink()
    memory.sweep()
    assert not folder.exists()


def test_making_room_leaves_what_is_not_ours(folder: Path) -> None:
    memory = SharedMemory(folder, 4 * KIB)
    memory.open()
    foreign = folder / "holiday.jpg"
    foreign.write_bytes(b"x" * 100 * KIB)
    os.utime(foreign, (1, 1))
    for number in range(5):
        data = bytes([number]) * 2 * KIB
        assert memory.write(blake3(data).hexdigest(), memoryview(data))
    assert foreign.exists()
    assert memory.used_nbytes() == 4 * KIB
    foreign.unlink()


def test_a_link_to_a_folder_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    with pytest.raises(StackConfigError, match="is a link or belongs to user"):
        SharedMemory(tmp_path / "link", KIB).open()


def test_only_this_user_reads_the_entries(folder: Path) -> None:
    memory = SharedMemory(folder, 1 << 30)
    memory.open()
    digest, data = _content(1)
    memory.write(digest, data)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / digest).stat().st_mode & 0o777 == 0o400
