"""Fingerprints: the inputs of a cell's image and its verification, as one digest each, without
an engine. If they are equal at two commits, nothing has to be built or verified anew. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warpfront.images.built import RenderedImage
from warpfront.images.plan import content_hash
from warpfront.matrix.cell import Cell
from warpfront.system.digests import digest_of


def fingerprints(
    cells: Iterable[Cell],
    rendered: Mapping[str, RenderedImage],
    blocked: Mapping[str, str],
    *,
    builder: str,
    checks: str,
) -> dict[str, str]:
    """Return the digests by cell, parents first. A cell that cannot be rendered has the digest
    of the reason, so that it changes with the reason. `checks` is the digest of the program that
    runs in images.
    """
    digests: dict[str, str] = {}
    for cell in cells:
        if cell.id in blocked:
            digests[cell.id] = digest_of(["blocked", blocked[cell.id], cell.tag])
            continue
        made_by: list[object] = [cell.base.pinned]
        if bootstrap := cell.base.bootstrap:
            made_by += [bootstrap.suite, list(bootstrap.include), bootstrap.updates]
            made_by += bootstrap.overlays
        base = digests[cell.parent] if cell.parent else digest_of(made_by)
        content = content_hash(rendered[cell.id], base_identity=base, builder=builder)
        digests[cell.id] = digest_of([content, checks, sorted(cell.targets)])
    return digests
