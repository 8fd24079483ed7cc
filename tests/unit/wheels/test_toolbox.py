"""What runs the checks in every image: any Python, any machine, no index after the first time."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from standins import stand_in_wheel

from warpfront.errors import StoreError, WheelError
from warpfront.wheels.lock.values import LockedWheel
from warpfront.wheels.resolve.resolver import wheel_of
from warpfront.wheels.sources import Site
from warpfront.wheels.store import sdists as room
from warpfront.wheels.store.sdists import install_toolbox, toolbox_wheels
from warpfront.wheels.store.wheelhouse import Wheelhouse, sha256_of


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[LockedWheel, ...]:
    """A toolbox of two small wheels, which a folder offers."""
    made = [stand_in_wheel(tmp_path / "offered", name, "1.0") for name in ("nox", "helper")]
    locked = tuple(dataclasses.replace(wheel_of(path, sha256_of(path)), index="") for path in made)
    monkeypatch.setattr(room, "toolbox_wheels", lambda: locked)
    return locked


def offering(tmp_path: Path) -> Site:
    return Site(find_links=(str(tmp_path / "offered"),), no_index=True)


def nobody() -> Site:
    raise AssertionError("the site was asked")


def installed(tmp_path: Path, site: Any) -> Path:
    house = Wheelhouse(tmp_path / "house")
    return install_toolbox(tmp_path / "cache", house, site=site, on_progress=lambda *_: None)


@pytest.mark.usefixtures("wheels")
def test_a_toolbox_is_fetched_once_and_asks_nobody_after(tmp_path: Path) -> None:
    folder = installed(tmp_path, lambda: offering(tmp_path))
    found = {one.name for one in importlib.metadata.distributions(path=[str(folder)])}
    assert found == {"nox", "helper"}
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert installed(tmp_path, nobody) == folder


@pytest.mark.usefixtures("wheels")
def test_wheels_that_are_here_make_a_toolbox_without_the_site(tmp_path: Path) -> None:
    folder = installed(tmp_path, lambda: offering(tmp_path))
    folder.rename(tmp_path / "gone")
    assert installed(tmp_path, nobody) == folder


def test_other_bytes_than_were_pinned_are_refused_and_leave_nothing(
    wheels: tuple[LockedWheel, ...], tmp_path: Path
) -> None:
    path = tmp_path / "offered" / wheels[0].filename
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("nox/evil.py", "")
    data = path.read_bytes()
    path.write_bytes(data[-wheels[0].size_bytes :])
    with pytest.raises(WheelError, match="nox"):
        installed(tmp_path, lambda: offering(tmp_path))
    assert not (tmp_path / "cache").exists()


@pytest.mark.usefixtures("wheels")
def test_a_toolbox_that_cannot_be_written_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(StoreError, match="cache"):
        installed(tmp_path, lambda: offering(tmp_path))


def test_the_pinned_wheels_run_on_every_machine_and_are_this_installation_s_nox() -> None:
    versions = {wheel.name: wheel.version for wheel in toolbox_wheels()}
    assert versions["nox"] == importlib.metadata.version("nox")
    for wheel in toolbox_wheels():
        _, _, _, tags = parse_wheel_filename(wheel.filename)
        assert "py3-none-any" in {str(tag) for tag in tags}, wheel.filename
        assert wheel.index == "https://pypi.org/simple"


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.14"])
def test_the_pinned_wheels_are_all_that_nox_needs(python: str) -> None:
    """By the metadata of what is installed here; an older Python needs more of it, not less."""
    pinned = {wheel.name for wheel in toolbox_wheels()}
    needed, pending = set[str](), ["nox"]
    while pending:
        name = pending.pop()
        if name in needed:
            continue
        needed.add(name)
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of an older Python only, so not installed here
        environment = {
            "python_version": python,
            "python_full_version": f"{python}.0",
            "os_name": os.name,
            "sys_platform": sys.platform,
            "extra": "",
        }
        for text in requires:
            one = Requirement(text)
            if one.marker is None or one.marker.evaluate(environment):
                pending.append(canonicalize_name(one.name))
    assert needed <= pinned
