"""Which names must not come, and which make up a stack: one list for host and images."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from warpfront.matrix.vendors import VENDORS
from warpfront_checks.guard.names import (
    default_policy,
    read_toolkit,
    sentinels,
    stack_patterns,
    triton_shims,
)
from warpfront_checks.guard.policy import GuardError

TOOLKITS = ["cuda", "rocm", "cpu", "synapseai", "xpu"]


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def a_torch(folder: Path, text: str) -> Path:
    (folder / "torch").mkdir()
    path = folder / "torch" / "version.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize("toolkit", TOOLKITS)
def test_every_sentinel_is_a_name_and_a_version_that_pip_and_uv_can_read(toolkit: str) -> None:
    for name, why in sentinels(toolkit, ()).items():
        assert canonicalize_name(name) == name
        assert str(Requirement(f"{name}==0+{why}").specifier) == f"==0+{why}"


def test_every_name_of_cudas_is_one_that_the_vendor_calls_its_library() -> None:
    """A lock takes those with torch; what it takes must be what the guard knows."""
    libraries = VENDORS["nvidia"].libraries
    held = ["nvidia-cudnn-cu13", "nvidia-nccl-cu13"]
    cuda = [name for name, why in sentinels("cuda", held).items() if why.startswith("same.folder")]
    assert len(cuda) == 6
    assert [name for name in cuda if not matches(name, libraries)] == []


@pytest.mark.parametrize("vendor", sorted(VENDORS))
def test_what_a_vendor_protects_is_part_of_the_stack_that_adopt_finds(vendor: str) -> None:
    toolkit = VENDORS[vendor].toolkit or VENDORS[vendor].device
    patterns = stack_patterns(toolkit)
    own = chain(VENDORS[vendor].protected, VENDORS[vendor].libraries)
    names = [pattern.replace("*", "x") for pattern in own]
    assert [name for name in names if not matches(name, patterns)] == []


@pytest.mark.parametrize("toolkit", TOOLKITS)
def test_what_is_in_the_image_is_no_sentinel(toolkit: str) -> None:
    held = {"triton-rocm", "nvidia-cudnn-cu12", "pytorch-triton"}
    assert held & set(sentinels(toolkit, held)) == set()


CUDAS = ("nvidia-cublas", "nvidia-cublas-cu12", "cuda-toolkit", "cuda-bindings", "nvidia-nccl-cu12")


@pytest.mark.parametrize("toolkit", ["rocm", "cpu", "synapseai"])
def test_images_of_other_toolkits_let_cudas_libraries_come(toolkit: str) -> None:
    """Nothing of such a torch lies where they go, and xgboost asks for NCCL."""
    assert not set(CUDAS) & set(sentinels(toolkit, ()))


def test_another_release_of_a_library_that_owns_the_same_folder_is_refused() -> None:
    found = sentinels("cuda", ["torch", "nvidia-cudnn-cu13", "nvidia-nccl-cu13", "nvidia-cublas"])
    assert found["nvidia-cudnn-cu12"] == "same.folder.as.nvidia.cudnn.cu13"
    assert {"nvidia-cudnn", "nvidia-cudnn-cu11", "nvidia-nccl-cu12"} <= set(found)
    assert "nvidia-cudnn-cu13" not in found
    assert "nvidia-cublas-cu12" not in found


def test_other_tritons_stay_out() -> None:
    assert {"pytorch-triton", "pytorch-triton-rocm", "triton-xpu"} <= set(sentinels("cuda", ()))
    rocm = sentinels("rocm", ["pytorch-triton-rocm"])
    assert {"triton-rocm", "pytorch-triton"} <= set(rocm)
    assert "pytorch-triton-rocm" not in rocm


def test_triton_itself_is_forbidden_on_rocm_unless_a_shim_answers_for_it() -> None:
    """Else the shim's own constraint would meet one that nothing satisfies."""
    assert "triton" in sentinels("rocm", ["torch"])
    for held in ({"pytorch-triton-rocm": "3.4.0"}, {"triton-rocm": "3.8.0"}, {"triton": "3.4.0"}):
        assert "triton" not in sentinels("rocm", held)


@pytest.mark.parametrize(
    ("held", "version", "requires"),
    [
        (
            {"pytorch-triton-rocm": "3.4.0"},
            "3.4.0+pytorch.triton.rocm",
            "pytorch-triton-rocm===3.4.0",
        ),
        ({"triton-rocm": "3.8.0+rocm7"}, "3.8.0+triton.rocm", "triton-rocm==3.8.0+rocm7"),
        ({"pytorch-triton": "3.3.0+git9"}, "3.3.0+pytorch.triton", "pytorch-triton==3.3.0+git9"),
    ],
)
def test_a_shim_answers_for_triton_where_it_has_another_name(
    held: dict[str, str], version: str, requires: str
) -> None:
    [shim] = triton_shims(held)
    assert (shim.name, shim.version, shim.requires) == ("triton", version, requires)
    assert str(Requirement(f"triton=={version}"))


@pytest.mark.parametrize("held", [{}, {"triton": "3.9.0"}, {"triton": "1", "triton-rocm": "1"}])
def test_there_is_no_shim_where_triton_is_triton(held: dict[str, str]) -> None:
    assert triton_shims(held) == ()


@pytest.mark.parametrize(
    ("text", "toolkit"),
    [
        ("cuda = None\nhip = None\n", "cpu"),
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", "cpu"),
        ("cuda = '13.0'\nhip = None\n", "cuda"),
        ('cuda: Optional[str] = "12.8"\n', "cuda"),
        ("cuda = None\nhip = '6.4.43484'\n", "rocm"),
        ("hip: Optional[str] = '7.2'\ncuda: Optional[str] = None\nrocm = '7.2'\n", "rocm"),
        ("__version__ = '2.13.0'\n", "cpu"),
    ],
)
def test_the_toolkit_is_read_from_torchs_own_file(text: str, toolkit: str, tmp_path: Path) -> None:
    assert read_toolkit(a_torch(tmp_path, text)) == toolkit


def test_a_cpu_torch_beside_habanas_frameworks_is_synapseais(tmp_path: Path) -> None:
    path = a_torch(tmp_path, "cuda = None\n")
    (tmp_path / "habana_frameworks").mkdir()
    assert read_toolkit(path) == "synapseai"
    assert default_policy(tmp_path, ()).adopt == stack_patterns("synapseai")


def test_without_a_torch_there_is_no_toolkit(tmp_path: Path) -> None:
    with pytest.raises(GuardError, match=r"version\.py: .*: no torch to adopt here"):
        read_toolkit(tmp_path / "torch" / "version.py")
