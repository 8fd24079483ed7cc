"""The manifest: size and sha256 of every file of the protected distributions, and what differs from
it now.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath
from typing import Any

from .policy import GuardError, normalized

SCHEMA = 1
# What a start of Python looks at. Headers and CMake files are three of four files of torch, and no
# install replaces those alone; `verify` looks at all.
_START_UP_SUFFIXES = (".py", ".so", ".pth", "METADATA", "WHEEL")
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One file: `size` in bytes, `sha256` in hex."""

    size: int
    sha256: str


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
            PurePosixPath(path).parts[0]: name
            for name, files in self.files.items()
            for path in files
            if PurePosixPath(path).parts[1:] == ("__init__.py",)
        }

    def document(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "location": str(self.location),
            "versions": dict(self.versions),
            "files": {
                name: {path: [one.size, one.sha256] for path, one in files.items()}
                for name, files in self.files.items()
            },
        }


def installed(location: Path) -> dict[str, list[Distribution]]:
    """The distributions whose metadata lies in `location`, by normalized name, duplicates kept."""
    found: dict[str, list[Distribution]] = {}
    for distribution in distributions(path=[str(location)]):
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(normalized(name), []).append(distribution)
    return found


def measure(location: Path, names: Iterable[str]) -> Manifest:
    """Hash every file of these distributions. Raises `GuardError` if one is not there, or has no
    RECORD to say what its files are.
    """
    there = installed(location)
    versions, files = {}, {}
    for name in sorted(names):
        if name not in there:
            raise GuardError(f"{name} is not installed in {location}")
        distribution = there[name][0]
        versions[name] = distribution.version
        files[name] = _measured(location, recorded_paths(distribution, location))
    return Manifest(location=location, versions=versions, files=files)


def recorded_paths(distribution: Distribution, location: Path) -> list[str]:
    """The files that a distribution's RECORD lists, below `location`, without what changes by
    itself: byte code, and what the installer writes about itself.
    """
    if distribution.files is None:
        name = distribution.metadata["Name"]
        raise GuardError(f"{name} has no RECORD in {location}: its files cannot be told")
    paths = (PurePosixPath(os.path.normpath(path)) for path in distribution.files)
    return sorted(str(path) for path in paths if _is_sealed(path))


def _is_sealed(path: PurePosixPath) -> bool:
    if path.suffix == ".pyc" or path.parts[0] == "..":
        return False
    return not (
        path.parts[0].endswith(".dist-info") and path.name in {"RECORD", "INSTALLER", "REQUESTED"}
    )


def _measured(location: Path, paths: list[str]) -> dict[str, Measured]:
    with ThreadPoolExecutor() as pool:  # hashing releases the interpreter's lock
        measures = pool.map(lambda path: measured_file(location / path), paths)
        return dict(zip(paths, measures, strict=True))


def measured_file(path: Path) -> Measured:
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise GuardError(f"{path}: {error.strerror}") from error
    return Measured(size=size, sha256=digest.hexdigest())


def write_manifest(manifest: Manifest, path: Path) -> None:
    aside = path.with_suffix(".new")
    text = json.dumps(manifest.document(), separators=(",", ":"), sort_keys=True)
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


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
    return Manifest(
        location=Path(fields["location"]),
        versions=fields["versions"],
        files={
            name: {
                path: Measured(size=size, sha256=sha256) for path, (size, sha256) in files.items()
            }
            for name, files in fields["files"].items()
        },
    )


def size_differences(manifest: Manifest, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) for the files that make a difference at import: there, and as large as
    they were. For every start of torch, so by sizes alone.
    """
    for name in names:
        for path, sealed in manifest.files.get(name, {}).items():
            if not path.endswith(_START_UP_SUFFIXES):
                continue
            try:
                size = os.stat(f"{manifest.location}/{path}").st_size  # noqa: PTH116 - thousands of files at every start: Path costs three times as much
            except OSError:
                yield path, "missing"
                continue
            if size != sealed.size:
                yield path, f"{size} bytes instead of {sealed.size}"


def differences(manifest: Manifest, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) for every file, by its hash."""
    for name in names:
        files = manifest.files.get(name, {})
        there = [path for path in files if (manifest.location / path).is_file()]
        yield from ((path, "missing") for path in sorted(set(files) - set(there)))
        for path, now in _measured(manifest.location, there).items():
            if now.size != files[path].size:
                yield path, f"{now.size} bytes instead of {files[path].size}"
            elif now.sha256 != files[path].sha256:
                yield path, f"other content, {now.size} bytes as before"


def strays(manifest: Manifest, names: Iterable[str]) -> Iterator[str]:
    """Files inside the protected packages that no protected distribution brought."""
    wanted = set(names)
    sealed = {path for files in manifest.files.values() for path in files}
    for package, name in sorted(manifest.packages().items()):
        if name not in wanted:
            continue
        for folder, folders, files in os.walk(manifest.location / package):
            folders[:] = sorted(set(folders) - {"__pycache__"})
            relative = Path(folder).relative_to(manifest.location)
            yield from (
                str(relative / file)
                for file in sorted(files)
                if not file.endswith(".pyc") and str(relative / file) not in sealed
            )
