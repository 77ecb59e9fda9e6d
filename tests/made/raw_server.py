"""A server that answers what it is told to, byte for byte, however wrong that is."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self

_RANGE = re.compile(rb"range: bytes=(\d+)-(\d*)", re.IGNORECASE)

Answer = Callable[[tuple[int, int | None] | None], Iterable[bytes]]
"""What is sent, from the first and last byte that were asked for; None: a whole file was."""


class RawServer:
    """Answers every request on a connection of its own. Use as a context manager.

    Args:
        answer: What is sent.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []

    @property
    def origin(self) -> str:
        """`http://host:port`."""
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Self:
        """Answer from now on."""
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Answer no more."""
        self._listening.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)
        self._listening.close()

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                connection, _ = self._listening.accept()
                self._start(lambda connection=connection: self._serve(connection))  # type: ignore[misc]

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the client has heard enough
            head = b""
            while b"\r\n\r\n" not in head:
                more = connection.recv(65_536)
                if not more:
                    return
                head += more
            asked = _RANGE.search(head)
            for chunk in self._answer((int(asked[1]), int(asked[2]) if asked[2] else None) if asked else None):
                connection.sendall(chunk)
