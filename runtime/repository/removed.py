"""Versions that were removed: no other build gets their numbers, since workers may have one of them open still."""

from __future__ import annotations

import os
from pathlib import Path

from bus.contracts import ModelManifest
from runtime.repository.location import REMOVED


def last_removed(root: Path, model: str) -> int:
    """The highest version of a model that was removed; 0: none was.

    Args:
        root: The models folder.
        model: Its id.
    """
    try:
        return int((root / REMOVED / model).read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):  # whoever writes there says what is wrong with it
        return 0


def note_removed(root: Path, manifest: ModelManifest) -> None:
    """Remember a version that is about to be removed, for the holder of its model's lock.

    A version that is no number is not: nobody counts on from it.

    Args:
        root: The models folder.
        manifest: Of the version.
    """
    if manifest.version.isdecimal():
        highest = max(int(manifest.version), last_removed(root, manifest.id))
        place = root / REMOVED / manifest.id
        place.parent.mkdir(exist_ok=True)
        fresh = place.with_name(f".{place.name}.{os.getpid()}")
        fresh.write_text(str(highest))
        os.replace(fresh, place)
