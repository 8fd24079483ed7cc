"""The few files of a source archive that say what its package demands. Edge."""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path

LONGEST_ARCHIVE_BYTES = 32 * 2**20
_LONGEST_FILE_BYTES = 2**20
_LONGEST_UNPACKED_BYTES = 512 * 2**20
# At its top: metadata, the files of a project; and lists of requirements, two folders deep at most.
_WANTED = re.compile(
    r"[^/]+/(PKG-INFO|pyproject\.toml|setup\.(cfg|py)|([^/]+/){0,2}[^/]+\.(txt|in))\Z"
)


def unpack_project_files(archive: Path, folder: Path) -> Path | None:
    """Write these files of an sdist (`.tar.gz`) below `folder`. Return the project's folder; None
    where the archive has none or cannot be read.
    """
    try:
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
    except (tarfile.TarError, OSError, EOFError, ValueError):
        return None
    return next((one for one in sorted(folder.iterdir()) if one.is_dir()), None)
