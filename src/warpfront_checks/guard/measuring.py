"""Filling a manifest from what is installed, and all that differs from it now: by hashes, and by
the needs of the sealed distributions. An install that brings a typing-extensions that torch cannot
be imported with has changed torch, too.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from email.parser import HeaderParser
from importlib.metadata import Distribution, distributions
from pathlib import Path

from .manifest import Doubted, Manifest, Measured, sha256_of, size_differences
from .policy import GuardError, Policy, Problems, normalized
from .requires_dist import Requirement, UnreadableError, meets, read_requirement

# The distributions of a folder by normalized name, with duplicates.
Installed = Mapping[str, list[Distribution]]
_BATCHES = 32
# Written by each installer about itself: uv's even records when the wheel's file was
# made.
_INSTALLERS_OWN = frozenset(
    ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_build.json", "uv_cache.json")
)


def installed(location: Path) -> dict[str, list[Distribution]]:
    """Return the distributions with metadata in `location`, by normalized name, with
    duplicates. The rest of a half-removed one has no name and is none.
    """
    by_name: dict[str, list[Distribution]] = {}
    for distribution in distributions(path=[str(location)]):
        name = _name_of(distribution)
        if name:
            by_name.setdefault(normalized(name), []).append(distribution)
    return by_name


def _name_of(distribution: Distribution) -> str:
    """Read the name from the text: importlib.metadata's answer without one differs."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    return (HeaderParser().parsestr(text)["Name"] or "").strip()


def measure(location: Path, names: Iterable[str]) -> Manifest:
    """Hash all files of these. Raise `GuardError` if one is not installed or has no RECORD."""
    by_name = installed(location)
    versions, files = {}, {}
    for name in sorted(names):
        if name not in by_name:
            raise GuardError(f"{name} is not installed in {location}")
        distribution = by_name[name][0]
        versions[name] = distribution.version
        files[name] = _measured(location, recorded_paths(distribution, location))
    return Manifest(location=location, versions=versions, files=files)


def recorded_paths(distribution: Distribution, location: Path) -> list[str]:
    """Return the files that a distribution's RECORD lists, below `location`, without what
    changes by itself: byte code, and what the installer writes about itself.
    """
    name = _name_of(distribution)
    record = distribution.read_text("RECORD")
    if record is None:
        raise GuardError(f"{name} has no RECORD in {location}: its files cannot be told")
    try:
        listed = [row[0] for row in csv.reader(record.splitlines(), strict=True) if row]
    except csv.Error as error:
        raise GuardError(f"{name} in {location}: its RECORD cannot be read: {error}") from error
    return sorted({path for path in map(os.path.normpath, listed) if is_sealed(path)})


def is_sealed(path: str) -> bool:
    """Return whether a normalized path below site-packages is sealed."""
    top = path.partition("/")[0]
    if top in ("..", "") or (path.endswith(".pyc") and "__pycache__" in path.split("/")):
        return False
    return not (top.endswith(".dist-info") and path.rpartition("/")[2] in _INSTALLERS_OWN)


def _measured(location: Path, paths: list[str]) -> dict[str, Measured]:
    """Hashing releases the interpreter's lock. In batches: most files are so small that to hand one
    over costs more than to hash it. Neighbours are alike, and go into different batches.
    """

    def measured(batch: list[str]) -> dict[str, Measured]:
        measures: dict[str, Measured] = {}
        for path in batch:
            file = f"{location}/{path}"
            try:
                size = os.path.getsize(file)  # noqa: PTH202 - ten thousands of files: Path costs more
            except OSError as error:
                raise GuardError(f"{file}: {error.strerror}") from error
            measures[path] = size, sha256_of(file)
            if not measures[path][1]:
                raise GuardError(f"{file}: it cannot be read")
        return measures

    with ThreadPoolExecutor() as pool:
        batches = [paths[start::_BATCHES] for start in range(_BATCHES)]
        measures = pool.map(measured, batches)
        together = {path: measure for batch in measures for path, measure in batch.items()}
    return {path: together[path] for path in paths}


def measured_text(text: str) -> Measured:
    """Return the measure of a file with this text."""
    data = text.encode()
    return len(data), hashlib.sha256(data).hexdigest()


def differences(
    manifest: Manifest, names: Iterable[str], *, doubted: Doubted = lambda _: True
) -> Problems:
    """Yield (path, what is wrong) for every file, by size, and by hash if it is `doubted`."""
    for name in names:
        files, hashed = manifest.files.get(name, {}), list[str]()
        yield from size_differences(manifest, [name], doubted=doubted, hashed=hashed)
        for path, (size, sha256) in _measured(manifest.location, hashed).items():
            if sha256 != files[path][1]:
                yield path, f"other content, {size} bytes as before"


def versions_of(distributions_: Installed, name: str) -> list[str]:
    return [distribution.version for distribution in distributions_.get(name, [])]


def needs_of(installed: Installed, names: Iterable[str]) -> dict[str, str]:
    """Return name -> specifier: what `names` together accept of each that they ask for here."""
    specifiers: dict[str, set[str]] = {}
    for name in names:
        for requirement in _requirements(installed, name):
            for operator, version in requirement.specifiers:
                specifiers.setdefault(requirement.name, set()).add(operator + version)
    return {name: ",".join(sorted(specifiers[name])) for name in sorted(specifiers)}


def met_needs(policy: Policy, installed: Installed) -> dict[str, str]:
    """Return name -> installed version of the needs that it meets, to be known at an import."""
    return {
        name: version
        for name, accepted in policy.needs.items()
        for version in versions_of(installed, name)[:1]
        if meets(name + accepted, version, unknown=False)
    }


def need_problems(policy: Policy, installed: Installed, names: Iterable[str]) -> Problems:
    """Return (distribution, fault) for each that `names`, or their needs in turn, cannot work
    with. A resolver with other instructions brought it, or it was removed.
    """
    sealed = set(names)
    waiting = sorted(sealed)
    visited = set(waiting)
    for asker in waiting:  # grows
        for need in _requirements(installed, asker):
            problem = _problem(need, installed)
            if problem and need.name not in sealed and not policy.is_relaxed(need.name):
                versions = ",".join(operator + version for operator, version in need.specifiers)
                yield need.name, f"{problem}; {asker} needs {need.name}{versions}"
            if need.name not in visited:
                visited.add(need.name)
                waiting.append(need.name)


def _requirements(installed: Installed, name: str) -> Iterator[Requirement]:
    """Return what applies here without extras. Unreadable lines count as nothing, as for pip."""
    for distribution in installed.get(name, [])[:1]:
        for line in distribution.requires or ():
            with contextlib.suppress(UnreadableError):
                requirement = read_requirement(line)
                if requirement.applies():
                    yield requirement


def _problem(requirement: Requirement, installed: Installed) -> str:
    """Return the fault of a need. Of several installed versions any may be the real one: an
    installer of another kind, such as conda, overwrites the files and not the metadata.
    """
    versions = versions_of(installed, requirement.name)
    version = ""
    try:
        for version in versions:
            if not requirement.accepts(version):
                return f"{version} is installed"
    except UnreadableError:
        return f"{version} is installed, which is no version"
    return "" if versions else "not installed"
