"""The predicates that other tools verify: which attached documents are also signed as in-toto
attestations, and under which predicate types. Pure.

The types are those that `cosign verify-attestation --type slsaprovenance1|spdxjson|cyclonedx`
looks for (https://github.com/sigstore/cosign, `PredicateTypeMap` in `cmd/cosign/cli/options`).
"""

from __future__ import annotations

from warpfront.release.predicate import Predicate
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
            content = read_json(payload)
            if isinstance(content, dict):
                return Predicate(name=name, type=_OF_MEDIA_TYPES[artifact_type], content=content)
    except StatementError:
        pass
    return None
