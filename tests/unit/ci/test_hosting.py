"""A machine of one's own: tidied of what jobs left and of nothing else, registered for one job at a
time by a token that nobody can read off it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import FakeEngine
from hosts import BUILDER, H100, Heard, a_process
from loopback import running

from warpfront.ci import device_processes as holders
from warpfront.ci.device_processes import device_holders, end_left_behind
from warpfront.ci.readiness import ROOM_BYTES, SPARE_FOLDERS
from warpfront.commands import machine
from warpfront.commands.machine import JIT_VARIABLE, JobSource, _make_room, prepare, serve, tidy
from warpfront.errors import CommandFailedError, InputError, UnavailableError
from warpfront.images.engine.protocol import Features, StoredImage
from warpfront.images.labels import CELL
from warpfront.matrix.cell import HostDevices
from warpfront.system.process import Command, Completed

TOKEN = "a canary that no list of processes shows"
OWN = dataclasses.replace(BUILDER, labels=("self-hosted", "builder"))


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its devices nor who holds them."""
    monkeypatch.setattr(machine, "device_holders", dict)
    monkeypatch.setattr(machine, "end_left_behind", dict)
    monkeypatch.setattr(machine, "read_hardware", lambda _machine: SimpleNamespace(accelerators=()))


# --- what is left behind ---


def a_job(proc: Path, pid: int, parent: int, *environment: str) -> None:
    a_process(proc, pid, "python3", "/dev/nvidia0")
    folder = proc / str(pid)
    (folder / "stat").write_text(f"{pid} (python3 (x) y) S {parent} 1 1")
    (folder / "environ").write_bytes(b"\0".join(one.encode() for one in environment))


def test_only_orphans_of_jobs_that_hold_a_device_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_job(tmp_path, 7, 1, "PATH=/bin", "GITHUB_RUN_ID=1")  # a job's, its shell is gone
    a_job(tmp_path, 8, 1, "CI_JOB_ID=1")
    a_job(tmp_path, 9, 7, "GITHUB_RUN_ID=1")  # a job's, and somebody waits for it
    a_job(tmp_path, 10, 1, "PATH=/bin", "MY_GITHUB_RUN_ID=1")  # a colleague's daemon
    a_process(tmp_path, 11, "gone", "/dev/nvidia0")
    killed = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    assert end_left_behind(tmp_path) == {7: "python3", 8: "python3"}
    assert sorted(killed) == [(7, signal.SIGKILL), (8, signal.SIGKILL)]
    assert {9, 10, 11} < set(device_holders(tmp_path))


@pytest.mark.process
def test_a_process_that_ended_by_itself_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setattr(holders, "device_holders", lambda _proc: {ended.pid: "python3"})
    monkeypatch.setattr(holders, "_is_orphan_of_a_job", lambda _folder: True)
    assert end_left_behind(tmp_path) == {ended.pid: "python3"}


class Filling(FakeEngine):
    """An engine whose disk has `free` bytes, and more with each image that goes."""

    def __init__(self, free: int, *images: StoredImage) -> None:
        super().__init__()
        self.free = free
        self.stored = {one.id: one for one in images}

    def features(self) -> Features:
        gone = {"a", "b", "stranger"} - self.stored.keys()
        return dataclasses.replace(
            super().features(), free_bytes=self.free + len(gone) * ROOM_BYTES
        )


def an_image(name: str, size: int, **labels: str) -> StoredImage:
    return StoredImage(
        id=name, references=(f"localhost/x/{name}:1",), labels=labels, size_bytes=size
    )


def test_room_is_made_of_our_own_images_the_largest_first_and_of_no_more_than_is_needed() -> None:
    images = (
        an_image("a", 5, **{CELL: "a"}),
        an_image("b", 9, **{CELL: "b"}),
        an_image("stranger", 99),
    )
    engine, watch = Filling(1, *images), Heard()
    tidy(OWN, watch, engine)
    assert engine.stored.keys() == {"a", "stranger"}
    assert watch.said == ["removed localhost/x/b:1 for its room"]
    hosted = Filling(1, *images)
    tidy(dataclasses.replace(OWN, trust="hosted"), Heard(), hosted)
    assert len(hosted.stored) == 3


@pytest.mark.parametrize(
    ("environment", "free", "removed"),
    [
        ({"RUNNER_ENVIRONMENT": "github-hosted"}, ROOM_BYTES - 5, 2),
        ({"RUNNER_ENVIRONMENT": "github-hosted"}, ROOM_BYTES, 0),
        ({"RUNNER_ENVIRONMENT": "self-hosted"}, 1, 0),
        ({}, 1, 0),
    ],
    ids=["short of room", "room enough", "a machine of one's own", "a laptop"],
)
def test_a_hosted_machine_makes_room_of_what_it_came_with_and_no_other_does(
    environment: dict[str, str], free: int, removed: int
) -> None:
    """Three bytes come back with each folder."""
    asked: list[tuple[str, ...]] = []

    class Disk(FakeEngine):
        def features(self) -> Features:
            return dataclasses.replace(super().features(), free_bytes=free + 3 * len(asked))

    def ran(command: Command) -> Completed:
        asked.append(command.argv)
        return Completed(command=command, returncode=0, stdout="", stderr="")

    watch = Heard()
    _make_room(watch, Disk(), environment, ran)
    rm = ("sudo", "-n", "rm", "-rf")
    assert asked == [(*rm, folder) for folder in SPARE_FOLDERS[:removed]]
    assert watch.said == [f"removed {one} for its room" for one in SPARE_FOLDERS[:removed]]
    assert all(one.startswith(("/usr/", "/opt/")) for one in SPARE_FOLDERS)


# --- getting ready ---


def ran(log: list[Command], returncode: int = 0) -> Any:
    def run(command: Command) -> Completed:
        log.append(command)
        return Completed(command=command, returncode=returncode, stdout="", stderr="no driver")

    return run


def missing(command: Command) -> Completed:
    raise CommandFailedError(f"{command.argv[0]} was not found")


def test_devices_are_described_to_the_engine_once_and_their_groups_named() -> None:
    log: list[Command] = []
    nodes = HostDevices(nodes={"/dev/kfd": 992, "/dev/dri/renderD128": 44})
    said = list(machine._described(dataclasses.replace(H100, vendor="amd"), nodes, ran(log)))
    assert "/dev/kfd (992)" in said[0]
    assert said[1].endswith("in the groups 44, 992")
    assert said[2] == "wrote /etc/cdi/amd.json"
    assert log[0].argv[0] == "amd-ctk"
    known = HostDevices(cdi=("nvidia.com/gpu=0",))
    assert list(machine._described(H100, known, ran(log))) == []
    (line,) = machine._described(H100, HostDevices(), missing)
    assert line == (
        "no CDI specification: nvidia-ctk was not found; devices are passed on by their nodes"
    )
    assert len(log) == 1


def test_a_machine_that_is_not_what_its_row_says_does_not_get_ready() -> None:
    prepare(OWN, Heard(), ran([]), FakeEngine())
    other = dataclasses.replace(OWN, machine="aarch64")
    with pytest.raises(UnavailableError, match="the row says aarch64"):
        prepare(other, Heard(), ran([]), FakeEngine())


# --- serving ---


class Github(ThreadingHTTPServer):
    """The part of GitHub's interface that registers: what it was asked, and what it answers."""

    status = 201

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.asked: list[tuple[str, str, Any]] = []

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/orgs/mine"


class Answering(BaseHTTPRequestHandler):
    server: Github  # type: ignore[mutable-override]

    def answer(self, body: object, status: int) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        self.server.asked.append(("GET", self.path, self.headers["Authorization"]))
        groups = [{"name": "Default", "id": 1}, {"name": "lab", "id": 4}]
        self.answer({"runner_groups": groups}, 200)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(("POST", self.path, body))
        self.answer({"encoded_jit_config": f"jit-{len(self.server.asked)}"}, self.server.status)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def github() -> Iterator[Github]:
    with running(Github()) as server:
        yield server


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    return tmp_path


def serving_with(
    github: Github, agent: Path, engine: FakeEngine, runner: Any = OWN, jobs: int = 2
) -> tuple[int, list[Command], list[float], Heard]:
    log: list[Command] = []
    pauses: list[float] = []
    watch, place = Heard(), JobSource(api=github.api, agent=agent, token=TOKEN)
    taken = serve(runner, place, watch, ran(log), jobs=jobs, pause=pauses.append, engine=engine)
    return taken, log, pauses, watch


def test_each_job_has_a_registration_of_its_own_and_no_argument_tells_it(
    github: Github, agent: Path
) -> None:
    in_lab = dataclasses.replace(OWN, group="lab")
    taken, log, _, watch = serving_with(github, agent, FakeEngine(), in_lab)
    assert taken == 2
    posts = [body for verb, _, body in github.asked if verb == "POST"]
    assert [one["runner_group_id"] for one in posts] == [4, 4]
    assert posts[0]["labels"] == ["self-hosted", "builder"]
    assert posts[0]["name"] != posts[1]["name"]
    groups = "/orgs/mine/actions/runner-groups?per_page=100&page=1"
    assert ("GET", groups, f"Bearer {TOKEN}") in github.asked
    given = [dict(one.environment or {}) for one in log]
    assert len({one[JIT_VARIABLE] for one in given}) == 2
    for command in log:
        assert command.argv == (str(agent / "run.sh"),)
    assert not any(TOKEN in str(one) or "jit-" in one for one in (*watch.said, *map(str, log)))


def test_a_machine_that_is_not_ready_registers_nowhere_and_is_looked_at_again(
    github: Github, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = iter([["no"], ["no"], [], []])
    monkeypatch.setattr(machine, "unready", lambda *_a, **_k: iter(next(busy)))
    taken, log, pauses, watch = serving_with(github, agent, FakeEngine())
    assert (taken, pauses, len(log)) == (2, [10.0, 60.0], 2)
    assert "looked at again in 10 s" in watch.said[0]


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (401, InputError, "the token is not known"),
        (403, InputError, "the token may not administer"),
        (404, InputError, "the address is wrong"),
        (503, UnavailableError, "503"),
        (302, InputError, "302"),
    ],
)
def test_a_forge_that_refuses_is_said_with_what_next(
    github: Github,
    agent: Path,
    status: int,
    kind: type[Exception],
    said: str,
) -> None:
    github.status = status
    with pytest.raises(kind) as caught:
        serving_with(github, agent, FakeEngine(), jobs=1)
    assert said in str(caught.value) + caught.value.hint  # type: ignore[attr-defined]
    assert TOKEN not in str(caught.value)


def test_a_group_that_is_not_there_is_said_with_those_that_are(github: Github, agent: Path) -> None:
    with pytest.raises(InputError, match="no runner group 'other'") as caught:
        serving_with(github, agent, FakeEngine(), dataclasses.replace(OWN, group="other"))
    assert "Default, lab" in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"api": "http://forge.example/repos/x"}, "is no address"),
        ({"agent": Path("/nowhere")}, "has no run.sh"),
        ({"token": ""}, "no token"),
    ],
)
def test_what_cannot_serve_is_refused_before_anything(
    agent: Path, changes: dict[str, Any], said: str
) -> None:
    fine: dict[str, Any] = {"api": "https://api.example/repos/x", "agent": agent, "token": TOKEN}
    JobSource(**fine)
    with pytest.raises(InputError, match=said):
        JobSource(**{**fine, **changes})
