"""A package index on a free port: a simple index, archives with byte ranges, and interruptions on demand."""

from __future__ import annotations

import hashlib
import io
import re
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


def wheel(files: dict[str, bytes]) -> bytes:
    """A wheel with these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as zipped:
        for name, data in files.items():
            zipped.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), data)
    return buffer.getvalue()


class IndexServer:
    """Serves archives by file name and records what was asked for.

    Attributes:
        archives: Bytes by file name.
        requests: Path and Range header of every request.
        cut_after: Bytes after which each answer of an archive breaks off, one for each of the next answers.
        show_digests: Whether the index tells digests.
    """

    def __init__(self) -> None:
        self.archives: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.cut_after: list[int] = []
        self.show_digests = True
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/simple"

    def downloads(self) -> list[str | None]:
        """The Range header of every request for an archive."""
        return [span for path, span in self.requests if path.startswith("/files/")]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def page(self, project: str) -> str:
        links = []
        for name, data in self.archives.items():
            if re.sub(r"[-_.]+", "-", name.split("-")[0]).lower() == project:
                digest = f"#sha256={hashlib.sha256(data).hexdigest()}" if self.show_digests else ""
                links.append(f'<a href="../../files/{name}{digest}">{name}</a>')
        return "<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>"


def _handler(index: IndexServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            span = self.headers.get("Range")
            index.requests.append((self.path, span))
            if self.path.startswith("/simple/"):
                self._answer(200, index.page(self.path.split("/")[2]).encode(), "text/html")
                return
            data = index.archives.get(self.path.rpartition("/")[2])
            if data is None:
                self._answer(404, b"", "text/plain")
                return
            self._archive(data, int(span[6:].rstrip("-")) if span else 0)

        def _archive(self, data: bytes, start: int) -> None:
            if start >= len(data):
                self._answer(416, b"", "text/plain", {"Content-Range": f"bytes */{len(data)}"})
                return
            rest = data[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            cut = index.cut_after.pop(0) if index.cut_after else len(rest)
            self.wfile.write(rest[:cut])

        def _answer(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            pass

    return Handler
