from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from infra.local.nats_server import free_port
from tests.delivery.processes import omnibus
from tests.hostile.stack import Stack, settled
from tests.made.pictures import corners, saved


class _Site(BaseHTTPRequestHandler):
    """A picture, redirects to places that nobody outside may reach, and a site that keeps its clients waiting."""

    def do_GET(self) -> None:
        if self.path == "/picture":
            self._say(200, saved(corners(), "PNG"))
        elif self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("location", self.path.removeprefix("/to/"))
            self.end_headers()
        elif self.path == "/silent":
            self.server.stopping.wait()  # type: ignore[attr-defined]
        else:
            self._say(404, b"")

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """URL of a web server that the stack may read."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Site) as server:
        server.stopping = threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.stopping.set()  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory, site: str) -> Iterator[Stack]:
    """One stack for all of these tests."""
    folder = tmp_path_factory.mktemp("hostile")
    log = folder / "up.log"
    variables = {
        "OMNIBUS_DATA": str(folder / "data"),
        "OMNIBUS_MEDIA_NETWORKS": "127.0.0.1/32",
        "OMNIBUS_MEDIA_PORTS": f"80,443,{site.rsplit(':', 1)[1]}",
        "OMNIBUS_MEDIA_TIMEOUT_S": "0.2",
    }
    with omnibus("up", "--port", str(free_port()), log=log, **variables) as process:
        assert settled(lambda: process.poll() is not None or "workers ready" in log.read_text(), 100), log.read_text()
        stack = Stack(folder / "data")
        with stack.http:
            yield stack


@pytest.fixture(scope="module")
def stack(running: Stack) -> Iterator[Stack]:
    """The stack, whose workers live on through all of a module's tests and are ready at their end."""
    before = running.workers()
    yield running
    assert running.workers() == before
    assert settled(lambda: running.http.get("/health").json()["status"] == "READY")
    assert _quiet(running.data / "logs")


def _quiet(logs: Path) -> bool:
    """Whether no handler failed with an error that is not one of ours."""
    loud = [line for path in logs.glob("*.log") for line in path.read_text().splitlines() if "handler failed" in line]
    assert not loud, loud
    return True
