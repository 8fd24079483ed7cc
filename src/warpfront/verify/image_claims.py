"""Claims of an image from its matrix and lock, which the checks inside compare with what
is there. Pure.

The document has one type on both sides: `warpfront_checks.claims` writes and reads it.
"""

from __future__ import annotations

from warpfront.matrix.cell import Cell, Smoke
from warpfront.matrix.vendors import VENDORS
from warpfront.wheels.lock.values import WheelLock
from warpfront_checks.claims import Claims
from warpfront_checks.guard.policy import Policy


def image_claims(cell: Cell, lock: WheelLock, policy: Policy, *, target: str) -> Claims:
    """Return the claims of the cell's image on one target; `policy` is its guard's."""
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
        smoke=tuple(smoke_document(one) for one in tried(cell)),
        policies=tuple(
            {name: getattr(one, name) for name in ("name", "value", "level", "effect", "source")}
            for one in cell.policies
        ),
        extensions=tuple(sorted({one for built in lock.builds for one in built.extensions})),
    )


def tried(cell: Cell) -> tuple[Smoke, ...]:
    """Return the packages of the cell's image that `smoke:` tries."""
    return tuple(one for one in cell.smoke if cell.vendor in (one.vendors or (cell.vendor,)))


def smoke_document(one: Smoke) -> dict[str, object]:
    """Return an entry of `smoke:` without empty fields."""
    said: dict[str, object] = {
        "name": one.name,
        "uses": one.uses,
        "run": list(one.run),
        "imports": list(one.imports),
        "needs": one.needs,
        "exit": one.exit_code,
        "prints": one.prints,
        "seconds": one.seconds,
        "starts": list(one.starts),
        "optional": list(one.optional),
    }
    return {key: value for key, value in said.items() if value not in ("", [])}
