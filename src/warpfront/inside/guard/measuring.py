"""Filling a manifest from what is installed, and all that differs from it now: by hashes."""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

from .manifest import Manifest, Measured
from .policy import GuardError, normalized

_CHUNK = 1 << 20
# What an installer writes about itself, other for each.
_INSTALLERS_OWN = frozenset(("RECORD", "INSTALLER", "REQUESTED"))


def installed(location: Path) -> dict[str, list[Distribution]]:
    """The distributions whose metadata lies in `location`, by normalized name, duplicates kept.
    What is left of a half-removed one has no name and is none.
    """
    found: dict[str, list[Distribution]] = {}
    for distribution in distributions(path=[str(location)]):
        name = _name_of(distribution)
        if name:
            found.setdefault(normalized(name), []).append(distribution)
    return found


def _name_of(distribution: Distribution) -> str:
    """From the text: how importlib.metadata answers for a missing field differs between Pythons."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    for line in text.splitlines():
        if not line:
            break
        field, _, value = line.partition(":")
        if field.strip().lower() == "name":
            return value.strip()
    return ""


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
    name = _name_of(distribution)
    try:
        files = distribution.files
    except (ValueError, csv.Error) as error:
        raise GuardError(f"{name} in {location}: its RECORD cannot be read: {error}") from error
    if files is None:
        raise GuardError(f"{name} has no RECORD in {location}: its files cannot be told")
    paths = (PurePosixPath(os.path.normpath(path)) for path in files)
    return sorted(str(path) for path in paths if is_sealed(path))


def is_sealed(path: PurePosixPath) -> bool:
    if path.suffix == ".pyc" or path.parts[0] == ".." or path.is_absolute():
        return False
    return not (path.parts[0].endswith(".dist-info") and path.name in _INSTALLERS_OWN)


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
    return size, digest.hexdigest()


def measured_text(text: str) -> Measured:
    """The measure of a file with this text."""
    data = text.encode()
    return len(data), hashlib.sha256(data).hexdigest()


def differences(manifest: Manifest, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) for every file, by its hash."""
    for name in names:
        files = manifest.files.get(name, {})
        there = [path for path in files if (manifest.location / path).is_file()]
        yield from ((path, "missing") for path in sorted(set(files) - set(there)))
        for path, (size, sha256) in _measured(manifest.location, there).items():
            sealed_size, sealed_sha256 = files[path]
            if size != sealed_size:
                yield path, f"{size} bytes instead of {sealed_size}"
            elif sha256 != sealed_sha256:
                yield path, f"other content, {size} bytes as before"


def strays(manifest: Manifest, names: Iterable[str]) -> Iterator[str]:
    """Files inside the folders of the protected distributions that none of them brought."""
    wanted = set(names)
    sealed = {path for files in manifest.files.values() for path in files}
    for top, owners in sorted(manifest.folders().items()):
        if not owners & wanted:
            continue
        for folder, folders, files in os.walk(manifest.location / top):
            folders[:] = sorted(set(folders) - {"__pycache__"})
            relative = Path(folder).relative_to(manifest.location)
            yield from (
                str(relative / file)
                for file in sorted(files)
                if not file.endswith(".pyc") and str(relative / file) not in sealed
            )


def shared_folders(manifest: Manifest) -> tuple[str, ...]:
    """Folders that several sealed distributions fill together (`nvidia/cu13/`), as others, which
    nobody seals, may too.
    """
    return tuple(f"{top}/" for top, owners in manifest.folders().items() if len(owners) > 1)


def versions_of(distributions_: Mapping[str, list[Distribution]], name: str) -> list[str]:
    return [distribution.version for distribution in distributions_.get(name, [])]
