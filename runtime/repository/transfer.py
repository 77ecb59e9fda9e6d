"""The bytes of one URL: several ranges at once where the server has them, else one stream."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Lock
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bus.errors import ModelCorruptError, ModelSourceError
from runtime.repository.partfile import PartFile, Piece
from runtime.repository.progress import OnBytes
from runtime.repository.ranges import Identity, TransferConfig, length_of

if TYPE_CHECKING:
    import httpx

_FINAL = frozenset({400, 401, 403, 404, 410, 451})
_CHANGES = 2
"""How often a file may change while it is read before it is read in one stream, which is always of one file."""
_LONGEST_WAIT_S = 30.0
_SECONDS = re.compile(r"\d{1,9}", re.ASCII)


def shown(url: str) -> str:
    """A URL as it may be shown: without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


class Transfer:
    """Fills a part file from a URL.

    Args:
        url: `http://` or `https://`.
        part: What to fill.
        client: Makes the requests; used from several threads.
        name: What progress calls the file.
        config: Sizes and patience.
        headers: Sent with every request.
        checked: Whether somebody knows the digest of the file, so that parts of two files cannot pass for one.
        nbytes: Length of the file, where somebody knows it: nothing is written of one that says another.
        on_bytes: Told about bytes as they come, from any thread, one after the other.
    """

    def __init__(
        self,
        url: str,
        part: PartFile,
        client: httpx.Client,
        *,
        name: str,
        config: TransferConfig,
        headers: Mapping[str, str],
        checked: bool,
        nbytes: int | None,
        on_bytes: OnBytes,
    ) -> None:
        self._url, self._part, self._client, self._name = url, part, client, name
        self._config, self._checked, self._nbytes, self._on_bytes = config, checked, nbytes, on_bytes
        # A range counts the bytes that are sent, so they are asked for as they are.
        self._headers = {**headers, "Accept-Encoding": "identity"}
        self._lock = Lock()
        self._error: BaseException | None = None
        self._readers: list[Future[None]] = []

    def run(self) -> None:
        """Bring everything that is missing.

        Raises:
            ModelSourceError: (retryable unless the server refused) the server does not send it.
            ModelCorruptError: What it has is of another length.
            OSError: It cannot be written.
        """
        for _ in range(_CHANGES):
            try:
                self._read(self._part.resume())
            except _ChangedError:
                self._part.discard()
            else:
                return
        self._start(None, [Piece(0, 0, None, whole=True)])

    def _read(self, begun: tuple[Identity, Sequence[Piece]] | None) -> None:
        if begun is None or not (begun[0].provable or self._checked):
            self._start(None, [Piece(0, 0, self._config.part_nbytes)])
            return
        identity, missing = begun
        self._start(identity, missing)

    def _start(self, identity: Identity | None, pieces: Sequence[Piece]) -> None:
        self._identity, self._waiting = identity, deque(pieces)
        missing = sum(piece.end - piece.start for piece in pieces if piece.end is not None)
        self._total = None if identity is None else identity.total
        self._done = 0 if identity is None else identity.total - missing
        self._stop, self._error, self._readers = Event(), None, []
        if identity is not None:
            self._on_bytes(self._name, self._done, self._total)
        with ThreadPoolExecutor(self._config.connections, thread_name_prefix="omnibus-pull") as self._pool:
            try:
                self._hire(len(pieces) - 1)
                self._work()
                for reader in self._readers:
                    reader.result()
            except BaseException:  # such as Ctrl-C: nobody writes any more when the file is closed
                self._stop.set()
                raise
        if self._error is not None:
            raise self._error

    def _hire(self, pieces: int) -> None:
        """Let others read, too, as many as there are parts for."""
        for _ in range(min(pieces, self._config.connections - 1)):
            self._readers.append(self._pool.submit(self._work))

    def _work(self) -> None:
        try:
            while not self._stop.is_set() and (piece := self._next()) is not None:
                self._fetch(piece)
        except BaseException as error:  # of any thread: told by the one that was asked for the file
            with self._lock:
                self._error = self._error or error
            self._stop.set()

    def _next(self) -> Piece | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def _fetch(self, piece: Piece) -> None:
        tries = 0
        while not piece.complete and not self._stop.is_set():
            before = piece.position, piece.whole
            failure = self._attempt(piece)
            progressed = before != (piece.position, piece.whole)
            if failure is None and progressed:
                continue
            tries = 0 if progressed and not piece.whole else tries + 1
            if tries >= self._config.tries:
                raise self._given_up(piece, failure) from failure
            self._stop.wait(_wait_s(failure, self._config.backoff_s * 2 ** max(0, tries - 1)))
        if piece.complete:
            self._part.finish(piece)

    def _attempt(self, piece: Piece) -> Exception | None:
        """Ask for what is missing of a piece; tells what went wrong where it may be better the next time."""
        import httpx

        try:
            with self._client.stream("GET", self._url, headers=self._asking(piece)) as response:
                if self._agreed(response, piece):
                    self._receive(response.iter_raw(), piece)
        except httpx.HTTPStatusError as error:
            if error.response.status_code in _FINAL:
                raise ModelSourceError(
                    f"{shown(self._url)} answers {error.response.status_code}", retryable=False, url=shown(self._url)
                ) from error
            return error
        except httpx.HTTPError as error:
            return error
        return None

    def _asking(self, piece: Piece) -> dict[str, str]:
        if piece.whole:
            return self._headers
        last = "" if piece.end is None else piece.end - 1
        condition = None if self._identity is None else self._identity.condition
        return {
            **self._headers,
            "Range": f"bytes={piece.position}-{last}",
            **({"If-Range": condition} if condition is not None else {}),
        }

    def _agreed(self, response: httpx.Response, piece: Piece) -> bool:
        """Whether the answer is of the piece that was asked for; if not, it is to be asked for as the whole file."""
        if response.status_code == 416 or (response.status_code == 200 and self._identity is not None):
            if self._identity is not None:
                raise _ChangedError
            piece.whole = True  # an empty file has no ranges
            return False
        response.raise_for_status()
        if response.status_code != 206:
            self._begin_whole(response, piece)
            return True
        if piece.whole:  # which nobody has asked for in parts
            return False
        found = Identity.of(response.headers, piece.position)
        if self._identity is not None and found != self._identity:
            raise _ChangedError
        if found is None or not (found.provable or self._checked):
            piece.whole = True
            return False
        if self._identity is None:
            self._begin(found, piece)
        return True

    def _begin(self, identity: Identity, piece: Piece) -> None:
        self._check_length(identity.total)
        first, *others = self._part.begin(identity)
        piece.end = first.end
        self._identity, self._total = identity, identity.total
        self._waiting.extend(others)
        self._hire(len(others))

    def _begin_whole(self, response: httpx.Response, piece: Piece) -> None:
        told = length_of(response.headers)
        if told is not None:
            self._check_length(told)
        self._total = self._nbytes if told is None else told
        self._part.begin_whole(self._total)
        self._done = 0
        piece.whole, piece.end = True, self._total
        piece.rewind()
        piece.complete = self._total == 0

    def _check_length(self, told: int) -> None:
        if self._nbytes not in (None, told):
            raise ModelCorruptError(
                f"{shown(self._url)} has {told} bytes, expected {self._nbytes}; the source changed or is damaged",
                url=shown(self._url),
            )

    def _receive(self, chunks: Iterable[bytes], piece: Piece) -> None:
        # As they come: a larger chunk would be lost with the connection.
        for chunk in chunks:
            if self._stop.is_set() or piece.complete:  # a server may go on for ever
                return
            fitting = piece.fit(chunk)
            self._part.write(piece, fitting)
            with self._lock:
                self._done += len(fitting)
                self._on_bytes(self._name, self._done, self._total)
        piece.complete = piece.complete or piece.end is None

    def _given_up(self, piece: Piece, failure: Exception | None) -> ModelSourceError:
        what = "it" if piece.end is None else f"bytes {piece.position} to {piece.end - 1}"
        kept = "from the start" if piece.whole else f"from {self._done} bytes"
        return ModelSourceError(
            f"{shown(self._url)}: {what} of {self._name} could not be read in {self._config.tries} tries: "
            f"{_told(failure)}; pull again to go on {kept}",
            url=shown(self._url),
        )


class _ChangedError(Exception):
    """An answer that is of another file than the ones before it."""


def _told(failure: Exception | None) -> str:
    """What went wrong, without the URL, whose query may be a signature."""
    if failure is None:
        return "no answer was of what was asked for"
    response = getattr(failure, "response", None)
    return str(failure) or type(failure).__name__ if response is None else f"HTTP {response.status_code}"


def _wait_s(failure: Exception | None, backoff_s: float) -> float:
    """How long to wait before the next request: what the server asks for, within reason."""
    response = getattr(failure, "response", None)
    asked = "" if response is None else response.headers.get("Retry-After", "")
    return min(_LONGEST_WAIT_S, max(backoff_s, float(asked))) if _SECONDS.fullmatch(asked) else backoff_s
