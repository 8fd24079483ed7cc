"""`verify`: everything that can be wrong with a guarded stack."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import PathFinder
from importlib.metadata import Distribution
from typing import Literal

from .at_import import read_at_import
from .bytecode import bytecode_findings
from .channels import channel_findings
from .finding import Finding
from .imports import Start, import_findings
from .interpreter import interpreter_problems
from .manifest import Manifest, read_manifest, size_differences, strays
from .measuring import (
    always,
    ctime_of,
    differences,
    installed,
    recorded_paths,
    shared_folders,
    versions_of,
    written_since,
)
from .needs import need_problems
from .own_files import own_problems
from .places import Places
from .plugins import plugin_problems
from .policy import GuardError, Policy, read_policy
from .standing import relaxed_problems
from .tracing import traced_shadows
from .watch import sealed_names

Depth = Literal["quick", "light", "full"]


def verify(
    places: Places,
    environment: Mapping[str, str],
    *,
    start: Start | None = None,
    depth: Depth = "full",
) -> list[Finding]:
    """Return all findings; none means that the stack is the one that was sealed. `environment`
    is that of the process at its start, `start` (`read_start()`) the state of a new interpreter,
    checked if given. "quick" compares sizes instead of hashes, and looks for no strays; "light",
    for a build that has just sealed it, hashes only files written since.
    """
    try:
        policy, manifest = read_policy(places.policy), read_manifest(places.manifest)
    except GuardError as error:
        return [Finding(part="guard", subject=str(places.folder), text=str(error))]
    names = sealed_names(policy, manifest)
    there = installed(manifest.location)
    since = ctime_of(places.manifest)
    doubted = written_since(places.manifest) if depth == "light" else always
    if depth == "quick":
        changed = size_differences(manifest, names)
    else:
        changed = differences(manifest, names, doubted=doubted)
    findings = [
        *_findings("channel", channel_findings(policy, places, environment)),
        *_distribution_findings(policy, manifest, there),
        *_findings("needs", need_problems(policy, there, names)),
        *_findings("file", changed),
        *_findings("distribution", relaxed_problems(policy, there, manifest.location)),
        *_shadow_findings(policy, manifest),
        *_findings("guard", own_problems(places, policy, manifest)),
        *_findings("interpreter", _interpreter_problems(places)),
        *_intruder_findings(policy, manifest, environment),
    ]
    if start is not None:
        findings += _findings("import", import_findings(start, manifest.packages()))
    if depth != "quick":
        findings += _stray_findings(names, manifest, there)
        findings += _findings(
            "file",
            bytecode_findings(manifest, places.bytecode, since if depth == "light" else 0),
        )
    return findings


def _findings(part: str, problems: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    return (Finding(part=part, subject=subject, text=text) for subject, text in problems)


def _interpreter_problems(places: Places) -> Iterator[tuple[str, str]]:
    try:
        yield from interpreter_problems(read_at_import(places.at_import)["interpreter"])
    except GuardError as error:
        yield str(error), "the interpreter cannot be told from another"


def _intruder_findings(
    policy: Policy, manifest: Manifest, environment: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield code of others that would run as part of torch: libraries in the place of the
    sealed ones, and what an import of it loads by itself.
    """
    for shadow in traced_shadows(manifest, sealed_names(policy, manifest), environment):
        yield Finding(part="library", subject=shadow.sealed, text=shadow.words(environment))
    for name, group, folder in plugin_problems(policy, manifest):
        text = f"{group} in {folder}: an import loads it"
        yield Finding(part="plugin", subject=name, text=text)


def _distribution_findings(
    policy: Policy, manifest: Manifest, there: Mapping[str, list[Distribution]]
) -> Iterator[Finding]:
    for name in sealed_names(policy, manifest):
        found = versions_of(there, name)
        sealed = manifest.versions[name]
        if found != [sealed]:
            what = ", ".join(found) if found else "not installed"
            yield Finding(part="distribution", subject=name, text=f"{what}; sealed was {sealed}")
    for name, why in policy.forbidden().items():
        for distribution in there.get(name, []):
            text = f"{distribution.version} is installed, and must not be ({why})"
            yield Finding(part="forbidden", subject=name, text=text)
    for name, version in policy.pinned().items():
        if name not in manifest.versions:
            for distribution in there.get(name, []):
                if distribution.version != version:
                    text = (
                        f"{distribution.version} is installed; with {policy.holds()} goes {version}"
                    )
                    yield Finding(part="distribution", subject=name, text=text)


def _stray_findings(
    names: Iterable[str], manifest: Manifest, there: Mapping[str, list[Distribution]]
) -> Iterator[Finding]:
    """Yield files that were added, and sealed files that another distribution counts as its
    own: to uninstall that one would delete them.
    """
    owners, shared = _other_owners(manifest, there), shared_folders(manifest)
    for path in strays(manifest, names):
        owner = owners.get(path)
        if owner and path.startswith(shared):
            continue
        text = f"added by {owner or 'nobody'}"
        if (manifest.location / path).is_symlink():
            text += f", a link to {(manifest.location / path).readlink()}"
        yield Finding(part="stray", subject=path, text=text)
    sealed = {path for name in names for path in manifest.files[name]}
    taken: dict[str, list[str]] = {}
    for path in sorted(sealed & set(owners)):
        taken.setdefault(owners[path], []).append(path)
    for owner, paths in sorted(taken.items()):
        text = f"owns {len(paths)} of the sealed files too, {paths[0]} among them"
        yield Finding(part="owner", subject=owner, text=text)


def _other_owners(manifest: Manifest, there: Mapping[str, list[Distribution]]) -> dict[str, str]:
    """Return path -> the unprotected distribution (`name version`) whose RECORD lists it."""
    owners: dict[str, str] = {}
    for name, distributions in there.items():
        for distribution in distributions:
            if manifest.versions.get(name) == distribution.version:
                continue
            try:
                paths = recorded_paths(distribution, manifest.location)
            except GuardError:  # its files are unknown, so they count as strays
                continue
            owners |= dict.fromkeys(paths, f"{name} {distribution.version}")
    return owners


def _shadow_findings(policy: Policy, manifest: Manifest) -> Iterator[Finding]:
    """The same packages on the path before the sealed ones, by Python's own finder: any file that
    it could load, in a folder or in an archive. The user's folder too, which a cleared environment
    would put there, and the folder where this was started, which most programs have first.
    """
    location = os.path.realpath(manifest.location)
    user = os.path.realpath(site.getusersitepackages())
    for place in dict.fromkeys((*_before(location), user)):
        for package, name in sorted(manifest.packages().items()):
            if not policy.is_relaxed(name) and _holds(place, package):
                where = "is a user's folder" if place == user else "is on the path too"
                yield Finding(part="shadow", subject=f"{place}/{package}", text=f"{place} {where}")


def _before(location: str) -> Iterator[str]:
    for entry in (os.getcwd(), *sys.path):  # noqa: PTH109 - as the path has it
        place = os.path.realpath(entry or ".")
        if place == location and entry in sys.path:
            return
        yield place


def _holds(place: str, package: str) -> bool:
    """Return whether a place has a package; False for a folder that this user may not look into."""
    try:
        spec = PathFinder.find_spec(package, [place])
    except (OSError, ValueError):
        return False
    return spec is not None and spec.origin is not None
