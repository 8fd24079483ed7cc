"""The wheel that is made of AMD's source archive `rocm` (warpfront.wheels.rocm)."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from standins import ROCM_DEVICES, stand_in_rocm_sdist

from warpfront.errors import LockError
from warpfront.wheels.rocm import rocm_wheel
from warpfront.wheels.store.wheelhouse import read_wheel_metadata

TARGETS = ("gfx90a", "gfx942")


def demands_of(wheel: Path, extra: str) -> set[str]:
    end = f'extra == "{extra}"'
    return {one.split("=")[0] for one in read_wheel_metadata(wheel).requires if one.endswith(end)}


def test_what_torch_asks_for_is_the_device_code_of_the_targets(tmp_path: Path) -> None:
    wheel = rocm_wheel(stand_in_rocm_sdist(tmp_path), tmp_path / "made", TARGETS)
    assert demands_of(wheel, "device-all") == {f"rocm-sdk-device-{one}" for one in TARGETS}
    assert demands_of(wheel, "libraries") == {"rocm-sdk-libraries"}
    assert "rocm-sdk-core==7.14.0" in read_wheel_metadata(wheel).requires


def test_another_gpu_can_still_be_asked_for_by_its_name(tmp_path: Path) -> None:
    wheel = rocm_wheel(stand_in_rocm_sdist(tmp_path), tmp_path / "made", TARGETS)
    for target in ROCM_DEVICES:
        assert demands_of(wheel, f"device-{target}") == {f"rocm-sdk-device-{target}"}


def test_nothing_says_which_gpu_the_machine_has_that_packed_it(tmp_path: Path) -> None:
    wheel = rocm_wheel(stand_in_rocm_sdist(tmp_path), tmp_path / "made", TARGETS)
    assert demands_of(wheel, "device") == set()
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read("rocm-7.14.0.dist-info/METADATA").decode().splitlines()
    assert "Provides-Extra: device-all" in metadata
    assert "Provides-Extra: device" not in metadata


def test_a_post_release_keeps_its_own_version_and_its_parts_theirs(tmp_path: Path) -> None:
    sdist = stand_in_rocm_sdist(tmp_path, "7.14.0.post1", parts="7.14.0")
    wheel = rocm_wheel(sdist, tmp_path / "made", TARGETS)
    assert wheel.name == "rocm-7.14.0.post1-py3-none-any.whl"
    assert "rocm-sdk-core==7.14.0" in read_wheel_metadata(wheel).requires


def test_the_order_of_the_targets_changes_no_byte(tmp_path: Path) -> None:
    sdist = stand_in_rocm_sdist(tmp_path)
    one = rocm_wheel(sdist, tmp_path / "one", TARGETS)
    other = rocm_wheel(sdist, tmp_path / "other", TARGETS[::-1])
    assert one.read_bytes() == other.read_bytes()


def test_a_target_without_device_code_is_refused_with_those_that_have_it(tmp_path: Path) -> None:
    with pytest.raises(LockError, match=r"no device code for gfx900; it has .*gfx942"):
        rocm_wheel(stand_in_rocm_sdist(tmp_path), tmp_path / "made", ("gfx900", "gfx942"))


@pytest.mark.parametrize("demand", ["", "Requires-Dist: rocm-sdk-core=7.14\n"])
def test_an_archive_that_does_not_say_what_it_demands_is_refused(
    tmp_path: Path, demand: str
) -> None:
    told = f"Metadata-Version: 2.4\nName: rocm\nVersion: 7.14.0\n{demand}".encode()
    sdist = tmp_path / "rocm-7.14.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        member = tarfile.TarInfo("rocm-7.14.0/PKG-INFO")
        member.size = len(told)
        archive.addfile(member, io.BytesIO(told))
    with pytest.raises(LockError, match="PKG-INFO"):
        rocm_wheel(sdist, tmp_path / "made", TARGETS)
