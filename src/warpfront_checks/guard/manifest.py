"""The manifest: size and sha256 of every file of the protected distributions. Read at every import
of torch, so this module loads little; `measuring` fills and compares it in full.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .policy import Problems, reading

_EXTERNAL: Any = sys.modules["_frozen_importlib_external"]
SCHEMA = 1
# What a start of Python looks at. Headers and CMake files are three of four files of torch, and no
# install replaces those alone; `verify` looks at all.
_START_UP_SUFFIXES = (
    *(".py", ".pyc", ".so", ".pth", "METADATA", "WHEEL", "entry_points.txt", "/variant.json"),
)
# Which of several variants of one version it is (PEP 825): `cu126` is as long as `cu128`, so this
# one file is read.
_VARIANT = ".dist-info/variant.json"
_VERSIONED_LIBRARY = ".so."  # libcudnn.so.9
# What Python's import system can load, by the interpreter itself.
EXTENSION_SUFFIXES: Sequence[str] = _EXTERNAL.EXTENSION_SUFFIXES
SUFFIXES = (*_EXTERNAL.SOURCE_SUFFIXES, *_EXTERNAL.BYTECODE_SUFFIXES, *EXTENSION_SUFFIXES)
_INITS = tuple(f"/__init__{suffix}" for suffix in SUFFIXES)

# Size in bytes, sha256 in hex. A plain pair as JSON gives it: an object for each of 12,000 files
# costs more than reading them all.
Measured = Sequence[Any]
# Whether the size of a file does not prove its content.
Doubted = Callable[[os.stat_result], bool]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The sealed files. `location` is the folder that the paths of `files` start from; `files`
    maps a distribution's normalized name to path -> measure, `versions` to its version.
    """

    location: Path
    versions: Mapping[str, str]
    files: Mapping[str, Mapping[str, Measured]]

    def packages(self) -> dict[str, str]:
        """Return each importable top-level package -> the distribution that brings it."""
        return {
            path.partition("/")[0]: name
            for name, files in self.files.items()
            for path in files
            if path.endswith(_INITS) and path.count("/") == 1
        }

    def folders(self) -> dict[str, set[str]]:
        """Return each folder that sealed files fill -> the distributions that bring them. Of a
        top-level folder that several fill (`nvidia/`) it is the folders below.
        """
        tops = self._owners(1)
        shared = {top for top, names in tops.items() if len(names) > 1}
        below = self._owners(2)
        return {top: names for top, names in tops.items() if top not in shared} | {
            folder: names for folder, names in below.items() if folder.partition("/")[0] in shared
        }

    def tops(self) -> set[str]:
        """Return the entries of site-packages, or of shared folders, with all sealed files."""
        folders = self.folders()
        shared = {folder.partition("/")[0] for folder in folders if "/" in folder}
        paths = (path.split("/") for files in self.files.values() for path in files)
        return {"/".join(parts[: 1 + (parts[0] in shared)]) for parts in paths}

    def _owners(self, depth: int) -> dict[str, set[str]]:
        """Return folder at this depth -> the distributions with files in it."""
        owners: dict[str, set[str]] = {}
        for name, files in self.files.items():
            for path in files:
                parts = path.split("/")
                if len(parts) > depth and not parts[0].endswith(".dist-info"):
                    owners.setdefault("/".join(parts[:depth]), set()).add(name)
        return owners


def manifest_text(manifest: Manifest) -> str:
    document = {
        "schema": SCHEMA,
        "location": str(manifest.location),
        "versions": dict(manifest.versions),
        "files": {name: dict(files) for name, files in manifest.files.items()},
    }
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in a file. Raise `GuardError` when it is missing or damaged."""
    with reading(path, "a manifest"):
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields["schema"] != SCHEMA:
            raise ValueError(f"schema {fields['schema']}")
        location, versions, files = fields["location"], fields["versions"], fields["files"]
        if set(versions) != set(files):
            raise ValueError("its versions and its files are of other distributions")
        if not all(len(measure) == 2 for each in files.values() for measure in each.values()):
            raise ValueError("a file has its size and its sha256")
        return Manifest(location=Path(location), versions=versions, files=files)


def packages_text(manifest: Manifest) -> str:
    return "".join(f"{name}\n" for name in sorted(manifest.packages()))


def is_for_start(path: str) -> bool:
    return path.endswith(_START_UP_SUFFIXES) or _VERSIONED_LIBRARY in path


def size_differences(
    manifest: Manifest,
    names: Iterable[str],
    *,
    doubted: Doubted | None = None,
    hashed: list[str] | None = None,
) -> Problems:
    """Yield (path, what is wrong) for the files that make a difference at import: there, and
    as large as they were. With `doubted`, do so for all files, and add those whose size does not
    prove their content to `hashed`.
    """
    location = str(manifest.location)
    for name in names:
        for path, (sealed, sha256) in manifest.files.get(name, {}).items():
            if doubted is None and not is_for_start(path):
                continue
            try:
                status = os.stat(f"{location}/{path}")  # noqa: PTH116 - thousands of files at every start: Path costs three times as much
            except OSError:
                yield path, "missing"
                continue
            if not stat.S_ISREG(status.st_mode):
                yield path, "missing"
            elif status.st_size != sealed:
                yield path, f"{status.st_size} bytes instead of {sealed}"
            elif path.endswith(_VARIANT) and sha256_of(f"{location}/{path}") != sha256:
                yield path, "of another variant"
            elif doubted is not None and hashed is not None and doubted(status):
                hashed.append(path)


def written_since(nanoseconds: int) -> Doubted:
    """Return whether a file was written to from this time on. Its ctime proves it, which no
    program sets, and which an image's lower layers have from before.
    """
    return lambda status: status.st_ctime_ns >= nanoseconds


def sha256_of(path: str | Path) -> str:
    """Return the sha256 of a file, "" if it cannot be read."""
    import hashlib  # noqa: PLC0415 - for every start of torch, and few read a file

    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError:
        return ""
    return digest.hexdigest()


def strays(manifest: Manifest, names: Iterable[str], *, loadable: bool = False) -> Iterator[str]:
    """Return the files inside the folders of the protected distributions that none of them
    brought, links to folders included. With `loadable`, return only files that Python could load.
    Byte code in `__pycache__` is judged by its source.
    """
    distributions = set(names)
    sealed = {path for files in manifest.files.values() for path in files}
    start = len(f"{manifest.location}/")
    for top, owners in sorted(manifest.folders().items()):
        if not owners & distributions:
            continue
        if os.path.islink(f"{manifest.location}/{top}"):  # noqa: PTH114 - as above
            yield top
        for folder, folders, files in os.walk(f"{manifest.location}/{top}"):
            cached, inside = folder.endswith("/__pycache__"), folder[start:]
            links = {name for name in folders if os.path.islink(f"{folder}/{name}")}  # noqa: PTH114
            folders[:] = sorted(set(folders) - links)
            for file in sorted((*files, *links)):
                path, code = f"{inside}/{file}", file.endswith(SUFFIXES)
                if path in sealed or (cached and (not code or file.endswith(".pyc"))):
                    continue
                if code or file in links or not loadable:
                    yield path
