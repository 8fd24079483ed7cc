"""The claimed contents of the image: the claims file, written on the host, read inside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

from warpfront_checks.documents import Reader

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
        values: dict[str, object] = json.loads(json.dumps(vars(self), default=dict))
        toolkit = asdict(_Toolkit(*self.toolkit)) if self.toolkit else None
        return {"schema": SCHEMA, **values, "toolkit": toolkit}


@dataclass(frozen=True)
class _Toolkit:
    name: str
    version: str


_READER = Reader(error=ClaimsError)


def read_claims(path: Path) -> Claims:
    """Return the claims in a file. Raise `ClaimsError` naming the file and its fault."""
    try:
        return claims_from(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ClaimsError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ClaimsError(f"{path}: not JSON: {error}") from error
    except ClaimsError as error:
        raise ClaimsError(f"{path}: {error}") from None


def claims_from(document: object) -> Claims:
    """Return a document's claims. Unknown fields are refused: unchecked they promise falsely."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        schema = document.get("schema") if isinstance(document, dict) else document
        raise ClaimsError(f"schema is {schema!r}, this reader knows {SCHEMA}")
    fields = {name: value for name, value in document.items() if name != "schema"}
    toolkit = fields.pop("toolkit", None)
    claims = _READER.record(Claims, fields, "the file")
    if toolkit is not None:
        claims = replace(claims, toolkit=astuple(_READER.record(_Toolkit, toolkit, "toolkit")))
    if claims.device not in DEVICES:
        raise ClaimsError(f"device is {claims.device!r}, not one of {', '.join(DEVICES)}")
    for name in ("cell", "target", "vendor", *(["python"] if claims.image else [])):
        if not getattr(claims, name):
            raise ClaimsError(f"{name} must be a non-empty string")
    if not all(isinstance(each.get("name"), str) for each in (*claims.smoke, *claims.policies)):
        raise ClaimsError("an entry of smoke or policies has no name")
    return claims
