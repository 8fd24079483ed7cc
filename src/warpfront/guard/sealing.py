"""`install` and `adopt`: put the guard around the stack that an image holds."""

from __future__ import annotations

import compileall
import json
import py_compile
import shutil
import stat
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatch
from importlib.metadata import Distribution
from pathlib import Path

from .channels import write_channels
from .manifest import installed, measure, write_manifest
from .places import Places
from .policy import GuardError, Policy
from .shims import write_shims

_PROGRAM = """\
#!{python}
import sys

sys.path.insert(0, "{library}")
from warpfront_guard.{module} import main

sys.exit(main(sys.argv[1:]))
"""


def seal(policy: Policy, places: Places, *, python: str) -> Policy:
    """Write constraints, channels, shims, programs and manifest; returns the policy with what was
    adopted. `python` is the interpreter of the programs. Raises `GuardError` if the stack is not
    what the policy says, before anything is written.
    """
    there = installed(places.site_packages)
    policy = _adopted(policy, there, places)
    _compare(policy, there, places)
    try:
        write_shims(policy.shims, places.site_packages)
        write_policy(policy, places)
        names = (*policy.protected, *(shim.name for shim in policy.shims))
        write_manifest(measure(places.site_packages, names), places.manifest)
        write_channels(policy, places)
        _write_programs(places, python)
    except PermissionError as error:
        raise GuardError(f"{error.filename}: {error.strerror}: run this as root") from error
    _compile(places.library)
    return policy


def write_policy(policy: Policy, places: Places) -> None:
    places.folder.mkdir(parents=True, exist_ok=True)
    aside = places.policy.with_suffix(".new")
    aside.write_text(json.dumps(policy.document(), indent=1, sort_keys=True) + "\n")
    aside.replace(places.policy)


def _adopted(policy: Policy, there: Mapping[str, list[Distribution]], places: Places) -> Policy:
    """With what the image holds of the patterns to adopt, at the versions found."""
    found = {
        name: distributions[0].version
        for name, distributions in there.items()
        if any(fnmatch(name, pattern) for pattern in policy.adopt)
    }
    if policy.adopt and "torch" not in found:
        raise GuardError(f"{places.site_packages} holds no torch: nothing to adopt")
    sentinels = {name: why for name, why in policy.sentinels.items() if name not in found}
    return replace(policy, protected={**found, **policy.protected}, sentinels=sentinels)


def _compare(policy: Policy, there: Mapping[str, list[Distribution]], places: Places) -> None:
    for name, version in policy.protected.items():
        found = [distribution.version for distribution in there.get(name, [])]
        if found != [version]:
            what = " and ".join(found) or "missing"
            raise GuardError(f"{places.site_packages}: {name} is {what}, to be sealed is {version}")
    for name in policy.sentinels:
        if name in there:
            raise GuardError(f"{places.site_packages}: {name} is there and must not be")


def _write_programs(places: Places, python: str) -> None:
    """`warpfront-guard`, and a launcher for uv where the image has uv: it says more when uv
    refuses. Without uv there is none, so that `command -v uv` stays true to the image.
    """
    programs = {"warpfront-guard": "__main__"}
    if shutil.which("uv") is not None:
        programs["uv"] = "launcher"
    places.programs.mkdir(parents=True, exist_ok=True)
    for name, module in programs.items():
        path = places.programs / name
        path.write_text(_PROGRAM.format(python=python, library=places.library, module=module))
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _compile(library: Path) -> None:
    """Byte code that holds whatever the files' times are: the guard runs at every start."""
    compileall.compile_dir(
        library, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
    )
