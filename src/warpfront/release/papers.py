"""Documents attached to an image, each under its signer. Path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warpfront.errors import NotPublishableError
from warpfront.images.built import BuiltImage
from warpfront.images.labels import LOCK, SOURCE
from warpfront.matrix.cell import Cell
from warpfront.release.admission import Evidence
from warpfront.release.evidence import DOCUMENT
from warpfront.release.ledger import Publication
from warpfront.release.publication import Referrer
from warpfront.release.statements.statement import MEDIA_TYPE, is_attested_kind, predicate_of
from warpfront.system.store import Store
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.requirements import RequirementList

if TYPE_CHECKING:
    from warpfront.release.image_papers import Paper

# The table for people is for a terminal: who pulls reads the one for programs.
_NAMES = {
    "sbom.cdx.json": "cyclonedx",
    "sbom.spdx.json": "spdx",
    "licences.json": "licences",
    "provenance.json": "provenance",
    "verification.json": "tested",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePapers:
    """The writer of an image's documents, once for the same image. `chains` are each cell with
    those it is built on.
    """

    chains: Mapping[str, tuple[Cell, ...]]
    locks: Mapping[str, WheelLock]
    requirements: Mapping[str, RequirementList]
    store: Store
    _made: dict[tuple[object, ...], tuple[Referrer, ...]] = field(default_factory=dict)

    def __call__(self, publication: Publication, evidence: Evidence) -> tuple[Referrer, ...]:
        cell = evidence.cell
        lock = self.locks.get(cell.id)
        if lock is None or lock.digest != evidence.labels.get(LOCK):
            raise NotPublishableError(
                f"{cell.id}: the image was built from another lock than is here, so that nobody "
                "can say where its wheels are from",
                hint="publish from the revision that it was built from",
            )
        seals = tuple(verification.seal for verification in evidence.verifications.values())
        key = (publication.repository, publication.digest, publication.noted)
        made_from = (cell.id, *key, tuple(sorted(evidence.labels.items())), seals)
        if made_from not in self._made:
            self._made[made_from] = self._written(publication, evidence, lock)
        return self._made[made_from]

    def _written(
        self, publication: Publication, evidence: Evidence, lock: WheelLock
    ) -> tuple[Referrer, ...]:
        # A refused image needs none.
        from warpfront.release import image_papers  # noqa: PLC0415

        document_inputs = image_papers.DocumentInputs(
            cell=evidence.cell,
            chain=self.chains[evidence.cell.id],
            requirements=self.requirements,
            lock=lock,
            built=self.store.load(evidence.cell.id, "build", (BuiltImage,)),
            labels=evidence.labels,
            verifications=tuple(evidence.verifications.values()),
        )
        bill = image_papers.bill_for(document_inputs)
        statements = image_papers.statement_papers(
            document_inputs,
            bill,
            name=publication.repository,
            digest=publication.digest,
            builder=document_inputs.built.builder or evidence.labels.get(SOURCE, ""),
            ended={
                verification.target: verification.ended
                for verification in document_inputs.verifications
            },
            noted=publication.noted,
        )
        papers = (*image_papers.bill_papers(bill), *statements)
        return tuple(_attachable(paper) for paper in papers if paper.name in _NAMES)


def _attachable(paper: Paper) -> Referrer:
    name, payload = _NAMES[paper.name], paper.text.encode()
    stated = paper.media_type == MEDIA_TYPE
    predicate = predicate_of(name, paper.media_type, payload)
    if predicate is None and is_attested_kind(paper.media_type):
        raise NotPublishableError(f"{paper.name} is too large to be attested", hint="docs/sbom.md")
    return Referrer(
        name=name,
        artifact_type=paper.media_type,
        payload=payload,
        # The kind of statement finds one among several.
        annotations={DOCUMENT: name, **({"dev.warpfront.statement": name} if stated else {})},
        predicate=predicate,
    )
