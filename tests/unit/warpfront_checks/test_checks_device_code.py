"""`load` finds a target whose device code is missing, without a device; and a ROCm release by what
torch says of its build.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from standins import stand_in_kpack

from warpfront_checks import load
from warpfront_checks.claims import Claims
from warpfront_checks.distributions import Installed
from warpfront_checks.load import record_facts
from warpfront_checks.results import FAILED, PASSED
from warpfront_checks.torch_devices import rocm_release

LABEL = "2.13.0+rocm10.0.0"
CLAIMS = Claims(
    cell="demo",
    target="gfx90a",
    vendor="amd",
    device="cuda",
    python="3.13",
    toolkit=("rocm", "10.0"),
    versions={"torch": LABEL},
    archs=("gfx90a",),
)
DEMAND = f'amd-torch-device-gfx90a=={LABEL} ; extra == "device-gfx90a"'


def a_torch(version: str, hip: str | None, folder: Path, **more: str) -> SimpleNamespace:
    return SimpleNamespace(
        __version__=version,
        __file__=str(folder / "torch" / "__init__.py"),
        version=SimpleNamespace(hip=hip, cuda=None, **more),
        cuda=SimpleNamespace(get_arch_list=lambda: ["gfx90a"]),
        _C=SimpleNamespace(),
    )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(sys.modules, "torch", a_torch(LABEL, "7.15.26333", tmp_path))
    (tmp_path / "torch" / ".kpack").mkdir(parents=True)
    return tmp_path


def installed(*names: str) -> Installed:
    versions = dict.fromkeys(("torch", *names), (LABEL,))
    return Installed(versions=versions, requirements={"torch": (DEMAND,)})


WHOLE = installed("amd-torch-device-gfx90a")


def put(site: Path, name: str, content: bytes) -> None:
    (site / "torch" / ".kpack" / name).write_bytes(content)


def test_code_for_the_target_passes_with_how_much_there_is(site: Path) -> None:
    put(site, "torch_gfx90a.kpack", stand_in_kpack({"gfx90a": 7}))
    found = load.find_device_code(CLAIMS, WHOLE)
    assert (found.outcome, found.reason) == (PASSED, "7 code objects for gfx90a in 1 archives")


def test_a_missing_device_package_fails_before_a_device_does(site: Path) -> None:
    put(site, "torch_gfx1100.kpack", stand_in_kpack({"gfx1100": 7}))
    found = load.find_device_code(CLAIMS, installed())
    assert found.outcome == FAILED
    assert "torch[device-gfx90a] brings it" in found.reason
    assert "its archives have code for gfx1100, none for gfx90a" in found.reason


def test_a_package_whose_archive_is_gone_or_empty_fails(site: Path) -> None:
    put(site, "torch_gfx90a.kpack", stand_in_kpack({}, listed=["gfx90a"]))
    assert load.find_device_code(CLAIMS, WHOLE).outcome == FAILED
    put(site, "torch_gfx90a.kpack", b"KPAK")
    assert "cannot be read" in load.find_device_code(CLAIMS, WHOLE).reason


def test_empty_xnack_archives_fail_where_hip_takes_them_first(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TheRock#7081: the plain archive is whole, and MI250 reports gfx90a:sramecc+:xnack-."""
    put(site, "torch_gfx90a.kpack", stand_in_kpack({"gfx90a": 7}))
    put(site, "torch_gfx90a:xnack-.kpack", stand_in_kpack({"gfx90a:xnack-": 1}))
    found = load.find_device_code(CLAIMS, WHOLE)
    assert found.outcome == FAILED
    assert found.reason == "torch for gfx90a:xnack- has 1 of the 7 code objects of gfx90a"
    monkeypatch.setitem(sys.modules, "torch", a_torch("2.14.0+rocm10.1.0", "7.16.1", site))
    later = load.find_device_code(CLAIMS, WHOLE)
    assert later.outcome == PASSED
    assert later.details["variants"] == [found.reason]


@pytest.mark.usefixtures("site")
def test_a_wheel_with_its_code_inside_has_no_archives_and_says_so() -> None:
    fat = Installed(versions={"torch": (LABEL,)}, requirements={})
    found = load.find_device_code(CLAIMS, fat)
    assert found.outcome == PASSED
    assert "in the libraries themselves" in found.reason


@pytest.mark.parametrize(
    ("version", "hip", "more", "release"),
    [
        ("2.8.0+rocm6.4", "6.4.43482", {}, "6.4"),
        ("2.14.1+rocm7.14", "7.14.60850", {}, "7.14"),
        (LABEL, "7.15.26333", {}, "10.0"),
        ("2.14.0+rocm10.1.0", "7.16.1", {}, "10.1"),
        ("2.14.0a0+git0d62256", "7.15.1", {"rocm": "10.0.0"}, "10.0"),
        ("2.14.0a0+git0d62256", "7.2.1", {}, "7.2"),
        ("2.13.0+cu130", None, {}, ""),
    ],
)
def test_the_rocm_release_is_not_hips_number_from_10_on(
    tmp_path: Path, version: str, hip: str | None, more: dict[str, str], release: str
) -> None:
    assert rocm_release(a_torch(version, hip, tmp_path, **more)) == release


@pytest.mark.usefixtures("site")
def test_a_rocm_10_build_is_what_its_cell_claims() -> None:
    assert load.match_build(CLAIMS).outcome == PASSED
    assert record_facts(WHOLE, {}).reason == "torch 2.13.0+rocm10.0.0 rocm10.0"
    other = load.match_build(replace(CLAIMS, toolkit=("rocm", "7.15")))
    assert other.reason == "torch is built for HIP 7.15.26333 (ROCm 10.0), not ROCm 7.15"


def test_a_label_of_another_release_than_hips_is_a_fault(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = "2.13.0+rocm7.2"
    monkeypatch.setitem(sys.modules, "torch", a_torch(version, "6.4.43482", site))
    cell = replace(CLAIMS, toolkit=("rocm", "7.2"), versions={"torch": version})
    found = load.match_build(cell)
    assert found.outcome == FAILED
    assert found.reason == "its label is of ROCm 7.2, and its HIP 6.4.43482 of another release"
