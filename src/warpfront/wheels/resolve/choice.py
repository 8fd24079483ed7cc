"""The best file of a resolved distribution for a cell, and the lock's entry for it. Edge."""

from __future__ import annotations

from pathlib import Path

from packaging.pylock import Package, PackageWheel
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from warpfront.errors import LockError
from warpfront.wheels.lock.values import LockedWheel, LockInputs
from warpfront.wheels.resolve.resolution import Sdist
from warpfront.wheels.wheel_names import read_wheel_name

_LEGACY_LEVELS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def supported_tags(python: str, machine: str, glibc: str) -> tuple[Tag, ...]:
    """Return installable tags, best first: CPython `python` (X.Y) on `machine` with C
    library `glibc` (2.NN).
    """
    major, minor = (int(part) for part in python.split("."))
    platforms: list[str] = []
    for level in range(int(glibc.split(".")[1]), 4, -1):
        platforms.append(f"manylinux_2_{level}_{machine}")
        if level in _LEGACY_LEVELS:
            platforms.append(f"{_LEGACY_LEVELS[level]}_{machine}")
    platforms.append(f"linux_{machine}")  # what ROCm wheels up to 6.2 called themselves
    name = f"cp{major}{minor}"
    return (
        *cpython_tags((major, minor), abis=[name], platforms=platforms),
        *compatible_tags((major, minor), interpreter=name, platforms=platforms),
    )


def wheel_of(
    path: Path, sha256: str, *, source: str = "", sdist: Sdist | None = None
) -> LockedWheel:
    """Return the lock's entry for a wheel in the wheelhouse."""
    name, version, _, _ = parse_wheel_filename(path.name)
    return LockedWheel(
        name=name,
        version=str(version),
        filename=path.name,
        sha256=sha256,
        size_bytes=path.stat().st_size,
        index=sdist.index if sdist else "",
        sdist=sdist.path.name if sdist else "",
        sdist_sha256=sdist.sha256 if sdist else "",
        source=sdist.source if sdist else source,
    )


def best_wheel(package: Package, tags: tuple[Tag, ...], inputs: LockInputs) -> PackageWheel:
    """Return the file of a distribution with the best of `tags`. Raise `LockError` for none."""
    ranks = {tag: rank for rank, tag in enumerate(tags)}
    fitting = []
    for wheel in package.wheels or ():
        name = read_wheel_name(wheel.filename)
        if name and (fit := [ranks[tag] for tag in name.tags if tag in ranks]):
            fitting.append((-min(fit), name.build, wheel.filename, wheel))
    if not fitting:
        raise LockError(
            f"{inputs.cell_id}: {package.name} {package.version} has no wheel for Python "
            f"{inputs.python}, {inputs.machine}, glibc {inputs.glibc}",
            hint="ask for a version that has one",
        )
    return max(fitting, key=lambda candidate: candidate[:3])[3]
