"""What sources state about their wheel before it is built: PKG-INFO, or static fields of
pyproject.toml. No code of theirs runs. Edge.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.version import Version

from warpfront.system.store import read_text
from warpfront.wheels.core_metadata import WheelMetadata, metadata_text, parse_metadata
from warpfront.wheels.store.archives import unpack
from warpfront.wheels.store.wheel_files import write_wheel

PKG_INFO, PYPROJECT = "PKG-INFO", "pyproject.toml"
_UNKNOWN_VERSION = "0"


def metadata_wheel(archive: Path, name: str, folder: Path) -> tuple[Path, str]:
    """Return a wheel without files for the sources in `archive`, to resolve with, and the file that
    states its metadata. Where none does: version 0, no demands and "".
    """
    metadata, stated_by = _stated(unpack(archive, folder / "unpacked"), name)
    text = metadata_text(
        name,
        metadata.version,
        metadata.requires,
        requires_python=metadata.requires_python,
        extras=metadata.extras,
    )
    filename = f"{name.replace('-', '_')}-{metadata.version}-py3-none-any.whl"
    return write_wheel(folder / filename, text), stated_by


def _stated(root: Path, name: str) -> tuple[WheelMetadata, str]:
    try:
        metadata = parse_metadata(read_text(root / PKG_INFO, missing_ok=True) or "")
        return _normal(metadata), PKG_INFO
    except ValueError:  # there is none, or an incomplete one
        pass
    try:
        document = tomllib.loads(read_text(root / PYPROJECT, missing_ok=True) or "")
        return _normal(_of_project(document["project"], name)), PYPROJECT
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return WheelMetadata(name=name, version=_UNKNOWN_VERSION), ""


def _normal(metadata: WheelMetadata) -> WheelMetadata:
    """Return the metadata with its version in normal form. Raise `ValueError` for none."""
    requires = tuple(str(Requirement(text)) for text in metadata.requires)
    return replace(metadata, version=str(Version(metadata.version)), requires=requires)


def _of_project(project: Mapping[str, Any], name: str) -> WheelMetadata:
    """Return static metadata. Raise `KeyError` where a field that is needed is dynamic."""
    if {"dependencies", "optional-dependencies"} & {*project.get("dynamic", ())}:
        raise KeyError("dependencies")
    optional: Mapping[str, list[str]] = project.get("optional-dependencies", {})
    return WheelMetadata(
        name=name,
        version=project["version"],
        requires=(*project.get("dependencies", ()), *_of_extras(optional)),
        requires_python=project.get("requires-python", ""),
        extras=tuple(optional),
    )


def _of_extras(optional: Mapping[str, list[str]]) -> Iterator[str]:
    for extra, texts in optional.items():
        for text in texts:
            requirement = Requirement(text)
            condition = f"({requirement.marker}) and " if requirement.marker else ""
            requirement.marker = Marker(f'{condition}extra == "{extra}"')
            yield str(requirement)
