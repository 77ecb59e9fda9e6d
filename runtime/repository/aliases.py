"""Names that the deployer gives to models: which version an application's name means, changed in one step."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from bus.errors import EngineError, InvalidInputError, ModelCorruptError
from runtime.repository.lock import exclusive

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Aliases:
    """Targets by name, in a file that is replaced as a whole.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Mapping[str, str]:
        """Every alias and what it stands for.

        Raises:
            ModelCorruptError: The file is no table of names.
        """
        try:
            read = json.loads(self._path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except ValueError as error:
            raise self._damaged() from error
        if not isinstance(read, dict) or not all(isinstance(target, str) for target in read.values()):
            raise self._damaged()
        return read

    def set(self, name: str, target: str | None) -> None:
        """Let a name stand for a target from now on; None: for nothing of its own any more.

        Raises:
            InvalidInputError: Not a name that an alias can have.
            EngineError: The file cannot be written.
        """
        if not _NAME.fullmatch(name):
            raise InvalidInputError(f"an alias is letters, digits, dots, dashes and underscores, not {name!r}")
        try:
            self._write(name, target)
        except OSError as error:
            raise EngineError(f"the aliases in {self._path} cannot be written: {error}") from error

    def _write(self, name: str, target: str | None) -> None:
        with exclusive(self._path.with_name(f".{self._path.name}.lock")):
            known = dict(self.read())
            known.pop(name, None)
            if target is not None:
                known[name] = target
            fresh = self._path.with_name(f".{self._path.name}.new")
            fresh.write_text(json.dumps(known, indent=1, sort_keys=True), encoding="utf-8")
            fresh.replace(self._path)

    def stamp(self) -> int:
        """Changes with every change of the file."""
        try:
            return self._path.stat().st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def _damaged(self) -> ModelCorruptError:
        return ModelCorruptError(f"{self._path} is not a table of aliases; correct or remove it", file=str(self._path))
