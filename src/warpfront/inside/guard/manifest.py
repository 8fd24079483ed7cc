"""The manifest: size and sha256 of every file of the protected distributions. Read at every import
of torch, so this module loads little; `measuring` fills and compares it in full.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .policy import GuardError

SCHEMA = 1
# What a start of Python looks at. Headers and CMake files are three of four files of torch, and no
# install replaces those alone; `verify` looks at all.
_START_UP_SUFFIXES = (".py", ".so", ".pth", "METADATA", "WHEEL", "/variant.json")
# Which of several variants of one version it is (PEP 825): `cu126` is as long as `cu128`, so this
# one file is read.
_VARIANT = ".dist-info/variant.json"
_VERSIONED_LIBRARY = ".so."  # libcudnn.so.9
_INIT = "/__init__.py"

# Size in bytes, sha256 in hex. A plain pair as JSON gives it: an object for each of 12,000 files
# costs more than reading them all.
Measured = Sequence[Any]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What was sealed. `location` is the folder that the paths of `files` start from; `files` maps
    a distribution's normalized name to path -> measure, `versions` to its version.
    """

    location: Path
    versions: Mapping[str, str]
    files: Mapping[str, Mapping[str, Measured]]

    def packages(self) -> dict[str, str]:
        """Each importable top-level package -> the distribution that brings it."""
        return {
            path.removesuffix(_INIT): name
            for name, files in self.files.items()
            for path in files
            if path.endswith(_INIT) and path.count("/") == 1
        }

    def folders(self) -> dict[str, set[str]]:
        """Each folder that sealed files fill -> the distributions that bring them. Of a top-level
        folder that several fill (`nvidia/`) it is the folders below.
        """
        tops = self._owners(1)
        shared = {top for top, names in tops.items() if len(names) > 1}
        below = self._owners(2)
        return {top: names for top, names in tops.items() if top not in shared} | {
            folder: names for folder, names in below.items() if folder.partition("/")[0] in shared
        }

    def _owners(self, depth: int) -> dict[str, set[str]]:
        """Folder at this depth -> the distributions with files in it."""
        owners: dict[str, set[str]] = {}
        for name, files in self.files.items():
            for path in files:
                parts = path.split("/")
                if len(parts) > depth and not parts[0].endswith(".dist-info"):
                    owners.setdefault("/".join(parts[:depth]), set()).add(name)
        return owners

    def document(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "location": str(self.location),
            "versions": dict(self.versions),
            "files": {name: dict(files) for name, files in self.files.items()},
        }


def manifest_text(manifest: Manifest) -> str:
    return json.dumps(manifest.document(), separators=(",", ":"), sort_keys=True)


def read_manifest(path: Path) -> Manifest:
    """The manifest in a file. Raises `GuardError` when it is missing or damaged."""
    try:
        return _manifest(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise GuardError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise GuardError(f"{path}: not a manifest: {error}") from error


def _manifest(fields: dict[str, Any]) -> Manifest:
    if fields["schema"] != SCHEMA:
        raise ValueError(f"schema {fields['schema']}")
    location, versions, files = fields["location"], fields["versions"], fields["files"]
    if set(versions) != set(files):
        raise ValueError("its versions and its files are of other distributions")
    if not all(len(one) == 2 for measures in files.values() for one in measures.values()):
        raise ValueError("a file has its size and its sha256")
    return Manifest(location=Path(location), versions=versions, files=files)


def size_differences(manifest: Manifest, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) for the files that make a difference at import: there, and as large as
    they were. For every start of torch, so by sizes alone.
    """
    location = str(manifest.location)
    for name in names:
        for path, (sealed, sha256) in manifest.files.get(name, {}).items():
            if not path.endswith(_START_UP_SUFFIXES) and _VERSIONED_LIBRARY not in path:
                continue
            try:
                size = os.stat(f"{location}/{path}").st_size  # noqa: PTH116 - thousands of files at every start: Path costs three times as much
            except OSError:
                yield path, "missing"
                continue
            if size != sealed:
                yield path, f"{size} bytes instead of {sealed}"
            elif path.endswith(_VARIANT) and not _is_what(f"{location}/{path}", sha256):
                yield path, "of another variant"


def _is_what(path: str, sha256: str) -> bool:
    import hashlib  # noqa: PLC0415 - for every start of torch, and few have this file

    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() == sha256
    except OSError:
        return False
