"""The papers of an image, from what build and verify left; and who asked for a wheel of a lock."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from bills import A_CONTENTS, CREATED
from builders import a_built_image, a_check, a_lock, a_verification, a_wheel

from warpfront.errors import BlockedError
from warpfront.images.labels import CELL
from warpfront.images.labels import CREATED as CREATED_LABEL
from warpfront.matrix.scaffold import make_project
from warpfront.model import Blocked, Cell, Selection, Verification, WheelLock
from warpfront.pipeline import Workspace, open_workspace
from warpfront.pipeline.beside.billing import Billed, bills
from warpfront.pipeline.beside.who_asked import who_asked
from warpfront.pipeline.within.documents import Known, bill_for, statement_papers
from warpfront.release.statements.provenance_statement import read_provenance_statement
from warpfront.release.statements.verification_statement import read_proof
from warpfront.wheels.lock import dump_lock, lock_inputs

LABELS = {CREATED_LABEL: CREATED, CELL: "a"}
DIGEST = "sha256:" + "12" * 32


def a_verified(**changes: Any) -> Verification:
    check = a_check(name="labels and tag", details={"labels": LABELS})
    contents = json.loads(json.dumps(A_CONTENTS.document()))
    return a_verification(check, **{"environment": {"contents": contents}, **changes})


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A project whose one cell has a fresh lock."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_project(tmp_path)
    workspace = open_workspace(tmp_path)
    (cell,) = workspace.matrix.cells
    path = workspace.folders.lock_path(cell.id)
    path.parent.mkdir(parents=True)
    path.write_text(dump_lock(the_lock(cell)))
    return workspace


def the_lock(cell: Cell) -> WheelLock:
    assert cell.index is not None
    torch = a_wheel(index=cell.index.url, sha256="ab" * 32)
    lock = a_lock(cell, torch, a_wheel("numpy", "2.4.6"), a_wheel("uv", "0.13.9"))
    return dataclasses.replace(lock, inputs_digest=lock_inputs(cell, None, None).digest)


def leave(workspace: Workspace, *verifications: Verification) -> Cell:
    """What the steps leave of a cell that was built and verified."""
    (cell,) = workspace.matrix.cells
    store = workspace.folders.store
    store.save(cell.id, "build", a_built_image(cell))
    for one in verifications:
        found = dataclasses.replace(one, cell_id=cell.id, target=cell.targets[0])
        store.save(cell.id, f"verify-{cell.targets[0]}", found)
    return cell


def test_papers_are_written_beside_what_they_are_about(workspace: Workspace) -> None:
    cell = leave(workspace, a_verified())
    found = bills(workspace, Selection())[cell.id]
    assert isinstance(found, Billed)
    assert [Path(name).name for name in found.files] == [
        "sbom.cdx.json",
        "sbom.spdx.json",
        "licences.json",
        "licences.md",
    ]
    listed = json.loads(Path(found.files[0]).read_text())["components"]
    assert {"torch", "numpy", "uv", "bash"} < {one["name"] for one in listed}
    assert (found.packages, found.decisions) == (4, 2)


@pytest.mark.parametrize(
    ("verifications", "said"),
    [
        ((), "labels"),
        ((a_verified(environment={}),), "nobody says what lies in its image; on x86"),
        ((a_verified(environment={"contents": {"schema": 1}}),), "not a list"),
        ((a_verified(content_hash="00" * 32),), "another content was verified"),
    ],
)
def test_what_nobody_looked_at_has_no_papers_and_says_what_to_do(
    workspace: Workspace, verifications: tuple[Verification, ...], said: str
) -> None:
    cell = leave(workspace, *verifications)
    found = bills(workspace, Selection())[cell.id]
    assert isinstance(found, Blocked)
    assert said in found.reason
    assert "invoke verify" in found.hint


def test_a_cell_that_was_not_built_has_no_papers(workspace: Workspace) -> None:
    (found,) = bills(workspace, Selection()).values()
    assert isinstance(found, Blocked)
    assert "invoke build" in found.hint


def test_statements_are_about_the_digest_and_by_what_the_steps_left(workspace: Workspace) -> None:
    (cell,) = workspace.matrix.cells
    verification = a_verified(target=cell.targets[0], cell_id=cell.id)
    known = Known(
        cell=cell,
        chain=(cell,),
        requirements={},
        lock=the_lock(cell),
        built=a_built_image(cell),
        labels=LABELS,
        verifications=(verification,),
    )
    papers = statement_papers(
        known,
        bill_for(known),
        name="ghcr.io/demo/torch",
        digest=DIGEST,
        builder="https://ci.example/1",
        ended={cell.targets[0]: CREATED},
        noted=("its base was made by a bootstrap",),
    )
    made, proven = (paper.text.encode() for paper in papers)
    assert read_provenance_statement(made, digest=DIGEST).lock == the_lock(cell).digest
    proof = read_proof(proven, digest=DIGEST)
    assert (proof.cell_id, proof.targets[0].at) == (cell.id, CREATED)
    assert proof.noted == ("its base was made by a bootstrap",)
    with pytest.raises(BlockedError, match="nobody says"):
        bill_for(dataclasses.replace(known, verifications=()))


def test_who_asked_is_read_from_the_wheels_that_are_here(workspace: Workspace) -> None:
    (cell,) = workspace.matrix.cells
    wheel = next(one for one in the_lock(cell).wheels if one.name == "torch")
    path = workspace.folders.wheelhouse.path(wheel)
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        text = "Name: torch\nVersion: 2.13.0\nRequires-Dist: numpy>=1\nRequires-Dist: nobody\n"
        archive.writestr("torch-2.13.0.dist-info/METADATA", text)
    asked = who_asked(workspace, Selection())[cell.id]
    assert ("torch", "numpy", "numpy>=1") in asked
    assert "nobody" not in {wanted for _, wanted, _ in asked}
