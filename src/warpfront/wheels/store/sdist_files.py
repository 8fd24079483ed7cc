"""The few files of a source archive that say what its package demands. Edge."""

from __future__ import annotations

import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO

LONGEST_ARCHIVE_BYTES = 32 * 2**20
_LONGEST_FILE_BYTES = 2**20
_LONGEST_UNPACKED_BYTES = 512 * 2**20
_UNREADABLE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
)
# At its top: metadata, the files of a project; and lists of requirements, two folders deep at most.
_WANTED = re.compile(
    r"[^/]+/(PKG-INFO|pyproject\.toml|setup\.(cfg|py)|([^/]+/){0,2}[^/]+\.(txt|in))\Z"
)


def unpack_project_files(archive: Path, folder: Path) -> Path | None:
    """Write these files of an sdist (`.tar.gz` or `.zip`) below `folder`. Return the project's
    folder; None where the archive has none or cannot be read.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                for entry in packed.infolist():
                    _write(folder, entry.filename, entry.file_size, partial(packed.open, entry))
        else:
            with tarfile.open(archive, "r:gz") as opened:
                for member in opened:
                    if member.offset_data > _LONGEST_UNPACKED_BYTES:
                        return None
                    if member.isreg():
                        content = partial(opened.extractfile, member)
                        _write(folder, member.name, member.size, content)
    except _UNREADABLE:
        return None
    return next((path for path in sorted(folder.iterdir()) if path.is_dir()), None)


def _write(
    folder: Path, name: str, size_bytes: int, content: Callable[[], IO[bytes] | None]
) -> None:
    if not _WANTED.match(name) or ".." in name or size_bytes > _LONGEST_FILE_BYTES:
        return
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = content()
    if stream is not None:
        with stream:
            path.write_bytes(stream.read(_LONGEST_FILE_BYTES))
