"""What is attached to a published image beside its verifications: what is in it, as CycloneDX and
as SPDX, and under which licences. Made from the lock and from what `load` found inside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from warpfront.errors import NotPublishableError
from warpfront.images.labels import BASE_SOURCE, CREATED, LOCK
from warpfront.inside.checks.contents import ContentsError, contents_from
from warpfront.model import BaseSource, Cell, ResolvedBase, Verification, WheelLock
from warpfront.pipeline.within.evidence import DOCUMENT
from warpfront.release.bill.cyclonedx import cyclonedx_text
from warpfront.release.bill.licence_table import licence_document
from warpfront.release.bill.parts import Bill, bill_of, roots_of
from warpfront.release.bill.spdx import spdx_text
from warpfront.release.policy import Evidence
from warpfront.release.publication import Document, Held
from warpfront.wheels.requirements import RequirementList

CYCLONEDX_TYPE = "application/vnd.cyclonedx+json"
SPDX_TYPE = "application/spdx+json"
LICENCES_TYPE = "application/vnd.warpfront.licences.v1+json"
_SOURCE = "org.opencontainers.image.source"
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
        bill = _bill(cell, lock, evidence, held, roots_of(chains[cell.id], requirements))
        licences = json.dumps(licence_document(bill), sort_keys=True)
        return (
            _document("cyclonedx", CYCLONEDX_TYPE, cyclonedx_text(bill)),
            _document("spdx", SPDX_TYPE, spdx_text(bill)),
            _document("licences", LICENCES_TYPE, licences),
        )

    return made


def _bill(
    cell: Cell, lock: WheelLock, evidence: Evidence, held: Held, roots: tuple[str, ...]
) -> Bill:
    try:
        contents = contents_from(_contents(evidence.verifications.values()))
    except ContentsError as error:
        raise NotPublishableError(
            f"{cell.id}: `load` did not say what is in the image ({error})", hint="invoke verify"
        ) from None
    source = held.labels.get(BASE_SOURCE, "")
    base = ResolvedBase(
        name=cell.base.name,
        source=BaseSource.REGISTRY if source == BaseSource.REGISTRY else BaseSource.BOOTSTRAP,
        reference=held.labels.get(_BASE_NAME, ""),
        identity=held.labels.get(_BASE_DIGEST, ""),
    )
    return bill_of(
        cell,
        lock,
        contents,
        base,
        roots=roots,
        created=held.labels.get(CREATED, ""),
        source=held.labels.get(_SOURCE, ""),
    )


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
