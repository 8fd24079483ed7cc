"""What was proven of an image, in short and for others' tools: which sessions came to what on which
targets, when, and what was let pass. Pure.

The verifications themselves are attached beside it; this is their summary, and says no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from warpfront.model import Outcome, Verification
from warpfront.release.statements.statement import (
    Fields,
    Statement,
    StatementError,
    read_statement,
    statement_text,
)
from warpfront.verify.verdict import outcome_of, worst_of

PREDICATE = "https://github.com/warpfront/warpfront/blob/main/docs/sbom.md#verification-v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What a session came to, and how many checks it is made of."""

    name: str
    outcome: Outcome
    checks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OnTarget:
    """One verification: of the image that engines call `image_id`, ended `at` (RFC 3339)."""

    target: str
    outcome: Outcome
    at: str
    image_id: str
    sessions: tuple[Session, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """All that was proven of an image. `relaxed` are packages whose demands go unmet, `noted` what
    a channel let pass.
    """

    cell_id: str
    content_hash: str
    targets: tuple[OnTarget, ...]
    relaxed: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()


def on_target(verification: Verification, *, at: str) -> OnTarget:
    """The summary of a verification that ended `at`."""
    return OnTarget(
        target=verification.target,
        outcome=outcome_of(verification),
        at=at,
        image_id=verification.image_id,
        sessions=tuple(_session(verification, name) for name in verification.sessions),
    )


def proof_text(proof: Proof, *, name: str, digest: str) -> str:
    """The statement about the image `name` with `digest`."""
    predicate = {
        "cell": proof.cell_id,
        "contentHash": proof.content_hash,
        "result": _result(proof.targets),
        "targets": [_document(one) for one in sorted(proof.targets, key=lambda one: one.target)],
        "relaxed": sorted(proof.relaxed),
        "noted": list(proof.noted),
    }
    return statement_text(
        Statement(name=name, digest=digest, predicate_type=PREDICATE, predicate=predicate)
    )


def read_proof(payload: bytes, *, digest: str) -> Proof:
    """What was proven of the image with `digest`. Raises `StatementError`, also for a result that
    does not follow from the sessions.
    """
    said = read_statement(payload, digest=digest, predicate_type=PREDICATE)
    fields = Fields(said.predicate, "predicate")
    proof = Proof(
        cell_id=fields.text("cell"),
        content_hash=fields.text("contentHash"),
        targets=tuple(map(_on_target, fields.list("targets"))),
        relaxed=fields.texts("relaxed"),
        noted=fields.texts("noted"),
    )
    if len({one.target for one in proof.targets}) != len(proof.targets):
        raise StatementError("a target is there twice")
    if fields.text("result") != _result(proof.targets):
        raise StatementError("the result is not that of its targets")
    fields.nothing_else()
    return proof


def _result(targets: Iterable[OnTarget]) -> str:
    return str(worst_of(one.outcome for one in targets))


def _session(verification: Verification, name: str) -> Session:
    checks = [check for check in verification.checks if check.session == name]
    outcome = worst_of(check.outcome for check in checks) if checks else Outcome.ERROR
    return Session(name=name, outcome=outcome, checks=len(checks))


def _document(one: OnTarget) -> dict[str, Any]:
    return {
        "target": one.target,
        "outcome": str(one.outcome),
        "at": one.at,
        "imageId": one.image_id,
        "sessions": [
            {"name": session.name, "outcome": str(session.outcome), "checks": session.checks}
            for session in one.sessions
        ],
    }


def _on_target(value: object) -> OnTarget:
    fields = Fields(value, "a target")
    found = OnTarget(
        target=fields.text("target"),
        outcome=_outcome(fields),
        at=fields.text("at"),
        image_id=fields.text("imageId"),
        sessions=tuple(map(_read_session, fields.list("sessions"))),
    )
    fields.nothing_else()
    if found.outcome is not worst_of(one.outcome for one in found.sessions):
        raise StatementError(f"{found.target[:80]}: not what its sessions came to")
    return found


def _read_session(value: object) -> Session:
    fields = Fields(value, "a session")
    session = Session(
        name=fields.text("name"), outcome=_outcome(fields), checks=fields.value("checks", int)
    )
    fields.nothing_else()
    if session.checks < (session.outcome is Outcome.PASSED):
        raise StatementError(f"{session.name[:80]}: {session.checks} checks")
    return session


def _outcome(fields: Fields) -> Outcome:
    found = fields.text("outcome")
    if found not in set(Outcome):
        raise StatementError(f"{found[:80]!r} is no outcome")
    return Outcome(found)
