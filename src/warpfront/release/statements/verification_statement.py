"""A summary of an image's proof, short and for other tools: the outcome of each session on each
target, its time, and the findings that were let pass. Pure.

The verifications themselves are attached as well; this is their summary, without further facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from warpfront.release.statements.statement import (
    Statement,
    StatementError,
    read_as,
    statement_text,
)
from warpfront.verify.results import Outcome, Verification
from warpfront.verify.verdict import outcome_of, worst_of

PREDICATE = "https://github.com/warpfront/warpfront/blob/main/docs/sbom.md#verification-v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The outcome of a session, and its number of checks."""

    name: str
    outcome: Outcome
    checks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OnTarget:
    """A verification: of the image that engines call `image_id`, ended `at` (RFC 3339)."""

    target: str
    outcome: Outcome
    at: str
    image_id: Annotated[str, Field(alias="imageId")]
    sessions: tuple[Session, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The verifications of an image. `relaxed` are packages whose requirements are unmet,
    `noted` the findings that a channel let pass.
    """

    cell_id: Annotated[str, Field(alias="cell")]
    content_hash: Annotated[str, Field(alias="contentHash")]
    targets: tuple[OnTarget, ...]
    relaxed: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()


def on_target(verification: Verification) -> OnTarget:
    """Return the summary of a verification."""
    sessions = []
    for name in verification.sessions:
        outcomes = [check.outcome for check in verification.checks if check.session == name]
        outcome = worst_of(outcomes) if outcomes else Outcome.ERROR
        sessions.append(Session(name=name, outcome=outcome, checks=len(outcomes)))
    return OnTarget(
        target=verification.target,
        outcome=outcome_of(verification),
        at=verification.ended,
        image_id=verification.image_id,
        sessions=tuple(sessions),
    )


def proof_text(proof: Proof, *, name: str, digest: str) -> str:
    """Return the statement about the image `name` with `digest`."""
    predicate = _predicate(proof)
    return statement_text(
        Statement(name=name, digest=digest, predicate_type=PREDICATE, predicate=predicate)
    )


def read_proof(payload: bytes, *, digest: str) -> Proof:
    """Return what was proven of the image with `digest`. Raises `StatementError`, also for a result
    that does not follow from the sessions.
    """
    proof = read_as(
        payload, _PROOF.validate_python, _predicate, digest=digest, predicate_type=PREDICATE
    )
    if len({target.target for target in proof.targets}) != len(proof.targets):
        raise StatementError("a target is there twice")
    for target in proof.targets:
        if target.outcome is not worst_of(session.outcome for session in target.sessions):
            raise StatementError(f"{target.target[:80]}: not what its sessions came to")
        if any(session.checks < (session.outcome is Outcome.PASSED) for session in target.sessions):
            raise StatementError(f"{target.target[:80]}: a session passed without a check")
    return proof


_PROOF = TypeAdapter(Proof)


def _predicate(proof: Proof) -> dict[str, Any]:
    document: dict[str, Any] = _PROOF.dump_python(proof, mode="json", by_alias=True)
    return {
        **document,
        "result": str(worst_of(target.outcome for target in proof.targets)),
        "targets": sorted(document["targets"], key=lambda target: str(target["target"])),
        "relaxed": sorted(proof.relaxed),
    }
