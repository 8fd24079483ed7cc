"""Why an image is as it is: what its labels say, what is attached, and where the two disagree."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from bills import CREATED, a_bill
from builders import a_cell, a_check, a_lock, a_verification

from warpfront.images.labels import CELL, CONTENT_HASH, LOCK
from warpfront.release.bill.cyclonedx import cyclonedx_text, read_asked
from warpfront.release.statements.provenance_statement import making_of
from warpfront.release.statements.statement import StatementError
from warpfront.release.statements.verification_statement import Proof, on_target
from warpfront.release.why import Why, asking_lines, contradictions, why_text

MAKING = making_of(
    a_cell(),
    a_lock(),
    a_bill(),
    builder="https://ci.example/1",
    content_hash="ef" * 32,
    revision="ab" * 20,
    uv="0.13.9",
)
PROOF = Proof(
    cell_id=a_cell().id,
    content_hash="ef" * 32,
    targets=(on_target(a_verification(a_check()), at=CREATED),),
    noted=("its base was made by a bootstrap",),
)
LABELS = {CELL: a_cell().id, CONTENT_HASH: "ef" * 32, LOCK: a_lock().digest}


def a_why(**changes: Any) -> Why:
    facts: dict[str, Any] = {
        "reference": "ghcr.io/demo/torch:1",
        "digest": "sha256:" + "12" * 32,
        "labels": LABELS,
        "signature": "signed by cosign.pub",
        "making": MAKING,
        "proof": PROOF,
        "asked": read_asked(cyclonedx_text(a_bill()).encode()),
    }
    return Why(**facts | changes)


def test_a_bill_gives_back_who_asked_for_whom() -> None:
    asked = read_asked(cyclonedx_text(a_bill()).encode())
    assert asked == (
        ("", "torch", "2.13.0+cpu"),
        ("", "uv", "0.13.9"),
        ("torch", "numpy", "2.4.6"),
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda one: one.update(bomFormat="SPDX"),
        lambda one: one.update(components={}),
        lambda one: one["components"][-1].update({"bom-ref": 1}),
        lambda one: one["dependencies"].append("torch"),
        lambda one: one["dependencies"][0].update(dependsOn=[1]),
        lambda one: one["metadata"].pop("component"),
    ],
)
def test_a_bill_of_another_shape_is_refused(damage: Any) -> None:
    document = json.loads(cyclonedx_text(a_bill()))
    damage(document)
    with pytest.raises(StatementError):
        read_asked(json.dumps(document).encode())


def test_a_dependency_of_nothing_listed_asks_for_nothing() -> None:
    document = json.loads(cyclonedx_text(a_bill()))
    document["dependencies"] = [{"ref": "nobody", "dependsOn": ["nothing"]}]
    assert read_asked(json.dumps(document).encode()) == ()


def test_the_text_says_cell_lock_signature_targets_and_who_asked() -> None:
    text = why_text(a_why())
    for said in (
        f"cell       {a_cell().id}",
        f"lock       {a_lock().digest}",
        "signature  signed by cosign.pub",
        f"from git+https://example.test/demo {'ab' * 20}",
        "with 3 wheels by sha256",
        f"x86-64: passed, {CREATED} (load passed)",
        "let pass: its base was made by a bootstrap",
        "numpy: asked for by torch (2.4.6)",
        "uv: asked for by the image itself (0.13.9)",
    ):
        assert said in text
    assert "but " not in text


def test_what_is_not_attached_is_said_to_be_missing() -> None:
    text = why_text(a_why(making=None, proof=None, asked=(), unread=("a file is no JSON",)))
    assert "provenance: none is attached" in text
    assert "verification: none is attached" in text
    assert "but        a file is no JSON" in text


def test_a_label_is_text_and_moves_no_cursor() -> None:
    text = why_text(a_why(labels={CELL: "a\x1b[2J\n  signature  good\u202e"}))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "  signature  good" not in text.splitlines()


def test_documents_of_another_image_are_said_to_be() -> None:
    other = dataclasses.replace(MAKING, lock="0" * 64, cell_id="other")
    stale = dataclasses.replace(PROOF, content_hash="0" * 64)
    assert contradictions(a_why(making=other, proof=stale)) == (
        "the provenance is of the cell other",
        f"the verification is of the content {'0' * 64}",
        f"the provenance is of the lock {'0' * 64}",
    )
    assert contradictions(a_why()) == ()


def test_one_package_is_explained_by_its_chains() -> None:
    asked = (("", "a", "a"), ("a", "b", "b>=1"), ("b", "c", "c"), ("", "c", "c<2"))
    assert asking_lines(asked, "c") == [
        "c: asked for by a -> b; asked for by the image itself (c<2)"
    ]
    assert asking_lines(asked, "d") == ["d: nobody asked for it"]
