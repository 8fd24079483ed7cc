"""What changed since a commit, told by that commit's own program."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from builders import make_project
from projects import project_on_torch

from warpfront.ci.schedule import SCOPES
from warpfront.commands.ci_runs import dispatch
from warpfront.errors import MatrixError
from warpfront.matrix.cell import Selection
from warpfront.pipeline.workspace import open_workspace


class Heard:
    """A watch that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None: ...


def git(root: Path, *words: str) -> str:
    who = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.test")
    ran = subprocess.run(
        ["git", *who, *words], cwd=root, check=True, capture_output=True, text=True
    )
    return ran.stdout.strip()


@pytest.mark.process
def test_a_run_is_what_changed_since_a_commit(tmp_path: Path) -> None:
    """The earlier commit is asked by its own program, in a tree that is gone afterwards."""
    make_project(tmp_path)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "-m", "x")
    head, watch, scope = git(tmp_path, "rev-parse", "HEAD"), Heard(), SCOPES["pull_request"]
    cell = open_workspace(tmp_path).matrix.cells[0].id
    same = dispatch(open_workspace(tmp_path), Selection(), watch, scope=scope, since=head)
    assert (same.unchanged, same.unavailable, same.notes) == ((cell,), (), ())
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace('"2.13.0"', '"2.12.1"'))
    workspace = open_workspace(tmp_path)
    changed = dispatch(workspace, Selection(), watch, scope=scope, since=head)
    assert changed.unchanged == ()
    assert [note.partition(":")[0] for note in changed.notes] == ["new", "gone"]
    assert git(tmp_path, "worktree", "list").count("\n") == 0
    assert watch.said == []
    lost = dispatch(workspace, Selection(), watch, scope=scope, since="0" * 40)
    assert lost.unchanged == ()
    assert "nothing to compare with" in watch.said[0]


@pytest.mark.process
@pytest.mark.parametrize(
    ("image", "source"),
    [
        ({"smoke": [{"name": "x", "run": ["python3", "-c", "1 / 0"]}]}, ""),
        ({"project": {"path": "kernels"}}, ""),
        ({}, "__global__ void add() { int warp = 32; }"),
    ],
)
def test_what_verify_does_with_an_image_is_part_of_its_cell(
    tmp_path: Path, image: dict[str, object], source: str
) -> None:
    """Its bytes stay the same, and no earlier run has tried this."""
    project_on_torch(tmp_path, {})
    kernel, matrix = tmp_path / "kernels" / "add.cu", tmp_path / "matrix.yaml"
    kernel.parent.mkdir()
    kernel.write_text("__global__ void add() {}")
    document = yaml.safe_load(matrix.read_text())
    if source:
        document["images"]["torch"]["project"] = {"path": "kernels"}
    matrix.write_text(yaml.safe_dump(document))
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "-m", "x")
    head, watch, scope = git(tmp_path, "rev-parse", "HEAD"), Heard(), SCOPES["pull_request"]
    same = dispatch(open_workspace(tmp_path), Selection(), watch, scope=scope, since=head)
    assert len(same.unchanged) == 1
    document["images"]["torch"] |= image
    matrix.write_text(yaml.safe_dump(document))
    kernel.write_text(source or kernel.read_text())
    git(tmp_path, "commit", "--quiet", "--all", "-m", "y")
    changed = dispatch(open_workspace(tmp_path), Selection(), watch, scope=scope, since=head)
    assert (changed.unchanged, watch.said) == ((), [])


def test_a_night_without_a_channel_publishes_nothing_and_a_release_is_refused(
    tmp_path: Path,
) -> None:
    """As a new project's, which has no `release:`."""
    make_project(tmp_path)
    matrix = tmp_path / "matrix.yaml"
    runner = "{labels: x, trust: hosted, builds: true, vendor: cpu, targets: x86_64}"
    matrix.write_text(f"{matrix.read_text()}\nrunners:\n  x: {runner}\n")
    workspace = open_workspace(tmp_path)
    night = dispatch(workspace, Selection(), Heard(), scope=SCOPES["nightly"], since="")
    assert (night.channel, night.publish) == ("", ())
    assert night.notes == (
        "nothing is published: matrix.yaml has no channel `nightly` (docs/release.md)",
    )
    with pytest.raises(MatrixError, match="there is no channel `release`"):
        dispatch(workspace, Selection(), Heard(), scope=SCOPES["release"], since="")
    channel = "{tags: ['{torch}-{date}']}"
    matrix.write_text(f"{matrix.read_text()}\nrelease:\n  nightly: {channel}\n")
    named = dispatch(
        open_workspace(tmp_path), Selection(), Heard(), scope=SCOPES["nightly"], since=""
    )
    assert (named.channel, named.notes) == ("nightly", ())
