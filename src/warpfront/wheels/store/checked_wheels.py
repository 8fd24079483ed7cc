"""The METADATA of fetched wheels, compared with the lock before a build. Path.

A lock is resolved from an index's metadata. The wheel's own METADATA is read here, for any source
or cache of its bytes, so that a lock needs no copy of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.errors import WheelError
from warpfront.matrix.cell import Cell
from warpfront.wheels.core_metadata import (
    Distribution,
    accepts_python,
    readable_requirement,
    requirement_name,
)
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.resolve.demands import asked_for, roots_of
from warpfront.wheels.store.wheelhouse import Wheelhouse, read_wheel_metadata
from warpfront_checks.guard.names import triton_shims


def check_wheels(chain: tuple[Cell, ...], lock: WheelLock, wheelhouse: Wheelhouse) -> None:
    """Raise `WheelError` with both texts for each difference between the lock of the last cell of
    `chain` (parents first) and its wheels. Wheels of a parent with a built image may be absent;
    demands that only they could make are then not judged.
    """
    metadata: dict[str, Distribution] = {
        canonicalize_name(wheel.name): read_wheel_metadata(path)
        for wheel in lock.wheels
        if (path := wheelhouse.path(wheel)).is_file()
    }
    problems = []
    for wheel in lock.wheels:
        name, inside = wheel.filename, metadata.get(canonicalize_name(wheel.name))
        if inside is None:
            continue
        if canonicalize_name(inside.name) != canonicalize_name(wheel.name):
            problems.append(f"{name}: the lock says {wheel.name}, its METADATA {inside.name}")
        if Version(inside.version) != Version(wheel.version):
            problems.append(f"{name}: the lock says {wheel.version}, its METADATA {inside.version}")
        if not accepts_python(inside, lock.python):
            problems.append(
                f"{name}: the lock is for Python {lock.python}, its METADATA says "
                f"Requires-Python: {inside.requires_python}"
            )
    problems += _wrong_demands(chain, lock, metadata)
    if problems:
        lines = "".join(f"\n    {problem}" for problem in problems)
        raise WheelError(
            f"{lock.cell_id}: its wheels are not what its lock was resolved from{lines}",
            hint="the index says something else of a wheel than the wheel itself: lock again from "
            "another source, and do not use that index until you know why",
        )


def _wrong_demands(
    chain: tuple[Cell, ...], lock: WheelLock, metadata: Mapping[str, Distribution]
) -> Iterator[str]:
    """Demands that the lock does not meet, and locked wheels that nothing demands."""
    locked: dict[str, str] = {canonicalize_name(wheel.name): wheel.version for wheel in lock.wheels}
    shims = {shim.name: Version(shim.version).public for shim in triton_shims(locked)}
    requires = {name: entry.requires for name, entry in metadata.items()}
    asked_from = partial(asked_for, requires, python=lock.python, machine=chain[-1].machine)
    demands = asked_from(roots_of(chain, lock.wheels))
    # Where the stack is pinned, uv puts the pin in the place of a demand, without its extras.
    stack = {canonicalize_name(pin.name) for cell in chain for pin in cell.stack}
    plain = asked_from(sorted(stack))
    relaxed = {
        (canonicalize_name(entry.package), canonicalize_name(Requirement(text).name))
        for entry in lock.relaxed
        for text in entry.unmet
    }
    for asker, demand, text in demands:
        version = locked.get(demand) or shims.get(demand)
        met = version and Requirement(text).specifier.contains(version, prereleases=True)
        by_extra = asker in stack and (asker, demand, text) not in plain
        if not (met or by_extra or (asker, demand) in relaxed):
            holds = f"{demand} {version}" if version else f"no {demand}"
            whose = f"{asker} {locked[asker]}: its METADATA" if asker in locked else "the image"
            yield f"{whose} demands {text}, the lock holds {holds}"
    if metadata.keys() == locked.keys():
        demanded = {demand for _, demand, _ in demands}
        # Only a lenient resolver can read some demands.
        texts = (text for entry in metadata.values() for text in entry.requires)
        demanded |= {requirement_name(text) for text in texts if readable_requirement(text) is None}
        for name in sorted(locked.keys() - demanded):
            yield f"{name} {locked[name]}: the lock holds it, and no wheel's METADATA demands it"
