"""A machine is held against its row before a job begins, and a busy device names who holds it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from fakes import FakeEngine
from hosts import BUILDER, H100, Heard, a_process

from warpfront.ci.device_processes import device_holders
from warpfront.ci.readiness import ROOM_BYTES, unready
from warpfront.commands.machine import named_runner, ready
from warpfront.errors import InputError, UnavailableError
from warpfront.matrix.runners import Runner
from warpfront_checks.hardware.values import Accelerator

DEVICE = Accelerator(vendor="nvidia", index=0, arch="sm_90")


def against(
    runner: Runner = H100,
    *devices: Accelerator,
    machine: str = "x86_64",
    holders: dict[int, str] | None = None,
    free: int | None = ROOM_BYTES,
) -> list[str]:
    found = unready(
        runner, machine=machine, accelerators=devices, holders=holders or {}, free_bytes=free
    )
    return list(found)


def test_a_machine_that_is_what_its_row_says_is_ready() -> None:
    assert against(H100, DEVICE) == []
    assert against(H100, DEVICE, free=None) == []
    assert against(BUILDER) == []
    assert against(dataclasses.replace(BUILDER, trust="hosted"), free=None) == []


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ((), "no sm_90 here: nothing of nvidia"),
        ((dataclasses.replace(DEVICE, arch="sm_80"),), "no sm_90 here: sm_80"),
        ((dataclasses.replace(DEVICE, usable=False),), "may not be opened by this user"),
        ((dataclasses.replace(DEVICE, vendor="amd"),), "no sm_90 here: nothing of nvidia"),
    ],
)
def test_a_device_that_is_not_there_is_said(devices: tuple[Accelerator, ...], said: str) -> None:
    (reason,) = against(H100, *devices)
    assert said in reason


def test_room_machine_and_who_holds_a_device_are_said() -> None:
    for trust in ("hosted", "self-hosted"):
        builder = dataclasses.replace(BUILDER, trust=trust)
        assert "free, and a job needs" in against(builder, free=ROOM_BYTES - 1)[0]
    assert "the row says x86_64" in against(BUILDER, machine="aarch64")[0]
    assert against(H100, DEVICE, holders={7: "python3"}) == ["process 7 (python3) holds a device"]
    assert against(BUILDER, holders={7: "python3"}) == []


def test_who_holds_a_device_is_read_from_the_kernel(tmp_path: Path) -> None:
    a_process(tmp_path, 1, "init", "/dev/null")
    a_process(tmp_path, 7, "python3", "/dev/null", "/dev/nvidia0")
    a_process(tmp_path, 8, "rocm", "/dev/kfd")
    a_process(tmp_path, 9, "nvidia-smi", "/dev/nvidiactl")
    a_process(tmp_path, 10, "nvidia-persiste", "/dev/nvidia0")
    a_process(tmp_path, 11, "gaudi", "/dev/accel/accel0")
    (tmp_path / "self").mkdir()
    (tmp_path / "12").mkdir()
    assert device_holders(tmp_path) == {7: "python3", 8: "rocm", 11: "gaudi"}


@pytest.mark.process
def test_what_an_earlier_job_left_goes_and_the_machine_is_judged() -> None:
    engine, watch = FakeEngine(), Heard()
    engine.abandoned = ["warpfront-x"]
    ready(BUILDER, watch, engine)
    assert watch.said == ["removed warpfront-x, which an earlier job left"]
    with pytest.raises(UnavailableError, match="not what `runners:` says of h100: no sm_999"):
        ready(dataclasses.replace(H100, targets=("sm_999",)), watch, engine)


def test_a_row_that_is_not_there_is_said_with_those_that_are() -> None:
    assert named_runner((H100, BUILDER), "builder") is BUILDER
    with pytest.raises(InputError, match="no runner is called 'x'") as caught:
        named_runner((H100,), "x")
    assert "h100" in caught.value.hint
