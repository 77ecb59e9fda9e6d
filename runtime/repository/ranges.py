"""How a file is asked for in ranges, and how two answers are known to be of the same file.

Source: RFC 9110, sections 8.8 (validators), 13.1.5 (If-Range), 14 (range requests).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from bus.errors import InvalidInputError

_CONTENT_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})", re.ASCII)
_LENGTH = re.compile(r"\d{1,15}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferConfig:
    """How files are brought here.

    Attributes:
        part_nbytes: Bytes that are asked for at once. A part that was whole is not read again after a kill, so this
            is also what a kill can cost on each connection.
        connections: Parts of one file that are read at the same time.
        tries: Requests for a part that may end without a new byte before it is given up.
        backoff_s: Wait after the first of them, in seconds; it doubles with each further one.

    Raises:
        InvalidInputError: A number that makes no sense.
    """

    part_nbytes: int = 8 << 20
    connections: int = 4
    tries: int = 4
    backoff_s: float = 0.2

    def __post_init__(self) -> None:
        if self.part_nbytes < 1 or self.connections < 1 or self.tries < 1 or self.backoff_s < 0:
            raise InvalidInputError(f"{self} needs parts, connections and tries of at least 1 and no negative wait")


@dataclass(frozen=True, slots=True)
class Identity:
    """Which file an answer was of.

    Attributes:
        total: Its length in bytes.
        etag: Its entity tag as the server writes it; None: it has none.
        modified: When it was last changed, as the server writes it; None: it does not say.
    """

    total: int
    etag: str | None
    modified: str | None

    @classmethod
    def of(cls, headers: Mapping[str, str], start: int) -> Self | None:
        """What a partial answer says; None: it does not tell the length, or is of another place than was asked for."""
        found = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
        if found is None or int(found[1]) != start or int(found[3]) <= start:
            return None
        return cls(int(found[3]), headers.get("ETag"), headers.get("Last-Modified"))

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> Self:
        """What `written` wrote."""
        return cls(int(written["total"]), written["etag"], written["modified"])

    def written(self) -> dict[str, Any]:
        """A plain form, for the journal."""
        return asdict(self)

    @property
    def provable(self) -> bool:
        """Whether bytes of two answers can be told to be of one file."""
        return self.etag is not None or self.modified is not None

    @property
    def condition(self) -> str | None:
        """What `If-Range` is to say; None: nothing that a server may compare by."""
        return self.etag if self.etag is not None and not self.etag.startswith("W/") else self.modified


def length_of(headers: Mapping[str, str]) -> int | None:
    """Bytes of a whole answer, as it says; None: it does not, or of more than any file has."""
    told = headers.get("Content-Length", "")
    return int(told) if _LENGTH.fullmatch(told) else None
