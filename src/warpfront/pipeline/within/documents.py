"""What is attached to a published image beside its verifications: what is in it, as CycloneDX and
as SPDX, under which licences, and how it was made. From the lock and from what `load` found inside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from warpfront.errors import NotPublishableError
from warpfront.images.engine.bases import RECIPE_LABEL
from warpfront.images.labels import (
    BASE_SOURCE,
    CONTENT_HASH,
    CREATED,
    LOCK,
    REVISION,
    SOURCE,
    UV,
)
from warpfront.inside.checks.contents import ContentsError, contents_from
from warpfront.model import BaseSource, Cell, ResolvedBase, Verification, WheelLock
from warpfront.pipeline.within.evidence import DOCUMENT
from warpfront.release.bill.cyclonedx import cyclonedx_text
from warpfront.release.bill.licence_table import licence_document
from warpfront.release.bill.parts import Bill, bill_of, roots_of
from warpfront.release.bill.spdx import spdx_text
from warpfront.release.policy import Evidence
from warpfront.release.publication import Document, Held
from warpfront.release.statements.provenance_statement import making_of, provenance_text
from warpfront.release.statements.statement import MEDIA_TYPE
from warpfront.release.statements.verification_statement import Proof, on_target, proof_text
from warpfront.wheels.requirements import RequirementList

CYCLONEDX_TYPE = "application/vnd.cyclonedx+json"
SPDX_TYPE = "application/spdx+json"
LICENCES_TYPE = "application/vnd.warpfront.licences.v1+json"
_BASE_NAME = "org.opencontainers.image.base.name"
_BASE_DIGEST = "org.opencontainers.image.base.digest"

Documents = Callable[[Evidence, Held], tuple[Document, ...]]


def bill_documents(
    chains: Mapping[str, tuple[Cell, ...]],
    locks: Mapping[str, WheelLock],
    requirements: Mapping[str, RequirementList],
) -> Documents:
    """What makes an image's documents. `chains` are each cell with those it is built on."""

    def made(evidence: Evidence, held: Held) -> tuple[Document, ...]:
        cell = evidence.cell
        lock = locks.get(cell.id)
        if lock is None or lock.digest != held.labels.get(LOCK):
            raise NotPublishableError(
                f"{cell.id}: the image was built from another lock than is here, so that nobody "
                "can say where its wheels are from",
                hint="publish from the revision that it was built from",
            )
        roots = roots_of(chains[cell.id], requirements)
        verifications = tuple(evidence.verifications.values())
        try:
            bill = image_bill(cell, lock, verifications, held.labels, roots=roots)
        except ContentsError as error:
            raise NotPublishableError(
                f"{cell.id}: `load` did not say what is in the image ({error})",
                hint="invoke verify",
            ) from None
        return (
            _document("cyclonedx", CYCLONEDX_TYPE, cyclonedx_text(bill)),
            _document("spdx", SPDX_TYPE, spdx_text(bill)),
            _document("licences", LICENCES_TYPE, licence_text(bill)),
            _document("provenance", MEDIA_TYPE, _provenance(cell, lock, bill, held)),
            _document("summary", MEDIA_TYPE, _summary(lock, evidence, bill, held)),
        )

    return made


def image_bill(
    cell: Cell,
    lock: WheelLock,
    verifications: Iterable[Verification],
    labels: Mapping[str, str],
    *,
    roots: tuple[str, ...],
) -> Bill:
    """The bill of an image with these labels. Raises `ContentsError` where nobody says what
    lies in it.
    """
    source = labels.get(BASE_SOURCE, "")
    base = ResolvedBase(
        name=cell.base.name,
        source=BaseSource.REGISTRY if source == BaseSource.REGISTRY else BaseSource.BOOTSTRAP,
        reference=labels.get(_BASE_NAME, ""),
        identity=labels.get(_BASE_DIGEST, ""),
        recipe=labels.get(RECIPE_LABEL, ""),
    )
    return bill_of(
        cell,
        lock,
        contents_from(_contents(verifications)),
        base,
        roots=roots,
        created=labels.get(CREATED, ""),
        source=labels.get(SOURCE, ""),
    )


def licence_text(bill: Bill) -> str:
    return json.dumps(licence_document(bill), sort_keys=True)


def _provenance(cell: Cell, lock: WheelLock, bill: Bill, held: Held) -> str:
    """How it was made. Who vouches for that is the project: its signature is over this digest."""
    making = making_of(
        cell,
        lock,
        bill,
        builder=bill.source,
        content_hash=held.labels.get(CONTENT_HASH, ""),
        revision=held.labels.get(REVISION, ""),
        uv=held.labels.get(UV, ""),
    )
    return provenance_text(making, name=bill.name, digest=held.digest)


def _summary(lock: WheelLock, evidence: Evidence, bill: Bill, held: Held) -> str:
    """What its verifications came to, for tools that read in-toto and nothing of ours."""
    proof = Proof(
        cell_id=evidence.cell.id,
        content_hash=held.labels.get(CONTENT_HASH, ""),
        targets=tuple(on_target(one, at=one.ended) for one in evidence.verifications.values()),
        relaxed=tuple(sorted(one.package for one in lock.relaxed)),
    )
    return proof_text(proof, name=bill.name, digest=held.digest)


def _contents(verifications: Iterable[Verification]) -> object:
    """Those of the first verification that has any: all are of the same image."""
    found = (one.environment["contents"] for one in verifications if "contents" in one.environment)
    return next(found, None)


def _document(name: str, media_type: str, text: str) -> Document:
    return Document(
        name=name,
        artifact_type=media_type,
        payload=text.encode(),
        annotations={DOCUMENT: name},
    )
