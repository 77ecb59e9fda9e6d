"""What models were found to take, so that the next process knows before it loads them."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from pathlib import Path

from runtime.repository.lock import exclusive

log = logging.getLogger("omnibus.residency")


class MemoryLedger:
    """Measured sizes by key, in a file that processes share.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, key: str) -> int | None:
        """Bytes that were measured; None: never, or the file cannot be read."""
        return self._read().get(key)

    def put(self, key: str, nbytes: int) -> None:
        """Remember a measurement; the largest one counts, for that is what there must be room for."""
        if self._read().get(key, -1) >= nbytes:  # mostly: then nobody is waited for, as runs come here from a loop
            return
        try:
            with exclusive(self._path.with_name(f".{self._path.name}.lock")):
                known = self._read()
                if known.get(key, -1) >= nbytes:
                    return
                fresh = self._path.with_name(f".{self._path.name}.new")
                fresh.write_text(json.dumps(known | {key: nbytes}, indent=1, sort_keys=True), encoding="utf-8")
                fresh.replace(self._path)
        except OSError as error:
            log.info("what %s takes is not remembered: %s", key, error)

    def _read(self) -> dict[str, int]:
        with suppress(OSError, ValueError):
            read = json.loads(self._path.read_bytes())
            if isinstance(read, dict):
                return {key: value for key, value in read.items() if isinstance(value, int) and value >= 0}
        return {}
