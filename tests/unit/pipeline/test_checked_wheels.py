"""Before a build, the wheels' own METADATA is held against the lock, wherever they came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders import a_cell, a_child, a_lock, make_project
from fakes import FakeEngine
from standins import stand_in_wheel

from warpfront.errors import WheelError
from warpfront.images.baking import build_cells
from warpfront.images.preparing import CellInputs, Tools
from warpfront.matrix.cell import Cell, Pin, RequirementList, Source
from warpfront.pipeline.workspace import open_workspace
from warpfront.step_results import Failed
from warpfront.wheels.lock.reading import check_wheels
from warpfront.wheels.lock.values import LockedWheel, RelaxedPackage, WheelLock
from warpfront.wheels.resolve.resolver import wheel_of
from warpfront.wheels.sources import Site
from warpfront.wheels.store.wheelhouse import Wheelhouse

CELL = a_cell(stack=(), requirements=("app",))


class Quiet:
    def say(self, text: str) -> None: ...

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None: ...


class Kept:
    """A wheelhouse with the wheels that a test makes, and the lock that names them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.house = Wheelhouse(folder / "house")
        self.wheels: list[LockedWheel] = []

    def add(self, name: str, requires: Sequence[str] = (), version: str = "1.0") -> None:
        made = stand_in_wheel(self.folder, name, version, requires=requires, extras=["more"])
        self.wheels.append(wheel_of(*self.house.keep(made)))

    @property
    def lock(self) -> WheelLock:
        return a_lock(CELL, *self.wheels)

    def check(self, lock: WheelLock | None = None, *chain: Cell) -> None:
        check_wheels(chain or (CELL,), lock or self.lock, self.house)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def refusal(kept: Kept, lock: WheelLock | None = None, *chain: Cell) -> list[str]:
    with pytest.raises(WheelError) as caught:
        kept.check(lock, *chain)
    return [line.strip() for line in caught.value.message.splitlines()[1:]]


def test_wheels_that_demand_what_the_lock_holds_are_built(kept: Kept) -> None:
    kept.add("app", ["lib>=1", "lib[more]; python_version<'3.12'", "win; os_name=='nt'", "??"])
    kept.add("lib", ["deep; extra=='more'", "unused; extra=='other'"])
    kept.add("deep")
    kept.check()


def test_a_demand_that_the_index_hid_is_refused_with_both_texts(kept: Kept) -> None:
    kept.add("app", ["lib>=2", "hidden>=1"])
    kept.add("lib")
    assert refusal(kept) == [
        "app 1.0: its METADATA demands hidden>=1, the lock holds no hidden",
        "app 1.0: its METADATA demands lib>=2, the lock holds lib 1.0",
    ]


def test_a_demand_of_an_extra_counts_where_something_asks_for_the_extra(kept: Kept) -> None:
    kept.add("app", ["hidden; extra == 'more'"])
    kept.check()
    cell = dataclasses.replace(CELL, requirements=("app[more]",))
    assert refusal(kept, None, cell) == [
        "app 1.0: its METADATA demands hidden, the lock holds no hidden"
    ]


def test_a_locked_wheel_that_no_wheel_demands_is_refused(kept: Kept) -> None:
    kept.add("app")
    kept.add("smuggled")
    assert refusal(kept) == ["smuggled 1.0: the lock holds it, and no wheel's METADATA demands it"]


def test_a_demand_that_only_a_lenient_resolver_reads_is_no_difference(kept: Kept) -> None:
    kept.add("app", ["odd (>=1.0.*)"])
    kept.add("odd")
    kept.check()


def test_the_version_of_the_lock_is_the_wheels_own(kept: Kept) -> None:
    kept.add("app")
    lock = a_lock(CELL, dataclasses.replace(kept.wheels[0], version="1.1"))
    assert refusal(kept, lock) == ["app-1.0-py3-none-any.whl: the lock says 1.1, its METADATA 1.0"]


def test_what_matrix_yaml_relaxes_may_stay_unmet(kept: Kept) -> None:
    kept.add("app", ["torch==9"])
    relaxed = RelaxedPackage(package="app", version="1.0", reason="works", unmet=("torch==9",))
    kept.check(dataclasses.replace(kept.lock, relaxed=(relaxed,)))
    assert len(refusal(kept)) == 1


def test_an_extra_of_the_pinned_stack_may_bring_nothing(kept: Kept) -> None:
    """uv replaces a demand on the stack with its pin, which has no extras."""
    cell = dataclasses.replace(CELL, stack=(Pin(name="torch", version="2.0"),))
    kept.add("app", ["torch[more]"])
    kept.add("torch", ["einsum; extra == 'more'"], version="2.0")
    kept.check(None, cell)
    kept.add("lib", ["gone"])
    requires = dataclasses.replace(cell, requirements=("app", "lib"))
    assert refusal(kept, None, requires) == [
        "lib 1.0: its METADATA demands gone, the lock holds no gone"
    ]


def test_a_plain_demand_of_the_stack_is_held_to_the_lock(kept: Kept) -> None:
    cell = dataclasses.replace(CELL, stack=(Pin(name="torch", version="2.0"),), requirements=())
    kept.add("torch", ["hidden"], version="2.0")
    assert refusal(kept, None, cell) == [
        "torch 2.0: its METADATA demands hidden, the lock holds no hidden"
    ]


def test_the_shim_answers_for_triton(kept: Kept) -> None:
    kept.add("app", ["triton>=3", "pytorch-triton-rocm"])
    kept.add("pytorch-triton-rocm", version="3.4.0")
    kept.check()


def test_a_source_of_a_requirements_file_is_a_root_with_its_extras(kept: Kept) -> None:
    kept.add("app", ["lib; extra=='more'"])
    kept.add("lib")
    source = Source(kind="git", location="https://x.test/app", name="app", extras=("more",))
    cell = dataclasses.replace(CELL, requirements=(), listed=RequirementList(sources=(source,)))
    check_wheels((cell,), kept.lock, kept.house)


def test_a_folder_is_a_root_by_the_wheel_made_of_it_with_its_extras(kept: Kept) -> None:
    kept.add("app", ["lib; extra=='more'"])
    kept.add("lib")
    kept.wheels[0] = dataclasses.replace(kept.wheels[0], source="./libs/app")

    def check(*extras: str) -> None:
        source = Source(kind="folder", location="libs/app", extras=extras)
        asked = RequirementList(sources=(source,))
        kept.check(kept.lock, dataclasses.replace(CELL, requirements=(), listed=asked))

    check("more")
    with pytest.raises(WheelError, match=r"lib 1\.0: the lock holds it, and no wheel's"):
        check()


def test_wheels_of_a_built_parent_may_be_absent(kept: Kept) -> None:
    kept.add("app", ["lib"])
    parents = LockedWheel(
        name="lib",
        version="1.0",
        filename="lib-1.0-py3-none-any.whl",
        sha256="ab" * 32,
        size_bytes=1,
        index="",
    )
    child = a_child(CELL, requirements=("app",))
    kept.check(a_lock(CELL, *kept.wheels, parents), CELL, child)
    kept.add("more", ["gone"])
    lines = refusal(
        kept, a_lock(CELL, *kept.wheels, parents), a_child(CELL, requirements=("more",))
    )
    assert lines == ["more 1.0: its METADATA demands gone, the lock holds no gone"]


@pytest.mark.process
def test_a_build_refuses_them_before_it_bakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_project(tmp_path / "project")
    workspace = open_workspace(tmp_path / "project")
    cell = workspace.matrix.cells[0]
    made = stand_in_wheel(tmp_path, "torch", "2.13.0+cpu", requires=["hidden"])
    wheel = wheel_of(*workspace.folders.wheelhouse.keep(made))
    engine = FakeEngine()
    engine.build(cell.base.pinned, {})
    result = build_cells(
        CellInputs(
            cells=(cell,),
            locks={cell.id: dataclasses.replace(a_lock(cell, wheel), python=cell.python)},
            matrix=workspace.matrix,
            material=workspace.material,
        ),
        Tools(engine=engine, folders=workspace.folders, site=Site),
        Quiet(),
    )[cell.id]
    assert isinstance(result, Failed)
    assert result.exit_code == WheelError.exit_code
    assert "torch 2.13.0+cpu: its METADATA demands hidden" in result.reason
