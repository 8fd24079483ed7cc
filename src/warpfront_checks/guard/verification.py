"""`verify`: everything that can be wrong with a guarded stack."""

from __future__ import annotations

import contextlib
import os
import re
import site
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Literal

from .at_import import libraries, made_again, read_at_import
from .bytecode import bytecode_findings, is_foreign, level_of
from .channels import channel_findings
from .fast_path import NAME, mapped
from .interpreter import interpreter_problems
from .intruders import other_guards, plugins, shadows
from .manifest import (
    SUFFIXES,
    Manifest,
    packages_text,
    read_manifest,
    size_differences,
    strays,
    written_since,
)
from .measuring import Installed, differences, installed, need_problems, recorded_paths, versions_of
from .places import Places
from .policy import GuardError, Policy, Problems, read_policy
from .sealing import program_text

Depth = Literal["quick", "light", "full"]


def verify(
    places: Places,
    environment: Mapping[str, str],
    *,
    start: Iterable[tuple[str, str]] | None = None,
    depth: Depth = "full",
) -> list[Finding]:
    """Return all findings; none means that the stack is the one that was sealed. `environment`
    is that of the process at its start, `start` (`read_start()`) the faults of a new interpreter,
    if given. "quick" compares sizes instead of hashes, and looks for no strays; "light",
    for a build that has just sealed it, hashes only files written since.
    """
    try:
        policy, manifest = read_policy(places.policy), read_manifest(places.manifest)
    except GuardError as error:
        return [Finding(part="guard", subject=str(places.folder), text=str(error))]
    names = policy.unrelaxed(manifest.files)
    distributions = installed(manifest.location)
    since = places.manifest.stat().st_ctime_ns if depth == "light" else 0
    if depth == "quick":
        changed = size_differences(manifest, names)
    else:
        changed = differences(manifest, names, doubted=written_since(since))
    plugged = (
        (name, f"{group} in {folder}: an import loads it")
        for name, group, folder in plugins(policy, manifest)
    )
    forbidden = (
        (name, f"{version} is installed, and must not be ({why})")
        for name, why in policy.forbidden().items()
        for version in versions_of(distributions, name)
    )
    examined: list[tuple[str, Iterable[tuple[str, str]]]] = [
        ("channel", channel_findings(policy, places, environment)),
        ("distribution", _version_problems(policy, manifest, distributions)),
        ("forbidden", forbidden),
        ("needs", need_problems(policy, distributions, names)),
        ("file", changed),
        ("distribution", relaxed_problems(policy, distributions, manifest.location)),
        ("shadow", _shadow_problems(policy, manifest)),
        ("guard", own_problems(places, policy, manifest)),
        ("interpreter", _interpreter_problems(places)),
        ("library", traced_shadows(manifest, names, environment)),
        ("plugin", plugged),
    ]
    if start is not None:
        examined.append(("import", start))
    if depth != "quick":
        stray, owner = _foreign_files(names, manifest, distributions)
        examined += [
            ("stray", stray),
            ("owner", owner),
            ("file", bytecode_findings(manifest, places.bytecode, since)),
        ]
    return [
        Finding(part=part, subject=subject, text=text)
        for part, problems in examined
        for subject, text in problems
    ]


def _interpreter_problems(places: Places) -> Problems:
    try:
        yield from interpreter_problems(read_at_import(places.at_import)["interpreter"])
    except GuardError as error:
        yield str(error), "the interpreter cannot be told from another"


def _version_problems(policy: Policy, manifest: Manifest, distributions: Installed) -> Problems:
    """Yield sealed distributions in another version, and companions that do not fit the stack."""
    for name in policy.unrelaxed(manifest.files):
        versions = versions_of(distributions, name)
        sealed = manifest.versions[name]
        if versions != [sealed]:
            yield name, f"{', '.join(versions) or 'not installed'}; sealed was {sealed}"
    for name, fitting in policy.pinned().items():
        for version in versions_of(distributions, name) if name not in manifest.versions else ():
            if version != fitting:
                yield name, f"{version} is installed; with {policy.holds()} goes {fitting}"


def _foreign_files(
    names: Iterable[str], manifest: Manifest, installed: Installed
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return (path, fault) of files next to the sealed ones, and (distribution, fault) of those
    whose removal would delete sealed files. Owners are unprotected, and list a file in RECORD.
    """
    owners: dict[str, str] = {}
    for name, distributions in installed.items():
        for distribution in distributions:
            if manifest.versions.get(name) != distribution.version:
                # Without a readable RECORD its files are unknown, so they count as strays.
                with contextlib.suppress(GuardError):
                    paths = recorded_paths(distribution, manifest.location)
                    owners |= dict.fromkeys(paths, f"{name} {distribution.version}")
    stray: list[tuple[str, str]] = []
    folders = manifest.folders().items()
    shared = tuple(f"{folder}/" for folder, owning in folders if len(owning) > 1)
    for path in strays(manifest, names):
        if path not in owners or not path.startswith(shared):
            file = manifest.location / path
            link = f", a link to {file.readlink()}" if file.is_symlink() else ""
            stray.append((path, f"added by {owners.get(path, 'nobody')}{link}"))
    owned: dict[str, list[str]] = {}
    for path in sorted({path for name in names for path in manifest.files[name]} & {*owners}):
        owned.setdefault(owners[path], []).append(path)
    return stray, [
        (owner, f"owns {len(paths)} of the sealed files too, {paths[0]} among them")
        for owner, paths in sorted(owned.items())
    ]


def _shadow_problems(policy: Policy, manifest: Manifest) -> Problems:
    """The same packages on the path before the sealed ones, by Python's own finder: any file that
    it could load, in a folder or in an archive. The user's folder too, which a cleared environment
    would put there, and the folder where this was started, which most programs have first.
    """
    location = os.path.realpath(manifest.location)
    user = os.path.realpath(site.getusersitepackages())
    before: list[str] = []
    for entry in (os.getcwd(), *sys.path):  # noqa: PTH109 - as the path has it
        place = os.path.realpath(entry or ".")
        if place == location and entry in sys.path:
            break
        before.append(place)
    for place in dict.fromkeys((*before, user)):
        for package, name in sorted(manifest.packages().items()):
            if not policy.is_relaxed(name) and _holds(place, package):
                where = "is a user's folder" if place == user else "is on the path too"
                yield f"{place}/{package}", f"{place} {where}"


def _holds(place: str, package: str) -> bool:
    """Return whether a place has a package; False for a folder that this user may not look into."""
    try:
        spec = PathFinder.find_spec(package, [place])
    except (OSError, ValueError):
        return False
    return spec is not None and spec.origin is not None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`part` is what of the guard noticed (`channel`, `distribution`, `file`, `stray`,
    `owner`, `shadow`, `forbidden`, `import`, `guard`), `subject` what it is about, `text` what
    is wrong with it.
    """

    part: str
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.part}: {self.subject}: {self.text}"


# The seal applies to what still has to be as it was: after `relax` that may be another torch, half
# of one, or none.
def sentence(policy: Policy, distributions: Installed) -> str:
    """Return the torch that is here, and whether it has to be the one that was sealed."""
    sealed = policy.protected.get("torch", "")
    if not policy.is_relaxed("torch"):
        rest = sorted({*policy.protected} & {*policy.relaxed})
        but = f", all but {', '.join(rest)}, which may be another" if rest else ""
        return f"{policy.holds()}: as it was sealed{but}"
    versions = versions_of(distributions, "torch")
    state = f"torch {' and '.join(versions)}" if versions else "no torch"
    return f"{state} is here; sealed was {sealed or 'the torch of its base'}, which was relaxed"


def relaxed_problems(policy: Policy, distributions: Installed, location: Path) -> Problems:
    """Return (distribution, fault) for relaxed ones with metadata and without their files."""
    for name in sorted(policy.protected):
        for distribution in distributions.get(name, []) if policy.is_relaxed(name) else ():
            try:
                paths = recorded_paths(distribution, location)
            except GuardError as error:
                yield name, str(error)
                continue
            missing = [path for path in paths if not (location / path).is_file()]
            if missing:
                text = f"{len(missing)} of its {len(paths)} files are missing, {missing[0]} first"
                yield name, f"{distribution.version} was installed, and {text}"


_TRACED = re.compile(r"^\s*(?:\S+ => )?(?P<path>/.*) \(0x[0-9a-f]+\)$", re.MULTILINE)
_SECONDS = 60.0


def traced_shadows(
    manifest: Manifest, names: Iterable[str], environment: Mapping[str, str]
) -> Problems:
    """Yield (library, fault) for the shadows of torch's extension module and all it needs, as the
    loader would resolve them in this environment. Nothing of torch is run for that.
    """
    traced = replace(manifest, files={name: manifest.files[name] for name in names})
    sealed = libraries(traced, os.path.realpath(manifest.location))
    loader = next((path for path in mapped() if "/ld-" in path or "/ld.so" in path), None)
    for path in manifest.files.get("torch", ()):
        if loader and path.startswith("torch/_C.") and path.endswith(".so"):
            try:
                completed = subprocess.run(
                    [loader, f"{manifest.location}/{path}"],
                    env={**environment, "LD_TRACE_LOADED_OBJECTS": "1"},
                    capture_output=True,
                    text=True,
                    errors="surrogateescape",
                    timeout=_SECONDS,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired):
                continue
            loaded = [
                os.path.realpath(match["path"]) for match in _TRACED.finditer(completed.stdout)
            ]
            yield from shadows(sealed, loaded, environment) if loaded else ()


def own_problems(places: Places, policy: Policy, manifest: Manifest) -> Problems:
    """Yield (path, fault): another guard on the path, the part of the manifest for imports,
    programs, and code that the guard would load next to its sources.
    """
    folder = places.library / NAME
    for path in other_guards((os.getcwd(), *sys.path), str(folder)):  # noqa: PTH109 - as the path has it
        yield path, f"another {NAME} on the path: {folder} is this image's"
    texts = places.policy.read_text("utf-8"), places.manifest.read_text("utf-8")
    try:
        document = made_again(places.at_import, policy, manifest, texts)
    except GuardError:
        document = b""
    for file, expected in (
        (places.at_import, document),
        (places.packages, packages_text(manifest).encode()),
    ):
        if bytes_of(file) != expected:
            yield str(file), "not made of this manifest and policy"
    for name, module in (("warpfront-guard", "__main__"), ("uv", "launcher")):
        program = places.programs / name
        content = bytes_of(program)
        first = (content or b"").partition(b"\n")[0].decode(errors="replace")
        sealed = program_text(places, first.removeprefix("#!"), module).encode()
        if content != sealed and not (content is None and name == "uv"):
            yield str(program), "not the program that the seal wrote"
    # Files that Python could load and that are neither a source nor its byte code.
    for file in sorted(folder.rglob("*")):
        cached = file.parent.name == "__pycache__"
        source = file.parent.parent / f"{file.name.partition('.')[0]}.py"
        level = level_of(file.name) if cached else None
        if file.is_symlink() or (file.is_dir() and file != folder / "__pycache__"):
            yield str(file), "added to the guard"
        elif level is not None and source.is_file():
            if is_foreign(str(file), str(source), "", level):
                yield str(file), "byte code of another source"
        elif file.name.endswith(SUFFIXES) and not file.name.endswith(".py") and not cached:
            yield str(file), "added to the guard"


def bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
