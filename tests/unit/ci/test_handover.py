"""What one job hands to the next arrives as it was left, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warpfront.ci.handover import MANIFEST, leave, merge
from warpfront.errors import HandoverError


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A build folder with what two steps left of one cell."""
    cell = tmp_path / "build" / "cell"
    (cell / "context").mkdir(parents=True)
    (cell / "context" / "Dockerfile").write_text("FROM x")
    (cell / "build.json").write_text("{}")
    (cell / "build.log").write_text("built\n")
    (cell / "verify-sm_90").mkdir()
    (cell / "verify-sm_90" / "junit.xml").write_text("<x/>")
    (cell / "verify-sm_90" / ".lock").write_text("7")
    (cell / "verify-sm_90.json").write_text("{}")
    return tmp_path / "build"


@pytest.fixture
def left(build: Path, tmp_path: Path) -> Path:
    leave(build, ["cell"], "build", tmp_path / "handover" / "build-cell")
    return tmp_path / "handover" / "build-cell"


def test_a_step_leaves_its_own_files_and_no_others(build: Path, tmp_path: Path) -> None:
    assert leave(build, ["cell"], "build", tmp_path / "a") == (
        "build/cell/build.json",
        "build/cell/build.log",
    )
    assert leave(build, ["cell"], "verify-sm_90", tmp_path / "b") == (
        "build/cell/verify-sm_90/junit.xml",
        "build/cell/verify-sm_90.json",
    )


def test_a_job_that_came_to_nothing_leaves_an_empty_manifest(tmp_path: Path) -> None:
    assert leave(tmp_path / "build", ["cell"], "build", tmp_path / "a") == ()
    assert merge([tmp_path / "a"], tmp_path / "there") == ()


def test_machines_merge_into_one_folder(build: Path, left: Path, tmp_path: Path) -> None:
    leave(build, ["cell"], "verify-sm_90", tmp_path / "b")
    names = merge([left, tmp_path / "b", left], tmp_path / "there")
    assert names == (
        "cell/build.json",
        "cell/build.log",
        "cell/verify-sm_90.json",
        "cell/verify-sm_90/junit.xml",
    )
    for name in names:
        assert (tmp_path / "there" / name).read_bytes() == (build / name).read_bytes()


def test_two_that_differ_are_refused_and_nothing_is_written(
    build: Path, left: Path, tmp_path: Path
) -> None:
    (build / "cell" / "build.json").write_text('{"another": "run"}')
    leave(build, ["cell"], "build", tmp_path / "other")
    with pytest.raises(HandoverError, match="different files cell"):
        merge([left, tmp_path / "other"], tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_a_changed_file_is_refused(left: Path, tmp_path: Path) -> None:
    (left / "build/cell/build.json").write_text('{"passed": true}')
    with pytest.raises(HandoverError, match="its sha256 is another"):
        merge([left], tmp_path / "there")


def test_a_file_that_no_manifest_names_is_refused(left: Path, tmp_path: Path) -> None:
    (left / "build/cell/verify-sm_90.json").write_text("{}")
    with pytest.raises(HandoverError, match=r"verify-sm_90.json is in no manifest"):
        merge([left], tmp_path / "there")


def test_a_link_is_no_file(left: Path, tmp_path: Path) -> None:
    name = left / "build/cell/build.json"
    name.unlink()
    name.symlink_to("/etc/passwd")
    with pytest.raises(Exception, match="a link"):
        merge([left], tmp_path / "there")


@pytest.mark.parametrize(
    "name",
    ["../x", "build/../../x", "/etc/passwd", "build/x", "other/cell/x.json", "build/c/../../../x"],
)
def test_a_place_outside_the_build_folder_is_refused(left: Path, tmp_path: Path, name: str) -> None:
    manifest = {"schema": 1, "files": {name: "0" * 64}}
    (left / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(HandoverError):
        merge([left], tmp_path / "there")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"schema": 2, "files": {}}', '{"schema": 1, "files": []}']
)
def test_what_is_no_manifest_is_refused(left: Path, tmp_path: Path, text: str) -> None:
    (left / MANIFEST).write_text(text)
    with pytest.raises(HandoverError, match="no manifest of this version"):
        merge([left], tmp_path / "there")
