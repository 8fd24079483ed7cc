"""The few files of a source archive that say what its package demands. Edge."""

from __future__ import annotations

import re
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path

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
            _unpack_zip(archive, folder)
            return next((path for path in sorted(folder.iterdir()) if path.is_dir()), None)
        with tarfile.open(archive, "r:gz") as opened:
            for member in opened:
                if member.offset_data > _LONGEST_UNPACKED_BYTES:
                    return None
                if not (member.isreg() and _WANTED.match(member.name)) or ".." in member.name:
                    continue
                content = opened.extractfile(member)
                if member.size <= _LONGEST_FILE_BYTES and content is not None:
                    path = folder / member.name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("wb") as file:
                        shutil.copyfileobj(content, file)
    except _UNREADABLE:
        return None
    return next((path for path in sorted(folder.iterdir()) if path.is_dir()), None)


def _unpack_zip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            is_wanted = _WANTED.match(member.filename) and ".." not in member.filename
            if is_wanted and member.file_size <= _LONGEST_FILE_BYTES:
                with opened.open(member) as content:
                    data = content.read(_LONGEST_FILE_BYTES)
                path = folder / member.filename
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
