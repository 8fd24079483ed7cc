"""The papers of an image, from what build and verify left; and who asked for a wheel of a lock."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from bills import A_CONTENTS, CREATED
from builders import a_built_image, a_check, a_lock, a_verification, a_wheel, make_project
from invoke.exceptions import Exit
from standins import stand_in_wheel

from warpfront.cli.tasks import namespace
from warpfront.commands.bills import Billed, bills, who_asked
from warpfront.errors import BlockedError, InputError
from warpfront.images.built import CREATED as CREATED_LABEL
from warpfront.images.labels import CELL, LOCK
from warpfront.matrix.cell import Cell, Selection
from warpfront.pipeline import Workspace, open_workspace
from warpfront.release.admission import Evidence
from warpfront.release.ledger import Publication
from warpfront.release.papers import bill_for, statement_papers
from warpfront.release.statements.predicates import read_proof, read_provenance_statement
from warpfront.step_results import Blocked
from warpfront.verify.results import Verification
from warpfront.wheels.lock.pylock import dump_lock, lock_inputs
from warpfront.wheels.lock.values import WheelLock

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


def test_an_image_of_another_lock_has_no_papers(workspace: Workspace) -> None:
    check = a_check(name="labels and tag", details={"labels": {**LABELS, LOCK: "00" * 32}})
    cell = leave(workspace, a_verified(checks=(check,)))
    found = bills(workspace, Selection())[cell.id]
    assert isinstance(found, Blocked)
    assert "of its lock" in found.reason


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
    assert "warpfront verify" in found.hint


def test_a_cell_that_was_not_built_has_no_papers(workspace: Workspace) -> None:
    (found,) = bills(workspace, Selection()).values()
    assert isinstance(found, Blocked)
    assert "warpfront build" in found.hint


def test_statements_are_about_the_digest_and_by_what_the_steps_left(workspace: Workspace) -> None:
    (cell,) = workspace.matrix.cells
    verification = a_verified(target=cell.targets[0], cell_id=cell.id, ended=CREATED)
    lock, built = the_lock(cell), a_built_image(cell)
    evidence = Evidence(
        cell=cell,
        labels=LABELS,
        identities=frozenset({DIGEST}),
        verifications={verification.target: verification},
    )
    publication = Publication(
        cell_id=cell.id,
        channel="nightly",
        run="r",
        repository="ghcr.io/demo/torch",
        image_id=DIGEST,
        content_hash=built.content_hash,
        targets=cell.targets,
        noted=("its base was made by a bootstrap",),
        tags=(),
        digest=DIGEST,
    )
    bill = bill_for((cell,), lock, built, LABELS, [verification])
    papers = statement_papers(bill, lock, built, evidence, publication)
    made, proven = (paper.payload for paper in papers)
    assert read_provenance_statement(made, digest=DIGEST).lock == the_lock(cell).digest
    proof = read_proof(proven, digest=DIGEST)
    assert (proof.cell_id, proof.targets[0].at) == (cell.id, CREATED)
    assert proof.noted == ("its base was made by a bootstrap",)
    with pytest.raises(BlockedError, match="nobody says"):
        bill_for((cell,), lock, built, LABELS, ())


def in_wheelhouse(workspace: Workspace, *names: str) -> None:
    """Wheels of the lock as far as their metadata."""
    (cell,) = workspace.matrix.cells
    for wheel in (one for one in the_lock(cell).wheels if one.name in names):
        path = workspace.folders.wheelhouse.path(wheel)
        path.parent.mkdir(parents=True)
        requires = ["numpy>=1", "x"]
        made = stand_in_wheel(path.parent, wheel.name, wheel.version, requires=requires)
        made.rename(path)


def test_who_asked_is_read_from_the_wheels(workspace: Workspace) -> None:
    in_wheelhouse(workspace, "torch", "numpy", "uv")
    (asked,) = who_asked(workspace, Selection()).values()
    assert isinstance(asked, tuple)
    assert ("torch", "numpy", "numpy>=1") in asked
    assert "x" not in {wanted for _, wanted, _ in asked}


def test_nobody_asked_is_never_said_where_a_wheel_is_not_here(workspace: Workspace) -> None:
    in_wheelhouse(workspace, "torch", "uv")
    (asked,) = who_asked(workspace, Selection()).values()
    assert isinstance(asked, Blocked)
    assert "numpy not here" in asked.reason


def test_the_task_says_who_asked_or_what_is_still_to_be_done(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_wheelhouse(workspace, "torch", "numpy", "uv")
    (cell,) = workspace.matrix.cells
    monkeypatch.chdir(workspace.folders.root)
    bill = namespace.tasks["sbom"].body
    bill(None, who="numpy")
    said = "asked for by torch (numpy>=1)"
    assert said in capsys.readouterr().out
    with pytest.raises(Exit) as unknown:
        bill(None, who="no-such-wheel")
    assert unknown.value.code == InputError.exit_code
    assert f"{cell.id}: no-such-wheel: not in this lock" in capsys.readouterr().out
    bill(None, who="NumPy", json=True)
    assert said in json.loads(capsys.readouterr().out)[cell.id]
    with pytest.raises(Exit) as ended:
        bill(None)
    assert "there is no image" in capsys.readouterr().out + str(ended.value.message)
