"""Papers about an image as what is attached to it: each by the name that its signature says."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.errors import NotPublishableError
from warpfront.images.labels import LOCK, SOURCE
from warpfront.model import BuiltImage, Cell, WheelLock
from warpfront.pipeline.within.evidence import DOCUMENT
from warpfront.pipeline.within.image_papers import (
    Known,
    Paper,
    bill_for,
    bill_papers,
    statement_papers,
)
from warpfront.pipeline.within.shop import Papers
from warpfront.release.admission import Evidence
from warpfront.release.ledger import Publication
from warpfront.release.publication import Held, Referrer
from warpfront.release.statements.statement import MEDIA_TYPE
from warpfront.system.store import Store
from warpfront.wheels.requirements import RequirementList

# The table for people is for a terminal: who pulls reads the one for programs.
_NAMES = {
    "sbom.cdx.json": "cyclonedx",
    "sbom.spdx.json": "spdx",
    "licences.json": "licences",
    "provenance.json": "provenance",
    "verification.json": "tested",
}


def papers_of(
    chains: Mapping[str, tuple[Cell, ...]],
    locks: Mapping[str, WheelLock],
    requirements: Mapping[str, RequirementList],
    store: Store,
) -> Papers:
    """What writes an image's papers. `chains` are each cell with those it is built on."""

    def written(publication: Publication, evidence: Evidence, held: Held) -> tuple[Referrer, ...]:
        cell = evidence.cell
        lock = locks.get(cell.id)
        if lock is None or lock.digest != held.labels.get(LOCK):
            raise NotPublishableError(
                f"{cell.id}: the image was built from another lock than is here, so that nobody "
                "can say where its wheels are from",
                hint="publish from the revision that it was built from",
            )
        known = Known(
            cell=cell,
            chain=chains[cell.id],
            requirements=requirements,
            lock=lock,
            built=store.load(cell.id, "build", (BuiltImage,)),
            labels=held.labels,
            verifications=tuple(evidence.verifications.values()),
        )
        bill = bill_for(known)
        statements = statement_papers(
            known,
            bill,
            name=publication.repository,
            digest=held.digest,
            builder=held.labels.get(SOURCE, ""),
            ended={one.target: one.ended for one in known.verifications},
            noted=publication.noted,
        )
        papers = (*bill_papers(bill), *statements)
        return tuple(_attachable(paper) for paper in papers if paper.name in _NAMES)

    return written


def _attachable(paper: Paper) -> Referrer:
    name = _NAMES[paper.name]
    return Referrer(
        name=name,
        artifact_type=paper.media_type,
        payload=paper.text.encode(),
        annotations={DOCUMENT: name, **_predicate(paper)},
    )


def _predicate(paper: Paper) -> Mapping[str, str]:
    """Which kind of statement it is, for who looks for one among several."""
    return {"dev.warpfront.statement": _NAMES[paper.name]} if paper.media_type == MEDIA_TYPE else {}
