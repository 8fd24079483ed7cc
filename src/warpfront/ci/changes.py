"""Changes of cells by a commit, for its reviewers: new or removed cells, and those with other
wheels and bytes. Where the fingerprints of two commits are equal, nothing has to be built or
verified anew. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from warpfront.images.built import RenderedImage
from warpfront.images.plan import content_hash
from warpfront.matrix.cell import Cell
from warpfront.system.digests import digest_of
from warpfront.system.texts import readable_size

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


def fingerprints(
    cells: Iterable[Cell],
    rendered: Mapping[str, RenderedImage],
    blocked: Mapping[str, str],
    *,
    builder: str,
    verified: Mapping[str, object],
) -> dict[str, str]:
    """Return the digests by cell, parents first. A cell that cannot be rendered has the digest
    of the reason, so that it changes with the reason. `verified` has the checks of each image, and
    all that they compare with it.
    """
    digests: dict[str, str] = {}
    for cell in cells:
        if cell.id in blocked:
            digests[cell.id] = digest_of(["blocked", blocked[cell.id], cell.tag])
            continue
        bootstrap = cell.base.bootstrap
        made_by = [cell.base.pinned, asdict(bootstrap) if bootstrap else None]
        base = digests[cell.parent] if cell.parent else digest_of(made_by)
        content = content_hash(rendered[cell.id], base_identity=base, builder=builder)
        digests[cell.id] = digest_of([content, verified[cell.id]])
    return digests
