"""A real nats-server with JetStream on a free port of the loopback interface."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BINARY = Path(sysconfig.get_path("scripts")) / "nats-server"


@contextmanager
def nats_server(folder: Path, *, port: int = -1) -> Iterator[str]:
    """Start the server over a folder, give its URL once it accepts connections, and stop it.

    A server that is started again over the same folder has the same streams.
    """
    log = folder / "server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    arguments = ["--jetstream", "--store_dir", str(folder), "--addr", "127.0.0.1", "--port", str(port)]
    ports = folder / "ports"
    ports.mkdir(exist_ok=True)
    with subprocess.Popen([BINARY, *arguments, "--log", str(log), "--ports_file_dir", str(ports)]) as process:
        try:
            yield _url(process, ports, log)
        finally:
            process.terminate()
            process.wait()


def _url(process: subprocess.Popen[bytes], ports: Path, log: Path) -> str:
    # The server writes its ports once it listens, to a file named after its process.
    while process.poll() is None:
        for path in ports.glob(f"*_{process.pid}.ports"):
            if text := path.read_text():
                return str(json.loads(text)["nats"][0])
    raise AssertionError(f"nats-server did not start: {log.read_text() if log.exists() else ''}")
