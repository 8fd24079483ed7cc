"""The Dockerfile of every cell of our own matrix: reviewed as a golden, passed by hadolint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from builders import a_lock, a_wheel
from conftest import Golden

from warpfront.images.protection import guard_files, guard_policy
from warpfront.images.render import render
from warpfront.inside.guard.policy import Policy
from warpfront.model import Cell, WheelLock
from warpfront.pipeline.workspace import open_workspace

WORKSPACE = open_workspace(Path(__file__).parents[3])
BY_ID = {cell.id: cell for cell in WORKSPACE.matrix.cells}


def lock_for(cell: Cell) -> WheelLock:
    """Wheels that make the template take every turn a real lock would."""
    wheels = [a_wheel(pin.name, pin.version) for pin in cell.stack]
    if cell.parent:
        return a_lock(
            cell, *lock_for(BY_ID[cell.parent]).wheels, a_wheel(f"{cell.image}-only", "1")
        )
    return a_lock(cell, *wheels, a_wheel("pip", "26.2.1"))


def policy_of(cell: Cell) -> Policy:
    return guard_policy(cell, lock_for(cell), WORKSPACE.material.compat)


def dockerfile(cell: Cell) -> str:
    parent = BY_ID[cell.parent] if cell.parent else None
    rendered = render(
        cell,
        lock_for(cell),
        WORKSPACE.material.templates,
        parent=parent,
        parent_lock=lock_for(parent) if parent else None,
        guard={} if parent else guard_files(policy_of(cell), WORKSPACE.material.guard),
    )
    return rendered.files["Dockerfile"]


@pytest.mark.parametrize("cell_id", BY_ID)
def test_a_cells_dockerfile_is_the_reviewed_one(cell_id: str, golden: Golden) -> None:
    golden(f"dockerfiles/{cell_id}.Dockerfile", dockerfile(BY_ID[cell_id]))


def test_no_golden_outlives_its_cell() -> None:
    folder = Path(__file__).parents[2] / "golden" / "dockerfiles"
    assert {path.stem for path in folder.iterdir()} == set(BY_ID)


def hadolint(text: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "hadolint"
    return subprocess.run(
        (program, "--no-color", "-"), input=text, capture_output=True, text=True, check=False
    )


PINNED = [cell_id for cell_id, cell in BY_ID.items() if not cell.base.unpinned]


@pytest.mark.process
@pytest.mark.parametrize("cell_id", PINNED)
def test_hadolint_passes_a_cells_dockerfile(cell_id: str) -> None:
    done = hadolint(dockerfile(BY_ID[cell_id]))
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.process
@pytest.mark.parametrize("cell_id", sorted(set(BY_ID) - set(PINNED)))
def test_hadolint_complains_of_a_base_without_a_digest_and_of_nothing_else(cell_id: str) -> None:
    lines = hadolint(dockerfile(BY_ID[cell_id])).stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["DL3007"]


@pytest.mark.process
def test_hadolint_refuses_a_secret_in_a_dockerfile() -> None:
    done = hadolint("FROM docker.io/library/debian:12@sha256:" + "0" * 64 + "\nENV API_TOKEN=x\n")
    assert done.returncode != 0
    assert "DL3064" in done.stdout
