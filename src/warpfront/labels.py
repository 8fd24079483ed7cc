"""The labels of an image: the OCI standard ones, and ours under `dev.warpfront.`. Values in, values
out.
"""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.model import Cell, Project, Provenance, ResolvedBase, WheelLock

CELL = "dev.warpfront.cell"
CONTENT_HASH = "dev.warpfront.content-hash"
BASE_SOURCE = "dev.warpfront.base-source"
_OCI = "org.opencontainers.image"


def image_labels(
    cell: Cell,
    *,
    project: Project,
    lock: WheelLock,
    base: ResolvedBase,
    content_hash: str,
    provenance: Provenance,
) -> Mapping[str, str]:
    """Label name -> value. The base named is the one at the bottom of the chain, with where it came
    from.
    """
    torch = {wheel.name: wheel.version for wheel in lock.wheels}.get("torch", cell.torch)
    return {
        f"{_OCI}.title": f"{project.name} {cell.image}",
        f"{_OCI}.description": cell.title,
        f"{_OCI}.source": project.source,
        f"{_OCI}.licenses": project.licenses,
        f"{_OCI}.revision": provenance.revision,
        f"{_OCI}.created": provenance.created,
        f"{_OCI}.version": cell.tag,
        f"{_OCI}.base.name": cell.base.reference,
        f"{_OCI}.base.digest": base.identity,
        CELL: cell.id,
        CONTENT_HASH: content_hash,
        BASE_SOURCE: base.source.value,
        "dev.warpfront.vendor": cell.vendor,
        "dev.warpfront.targets": ",".join(cell.targets),
        "dev.warpfront.toolkit": str(cell.toolkit or ""),
        "dev.warpfront.torch": torch,
        "dev.warpfront.lock": lock.digest,
    }
