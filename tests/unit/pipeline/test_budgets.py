"""An image that is larger than its budget is an error that says what grew."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from builders import a_built_image, a_cell, a_lock
from standins import stand_in_wheel

from warpfront.images.baking import largest, within_budget
from warpfront.images.built import BuiltImage
from warpfront.matrix.cell import Cell
from warpfront.step_results import Failed
from warpfront.system.store import Store
from warpfront.wheels.lock.values import LockedWheel, WheelLock
from warpfront.wheels.store.wheelhouse import Wheelhouse


@pytest.fixture
def cell() -> Cell:
    return dataclasses.replace(a_cell(), budget_bytes=1_000_000)


@pytest.fixture
def house(tmp_path: Path) -> Wheelhouse:
    return Wheelhouse(tmp_path / "house")


def a_wheel(house: Wheelhouse, version: str, libraries: int) -> LockedWheel:
    files: dict[str, str | bytes] = {"torch/__init__.py": "", "torch/lib/a.so": b"x" * libraries}
    path = stand_in_wheel(house.root.parent, "torch", version, files=files)
    _, sha256 = house.keep(path)
    size = path.stat().st_size
    return LockedWheel(
        name="torch", version=version, filename=path.name, sha256=sha256, size_bytes=size, index=""
    )


def judged(
    cell: Cell, house: Wheelhouse, size_bytes: int, wheel: LockedWheel
) -> BuiltImage | Failed:
    store = Store(house.root.parent / "build")
    lock: WheelLock = dataclasses.replace(a_lock(cell), wheels=(wheel,))
    return within_budget(cell, a_built_image(cell, size_bytes=size_bytes), lock, store, house)


def test_an_image_without_a_budget_may_have_any_size(cell: Cell, house: Wheelhouse) -> None:
    free = dataclasses.replace(cell, budget_bytes=None)
    wheel = a_wheel(house, "1", 1)
    assert isinstance(judged(free, house, 10**12, wheel), BuiltImage)
    assert not (house.root.parent / "build").exists()


def test_a_larger_image_fails_and_says_what_is_largest(cell: Cell, house: Wheelhouse) -> None:
    failed = judged(cell, house, 1_000_001, a_wheel(house, "1", 400_000))
    assert isinstance(failed, Failed)
    assert failed.reason.startswith("its layers take 1 MB, and its budget is 1 MB\n")
    assert failed.reason.endswith("torch==1: 400 kB")
    assert failed.exit_code == 6
    assert "budget:" in failed.hint


def test_it_says_what_grew_since_the_last_that_kept_to_it(cell: Cell, house: Wheelhouse) -> None:
    assert isinstance(judged(cell, house, 1_000_000, a_wheel(house, "1", 400_000)), BuiltImage)
    failed = judged(cell, house, 1_300_000, a_wheel(house, "2", 700_000))
    assert isinstance(failed, Failed)
    assert "torch==2: 700 kB, 300 kB more" in failed.reason
    same = judged(cell, house, 1_300_000, a_wheel(house, "1", 400_000))
    assert isinstance(same, Failed)
    assert "its wheels are as they were" in same.reason


def test_what_did_not_grow_is_not_told() -> None:
    before = {"torch==1": 6, "numpy==1": 3}
    now = {"torch==2": 6, "jax==1": 9, "numpy==2": 4}
    assert largest(now, before) == [("jax==1", 9, 9), ("numpy==2", 4, 1)]
    assert [row[0] for row in largest(now, None)] == ["jax==1", "torch==2", "numpy==2"]
