"""Wheels written from their contents, uncompressed: two machines' zlib need not make the same bytes
of the same file. Edge.

A wheel of metadata alone has what sources state before they are built: PKG-INFO, or static fields
of pyproject.toml. No code of theirs runs.
"""

from __future__ import annotations

import csv
import hashlib
import io
import stat
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from warpfront.system.store import read_text
from warpfront.wheels.core_metadata import (
    Distribution,
    metadata_text,
    parse_metadata,
    recorded_hash,
)
from warpfront.wheels.store.archives import unpack

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
    metadata = Distribution(name=name, version=str(version), requires=tuple(requires))
    return write_wheel(folder / filename, metadata_text(metadata))


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


PKG_INFO, PYPROJECT = "PKG-INFO", "pyproject.toml"
_UNKNOWN_VERSION = "0"


def metadata_wheel(archive: Path, name: str, folder: Path) -> tuple[Path, str]:
    """Return a wheel without files for the sources in `archive`, to resolve with, and the file that
    states its metadata. Where none does: version 0, no demands and "".
    """
    metadata, stated_by = _stated(unpack(archive, folder / "unpacked"), name)
    filename = f"{name.replace('-', '_')}-{metadata.version}-py3-none-any.whl"
    return write_wheel(folder / filename, metadata_text(replace(metadata, name=name))), stated_by


def _stated(root: Path, name: str) -> tuple[Distribution, str]:
    try:
        metadata = parse_metadata(read_text(root / PKG_INFO, missing_ok=True) or "")
        return _normal(metadata), PKG_INFO
    except ValueError:  # there is none, or an incomplete one
        pass
    try:
        document = tomllib.loads(read_text(root / PYPROJECT, missing_ok=True) or "")
        return _normal(_of_project(document["project"], name)), PYPROJECT
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return Distribution(name=name, version=_UNKNOWN_VERSION), ""


def _normal(metadata: Distribution) -> Distribution:
    """Return the metadata with its version in normal form. Raise `ValueError` for none."""
    requires = tuple(str(Requirement(text)) for text in metadata.requires)
    return replace(metadata, version=str(Version(metadata.version)), requires=requires)


def _of_project(project: Mapping[str, Any], name: str) -> Distribution:
    """Return static metadata. Raise `KeyError` where a field that is needed is dynamic."""
    if {"dependencies", "optional-dependencies"} & {*project.get("dynamic", ())}:
        raise KeyError("dependencies")
    optional: Mapping[str, list[str]] = project.get("optional-dependencies", {})
    requires = [*project.get("dependencies", ())]
    for extra, texts in optional.items():
        for requirement in map(Requirement, texts):
            condition = f"({requirement.marker}) and " if requirement.marker else ""
            requirement.marker = Marker(f'{condition}extra == "{extra}"')
            requires.append(str(requirement))
    return Distribution(
        name=name,
        version=project["version"],
        requires=tuple(requires),
        requires_python=project.get("requires-python", ""),
        extras=tuple(optional),
    )
