"""The metadata of a torch stack: where it is looked for, and whose stands for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from standins import serve_index, stand_in_wheel

from warpfront.wheels.metadata import StackFiles, write_environment
from warpfront.wheels.resolve.demands import without_libraries
from warpfront.wheels.resolve.resolver import wheel_of
from warpfront.wheels.sources import Site
from warpfront.wheels.store.wheelhouse import Wheelhouse


@pytest.fixture
def files(tmp_path: Path) -> Iterator[StackFiles]:
    index, folder = tmp_path / "index", tmp_path / "folder"
    libraries = ["nvidia-cublas==13.0; platform_system == 'Linux'", "triton==3.5", "sympy>=1.13"]
    stand_in_wheel(index, "torch", "2.9.1", requires=libraries)
    stand_in_wheel(index, "torch", "2.11.0", requires=["sympy>=1.14"])
    stand_in_wheel(folder, "torch", "2.13.0+cpu", requires=["typing-extensions>=4.10"])
    stand_in_wheel(folder, "torchvision", "0.1", requires=["numpy"])
    with serve_index(index, name="simple") as served:
        site = Site(index_url=served.url, find_links=(str(folder),))
        yield StackFiles(site=site, wheelhouse=Wheelhouse(tmp_path / "house"))


def read(files: StackFiles, version: str) -> tuple[str, ...] | None:
    for package, is_exact in files.read({"torch": version}, (), ""):
        return package.requires if is_exact else without_libraries(package.requires)
    return None


def test_a_version_s_own_metadata_is_read(files: StackFiles) -> None:
    assert read(files, "2.13.0+cpu") == ("typing-extensions>=4.10",)
    assert read(files, "2.11.0") == ("sympy>=1.14",)


def test_another_build_of_the_release_stands_for_it_without_its_libraries(
    files: StackFiles,
) -> None:
    assert read(files, "2.9.1+rocm6.4") == ("sympy>=1.13",)
    assert read(files, "2.11.0a0") == ("sympy>=1.14",), "a vendor's fork of the release"
    assert read(files, "2.99.0") is None


def test_the_locked_wheel_comes_before_every_index(files: StackFiles, tmp_path: Path) -> None:
    made = stand_in_wheel(tmp_path / "made", "torch", "2.9.1+rocm6.4", requires=["own>=1"])
    wheel = wheel_of(*files.wheelhouse.keep(made))
    ((package, _),) = files.read({"torch": "2.9.1+rocm6.4"}, (wheel,), "")
    assert package.requires == ("own>=1",)


def test_a_local_wheel_of_another_name_tells_nothing(files: StackFiles, tmp_path: Path) -> None:
    made = stand_in_wheel(tmp_path / "folder", "torch", "2.12.0", requires=["other>=1"])
    made.rename(made.with_name(made.name.replace("2.12.0", "2.14.0")))
    assert read(files, "2.14.0") is None


def test_offline_only_files_of_this_machine_are_read(files: StackFiles) -> None:
    offline = StackFiles(site=files.site, wheelhouse=files.wheelhouse, offline=True)
    assert read(offline, "2.13.0+cpu") == ("typing-extensions>=4.10",)
    assert read(offline, "2.11.0") is None


def test_an_environment_of_metadata_says_what_is_installed(
    files: StackFiles, tmp_path: Path
) -> None:
    found = files.read({"torch": "2.13.0+cpu"}, (), "")
    write_environment(tmp_path / "made-up", [package for package, _ in found])
    (metadata,) = (tmp_path / "made-up").glob("*/METADATA")
    assert metadata.parent.name == "torch-2.13.0+cpu.dist-info"
    assert "Requires-Dist: typing-extensions>=4.10\n" in metadata.read_text()
