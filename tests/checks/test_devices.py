"""Devices and collectives: gloo on the CPU stands in for a device's own library here, so these test
our code and no device. Needs torch; the integration tests run it inside the image.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from claimed import CPU  # noqa: E402
from kernels.seeding import collectives as seeding_faults  # noqa: E402
from kernels.seeding.collectives import FAULTS  # noqa: E402
from rank_threads import exchange_in_threads  # noqa: E402

from warpfront_checks import children  # noqa: E402
from warpfront_checks.cases.measured import ByPeer  # noqa: E402
from warpfront_checks.cases.run import reference_of, run_case  # noqa: E402
from warpfront_checks.children import DONE, Returned  # noqa: E402
from warpfront_checks.devices import device_session  # noqa: E402
from warpfront_checks.devices import device_session as roll_call  # noqa: E402
from warpfront_checks.devices.device_session import (  # noqa: E402
    OPERATIONS,
    Group,
    Told,
    copy_across,
    every_device,
    exchange,
    judge_operation,
    part_of,
    places_of,
    record_devices,
    use_device,
)
from warpfront_checks.golden.vectors import case_of  # noqa: E402
from warpfront_checks.hardware import read_hardware  # noqa: E402
from warpfront_checks.hardware.recording import Recorded  # noqa: E402
from warpfront_checks.results import Recorder  # noqa: E402
from warpfront_checks.torch_devices import Device, TorchFacts  # noqa: E402

RECORDINGS = Path(__file__).parents[1] / "detect"


def facts(*archs: str) -> TorchFacts:
    devices = tuple(
        Device(index=i, name="NVIDIA H200", arch=arch, memory_bytes=0, multiprocessors=132)
        for i, arch in enumerate(archs)
    )
    return TorchFacts(build="cuda", devices=devices, obstacle="", visibility={}, nodes=())


def test_every_visible_device_has_a_place_and_the_cpu_is_one() -> None:
    assert places_of("cuda", facts("sm_90", "sm_90")) == ["cuda:0", "cuda:1"]
    assert places_of("cpu", facts()) == ["cpu"]


def test_a_device_that_torch_does_not_see_is_a_failure() -> None:
    hardware = read_hardware(Recorded(RECORDINGS / "nvidia-h200-x2"))
    assert every_device(facts("sm_90", "sm_90"), hardware, ["cuda:0", "cuda:1"]).outcome == "passed"
    one = every_device(facts("sm_90"), hardware, ["cuda:0"])
    assert one.outcome == "failed"
    assert one.reason == "2 of 2 devices of nvidia should be visible, torch sees 1"


def test_devices_of_several_archs_are_a_failure() -> None:
    hardware = read_hardware(Recorded(RECORDINGS / "none"))
    mixed = TorchFacts(
        build="cuda", devices=facts("sm_90", "sm_80").devices, obstacle="", visibility={}, nodes=()
    )
    assert every_device(mixed, hardware, ["cuda:0", "cuda:1"]).outcome == "failed"


def test_the_cpu_computes_the_suite_and_a_wrong_answer_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert use_device("cpu").outcome == "passed"
    monkeypatch.setattr(roll_call, "run_case", changed(lambda x: x * 1.03))
    finding = use_device("cpu")
    assert finding.outcome == "failed"
    assert "of 153 are wrong" in finding.reason


def changed(change: Any) -> Any:
    """Run a case whose call has another result."""

    def run(case: Any, **options: Any) -> Any:
        def function(*arguments: Any) -> Any:
            names = {each.name: x for each, x in zip(case.arguments, arguments, strict=True)}
            return change(eval(case.code, {**names, "F": torch.nn.functional}))

        return run_case(case, function=function, **options)

    return run


def test_results_on_another_device_than_asked_are_caught() -> None:
    case = case_of("gelu", "float32", "cpu")
    bounds = ByPeer(case, reference_of(case))
    exact = torch.ones(1, dtype=torch.float64)
    moved = torch.ones(1, device="meta")
    assert bounds.fault_of_form(0, moved, exact) == "on meta, expected on cpu"
    second = ByPeer(replace(case, device="meta:1"), reference_of(case))
    assert second.fault_of_form(0, moved, exact) == "on meta, expected on meta:1"
    kind = ByPeer(replace(case, device="meta"), reference_of(case))
    assert kind.fault_of_form(0, moved, exact) == ""


def test_a_copy_that_arrives_elsewhere_is_caught() -> None:
    assert copy_across("cpu", "cpu").outcome == "passed"
    with pytest.raises((RuntimeError, NotImplementedError)):
        copy_across("cpu", "meta")


class Alone(Group):
    """A world of two in one process, where the other rank is computed."""

    def all_reduce(self, x: Any, largest: bool) -> Any:  # noqa: FBT001 - as in Group
        other = self.other(x)
        return torch.maximum(x, other) if largest else x + other

    def other(self, x: Any) -> Any:
        return part_of(1 - self.rank, str(x.dtype).removeprefix("torch."), len(x))


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "bfloat16", "float16"])
def test_sums_are_exact_for_integers_and_within_rounding_for_others(dtype: str) -> None:
    assert judge_operation(Alone(0, 2), "all_reduce", dtype, "cpu") == ""


@pytest.mark.parametrize(
    ("dtype", "change"),
    [
        ("int64", lambda x: x + (torch.arange(len(x)) == len(x) // 2)),
        ("float32", lambda x: x * 1.0001),
        ("bfloat16", lambda x: x * 1.03),
        ("float16", lambda x: x * float("nan")),
        ("float32", lambda x: x.double()),
    ],
)
def test_a_sum_that_is_wrong_is_caught(dtype: str, change: Any) -> None:
    class Wrong(Alone):
        def all_reduce(self, x: Any, largest: bool) -> Any:  # noqa: FBT001 - as in Group
            return change(super().all_reduce(x, largest))

    assert judge_operation(Wrong(0, 2), "all_reduce", dtype, "cpu").startswith("all_reduce of")


def test_ranks_that_exchange_right_pass_in_every_operation(tmp_path: Path) -> None:
    told = exchange_in_threads(tmp_path)
    assert {told.finding(name, "gloo").outcome for name in OPERATIONS} == {"passed"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_is_caught_in_its_operations_and_in_no_other(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = exchange_in_threads(tmp_path, fault=fault)
    monkeypatch.setattr(seeding_faults, "exchange", lambda *_: told)
    finding = seeding_faults._caught(CPU, 2, fault)
    assert finding.outcome == "passed", finding.reason
    wrong = {name for name in OPERATIONS if told.finding(name, "gloo").outcome == "failed"}
    assert wrong == set(FAULTS[fault][1])


def test_a_fault_that_nobody_notices_fails_the_selftest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = exchange_in_threads(tmp_path)
    monkeypatch.setattr(seeding_faults, "exchange", lambda *_: told)
    finding = seeding_faults._caught(CPU, 2, "nothing arrives")
    assert finding.outcome == "failed"
    assert finding.reason == "caught in [], seeded in ['broadcast', 'send and receive']"


def test_what_a_backend_refuses_is_told_from_what_it_breaks() -> None:
    class Poor(Group):
        def __init__(self, said: str) -> None:
            super().__init__(0, 2)
            self.said = said

        def broadcast(self, x: Any, source: int) -> Any:
            del x, source
            raise RuntimeError(self.said)

    lacks = device_session._result(Poor("gloo does not support broadcast"), "broadcast", "cpu")
    assert lacks == {"fault": "", "unsupported": "gloo does not support broadcast"}
    broken = device_session._result(Poor("connection reset"), "broadcast", "cpu")
    assert broken == {"fault": "RuntimeError: connection reset", "unsupported": ""}


@pytest.mark.process
@pytest.mark.usefixtures("forks")
def test_a_fault_between_two_processes_over_gloo_is_caught() -> None:
    finding = seeding_faults._caught(CPU, 2, "one rank left out")
    assert finding.outcome == "passed", finding.reason


@pytest.mark.process
def test_a_rank_that_dies_is_an_error_and_not_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    told = exchange.__wrapped__("cpu", 2)
    finding = told.finding("broadcast", "gloo")
    assert finding.outcome == "error"
    assert "rank 0 left no answer: crashed: exit 1" in finding.reason


@pytest.mark.process
def test_a_rank_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading torch alone takes longer than it is given."""
    monkeypatch.setattr(roll_call, "TIME_LIMIT_SECONDS", 0.2)
    monkeypatch.setattr(children, "START_SECONDS", 0.2)
    told = exchange.__wrapped__("cpu", 2)
    assert "hung: no answer in 0 s" in told.finding("broadcast", "gloo").reason


def answered(document: dict[str, Any]) -> Returned:
    return Returned(item={}, place=0, outcome=DONE, seconds=0.0, document=document)


def test_one_rank_that_disagrees_fails_the_operation() -> None:
    good = {name: {"fault": "", "unsupported": ""} for name in OPERATIONS}
    bad = {**good, "broadcast": {"fault": "broadcast of 33 int64: wrong", "unsupported": ""}}
    told = Told([answered(good), answered(bad)])
    assert told.finding("broadcast", "nccl").reason == "rank 1: broadcast of 33 int64: wrong"
    assert told.finding("all_gather", "nccl").outcome == "passed"


def test_an_operation_that_a_backend_lacks_is_no_pass() -> None:
    lacking = {name: {"fault": "", "unsupported": "not supported"} for name in OPERATIONS}
    told = Told([answered(lacking)])
    assert told.finding("broadcast", "nccl").outcome == "failed"


@pytest.mark.process
@pytest.mark.usefixtures("forks")
def test_the_session_passes_on_the_cpu_and_calls_gloo_a_stand_in(tmp_path: Path) -> None:
    recorder = Recorder(session="devices", target="cpu", folder=tmp_path)
    record_devices(CPU, recorder)
    recorder.finish()
    checks = json.loads((tmp_path / "devices.json").read_text())["checks"]
    assert {check["outcome"] for check in checks} == {"passed"}
    names = [check["name"] for check in checks]
    assert "all_reduce (gloo on the CPU, a stand-in)" in names
    assert names[:3] == ["all devices", "dtypes", "device cpu"]
