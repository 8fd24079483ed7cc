"""The machine type from a row of matrix.yaml to the image: two cells that differ in nothing else,
locked by the real uv from a loopback index that has wheels for both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import a_built_image, a_child, a_lock, key_of_parts, make_project
from conftest import Golden
from fakes import FakeEngine
from standins import Index, serve_index, stand_in_wheel

from warpfront import pipeline
from warpfront.commands import machine as machine_module
from warpfront.errors import BlockedError, WheelError
from warpfront.images.baking import Builders, Built
from warpfront.images.built import BuiltImage, RenderedImage
from warpfront.images.engine.buildx import Baked, BakeRequest
from warpfront.images.labels import CONTENT_HASH
from warpfront.images.plan import PlannedCell
from warpfront.images.preparing import CellInputs, Tools
from warpfront.matrix.cell import Cell, Selection
from warpfront.pipeline.verifying import CheckPlan, verify_cells
from warpfront.pipeline.workspace import Workspace, open_workspace
from warpfront.step_results import Blocked
from warpfront.verify.results import Outcome
from warpfront.wheels.lock.values import WheelLock
from warpfront.wheels.sources import Site
from warpfront_checks.check_options import CheckOptions
from warpfront_checks.claims import read_claims

MACHINES = ("x86_64", "aarch64")
EVERYTHING = Selection()


class Quiet:
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None: ...


@pytest.fixture
def cpu(tmp_path: Path) -> Iterator[Index]:
    folder = tmp_path / "cpu"
    for machine in MACHINES:
        tag = f"cp311-cp311-manylinux_2_28_{machine}"
        only = 'only-arm==1.0; platform_machine == "aarch64"'
        stand_in_wheel(folder, "torch", "2.13.0+cpu", tag=tag, requires=[only])
    with serve_index(folder, name="cpu") as index:
        yield index


@pytest.fixture
def pypi(tmp_path: Path) -> Iterator[Index]:
    folder = tmp_path / "pypi"
    for name, version in (("numpy", "2.4.6"), ("pip", "26.2.1"), ("only-arm", "1.0")):
        stand_in_wheel(folder, name, version)
    with serve_index(folder, name="simple") as index:
        yield index


@pytest.fixture
def workspace(
    tmp_path: Path, cpu: Index, pypi: Index, monkeypatch: pytest.MonkeyPatch
) -> Workspace:
    """A project with a CPU row for each machine, whose indexes are on loopback."""
    root = tmp_path / "project"
    root.mkdir()
    make_project(root)
    file = root / "matrix.yaml"
    row = "  - vendor: cpu\n    targets: x86_64\n"
    zipped = "  - vendor: cpu\n    zip: {targets: [x86_64, aarch64], machine: [x86_64, aarch64]}\n"
    text = file.read_text().replace(row, zipped)
    file.write_text(text.replace("\nrows:", f"\nindexes: {{cpu: '{cpu.url}'}}\n\nrows:"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("warpfront.wheels.sources.read_site", lambda: Site(index_url=pypi.url))
    return open_workspace(root)


def cell_for(machine: str, workspace: Workspace) -> Cell:
    return next(cell for cell in workspace.matrix.cells if cell.machine == machine)


def an_engine(machine: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """An engine on that machine which holds the base."""
    engine = FakeEngine(machine=machine)
    engine.build(workspace.matrix.cells[0].base.pinned, {})
    for step in ("planning", "building"):
        monkeypatch.setattr(f"warpfront.pipeline.{step}.connect", lambda: engine)
    return engine


def locked(workspace: Workspace) -> dict[str, WheelLock]:
    """The lock of each machine's cell."""
    found = pipeline.lock(workspace, EVERYTHING, Quiet())
    locks = {cell.machine: found[cell.id] for cell in workspace.matrix.cells}
    assert all(isinstance(lock, WheelLock) for lock in locks.values()), locks
    return {machine: lock for machine, lock in locks.items() if isinstance(lock, WheelLock)}


def platforms(lock: WheelLock) -> set[str]:
    return {wheel.filename.removesuffix(".whl").rpartition("-")[2] for wheel in lock.wheels}


def shown(plan: tuple[PlannedCell, ...]) -> str:
    return "".join(f"{one.cell_id}: {one.action}, {one.reason}\n" for one in plan)


@pytest.mark.process
@pytest.mark.usefixtures("uv_cache")
def test_each_machine_gets_its_own_wheels_and_what_only_it_needs(workspace: Workspace) -> None:
    locks = locked(workspace)
    assert platforms(locks["x86_64"]) == {"any", "manylinux_2_28_x86_64"}
    assert platforms(locks["aarch64"]) == {"any", "manylinux_2_28_aarch64"}
    names = {machine: {wheel.name for wheel in lock.wheels} for machine, lock in locks.items()}
    assert names["aarch64"] - names["x86_64"] == {"only-arm"}


@pytest.mark.process
@pytest.mark.usefixtures("uv_cache")
def test_a_row_for_arm_is_locked_rendered_and_planned_as_reviewed(
    workspace: Workspace, cpu: Index, pypi: Index, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    cell = cell_for("aarch64", workspace)
    locks = pipeline.lock(workspace, EVERYTHING, Quiet())
    rendered = pipeline.render(workspace, EVERYTHING, Quiet(), locks=locks)[cell.id]
    assert isinstance(rendered, RenderedImage)
    lock = workspace.folders.lock_path(cell.id).read_text()
    lock = lock.replace(cpu.url, "http://the-cpu-index").replace(pypi.url, "http://pypi")
    golden("aarch64/pylock.toml", _without_digests(lock))
    golden("aarch64/Dockerfile", rendered.files["Dockerfile"])
    requirements = _without_digests(rendered.files["requirements.txt"])
    golden("aarch64/requirements.txt", requirements)
    an_engine("aarch64", workspace, monkeypatch)
    # The lock names PyPI, which stands for the site's index; the plan would ask it itself.
    monkeypatch.setattr("warpfront.pipeline.planning.why_unresolvable", lambda *_: "")
    golden("aarch64/plan.txt", shown(pipeline.plan(workspace, EVERYTHING, Quiet())))


def _without_digests(text: str) -> str:
    """They follow the index's port, which is another each time, and how this zlib packs."""
    return re.sub(r"size = \d+", "size = 0", re.sub(r"[0-9a-f]{64}", "...", text))


@pytest.mark.process
@pytest.mark.usefixtures("uv_cache")
def test_the_wheels_of_another_machine_are_refused_in_a_lock(workspace: Workspace) -> None:
    """Files exchanged between the cells, with the digests that make them look fresh."""
    locks, folders = locked(workspace), workspace.folders
    paths = {one: folders.lock_path(cell_for(one, workspace).id) for one in MACHINES}
    texts = {one: path.read_text() for one, path in paths.items()}
    for machine, other in (MACHINES, MACHINES[::-1]):
        digests = locks[other].inputs_digest, locks[machine].inputs_digest
        paths[machine].write_text(texts[other].replace(*digests))
    refused = pipeline.lock(workspace, EVERYTHING, Quiet(), locked=True)
    for machine, other in (MACHINES, MACHINES[::-1]):
        found = refused[cell_for(machine, workspace).id]
        assert not isinstance(found, WheelLock)
        assert f"manylinux_2_28_{other}.whl, which is not for {machine}" in found.reason
    assert {one: platforms(lock) for one, lock in locked(workspace).items()} == {
        one: platforms(lock) for one, lock in locks.items()
    }


def built(
    machine: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Built], dict[str, Any]]:
    """What a build on an engine of that machine comes to, and the targets that bake was given."""
    engine = an_engine(machine, workspace, monkeypatch)
    targets: dict[str, Any] = {}

    def bake(request: BakeRequest, _on_step: object) -> dict[str, Baked]:
        targets.update(json.loads(request.file.read_text())["target"])
        for target in targets.values():
            engine.build(target["tags"][0], target["labels"])
        return {name: Baked(digest="", error="") for name in request.targets}

    def toolbox(*_: object, **__: object) -> None:
        raise WheelError("nox: no index has it")

    monkeypatch.setattr("warpfront.images.baking.bake", bake)
    monkeypatch.setattr("warpfront.images.baking.install_toolbox", toolbox)
    watch = Quiet()
    locks = pipeline.lock(workspace, EVERYTHING, watch)
    results = dict(pipeline.build(workspace, EVERYTHING, watch, locks=locks))
    assert watch.said[-1] == "verify will not find its toolbox here: nox: no index has it"
    return results, targets


@pytest.mark.process
@pytest.mark.usefixtures("uv_cache")
def test_an_engine_builds_the_cells_of_its_own_machine_and_the_others_are_blocked(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for machine, platform in (("x86_64", "linux/amd64"), ("aarch64", "linux/arm64")):
        results, targets = built(machine, workspace, monkeypatch)
        own = cell_for(machine, workspace).id
        assert {name: target["platforms"] for name, target in targets.items()} == {own: [platform]}
        assert isinstance(results.pop(own), BuiltImage)
        (blocked,) = results.values()
        assert isinstance(blocked, Blocked)
        assert blocked.reason.endswith(f"and the engine's machine is {machine}")


def test_wheels_that_are_built_in_a_container_are_blocked_on_another_machine(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, engine = cell_for("aarch64", workspace), FakeEngine(machine="x86_64")
    monkeypatch.setattr("warpfront.images.baking.connect", lambda: engine)
    builders = Builders(
        matrix=workspace.matrix,
        material=workspace.material,
        folders=workspace.folders,
        site=Site,
        watch=Quiet(),
    )
    with pytest.raises(BlockedError, match="it is for aarch64, and the engine's machine is x86_64"):
        builders.image(a_child(cell), {cell.id: a_lock(cell)}, ())


@pytest.mark.parametrize(("machine", "other"), [MACHINES, MACHINES[::-1]])
def test_doctor_names_the_machine_whose_cells_are_blocked(
    machine: str, other: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine(machine=machine)
    monkeypatch.setattr(machine_module, "connect", lambda: engine)
    monkeypatch.setattr(machine_module, "read_site", Site)
    monkeypatch.setattr(machine_module, "probe", lambda *_: "")
    monkeypatch.setattr(machine_module, "registry_reachable", lambda _reference: None)
    monkeypatch.setattr(machine_module, "read_hardware", lambda _machine: None)
    monkeypatch.setattr(machine_module, "examine_hardware", lambda _hardware: ())
    found = {one.subject: one for one in machine_module.examine(workspace, Quiet())}
    assert f"machine {machine}" not in found
    assert found[f"machine {other}"].outcome is Outcome.UNAVAILABLE
    assert found[f"machine {other}"].text == f"the engine's machine is {machine}"


def test_checks_of_another_machine_are_blocked_and_not_failed(workspace: Workspace) -> None:
    cell = cell_for("aarch64", workspace)
    found = verify_cells(
        CellInputs(cells=(cell,), locks={}, matrix=workspace.matrix, material=workspace.material),
        CheckPlan(target="", sessions=("load",), effort=CheckOptions()),
        Tools(engine=FakeEngine(machine="x86_64"), folders=workspace.folders, site=Site),
        Quiet(),
    )
    assert isinstance(found[0], Blocked)
    assert found[0].step == "verify"


@pytest.mark.parametrize("machine", MACHINES)
def test_the_machine_is_claimed_of_an_image(
    machine: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, engine = cell_for(machine, workspace), FakeEngine(machine=machine)
    locks = {cell.id: a_lock(cell)}
    image = engine.build(cell.local_reference, {CONTENT_HASH: "aa"})
    made = a_built_image(cell, image_id=image.id, content_hash="aa")
    workspace.folders.store.save(cell.id, "build", made)
    toolbox = "warpfront.pipeline.verifying.install_toolbox"
    monkeypatch.setattr(toolbox, lambda cache, *_, **__: cache)
    monkeypatch.setattr("warpfront.pipeline.verifying.attempt_key", key_of_parts)
    verify_cells(
        CellInputs(
            cells=(cell,), locks=locks, matrix=workspace.matrix, material=workspace.material
        ),
        CheckPlan(target="", sessions=("load",), effort=CheckOptions()),
        Tools(engine=engine, folders=workspace.folders, site=Site),
        Quiet(),
    )
    (request,) = engine.requests
    sources = {bind.target: bind.source for bind in request.binds}
    claims = read_claims(sources["/warpfront/claims.json"])
    assert (claims.machine, claims.target) == (machine, machine)
    assert claims.versions["torch"] == "2.13.0+cpu"
