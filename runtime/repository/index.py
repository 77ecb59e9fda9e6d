"""Find the archive of a pinned Python package on a simple index.

Source: the Simple Repository API, https://packaging.python.org/specifications/simple-repository-api/
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from bus.errors import ModelSourceError
from runtime.repository.registries import PipSettings
from runtime.repository.source import Source
from runtime.repository.transfer import shown

if TYPE_CHECKING:
    import httpx

_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_SUFFIXES = (".whl", ".tar.gz", ".zip")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One archive that an index offers.

    Attributes:
        filename: Its name.
        url: `http(s)://` or `file://`.
        sha256: Its digest, where the index gives one.
    """

    filename: str
    url: str
    sha256: str | None


def find(
    source: Source, settings: PipSettings, client: httpx.Client, *, sha256: str | None, filename: str | None
) -> Candidate:
    """The archive to download: the one of that digest, else of that name, else the platform-free wheel.

    Raises:
        ModelSourceError: No index has that version, or none answers (then retryable).
    """
    failures: list[str] = []
    found: list[Candidate] = []
    for candidates in _offers(source.name, settings, client, failures):
        found += [one for one in candidates if _is_version(one.filename, source)]
        exact = [one for one in found if (one.sha256 and one.sha256 == sha256) or one.filename == filename]
        if exact:
            return exact[0]
    usable = sorted((one for one in found if filename is None), key=_preference)
    if usable:
        return usable[0]
    reason = "; ".join(failures) or f"asked {', '.join(shown(one) for one in settings.indexes) or 'no index'}"
    raise ModelSourceError(
        f"no archive of {source}{f' named {filename}' if filename else ''} was found: {reason}",
        retryable=bool(failures), source=str(source),
    )  # fmt: skip


def normalised(name: str) -> str:
    """A package name as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _preference(candidate: Candidate) -> tuple[int, str]:
    name = candidate.filename
    rank = 0 if name.endswith("-none-any.whl") else 1 if name.endswith(".whl") else 2
    return rank, name


def _is_version(filename: str, source: Source) -> bool:
    if not filename.endswith(_SUFFIXES):
        return False
    if filename.endswith(".whl"):
        name, version = [*filename.split("-"), ""][:2]
    else:
        name, _, version = re.sub(r"\.(tar\.gz|zip)$", "", filename).rpartition("-")
    return normalised(name) == normalised(source.name) and version.lower() == source.version.lower()


def _offers(name: str, settings: PipSettings, client: httpx.Client, failures: list[str]) -> Iterator[list[Candidate]]:
    for place in settings.find_links:
        folder = Path(unquote(urlsplit(place).path)) if place.startswith("file:") else Path(place)
        if folder.is_dir():
            yield [Candidate(file.name, file.as_uri(), None) for file in sorted(folder.iterdir())]
    for index in settings.indexes:
        page = f"{index}/{normalised(name)}/"
        if page.startswith("file:"):
            local = Path(unquote(urlsplit(page).path)) / "index.html"
            if local.is_file():
                yield list(_from_html(local.read_text(), local.as_uri()))
        else:
            yield _remote(page, client, failures)


def _remote(page: str, client: httpx.Client, failures: list[str]) -> list[Candidate]:
    import httpx

    try:
        response = client.get(page, headers={"Accept": _ACCEPT})
        if response.status_code == 404:
            return []
        response.raise_for_status()
    except httpx.HTTPError as error:
        failures.append(f"{shown(page)}: {error or type(error).__name__}")
        return []
    if "json" in response.headers.get("Content-Type", ""):
        files = json.loads(response.content).get("files", [])
        return [
            Candidate(file["filename"], urljoin(page, file["url"]), file.get("hashes", {}).get("sha256"))
            for file in files
        ]
    return list(_from_html(response.text, page))


def _from_html(text: str, base: str) -> Iterator[Candidate]:
    parser = _Links()
    parser.feed(text)
    for link in parser.links:
        url, fragment = urldefrag(urljoin(base, link))
        digest = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None
        yield Candidate(unquote(urlsplit(url).path.rpartition("/")[2]), url, digest)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if tag == "a" and name == "href" and value]
