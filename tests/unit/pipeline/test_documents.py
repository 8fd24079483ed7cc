"""What goes with a published image: about its digest, by its lock, its labels and its
verifications.
"""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path

import pytest
from bills import A_CONTENTS, CREATED
from builders import A_RESOLVED_BASE, a_built_image, a_cell, a_lock, a_verification, a_wheel

from warpfront.errors import NotPublishableError
from warpfront.images.built import CREATED as CREATED_LABEL
from warpfront.images.built import REVISION
from warpfront.images.labels import BASE_SOURCE, CONTENT_HASH, LOCK, SOURCE, UV
from warpfront.release.admission import Evidence
from warpfront.release.ledger import Publication
from warpfront.release.papers import image_papers
from warpfront.release.publish_context import Papers
from warpfront.release.registry.contract import Artifact
from warpfront.release.statements.predicates import read_proof, read_provenance_statement
from warpfront.system.store import Store
from warpfront.verify.results import Outcome

CELL = a_cell()
A_LOCK = a_lock(CELL, a_wheel(), a_wheel("numpy", "2.4.6"))
DIGEST = "sha256:" + "12" * 32
LABELS = {
    BASE_SOURCE: "registry",
    CONTENT_HASH: "ef" * 32,
    CREATED_LABEL: CREATED,
    LOCK: A_LOCK.digest,
    REVISION: "ab" * 20,
    SOURCE: "https://example.test/demo",
    UV: "0.13.9",
    "org.opencontainers.image.base.digest": A_RESOLVED_BASE.identity,
}


def some_evidence(**labels: str) -> Evidence:
    contents = json.loads(json.dumps(A_CONTENTS.document()))
    found = a_verification(environment={"contents": contents})
    found = dataclasses.replace(found, ended=CREATED)
    return Evidence(
        cell=CELL,
        labels={**LABELS, **labels},
        identities=frozenset({DIGEST}),
        verifications={found.target: found},
    )


def published() -> Publication:
    (found,) = some_evidence().verifications.values()
    return Publication(
        cell_id=CELL.id,
        channel="nightly",
        run="r",
        repository="ghcr.io/demo/torch",
        image_id=DIGEST,
        content_hash=found.content_hash,
        targets=(found.target,),
        noted=("its base was made by a bootstrap",),
        tags=(),
        digest=DIGEST,
    )


def writer(store: Store) -> Papers:
    chains = {CELL.id: (CELL,)}
    return partial(image_papers, chains=chains, locks={CELL.id: A_LOCK}, store=store)


def documents(folder: Path, **labels: str) -> dict[str, Artifact]:
    store, publication = Store(folder), published()
    store.save(CELL.id, "build", a_built_image(CELL, content_hash=publication.content_hash))
    return {one.name: one for one in writer(store)(publication, some_evidence(**labels))}


def test_statements_are_about_the_digest_and_say_what_labels_and_verifications_say(
    tmp_path: Path,
) -> None:
    made = documents(tmp_path)
    making = read_provenance_statement(made["provenance"].payload, digest=DIGEST)
    assert (making.cell_id, making.lock) == (CELL.id, A_LOCK.digest)
    digests = {digest for one in making.dependencies for digest in one.digest.values()}
    assert digests > {"ab" * 20, A_RESOLVED_BASE.identity[7:]}
    proof = read_proof(made["tested"].payload, digest=DIGEST)
    assert proof.noted == ("its base was made by a bootstrap",)
    assert [(one.outcome, one.at) for one in proof.targets] == [(Outcome.PASSED, CREATED)]
    assert {"cyclonedx", "spdx", "licences"} < set(made)


def test_documents_are_made_anew_and_left_in_no_file(tmp_path: Path) -> None:
    """A file of documents may have come with another job's artifact."""
    made = documents(tmp_path)
    assert {path.name for path in tmp_path.rglob("*.json")} == {"build.json"}
    papers = writer(Store(tmp_path))
    publication, evidence = published(), some_evidence()
    assert {one.name: one for one in papers(publication, evidence)} == made
    for others in (
        (dataclasses.replace(publication, digest="sha256:" + "34" * 32), evidence),
        (dataclasses.replace(publication, repository="ghcr.io/demo/other"), evidence),
        (publication, some_evidence(**{REVISION: "cd" * 20})),
    ):
        assert {one.name: one for one in papers(*others)} != made


def test_an_image_of_another_lock_has_no_documents(tmp_path: Path) -> None:
    with pytest.raises(NotPublishableError, match="another lock"):
        documents(tmp_path, **{LOCK: "00" * 32})
