"""Documents of one image: SBOM, licences, provenance and verification. Path."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from warpfront.errors import BlockedError
from warpfront.images.built import BuiltImage
from warpfront.images.labels import CREATED, REVISION, SOURCE, UV
from warpfront.matrix.cell import Cell
from warpfront.release.sbom.cyclonedx import cyclonedx_text
from warpfront.release.sbom.licence_table import licence_document, licence_markdown
from warpfront.release.sbom.parts import Bill, bill_of
from warpfront.release.sbom.spdx import spdx_text
from warpfront.release.statements.provenance_statement import making_of, provenance_text
from warpfront.release.statements.statement import MEDIA_TYPE
from warpfront.release.statements.verification_statement import Proof, on_target, proof_text
from warpfront.verify.results import Verification
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.lock.why_dependency import roots_of
from warpfront.wheels.requirements import RequirementList
from warpfront_checks.image_contents import Contents, ContentsError, contents_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A document about an image: a file's name, what registries call its kind, and its text."""

    name: str
    media_type: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentInputs:
    """Inputs of an image's documents, from `build` and `verify`. `chain` is its cell with the
    cells below it, `labels` are the image's own.
    """

    cell: Cell
    chain: tuple[Cell, ...]
    requirements: Mapping[str, RequirementList]
    lock: WheelLock
    built: BuiltImage
    labels: Mapping[str, str]
    verifications: tuple[Verification, ...]


def bill_for(inputs: DocumentInputs) -> Bill:
    """Return an image's bill. Raises `BlockedError` where no verification lists its content."""
    return bill_of(
        inputs.cell,
        inputs.lock,
        _contents(inputs),
        inputs.built.base,
        roots=roots_of(inputs.chain, inputs.requirements, inputs.lock.wheels),
        created=inputs.labels[CREATED],
        source=inputs.labels.get(SOURCE, ""),
    )


def bill_papers(bill: Bill) -> tuple[Paper, ...]:
    """Return the documents that need no digest."""
    licences = json.dumps(licence_document(bill), indent=1, sort_keys=True) + "\n"
    return (
        Paper(
            name="sbom.cdx.json",
            media_type="application/vnd.cyclonedx+json",
            text=cyclonedx_text(bill),
        ),
        Paper(name="sbom.spdx.json", media_type="application/spdx+json", text=spdx_text(bill)),
        Paper(
            name="licences.json",
            media_type="application/vnd.warpfront.licences.v1+json",
            text=licences,
        ),
        Paper(name="licences.md", media_type="text/markdown", text=licence_markdown(bill)),
    )


def statement_papers(
    document_inputs: DocumentInputs,
    bill: Bill,
    *,
    name: str,
    digest: str,
    builder: str,
    ended: Mapping[str, str],
    noted: Iterable[str] = (),
) -> tuple[Paper, ...]:
    """Return the statements about the image `name` with `digest`. `builder` is the identity
    that vouches for the build. `ended` has the end of each target's verification, `noted` the
    findings that a channel let pass.
    """
    content_hash = document_inputs.built.content_hash
    making = making_of(
        document_inputs.cell,
        document_inputs.lock,
        bill,
        builder=builder,
        content_hash=content_hash,
        revision=document_inputs.labels.get(REVISION, ""),
        uv=document_inputs.labels.get(UV, ""),
        invocation=document_inputs.built.invocation,
    )
    proof = Proof(
        cell_id=document_inputs.cell.id,
        content_hash=content_hash,
        targets=tuple(
            on_target(verification, at=ended[verification.target])
            for verification in document_inputs.verifications
        ),
        relaxed=tuple(sorted(relaxation.package for relaxation in document_inputs.lock.relaxed)),
        noted=tuple(noted),
    )
    return (
        Paper(
            name="provenance.json",
            media_type=MEDIA_TYPE,
            text=provenance_text(making, name=name, digest=digest),
        ),
        Paper(
            name="verification.json",
            media_type=MEDIA_TYPE,
            text=proof_text(proof, name=name, digest=digest),
        ),
    )


def _contents(document_inputs: DocumentInputs) -> Contents:
    """Return the contents that `load` listed on the first target where they can be read, since
    it is one image. Those of another content hash do not count.
    """
    reasons = []
    for verification in document_inputs.verifications:
        if verification.content_hash != document_inputs.built.content_hash:
            reasons.append(f"on {verification.target}, another content was verified")
            continue
        try:
            return contents_from(verification.environment.get("contents"))
        except ContentsError as error:
            reasons.append(f"on {verification.target}: {error}")
    raise BlockedError(
        f"{document_inputs.cell.id}: nobody says what lies in its image"
        + "".join(f"; {reason}" for reason in reasons),
        hint=f"warpfront verify --only {document_inputs.cell.id}",
    )
