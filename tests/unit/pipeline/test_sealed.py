"""The host writes the manifest that the guard would make of the same wheels, installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from builders import a_cell, a_lock, a_wheel
from guarded import TORCH, install, places_below
from standins import stand_in_wheel

from warpfront.images.baking import is_sealed, write_manifest
from warpfront.images.built import RenderedImage
from warpfront.images.render import guard_files, guard_policy, stack_location
from warpfront.matrix import compat
from warpfront.system.digests import frozen
from warpfront.wheels.lock.values import LockedWheel, WheelLock
from warpfront.wheels.store.wheelhouse import Wheelhouse, sha256_of
from warpfront_checks.guard.manifest import read_manifest
from warpfront_checks.guard.sealing import seal

CELL = a_cell()


@pytest.fixture
def lock(tmp_path: Path) -> WheelLock:
    """torch, and what it asks for and nobody protects."""
    folder = tmp_path / "offered"
    torch = stand_in_wheel(folder, "torch", "2.13.0+cpu", files=TORCH)
    sympy = stand_in_wheel(folder, "sympy", "1.14.0", files={"sympy.py": ""})
    return a_lock(CELL, locked("torch", torch), locked("sympy", sympy))


def locked(name: str, wheel: Path) -> LockedWheel:
    return a_wheel(
        name,
        wheel.name.split("-")[1],
        filename=wheel.name,
        sha256=sha256_of(wheel),
        size_bytes=wheel.stat().st_size,
    )


def rendered(lock: WheelLock, *, guarded: bool = True) -> RenderedImage:
    policy = guard_policy(CELL, lock, compat.packaged())
    files = guard_files(policy, {}) if guarded else {}
    return RenderedImage(cell_id=CELL.id, files=frozen(files), wheels=lock.wheels)


def test_it_is_the_manifest_that_reading_what_was_installed_gives(
    tmp_path: Path, lock: WheelLock
) -> None:
    house = Wheelhouse(tmp_path / "house")
    for wheel in lock.wheels:
        house.keep(tmp_path / "offered" / wheel.filename)
    write_manifest(rendered(lock), house, tmp_path / "sealed", cell=CELL)
    written = read_manifest(tmp_path / "sealed" / "stack.json")
    assert written.location == stack_location(CELL)
    assert str(written.location) == "/opt/venv/lib/python3.11/site-packages"

    places = places_below(tmp_path)
    install(places.site_packages, "torch", "2.13.0+cpu", TORCH)
    seal(guard_policy(CELL, lock, compat.packaged()), places, python=sys.executable)
    read = json.loads(places.manifest.read_text())
    given = json.loads((tmp_path / "sealed" / "stack.json").read_text())
    assert {**given, "location": read["location"]} == read


def test_an_image_without_a_guard_and_one_with_the_torch_of_its_base_have_none(
    lock: WheelLock,
) -> None:
    assert is_sealed(CELL, rendered(lock))
    assert not is_sealed(CELL, rendered(lock, guarded=False))
    assert not is_sealed(a_cell(stack=()), rendered(lock))
