"""Documents attached to an image: SBOM, licences, provenance and verification. Path."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from warpfront.errors import BlockedError, NotPublishableError
from warpfront.images.built import BuiltImage
from warpfront.images.labels import LOCK
from warpfront.matrix.cell import Cell
from warpfront.release.admission import Evidence
from warpfront.release.evidence import DOCUMENT
from warpfront.release.ledger import Publication
from warpfront.release.registry.contract import Artifact
from warpfront.release.sbom.documents import cyclonedx_text, spdx_text
from warpfront.release.sbom.parts import Bill, bill_of, licence_document
from warpfront.release.statements.predicates import (
    Proof,
    making_of,
    on_target,
    proof_text,
    provenance_text,
)
from warpfront.release.statements.statement import MEDIA_TYPE, is_attested_kind, predicate_of
from warpfront.system.store import Store
from warpfront.verify.results import Verification
from warpfront.wheels.lock.values import WheelLock
from warpfront_checks.image_contents import ContentsError, contents_from


def image_papers(
    publication: Publication,
    evidence: Evidence,
    *,
    chains: Mapping[str, tuple[Cell, ...]],
    locks: Mapping[str, WheelLock],
    store: Store,
) -> tuple[Artifact, ...]:
    """Return an image's documents. `chains` are each cell with those it is built on."""
    cell = evidence.cell
    lock = locks.get(cell.id)
    if lock is None or lock.digest != evidence.labels.get(LOCK):
        raise NotPublishableError(
            f"{cell.id}: the image was built from another lock than is here, so that nobody "
            "can say where its wheels are from",
            hint="publish from the revision that it was built from",
        )
    built: BuiltImage = store.load(cell.id, "build", (BuiltImage,))
    verifications = evidence.verifications.values()
    bill = bill_for(chains[cell.id], lock, built, evidence.labels, verifications)
    statements = statement_papers(bill, lock, built, evidence, publication)
    documents = (*bill_papers(bill), *statements)
    for document in documents:
        if document.predicate is None and is_attested_kind(document.artifact_type):
            text = f"{document.title} is too large to be attested"
            raise NotPublishableError(text, hint="docs/sbom.md")
    return documents


def bill_for(
    chain: tuple[Cell, ...],
    lock: WheelLock,
    built: BuiltImage,
    labels: Mapping[str, str],
    verifications: Iterable[Verification],
) -> Bill:
    """Return the bill of the image of a chain's last cell, by the contents that `load` listed on
    the first target where they can be read, since it is one image. Raises `BlockedError` where no
    verification lists them.
    """
    reasons, cell_id = [], chain[-1].id
    for verification in verifications:
        if verification.content_hash != built.content_hash:
            reasons.append(f"on {verification.target}, another content was verified")
            continue
        try:
            contents = contents_from(verification.environment.get("contents"))
        except ContentsError as error:
            reasons.append(f"on {verification.target}: {error}")
            continue
        return bill_of(chain, lock, contents, built.base, labels)
    raise BlockedError(
        f"{cell_id}: nobody says what lies in its image"
        + "".join(f"; {reason}" for reason in reasons),
        hint=f"warpfront verify --only {cell_id}",
    )


def bill_papers(bill: Bill) -> tuple[Artifact, ...]:
    """Return the documents that need no digest."""
    licences = json.dumps(licence_document(bill), indent=1, sort_keys=True) + "\n"
    return (
        _document("cyclonedx", "application/vnd.cyclonedx+json", cyclonedx_text(bill)),
        _document("spdx", "application/spdx+json", spdx_text(bill)),
        _document("licences", "application/vnd.warpfront.licences.v1+json", licences),
    )


def statement_papers(
    bill: Bill, lock: WheelLock, built: BuiltImage, evidence: Evidence, publication: Publication
) -> tuple[Artifact, ...]:
    """Return the digest's statements."""
    name, digest = publication.repository, publication.digest
    making = making_of(evidence.cell, lock, bill, built, evidence.labels)
    proof = Proof(
        cell_id=evidence.cell.id,
        content_hash=built.content_hash,
        targets=tuple(map(on_target, evidence.verifications.values())),
        relaxed=tuple(sorted(relaxation.package for relaxation in lock.relaxed)),
        noted=publication.noted,
    )
    provenance = provenance_text(making, name=name, digest=digest)
    tested = proof_text(proof, name=name, digest=digest)
    return (
        _document("provenance", MEDIA_TYPE, provenance),
        _document("tested", MEDIA_TYPE, tested),
    )


def _document(name: str, media_type: str, text: str) -> Artifact:
    payload, stated = text.encode(), media_type == MEDIA_TYPE
    return Artifact(
        name=name,
        artifact_type=media_type,
        payload=payload,
        # The kind of statement finds one among several.
        annotations={DOCUMENT: name, **({"dev.warpfront.statement": name} if stated else {})},
        predicate=predicate_of(name, media_type, payload),
    )
