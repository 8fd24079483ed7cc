"""What matrix and lock say is in an image, for the checks inside to hold against what they find.
Pure.

The document is one type on both sides: `inside.checks.claims` writes it and reads it.
"""

from __future__ import annotations

from warpfront.inside.checks.claims import Claims
from warpfront.inside.guard.policy import Policy
from warpfront.matrix.vendors import VENDORS
from warpfront.model import Cell, WheelLock


def image_claims(cell: Cell, lock: WheelLock, policy: Policy, *, target: str) -> Claims:
    """The claims of the cell's image on one target; `policy` is what its guard was told."""
    vendor, toolkit = VENDORS[cell.vendor], cell.toolkit
    return Claims(
        cell=cell.id,
        target=target,
        vendor=cell.vendor,
        device=vendor.device,
        python=cell.python,
        machine=cell.machine,
        toolkit=(toolkit.name, toolkit.version) if toolkit else None,
        versions={wheel.name: wheel.version for wheel in lock.wheels},
        stack=tuple(pin.name for pin in cell.stack),
        archs=vendor.accepted_archs(target),
        guard=policy.document(),
        extensions=tuple(sorted({one for built in lock.builds for one in built.extensions})),
    )
