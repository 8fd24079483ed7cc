"""Locks as a plan and a build see them: fresh, stale, or not to be read."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from builders import a_lock, a_wheel, make_project

from warpfront import pipeline
from warpfront.commands.project_edits import add_image
from warpfront.errors import LockError
from warpfront.matrix.cell import Selection
from warpfront.matrix.reading import read_matrix
from warpfront.pipeline import open_workspace
from warpfront.step_results import Failed
from warpfront.wheels.lock import reading as states
from warpfront.wheels.lock.pylock import dump_lock, lock_inputs
from warpfront.wheels.lock.values import NEVER_BUILT

TEXT = dump_lock(a_lock(None, a_wheel("numpy", "2.4.6")))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"",
        b"[",
        b"a = " + b"9" * 5000,
        b"a = " + b"[" * 5000,
        b"a.b.c = " + b"{a=" * 2000,
        TEXT.encode()[:-200],
        None,
    ],
    ids=["no text", "empty", "no TOML", "digits", "deep", "deep tables", "cut short", "a FIFO"],
)
def test_a_lock_that_nobody_can_read_blocks_its_own_cell_alone(
    tmp_path: Path, content: bytes | None
) -> None:
    make_project(tmp_path)
    workspace = open_workspace(tmp_path)
    (cell,) = workspace.matrix.cells
    after = dataclasses.replace(cell, id="next")
    path = workspace.folders.lock_path(cell.id)
    path.parent.mkdir(parents=True)
    if content is None:
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    found = states.read_locks([cell, after], workspace.folders)
    assert found[cell.id].lock is None
    assert found[cell.id].reason.startswith("unreadable: ")
    assert found[after.id].reason == NEVER_BUILT


def test_a_lock_edited_by_one_byte_is_seen_by_the_plan_and_by_the_build(
    tmp_path: Path,
) -> None:
    make_project(tmp_path)
    workspace = open_workspace(tmp_path)
    (cell,) = workspace.matrix.cells
    assert cell.index
    inputs = lock_inputs(cell, None, None)
    wheels = (
        *(a_wheel(pin.name, pin.version, index=cell.index.url) for pin in cell.stack),
        a_wheel("numpy"),
        a_wheel("pip"),
    )
    lock = dataclasses.replace(a_lock(cell, *wheels), inputs_digest=inputs.digest)
    path = workspace.folders.lock_path(cell.id)
    path.parent.mkdir(parents=True)
    path.write_text(dump_lock(lock))
    assert states.read_locks([cell], workspace.folders)[cell.id].reason == ""
    wrong = ("0" if inputs.digest[0] != "0" else "1") + inputs.digest[1:]
    path.write_text(dump_lock(lock).replace(inputs.digest, wrong))
    assert "its inputs changed" in states.read_locks([cell], workspace.folders)[cell.id].reason
    path.write_text(dump_lock(lock).replace(a_wheel("pip").sha256, "g" * 64))
    state = states.read_locks([cell], workspace.folders)[cell.id]
    assert (state.lock, state.reason.startswith("unreadable: ")) == (None, True)
    (found,) = pipeline.lock(workspace, Selection(), None).values()  # type: ignore[arg-type]
    assert isinstance(found, Failed)
    assert found.exit_code == LockError.exit_code


def test_a_requirements_file_that_nobody_has_read_is_no_empty_one(tmp_path: Path) -> None:
    make_project(tmp_path)
    list(add_image(tmp_path, "app", parent="torch", requirements="").write(tmp_path, dry_run=False))
    workspace = open_workspace(tmp_path)
    text = (tmp_path / "matrix.yaml").read_text("utf-8")
    unread = read_matrix(text, path="matrix.yaml", compat=workspace.material.compat)
    _, app = states.read_locks(unread.cells, workspace.folders).values()
    assert app.reason == "images/app/requirements.txt: nobody has read it"
    assert [cell.listed.problem for cell in workspace.matrix.cells] == ["", ""]
