"""The door: a task has the options that it uses, each explained; errors become exit codes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.shell_completion
import invoke.program
import pytest
from builders import make_project
from conftest import Golden
from fakes import FakeEngine
from invoke.exceptions import Exit
from invoke.tasks import Task

from warpfront.cli.display import Display, Volume
from warpfront.cli.loading import MODULES, declared_in, installed_modules, modules_for
from warpfront.cli.program import Program, run
from warpfront.cli.tasks import namespace
from warpfront.cli.tasks.declaring import (
    COMMON,
    REQUIRED,
    Chosen,
    Command,
    Ended,
    Group,
    command,
)
from warpfront.errors import LockError
from warpfront.images.labels import CELL
from warpfront.matrix.cell import Selection
from warpfront.pipeline.workspace import open_workspace
from warpfront.step_results import Blocked
from warpfront.verify.run_options import RunOptions
from warpfront_checks.check_options import CheckOptions

SEEN: list[Selection] = []
TASKS: dict[str, Task[Any]] = dict(namespace.tasks)
EVERY_MODULE = {**MODULES, **installed_modules()}
ALL = tuple(EVERY_MODULE)
DECLARED = tuple(declared_in(ALL))
COMMANDS = {" ".join(one.words): one for one in DECLARED if isinstance(one, Command)}
EVERY = pytest.mark.parametrize("words", sorted(COMMANDS))


def run_task(name: str, **given: Any) -> None:
    task = TASKS[name]
    assert set(given) <= {one.attr_name or one.name for one in task.get_arguments()}
    task.body(None, **given)


def run_with(error: BaseException) -> Ended:
    def broken() -> None:
        raise error

    return ended_by(broken)


def ended_by(body: Callable[[], None]) -> Ended:
    with pytest.raises(Ended) as caught:
        command()(body).run({})
    return caught.value


def test_an_expected_error_is_its_message_its_hint_and_its_code() -> None:
    ended = run_with(LockError("lock is stale", hint="warpfront lock"))
    assert (ended.code, ended.message) == (4, "error: lock is stale\nhint: warpfront lock")


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
    monkeypatch.setattr("warpfront.images.engine.protocol.connect", lambda: engine)
    run_task("clean")
    left = [reference for image in engine.images(CELL) for reference in image.references]
    assert sorted(left) == [*theirs, f"{killed}-of-another"]


@pytest.mark.parametrize("text", ["a line\n", "x" * 1_000_000])
def test_a_reader_that_has_gone_ends_a_task_silently(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`warpfront plan --json | head`, whether head went before the first byte or in the middle."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stream:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stdout", stream)
        ended = ended_by(lambda: print(text))
    assert (ended.code, ended.message) == (141, "")


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

    with pytest.raises(Ended) as caught:
        command()(waiting).run({})
    assert (caught.value.code, cleaned) == (130, ["yes"])


def noting(cells: Chosen) -> None:
    SEEN.append(cells)


def test_options_become_a_selection() -> None:
    chosen = {"target": "gfx942", "vendor": "", "image": "", "only": "*devel"}
    command()(noting).run(chosen)
    assert SEEN[-1] == Selection(target="gfx942", only="*devel")


@EVERY
def test_every_option_of_every_command_has_help(words: str) -> None:
    assert [name for name, (_, one) in COMMANDS[words].each.items() if not one.help.strip()] == []


def test_a_parameter_without_help_is_refused() -> None:
    def mute(*, loud: bool = False) -> None:
        assert loud

    with pytest.raises(TypeError, match="mute: loud has no help"):
        command()(mute)


@EVERY
def test_the_help_of_a_command_fits_a_screen_and_begins_with_an_example(
    words: str, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words.split(), "--help"]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0].startswith(f"$ warpfront {words}")
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 40
    golden(f"help/{words.replace(' ', '-')}.txt", text)


def test_the_help_of_the_program_and_of_its_groups(
    golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = [one.name for one in DECLARED if isinstance(one, Group)]
    for words in ([], *([name] for name in groups)):
        assert run([*words, "--help"]) == 0
        text = capsys.readouterr().out
        lines = text.splitlines()
        assert lines[0].startswith(" ".join(["$ warpfront", *words]))
        assert max(map(len, lines)) <= 80
        assert len(lines) <= 40
        golden(f"help/{'-'.join(['warpfront', *words])}.txt", text)


@pytest.mark.parametrize("words", sorted(COMMANDS))
def test_the_example_of_a_command_can_be_read(words: str) -> None:
    """Each example is a command line that Click reads: names of options, words in places."""
    example = shlex.split(COMMANDS[words].example)
    example = example[: example.index(">>")] if ">>" in example else example
    example = example[: example.index("--")] if "--" in example else example
    context = Program().make_context("warpfront", [*example, "--help"], resilient_parsing=True)
    leaf: Any = context.command
    rest = [*context._protected_args, *context.args]
    while hasattr(leaf, "resolve_command"):
        _, leaf, rest = leaf.resolve_command(context, rest)
    leaf.make_context("x", [word for word in rest if word != "--help"])


# --target, --image and such are one option each: `warpfront --help` lists them once.
MOST_OPTIONS = 140


def options_listed() -> int:
    commands = [one for one in COMMANDS.values() if not one.hidden]
    own = sum(
        not (option.hidden or option.place or default is REQUIRED or COMMON.get(name) is option)
        for one in commands
        for name, (default, option) in one.each.items()
    )
    everywhere = 5  # --project, --quiet, --verbose, --help, --version
    return own + len(COMMON) + everywhere


def test_there_are_no_more_options_than_a_person_can_know() -> None:
    assert options_listed() <= MOST_OPTIONS, options_listed()


def test_there_are_five_short_options_at_most() -> None:
    own = {option.short for one in COMMANDS.values() for _, option in one.each.values()} - {""}
    assert own | set("Cqvh") == set("Cqvhr")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plam"], "there is no command 'plam': did you mean `plan`?"),
        (["plan", "--taget", "cpu"], "--target"),
        (["release", "promot"], "promote"),
        (["port", "scan", ".", "--fail-on", "bulid"], "did you mean `build`?"),
        (["port", "scan", "a", "b"], "unexpected extra argument"),
        (["release", "promote"], "FROM is missing"),
        (["plan", "-C", "no/such/folder"], "does not exist"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_names_the_nearest(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("error: ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("release --promote nightly --channel x", "release promote nightly --channel x"),
        ("release --channel x --promote=nightly", "release promote --channel x nightly"),
        ("release --yank a --because b", "release yank a --reason b"),
        ("release --channel x", "release list --channel x"),
        ("engine --start", "engine start"),
        ("runner --row gpu --prepare", "runner setup gpu"),
        ("compat", "compat update --dry-run"),
        ("compat --check --json", "compat check --json"),
        ("job --step build", "ci run --step build"),
        ("bill --who numpy", "sbom --who numpy"),
        ("scan --repo x --everything", "port scan x --all"),
        ("scan --repo x --before y", "port scan x --diff-base y"),
        ("compare -a x -b y", "bench compare x y"),
        ("explain --check N --result S", "explain S N"),
        ("why A --since B", "why A B"),
        ("clean --everything", "clean --all"),
        ("read-log x --fact gpus=8", "bench read-log x --fact gpus=8"),
    ],
)
def test_an_old_command_line_is_the_new_one_with_a_note(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[tuple[str, ...], dict[str, Any]]] = []
    monkeypatch.setattr(
        Command, "run", lambda self, given, _volume: seen.append((self.words, dict(given)))
    )
    assert run(new.split()) == 0
    assert capsys.readouterr().err == ""
    assert run(old.split()) == 0
    assert seen[0] == seen[1]
    is_default = new.startswith(("release list", "compat update"))
    assert is_default or "the next release drops the old form" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("release --promote nightly --channel x", {"source": "nightly", "channel": "x"}),
        ("ci --judge --json", {"json": True}),
        ("runner --row gpu --tidy", {"row": "gpu"}),
        ("engine", {}),
        ("scan --repo x --before y -- z", {"repo": "x", "diff_base": "y"}),
        ("preflight -r a -r b", {"requirements": ["a", "b"]}),
        ("build --target gfx942", {"target": "gfx942"}),
    ],
)
def test_invoke_has_the_same_commands_by_their_old_words(
    words: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(
        Command,
        "run",
        lambda _, values, *__: seen.append({k: v for k, v in values.items() if v is not False}),
    )
    invoke.program.Program(namespace=namespace).run(f"invoke {words}".split(), exit=False)
    assert seen == [given]


def test_a_matrix_is_found_in_a_folder_above_or_by_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_project(tmp_path)
    monkeypatch.setattr("warpfront.pipeline.plan", lambda *_: ())
    below = tmp_path / "images" / "torch"
    monkeypatch.chdir(below)
    assert run(["plan", "--json"]) == 0
    monkeypatch.chdir(tmp_path.parent)
    assert run(["plan", "--json", "-C", str(below)]) == 0
    assert capsys.readouterr().out == "[]\n[]\n"


def test_quiet_prints_no_progress_and_verbose_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    def working(display: Display) -> None:
        display.step("cell", "building")
        display.line("cell", "step 1")
        display.say("warning: old base")

    printed = {}
    for volume in Volume:
        command()(working).run({}, volume)
        printed[volume] = capsys.readouterr().err
    assert printed[Volume.QUIET] == "warning: old base\n"
    assert "building" in printed[Volume.NORMAL]
    assert "step 1" not in printed[Volume.NORMAL]
    assert "cell: step 1\n" in printed[Volume.VERBOSE]


def test_a_shell_completes_commands_options_and_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)

    def completed(*words: str) -> list[str]:
        shell = click.shell_completion.ShellComplete(Program(), {}, "warpfront", "X")
        return [one.value for one in shell.get_completions(list(words[:-1]), words[-1])]

    assert completed("pl") == ["plan"]
    assert completed("release", "pr") == ["promote", "prune"]
    assert completed("plan", "--target", "x") == ["x86_64"]
    assert completed("plan", "--only", "cpu") == ["cpu-x86_64-py311-torch2130-torch"]
    assert completed("port", "scan", "--fail-on", "b") == ["build"]
    assert "--allow-undetermined" in completed("port", "check", "--allow")


EFFORT = {"quick": True, "profile": "torch", "seeds": "3", "run": "0", "selftest": False}


def test_verify_hands_on_how_much_to_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[CheckOptions] = []

    def verify(*_: object, effort: CheckOptions, options: RunOptions, **__: object) -> tuple[()]:
        asked.append(effort)
        assert options == RunOptions(repeat=2, limit_seconds=60, user="12345", fresh=True)
        return ()

    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warpfront.pipeline.verify", verify)
    how = {"repeat": "2", "limit_seconds": "60", "user": "12345", "fresh": True}
    run_task("verify", json=True, **how, **EFFORT)
    assert asked == [CheckOptions(quick=True, profile="torch", seeds=(0, 1, 2))]


def test_verify_says_why_it_did_not_come_to_a_cell_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    never = Blocked(cell_id="cell", step="verify", reason="not built", hint="warpfront build")
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warpfront.pipeline.verify", lambda *_, **__: (never,))
    with pytest.raises(Exit) as ended:
        run_task("verify", **EFFORT)
    assert ended.value.code == 9
    assert "cell: blocked: not built\n    hint: warpfront build\n" in capsys.readouterr().out


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
    assert caught.value.code == 2
    assert str(caught.value.message).startswith(f"error: {said}")


def test_verifying_no_time_at_all_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exit, match="--repeat 0 is not a number from 1 on"):
        run_task("verify", repeat="0", **EFFORT)


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


@pytest.mark.parametrize("module", EVERY_MODULE)
def test_the_first_words_of_a_modules_commands_are_listed(module: str) -> None:
    names = set()
    for one in declared_in((module,)):
        old = one.formerly if isinstance(one, Command) else ()
        names |= {one.name if isinstance(one, Group) else one.words[0]}
        names |= {name for name in old if "--" not in name}
    assert set(EVERY_MODULE[module]) == names


@pytest.mark.parametrize(
    ("line", "modules"),
    [
        ("/bin/invoke plan --only speed", ("warpfront.cli.tasks.path",)),
        (
            "/lib/invoke/__main__.py build publish",
            ("warpfront.cli.tasks.path", "warpfront.cli.tasks.releasing"),
        ),
        ("inv -e try -- python main.py", ("warpfront_port.tasks.porting",)),
        ("invoke --list plan", ALL),
        ("invoke -l plan", ALL),
        ("invoke --complete -- invoke plan", ALL),
        ("invoke no-such-task", ALL),
        ("invoke", ALL),
        ("pytest -k plan", ALL),
    ],
)
def test_a_command_line_of_invoke_makes_the_tasks_that_it_names(
    line: str, modules: tuple[str, ...]
) -> None:
    assert modules_for(line.split()) == modules


def test_talking_is_to_the_display(capsys: pytest.CaptureFixture[str]) -> None:
    command()(talking).run({})
    assert capsys.readouterr().err == "hello\n"


def talking(display: Display) -> None:
    display.say("hello")
