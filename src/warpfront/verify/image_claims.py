"""Claims of an image from its matrix and lock, which the checks inside compare with what
is there. Pure.

The document has one type on both sides: `warpfront_checks.claims` writes and reads it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from warpfront.matrix.cell import Cell
from warpfront.matrix.language import Smoke
from warpfront.matrix.vendors import VENDORS
from warpfront.wheels.lock.values import WheelLock
from warpfront_checks.claims import Claims
from warpfront_checks.guard.policy import Policy


def cell_claims(cell: Cell, versions: Mapping[str, str], *, target: str) -> Claims:
    """Return the claims that follow from a cell and the versions of its wheels alone."""
    vendor, toolkit = VENDORS[cell.vendor], cell.toolkit
    return Claims(
        cell=cell.id,
        target=target,
        vendor=cell.vendor,
        device=vendor.device,
        python=cell.python,
        machine=cell.machine,
        toolkit=(toolkit.name, toolkit.version) if toolkit else None,
        versions=versions,
        stack=tuple(pin.name for pin in cell.stack),
        archs=vendor.accepted_archs(target),
    )


def image_claims(cell: Cell, lock: WheelLock, policy: Policy, *, target: str) -> Claims:
    """Return the claims of the cell's image on one target; `policy` is its guard's."""
    versions = {wheel.name: wheel.version for wheel in lock.wheels}
    return dataclasses.replace(
        cell_claims(cell, versions, target=target),
        guard=policy.document(),
        smoke=tuple(smoke_document(trial) for trial in tried(cell)),
        policies=tuple(
            {name: getattr(policy, name) for name in ("name", "value", "level", "effect", "source")}
            for policy in cell.policies
        ),
        extensions=tuple(
            sorted({extension for built in lock.builds for extension in built.extensions})
        ),
    )


def tried(cell: Cell) -> tuple[Smoke, ...]:
    """Return the packages of the cell's image that `smoke:` tries."""
    return tuple(trial for trial in cell.smoke if cell.vendor in (trial.vendors or (cell.vendor,)))


def smoke_document(smoke: Smoke) -> dict[str, object]:
    """Return an entry of `smoke:` without empty fields."""
    expect = smoke.expect
    document = dataclasses.asdict(smoke) | {"exit": expect.exit, "prints": expect.prints}
    document["name"] = smoke.name or smoke.uses
    document["seconds"] = float(smoke.timeout_seconds)
    for name in ("expect", "timeout_seconds", "vendors"):
        del document[name]
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in document.items()
        if value not in ("", ())
    }
