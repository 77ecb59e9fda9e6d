"""The end of a process's log, for the error that names it."""

from __future__ import annotations

from pathlib import Path


def log_tail(path: Path, lines: int = 5) -> str:
    """The last lines of a process's log; empty when there is none."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return "\n".join(text.strip().splitlines()[-lines:])
