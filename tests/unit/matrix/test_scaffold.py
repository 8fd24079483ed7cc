"""`warpfront init`: a project that plans, from nothing, and never over somebody's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpfront.errors import StoreError
from warpfront.matrix.scaffold import make_project
from warpfront.pipeline.workspace import open_workspace


def test_a_new_project_reads_and_has_a_cell_with_a_template(tmp_path: Path) -> None:
    make_project(tmp_path)
    workspace = open_workspace(tmp_path)
    assert [cell.vendor for cell in workspace.matrix.cells] == ["cpu"]
    assert (tmp_path / "images" / workspace.matrix.cells[0].template / "Dockerfile.j2").is_file()
    # Two projects on one machine do not fight over a name.
    reference = workspace.matrix.cells[0].local_reference
    assert reference == "localhost/my-images/torch:2.13.0-cpu-py3.11"
    assert (tmp_path / "tasks.py").exists()
    assert (tmp_path / "noxfile.py").exists()


def test_a_row_of_a_new_project_may_list_the_image_of_models(tmp_path: Path) -> None:
    make_project(tmp_path)
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("images: [torch]", "images: [torch, hf]"))
    cell = open_workspace(tmp_path).matrix.cells[1]
    assert [one.uses for one in cell.smoke] == ["transformers", "accelerate"]
    assert (tmp_path / str(cell.requirements_file)).is_file()
    assert (tmp_path / "images" / cell.template / "Dockerfile.j2").is_file()


def test_an_existing_file_is_kept_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "noxfile.py").write_text("mine")
    with pytest.raises(StoreError, match=r"noxfile\.py exists"):
        make_project(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["noxfile.py"]
    assert (tmp_path / "noxfile.py").read_text() == "mine"


def test_a_dry_run_says_what_it_would_write(tmp_path: Path) -> None:
    named = make_project(tmp_path, dry_run=True)
    assert tmp_path / "matrix.yaml" in named
    assert list(tmp_path.iterdir()) == []
