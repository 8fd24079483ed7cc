"""Whoever may write results may write anything. It costs the cell its verification, and no other
cell, and nothing of the host.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from builders import a_built_image, a_lock, key_of_parts, make_project
from fakes import FakeEngine

from warpfront import pipeline
from warpfront.errors import EngineError
from warpfront.images.engine.protocol import RunRequest
from warpfront.images.labels import CONTENT_HASH
from warpfront.images.preparing import CellInputs, Tools
from warpfront.matrix.cell import Cell, Selection
from warpfront.pipeline.verifying import CheckPlan, Verified, verify_cells
from warpfront.pipeline.workspace import Workspace, open_workspace
from warpfront.report.described import profiles_text
from warpfront.report.junit import junit_xml
from warpfront.step_results import Blocked, Failed
from warpfront.system.foreign import RESULT_LIMIT_BYTES
from warpfront.verify.containers import OUTPUT_LIMIT_CHARACTERS, Output
from warpfront.verify.results import Outcome, Verification
from warpfront.verify.verdict import outcome_of
from warpfront.wheels.sources import Site
from warpfront_checks.check_options import CheckOptions

FACTS = {"torch": "2.13.0+cpu", "toolkit": "", "python": "3.11", "archs": [], "relaxed": []}
CHECK = {"name": "torch", "outcome": "passed", "reason": "", "seconds": 0.1, "details": {}}
GOOD: dict[str, Any] = {
    "schema": 1,
    "session": "load",
    "target": "x86_64",
    "environment": {"facts": FACTS},
    "planned": ["torch"],
    "unclaimed": [],
    "finished": True,
    "checks": [CHECK],
}
LABELS = {
    "org.opencontainers.image.version": "2.13.0-cpu-py3.11",
    "dev.warpfront.torch": "2.13.0+cpu",
    "dev.warpfront.toolkit": "",
    "dev.warpfront.python": "3.11",
    "dev.warpfront.targets": "x86_64",
    "dev.warpfront.relaxed": "",
    CONTENT_HASH: "aa",
}
Leave = Callable[[Path], None]


class Quiet:
    def say(self, text: str) -> None: ...

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None: ...


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    make_project(tmp_path)
    return open_workspace(tmp_path)


def cells_of(workspace: Workspace) -> tuple[Cell, Cell]:
    """The project's cell as two: the one that is attacked, and the next."""
    (cell,) = workspace.matrix.cells
    return cell, dataclasses.replace(cell, id="next")


def leave_good(folder: Path, document: object = GOOD) -> None:
    (folder / "load.json").write_text(json.dumps(document))
    nox = {"sessions": [{"name": "load", "result": "success"}]}
    (folder / "nox.json").write_text(json.dumps(nox))


def verified(
    workspace: Workspace, leave: Leave, monkeypatch: pytest.MonkeyPatch, *, built: bool = True
) -> tuple[Verified, ...]:
    """Both cells, of which the first one's container does `leave(its results folder)`."""
    engine, cells = FakeEngine(), cells_of(workspace)
    for cell in cells if built else ():
        image = engine.build(cell.local_reference, LABELS)
        made = a_built_image(cell, image_id=image.id, content_hash="aa")
        workspace.folders.store.save(cell.id, "build", made)

    def program(request: RunRequest, _on_line: object) -> int:
        folder = next(bind.source for bind in request.binds if bind.target == "/results")
        (leave_good if cells[1].id in folder.parts else leave)(folder)
        return 0

    engine.programs["python3"] = program
    toolbox = "warpfront.pipeline.verifying.install_toolbox"
    monkeypatch.setattr(toolbox, lambda cache, *_, **__: cache)
    monkeypatch.setattr("warpfront.pipeline.verifying.attempt_key", key_of_parts)
    return verify_cells(
        CellInputs(
            cells=tuple(cells),
            locks={cell.id: a_lock(cell) for cell in cells},
            matrix=workspace.matrix,
            material=workspace.material,
        ),
        CheckPlan(target="", sessions=("load",), effort=CheckOptions()),
        Tools(engine=engine, folders=workspace.folders, site=Site),
        Quiet(),
    )


def reasons(result: Verified) -> str:
    assert isinstance(result, Verification)
    assert outcome_of(result) is Outcome.ERROR
    return "; ".join(check.reason for check in result.checks)


def a_socket(path: Path) -> None:
    home = Path.cwd()
    os.chdir(path.parent)  # a socket's name may have 108 characters
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(home)


def a_sparse_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 * 2**30)


ATTACKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a FIFO": (os.mkfifo, "a FIFO, not a regular file"),
    "a folder": (lambda path: (path / "deep" / "er").mkdir(parents=True), "a folder, not a"),
    "a link": (lambda path: path.symlink_to("/etc/passwd"), "a link, not a regular file"),
    "a link to the good": (lambda path: path.symlink_to("nox.json"), "a link, not a regular file"),
    "a socket": (a_socket, "a socket, not a regular file"),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "a link, not a regular file"),
    "3 GB": (a_sparse_file, "larger than 16 MiB"),
    "deep": (lambda path: path.write_text("[" * 200_000), "deeper than 40 levels"),
    "less deep": (lambda path: path.write_text("[" * 60 + "]" * 60), "deeper than 40 levels"),
    "not UTF-8": (lambda path: path.write_bytes(b"\xff\xfe{}"), "can't decode byte 0xff"),
    "not JSON": (lambda path: path.write_text("{"), "Expecting property name"),
    "no number": (lambda path: path.write_text('{"seconds": NaN}'), "beyond all bounds: nan"),
    "infinite": (lambda path: path.write_text('{"seconds": 1e999}'), "beyond all bounds"),
    "huge": (lambda path: path.write_text(f'{{"seconds": 1{"0" * 400}}}'), "more than 64 bits"),
    "longer": (lambda path: path.write_text("1" * 5000), "integer string conversion"),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["load.json", "nox.json"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_no_result_is_an_error_of_its_cell_alone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, attack: str, name: str
) -> None:
    make, reason = ATTACKS[attack]

    def leave(folder: Path) -> None:
        leave_good(folder)
        (folder / name).unlink()
        make(folder / name)

    found, after = verified(workspace, leave, monkeypatch)
    assert reason in reasons(found)
    assert f"results/{name}" in reasons(found)
    assert isinstance(after, Verification)
    assert outcome_of(after) is Outcome.PASSED
    again, _ = verified(workspace, leave_good, monkeypatch)
    assert isinstance(again, Verification)
    assert outcome_of(again) is Outcome.PASSED


def test_what_may_not_be_read_is_an_error_of_its_cell_alone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's file; root, who may read everything, is told so here."""
    real, (attacked, _) = os.open, cells_of(workspace)

    def refuse(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).endswith("results/load.json") and attacked.id in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr("os.open", refuse)
    found, after = verified(workspace, leave_good, monkeypatch)
    assert "Permission denied" in reasons(found)
    assert isinstance(after, Verification)
    assert outcome_of(after) is Outcome.PASSED


def test_what_is_left_beside_the_results_is_gone_before_the_next_run(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "gold").write_text("ours")

    def leave(folder: Path) -> None:
        leave_good(folder)
        (folder / "tree" / "closed").mkdir(parents=True)
        (folder / "tree" / "closed" / "file").write_text("")
        (folder / "tree" / "closed").chmod(0)
        (folder / "out").symlink_to(treasure)
        os.mkfifo(folder / "fifo")

    verified(workspace, leave, monkeypatch)
    found, _ = verified(workspace, leave_good, monkeypatch)
    assert isinstance(found, Verification)
    folder = workspace.folders.store.cell_folder(found.cell_id) / "verify-x86_64" / "results"
    assert {path.name for path in folder.iterdir()} == {"load.json", "nox.json"}
    assert (treasure / "gold").read_text() == "ours"


def test_what_cannot_be_removed_is_said_of_its_cell_and_the_next_one_goes_on(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, (attacked, _) = os.unlink, cells_of(workspace)

    def refuse(path: Any, *arguments: Any, **options: Any) -> None:
        if path == "kept" or str(path).endswith("/kept"):
            raise PermissionError(1, "Operation not permitted", str(path))
        real(path, *arguments, **options)

    def leave(folder: Path) -> None:
        (folder / "kept").write_text("")

    verified(workspace, leave, monkeypatch)
    monkeypatch.setattr("os.unlink", refuse)
    found, after = verified(workspace, leave, monkeypatch)
    assert isinstance(found, Failed)
    assert (found.cell_id, found.exit_code) == (attacked.id, 7)
    assert "cannot be removed: Operation not permitted" in found.reason
    assert "as the user that owns" in found.hint
    assert isinstance(after, Verification)
    assert outcome_of(after) is Outcome.PASSED


def test_an_image_that_cannot_start_is_said_of_its_cell_and_the_next_one_goes_on(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(_folder: Path) -> None:
        raise EngineError("exec: timeout: executable file not found in $PATH")

    found, after = verified(workspace, leave, monkeypatch)
    assert isinstance(found, Failed)
    assert "executable file not found" in found.reason
    assert isinstance(after, Verification)


def test_an_engine_that_goes_away_stops_the_run(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise EngineError("the engine went away")

    def leave(_folder: Path) -> None:
        monkeypatch.setattr(FakeEngine, "_answer", gone)

    with pytest.raises(EngineError, match="went away"):
        verified(workspace, leave, monkeypatch)


def test_a_cell_that_was_never_built_is_blocked(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in verified(workspace, leave_good, monkeypatch, built=False):
        assert isinstance(one, Blocked)
        assert (one.step, one.reason) == ("verify", "not built")
        assert one.hint == f"warpfront build --only {one.cell_id}"


@pytest.mark.parametrize("text", ["", "[]", "7", "[" * 100_000, '{"schema": 1}', "\0"])
def test_an_unreadable_record_of_a_build_blocks_its_cell_alone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    verified(workspace, leave_good, monkeypatch)
    attacked, _ = cells_of(workspace)
    path = workspace.folders.store.cell_folder(attacked.id) / "build.json"
    save = type(workspace.folders.store).save

    def save_others(store: Any, cell_id: str, name: str, value: object) -> Path:
        spared = cell_id == attacked.id and name == "build"
        return path if spared else save(store, cell_id, name, value)

    monkeypatch.setattr(type(workspace.folders.store), "save", save_others)
    path.write_text(text)
    found, after = verified(workspace, leave_good, monkeypatch)
    assert isinstance(found, Blocked)
    assert "build.json" in found.reason
    assert isinstance(after, Verification)
    (row,) = pipeline.report(workspace, Selection())
    assert row.build == "blocked"
    assert "build.json" in row.reason


@pytest.mark.timeout(20)
def test_an_unreadable_verification_is_an_error_of_the_report(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    attacked, _ = cells_of(workspace)
    verified(workspace, leave_good, monkeypatch)
    assert [row.verify for row in pipeline.report(workspace, Selection())] == ["passed"]
    path = workspace.folders.store.cell_folder(attacked.id) / "verify-x86_64.json"
    path.unlink()
    os.mkfifo(path)
    (row,) = pipeline.report(workspace, Selection())
    assert (row.build, row.verify) == ("built", "error")
    assert "a FIFO, not a regular file" in row.reason


def test_an_edited_verification_is_an_error_of_the_report(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    attacked, _ = cells_of(workspace)
    verified(workspace, leave_good, monkeypatch)
    path = workspace.folders.store.cell_folder(attacked.id) / "verify-x86_64.json"
    path.write_text(path.read_text().replace('"seconds": ', '"seconds": 9'))
    (row,) = pipeline.report(workspace, Selection())
    assert (row.build, row.verify) == ("built", "error")
    assert "changed after it was made" in row.reason


def test_an_unreadable_publication_is_an_outcome_of_the_report(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    attacked, _ = cells_of(workspace)
    verified(workspace, leave_good, monkeypatch)
    (row,) = pipeline.report(workspace, Selection())
    assert row.reason == ""
    (workspace.folders.store.cell_folder(attacked.id) / "publish.json").write_text("[" * 99)
    (row,) = pipeline.report(workspace, Selection())
    assert row.published == ""
    assert row.reason.startswith("not published: ")
    assert "publish.json" in row.reason


def test_control_characters_reach_neither_terminal_nor_files(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "\x1b]0;mine\x07\ud800 \x9b31m\N{GREEK SMALL LETTER ALPHA}\n"
    check = {**CHECK, "outcome": "failed", "reason": said, "details": {said: [said]}}
    found, _ = verified(
        workspace, lambda folder: leave_good(folder, {**GOOD, "checks": [check]}), monkeypatch
    )
    text = reasons(found)
    assert "mine" in text
    assert "\N{GREEK SMALL LETTER ALPHA}\n" in text
    assert not {"\x1b", "\x07", "\x9b", "\ud800"} & set(text)
    text.encode("utf-8")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda more: (
        st.lists(more, max_size=3) | st.dictionaries(st.text(max_size=4), more, max_size=3)
    ),
    max_leaves=8,
)


@hypothesis.settings(
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=15
)
@hypothesis.given(
    field=st.sampled_from(
        [
            *((name,) for name in GOOD),
            *(("environment", "facts", name) for name in FACTS),
            *(("checks", 0, name) for name in CHECK),
            ("environment", "check_options"),
            ("checks", 0, "details", "profiles"),
        ]
    ),
    value=anything,
)
def test_no_shape_of_a_result_breaks_off_what_reads_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, field: tuple[Any, ...], value: object
) -> None:
    document = json.loads(json.dumps(GOOD))
    place = document
    for name in field[:-1]:
        place = place.setdefault(name, {}) if isinstance(place, dict) else place[name]
    place[field[-1]] = value
    found, after = verified(workspace, lambda folder: leave_good(folder, document), monkeypatch)
    assert isinstance(found, Verification)
    junit_xml([found]).encode("utf-8")
    profiles_text(found).encode("utf-8")
    assert len(pipeline.report(workspace, Selection())) == 1
    assert isinstance(after, Verification)
    assert outcome_of(after) is Outcome.PASSED


def test_a_container_may_print_without_end_and_the_last_of_it_is_kept() -> None:
    output, line = Output(), "x" * 1023
    for _ in range(OUTPUT_LIMIT_CHARACTERS // 1024 + 5):
        output.add(line)
    output.add("the end")
    assert len(output.text) <= OUTPUT_LIMIT_CHARACTERS + 100
    assert output.text.startswith("(6 lines before these were not kept)\nxxx")
    assert output.text.endswith("x\nthe end\n")


def test_a_result_may_be_as_large_as_the_limit_and_no_larger(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(GOOD)

    def leave(more: int) -> Leave:
        def fill(folder: Path) -> None:
            leave_good(folder)
            (folder / "load.json").write_text(text.ljust(RESULT_LIMIT_BYTES + more))

        return fill

    found, _ = verified(workspace, leave(0), monkeypatch)
    assert isinstance(found, Verification)
    assert outcome_of(found) is Outcome.PASSED
    found, _ = verified(workspace, leave(1), monkeypatch)
    assert "larger than 16 MiB" in reasons(found)
