"""The door: a task has the options that it uses, each explained; errors become exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import invoke.program
import pytest
from conftest import Golden
from fakes import FakeEngine
from invoke.collection import Collection
from invoke.exceptions import Exit
from invoke.program import Program
from invoke.tasks import Task

from warpfront.cli.display import Display
from warpfront.cli.tasks import MODULES, installed_modules, modules_for, namespace, tasks_of
from warpfront.cli.tasks.declaring import Chosen, Json, Option, command
from warpfront.errors import LockError
from warpfront.images.labels import CELL
from warpfront.matrix.cell import Selection
from warpfront.matrix.scaffold import make_project
from warpfront.pipeline.verifying import RunOptions
from warpfront.pipeline.workspace import open_workspace
from warpfront.step_results import Blocked
from warpfront_checks.check_options import CheckOptions

SEEN: list[tuple[Selection, bool]] = []
TASKS: dict[str, Task[Any]] = dict(namespace.tasks)
EVERY_TASK = pytest.mark.parametrize("name", sorted(TASKS))
WITHOUT_CELLS = {
    "compat",
    "why",
    "engine",
    "init",
    "doctor",
    "job",
    "merge",
    "explain",
    "runner",
    "read-log",
    "compare",
    "compare-stacks",
    "nights",
}


def run_task(name: str, **given: Any) -> None:
    task = TASKS[name]
    assert set(given) <= {one.attr_name or one.name for one in arguments_of(task)}
    task.body(None, **given)


@contextlib.contextmanager
def help_kept() -> Iterator[None]:
    """invoke takes the help out of a task as it reads it, once a process."""
    kept = {name: dict(task.help) for name, task in TASKS.items()}
    yield
    for name, task in TASKS.items():
        task.help = kept[name]


def arguments_of(task: Task[Any]) -> list[Any]:
    with help_kept():
        return list(task.get_arguments())


def run_with(error: BaseException) -> Exit:
    def broken() -> None:
        raise error

    return ended_by(broken)


def ended_by(body: Callable[[], None]) -> Exit:
    with pytest.raises(Exit) as caught:
        command(body).body(None)
    return caught.value


def test_an_expected_error_is_its_message_its_hint_and_its_code() -> None:
    ended = run_with(LockError("lock is stale", hint="invoke lock"))
    assert (ended.code, ended.message) == (4, "error: lock is stale\nhint: invoke lock")


def test_a_bug_is_named_one_and_shows_its_traceback() -> None:
    ended = run_with(ZeroDivisionError("oops"))
    assert ended.code == 70
    assert "bug in warpfront" in str(ended.message)
    assert "ZeroDivisionError: oops" in str(ended.message)


def test_clean_removes_the_projects_images_and_leaves_what_stands_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    cell = open_workspace(tmp_path).matrix.cells[0]
    engine = FakeEngine()
    killed = "registry.example:5000/me/torch:candidate-20261122T120000-1a2b3c-0123456789ab"
    theirs = ("my/app:1", "registry.example:5000/me/candidate-app:1")
    for name in (cell.local_reference, f"localhost/{cell.project}/builder:1", killed, *theirs):
        engine.build(name, {CELL: cell.id}, content=name)
    engine.build(f"{killed}-of-another", {CELL: "another-cell"}, content="another")
    monkeypatch.setattr("warpfront.images.engine.connect", lambda _environment: engine)
    run_task("clean")
    left = [reference for image in engine.images(CELL) for reference in image.references]
    assert sorted(left) == [*theirs, f"{killed}-of-another"]


@pytest.mark.parametrize("text", ["a line\n", "x" * 1_000_000])
def test_a_reader_that_has_gone_ends_a_task_silently(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`invoke plan --json | head`, whether head went before the first byte or in the middle."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stream:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stdout", stream)
        ended = ended_by(lambda: print(text))
    assert (ended.code, ended.message) == (141, None)


def test_a_pipe_of_somebody_elses_that_broke_is_still_a_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    with open(reading) as _, open(writing, "w") as stream:  # noqa: PTH123 - descriptors
        monkeypatch.setattr(sys, "stdout", stream)
        assert run_with(BrokenPipeError("a socket")).code == 70


def test_ctrl_c_is_130() -> None:
    assert run_with(KeyboardInterrupt()).code == 130


def test_sigterm_unwinds_a_task_like_ctrl_c() -> None:
    cleaned: list[str] = []

    def waiting() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            cleaned.append("yes")

    with pytest.raises(Exit) as caught:
        command(waiting).body(None)
    assert (caught.value.code, cleaned) == (130, ["yes"])


def noting(cells: Chosen, *, json: Json = False) -> None:
    SEEN.append((cells, json))


def test_options_become_a_selection() -> None:
    chosen = {"target": "gfx942", "vendor": "", "image": "", "only": "*devel"}
    command(noting).body(None, **chosen, json=True)
    assert SEEN[-1] == (Selection(target="gfx942", only="*devel"), True)


@EVERY_TASK
def test_only_tasks_about_cells_or_sources_select_any(name: str) -> None:
    selecting = {"target", "vendor", "image", "only"}
    options = {argument.name for argument in arguments_of(TASKS[name])}
    assert options & selecting == (set() if name in WITHOUT_CELLS else selecting)


def silent(task: Task[Any]) -> list[str]:
    """The options of a task that say nothing of themselves."""
    return [one.name for one in arguments_of(task) if not (one.help or "").strip()]


@EVERY_TASK
def test_every_option_of_every_task_says_what_it_does(name: str) -> None:
    assert silent(TASKS[name]) == []


def test_an_option_that_says_nothing_is_found() -> None:
    def quiet(*, loud: Annotated[bool, Option("  ")] = False) -> None:
        assert loud

    def mute(*, loud: bool = False) -> None:
        assert loud

    with pytest.raises(TypeError, match="mute: loud says nothing of itself"):
        command(mute)
    quiet.__annotations__["loud"] = Annotated[bool, Option("  ")]
    assert silent(command(quiet)) == ["loud"]


def strangers(name: str, task: Task[Any]) -> list[str]:
    """The options whose text is about another task: it names one that is not this, as in
    `scan: ...` or `report prints it`.
    """
    others = "|".join(sorted({*TASKS, *WITHOUT_CELLS} - {name}))
    names_one = re.compile(rf"(?<![`\w-])(?:{others})(?::| (?:prints|writes|lists|takes)\b)")
    return [one.name for one in arguments_of(task) if names_one.search(one.help)]


@EVERY_TASK
def test_no_option_explains_itself_by_another_task(name: str) -> None:
    assert strangers(name, TASKS[name]) == []


def confused(
    *,
    everything: Annotated[bool, Option("scan: list notes; clean: also remove images")] = False,
    markdown: Annotated[bool, Option("a table: report prints it")] = False,
    repo: Annotated[str, Option("the folder; `invoke plan` lists more")] = "",
) -> None:
    assert [everything, markdown, repo]


def test_an_option_that_is_explained_by_another_task_is_found() -> None:
    assert strangers("scan", command(confused)) == ["everything", "markdown"]


def shown(width: int, *arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    """What `invoke` prints in a terminal of some width."""
    monkeypatch.setattr(invoke.program, "pty_size", lambda: (width, 24))
    program = Program(name="warpfront", binary="warpfront", namespace=Collection(**TASKS))
    with help_kept():
        program.run(["warpfront", *arguments], exit=False)
    return str(capsys.readouterr().out)


def listed(text: str) -> Iterator[tuple[str, str]]:
    """Task and sentence, as `--list` has them."""
    for entry in re.split(r"\n  (?=\w)", text.partition(":\n")[2]):
        name, _, sentence = entry.strip().partition(" ")
        if name:
            yield name, " ".join(sentence.split())


@pytest.mark.parametrize("width", [80, 120])
def test_the_list_has_each_tasks_whole_first_sentence(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(width, "--list", monkeypatch=monkeypatch, capsys=capsys)
    sentences = {
        name: " ".join((task.__doc__ or "").partition("\n\n")[0].split())
        for name, task in TASKS.items()
    }
    assert dict(listed(text)) == sentences
    assert all(one.endswith(".") and one.count(". ") == 0 for one in sentences.values())
    assert max(map(len, text.splitlines())) <= width


@EVERY_TASK
def test_the_help_of_a_task_is_complete(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    text = shown(80, "--help", name, monkeypatch=monkeypatch, capsys=capsys)
    assert max(map(len, text.splitlines())) <= 80
    golden(f"help/{name}.txt", text)


EFFORT = {"quick": True, "profile": "torch", "seeds": "3", "run": "0", "selftest": False}


def test_verify_hands_on_how_much_to_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[CheckOptions] = []

    def verify(*_: object, effort: CheckOptions, options: RunOptions, **__: object) -> tuple[()]:
        asked.append(effort)
        assert options == RunOptions(again=2, limit_seconds=60, user="12345", fresh=True)
        return ()

    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warpfront.pipeline.verify", verify)
    how = {"again": "2", "limit_seconds": "60", "user": "12345", "fresh": True}
    run_task("verify", json=True, **how, **EFFORT)
    assert asked == [CheckOptions(quick=True, profile="torch", seeds=(0, 1, 2))]


def test_verify_says_why_it_did_not_come_to_a_cell_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    never = Blocked(cell_id="cell", step="verify", reason="not built", hint="invoke build")
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warpfront.pipeline.verify", lambda *_, **__: (never,))
    with pytest.raises(Exit) as ended:
        run_task("verify", **EFFORT)
    assert ended.value.code == 9
    assert "cell: blocked: not built\n    hint: invoke build\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("task", "wrong", "said"),
    [
        ("verify", {"profile": "loose"}, "no profile 'loose'\nhint: strict, "),
        ("verify", {"seeds": "0"}, "--seeds '0' is not a number from 1 on"),
        ("verify", {"seeds": "x"}, "--seeds 'x' is not a number from 1 on"),
        ("compile", {"seconds": "long"}, "--seconds 'long' is no number"),
    ],
    ids=["profile", "no seeds", "seeds", "seconds"],
)
def test_an_option_of_no_use_is_refused_in_words(
    task: str, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(Exit) as caught:
        run_task(task, **wrong)
    assert caught.value.code == 1
    assert str(caught.value.message).startswith(f"error: {said}")


def test_verifying_no_time_at_all_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exit, match="--again 0 is not a number from 1 on"):
        run_task("verify", again="0", **EFFORT)


def test_planning_a_new_project_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warpfront.pipeline.plan", lambda *_: ())
    run_task("plan", json=True)
    assert json.loads(capsys.readouterr().out) == []


def test_a_folder_without_a_matrix_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exit) as caught:
        run_task("report")
    assert caught.value.code == 13
    assert "warpfront init" in str(caught.value.message)


def test_a_hostile_matrix_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "matrix.yaml").write_text("schema: 1\nschema: 1\nrows: [[[[\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exit) as caught:
        run_task("plan")
    assert caught.value.code == 2
    assert "Traceback" not in str(caught.value.message)
    assert "matrix.yaml:" in str(caught.value.message)


EVERY_MODULE = {**MODULES, **installed_modules()}
ALL = tuple(EVERY_MODULE)


@pytest.mark.parametrize("module", EVERY_MODULE)
def test_the_tasks_of_a_module_are_listed(module: str) -> None:
    assert set(EVERY_MODULE[module]) == set(tasks_of((module,)).tasks)


@pytest.mark.parametrize(
    ("line", "modules"),
    [
        ("/bin/invoke plan --only speed", ("warpfront.cli.tasks.path",)),
        (
            "/lib/invoke/__main__.py build publish",
            ("warpfront.cli.tasks.path", "warpfront.cli.tasks.releasing"),
        ),
        ("warpfront --help compare-stacks", ("warpfront.cli.tasks.speed",)),
        ("inv -e try -- python main.py", ("warpfront_port.tasks.porting",)),
        ("invoke --list plan", ALL),
        ("invoke -Dl plan", ALL),
        ("invoke --complete -- invoke plan", ALL),
        ("invoke no-such-task", ALL),
        ("invoke", ALL),
        ("pytest -k plan", ALL),
    ],
)
def test_a_command_line_makes_the_tasks_that_it_names(line: str, modules: tuple[str, ...]) -> None:
    assert modules_for(line.split()) == modules


def test_talking_is_to_the_display(capsys: pytest.CaptureFixture[str]) -> None:
    command(talking).body(None)
    assert capsys.readouterr().err == "hello\n"


def talking(display: Display) -> None:
    display.say("hello")
