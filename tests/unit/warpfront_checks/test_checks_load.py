"""`load` against a torch that is a plain object: what it says of itself is all that is judged."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from warpfront.cli.sessions import claims_for_target
from warpfront_checks import load
from warpfront_checks.claims import Claims
from warpfront_checks.distributions import Installed
from warpfront_checks.results import (
    ERROR,
    FAILED,
    PASSED,
    CheckFinding,
    Recorder,
    failed,
    passed,
)
from warpfront_checks.stack.elf_symbols import Dynamic
from warpfront_checks.torch_devices import read_arch_list, read_facts


def fake_torch(
    version: str = "2.14.1+cu130", *, cuda: str | None = "13.0", hip: str | None = None
) -> SimpleNamespace:
    flags = "sm_80 sm_90 compute_120" if hip is None else "gfx90a gfx942"
    return SimpleNamespace(
        __version__=version,
        version=SimpleNamespace(cuda=cuda, hip=hip),
        cuda=SimpleNamespace(
            is_available=lambda: False,
            get_arch_list=list,
            init=lambda: None,
            device_count=lambda: 0,
        ),
        _C=SimpleNamespace(_cuda_getArchFlags=lambda: flags, __file__=sys.executable),
    )


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    module = fake_torch()
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def claims(
    *,
    version: str = "2.14.1",
    toolkit: tuple[str, str] | None = ("cuda", "13.0"),
    target: str = "sm_90",
) -> Claims:
    return Claims(
        cell="demo",
        target=target,
        vendor="nvidia",
        device="cuda",
        python="3.11",
        toolkit=toolkit,
        versions={"torch": version},
        archs=claims_for_target(target).archs,
    )


def test_a_wheel_without_label_is_judged_by_torchs_own_cuda_version(torch: SimpleNamespace) -> None:
    assert load.match_build(claims()).outcome == PASSED
    torch.version.cuda = "13.2"
    finding = load.match_build(claims())
    assert finding.outcome == FAILED
    assert finding.reason == "torch is built for CUDA 13.2, not 13.0"


@pytest.mark.parametrize(
    ("version", "toolkit", "complaint"),
    [
        ("2.14.0", ("cuda", "13.0"), "the lock has 2.14.0"),
        ("2.14.1+cu126", ("cuda", "13.0"), "the lock's label is +cu126"),
        ("2.14.1", ("rocm", "6.4"), "claimed is a ROCm build"),
        ("2.14.1", None, "claimed is a build for the CPU"),
    ],
)
def test_another_torch_than_claimed_fails(
    torch: SimpleNamespace, version: str, toolkit: tuple[str, str] | None, complaint: str
) -> None:
    cell = claims(version=version, toolkit=toolkit)
    if toolkit is None:
        cell = Claims(cell="c", target="cpu", vendor="cpu", device="cpu", python="3.11")
    assert torch.version.cuda
    finding = load.match_build(cell)
    assert finding.outcome == FAILED
    assert complaint in finding.reason


def test_a_hip_build_is_held_against_the_rocm_release(monkeypatch: pytest.MonkeyPatch) -> None:
    rocm = fake_torch("2.8.0+rocm6.4", cuda=None, hip="6.4.43482")
    monkeypatch.setitem(sys.modules, "torch", rocm)
    cell = claims(version="2.8.0+rocm6.4", toolkit=("rocm", "6.4"), target="gfx942")
    assert load.match_build(cell).outcome == PASSED
    assert load.cover_target(cell).outcome == PASSED
    older = claims(version="2.8.0+rocm6.4", toolkit=("rocm", "6.3"), target="gfx950")
    assert load.match_build(older).outcome == FAILED
    assert "nothing for gfx950" in load.cover_target(older).reason


def test_the_arch_list_is_read_without_a_device(torch: SimpleNamespace) -> None:
    assert read_arch_list(torch) == ("sm_80", "sm_90", "compute_120")


@pytest.mark.parametrize(
    ("target", "outcome"), [("sm_90", PASSED), ("sm_89", PASSED), ("sm_75", FAILED)]
)
def test_an_arch_list_without_the_target_fails(
    torch: SimpleNamespace, target: str, outcome: str
) -> None:
    assert torch.version.cuda
    assert load.cover_target(claims(target=target)).outcome == outcome


def test_a_build_and_a_device_are_separate_facts(
    torch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    facts = read_facts(torch)
    assert (facts.build, facts.devices) == ("cuda", ())
    assert facts.obstacle
    assert facts.visibility["CUDA_VISIBLE_DEVICES"] == ""


def test_a_device_is_described_and_its_arch_stripped_of_features() -> None:
    torch = fake_torch("2.8.0+rocm6.4", cuda=None, hip="6.4.43482")
    properties = SimpleNamespace(
        name="",
        gcnArchName="gfx942:sramecc+:xnack-",
        major=9,
        minor=4,
        total_memory=196592 * 2**20,
        multi_processor_count=304,
    )
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.get_device_properties = lambda _: properties
    (device,) = read_facts(torch).devices
    assert (device.arch, device.multiprocessors) == ("gfx942", 304)


def test_another_python_than_claimed_fails() -> None:
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert load.match_python(Claims(**{**vars(claims()), "python": running})).outcome == PASSED
    assert load.match_python(Claims(**{**vars(claims()), "python": "3.1"})).outcome == FAILED


def test_another_machine_than_claimed_fails(torch: SimpleNamespace) -> None:
    assert torch.version.cuda
    assert load.match_machine(claims()).outcome == PASSED
    finding = load.match_machine(Claims(**{**vars(claims()), "machine": "s390x"}))
    assert finding.outcome == FAILED
    assert finding.reason.endswith("not s390x")


@pytest.mark.parametrize(("running", "claimed"), [("x86_64", "aarch64"), ("aarch64", "x86_64")])
def test_an_image_that_runs_on_another_machine_than_its_cells_fails(
    running: str, claimed: str, torch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where every file is for the machine that runs: then it is the wrong image."""
    assert torch.version.cuda
    monkeypatch.setattr(platform, "machine", lambda: running)
    monkeypatch.setattr(load, "dynamic_of", lambda _path: Dynamic(machine=running))
    fitting = load.match_machine(Claims(**{**vars(claims()), "machine": running}))
    finding = load.match_machine(Claims(**{**vars(claims()), "machine": claimed}))
    assert fitting.outcome == PASSED
    assert finding.outcome == FAILED
    assert finding.reason == f"this machine is {running}, not {claimed}"


def test_a_file_that_is_no_elf_is_said_to_be_none(
    torch: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert torch.version.cuda
    (tmp_path / "script").write_text("#!/bin/sh\n")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "script"))
    assert load.match_machine(claims()).reason.startswith("interpreter is built for no ELF file")


def test_a_lock_that_does_not_match_fails_and_a_second_torch_too() -> None:
    installed = Installed(versions={"torch": ("2.14.1", "2.15.0")})
    assert load.match_versions(claims(), installed).outcome == PASSED
    assert load.match_versions(claims(version="2.14.0"), installed).outcome == FAILED
    assert load.find_duplicates(claims(), installed).outcome == FAILED


@pytest.mark.process
def test_what_nobody_claimed_is_noted_and_not_counted_as_passed(
    tmp_path: Path, torch: SimpleNamespace
) -> None:
    assert torch.version.cuda
    recorder = Recorder(session="load", target="cpu", folder=tmp_path)
    load.record_load(claims_for_target("cpu"), recorder)
    recorder.finish()
    document = json.loads((tmp_path / "load.json").read_text())
    unclaimed = {entry["name"] for entry in document["unclaimed"]}
    assert {"versions", "python version"} <= unclaimed
    assert not unclaimed & {check["name"] for check in document["checks"]}
    assert not unclaimed & set(document["planned"])


def boom() -> None:
    raise LookupError("no kernel image")


def raising() -> CheckFinding:
    boom()
    return passed()


def test_a_check_that_raises_is_an_error_and_the_rest_go_on(tmp_path: Path) -> None:
    recorder = Recorder(session="load", target="cpu", folder=tmp_path)
    recorder.run({"bad": raising, "good": passed})
    assert not recorder.finish()
    bad, good = json.loads((tmp_path / "load.json").read_text())["checks"]
    assert (bad["outcome"], good["outcome"]) == (ERROR, PASSED)
    assert bad["reason"].startswith("LookupError at test_checks_load.py:")
    assert "no kernel image" in bad["reason"]


def test_a_session_that_dies_leaves_what_it_planned(tmp_path: Path) -> None:
    def die() -> CheckFinding:
        raise SystemExit(139)

    recorder = Recorder(session="numerics", target="cpu", folder=tmp_path)
    with pytest.raises(SystemExit):
        recorder.run({"first": passed, "second": die})
    document = json.loads((tmp_path / "numerics.json").read_text())
    assert document["planned"] == ["first", "second"]
    assert [check["name"] for check in document["checks"]] == ["first"]
    assert document["finished"] is False


def test_a_session_passes_only_if_everything_planned_passed(tmp_path: Path) -> None:
    recorder = Recorder(session="s", target="cpu", folder=tmp_path)
    assert not recorder.finish()
    recorder.run({"a": passed})
    assert recorder.finish()
    recorder.plan(["b"])
    assert not recorder.finish()
    recorder.run({"b": lambda: failed("wrong")})
    assert not recorder.finish()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_an_extension_that_does_not_load_beside_this_torch_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: SimpleNamespace
) -> None:
    assert torch.version.cuda
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "sound_extension.py").write_text("")
    (tmp_path / "other_extension.py").write_text("raise ImportError('undefined symbol: _ZN3c10')")
    assert load.import_extension("sound_extension").outcome == PASSED
    found = load.import_extension("other_extension")
    assert (found.outcome, "undefined symbol" in found.reason) == (FAILED, True)
    assert load.import_extension("absent_extension").outcome == FAILED


def test_what_relaxed_packages_miss_is_told_apart() -> None:
    lines = ["vllm 1.0 has requirement torch==2.9.0, but you have torch 2.13.0.", "x 1 requires y"]
    relaxing = Claims(**{**vars(claims()), "guard": {"relaxed": {"vllm": "known"}}})
    assert load.split_relaxed(lines, relaxing) == (lines[:1], lines[1:])
    assert load.split_relaxed(lines, claims()) == ([], lines)


def test_the_shim_of_a_guard_owns_nothing_but_another_triton_does() -> None:
    versions = {"triton": ("3.4.0+x",), "pytorch-triton-rocm": ("3.4.0",)}
    shim = {"triton": ("pytorch-triton-rocm===3.4.0",)}
    relevant = Installed(versions=versions, requirements=shim)
    assert load.find_duplicates(claims(), relevant).outcome == PASSED
    assert load.find_duplicates(claims(), Installed(versions=versions)).outcome == FAILED


def test_the_facts_are_what_is_installed_and_compiled_in(torch: SimpleNamespace) -> None:
    assert torch.version.cuda
    environment: dict[str, object] = {}
    found = load.record_facts(Installed(versions={"torch": ("2.14.1",)}), environment)
    assert found.outcome == PASSED
    facts = environment["facts"]
    assert isinstance(facts, dict)
    assert facts["torch"] == "2.14.1"
    assert facts["toolkit"] == f"cuda{torch.version.cuda}"
    assert facts["archs"] == ["sm_80", "sm_90", "compute_120"]
    assert facts["protected"] is None


def test_policies_are_held_against_the_environment_and_advice_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = {"effect": "it is slow", "source": "https://example.org"}
    lazy = {"name": "PT_HPU_LAZY_MODE", "value": "0", "level": "set", **said}
    both = {"name": "PYTORCH_ALLOC_CONF", "value": "split.*True", "level": "forbid", **said}
    advised = {"name": "MIOPEN_USER_DB_PATH", "value": "a volume", "level": "advise", **said}
    own = replace(claims(), policies=(lazy, both, advised))
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "0")
    found = load.match_policies(own)
    assert (found.outcome, found.reason) == (PASSED, "advice: MIOPEN_USER_DB_PATH: a volume")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split:1,expandable:True")
    assert "PYTORCH_ALLOC_CONF is 'max_split:1,expandable:True'" in load.match_policies(own).reason
    monkeypatch.delenv("PT_HPU_LAZY_MODE")
    found = load.match_policies(replace(own, policies=(lazy,)))
    assert (found.outcome, found.reason[:24]) == (FAILED, "PT_HPU_LAZY_MODE is None")
