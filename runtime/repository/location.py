"""Where models and downloads are kept: the one place that reads these folders from the environment."""

from __future__ import annotations

import os
from pathlib import Path

MODELS_VARIABLE = "OMNIBUS_MODELS"

ALIASES = "aliases.json"
"""File inside the models folder with the names that the deployer gave."""

MEMORY = ".measured.json"
"""File inside the models folder with what models were found to take."""

REMOVED = ".removed"
"""Folder inside the models folder with the highest version of each model that was removed."""

GRAPHS = ".graphs"
"""Folder inside the models folder where optimised graphs are kept, `<id>/<version>/…`."""


INCOMING = ".incoming"
"""Folder inside the models folder with models that are being fetched from an object store, `<id>/<version>/…`."""


LEXICONS = ".lexicons"
"""Folder inside the models folder where dictionaries of pronunciation are kept in a form that is read in place."""


def default_root() -> Path:
    """The models folder: `OMNIBUS_MODELS`, else `omnibus/models` in the user's cache folder."""
    named = os.environ.get(MODELS_VARIABLE)
    return Path(named).expanduser() if named else _cache() / "models"


def default_downloads() -> Path:
    """The folder of downloaded archives, beside the models folder."""
    return default_root().parent / "downloads"


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "omnibus"
