"""Sets of wheels that share a layer. Pure.

A large wheel has its own layer: it makes an image large, and other images have it too. Small wheels
share one, because an image has at most 127 layers, and each costs a mount.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warpfront.wheels.lock.values import LockedWheel

ALONE_BYTES = 16 << 20
MOST_ALONE = 40

Wheels = tuple[LockedWheel, ...]


def layer_sets(wheels: Iterable[LockedWheel]) -> tuple[Wheels, ...]:
    """Return the sets, each in order: the small wheels first, then one set for each large wheel."""
    ordered = sorted(wheels, key=lambda wheel: (-wheel.size_bytes, wheel))
    large = [wheel for wheel in ordered[:MOST_ALONE] if wheel.size_bytes >= ALONE_BYTES]
    small = tuple(sorted(wheel for wheel in ordered if wheel not in large))
    return tuple(([small] if small else []) + [(wheel,) for wheel in sorted(large)])


def bytecode_sets(sets: Sequence[Wheels], sources_bytes: Sequence[int]) -> tuple[Wheels, ...]:
    """Return sets of wheels that share a layer of byte code: the set with the most sources has its
    own (torch, which a patch release changes), the rest one. Most large wheels have little Python.
    """
    sized = [(size, wheels) for size, wheels in zip(sources_bytes, sets, strict=True) if size]
    if not sized:
        return ()
    _, most = max(sized)
    rest = tuple(wheel for _, wheels in sized if wheels != most for wheel in wheels)
    return (rest, most) if rest else (most,)
