"""Where packages come from: the settings of pip, npm and the Hugging Face client, so that mirrors work."""

from __future__ import annotations

import configparser
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PYPI = "https://pypi.org/simple"
_NPM = "https://registry.npmjs.org"
_HUB = "https://huggingface.co"


@dataclass(frozen=True, slots=True)
class PipSettings:
    """What pip would use.

    Attributes:
        indexes: Simple indexes, the main one first; `http(s)://` or `file://`.
        find_links: Folders, pages or `file://` addresses with archives in them.
        cert: A bundle of certificate authorities, if one is set.
    """

    indexes: tuple[str, ...]
    find_links: tuple[str, ...]
    cert: str | None


def pip_settings(environment: Mapping[str, str] | None = None) -> PipSettings:
    """Pip's settings from its files and its variables; variables win."""
    env = os.environ if environment is None else environment
    values: dict[str, str] = {}
    for path in _pip_files(env):
        values.update(_pip_file(path))
    for key in ("index-url", "extra-index-url", "find-links", "no-index", "cert"):
        value = env.get("PIP_" + key.upper().replace("-", "_"))
        if value:
            values[key] = value
    main = [] if values.get("no-index", "").lower() in ("1", "true", "yes", "on") else [values.get("index-url", _PYPI)]
    indexes = [*main, *values.get("extra-index-url", "").split()] if main else []
    return PipSettings(
        indexes=tuple(index.rstrip("/") for index in indexes),
        find_links=tuple(values.get("find-links", "").split()),
        cert=values.get("cert"),
    )


def npm_registry(environment: Mapping[str, str] | None = None) -> str:
    """The npm registry of `npm_config_registry`, else of an `.npmrc`, else the public one."""
    env = os.environ if environment is None else environment
    named = env.get("npm_config_registry") or env.get("NPM_CONFIG_REGISTRY")
    files = [Path(env.get("NPM_CONFIG_USERCONFIG") or Path(env.get("HOME", "~")).expanduser() / ".npmrc")]
    files += [Path("/etc/npmrc"), Path("/usr/local/etc/npmrc")]
    for path in () if named else files:
        text = path.read_text(errors="replace") if path.is_file() else ""
        found = re.search(r"^\s*registry\s*=\s*(\S+)", text, re.MULTILINE)
        if found:
            named = found[1]
            break
    return (named or _NPM).rstrip("/")


def hub_endpoint(environment: Mapping[str, str] | None = None) -> tuple[str, str | None]:
    """The Hugging Face endpoint and the user's token, if any."""
    env = os.environ if environment is None else environment
    return env.get("HF_ENDPOINT", _HUB).rstrip("/"), env.get("HF_TOKEN")


def _pip_files(env: Mapping[str, str]) -> Iterator[Path]:
    if env.get("PIP_CONFIG_FILE") == os.devnull:
        return
    home = Path(env.get("HOME", "~")).expanduser()
    for folder in reversed(env.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    yield home / ".pip" / "pip.conf"
    yield Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if env.get("PIP_CONFIG_FILE"):
        yield Path(env["PIP_CONFIG_FILE"])


def _pip_file(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path)
    except configparser.Error:
        return {}  # pip itself will complain; a broken file of another tool is not a reason to pull nothing
    values: dict[str, str] = {}
    for section in ("global", "download"):
        if parser.has_section(section):
            values.update(dict(parser.items(section)))
    return values
