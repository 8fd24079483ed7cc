"""The claimed contents of the image: the claims file, written on the host, read inside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 1
DEVICES = ("cpu", "cuda", "hpu", "xpu")


class ClaimsError(Exception):
    """The claims file cannot be used; the message names the file and the field."""


@dataclass(frozen=True, kw_only=True)
class Claims:
    """The claims about one cell on one target. An empty field is not claimed, so not checked.

    `device` is torch's device type: NVIDIA and AMD are both `cuda`. `toolkit` is (name, version),
    or None for a CPU build. `versions` are all locked distributions, `stack` the names of the
    protected ones, `archs` the entries of torch's arch list that would serve the target. `guard` is
    the policy document of the image's guard, `extensions` the modules that were built against its
    torch. `smoke` is the work of the session `stack` with other packages, `policies` the required
    and forbidden environment variables. `image` is False for the current Python.
    """

    cell: str
    target: str
    vendor: str
    device: str
    python: str = ""
    machine: str = ""
    toolkit: tuple[str, str] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    stack: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    guard: Mapping[str, object] | None = None
    extensions: tuple[str, ...] = ()
    smoke: tuple[Mapping[str, Any], ...] = ()
    policies: tuple[Mapping[str, Any], ...] = ()
    image: bool = True

    def document(self) -> dict[str, object]:
        """Return the claims as JSON values; `read_claims` reads them back to an equal value."""
        toolkit = self.toolkit
        return {
            "schema": SCHEMA,
            **vars(self),
            "toolkit": {"name": toolkit[0], "version": toolkit[1]} if toolkit else None,
            "versions": dict(self.versions),
            "stack": list(self.stack),
            "archs": list(self.archs),
            "guard": dict(self.guard) if self.guard is not None else None,
            "extensions": list(self.extensions),
            "smoke": [dict(entry) for entry in self.smoke],
            "policies": [dict(policy) for policy in self.policies],
        }


def read_claims(path: Path) -> Claims:
    """Return the claims in a file. Raise `ClaimsError` naming the file and its fault."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ClaimsError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ClaimsError(f"{path}: not JSON: {error}") from error
    try:
        return claims_from(document)
    except ClaimsError as error:
        raise ClaimsError(f"{path}: {error}") from None


def claims_from(document: object) -> Claims:
    """Return a document's claims. Unknown fields are refused: unchecked they promise falsely."""
    fields = _mapping(document, "the file")
    if fields.get("schema") != SCHEMA:
        raise ClaimsError(f"schema is {fields.get('schema')!r}, this reader knows {SCHEMA}")
    unknown = sorted(set(fields) - {"schema", *Claims.__dataclass_fields__})
    if unknown:
        raise ClaimsError(f"unknown field {unknown[0]!r}")
    device = _text(fields, "device")
    if device not in DEVICES:
        raise ClaimsError(f"device is {device!r}, not one of {', '.join(DEVICES)}")
    image = fields.get("image")
    if not isinstance(image, bool):
        raise ClaimsError("image must be true or false")
    return Claims(
        cell=_text(fields, "cell"),
        target=_text(fields, "target"),
        vendor=_text(fields, "vendor"),
        device=device,
        python=_text(fields, "python", required=image),
        machine=_text(fields, "machine", required=False),
        toolkit=_toolkit(fields.get("toolkit")),
        versions=_versions(fields.get("versions", {})),
        stack=_texts(fields, "stack"),
        archs=_texts(fields, "archs"),
        guard=None if fields.get("guard") is None else _mapping(fields["guard"], "guard"),
        extensions=_texts(fields, "extensions"),
        smoke=_named(fields, "smoke"),
        policies=_named(fields, "policies"),
        image=image,
    )


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ClaimsError(f"{where} must be an object")
    return value


def _text(fields: Mapping[str, Any], name: str, *, required: bool = True) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str) or (required and not value):
        raise ClaimsError(f"{name} must be a{' non-empty' if required else ''} string")
    return value


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = fields.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ClaimsError(f"{name} must be a list of strings")
    return tuple(value)


def _named(fields: Mapping[str, Any], field: str) -> tuple[Mapping[str, Any], ...]:
    value = fields.get(field, [])
    if not isinstance(value, list):
        raise ClaimsError(f"{field} must be a list")
    entries = tuple(_mapping(entry, field) for entry in value)
    if not all(isinstance(entry.get("name"), str) for entry in entries):
        raise ClaimsError(f"{field}: an entry has no name")
    return entries


def _toolkit(value: object) -> tuple[str, str] | None:
    if value is None:
        return None
    fields = _mapping(value, "toolkit")
    return (_text(fields, "name"), _text(fields, "version"))


def _versions(value: object) -> dict[str, str]:
    fields = _mapping(value, "versions")
    if not all(isinstance(version, str) for version in fields.values()):
        raise ClaimsError("versions must map names to strings")
    return fields
