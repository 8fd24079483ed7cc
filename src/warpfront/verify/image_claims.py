"""Claims of an image from its matrix and lock, which the checks inside compare with what
is there. The cell of an external image comes from its labels and provenance. Pure.

The document has one type on both sides: `warpfront_checks.claims` writes and reads it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import get_args, get_type_hints

from warpfront.errors import InputError
from warpfront.images.labels import BASE_SOURCE, CELL, CONTENT_HASH
from warpfront.matrix.cell import Cell, Pin, Toolkit
from warpfront.matrix.expansion import is_id
from warpfront.matrix.language import Base, Smoke
from warpfront.matrix.vendors import VENDORS
from warpfront.system.references import is_tag
from warpfront.wheels.core_metadata import readable_requirement
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
        policies=tuple({name: getattr(p, name) for name in _POLICY} for p in cell.policies),
        extensions=tuple(sorted({name for built in lock.builds for name in built.extensions})),
    )


_POLICY = ("name", "value", "level", "effect", "source")


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
    filled = {key: value for key, value in document.items() if value not in ("", ())}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in filled.items()}


_OURS = "dev.warpfront"
_VERSION = "org.opencontainers.image.version"
_TITLE = "org.opencontainers.image.description"
_BASE_NAME = "org.opencontainers.image.base.name"
_BASE_DIGEST = "org.opencontainers.image.base.digest"
_HASH = re.compile(r"[0-9a-f]{64}")
_WORDS = (f"{_OURS}.python", f"{_OURS}.torch")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_WHEEL = "pkg:pypi/"
_TOOLKITS = get_args(get_type_hints(Toolkit)["name"])


def claimed_cell(
    labels: Mapping[str, str], fields: Mapping[str, tuple[str, ...]], *, machine: str
) -> Cell:
    """Return the cell of an image. `fields` are those of its provenance, empty without one;
    `machine` is the engine's answer. Raise `InputError` for labels of another form.
    """
    if wrong := _wrong_labels(labels):
        hint = "only images that warpfront built can be verified by their digest"
        raise InputError(f"its labels do not say what it is: {', '.join(wrong)}", hint=hint)
    python, cell_id = labels[f"{_OURS}.python"], labels[CELL]
    pins = filter(None, map(readable_requirement, fields.get("stack", ())))
    return Cell(
        id=cell_id,
        project="stranger",
        line=0,
        vendor=labels[f"{_OURS}.vendor"],
        toolkit=_toolkit(labels.get(f"{_OURS}.toolkit", "")),
        targets=_targets(labels),
        machine=next(iter(fields.get("machine", ())), machine),
        python=python,
        torch=labels[f"{_OURS}.torch"],
        image=cell_id,
        base=Base(
            name=labels.get(BASE_SOURCE, "unknown"),
            reference=labels.get(_BASE_NAME, ""),
            digest=labels.get(_BASE_DIGEST, ""),
            python=python,
            interpreter="",
            glibc="",
        ),
        index=None,
        stack=tuple(Pin(name=pin.name, version=s.version) for pin in pins for s in pin.specifier),
        requirements=(),
        requirements_file=None,
        compiler=None,
        template="",
        parent=None,
        tag=labels[_VERSION],
        title=labels.get(_TITLE, ""),
    )


def claims_of(cell: Cell, versions: Mapping[str, str], *, target: str) -> Claims:
    """Return the claims for one target. `versions` are the wheels of its provenance; without one,
    only torch is claimed. The guard is not, because its policy is unknown.
    """
    claims = cell_claims(cell, versions or {"torch": cell.torch}, target=target)
    return dataclasses.replace(claims, stack=claims.stack or ("torch",))


def claimed_versions(uris: tuple[str, ...]) -> dict[str, str]:
    """Name -> version of the wheels among what an image was made of, by their purls."""
    versions = {}
    for uri in uris:
        name, parts, version = uri.removeprefix(_WHEEL).partition("?")[0].partition("@")
        if uri.startswith(_WHEEL) and parts:
            versions[name] = version.replace("%2B", "+").replace("%2b", "+")
    return versions


def _wrong_labels(labels: Mapping[str, str]) -> list[str]:
    """Labels that are missing or not of the form that we write: they become folders and words."""
    vendor = VENDORS.get(labels.get(f"{_OURS}.vendor", ""))
    targets = _targets(labels)
    holds = {
        CELL: is_id(labels.get(CELL, "")),
        CONTENT_HASH: _HASH.fullmatch(labels.get(CONTENT_HASH, "")),
        f"{_OURS}.vendor": vendor,
        f"{_OURS}.targets": vendor
        and all(is_id(target) and vendor.accepts_target(target) for target in targets),
        **{name: _WORD.fullmatch(labels.get(name, "")) for name in _WORDS},
        _VERSION: is_tag(labels.get(_VERSION, "")),
    }
    return [name for name, holds_label in holds.items() if not holds_label]


def _targets(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(f"{_OURS}.targets", "").split(","))


def _toolkit(text: str) -> Toolkit | None:
    """`cuda13.0` -> its name and version; "" is a CPU build."""
    for name in _TOOLKITS:
        version = text.removeprefix(name)
        if version != text and _WORD.fullmatch(version):
            return Toolkit(name=name, version=version)
    if text:
        raise InputError(f"its label {_OURS}.toolkit names no toolkit that is known: {text[:80]!r}")
    return None
