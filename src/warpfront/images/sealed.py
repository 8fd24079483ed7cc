"""The guard's manifest of an image's files, made from its wheels. Path.

It follows from the wheels and the guard, which the content hash covers, and is no part of it.
"""

from __future__ import annotations

import json
from pathlib import Path

from warpfront.images.built import RenderedImage
from warpfront.images.protection import POLICY, stack_location
from warpfront.matrix.cell import Cell
from warpfront.system.store import write_text
from warpfront.wheels.lock.values import LockedWheel
from warpfront.wheels.store.unpacked import stays, unpacked_files
from warpfront.wheels.store.wheelhouse import Wheelhouse
from warpfront_checks.guard.manifest import Manifest, Measured, manifest_text
from warpfront_checks.guard.policy import policy_from

_MANIFEST = "stack.json"


def is_sealed(cell: Cell, rendered: RenderedImage) -> bool:
    """Return true if this image has a guard of wheels, not of its base's torch."""
    return POLICY in rendered.files and bool(cell.stack)


def write_manifest(
    rendered: RenderedImage, wheelhouse: Wheelhouse, folder: Path, *, cell: Cell
) -> None:
    """The manifest of what the guard of `cell` protects, in `folder`. Raise `WheelError` for a
    wheel whose RECORD is not true.
    """
    protected = policy_from(json.loads(rendered.files[POLICY])).protected
    wheels = [wheel for wheel in rendered.wheels if wheel.name in protected]
    stays_in = stays(cell.slim)

    def left(wheel: LockedWheel) -> dict[str, Measured]:
        files = unpacked_files(wheelhouse, wheel)
        return {path: measured for path, measured in files.items() if stays_in(path)}

    manifest = Manifest(
        location=stack_location(cell),
        versions={wheel.name: wheel.version for wheel in wheels},
        files={wheel.name: left(wheel) for wheel in wheels},
    )
    write_text(folder / _MANIFEST, manifest_text(manifest))
