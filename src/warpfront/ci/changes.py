"""Changes of cells by a commit, for its reviewers: new or removed cells, and those with other
wheels and bytes. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from warpfront.system.sizes import readable_size

MOST_WHEELS = 12
"""Changes of wheels that are named for one cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellState:
    """A cell at a commit: its fingerprint, and the versions and bytes of the wheels that it adds up
    to; none where it has no lock.
    """

    fingerprint: str
    wheels: Mapping[str, str]
    size_bytes: int


def changed_cells(now: Mapping[str, CellState], before: Mapping[str, CellState]) -> Iterator[str]:
    """Return a line for each changed cell."""
    for cell in sorted(now.keys() | before.keys()):
        if cell not in before:
            yield f"new: {cell}, wheels of {readable_size(now[cell].size_bytes)}"
        elif cell not in now:
            yield f"gone: {cell}"
        elif now[cell].fingerprint != before[cell].fingerprint:
            yield f"changed: {cell}: {_difference(now[cell], before[cell])}"


def _difference(now: CellState, before: CellState) -> str:
    wheels = []
    for name in sorted(now.wheels.keys() | before.wheels.keys()):
        old, new = before.wheels.get(name, ""), now.wheels.get(name, "")
        changed = f"{name} {old} -> {new}" if new else f"-{name} {old}"
        if old != new:
            wheels.append(changed if old else f"+{name} {new}")
    more = len(wheels) - MOST_WHEELS
    parts = [*wheels[:MOST_WHEELS], *([f"and {more} more wheels"] if more > 0 else [])]
    if now.size_bytes != before.size_bytes:
        sign = "+" if now.size_bytes > before.size_bytes else "-"
        parts.append(f"wheels {sign}{readable_size(abs(now.size_bytes - before.size_bytes))}")
    return ", ".join(parts) or "its files, base or checks; the wheels are the same"
