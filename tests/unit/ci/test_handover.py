"""What one job hands to the next arrives as it was left, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from warpfront.ci import handover
from warpfront.ci.handover import MANIFEST, demand, handed_over, leave, merge
from warpfront.errors import HandoverError
from warpfront.system.foreign import remove_tree


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
    (cell / "verify-sm_90" / "results" / ".cache").mkdir(parents=True)
    (cell / "verify-sm_90" / "results" / ".cache" / "left").write_text("")
    (cell / "verify-sm_90" / "results" / "a\n\x1bb").write_text("")
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
    [
        "../x",
        "build/../../x",
        "/etc/passwd",
        "build/x",
        "other/cell/x.json",
        "build/c/../../../x",
        "build//etc/x",
        "build/c//x",
        "build/./c/x",
        "build/c/",
        "build",
        "build/.bake/bake.json",
        "build/c/.lock",
        "build/c/\0x",
        "build/c/\x1b[31m",
        "",
    ],
)
def test_a_place_outside_the_build_folder_is_refused(left: Path, tmp_path: Path, name: str) -> None:
    manifest = {"schema": 1, "files": {name: "0" * 64}}
    (left / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(HandoverError):
        merge([left], tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_a_path_that_is_written_twice_leads_nowhere(left: Path, tmp_path: Path) -> None:
    """`build/` and then a path from the root: named once as it lies there, once as it leads out."""
    away = tmp_path / "away" / "evil"
    here = left / "build" / away.relative_to("/")
    here.parent.mkdir(parents=True)
    here.write_text("evil")
    digest = hashlib.sha256(b"evil").hexdigest()
    manifest = json.loads((left / MANIFEST).read_text())
    manifest["files"] |= {f"build{away}": digest, f"build/{away}": digest}
    (left / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(HandoverError, match="is no place in a build folder"):
        merge([left], tmp_path / "there")
    assert not away.exists()


@pytest.mark.timeout(20)
def test_what_a_container_left_is_no_way_out(left: Path, tmp_path: Path) -> None:
    there, away = tmp_path / "there", tmp_path / "away"
    away.mkdir()
    (there / "cell").mkdir(parents=True)
    os.mkfifo(there / "cell" / "build.json")
    (there / "cell" / "build.log").symlink_to(away / "log")
    merge([left], there)
    assert (there / "cell" / "build.log").read_text() == "built\n"
    assert (there / "cell" / "build.json").read_text() == "{}"
    remove_tree(there / "cell")
    (there / "cell").symlink_to(away)
    with pytest.raises(HandoverError, match="is a link that leads out"):
        merge([left], there)
    assert list(away.iterdir()) == []


def test_a_link_to_a_folder_is_in_no_manifest(left: Path, tmp_path: Path) -> None:
    (left / "build" / "etc").symlink_to("/etc")
    with pytest.raises(HandoverError, match="etc is in no manifest"):
        merge([left], tmp_path / "there")


def test_what_fills_a_machine_is_no_hand_over(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "_TOGETHER_BYTES", 3)
    with pytest.raises(HandoverError, match="GiB of results"):
        merge([left], tmp_path / "there")


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"schema": 1, "files": {}}', '{"schema": 2, "files": []}']
)
def test_what_is_no_manifest_is_refused(left: Path, tmp_path: Path, text: str) -> None:
    (left / MANIFEST).write_text(text)
    with pytest.raises(HandoverError, match="no manifest of this version"):
        merge([left], tmp_path / "there")


@pytest.mark.parametrize("name", ["a:b", 'a"b', "a<b", "a|b", "a*b", "a?b"])
def test_a_file_that_upload_artifact_takes_by_no_name_is_not_handed_over(
    name: str, build: Path, tmp_path: Path
) -> None:
    """One such name would fail the whole upload (data/actions.toml, `names`)."""
    (build / "cell" / "verify-sm_90" / name).write_text("")
    assert not [one for one in leave(build, ["cell"], "verify", tmp_path / "a") if name in one]


def test_two_hand_overs_of_one_name_are_both_read(build: Path, tmp_path: Path) -> None:
    """Neither takes the other's place: what differs between them is refused."""
    leave(build, ["cell"], "build", tmp_path / "handover" / "build-cell")
    (build / "cell" / "build.json").write_text('{"edited": true}')
    leave(build, ["cell"], "build", tmp_path / "handover" / "again" / "build-cell")
    found = handed_over(tmp_path / "handover")
    assert list(found.values()) == ["build-cell", "build-cell"]
    with pytest.raises(HandoverError, match="have different files"):
        merge(found, tmp_path / "there")


def test_a_hand_over_that_is_missing_is_named() -> None:
    demand(["build-a"], ["build-a", "build-b"])
    with pytest.raises(HandoverError, match="no artifact build-c, build-d: the job"):
        demand(["build-a", "build-c", "build-d"], ["build-a"])
