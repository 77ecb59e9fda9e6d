"""Single members out of wheels, tarballs, folders and plain files; nothing is ever unpacked as a whole."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO, BinaryIO

from bus.errors import ModelCorruptError


def copy_member(archive: Path, member: str, out: BinaryIO) -> None:
    """Append one member of an archive to a file.

    Args:
        archive: A wheel or zip, a gzipped tarball, a folder, or a plain file, which is its own only member.
        member: Path inside the archive.
        out: Where the bytes go.

    Raises:
        ModelCorruptError: The archive is damaged or has no such member.
    """
    try:
        with archive.open("rb") as file:
            if archive.name.endswith((".whl", ".zip")):
                with zipfile.ZipFile(file) as zipped, zipped.open(member) as content:
                    shutil.copyfileobj(content, out, 1 << 20)
            elif archive.name.endswith((".tgz", ".tar.gz")):
                with tarfile.open(fileobj=file, mode="r:gz") as tarred:
                    shutil.copyfileobj(_regular(tarred.extractfile(member)), out, 1 << 20)
            else:
                shutil.copyfileobj(file, out, 1 << 20)
    except IsADirectoryError:
        copy_member(_inside(archive, member), "", out)
    except (KeyError, FileNotFoundError) as error:
        raise ModelCorruptError(f"{archive.name} has no member {member!r}", archive=archive.name) from error
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError) as error:
        raise ModelCorruptError(f"{archive.name} is damaged: {error}; pull again", archive=archive.name) from error


def _regular(content: IO[bytes] | None) -> IO[bytes]:
    if content is None:
        raise KeyError("not a regular file")
    return content


def _inside(folder: Path, member: str) -> Path:
    path = (folder / member).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise ModelCorruptError(f"{folder.name} has no member {member!r}", archive=folder.name)
    return path
