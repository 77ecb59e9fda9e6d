"""A package index on a free port: a simple index, archives with byte ranges, and interruptions on demand."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile

from tests.made.range_server import RangeServer


def wheel(files: dict[str, bytes]) -> bytes:
    """A wheel with these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as zipped:
        for name, data in files.items():
            zipped.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), data)
    return buffer.getvalue()


class IndexServer(RangeServer):
    """Serves archives by file name, and an index of them.

    Attributes:
        show_digests: Whether the index tells digests.
    """

    def __init__(self) -> None:
        super().__init__()
        self.show_digests = True

    @property
    def url(self) -> str:
        return f"{self.origin}/simple"

    def offer(self, name: str, data: bytes) -> None:
        """Serve an archive from now on."""
        self.files[f"/files/{name}"] = data

    def archive(self, name: str) -> bytes:
        """The archive of that name."""
        return self.files[f"/files/{name}"]

    def downloads(self) -> list[str | None]:
        """The Range header of every request for an archive."""
        return [span for path, span in self.requests if path.startswith("/files/")]

    def page(self, path: str) -> bytes | None:
        if not path.startswith("/simple/"):
            return None
        links = []
        for place, data in self.files.items():
            name = place.removeprefix("/files/")
            if re.sub(r"[-_.]+", "-", name.split("-")[0]).lower() == path.split("/")[2]:
                digest = f"#sha256={hashlib.sha256(data).hexdigest()}" if self.show_digests else ""
                links.append(f'<a href="../../files/{name}{digest}">{name}</a>')
        return ("<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>").encode()
