"""An HTTP server on a free port that serves ranges of files, or does not, and breaks off or changes on demand."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler

from tests.made.local_server import LocalServer

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_CHUNK = 32 << 10


class RangeServer(LocalServer):
    """Serves files by path and records what was asked for and sent.

    Attributes:
        files: Bytes by path.
        ranges: Whether it serves ranges.
        etag: Makes an entity tag of a file's bytes; None: it sends none.
        modified: When files were last changed; None: it does not say.
        lengths: Whether it tells how long a file is.
        cut_after: Bytes after which an answer breaks off, one for each of the next answers.
        refuse: Statuses of the next answers.
        on_request: Called with the Range header before each answer.
        latency_s: Time before each answer.
        nbytes_per_s: Rate of one connection; None: as fast as it goes.
        requests: Path and Range header of every request.
        sent_nbytes: Bytes of files that were sent.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges = self.lengths = True
        self.etag: Callable[[bytes], str] | None = lambda data: f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        self.modified: str | None = None
        self.cut_after: list[int] = []
        self.refuse: list[int] = []
        self.on_request: Callable[[str | None], None] = lambda span: None
        self.latency_s = 0.0
        self.nbytes_per_s: float | None = None
        self.requests: list[tuple[str, str | None]] = []
        self.sent_nbytes = 0
        self.lock = threading.Lock()
        super().__init__(_handler(self))

    def page(self, path: str) -> bytes | None:
        """What lies at a path that is no file, as HTML; None: nothing."""


def _handler(served: RangeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            span = self.headers.get("Range")
            with served.lock:
                served.requests.append((self.path, span))
            served.on_request(span)
            with served.lock:
                status = served.refuse.pop(0) if served.refuse else 0
            time.sleep(served.latency_s)
            path = self.path.partition("?")[0]
            data, page = served.files.get(path), served.page(path)
            if status or (data is None and page is None):
                self._answer(status or 404, b"", {})
            elif data is None:
                self._answer(200, page or b"", {"Content-Type": "text/html"})
            else:
                self._file(data, span)

        def _file(self, data: bytes, span: str | None) -> None:
            tag = served.etag(data) if served.etag is not None else None
            told = {"ETag": tag, "Last-Modified": served.modified}
            headers = {name: value for name, value in told.items() if value is not None}
            condition = self.headers.get("If-Range")
            found = _RANGE.fullmatch(span or "") if served.ranges and condition in (None, *headers.values()) else None
            if found is None:
                self._answer(200, data, headers, served.cut_after.pop(0) if served.cut_after else None)
                return
            start, end = int(found[1]), min(int(found[2] or len(data)) + 1, len(data))
            if start >= len(data):
                self._answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            total = str(len(data)) if served.lengths else "*"
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{total}"
            self._answer(206, data[start:end], headers, served.cut_after.pop(0) if served.cut_after else None)

        def _answer(self, status: int, body: bytes, headers: Mapping[str, str], cut: int | None = None) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if served.lengths or status >= 400:
                self.send_header("Content-Length", str(len(body)))
            else:
                self.send_header("Connection", "close")
            self.end_headers()
            sending = body if cut is None else body[:cut]
            for at in range(0, len(sending), _CHUNK):
                chunk = sending[at : at + _CHUNK]
                if served.nbytes_per_s is not None:
                    time.sleep(len(chunk) / served.nbytes_per_s)
                try:
                    self.wfile.write(chunk)
                except OSError:  # whoever asked is gone
                    self.close_connection = True
                    return
                with served.lock:
                    served.sent_nbytes += len(chunk) if status < 300 else 0
            self.close_connection |= cut is not None or not served.lengths

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            pass

    return Handler
