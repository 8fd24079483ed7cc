"""try: the walk from what is missed to what is installed beside an image, on the engine in memory,
with the real uv over stand-in wheels.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import a_built_image, a_cell, a_child
from fakes import FakeEngine
from standins import serve_index, stand_in_wheel

from warpfront.errors import InputError, NothingSelectedError
from warpfront.images.engine.protocol import RunRequest
from warpfront.images.labels import CONTENT_HASH
from warpfront.images.preparing import Tools
from warpfront.matrix.cell import ENVIRONMENT_PYTHON, DeviceAccess, Selection, WheelIndex
from warpfront.step_results import Blocked
from warpfront.system.progress import Line, Watch
from warpfront.system.store import Store
from warpfront.wheels.lock.pylock import lock_inputs
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.resolve.resolver import wheel_of
from warpfront.wheels.resolve.resolving import resolve_by_uv
from warpfront.wheels.sources import Site
from warpfront_port.commands import trial_runs
from warpfront_port.commands.trial_runs import (
    TrialRequest,
    device_flags,
    only_cell,
    try_in,
)
from warpfront_port.trying.trial import Trial, trial_text

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("uv_cache")]


class Silent(Watch):
    """Somebody who is told, and says nothing of it."""

    def say(self, text: str) -> None: ...
    def step(self, cell_id: str, text: str) -> None: ...
    def line(self, cell_id: str, text: str) -> None: ...
    def advance(self, name: str, done: int, total: int) -> None: ...


class Program:
    """A script that imports `needs`, one after the other, in a container."""

    def __init__(self, *needs: str) -> None:
        self.needs = needs
        self.ends = 0

    def __call__(self, request: RunRequest, on_line: Line) -> int:
        binds = {one.target: one.source for one in request.binds}
        assert not any(one.writable for one in request.binds)
        paths = [
            binds[f"/{path.split('/')[1]}"] / path.split("/", 2)[2]
            if path.count("/") > 1
            else binds[path]
            for path in request.environment["PYTHONPATH"].split(":")
        ]
        for number, name in enumerate(self.needs, 1):
            if not any((path / name).exists() or (path / f"{name}.py").exists() for path in paths):
                on_line("Traceback (most recent call last):")
                on_line(f'  File "/repo/train.py", line {number}, in <module>')
                on_line(f"ModuleNotFoundError: No module named '{name}'")
                return 1
        on_line("trained")
        return self.ends


class Spot:
    """A cell with its lock and image, an index, and somebody's project."""

    def __init__(self, root: Path, url: str) -> None:
        self.root, self.site = root, Site(index_url=url)
        self.repo = root / "app"
        (self.repo / "src").mkdir(parents=True)
        self.folders = Folders(root=root, cache=root / "cache", store=Store(root / "build"))
        index = WheelIndex(name="cpu", url=url)
        self.cell = a_cell(index=index, requirements=(), targets=("x86_64",))
        self.engine = FakeEngine()
        self.lock = resolve_by_uv(
            lock_inputs(self.cell, None, None),
            self.site,
            on_line=lambda _: None,
            wheelhouse=self.folders.wheelhouse,
        )
        built = a_built_image(self.cell)
        image = self.engine.build(self.cell.local_reference, {CONTENT_HASH: built.content_hash})
        built = a_built_image(self.cell, image_id=image.id)
        self.folders.store.save(self.cell.id, "build", built)

    def tried(self, program: Program, *, install: bool = True, **asked: object) -> Trial:
        self.engine.programs["sh"] = program
        asking = TrialRequest(
            repo=self.repo,
            argv=("python", "train.py"),
            install=install,
            **asked,  # type: ignore[arg-type]
        )
        found = try_in(
            self.cell,
            {self.cell.id: self.lock},
            asking,
            Tools(engine=self.engine, folders=self.folders, site=lambda: self.site),
            Silent(),
        )
        assert isinstance(found, Trial)
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Spot]:
    index = tmp_path / "index"
    stand_in_wheel(index, "torch", "2.13.0+cpu", files={"torch/__init__.py": ""})
    for version in ("0.7.0", "0.8.1"):
        stand_in_wheel(index, "einops", version, files={"einops/__init__.py": ""})
    files: dict[str, str | bytes] = {
        "accelerate/__init__.py": "",
        "accelerate-1.0.data/scripts/accelerate": "#!python\nprint('launch')\n",
        "accelerate-1.0.data/data/bin/accelerate.d/settings": "a folder among the programs",
    }
    needs = ["torch>=2", "einops", "psutil"]
    stand_in_wheel(index, "accelerate", "1.0", requires=needs, files=files)
    stand_in_wheel(index, "psutil", "7", files={"psutil/__init__.py": ""})
    stand_in_wheel(index, "xformers", "0.0.1", requires=["torch==2.9.0"])
    for archive in ("flash_attn-2.8.tar.gz", "deepspeed-0.18.tar.gz"):
        (index / archive).write_bytes(b"never opened")
    with serve_index(index, name="simple") as served:
        yield Spot(tmp_path, served.url)


def test_what_is_missed_is_installed_beside_the_image_until_the_program_ends(
    place: Spot,
) -> None:
    (place.repo / "requirements.txt").write_text("einops<0.8\ntorch==2.9.0\nunused\n")
    (place.repo / "src/net.py").write_text("")
    trial = place.tried(Program("net", "einops", "accelerate"))
    assert (trial.works, trial.runs) == (True, 4)
    assert [one.folder for one in trial.found] == ["src", "", ""]
    assert trial.requirements == ("accelerate==1.0", "einops==0.7.0")
    assert trial.found[1].said_by == "requirements.txt:1"
    assert trial.found[2].brings == 1, "psutil; einops was there"
    request = place.engine.requests[-1]
    assert request.image == place.engine.requests[0].image
    assert {one.target for one in request.binds} == {"/repo", "/try"}
    layer = next(one.source for one in request.binds if one.target == "/try")
    assert not layer.exists(), "what was installed is thrown away"
    assert request.command[2:] == ('exec "$@" 2>&1', "sh", "python", "train.py")


def test_a_program_that_lacks_nothing_is_told_how_the_image_runs_it_by_hand(place: Spot) -> None:
    (place.repo / "src/net.py").write_text("")
    trial = place.tried(Program("net"))
    assert trial.by_hand[-3:] == (place.cell.local_reference, "python", "train.py")
    assert trial.by_hand[5:7] == ("--shm-size", "1g")
    assert trial.by_hand[7:9] == ("--env", "PYTHONPATH=/repo/src")
    assert f"{place.repo}:/repo" in trial.by_hand
    access = DeviceAccess(nodes=("/dev/kfd",), groups=(44,), runtime="habana", gpus=True)
    given = ("--gpus", "all", "--runtime", "habana", "--device", "/dev/kfd")
    assert tuple(device_flags(access)) == (*given, "--group-add", "44")
    access = DeviceAccess(cdi=("amd.com/gpu=all",), environment={"HABANA_VISIBLE_DEVICES": "all"})
    said = ("--device", "amd.com/gpu=all", "--env", "HABANA_VISIBLE_DEVICES=all")
    assert tuple(device_flags(access)) == said


def test_without_install_the_first_miss_is_named_with_its_version(place: Spot) -> None:
    trial = place.tried(Program("einops", "accelerate"), install=False)
    assert (trial.works, trial.runs, trial.exit_code) == (False, 1, 1)
    assert trial.requirements == ("einops==0.8.1",)


def test_what_would_move_torch_or_has_no_wheel_is_refused_with_the_reason(place: Spot) -> None:
    moved = place.tried(Program("xformers"))
    assert "xformers 0.0.1 -> torch==2.9.0, but this cell holds torch 2.13.0+cpu" in (
        moved.found[0].refusal
    )
    assert moved.found[0].hint.startswith(
        "by its METADATA none of the 1 newest of xformers accepts torch 2.13.0+cpu"
    )
    built = place.tried(Program("flash_attn"))
    assert "flash-attn has no wheel for this image" in built.found[0].refusal
    assert "flash-attn has no kernels for the CPU" in built.found[0].hint
    buildable = place.tried(Program("deepspeed"))
    assert "deepspeed has no wheel for this image" in buildable.found[0].refusal
    assert "`builds: deepspeed:`" in buildable.found[0].hint
    unknown = place.tried(Program("nobodys_module"))
    assert unknown.found[0].refusal == "it is not known here which distribution brings it"
    assert "--provides nobodys_module=DISTRIBUTION" in unknown.found[0].hint
    unseen = place.tried(Program("torch"))
    assert unseen.found[0].refusal.startswith("the image holds torch 2.13.0+cpu, and this program")
    assert {moved.runs, built.runs, unknown.runs, unseen.runs} == {1}
    given = place.tried(Program("nobodys_module"), provides={"nobodys_module": "psutil"})
    assert (given.works, given.runs) == (False, 2), "it does not bring it, and is not tried again"


class Facts:
    """The program that lists an image's distributions with their metadata."""

    def __init__(self, **inside: tuple[str, list[str]]) -> None:
        self.inside = inside

    def __call__(self, request: RunRequest, on_line: Line) -> int:
        assert request.binds == ()
        on_line("a warning of some package")
        on_line(json.dumps(self.inside))
        return 0


def holding(place: Spot, tmp_path: Path, *, newest: str) -> None:
    """An image whose setuptools has no pkg_resources any more, and whose torch has a floor."""
    index = tmp_path / "index"
    for version in ("70.0.0", "77.0.3", "81.0.0"):
        files: dict[str, str | bytes] = {"pkg_resources/__init__.py": "", "setuptools/x.py": ""}
        stand_in_wheel(index, "setuptools", version, files=files)
    for version in ("82.0.0", "84.2.1"):
        stand_in_wheel(index, "setuptools", version, files={"setuptools/x.py": ""})
    wheel = stand_in_wheel(tmp_path, "setuptools", newest, files={"setuptools/x.py": ""})
    held = wheel_of(*place.folders.wheelhouse.keep(wheel))
    place.lock = dataclasses.replace(place.lock, wheels=tuple(sorted((*place.lock.wheels, held))))
    torch = ("2.13.0+cpu", ["setuptools>=77.0.3"])
    place.engine.programs[ENVIRONMENT_PYTHON] = Facts(torch=torch, setuptools=(newest, []))


def test_a_module_that_a_release_removed_comes_from_the_newest_that_has_it(
    place: Spot, tmp_path: Path
) -> None:
    holding(place, tmp_path, newest="84.2.1")
    (place.repo / "requirements.txt").write_text("torch>=2\nsetuptools\n")
    trial = place.tried(Program("pkg_resources"))
    (found,) = trial.found
    assert (found.requirement, found.version, found.replaces) == (
        "setuptools>=77.0.3,<82",
        "81.0.0",
        "84.2.1",
    )
    assert (trial.works, trial.runs) == (True, 2)
    assert trial.requirements == ("setuptools>=77.0.3,<82",)
    said = trial_text(trial, name="app")
    assert "setuptools 84.2.1 has none; setuptools 81.0.0 has, of http://127.0.0.1:" in said
    assert "which a child cannot change" in said
    assert not place.tried(Program("pkg_resources"), install=False).works


def test_a_removed_module_has_no_release_where_the_others_in_the_image_accept_none(
    place: Spot, tmp_path: Path
) -> None:
    holding(place, tmp_path, newest="84.2.1")
    facts = Facts(torch=("2.13.0+cpu", ["setuptools>=82"]), setuptools=("84.2.1", []))
    place.engine.programs[ENVIRONMENT_PYTHON] = facts
    (found,) = place.tried(Program("pkg_resources")).found
    assert found.refusal == "the image holds setuptools 84.2.1, which has no pkg_resources"
    assert found.hint.startswith("torch needs setuptools>=82; no release of that")


def test_a_module_that_torch_itself_lost_is_not_looked_for(place: Spot) -> None:
    def program(_request: RunRequest, on_line: Line) -> int:
        on_line("Traceback (most recent call last):")
        on_line('  File "/repo/train.py", line 1, in <module>')
        on_line("ModuleNotFoundError: No module named 'torch._six'")
        return 1

    (found,) = place.tried(program).found  # type: ignore[arg-type]
    assert found.refusal == "the image holds torch 2.13.0+cpu, which has no torch._six"
    assert "port the import" in found.hint


def test_the_image_s_own_torch_answers_where_its_index_is_out_of_reach(
    place: Spot, tmp_path: Path
) -> None:
    others = tmp_path / "others"
    for path in (tmp_path / "index").glob("*.whl"):
        if not path.name.startswith("torch-"):
            others.mkdir(exist_ok=True)
            (others / path.name).write_bytes(path.read_bytes())
    place.cell = dataclasses.replace(
        place.cell, index=WheelIndex(name="cpu", url="http://127.0.0.1:9/cpu")
    )
    place.engine.programs[ENVIRONMENT_PYTHON] = Facts(torch=("2.13.0+cpu", []))
    with serve_index(others, name="simple") as served:
        place.site = Site(index_url=served.url)
        trial = place.tried(Program("accelerate", "einops"))
        refused = place.tried(Program("xformers"))
    assert (trial.works, trial.requirements) == (True, ("accelerate==1.0",))
    assert "xformers 0.0.1 -> torch==2.9.0, but this cell holds torch 2.13.0+cpu" in (
        refused.found[0].refusal
    )


def test_the_image_that_plan_would_reuse_is_tried_without_a_record_of_its_build(
    place: Spot,
) -> None:
    other = Folders(
        root=place.root, cache=place.root / "cache", store=Store(place.root / "elsewhere")
    )
    (image,) = place.engine.stored
    place.engine.programs["sh"] = Program()
    asking = TrialRequest(repo=place.repo, argv=("python", "train.py"))
    locks = {place.cell.id: place.lock}
    tools = Tools(engine=place.engine, folders=other, site=lambda: place.site)
    found = [
        try_in(place.cell, locks, asking, tools, Silent(), image_id=known) for known in ("", image)
    ]
    assert isinstance(found[0], Blocked)
    assert isinstance(found[1], Trial)
    assert found[1].works


def test_a_program_that_fails_otherwise_is_run_once(place: Spot) -> None:
    program = Program()
    program.ends = 3
    trial = place.tried(program)
    assert (trial.exit_code, trial.runs, trial.found) == (3, 1, ())
    assert trial.tail == "trained"


def test_programs_of_the_layer_are_started_by_the_image_s_python(place: Spot) -> None:
    seen: list[str] = []
    program = Program("accelerate")

    def look(request: RunRequest, on_line: Line) -> int:
        layer = next(one.source for one in request.binds if one.target == "/try")
        if (layer / "bin/accelerate").is_file():
            seen.append((layer / "bin/accelerate").read_text())
        return program(request, on_line)

    trial = place.tried(look)  # type: ignore[arg-type]
    assert trial.works
    assert seen == ["#!/opt/venv/bin/python\nprint('launch')\n"]


def test_what_a_program_prints_is_a_strangers(place: Spot) -> None:
    """More names than anybody looks up, and what a terminal would obey."""

    def flood(_request: RunRequest, on_line: Line) -> int:
        on_line("Traceback (most recent call last):")
        for number in range(5000):
            on_line(f'  File "/repo/\x1b]0;mine\x07.py", line {number}, in <module>')
            on_line(f"ModuleNotFoundError: No module named 'm{number}'")
        return 1

    trial = place.tried(flood)  # type: ignore[arg-type]
    assert (trial.runs, len(trial.found)) == (1, trial_runs.ROUNDS)
    assert not {"\x1b", "\x07"} & {*trial.tail, *trial.found[0].miss.path}


@pytest.mark.timeout(20)
def test_a_project_s_files_are_a_strangers(place: Spot) -> None:
    os.mkfifo(place.repo / "requirements.txt")
    (place.repo / "pyproject.toml").symlink_to("/dev/zero")
    trial = place.tried(Program("einops"), install=False)
    assert trial.found[0].said_by == "the table of modules"


def test_rounds_are_bounded(place: Spot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_runs, "ROUNDS", 1)
    trial = place.tried(Program("einops", "psutil", "accelerate"))
    assert (trial.works, trial.runs) == (False, 2)


def test_an_image_that_is_not_built_is_said_and_two_images_are_one_too_many(
    place: Spot,
) -> None:
    other = a_cell(id="other", targets=("x86_64",))
    asking = TrialRequest(repo=place.repo, argv=("python",))
    tools = Tools(engine=place.engine, folders=place.folders, site=lambda: place.site)
    found = try_in(other, {}, asking, tools, Silent())
    assert isinstance(found, Blocked)
    assert found.hint == "warpfront build --only other"
    cells = (place.cell, a_child(place.cell))
    assert only_cell(cells, Selection(image="torch")) == place.cell
    with pytest.raises(NothingSelectedError, match="a program is tried in one image"):
        only_cell(cells, Selection())
    with pytest.raises(InputError, match="follows `--`"):
        TrialRequest(repo=place.repo, argv=())
    with pytest.raises(InputError, match="no such folder"):
        TrialRequest(repo=place.repo / "gone", argv=("python",))
