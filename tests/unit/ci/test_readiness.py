"""A machine is held against its row before a job begins, and a busy device names who holds it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from fakes import FakeEngine

from warpfront.ci.holders import device_holders
from warpfront.ci.readiness import ROOM_BYTES, unready
from warpfront.errors import InputError, UnavailableError
from warpfront.inside.checks.hardware.values import Accelerator
from warpfront.matrix.runners import Runner
from warpfront.pipeline.beside.readying import named_runner, ready

H100 = Runner(
    name="h100",
    trust="self-hosted",
    labels=("h100",),
    group="",
    machine="x86_64",
    builds=False,
    vendor="nvidia",
    targets=("sm_90",),
    count=1,
    engine="theirs",
)
BUILDER = dataclasses.replace(H100, name="builder", vendor="", targets=(), builds=True)
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
    assert against(dataclasses.replace(BUILDER, trust="hosted"), free=1) == []


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
    assert "free, and a job needs" in against(BUILDER, free=ROOM_BYTES - 1)[0]
    assert "the row says x86_64" in against(BUILDER, machine="aarch64")[0]
    assert against(H100, DEVICE, holders={7: "python3"}) == ["process 7 (python3) holds a device"]
    assert against(BUILDER, holders={7: "python3"}) == []


def a_process(proc: Path, pid: int, name: str, *opened: str) -> None:
    folder = proc / str(pid) / "fd"
    folder.mkdir(parents=True)
    (proc / str(pid) / "comm").write_text(f"{name}\n")
    for number, path in enumerate(opened):
        (folder / str(number)).symlink_to(path)


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


class Heard:
    """A watch that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None: ...


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
