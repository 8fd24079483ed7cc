"""What the compat table supports, denies and does not know."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from packaging.version import Version

from warpfront.errors import MatrixError
from warpfront.matrix.compat import (
    Compat,
    Contradicted,
    packaged,
    packaged_contents,
    packaged_rows,
)
from warpfront.matrix.compat_table import COMPANIONS, Combination, read_table
from warpfront.matrix.vendors import VENDORS

CUDA13 = Combination(
    machine="x86_64",
    vendor="nvidia",
    toolkit="13.0",
    targets=("sm_80", "sm_90", "sm_100", "sm_120"),
    python="3.11",
    torch="2.14.1",
    index="pypi",
    glibc="2.36",
)
ROCM64 = Combination(
    machine="x86_64",
    vendor="amd",
    toolkit="6.4",
    targets=("gfx942",),
    python="3.13",
    torch="2.9.1",
    index="rocm6.4",
    glibc="2.41",
)


@pytest.fixture(scope="module")
def compat() -> Compat:
    return packaged()


def contradiction(compat: Compat, wanted: Combination) -> Contradicted:
    judgement = compat.judge(wanted)
    assert isinstance(judgement, Contradicted), judgement
    return judgement


def reasons(compat: Compat, wanted: Combination) -> str:
    judgement = compat.judge(wanted)
    assert isinstance(judgement, tuple), judgement
    assert judgement
    return "\n".join(judgement)


def test_the_releases_of_the_rows_and_those_that_pypi_held_are_known_in_order(
    compat: Compat,
) -> None:
    rows = {release.torch for release in packaged_rows().releases}
    held = packaged_contents().indexes["https://pypi.org/simple"].wheels["torch"]
    assert set(compat.torches) == {*rows, *held}
    assert list(compat.torches) == sorted(compat.torches, key=Version)
    assert {"2.4.1", "2.12.0", "2.15.0"} <= set(compat.torches)


def test_every_row_names_its_source(compat: Compat) -> None:
    for release in compat.table.releases:
        rows = (release.pypi, release.indexes, release.torchvision, release.torchaudio)
        assert all(row.source for row in rows), release.torch


def test_every_evidenced_combination_is_supported_or_unknown_never_contradicted(
    compat: Compat,
) -> None:
    judged = 0
    for release in compat.table.releases:
        for name in release.indexes.names:
            index = compat.table.indexes[name]
            wanted = Combination(
                machine="x86_64",
                vendor=index.vendor,
                toolkit=index.toolkit or "",
                targets=("x86_64",) if index.vendor == "cpu" else (),
                python=release.pythons_on(name)[0],
                torch=release.torch,
                index=name,
            )
            assert compat.judge(wanted) == (), wanted
            judged += 1
    assert judged > 60


def test_the_cuda_13_row_of_pypi_is_supported_and_pinned_without_label(compat: Compat) -> None:
    wanted = replace(CUDA13, companions=COMPANIONS)
    assert compat.judge(wanted) == ()
    assert [str(pin) for pin in compat.stack(wanted)] == [
        "torch===2.14.1",
        "torchvision===0.29.1",
        "torchaudio===2.11.0",
        "triton===3.8.0",
    ]


def test_rocm_pins_carry_their_label_and_the_triton_of_their_time(compat: Compat) -> None:
    assert [str(pin) for pin in compat.stack(replace(ROCM64, companions=("torchvision",)))] == [
        "torch==2.9.1+rocm6.4",
        "torchvision==0.24.1+rocm6.4",
        "pytorch-triton-rocm===3.5.1",
    ]
    later = replace(ROCM64, torch="2.12.1", toolkit="7.2", index="rocm7.2")
    assert str(compat.stack(later)[-1]) == "triton-rocm===3.7.1"


def test_what_is_taken_as_a_variant_is_pinned_without_a_label(compat: Compat) -> None:
    wanted = replace(ROCM64, companions=("torchvision",), variants=("torch",))
    pins = [str(pin) for pin in compat.stack(wanted)]
    assert pins[:2] == ["torch===2.9.1", "torchvision==0.24.1+rocm6.4"]


def test_cpu_pins_have_no_triton(compat: Compat) -> None:
    cpu = replace(CUDA13, vendor="cpu", toolkit="", targets=("x86_64",), index="cpu")
    assert [str(pin) for pin in compat.stack(cpu)] == ["torch==2.14.1+cpu"]


def test_an_index_that_the_release_lacks_is_contradicted_with_what_fits(compat: Compat) -> None:
    found = contradiction(compat, replace(CUDA13, torch="2.8.0", index="cu130"))
    assert found.reason == "torch 2.8.0 has no wheels for cuda 13.0"
    assert "torch 2.9.1, 2.10.0" in found.fits
    assert "index cu126, cu128, cu129 for torch 2.8.0" in found.fits


def test_pypi_holds_another_cuda_than_the_row_says(compat: Compat) -> None:
    found = contradiction(compat, replace(CUDA13, torch="2.15.0"))
    assert found.reason == "index pypi holds torch 2.15.0 for nvidia 13.2, not for nvidia 13.0"


def test_an_index_of_another_vendor_is_contradicted(compat: Compat) -> None:
    found = contradiction(compat, replace(CUDA13, index="rocm7.14"))
    assert "index rocm7.14 holds torch 2.14.1 for amd 7.14" in found.reason


def test_a_target_without_code_is_contradicted_with_the_wheels_that_have_it(
    compat: Compat,
) -> None:
    wanted = replace(
        CUDA13, toolkit="12.6", index="cu126", torch="2.13.0", targets=("sm_90", "sm_120")
    )
    found = contradiction(compat, wanted)
    assert found.reason.startswith("sm_120 is not served by torch 2.13.0 from index cu126")
    assert "torch 2.13.0 on cu130, cu132" in found.fits


def test_sm_89_is_served_by_code_for_sm_86(compat: Compat) -> None:
    assert compat.judge(replace(CUDA13, targets=("sm_89",))) == ()


def test_a_newer_gpu_is_served_by_ptx_alone(compat: Compat) -> None:
    ptx = replace(CUDA13, targets=("sm_121",))
    assert compat.judge(ptx) == ()
    without = replace(ptx, torch="2.8.0", toolkit="12.6", index="cu126")
    assert "sm_121 is not served" in contradiction(compat, without).reason


def test_gfx950_needs_a_rocm_that_lists_it(compat: Compat) -> None:
    found = contradiction(compat, replace(ROCM64, targets=("gfx950",)))
    assert "torch 2.10.0 on rocm7.0" in found.fits


def test_listed_is_not_usable(compat: Compat) -> None:
    found = contradiction(compat, replace(ROCM64, targets=("gfx906",)))
    assert "rocBLAS" in found.reason
    earlier = replace(ROCM64, targets=("gfx906",), toolkit="6.3", index="rocm6.3")
    assert compat.judge(earlier) == ()


@pytest.mark.parametrize(("torch", "python"), [("2.14.1", "3.9"), ("2.4.1", "3.13")])
def test_a_python_too_old_or_too_new_is_contradicted(
    compat: Compat, torch: str, python: str
) -> None:
    index = "pypi" if torch == "2.14.1" else "cu121"
    toolkit = "13.0" if torch == "2.14.1" else "12.1"
    wanted = replace(
        CUDA13, torch=torch, python=python, index=index, toolkit=toolkit, targets=("sm_90",)
    )
    found = contradiction(compat, wanted)
    assert found.reason == f"torch {torch} has no wheels for python {python}"
    assert found.fits.startswith("python 3.")


def test_a_base_with_too_old_a_glibc_is_contradicted(compat: Compat) -> None:
    found = contradiction(compat, replace(CUDA13, glibc="2.27"))
    assert found.reason == "torch 2.14.1 needs glibc 2.28, the base has 2.27"


def test_an_unknown_release_is_unknown_and_its_neighbour_named(compat: Compat) -> None:
    assert "torch 2.14.7 is not in the compat table (2.14.0, 2.14.1 is)" in reasons(
        compat, replace(CUDA13, torch="2.14.7")
    )


ROCM10 = replace(ROCM64, toolkit="10.0", torch="2.13.0", index="amd-rocm10.0")


def test_a_row_of_amds_own_index_pins_its_extras_its_label_and_its_companions(
    compat: Compat,
) -> None:
    wanted = replace(ROCM10, targets=("gfx942", "gfx1250-strict"), companions=COMPANIONS)
    assert [str(pin) for pin in compat.stack(wanted)] == [
        "torch[device-gfx942,device-gfx1250]==2.13.0+rocm10.0.0",
        "torchvision[device-gfx942,device-gfx1250]==0.28.0+rocm10.0.0",
        "torchaudio==2.11.0.2+rocm10.0.0",
    ], "the owner of a target's package, none for audio, and a triton that torch itself demands"
    assert compat.judge(replace(ROCM10, companions=COMPANIONS)) == ()


def test_a_target_without_a_device_package_is_contradicted_with_those_that_have_one(
    compat: Compat,
) -> None:
    found = contradiction(compat, replace(ROCM10, targets=("gfx1251",)))
    assert "gfx1251 is not served by torch 2.13.0 from index amd-rocm10.0" in found.reason
    assert "gfx1250" in found.reason
    assert compat.judge(replace(ROCM10, targets=("gfx1250",))) == ()


@pytest.mark.parametrize(
    ("torch", "index", "target", "is_refused"),
    [
        ("2.12.0", "amd-rocm7.14", "gfx90a", True),
        ("2.12.0", "amd-rocm7.14", "gfx942", False),
        ("2.11.0", "amd-rocm7.14", "gfx90a", False),
        ("2.14.1", "rocm7.14", "gfx90a", False),
    ],
)
def test_gfx90a_with_amds_torch_2_12_of_7_14_is_refused_and_nothing_beside_it(
    compat: Compat, torch: str, index: str, target: str, *, is_refused: bool
) -> None:
    """Empty archives for xnack+ and xnack- (ROCm/TheRock#7081)."""
    wanted = replace(ROCM64, toolkit="7.14", torch=torch, index=index, targets=(target,))
    judgement = compat.judge(wanted)
    assert isinstance(judgement, Contradicted) is is_refused, judgement
    if isinstance(judgement, Contradicted):
        assert "hipErrorInvalidImage" in judgement.reason
        assert judgement.fits.startswith("another release of torch, or a toolkit before 7.14")


def test_a_nightly_comes_from_the_nightly_index_of_its_toolkit_and_a_release_never(
    compat: Compat,
) -> None:
    night = "2.16.0.dev20261120"
    found = compat.index_for("nvidia", "13.4", night)
    assert found == "nightly-cu134"
    assert compat.table.indexes[found].url == "https://download.pytorch.org/whl/nightly/cu134"
    wanted = replace(CUDA13, toolkit="13.4", index="nightly-cu134", torch=night)
    assert [str(pin) for pin in compat.stack(wanted)] == [f"torch=={night}+cu134"]
    assert "is not in the compat table" in reasons(compat, wanted)
    assert compat.index_for("nvidia", "13.0", "2.14.1") == "cu130"
    assert compat.index_for("amd", "10.0", night) == "nightly-rocm10.0"


def test_companions_of_an_unknown_release_cannot_be_paired(compat: Compat) -> None:
    found = contradiction(compat, replace(CUDA13, torch="2.99.0", companions=COMPANIONS))
    assert "torchvision and torchaudio" in found.reason


def test_a_release_near_its_day_leaves_its_indexes_open(compat: Compat) -> None:
    wanted = replace(CUDA13, toolkit="13.4", index="cu134")
    assert "torch 2.14.1 on index cu134 is not evidenced" in reasons(compat, wanted)
    gone = replace(CUDA13, torch="2.15.0", toolkit="12.6", index="cu126", targets=("sm_90",))
    assert "no wheels for cuda 12.6" in contradiction(compat, gone).reason


def test_torchaudio_of_another_cuda_is_unknown(compat: Compat) -> None:
    wanted = replace(CUDA13, torch="2.15.0", toolkit="13.2", companions=("torchaudio",))
    assert "torchaudio 2.11.0" in reasons(compat, wanted)


def test_an_arch_list_that_nobody_read_is_unknown(compat: Compat) -> None:
    wanted = replace(ROCM64, torch="2.14.1", toolkit="7.14", index="rocm7.14")
    assert "arch list of torch 2.14.1 on index rocm7.14" in reasons(compat, wanted)


def test_hardware_without_a_name_we_know_is_unknown(compat: Compat) -> None:
    assert "sm_130: no nvidia hardware" in reasons(compat, replace(CUDA13, targets=("sm_130",)))


def test_gaudi_s_torch_goes_with_its_base(compat: Compat) -> None:
    gaudi = Combination(
        machine="x86_64",
        vendor="gaudi",
        toolkit="1.24.1",
        targets=("gaudi2",),
        python="3.12",
        torch="2.11.0",
        index="",
    )
    assert compat.judge(gaudi) == ()
    assert compat.stack(gaudi) == ()
    assert contradiction(compat, replace(gaudi, torch="2.10.0")).fits.startswith("torch 2.11.0")
    assert "1.99.0" in reasons(compat, replace(gaudi, toolkit="1.99.0"))


def test_an_index_is_looked_up_never_spelled(compat: Compat) -> None:
    index = compat.index_for("nvidia", "13.0", "2.14.1")
    assert index == "cu130"
    assert compat.table.indexes[index].url == "https://download.pytorch.org/whl/cu130"
    assert compat.index_for("nvidia", "13.0", "2.8.0") == ""
    assert compat.index_for("nvidia", "12.7", "2.14.1") == ""


def test_every_table_index_has_a_vendor_and_an_https_address(compat: Compat) -> None:
    for index in compat.table.indexes.values():
        assert index.vendor in VENDORS
        assert index.url.startswith("https://")


def broken_table(**changes: object) -> str:
    table = {
        "schema": 1,
        "as_of": "2026-11-21",
        "machine": "x86_64",
        "sources": {},
        "drivers": [],
        "indexes": {"pypi": {"url": "https://pypi.org/simple", "vendor": "nvidia"}},
        "arch_sets": {},
        "unusable": [],
        "base_torch": [],
        "releases": [],
    }
    return yaml.safe_dump(table | changes)


def test_a_table_that_points_nowhere_is_refused() -> None:
    source = {"confidence": "high", "source": "x"}
    paired = {"version": "1.0", **source}
    release = {
        "torch": "2.0.0",
        "python": ["3.11"],
        "manylinux": "manylinux1",
        "pypi": {"toolkit": "12.1", "triton": "3.0.0", **source},
        "indexes": {"names": ["cu999"], **source},
        "torchvision": paired,
        "torchaudio": paired,
        "rocm_triton": {"name": "triton-rocm", "source": "x"},
        "cuda_archs": {"sets": {"pypi": "A1"}, **source},
    }
    with pytest.raises(MatrixError) as caught:
        Compat(read_table(broken_table(releases=[release, release]), path="c.yaml"))
    assert {problem.message for problem in caught.value.problems} == {
        "index cu999 is not in indexes:",
        "arch set A1 is not in arch_sets:",
        "torch 2.0.0 is listed twice",
    }
    assert all(problem.line for problem in caught.value.problems)
    assert {problem.hint for problem in caught.value.problems} == {"name one that the table has"}


def test_a_table_with_an_unknown_vendor_or_key_is_refused() -> None:
    foreign = {"pypi": {"url": "https://pypi.org/simple", "vendor": "nvidai"}}
    with pytest.raises(MatrixError, match="`vendor` cannot be `nvidai`"):
        Compat(read_table(broken_table(indexes=foreign), path="c.yaml"))
    with pytest.raises(MatrixError, match="unknown key `relases`"):
        Compat(read_table(broken_table(relases=[]), path="c.yaml"))


def test_of_another_machine_s_wheels_the_table_says_that_it_does_not_know() -> None:
    """Also where their archs are concerned: each machine's wheels are compiled anew."""
    compat = packaged()
    arm = replace(CUDA13, machine="aarch64", index="cu130", targets=("sm_90",))
    assert compat.judge(replace(arm, machine="x86_64")) == ()
    judgement = compat.judge(arm)
    assert isinstance(judgement, tuple)
    (reason,) = judgement
    assert reason.startswith("the compat table is about wheels for x86_64; it does not say")
    assert reason.endswith("torch 2.14.1 from index cu130 has one for aarch64")
    assert isinstance(compat.judge(replace(arm, index="cu126")), Contradicted)


@pytest.mark.parametrize(
    ("wanted", "name"), [(CUDA13, "triton"), (ROCM64, "pytorch-triton-rocm")], ids=["cuda", "rocm"]
)
def test_each_toolkit_has_its_own_triton_and_a_cpu_has_none(wanted: Combination, name: str) -> None:
    compat = packaged()
    release = compat.release(wanted.torch)
    assert release is not None
    assert release.triton(VENDORS[wanted.vendor].toolkit)[0] == name
    assert release.triton(None) == ("", "")
    assert release.archs(None) is None
