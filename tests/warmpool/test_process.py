from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from warmpool.process import spawn, stop

_PARENT = """
import asyncio, sys
from warmpool.process import spawn
async def main():
    child = await spawn([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"])
    print(child.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""

_DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_a_child_dies_with_a_parent_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        lines = [parent.stdout.readline().strip() for _ in range(2)]
        child = next(int(line) for line in lines if line.isdigit())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        deadline = time.monotonic() + 10
        while not gone(child):
            assert time.monotonic() < deadline, f"process {child} outlived its parent"
            time.sleep(0.005)


async def test_a_child_that_does_not_stop_is_killed(tmp_path: Path):
    log = tmp_path / "log"
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    process = await spawn([sys.executable, "-c", stubborn], log_path=str(log))
    while b"deaf" not in log.read_bytes():
        await asyncio.sleep(0.005)
    assert await stop(process, 0.1) == -signal.SIGKILL
    assert gone(process.pid)


async def test_a_child_is_in_a_session_of_its_own(tmp_path: Path):
    process = await spawn([sys.executable, "-c", "import time; time.sleep(600)"], log_path=str(tmp_path / "log"))
    assert os.getsid(process.pid) != os.getsid(0)
    assert await stop(process, 10) in (-signal.SIGTERM, 1)
