"""What is told of a published image, and where what is attached to it contradicts its labels."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from bills import CREATED, a_making
from builders import a_check, a_verification

from warpfront.images.labels import CELL, CONTENT_HASH, LOCK, RELAXED
from warpfront.release.statements.predicates import Proof, on_target
from warpfront.release.why import Why, contradictions, why_text

CONTENT = "ef" * 32
MAKING = a_making(content_hash=CONTENT)
VERIFICATION = a_verification(a_check(), a_check(session="numerics"))
PROOF = Proof(
    cell_id=MAKING.cell_id,
    content_hash=CONTENT,
    targets=(on_target(dataclasses.replace(VERIFICATION, ended=CREATED)),),
    relaxed=("vllm",),
    noted=("its base was made by a bootstrap",),
)
LABELS = {
    CELL: MAKING.cell_id,
    CONTENT_HASH: CONTENT,
    LOCK: MAKING.lock,
    RELAXED: "vllm",
}


def a_why(**changes: Any) -> Why:
    facts: dict[str, Any] = {
        "reference": "registry.test/demo/torch:latest",
        "digest": f"sha256:{'0' * 64}",
        "labels": LABELS,
        "signature": "none",
        "making": MAKING,
        "proof": PROOF,
        "identities": frozenset({VERIFICATION.image_id}),
    }
    return Why(**facts | changes)


def test_what_was_asked_for_what_it_stands_on_and_what_was_proven_is_told() -> None:
    told = why_text(a_why()).splitlines()
    assert contradictions(a_why()) == ()
    (asked,) = (line for line in told if line.startswith("  asked for "))
    for words in ("vendor cpu", "python 3.11", "torch 2.13.0", "stack torch==2.13.0+cpu"):
        assert words in asked
    assert [line for line in told if line.startswith("  on pkg:oci/")]
    assert [line for line in told if "load passed, 1, numerics passed, 1" in line]
    assert "  let pass: its base was made by a bootstrap" in told


OF_ANOTHER = dataclasses.replace(PROOF, cell_id="another", content_hash="00" * 32, relaxed=())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"proof": OF_ANOTHER}, "the verification is of the cell another"),
        ({"proof": OF_ANOTHER}, f"the verification is of the content {'00' * 32}"),
        ({"proof": OF_ANOTHER}, "the verification relaxes nothing"),
        ({"labels": {**LABELS, RELAXED: ""}}, "the verification relaxes vllm"),
        ({"labels": {**LABELS, LOCK: "x"}}, f"the provenance is of the lock {MAKING.lock}"),
        ({"identities": frozenset({"sha256:1"})}, f"is of the image {VERIFICATION.image_id}"),
    ],
)
def test_what_is_attached_and_of_something_else_is_said(changes: dict[str, Any], said: str) -> None:
    why = a_why(**changes)
    assert [line for line in contradictions(why) if said in line]
    assert f"  but        {contradictions(why)[0]}" in why_text(why)
