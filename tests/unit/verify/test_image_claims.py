"""The claims of an image: what the matrix and the lock say, in the one document that is read."""

from __future__ import annotations

import dataclasses
import json

import pytest
from builders import a_cell, a_lock, a_wheel

from warpfront.matrix.cell import Recipe, Toolkit
from warpfront.matrix.language import Smoke
from warpfront.verify.image_claims import image_claims
from warpfront_checks.claims import Claims, claims_from
from warpfront_checks.guard.policy import Policy

POLICY = Policy(cell="cell", title="A cell", protected={"torch": "2.14.1"})


def claimed(**changes: object) -> Claims:
    cell = a_cell(
        vendor="nvidia", toolkit=Toolkit(name="cuda", version="13.0"), targets=("sm_90",), **changes
    )
    lock = a_lock(cell, a_wheel("torch", "2.14.1"), a_wheel("numpy", "2.4.6"))
    return image_claims(cell, lock, POLICY, target="sm_90")


def test_every_field_of_the_document_is_claimed_of_an_image() -> None:
    """A field with its default is one that nobody checks."""
    cell, build = a_cell(), Recipe(package="a", tools=(), extensions=("a.b", "a._c"))
    lock = dataclasses.replace(a_lock(cell), builds=(build,))
    made = image_claims(cell, lock, POLICY, target="x86_64")
    assert made.extensions == ("a._c", "a.b")
    document = claimed().document()
    empty = Claims(cell="", target="", vendor="", device="", image=False).document()
    same = {name for name, value in document.items() if value == empty[name]}
    assert same == {"schema", "extensions", "policies", "smoke"}
    tried = image_claims(
        a_cell(smoke=(Smoke(name="a", imports=("b",)),)), lock, POLICY, target="x86_64"
    )
    assert [one["imports"] for one in tried.smoke] == [["b"]]


def test_the_document_is_read_back_as_it_was_claimed() -> None:
    assert claims_from(json.loads(json.dumps(claimed().document()))) == claimed()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_machine_is_the_cell_s_and_not_that_of_this_computer(machine: str) -> None:
    assert claimed(machine=machine).document()["machine"] == machine
