"""Which wheels share a layer. Pure.

A large wheel has its own: it is what makes an image large, and other images have it too. The small
ones share one, since an image has 127 layers at most, and each costs a mount.
"""

from __future__ import annotations

from collections.abc import Iterable

from warpfront.model import LockedWheel

ALONE_BYTES = 16 << 20
MOST_ALONE = 40


def layer_sets(wheels: Iterable[LockedWheel]) -> tuple[tuple[LockedWheel, ...], ...]:
    """The sets, each in order: the small wheels first, then one set for each large wheel."""
    ordered = sorted(wheels, key=lambda wheel: (-wheel.size_bytes, wheel))
    large = [wheel for wheel in ordered[:MOST_ALONE] if wheel.size_bytes >= ALONE_BYTES]
    small = tuple(sorted(wheel for wheel in ordered if wheel not in large))
    return tuple(([small] if small else []) + [(wheel,) for wheel in sorted(large)])
