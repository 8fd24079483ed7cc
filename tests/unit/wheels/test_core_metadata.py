"""A wheel's METADATA, WHEEL and dist-info folder have to be what its file name says."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import InvalidRequirement
from standins import stand_in_wheel

from warpfront.errors import WheelError
from warpfront.wheels.core_metadata import (
    Distribution,
    accepts_python,
    foreign_requirement,
    parse_metadata,
    read_file_name,
    readable_requirement,
)
from warpfront.wheels.store.wheelhouse import read_wheel_metadata

HEAD = "Metadata-Version: 2.1\nName: app\nVersion: 1.0\n"
INFO = "app-1.0.dist-info"


def with_members(folder: Path, change: Callable[[dict[str, str]], None]) -> Path:
    """The wheel app 1.0, with its members changed and in the order that `change` leaves."""
    path = stand_in_wheel(folder, "app", "1.0", requires=["numpy>=2"])
    with zipfile.ZipFile(path) as archive:
        members = {one: archive.read(one).decode() for one in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a second member of one name
        for name, text in members.items():
            archive.writestr(name.removesuffix("#"), text)
    return path


def test_a_wheel_that_is_what_its_name_says_is_read(tmp_path: Path) -> None:
    path = stand_in_wheel(tmp_path, "app", "1.0", requires=["numpy>=2", "x; extra == 'y'"])
    found = read_wheel_metadata(path)
    assert (found.name, found.version) == ("app", "1.0")
    assert found.requires == ("numpy>=2", "x; extra == 'y'")


@pytest.mark.parametrize(
    ("member", "text", "reason"),
    [
        (f"{INFO}/METADATA", HEAD.replace("app", "other"), "its METADATA says Name: other"),
        (f"{INFO}/METADATA", HEAD.replace("1.0", "1.1"), "its METADATA says Version: 1.1"),
        (f"{INFO}/METADATA", HEAD + "Name: other\n", "METADATA has Name 2 times"),
        (f"{INFO}/METADATA", HEAD + "vERSION: 1.1\n", "METADATA has Version 2 times"),
        (f"{INFO}/METADATA", "Metadata-Version: 2.1\n", "no Name or no Version"),
        (f"{INFO}/METADATA#", HEAD, "times"),
        (f"{INFO}/metadata", HEAD, "times"),
        ("other-2.0.dist-info/METADATA", HEAD, "holds 2 dist-info folders"),
        ("Other-2.0.DIST-INFO/METADATA", HEAD, "holds 2 dist-info folders"),
        ("app-1.0.data/purelib/other-2.0.dist-info/METADATA", HEAD, "holds 2 dist-info folders"),
        ("app-1.0.data/platlib/torch-9.0.egg-info/PKG-INFO", HEAD, "of another distribution"),
        ("torch.egg-info", HEAD, "of another distribution"),
        (f"{INFO}/WHEEL", "Wheel-Version: 1.0\nTag: cp310-cp310-any\n", "Tag: cp310-cp310-any"),
        (f"{INFO}/WHEEL", "Wheel-Version: 1.0\n", "Tag: nothing"),
    ],
)
def test_another_distribution_under_a_wheels_name_is_refused(
    tmp_path: Path, member: str, text: str, reason: str
) -> None:
    path = with_members(tmp_path, lambda members: members.update({member: text}))
    with pytest.raises(WheelError, match=reason) as caught:
        read_wheel_metadata(path)
    assert caught.value.message.startswith("app-1.0-py3-none-any.whl: ")


@pytest.mark.parametrize("gone", ["METADATA", "WHEEL"])
def test_a_wheel_without_metadata_is_none(tmp_path: Path, gone: str) -> None:
    def without(members: dict[str, str]) -> None:
        del members[f"{INFO}/{gone}"]

    path = with_members(tmp_path, without)
    with pytest.raises(WheelError, match=gone):
        read_wheel_metadata(path)


def test_a_dist_info_folder_of_another_name_is_refused(tmp_path: Path) -> None:
    path = stand_in_wheel(tmp_path, "app", "1.0")
    for name in ("torch-1.0-py3-none-any.whl", "app-2.0-py3-none-any.whl"):
        with pytest.raises(WheelError, match=r"its dist-info folder is app-1\.0\.dist-info"):
            read_wheel_metadata(path.rename(tmp_path / name))
        (tmp_path / name).rename(path)


@pytest.mark.parametrize(
    ("named", "built"),
    [  # as published: py-spy 0.4.2, mysql-connector 26.7.0, playwright 1.63.0
        ("py2.py3-none-manylinux_2_5_x86_64.manylinux1_x86_64", "py3-none-manylinux1_x86_64"),
        ("cp311-cp311-manylinux_2_28_x86_64", "cp311-cp311-linux_x86_64"),
        ("py3-none-manylinux1_x86_64", "py3-none-any"),
    ],
)
def test_a_file_renamed_to_a_manylinux_level_is_the_same_build(
    tmp_path: Path, named: str, built: str
) -> None:
    path = with_members(
        tmp_path, lambda members: members.update({f"{INFO}/WHEEL": f"Tag: {built}\n"})
    )
    assert read_wheel_metadata(path.rename(tmp_path / f"app-1.0-{named}.whl")).name == "app"


def test_another_machine_is_another_build(tmp_path: Path) -> None:
    text = "Tag: cp311-cp311-manylinux_2_28_aarch64\n"
    path = with_members(tmp_path, lambda members: members.update({f"{INFO}/WHEEL": text}))
    with pytest.raises(WheelError, match="aarch64"):
        read_wheel_metadata(path.rename(tmp_path / "app-1.0-cp311-cp311-linux_x86_64.whl"))


@pytest.mark.timeout(20)
def test_tags_of_a_wheel_have_no_product(tmp_path: Path) -> None:
    """A name or a Tag may list sets, whose product is as long as its writer likes."""
    sets = "-".join(".".join(f"{part}{number}" for number in range(900)) for part in "pqr")
    path = with_members(tmp_path, lambda members: members.update({f"{INFO}/WHEEL": f"Tag: {sets}"}))
    with pytest.raises(WheelError, match="its WHEEL says Tag"):
        read_wheel_metadata(path)
    assert read_file_name(f"app-1.0-{sets}.whl") is None


@pytest.mark.parametrize(
    "name", ["app-{}-py3-none-any.whl", "app-1-{}-py3-none-any.whl", "app-{}.tar.gz"]
)
def test_a_number_of_any_length_is_no_file_name(name: str) -> None:
    assert read_file_name(name.format("9" * 5000)) is None


def test_a_requirement_of_any_length_is_read_or_refused() -> None:
    long = f">={'9' * 5000}"
    assert accepts_python(Distribution(name="app", version="1", requires_python=long), "3.11")
    assert readable_requirement(f"app{long}") is None
    with pytest.raises(InvalidRequirement, match="too long"):
        foreign_requirement(f"app{long}")


def test_requires_python_is_held_against_every_release_of_a_python() -> None:
    def metadata(text: str) -> Distribution:
        return Distribution(name="app", version="1", requires_python=text)

    assert [
        accepts_python(metadata(one), "3.11") for one in ("", ">=3.11.4", "!=3.11.0", "nonsense")
    ] == [True, True, True, True]
    assert not accepts_python(metadata(">=3.12"), "3.11")
    assert not accepts_python(metadata("<3.11"), "3.11")


def test_a_field_is_read_whatever_its_case() -> None:
    found = parse_metadata("NAME: app\nversion: 1.0\nrequires-dist: numpy\n\nName: body\n")
    assert (found.name, found.version, found.requires) == ("app", "1.0", ("numpy",))
