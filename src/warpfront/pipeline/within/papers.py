"""Papers about an image as what is attached to it: each by the name that its signature says. They
are written once; who publishes the same again finds them beside the cell's results.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from warpfront import model
from warpfront.errors import NotPublishableError, StoreError
from warpfront.images.labels import LOCK, SOURCE
from warpfront.model import BuiltImage, Cell, WheelLock, digest_of
from warpfront.pipeline.within.evidence import DOCUMENT
from warpfront.release.admission import Evidence
from warpfront.release.ledger import Publication
from warpfront.release.publication import Referrer
from warpfront.release.statements.statement import MEDIA_TYPE
from warpfront.system.store import Store, as_json
from warpfront.wheels.archives import folder_sha256
from warpfront.wheels.requirements import RequirementList

KEPT = "papers"
"""Their file in build/<cell>/."""
# The table for people is for a terminal: who pulls reads the one for programs.
_NAMES = {
    "sbom.cdx.json": "cyclonedx",
    "sbom.spdx.json": "spdx",
    "licences.json": "licences",
    "provenance.json": "provenance",
    "verification.json": "tested",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPaper:
    """A document as it was written: a file's name, what registries call its kind, and its text."""

    name: str
    media_type: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPapers:
    """The documents of an image; `made_from` is a digest of all that they were written from, and
    `digest` one of what was written.
    """

    made_from: str
    papers: tuple[KeptPaper, ...]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePapers:
    """What writes an image's papers, once. `chains` are each cell with those it is built on."""

    chains: Mapping[str, tuple[Cell, ...]]
    locks: Mapping[str, WheelLock]
    requirements: Mapping[str, RequirementList]
    store: Store

    def __call__(self, publication: Publication, evidence: Evidence) -> tuple[Referrer, ...]:
        """See `Papers`."""
        cell = evidence.cell
        lock = self.locks.get(cell.id)
        if lock is None or lock.digest != evidence.labels.get(LOCK):
            raise NotPublishableError(
                f"{cell.id}: the image was built from another lock than is here, so that nobody "
                "can say where its wheels are from",
                hint="publish from the revision that it was built from",
            )
        made_from = self._made_from(publication, evidence, lock)
        papers = self._kept(cell, made_from)
        if papers is None:
            papers = self._written(publication, evidence, lock)
            kept = KeptPapers(made_from=made_from, papers=papers, digest=digest_of(as_json(papers)))
            self.store.save(cell.id, KEPT, kept)
        return tuple(_attachable(one) for one in papers)

    def _made_from(self, publication: Publication, evidence: Evidence, lock: WheelLock) -> str:
        chain = self.chains[evidence.cell.id]
        files = [one.requirements_file for one in chain if one.requirements_file]
        found, built = evidence.verifications, self._built(evidence.cell)
        return digest_of(
            [
                _program(),
                *(as_json(one) for one in chain),
                *(as_json(self.requirements[name]) for name in files),
                [lock.digest, dict(evidence.labels), [found[name].seal for name in sorted(found)]],
                [as_json(built.base), built.content_hash],
                [publication.repository, publication.digest, list(publication.noted)],
            ]
        )

    def _built(self, cell: Cell) -> BuiltImage:
        built: BuiltImage = self.store.load(cell.id, "build", (BuiltImage,))
        return built

    def _kept(self, cell: Cell, made_from: str) -> tuple[KeptPaper, ...] | None:
        """What was written from just this; a file that is damaged or old is no reason to stop."""
        try:
            kept: KeptPapers | None = self.store.load(cell.id, KEPT, (KeptPapers,))
        except StoreError:
            return None
        if kept is None or kept.made_from != made_from:
            return None
        return kept.papers if digest_of(as_json(kept.papers)) == kept.digest else None

    def _written(
        self, publication: Publication, evidence: Evidence, lock: WheelLock
    ) -> tuple[KeptPaper, ...]:
        # What writes bills of materials takes longer to load than the rest of a second run.
        from warpfront.pipeline.within import image_papers  # noqa: PLC0415

        known = image_papers.Known(
            cell=evidence.cell,
            chain=self.chains[evidence.cell.id],
            requirements=self.requirements,
            lock=lock,
            built=self._built(evidence.cell),
            labels=evidence.labels,
            verifications=tuple(evidence.verifications.values()),
        )
        bill = image_papers.bill_for(known)
        statements = image_papers.statement_papers(
            known,
            bill,
            name=publication.repository,
            digest=publication.digest,
            builder=evidence.labels.get(SOURCE, ""),
            ended={one.target: one.ended for one in known.verifications},
            noted=publication.noted,
        )
        papers = (*image_papers.bill_papers(bill), *statements)
        return tuple(
            KeptPaper(name=one.name, media_type=one.media_type, text=one.text)
            for one in papers
            if one.name in _NAMES
        )


@functools.cache
def _program() -> list[str]:
    """What writes papers, as a digest: another program may write others."""
    package = Path(model.__file__).parent
    files = ("pipeline/within/image_papers.py", "inside/checks/image_contents.py")
    texts = [hashlib.sha256((package / name).read_bytes()).hexdigest() for name in files]
    return [folder_sha256(package / "release"), *texts]


def _attachable(paper: KeptPaper) -> Referrer:
    name = _NAMES[paper.name]
    return Referrer(
        name=name,
        artifact_type=paper.media_type,
        payload=paper.text.encode(),
        annotations={DOCUMENT: name, **_predicate(paper)},
    )


def _predicate(paper: KeptPaper) -> Mapping[str, str]:
    """Which kind of statement it is, for who looks for one among several."""
    return {"dev.warpfront.statement": _NAMES[paper.name]} if paper.media_type == MEDIA_TYPE else {}
