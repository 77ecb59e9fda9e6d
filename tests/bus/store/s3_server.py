"""A real S3 server process on a free port of the loopback interface."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_RUNNING = re.compile(r"Running on http://(127\.0\.0\.1:\d+)")


@contextmanager
def s3_server() -> Iterator[str]:
    """Start the server, give its `host:port`, and stop it."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            seen = []
            for line in process.stderr:
                seen.append(line)
                if found := _RUNNING.search(line):
                    # Its log of requests must go somewhere, or the pipe fills and the server stops.
                    drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
                    yield found[1]
                    drain.terminate()
                    drain.wait()
                    return
            raise AssertionError("the S3 server did not start: " + "".join(seen))
        finally:
            process.terminate()
