"""Wheels written from their contents, uncompressed: two machines' zlib need not make the same bytes
of the same file. Edge.
"""

from __future__ import annotations

import csv
import hashlib
import io
import stat
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.utils import parse_wheel_filename

from warpfront.wheels.core_metadata import metadata_text, recorded_hash

_EPOCH = (1980, 1, 1, 0, 0, 0)
_WHEEL = "Wheel-Version: 1.0\nGenerator: warpfront\nRoot-Is-Purelib: true\n"
_CHUNK_BYTES = 1 << 20


def write_wheel(path: Path, metadata: str, content: Mapping[str, bytes] | None = None) -> Path:
    """Return the wheel `path` with this METADATA and these files, for the tags of its name."""
    info = "-".join(path.name.split("-")[:2]) + ".dist-info"
    tags = sorted(map(str, parse_wheel_filename(path.name)[3]))
    wheel = _WHEEL + "".join(f"Tag: {tag}\n" for tag in tags)
    texts = {f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": wheel.encode()}
    return pack_wheel(path, {**(content or {}), **texts}, info=info)


def write_stand_in(filename: str, folder: Path, *, requires: Iterable[str] = ()) -> Path:
    """Return a wheel of nothing but its demands."""
    name, version, _, _ = parse_wheel_filename(filename)
    return write_wheel(folder / filename, metadata_text(name, str(version), requires))


def pack_wheel(path: Path, content: Mapping[str, bytes | Path], *, info: str) -> Path:
    """Return the wheel `path` with these files, in their order, and their RECORD below `info`."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        rows.writerows(_add(archive, name, source) for name, source in content.items())
        rows.writerow((f"{info}/RECORD", "", ""))
        _add(archive, f"{info}/RECORD", text.getvalue().encode())
    return path


def _add(archive: zipfile.ZipFile, name: str, source: bytes | Path) -> tuple[str, str, int]:
    """Add a file, and return its row of RECORD."""
    entry, digest = zipfile.ZipInfo(name, _EPOCH), hashlib.sha256()
    is_program = isinstance(source, Path) and source.stat().st_mode & stat.S_IXUSR
    entry.external_attr = (0o100755 if is_program else 0o100644) << 16
    entry.file_size = source.stat().st_size if isinstance(source, Path) else len(source)
    opened = source.open("rb") if isinstance(source, Path) else io.BytesIO(source)
    with opened, archive.open(entry, "w") as target:
        while chunk := opened.read(_CHUNK_BYTES):
            digest.update(chunk)
            target.write(chunk)
    return name, recorded_hash(digest.hexdigest()), entry.file_size
