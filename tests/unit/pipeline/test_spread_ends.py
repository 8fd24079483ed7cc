"""What is made of a child's end: who is gone gives back what it had, whatever the child said."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from projects import small_project
from releases import Quiet

from warpfront.ci.pool import Load, Pool, make_pool
from warpfront.commands import spreading
from warpfront.matrix.cell import Selection
from warpfront.matrix.runners import BuildNode
from warpfront.pipeline.workspace import open_workspace
from warpfront.step_results import Failed
from warpfront.system.foreign import inside_root
from warpfront.system.process import Command, Completed
from warpfront.system.store import Store
from warpfront.wheels.project_folders import Folders

NODES = tuple(BuildNode(name=name) for name in ("one", "two"))
LOAD = Load(name="cell", machine="x86_64", fingerprint="f", size_bytes=1, cells=("cell",))


@pytest.mark.parametrize("code", [7, 10, 1])
@pytest.mark.parametrize("there", [True, False], ids=["still there", "gone"])
def test_a_failure_is_the_loads_own_only_where_its_engine_still_answers(
    tmp_path: Path, code: int, *, there: bool
) -> None:
    begun: list[Path] = []
    lock = Path("images", "locks", "pylock.cell.toml")
    (tmp_path / lock).parent.mkdir(parents=True)
    (tmp_path / lock).touch()

    def child(command: Command) -> Completed:
        assert command.cwd is not None
        assert inside_root(command.cwd / lock, command.cwd)
        begun.append(command.cwd)
        return Completed(command=command, returncode=code, stdout="", stderr="it broke")

    run = spreading._Spreading(
        folders=Folders(root=tmp_path, cache=tmp_path / "cache", store=Store(tmp_path / "build")),
        watch=Quiet(),
        answers=lambda _node: there,
        run=child,
    )
    found = run.all(make_pool(NODES, [LOAD]))["cell"]
    assert isinstance(found, Failed)
    assert len(begun) == (1 if there else len(NODES))
    assert ("no builder that answers" in found.reason) is not there


def test_a_builder_whose_engine_never_answers_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = small_project(tmp_path / "project", "http://127.0.0.1:9/cpu", names=("torch",))
    path = root / "matrix.yaml"
    builders = {name: {"host": f"unix://{tmp_path}/{name}.sock"} for name in ("one", "two")}
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "builders": builders}))
    begun: list[Pool] = []
    monkeypatch.setattr(spreading._Spreading, "all", lambda _, pool: begun.append(pool))
    workspace = open_workspace(root)
    spreading.spread(workspace, Selection(), Quiet(), answers=lambda node: node.name == "two")
    spreading.spread(workspace, Selection(), Quiet())
    assert [[node.name for node in pool.nodes] for pool in begun] == [["two"], []]
