"""The predicates that other tools verify: which attached documents are also signed as in-toto
attestations, and under which predicate types. Pure.

The types are those that `cosign verify-attestation --type slsaprovenance1|spdxjson|cyclonedx`
looks for (https://github.com/sigstore/cosign, `PredicateTypeMap` in `cmd/cosign/cli/options`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from warpfront.release.statements.statement import (
    MEDIA_TYPE,
    StatementError,
    read_any_statement,
    read_json,
)

_OF_MEDIA_TYPES = {
    "application/spdx+json": "https://spdx.dev/Document",
    "application/vnd.cyclonedx+json": "https://cyclonedx.org/bom",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """What one attestation states about an image. `name` is that of the attached document."""

    name: str
    type: str
    content: dict[str, Any]

    @property
    def text(self) -> str:
        """The predicate as JSON, as `cosign attest --predicate` reads it."""
        return json.dumps(self.content, sort_keys=True, separators=(",", ":"))


def is_attested_kind(artifact_type: str) -> bool:
    """Return whether documents of this type are attested."""
    return artifact_type == MEDIA_TYPE or artifact_type in _OF_MEDIA_TYPES


def predicate_of(name: str, artifact_type: str, payload: bytes) -> Predicate | None:
    """Return what an attached document states, or None if it is of a kind that is not attested, or
    cannot be read.
    """
    try:
        if artifact_type == MEDIA_TYPE:
            statement = read_any_statement(payload)
            return Predicate(
                name=name, type=statement.predicate_type, content=dict(statement.predicate)
            )
        if artifact_type in _OF_MEDIA_TYPES:
            found = read_json(payload)
            if isinstance(found, dict):
                return Predicate(name=name, type=_OF_MEDIA_TYPES[artifact_type], content=found)
    except StatementError:
        pass
    return None


def attested_predicates(envelopes: str, *, digest: str) -> Iterator[tuple[str, object]]:
    """Yield (predicate type, predicate) of each DSSE envelope about `digest` that cosign printed as
    verified, one a line.
    """
    for line in envelopes.splitlines():
        statement = _statement_in(line)
        subjects = statement.get("subject") or ()
        digests = {f"sha256:{one.get('digest', {}).get('sha256')}" for one in subjects}
        if digest in digests:
            yield str(statement.get("predicateType")), statement.get("predicate")


def _statement_in(line: str) -> dict[str, Any]:
    try:
        envelope = json.loads(line)
        statement = json.loads(base64.b64decode(envelope["payload"]))
    except (ValueError, KeyError, TypeError):
        return {}
    return statement if isinstance(statement, dict) else {}
