"""The Dockerfile of every cell of our own matrix: reviewed as a golden, passed by hadolint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from builders import a_lock, a_wheel
from conftest import Golden
from rendering import render

from warpfront.images.render import guard_files, guard_policy
from warpfront.matrix.cell import Cell
from warpfront.pipeline.workspace import open_workspace
from warpfront.wheels.lock.values import WheelLock
from warpfront_checks.guard.policy import Policy

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


def hadolint(*files: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "hadolint"
    return subprocess.run(
        (program, "--no-color", *files), capture_output=True, text=True, check=False
    )


ONE_OF_EACH = tuple({(cell.vendor, cell.image): cell for cell in BY_ID.values()}.values())


@pytest.mark.process
@pytest.mark.parametrize(
    "cells",
    [
        pytest.param(ONE_OF_EACH, id="one of each vendor and image"),
        pytest.param(tuple(BY_ID.values()), id="every cell", marks=pytest.mark.exhaustive),
    ],
)
def test_hadolint_complains_of_bases_without_a_digest_and_of_nothing_else(
    cells: tuple[Cell, ...], tmp_path: Path
) -> None:
    for cell in cells:
        (tmp_path / cell.id).write_text(dockerfile(cell))
    unpinned = {cell.id: ["DL3007"] for cell in cells if cell.base.unpinned}
    assert 0 < len(unpinned) < len(cells)
    said: dict[str, list[str]] = {}
    for line in hadolint(*sorted(tmp_path.iterdir())).stdout.splitlines():
        place, rule, *_ = line.split()
        said.setdefault(Path(place.partition(":")[0]).name, []).append(rule)
    assert said == unpinned


@pytest.mark.process
def test_hadolint_refuses_a_secret_in_a_dockerfile(tmp_path: Path) -> None:
    (file := tmp_path / "Dockerfile").write_text(
        "FROM docker.io/library/debian:12@sha256:" + "0" * 64 + "\nENV API_TOKEN=x\n"
    )
    done = hadolint(file)
    assert done.returncode != 0
    assert "DL3064" in done.stdout
