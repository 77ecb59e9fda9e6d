"""A hub on a free port that has one repository."""

from __future__ import annotations

import hashlib
import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.made.local_server import LocalServer

COMMIT = "0123456789abcdef"


class Hub(LocalServer):
    """Serves a folder as the repository `tiny/Chat` at one commit, which `main` and `v1` stand for.

    Attributes:
        folder: The folder.
        listing: What the listing says instead of the truth; None: the truth.
        damaged: Names of files that are sent with their last byte missing.
        asked: Paths of all requests.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listing: bytes | None = None
        self.damaged: set[str] = set()
        self.asked: list[str] = []
        super().__init__(_handler(self))

    def answer(self, path: str) -> bytes | None:
        """The body of an answer; None: there is no such thing."""
        self.asked.append(path)
        place, _, query = path.partition("?")
        if place in ("/api/models/tiny/Chat/revision/main", "/api/models/tiny/Chat/revision/v1"):
            files = [_listed(file, query == "blobs=true") for file in sorted(self.folder.iterdir())]
            truth = {"sha": COMMIT, "siblings": files, "cardData": {"license": "mit"}}
            return self.listing if self.listing is not None else json.dumps(truth).encode()
        file = self.folder / path.rpartition("/")[2]
        if not path.startswith(f"/tiny/Chat/resolve/{COMMIT}/") or not file.is_file():
            return None
        return file.read_bytes()[: -1 if file.name in self.damaged else None]


def _listed(file: Path, digests: bool) -> dict[str, Any]:
    """As the hub lists a file; it keeps digests of those that are large, when it is asked for them."""
    if not digests or file.suffix != ".safetensors":
        return {"rfilename": file.name}
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {"rfilename": file.name, "lfs": {"sha256": digest, "size": file.stat().st_size, "pointerSize": 134}}


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = hub.answer(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Say nothing."""

    return Handler
