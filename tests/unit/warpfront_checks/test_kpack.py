"""Archives of device code: their architectures, and what the target lacks."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standins import stand_in_kpack

from warpfront_checks.distributions import Installed
from warpfront_checks.kpack import (
    Archive,
    KpackError,
    find_archives,
    group_of,
    incomplete_variants,
    missing_code,
    missing_device_packages,
    read_archive,
)

TORCH = (
    "rocm-bootstrap",
    'amd-torch-device-gfx942==2.13.0+rocm10.0.0 ; extra == "device-gfx942"',
    "amd-torch-device-gfx1100 == 2.13.0+rocm10.0.0; extra == 'device-gfx1100'",
    'amd-torch-device-gfx942==2.13.0+rocm10.0.0; extra == "device-all"',
)


def written(folder: Path, name: str, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(content)
    return path


def test_an_archive_names_its_architectures_and_their_code_objects(tmp_path: Path) -> None:
    content = stand_in_kpack({"gfx942": 40, "gfx942:xnack+": 2}, listed=["gfx1100"])
    found = read_archive(written(tmp_path, "torch_gfx942.kpack", content))
    assert found.group == "torch"
    assert found.kernels == {"gfx942": 40, "gfx942:xnack+": 2, "gfx1100": 0}
    assert sum(found.kernels.values()) == 42


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("torch_gfx90a:xnack-.kpack", "torch"),
        ("torch_gfx12-0.kpack", "torch"),
        ("blas_lib_gfx90a-xnack+.kpack", "blas_lib"),
        ("torch_rocshmem_gfx942.kpack", "torch_rocshmem"),
        ("other.kpack", "other"),
    ],
)
def test_a_file_name_is_a_group_and_a_target(name: str, group: str) -> None:
    assert group_of(name) == group


WHOLE = stand_in_kpack({"gfx942": 3})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "struct.error|error"),
        (b"PK\3\4" + WHOLE[4:], "not an archive of a known version"),
        (WHOLE[:4] + struct.pack("<I", 9) + WHOLE[8:], "not an archive of a known version"),
        (WHOLE[:8] + struct.pack("<Q", 1 << 40) + WHOLE[16:], "outside"),
        (WHOLE[:-9], "ends early"),
        (WHOLE[:64] + b"\x93\1\2\3", "outside"),
        (struct.pack("<4sIQ", b"KPAK", 1, 16) + b"\x80", "names no architectures"),
        (struct.pack("<4sIQ", b"KPAK", 1, 16) + b"\xc1", "unknown kind 0xc1"),
        (struct.pack("<4sIQ", b"KPAK", 1, 16) + b"\x91" * 99, "nested too deeply"),
        (struct.pack("<4sIQ", b"KPAK", 1, 16) + b"\xdd\xff\xff\xff\xff", "ends early"),
    ],
)
def test_what_is_no_archive_is_refused_with_its_name(
    tmp_path: Path, content: bytes, words: str
) -> None:
    with pytest.raises(KpackError, match=words) as refused:
        read_archive(written(tmp_path, "torch_gfx942.kpack", content))
    assert "torch_gfx942.kpack" in str(refused.value) or "table" in str(refused.value)


@given(st.binary(max_size=200))
def test_no_table_ends_in_another_error(tail: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        content = struct.pack("<4sIQ", b"KPAK", 1, 16) + tail
        path = written(Path(folder), "x_gfx942.kpack", content)
        with contextlib.suppress(KpackError):
            read_archive(path)


def test_archives_lie_beside_the_libraries(tmp_path: Path) -> None:
    for place in (
        "torch/.kpack",
        "_rocm_sdk_libraries/.kpack",
        "acme/lib/.kpack",
        "acme/a/b/.kpack",
    ):
        written(tmp_path / place, "x_gfx942.kpack", WHOLE)
    found = [path.parent.relative_to(tmp_path).as_posix() for path in find_archives(tmp_path)]
    assert found == ["_rocm_sdk_libraries/.kpack", "acme/lib/.kpack", "torch/.kpack"]


def installed(*names: str) -> Installed:
    return Installed(
        versions=dict.fromkeys(("torch", *names), ("1",)), requirements={"torch": TORCH}
    )


def test_a_device_package_that_is_not_there_is_named_with_the_extra_that_brings_it() -> None:
    (said,) = missing_device_packages(installed(), "gfx942")
    assert said.startswith("torch has its code for gfx942 in amd-torch-device-gfx942, which is not")
    assert said.endswith("torch[device-gfx942] brings it")
    assert missing_device_packages(installed("amd-torch-device-gfx942"), "gfx942") == []


def test_a_target_that_torch_has_no_extra_for_is_named_with_those_that_it_has() -> None:
    (said,) = missing_device_packages(installed("amd-torch-device-gfx942"), "gfx1201")
    assert said == "torch has code for gfx1100 gfx942, none for gfx1201"


def test_a_torch_without_such_extras_lacks_no_package() -> None:
    fat = Installed(versions={"torch": ("1",)}, requirements={"torch": ("triton==3.4.0",)})
    assert missing_device_packages(fat, "gfx942") == []


def archive(group: str, **kernels: int) -> Archive:
    return Archive(path=f"{group}.kpack", group=group, kernels=kernels)


def test_archives_of_other_targets_only_are_no_code_for_this_one() -> None:
    others = [archive("torch", gfx1100=3, gfx942=0), archive("blas_lib", gfx1100=1)]
    (said,) = missing_code(others, ["gfx942", "gfx9-4-generic"])
    assert said == "torch: its archives have code for gfx1100, none for gfx942"
    assert missing_code([archive("torch", gfx1201=3)], ["gfx1201"]) == []
    generic = [Archive(path="x", group="torch", kernels={"gfx11-generic": 2})]
    assert missing_code(generic, ["gfx1100", "gfx11-generic"]) == []


def test_a_variant_with_fewer_code_objects_than_the_plain_target_is_incomplete() -> None:
    """ROCm/TheRock#7620: 43 MB for gfx90a, and 171 KB for each of its xnack variants."""
    found = [
        Archive(path="a", group="torch", kernels={"gfx90a": 400}),
        Archive(path="b", group="torch", kernels={"gfx90a:xnack-": 1}),
        Archive(path="c", group="torch", kernels={"gfx90a:xnack+": 0}),
    ]
    assert incomplete_variants(found, "gfx90a") == [
        "torch for gfx90a:xnack+ has 0 of the 400 code objects of gfx90a",
        "torch for gfx90a:xnack- has 1 of the 400 code objects of gfx90a",
    ]
    assert incomplete_variants(found[1:], "gfx90a") == [], "asan builds have variants alone"
    assert incomplete_variants(found, "gfx942") == []
