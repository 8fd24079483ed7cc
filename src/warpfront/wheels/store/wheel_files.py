"""Wheels written from their contents, uncompressed: two machines' zlib need not make the same bytes
of the same file. Edge.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from warpfront.wheels.core_metadata import recorded_hash

_EPOCH = (1980, 1, 1, 0, 0, 0)
_WHEEL = b"Wheel-Version: 1.0\nGenerator: warpfront\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheel(
    content: Mapping[str, bytes], metadata: bytes, folder: Path, *, name: str, version: str
) -> Path:
    """Return the wheel of pure Python in `folder` with these files and this METADATA."""
    info = f"{name}-{version}.dist-info"
    content = {**content, f"{info}/METADATA": metadata, f"{info}/WHEEL": _WHEEL}
    content[f"{info}/RECORD"] = _record(content, f"{info}/RECORD")
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for member, data in content.items():
            entry = zipfile.ZipInfo(member, _EPOCH)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    return path


def _record(content: Mapping[str, bytes], record_path: str) -> bytes:
    lines = [
        f"{path},{recorded_hash(hashlib.sha256(data).hexdigest())},{len(data)}"
        for path, data in content.items()
    ]
    return ("\n".join([*lines, f"{record_path},,"]) + "\n").encode()
