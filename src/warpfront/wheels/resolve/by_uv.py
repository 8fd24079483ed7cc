"""The lock of one cell's inputs, by uv. Path."""

from __future__ import annotations

from warpfront.system.process import Run
from warpfront.system.progress import Line
from warpfront.wheels.device_packages import refuse_every_device
from warpfront.wheels.lock.values import LockInputs, WheelLock
from warpfront.wheels.resolve.resolution import WheelMaker
from warpfront.wheels.resolve.resolver import UvResolver
from warpfront.wheels.resolve.resolving import resolve
from warpfront.wheels.sources import Site
from warpfront.wheels.store.wheelhouse import Wheelhouse


def resolve_by_uv(
    inputs: LockInputs,
    site: Site,
    *,
    run: Run,
    on_line: Line,
    wheelhouse: Wheelhouse | None = None,
    parent: WheelLock | None = None,
    crafting: WheelMaker | None = None,
) -> WheelLock:
    """Return the lock for `inputs`, resolved by uv from the sources that the site can reach."""
    refuse_every_device(inputs, site)
    parent_wheels = parent.wheels if parent else ()
    resolver = UvResolver(
        inputs, site, run=run, on_line=on_line, wheelhouse=wheelhouse, held=parent_wheels
    )
    return resolve(inputs, resolver, on_line=on_line, parent=parent, crafting=crafting)
