"""What is attested of an image. Pure.

Its provenance is SLSA's (https://slsa.dev/spec/v1.0/provenance). It is our own, from plan, lock and
build, so no build argument, host or path gets into it. Its verification is a summary of its proof,
short and for other tools: the outcome of each session on each target, its time, and the findings
that were let pass. The verifications themselves are attached as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from warpfront.images.built import REVISION, BuiltImage
from warpfront.images.labels import SOURCE, UV
from warpfront.matrix.cell import Cell
from warpfront.release.sbom.parts import Bill
from warpfront.release.statements.statement import StatementError, read_as, statement_text
from warpfront.verify.results import Outcome, Verification
from warpfront.verify.verdict import outcome_of, worst_of
from warpfront.wheels.lock.values import WheelLock

PROVENANCE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://github.com/warpfront/warpfront/blob/main/docs/sbom.md#build-v1"
_SHA256 = "sha256:"
VERIFICATION = "https://github.com/warpfront/warpfront/blob/main/docs/sbom.md#verification-v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """An input of an image: its purl or address, and its digest by algorithm (`sha256`,
    `gitCommit`), where it is known.
    """

    uri: str
    digest: Annotated[Mapping[str, str], Field(max_length=1)] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRecord:
    """The build of an image. `builder` is the address of the CI workflow (else the project's),
    and `invocation` that of its run, "" outside CI. `asked` are the fields of its cell, `created`
    is the moment of the image.
    """

    cell_id: str
    builder: str
    created: str
    lock: str
    content_hash: str
    asked: tuple[tuple[str, tuple[str, ...]], ...]
    dependencies: tuple[Dependency, ...]
    invocation: str = ""


def making_of(
    cell: Cell, lock: WheelLock, bill: Bill, built: BuiltImage, labels: Mapping[str, str]
) -> BuildRecord:
    """Return the build record; the builder is the build's identity, else the project."""
    fields = {
        "vendor": (cell.vendor,),
        "toolkit": (str(cell.toolkit),) if cell.toolkit else (),
        "targets": cell.targets,
        "machine": (cell.machine,),
        "python": (cell.python,),
        "torch": (cell.torch,),
        "image": (cell.image,),
        "tag": (cell.tag,),
        "stack": tuple(map(str, cell.stack)),
    }
    return BuildRecord(
        cell_id=cell.id,
        builder=built.builder or labels.get(SOURCE, ""),
        created=bill.created,
        lock=lock.digest,
        content_hash=built.content_hash,
        asked=tuple(sorted(fields.items())),
        dependencies=tuple(_dependencies(bill, labels)),
        invocation=built.invocation,
    )


_DEPENDENCIES = TypeAdapter(tuple[Dependency, ...])


def provenance_text(making: BuildRecord, *, name: str, digest: str) -> str:
    """Return the statement about the image `name` with `digest`."""
    return statement_text(_slsa(making), name=name, digest=digest, predicate_type=PROVENANCE)


def read_provenance_statement(payload: bytes, *, digest: str) -> BuildRecord:
    """Return how the image with `digest` was made, by our statement. Raises `StatementError`."""
    return read_as(payload, _making, _slsa, digest=digest, predicate_type=PROVENANCE)


def _slsa(making: BuildRecord) -> dict[str, Any]:
    run = {"invocationId": making.invocation} if making.invocation else {}
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"cell": making.cell_id, **dict(making.asked)},
            "internalParameters": {"lock": making.lock, "contentHash": making.content_hash},
            "resolvedDependencies": _DEPENDENCIES.dump_python(
                making.dependencies, mode="json", exclude_defaults=True
            ),
        },
        "runDetails": {
            "builder": {"id": making.builder},
            "metadata": {"finishedOn": making.created, **run},
        },
    }


def _making(predicate: Mapping[str, Any]) -> BuildRecord:
    built, run = predicate["buildDefinition"], predicate["runDetails"]
    internal, metadata = built["internalParameters"], run["metadata"]
    fields = {key: value for key, value in built["externalParameters"].items() if key != "cell"}
    invocation = str(metadata.get("invocationId", ""))
    if invocation and not invocation.startswith(("https://", "http://")):
        raise StatementError(f"{invocation[:80]!r} is no address of a run")
    return BuildRecord(
        cell_id=str(built["externalParameters"]["cell"]),
        builder=str(run["builder"]["id"]),
        created=str(metadata["finishedOn"]),
        lock=str(internal["lock"]),
        content_hash=str(internal["contentHash"]),
        asked=tuple((key, tuple(map(str, value))) for key, value in sorted(fields.items())),
        dependencies=_DEPENDENCIES.validate_python(tuple(built["resolvedDependencies"])),
        invocation=invocation,
    )


def _dependencies(bill: Bill, labels: Mapping[str, str]) -> Iterator[Dependency]:
    """Return the inputs and tools of the build: the sources, the base, each wheel, and uv."""
    if revision := labels.get(REVISION):
        yield Dependency(uri=f"git+{bill.source}", digest={"gitCommit": revision})
    base = bill.base.version.removeprefix(_SHA256)
    yield Dependency(uri=bill.base.purl, digest={"sha256": base})
    for part in bill.parts:
        if part.kind == "wheel":
            yield Dependency(uri=part.purl, digest={"sha256": part.sha256})
    yield Dependency(uri=f"pkg:pypi/uv@{labels.get(UV, '')}")


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
    return statement_text(_summary(proof), name=name, digest=digest, predicate_type=VERIFICATION)


def read_proof(payload: bytes, *, digest: str) -> Proof:
    """Return what was proven of the image with `digest`. Raises `StatementError`, also for a result
    that does not follow from the sessions.
    """
    proof = read_as(
        payload, _PROOF.validate_python, _summary, digest=digest, predicate_type=VERIFICATION
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


def _summary(proof: Proof) -> dict[str, Any]:
    document: dict[str, Any] = _PROOF.dump_python(proof, mode="json", by_alias=True)
    return {
        **document,
        "result": str(worst_of(target.outcome for target in proof.targets)),
        "targets": sorted(document["targets"], key=lambda target: str(target["target"])),
        "relaxed": sorted(proof.relaxed),
    }
