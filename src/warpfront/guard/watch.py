"""What happens when a protected package, or pip, is imported in an image."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .manifest import Manifest, read_manifest, size_differences
from .policy import GuardError, Policy, normalized, read_policy

_SHOWN = 3


def look_at(name: str, *, home: str) -> None:
    """Refuse to import a protected package that is not what was sealed. For pip, listen to what it
    says.

    Raises `ImportError` that names what changed, and which path won.
    """
    folder = Path(home) / "guard"
    if name == "pip._internal":
        from .refusal import listen_to_pip  # noqa: PLC0415 - logging is pip's to load, not torch's

        listen_to_pip(folder)
        return
    try:
        policy, manifest = read_policy(folder / "policy.json"), read_manifest(folder / "stack.json")
    except GuardError as error:
        raise ImportError(_refusal(name, [str(error)], "")) from None
    problems = list(import_problems(name, policy, manifest))
    if problems:
        raise ImportError(_refusal(name, problems, policy.holds()))


def import_problems(name: str, policy: Policy, manifest: Manifest) -> Iterator[str]:
    """What is wrong with the package `name` and with everything sealed beside it, worst first."""
    packages = manifest.packages()
    if packages.get(name) in policy.relaxed:
        return
    if name not in packages:
        yield from _stranger_problems(name, policy)
        return
    expected = manifest.location / name / "__init__.py"
    spec = PathFinder.find_spec(name)
    if spec is None:
        yield f"{name} was removed from {manifest.location}"
        return
    if spec.origin is None or Path(spec.origin).resolve() != expected.resolve():
        won = spec.origin or next(iter(spec.submodule_search_locations or ()), "nowhere")
        yield f"{name} would come from {won}, the image's is {expected.parent}"
        if _in_isolated_build(won):
            yield "this is an isolated build with a torch of its own: use --no-build-isolation"
    yield from _version_problems(policy, manifest)
    changed = list(size_differences(manifest, sealed_names(policy, manifest)))
    yield from (f"{path}: {what}" for path, what in changed[:_SHOWN])
    if len(changed) > _SHOWN:
        yield f"and {len(changed) - _SHOWN} more files"


def sealed_names(policy: Policy, manifest: Manifest) -> list[str]:
    """The distributions that still have to be as they were."""
    return [name for name in manifest.files if name not in policy.relaxed]


def _stranger_problems(name: str, policy: Policy) -> Iterator[str]:
    """A watched package that the image did not have: it has to be the one that fits its torch."""
    wanted = policy.companions.get(name)
    if wanted is None or name in policy.relaxed:
        return
    try:
        found = version(name)
    except PackageNotFoundError:
        return
    if found != wanted:
        yield f"{name} {found} was installed; with {policy.holds()} goes {wanted}"


def _version_problems(policy: Policy, manifest: Manifest) -> Iterator[str]:
    """Metadata beside the sealed one: an install that went over it, or half of one."""
    sealed = {
        path.split("/", 1)[0]
        for name in sealed_names(policy, manifest)
        for path in manifest.files[name]
        if path.endswith(".dist-info/METADATA")
    }
    names = {normalized(folder.split("-")[0]) for folder in sealed}
    try:
        there = sorted(entry.name for entry in manifest.location.iterdir())
    except OSError as error:
        yield f"{manifest.location}: {error.strerror}"
        return
    for entry in there:
        if entry.endswith(".dist-info") and entry not in sealed:
            name, _, version = entry.removesuffix(".dist-info").partition("-")
            if normalized(name) in names:
                yield f"{normalized(name)} {version} was installed over it"


def _in_isolated_build(path: str) -> bool:
    return "pip-build-env" in path or any("pip-build-env" in entry for entry in sys.path)


def _refusal(name: str, problems: list[str], holds: str) -> str:
    what = f" ({holds})" if holds else ""
    return (
        f"warpfront guard: {name}: the torch stack of this image{what} was changed: "
        f"{'; '.join(problems)}. See `warpfront-guard verify` for all of it. Start from the image "
        "again to have it back; a change that is meant: `warpfront-guard relax NAME --reason TEXT`."
    )
