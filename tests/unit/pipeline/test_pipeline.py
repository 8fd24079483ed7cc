"""The path on an engine in memory: chains, reuse, and cells that fail without taking others
along.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest
from builders import (
    a_built_image,
    a_channel,
    a_check,
    a_wheel,
    key_of_parts,
    make_project,
    some_evidence,
)
from fakes import FakeEngine

from warpfront import pipeline
from warpfront.ci.retrying import worth_another_try
from warpfront.commands.project_edits import add_image
from warpfront.errors import BlockedError, EngineError, FailureKind, LockError
from warpfront.images.built import CREATED, BuiltImage
from warpfront.images.engine.protocol import RunResult
from warpfront.images.labels import CONTENT_HASH
from warpfront.images.preparing import (
    CellInputs,
    Tools,
    images_by_content,
    prepare_cells,
    render_cells,
)
from warpfront.matrix.cell import Cell, DeviceAccess, HostDevices, Selection
from warpfront.matrix.language import SourceTree
from warpfront.pipeline import planning, verifying
from warpfront.pipeline.verifying import CheckPlan, verify_cells
from warpfront.pipeline.workspace import Workspace, open_workspace
from warpfront.release.admission import admission
from warpfront.report.junit import junit_xml
from warpfront.step_results import Blocked, Failed
from warpfront.verify.containers import ending_of
from warpfront.verify.results import Outcome, Verification
from warpfront.verify.run_options import RunOptions
from warpfront.verify.verdict import sealed
from warpfront.wheels.lock.pylock import read_lock
from warpfront.wheels.lock.values import PYPI, LockInputs, UnbuiltWheel, WheelLock
from warpfront.wheels.sources import Site
from warpfront_checks.check_options import CheckOptions, read_effort
from warpfront_checks.hardware import Machine
from warpfront_checks.hardware.machine_reader import ProgramOutput

Resolver = Callable[[LockInputs], WheelLock]


class Quiet:
    """A watch that remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None: ...


SERVE = """
  serve:
    parent: torch
    template: torch
    title: Something on top
    packages: [fastapi]
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A project with a CPU cell and a child of it."""
    make_project(tmp_path)
    matrix = tmp_path / "matrix.yaml"
    text = matrix.read_text().replace("\ndefaults:", f"{SERVE}\ndefaults:")
    matrix.write_text(text.replace("images: [torch]", "images: [torch, serve]"))
    return open_workspace(tmp_path)


def the_lock(inputs: LockInputs) -> WheelLock:
    names = [pin.split("=")[0] for pin in (*inputs.stack_requirements, *inputs.requirements)]
    pins = [f"{name}=={'2.13.0+cpu' if name == 'torch' else '1.0'}" for name in names]
    assert inputs.index
    at = {"torch": inputs.index.url}
    every = [pin.split("==") for pin in (*pins, *inputs.parent)]
    wheels = {name: a_wheel(name, one, index=at.get(name, PYPI)) for name, one in every}
    return WheelLock(
        cell_id=inputs.cell_id,
        python=inputs.python,
        inputs_digest=inputs.digest,
        wheels=tuple(sorted(wheels.values())),
    )


def lock(
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    answer: Resolver = the_lock,
    **options: Any,
) -> tuple[dict[str, object], list[str]]:
    """Lock every cell with a resolver in memory; what came of each, and which cells it was asked
    for.
    """
    asked: list[str] = []

    def resolve(
        inputs: LockInputs,
        site: Site,
        *,
        on_line: object,
        wheelhouse: object,
        parent: WheelLock | None = None,
        crafting: object = None,
    ) -> WheelLock:
        del site, on_line, wheelhouse, parent, crafting
        asked.append(inputs.cell_id)
        return answer(inputs)

    monkeypatch.setattr("warpfront.images.cell_locks.resolve_by_uv", resolve)
    monkeypatch.setattr("warpfront.wheels.sources.read_site", Site)
    watch = options.pop("watch", Quiet())
    return dict(pipeline.lock(workspace, Selection(), watch, **options)), asked


def test_a_refreshed_lock_that_became_older_is_said(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def older(inputs: LockInputs) -> WheelLock:
        made = the_lock(inputs)
        wheels = [
            dataclasses.replace(one, version="0.9", filename=one.filename.replace("1.0", "0.9"))
            if one.name == "fastapi"
            else one
            for one in made.wheels
        ]
        return dataclasses.replace(made, wheels=tuple(wheels))

    lock(workspace, monkeypatch)
    watch = Quiet()
    lock(workspace, monkeypatch, the_lock, refresh=True, watch=watch)
    assert not any("older than before" in line for line in watch.said)
    lock(workspace, monkeypatch, older, refresh=True, watch=watch)
    [said] = [line for line in watch.said if "older than before" in line]
    assert said.startswith(
        f"{images(workspace)['serve'].id}: older than before: fastapi 1.0 -> 0.9"
    )
    assert "extra indexes before the index" in said


def images(workspace: Workspace) -> dict[str, Cell]:
    return {cell.image: cell for cell in workspace.matrix.cells}


def test_locks_are_made_once_and_kept_while_they_fit(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, asked = lock(workspace, monkeypatch)
    assert all(isinstance(result, WheelLock) for result in results.values())
    assert len(asked) == 2
    again, asked_again = lock(workspace, monkeypatch)
    assert (again, asked_again) == (results, [])


def test_a_cell_on_one_with_wheels_to_build_waits_and_is_locked_when_they_are_built(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the results of `lock`, and by what it left on disk."""
    flash = UnbuiltWheel(
        package="flash",
        version="1.0",
        sdist="flash.tar",
        sdist_sha256="0" * 64,
        source="./flash",
        metadata_from="PKG-INFO",
    )
    cells = images(workspace)

    def incomplete(inputs: LockInputs) -> WheelLock:
        unbuilt = (flash,) if inputs.cell_id == cells["torch"].id else ()
        return dataclasses.replace(the_lock(inputs), unbuilt=unbuilt)

    results, asked = lock(workspace, monkeypatch, incomplete)
    parent, child = results[cells["torch"].id], results[cells["serve"].id]
    assert asked == [cells["torch"].id]
    assert isinstance(parent, WheelLock)
    assert isinstance(child, Failed)
    assert child.reason.endswith("is not complete: to be built: flash 1.0")
    assert child.hint == f"warpfront build-wheels --only {cells['serve'].id}"
    refused, _ = lock(workspace, monkeypatch, locked=True)
    assert "to be built: flash 1.0, and --locked" in refused[cells["torch"].id].reason  # type: ignore[attr-defined]
    done = pipeline.build_wheels(workspace, Selection(), Quiet())
    assert all(isinstance(one, WheelLock) and not one.unbuilt for one in done.values())
    again, asked = lock(workspace, monkeypatch, locked=True)
    assert (again, asked) == (done, [])


def test_locked_refuses_to_make_a_lock_and_names_the_command(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, asked = lock(workspace, monkeypatch, locked=True)
    parent = results[images(workspace)["torch"].id]
    assert asked == []
    assert isinstance(parent, Failed)
    assert (parent.exit_code, parent.hint[:14]) == (4, "warpfront lock")


def test_a_blocked_parent_blocks_its_children_and_says_which(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(inputs: LockInputs) -> WheelLock:
        raise BlockedError(f"{inputs.cell_id}: out of reach: the index")

    results, asked = lock(workspace, monkeypatch, unreachable)
    cells = images(workspace)
    parent, child = results[cells["torch"].id], results[cells["serve"].id]
    assert isinstance(parent, Blocked)
    assert parent.reason == "out of reach: the index"
    assert isinstance(child, Blocked)
    assert child.reason == f"its parent {cells['torch'].id} is blocked"
    assert asked == [cells["torch"].id]


def test_a_content_hash_follows_the_parent_down_the_chain(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks, _ = lock(workspace, monkeypatch)
    base = a_built_image().base
    cells = workspace.matrix.cells

    def hashes(**changes: Any) -> list[str]:
        bases = {cells[0].base.name: changes.get("base", base)}
        rendered = render_cells(cells, locks, workspace.material)  # type: ignore[arg-type]
        found = prepare_cells(cells, rendered, locks, bases, {})  # type: ignore[arg-type]
        return [item.content_hash for item in found.values()]  # type: ignore[union-attr]

    other = a_built_image().base.__class__(
        name=base.name, source=base.source, reference=base.reference, identity="sha256:other"
    )
    assert hashes() == hashes()
    assert not set(hashes()) & set(hashes(base=other))


def planned(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, reason: str, image: str = "torch"
) -> dict[str, tuple[str, str]]:
    """The plan on an engine with the base and no images; `reason` is why no index can be
    reached.
    """
    lock(workspace, monkeypatch)
    engine = FakeEngine()
    engine.build(workspace.matrix.cells[0].base.pinned, {})
    monkeypatch.setattr(planning, "connect", lambda: engine)
    monkeypatch.setattr(planning, "site_when_needed", lambda: Site)
    monkeypatch.setattr(planning, "why_unresolvable", lambda *_: reason)
    monkeypatch.setattr(
        "warpfront.wheels.store.wheelhouse.Wheelhouse.missing", lambda _self, wheels: wheels
    )
    plans = pipeline.plan(workspace, Selection(image=image), Quiet())
    return {plan.cell_id: (plan.action.value, plan.reason) for plan in plans}


def test_a_locked_cell_whose_wheels_cannot_be_had_is_blocked(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = images(workspace)["torch"]
    assert planned(workspace, monkeypatch, "")[cell.id][0] == "build"
    reason = "https://index.test: no such host"
    assert planned(workspace, monkeypatch, reason)[cell.id] == ("blocked", reason)


def test_a_plan_names_a_base_that_is_old(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock(workspace, monkeypatch)
    engine, watch = FakeEngine(), Quiet()
    base = engine.build(workspace.matrix.cells[0].base.pinned, {})
    engine.stored[base.id] = dataclasses.replace(base, created="2024-01-01T00:00:00Z")
    monkeypatch.setattr(planning, "connect", lambda: engine)
    monkeypatch.setattr(planning, "site_when_needed", lambda: Site)
    monkeypatch.setattr(planning, "why_unresolvable", lambda *_: "")
    monkeypatch.setattr(planning, "now", lambda: "2026-11-26T00:00:00+00:00")
    pipeline.plan(workspace, Selection(image="torch"), watch)
    (said,) = (one for one in watch.said if "days old" in one)
    assert said.startswith("warning: base debian-12: ")
    assert "is 1060 days old, more than 180" in said
    engine.stored[base.id] = dataclasses.replace(base, created="2026-11-01T00:00:00Z")
    watch.said.clear()
    pipeline.plan(workspace, Selection(image="torch"), watch)
    assert not [one for one in watch.said if "days old" in one]


def test_a_locked_cell_has_sizes_where_neither_base_nor_engine_is(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a fresh machine: the lock says them."""
    planned(workspace, monkeypatch, "")

    def none_here() -> FakeEngine:
        raise EngineError("no engine")

    torch = images(workspace)["torch"]
    locked = read_lock(workspace.folders.lock_path(torch.id).read_text(), path="pylock.a.toml")
    total = sum(wheel.size_bytes for wheel in locked.wheels)
    for connect in (none_here, FakeEngine):
        monkeypatch.setattr(planning, "connect", connect)
        monkeypatch.setattr(planning, "find_bases", lambda *_: {})
        (plan,) = pipeline.plan(workspace, Selection(image="torch"), Quiet())
        assert (plan.action.value, plan.download_bytes) == ("build", total)
        assert plan.estimated_bytes is not None


@pytest.mark.parametrize("with_base", [True, False])
def test_a_plan_says_what_no_image_can_hold_and_whose_it_is(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, *, with_base: bool
) -> None:
    """The cell of another folder goes on."""
    folder = workspace.folders.root / "images" / "torch"
    os.mkfifo(folder / "pipe")
    opened = open_workspace(workspace.folders.root)
    torch = images(opened)["torch"]
    other = dataclasses.replace(torch, id="other", template="devel")
    matrix = dataclasses.replace(opened.matrix, cells=(torch, other))
    opened = dataclasses.replace(opened, matrix=matrix)
    if not with_base:
        monkeypatch.setattr(planning, "find_bases", lambda *_: {})
    found = planned(opened, monkeypatch, "")
    assert found[torch.id] == ("blocked", "images/torch/pipe: a FIFO, not a regular file")
    assert found[other.id][0] == "build"


BAD_FILES = {
    "no requirements": (
        "requirements.txt", None, "images/app/requirements.txt: no such file",
    ),
    "no included file": (
        "requirements.txt", "-r more.txt\n", "images/app/more.txt: no such file",
    ),
    "an option": (
        "requirements.txt", "--index-url x\n",
        "images/app/requirements.txt:1: --index-url is an option, not a requirement",
    ),
    "no UTF-8": ("requirements.txt", "\udcff\n", "requirements.txt: not UTF-8 text (byte 0)"),
    "no template": ("Dockerfile.j2", None, "images/app/Dockerfile.j2: no such template"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_of_an_image_stops_that_image_alone(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`plan`, `lock` and `render` name the image's line of matrix.yaml, and do the others."""
    name, text, message = BAD_FILES[case]
    make_project(tmp_path)
    list(add_image(tmp_path, "app", parent="torch", requirements="").write(tmp_path, dry_run=False))
    list(add_image(tmp_path, "ok", parent="torch", requirements="").write(tmp_path, dry_run=False))
    path = tmp_path / "images" / "app" / name
    path.unlink()
    if text is not None:
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
    opened = open_workspace(tmp_path)
    app, fine = images(opened)["app"], images(opened)["ok"]
    line = (tmp_path / "matrix.yaml").read_text().splitlines().index("  app:") + 1

    before = planned(opened, monkeypatch, "", image="")
    assert before[app.id][0] == "blocked"
    assert before[app.id][1].startswith(f"matrix.yaml:{line}: ")
    assert before[app.id][1].endswith(message)
    assert before[fine.id][0] == "build"

    results, _ = lock(opened, monkeypatch)
    if name == "requirements.txt":
        failed = results.pop(app.id)
        assert isinstance(failed, Failed)
        assert (failed.reason, failed.exit_code) == (before[app.id][1], LockError.exit_code)
    assert all(isinstance(result, WheelLock) for result in results.values())

    locks = {
        cell_id: result for cell_id, result in results.items() if isinstance(result, WheelLock)
    }
    cells = [cell for cell in opened.matrix.cells if cell.id in locks]
    rendered = render_cells(cells, locks, opened.material)
    wrong = {cell_id for cell_id, item in rendered.items() if isinstance(item, Blocked | Failed)}
    assert wrong == ({app.id} if name == "Dockerfile.j2" else set())


def test_images_are_found_by_content_in_one_question(workspace: Workspace) -> None:
    engine = FakeEngine()
    engine.build(images(workspace)["torch"].local_reference, {CONTENT_HASH: "aa"})
    engine.build("localhost/somebody/else:1", {})
    assert list(images_by_content(workspace.matrix.repositories, engine)) == ["aa"]


def test_an_image_of_another_moment_is_none_where_the_moment_is_fixed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, moment = FakeEngine(), "2026-11-18T11:06:40+00:00"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795000000")
    reference = images(workspace)["torch"].local_reference
    engine.build(reference, {CONTENT_HASH: "aa", CREATED: "2026-11-19T00:00:00+00:00"})
    repositories = workspace.matrix.repositories
    assert images_by_content(repositories, engine) == {}
    engine.build(reference, {CONTENT_HASH: "aa", CREATED: moment})
    assert list(images_by_content(repositories, engine)) == ["aa"]


def test_an_image_made_from_one_of_ours_is_not_taken_for_it(workspace: Workspace) -> None:
    """It inherits every label, the content hash too."""
    engine = FakeEngine()
    ours = engine.build(images(workspace)["torch"].local_reference, {CONTENT_HASH: "aa"})
    for name in ("localhost/somebody/app:1", "app:latest", f"{ours.references[0]}-app"):
        engine.build(name.replace(":", "-x:"), {CONTENT_HASH: "aa"}, content=name)
    repositories = workspace.matrix.repositories
    assert images_by_content(repositories, engine) == {"aa": ours}
    engine.remove(ours.references[0])
    assert images_by_content(repositories, engine) == {}


RESULTS = {
    "schema": 1,
    "session": "load",
    "target": "x86_64",
    "environment": {
        "facts": {
            "torch": "2.13.0+cpu",
            "toolkit": "",
            "python": "3.11",
            "archs": [],
            "relaxed": [],
        }
    },
    "planned": ["torch imports"],
    "unclaimed": [],
    "finished": True,
    "checks": [
        {
            "name": "torch imports",
            "outcome": "passed",
            "reason": "",
            "seconds": 0.1,
            "details": {},
        }
    ],
}


LABELS = {
    "org.opencontainers.image.version": "2.13.0-cpu-py3.11",
    "dev.warpfront.torch": "2.13.0+cpu",
    "dev.warpfront.toolkit": "",
    "dev.warpfront.python": "3.11",
    "dev.warpfront.targets": "x86_64",
    "dev.warpfront.relaxed": "",
}


def verified(
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    leave: Callable[[Path], None],
    engine: FakeEngine,
    *,
    again: int = 1,
    quick: bool = True,
    **changes: Any,
) -> Verification | Blocked | Failed:
    """Verify the CPU cell on an engine whose container only does `leave(results folder)`."""
    cell = dataclasses.replace(images(workspace)["torch"], **changes)
    locks, _ = lock(workspace, monkeypatch)
    if not workspace.folders.store.cell_folder(cell.id).joinpath("build.json").exists():
        image = engine.build(cell.local_reference, {**LABELS, CONTENT_HASH: "aa"})
        built = a_built_image(cell, image_id=image.id, content_hash="aa")
        workspace.folders.store.save(cell.id, "build", built)

    def program(request: Any, _on_line: object) -> int:
        leave(next(bind.source for bind in request.binds if bind.target == "/results"))
        return 0

    engine.programs["python3"] = program
    toolbox = "warpfront.pipeline.verifying.install_toolbox"
    monkeypatch.setattr(toolbox, lambda cache, *_, **__: cache)
    monkeypatch.setattr("warpfront.pipeline.verifying.attempt_key", key_of_parts)
    found = verify_cells(
        CellInputs(
            cells=(cell,),
            locks={key: value for key, value in locks.items() if isinstance(value, WheelLock)},
            matrix=workspace.matrix,
            material=workspace.material,
        ),
        CheckPlan(
            target="",
            sessions=("load",),
            effort=CheckOptions(quick=quick),
            options=RunOptions(repeat=again),
        ),
        Tools(engine=engine, folders=workspace.folders, site=Site),
        Quiet(),
    )
    return found[0]


def outcomes(result: Verification | Blocked | Failed) -> set[Outcome]:
    assert isinstance(result, Verification)
    return {check.outcome for check in result.checks}


def test_a_container_that_reports_its_checks_is_believed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(folder: Path) -> None:
        (folder / "load.json").write_text(json.dumps(RESULTS))
        nox = {"sessions": [{"name": "load", "result": "success"}]}
        (folder / "nox.json").write_text(json.dumps(nox))

    engine = FakeEngine()
    assert outcomes(verified(workspace, monkeypatch, leave, engine)) == {Outcome.PASSED}
    request = engine.requests[0]
    assert request.command[2:] == ("load", "--", *CheckOptions(quick=True).arguments())
    assert request.devices == DeviceAccess()
    assert [bind.target for bind in request.binds if bind.writable] == ["/results"]


def test_quick_checks_take_the_place_of_whole_ones_only_where_they_find_something(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of this very image: publish would refuse what was verified whole for the quick one's sake."""
    engine, store = FakeEngine(), workspace.folders.store
    checks = cast("list[dict[str, object]]", RESULTS["checks"])

    def leave(outcome: str) -> Callable[[Path], None]:
        document = {**RESULTS, "checks": [{**checks[0], "outcome": outcome}]}

        def write(folder: Path) -> None:
            (folder / "load.json").write_text(json.dumps(document))
            nox = {"sessions": [{"name": "load", "result": "success"}]}
            (folder / "nox.json").write_text(json.dumps(nox))

        return write

    def kept(outcome: str, *, quick: bool) -> tuple[bool, bool]:
        """Whether what is kept is a quick one, and has passed."""
        result = verified(workspace, monkeypatch, leave(outcome), engine, quick=quick)
        found = store.load(result.cell_id, "verify-x86_64", (Verification,))
        return found.environment["check_options"]["quick"], outcomes(found) == {Outcome.PASSED}

    assert kept("passed", quick=True) == (True, True)
    assert kept("passed", quick=False) == (False, True)
    assert kept("passed", quick=True) == (False, True)
    assert kept("failed", quick=True) == (True, False)
    assert kept("failed", quick=False) == (False, False)
    assert kept("passed", quick=True) == (False, False)
    cell_id = images(workspace)["torch"].id
    whole = store.load(cell_id, "verify-x86_64", (Verification,))
    of_another = dataclasses.replace(whole, image_id="sha256:another")
    store.save(cell_id, "verify-x86_64", sealed(of_another, ended=whole.ended))
    assert kept("passed", quick=True) == (True, True)


def test_a_check_that_flips_between_runs_of_one_digest_is_no_pass(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, left = FakeEngine(), list[Path]()
    checks = cast("list[dict[str, object]]", RESULTS["checks"])

    def leave(folder: Path) -> None:
        left.append(folder)
        check = {**checks[0]}
        if len(left) == 2:
            check |= {"outcome": "failed", "reason": "seed 7: too far off"}
        (folder / "load.json").write_text(json.dumps({**RESULTS, "checks": [check]}))

    found = verified(workspace, monkeypatch, leave, engine, again=3)
    assert isinstance(found, Verification)
    flipped = [check for check in found.checks if "flips" in check.reason]
    assert [(one.session, one.outcome) for one in flipped] == [("load", Outcome.FAILED)]
    assert "seed 7: too far off" in flipped[0].reason
    assert len(list((left[0].parent / "again").glob("*.json"))) == 3
    # Each run draws its own seeds; those of development are what they are.
    runs = [word for one in engine.requests for word in one.command if word.startswith("--run=")]
    assert runs == ["--run=0"] * 3
    drawn = read_effort(quick=True, profile="strict", seeds=2, run="ab12")
    assert [drawn.again(number).run for number in range(3)] == ["ab12", "ab12.1", "ab12.2"]
    assert len({drawn.again(number).seeds for number in range(3)}) == 3


def test_a_check_that_fails_beside_a_device_s_own_fault_is_no_verdict_and_tried_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many uncorrected errors as it was asked for the machine's health."""
    asked: list[int] = []

    class Failing(Machine):
        def names(self, path: str) -> tuple[str, ...]:
            return {"/sys/class/drm": ("card0",)}.get(path, ("umc_err_count",))

        def text(self, path: str) -> str | None:
            asked.append(1)
            return f"ue: {len(asked)}\nce: 0\n" if path.endswith("_err_count") else None

        def run(self, argv: tuple[str, ...]) -> ProgramOutput:
            return ProgramOutput(status=None, complaint=argv[0])

    monkeypatch.setattr(verifying, "Machine", Failing)
    engine = FakeEngine()
    target: dict[str, Any] = {"vendor": "amd", "targets": ("gfx942",)}
    failed = verified(workspace, monkeypatch, lambda _: None, engine, **target)
    assert isinstance(failed, Failed)
    assert failed.reason.startswith("the device failed meanwhile: ")
    assert failed.reason.endswith("uncorrected errors in card0 umc")
    assert failed.kind is FailureKind.INFRASTRUCTURE
    assert worth_another_try([failed])
    # A processor has no such counters: what fails there is a verdict.
    verdict = verified(workspace, monkeypatch, lambda _: None, engine)
    assert isinstance(verdict, Verification)


def test_the_project_of_a_cell_is_judged_with_its_image(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = SourceTree(path="kernels")
    (workspace.folders.root / tree.path).mkdir()
    found = verified(workspace, monkeypatch, lambda _: None, FakeEngine(), tree=tree)
    assert isinstance(found, Verification)
    said = {(check.session, check.name): check.reason for check in found.checks}
    assert said["static", "scan"] == "no file of kernels was scanned"
    assert found == workspace.folders.store.load(
        found.cell_id, f"verify-{found.target}", (Verification,)
    )


def test_a_project_that_could_not_be_scanned_is_in_junit_and_not_admitted(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_group: str) -> NoReturn:
        raise ModuleNotFoundError(name="tree_sitter")

    monkeypatch.setattr(verifying, "registered", missing)
    tree = SourceTree(path="kernels")
    found = verified(workspace, monkeypatch, lambda _: None, FakeEngine(), tree=tree)
    assert isinstance(found, Verification)
    reason = "tree_sitter is not installed: pip install 'warpfront[port]'"
    assert reason in junit_xml((found,)).replace("&#x27;", "'")
    evidence = some_evidence(
        None, a_check(), found.checks[-1], sessions=("load", found.sessions[-1])
    )
    against = admission(evidence, a_channel(), now="2026-11-22T12:00:00+00:00").against
    assert against == (f"x86-64: static/project: undetermined: {reason}",)


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", '"passed"', json.dumps({**RESULTS, "target": "sm_90"})]
)
def test_a_container_that_leaves_no_usable_results_is_an_error(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    def leave(folder: Path) -> None:
        if text is not None:
            (folder / "load.json").write_text(text)

    assert Outcome.ERROR in outcomes(verified(workspace, monkeypatch, leave, FakeEngine()))


@pytest.mark.parametrize(
    ("oom_killed", "timed_out", "code", "words"),
    [
        (True, False, 137, "the container ran out of its 8 GiB of memory"),
        (False, True, 137, "the container was stopped after 1200 s"),
        (False, False, 139, "the container exited with 139"),
        (False, False, 1, ""),
    ],
)
def test_how_a_container_ended_is_said_once(
    oom_killed: bool,  # noqa: FBT001 - a case
    timed_out: bool,  # noqa: FBT001 - a case
    code: int,
    words: str,
) -> None:
    ended = RunResult(exit_code=code, timed_out=timed_out, oom_killed=oom_killed, seconds=1.0)
    assert ending_of(ended, limit_seconds=1200.0) == words


def test_results_of_an_earlier_run_are_not_read_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(folder: Path) -> None:
        (folder / "load.json").write_text(json.dumps(RESULTS))

    engine = FakeEngine()
    verified(workspace, monkeypatch, leave, engine)
    assert Outcome.ERROR in outcomes(verified(workspace, monkeypatch, lambda _: None, engine))


def test_an_image_that_was_replaced_behind_our_back_is_not_verified(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, engine = images(workspace)["torch"], FakeEngine()
    image = engine.build(cell.local_reference, {CONTENT_HASH: "other"})
    built = a_built_image(cell, image_id=image.id, content_hash="aa")
    workspace.folders.store.save(cell.id, "build", built)
    result = verified(workspace, monkeypatch, lambda _: None, engine)
    assert isinstance(result, Failed)
    assert "another content hash" in result.reason
    assert engine.requests == []


def test_an_image_whose_lock_no_longer_fits_is_not_verified(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, engine = images(workspace)["torch"], FakeEngine()
    image = engine.build(cell.local_reference, {CONTENT_HASH: "aa"})
    built = a_built_image(cell, image_id=image.id, content_hash="aa")
    workspace.folders.store.save(cell.id, "build", built)
    monkeypatch.setattr("warpfront.pipeline.verifying.connect", lambda: engine)
    (result,) = pipeline.verify(workspace, Selection(image="torch"), Quiet())
    assert isinstance(result, Failed)
    assert result.reason == "its lock no longer fits the matrix"
    assert engine.requests == []


def test_a_row_that_was_never_built_has_the_reason_of_its_lock_or_its_parents(
    workspace: Workspace,
) -> None:
    cells, store = images(workspace), workspace.folders.store
    parent = cells["torch"]
    failed = Failed(cell_id=parent.id, step="lock", reason="no torch 9 in the index", exit_code=4)
    store.save(parent.id, "lock", failed)
    rows = pipeline.report(workspace, Selection(vendor="cpu"))
    assert {row.build for row in rows} == {"-"}
    assert {row.reason for row in rows} == {"no torch 9 in the index"}
    assert {row.kind for row in rows} == {"resolution"}
    assert {row.repeat for row in rows} == {f"warpfront lock --only {parent.id}"}


def test_a_cell_whose_build_was_blocked_is_blocked_for_the_same_reason(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = images(workspace)["torch"]
    workspace.folders.store.save(
        cell.id, "build", Blocked(cell_id=cell.id, step="lock", reason="no index")
    )
    result = verified(workspace, monkeypatch, lambda _: None, FakeEngine(devices=HostDevices()))
    assert isinstance(result, Blocked)
    assert result.reason == "not built: no index"


def test_a_report_of_an_untouched_project_says_so(workspace: Workspace) -> None:
    rows = pipeline.report(workspace, Selection(image="torch"))
    assert [(row.lock, row.build, row.verify) for row in rows] == [
        ("never built: it has no lock yet", "-", "-")
    ]


def test_a_broken_result_file_blocks_its_cell_in_the_report_and_is_named(
    workspace: Workspace,
) -> None:
    cell = images(workspace)["torch"]
    path = workspace.folders.store.save(cell.id, "build", a_built_image(cell))
    path.write_text(path.read_text().replace(BuiltImage.__name__, "Banana"))
    rows = {row.cell_id: row for row in pipeline.report(workspace, Selection())}
    assert rows[cell.id].build == "blocked"
    assert "build.json" in rows[cell.id].reason
    assert {row.build for name, row in rows.items() if name != cell.id} == {"-"}
