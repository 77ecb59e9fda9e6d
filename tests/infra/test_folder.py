from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bus.errors import StackConfigError
from infra.local.folder import DataFolder, StackInfo, find_stack

_HOLD = """
import sys
from pathlib import Path
from infra.local.folder import DataFolder
with DataFolder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def info(**fields: object) -> StackInfo:
    known = {"pid": 1, "gateway_url": "http://x", "nats_url": "nats://x", "nats_token": "t", "store_url": "file:///x"}
    return StackInfo(**{**known, "tensors": "/x", **fields})  # type: ignore[arg-type]


def test_a_second_stack_in_the_same_folder_is_refused_and_names_the_first(tmp_path: Path):
    with DataFolder(tmp_path), pytest.raises(StackConfigError, match=rf"process {os.getpid()}\) already runs"):
        DataFolder(tmp_path).__enter__()


def test_the_lock_of_a_stack_that_was_killed_is_no_hindrance(tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StackConfigError, match=rf"process {holder.pid}\)"):
            DataFolder(tmp_path).__enter__()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with DataFolder(tmp_path):
        pass


def test_a_folder_that_cannot_be_written_is_named_with_the_remedy(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StackConfigError, match="set OMNIBUS_DATA to a folder of yours"):
        DataFolder(tmp_path / "file" / "below").__enter__()


def test_others_find_a_running_stack_and_none_that_has_stopped(tmp_path: Path):
    assert find_stack(tmp_path / "nowhere") is None
    with DataFolder(tmp_path) as folder:
        assert find_stack(tmp_path) is None
        folder.publish(info(nats_token="secret"))
        assert find_stack(tmp_path) == info(nats_token="secret")
        assert stat.S_IMODE((tmp_path / "stack.json").stat().st_mode) == 0o600
    assert find_stack(tmp_path) is None


def test_a_stack_file_left_by_a_kill_is_not_believed(tmp_path: Path):
    with DataFolder(tmp_path) as folder:
        folder.publish(info())
        left = (tmp_path / "stack.json").read_bytes()
    (tmp_path / "stack.json").write_bytes(left)
    assert find_stack(tmp_path) is None
