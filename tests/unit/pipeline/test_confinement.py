"""What a project's files name is read inside the project only, wherever their links lead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from builders import make_project

from warpfront.pipeline.workspace import open_workspace
from warpfront.step_results import Failed, attempt
from warpfront.system.foreign import inside_root
from warpfront.wheels.lock.reading import read_locks
from warpfront.wheels.store.archives import archive_folder, unpack

SECRET = "s3cret-token"
FILE = "images/torch/requirements.txt"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project whose image has a requirements file, and a secret that lies outside of it."""
    make_project(tmp_path / "project")
    matrix = tmp_path / "project" / "matrix.yaml"
    text = matrix.read_text("utf-8")
    matrix.write_text(
        text.replace("template: torch\n", f"template: torch\n    requirements: {FILE}\n", 1),
        "utf-8",
    )
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "token").write_text(f"{SECRET}\n", "utf-8")
    (tmp_path / "secret" / "setup.py").write_text("from setuptools import setup\n", "utf-8")
    return tmp_path / "project"


def refused(root: Path) -> str:
    """Return why the cell of the image cannot be locked, after the image's line of matrix.yaml."""
    opened = open_workspace(root)
    states = read_locks(opened.matrix.cells, opened.folders)
    fault = states[opened.matrix.cells[0].id].fault
    assert isinstance(fault, Failed)
    assert SECRET not in fault.reason + fault.hint
    where, _, reason = fault.reason.partition(": ")
    assert where.startswith("matrix.yaml:")
    return reason


def link_file(root: Path) -> str:
    (root / "images/torch/more.txt").symlink_to(root.parent / "secret" / "token")
    return "-r more.txt"


def link_folder(root: Path) -> str:
    (root / "images/torch/more").symlink_to("../../../secret")
    return "-r more/token"


def link_of_a_link(root: Path) -> str:
    (root / "first").symlink_to(root.parent)
    (root / "images/torch/more").symlink_to("../../first/secret")
    return "-r more/token"


def link_to_itself(root: Path) -> str:
    (root / "images/torch/more.txt").symlink_to("more.txt")
    return "-r more.txt"


def absolute(root: Path) -> str:
    return f"-r {root.parent / 'secret' / 'token'}"


def upward(_root: Path) -> str:
    return "-r ../../../secret/token"


def source_link(root: Path) -> str:
    (root / "images/torch/lib").symlink_to("../../../secret")
    return "-e ./lib"


def source_upward(_root: Path) -> str:
    return "../../../secret"


@pytest.mark.parametrize(
    "write",
    [
        link_file,
        link_folder,
        link_of_a_link,
        link_to_itself,
        absolute,
        upward,
        source_link,
        source_upward,
    ],
)
def test_a_line_that_leads_out_of_the_project_is_refused_by_file_and_line(
    root: Path, write: Callable[[Path], str]
) -> None:
    (root / FILE).write_text(f"einops\n{write(root)}\n", "utf-8")
    message = refused(root)
    assert message.startswith(f"{FILE}:2: ")
    assert "outside the project" in message


def test_the_file_of_the_matrix_itself_stays_inside(root: Path) -> None:
    (root / FILE).symlink_to(root.parent / "secret" / "token")
    assert refused(root).startswith(f"{FILE}: the file is outside the project")


def test_a_link_within_the_project_is_followed(root: Path) -> None:
    (root / "common.txt").write_text("einops\n", "utf-8")
    (root / FILE).symlink_to("../../common.txt")
    assert open_workspace(root).matrix.cells[0].listed.requirements == ("einops",)


def test_a_lock_that_is_a_link_out_is_not_read(root: Path) -> None:
    (root / FILE).write_text("einops\n", "utf-8")
    workspace = open_workspace(root)
    cell = workspace.matrix.cells[0]
    path = workspace.folders.lock_path(cell.id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(root.parent / "secret" / "token")
    state = read_locks([cell], workspace.folders)[cell.id]
    assert state.lock is None
    assert "a link that leads out of the project" in state.reason


def test_a_link_out_inside_a_folder_of_sources_brings_nothing_into_its_archive(
    root: Path, tmp_path: Path
) -> None:
    lib = root / "lib"
    lib.mkdir()
    (lib / "data").symlink_to(root.parent / "secret" / "token")
    archive = archive_folder(lib, tmp_path / "lib.tar")
    assert SECRET.encode() not in archive.read_bytes()
    found = attempt("cell", "lock", unpack, archive, tmp_path / "unpacked")
    assert isinstance(found, Failed)
    assert SECRET not in found.reason


def test_a_path_is_judged_by_where_its_links_lead(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "up").symlink_to("..")
    (root / "round").symlink_to("up/root/a")
    assert inside_root(root, root)
    assert inside_root(root / "a" / "missing", root)
    assert inside_root(root / "round", root)
    assert not inside_root(root / "up", root)
    assert not inside_root(root / "up" / "rooted", root)
    assert not inside_root(root / "a\0b", root)
