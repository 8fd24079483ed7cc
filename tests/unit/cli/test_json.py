"""`--json`: each declared command prints one JSON value on stdout, the rest on stderr."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from builders import make_project
from fakes import FakeEngine
from log_samples import VLLM_SERVING

from warpfront.ci.forge_api import GitHubApi
from warpfront.ci.judging import Judgement
from warpfront.ci.schedule import Schedule
from warpfront.cli.display import Display
from warpfront.cli.loading import MODULES, declared_in, installed_modules
from warpfront.cli.program import run
from warpfront.cli.tasks.declaring import Command, Ended, command
from warpfront.commands.ci_runs import Done
from warpfront.errors import InputError

EVERY = {
    " ".join(one.words): one
    for one in declared_in((*MODULES, *installed_modules()))
    if isinstance(one, Command)
}


class _Releases:
    """A channel without images."""

    def stock(self) -> tuple[()]:
        return ()

    def yank(self, *_: object, **__: object) -> Mapping[str, str]:
        return {"digest": "sha256:0"}

    def prune(self, *_: object, **__: object) -> tuple[()]:
        return ()


RELEASES = {"warpfront.commands.channels.open_channel": contextlib.nullcontext(_Releases())}
STEPS = "warpfront.pipeline"
COMMANDS = "warpfront.commands"
PORT = "warpfront_port.commands"
EMBEDDED = "warpfront.images.engine.embedded"
ENGINE = {"warpfront.images.engine.protocol.connect": FakeEngine()}
EXPLAINED = {
    f"{COMMANDS}.why_published.explain": {"digest": "sha256:0"},
    "warpfront.release.why.why_text": "why",
}
RUNNERS = """
install: {requirements: r.txt}
runners:
  gpu: {labels: gpu, trust: self-hosted, builds: true, vendor: cpu, targets: x86_64}
"""
NIGHTS = {
    f"{COMMANDS}.measurements.read_nights_of": (),
    "warpfront.bench.nights.too_few_nights": (),
}
JUDGED = (Judgement(failures=(), unavailable=(), passed=1), ())
PLANNED = Schedule(scope="nightly", channel="", build={}, verify={})


@dataclass(frozen=True)
class _Update:
    unread: tuple[str, ...] = ()


# What the command line has after the words of the command, and what answers for machines.
WAYS: dict[str, tuple[str, Mapping[str, object]]] = {
    "init": ("-C new --name mine", {}),
    "add image": ("app", {}),
    "migrate": ("", {}),
    "add row": ("nvidia 13.0", {}),
    "add python": ("3.13", {}),
    "docs": ("matrix", {}),
    "completion": ("zsh", {}),
    "plan": ("", {f"{STEPS}.plan": ()}),
    "lock": ("", {f"{STEPS}.lock": {}}),
    "build-wheels": ("", {f"{STEPS}.build_wheels": {}}),
    "render": ("", {f"{STEPS}.{name}": {} for name in ("lock", "build_wheels", "render")}),
    "build": ("", {f"{STEPS}.{name}": {} for name in ("lock", "build_wheels", "build")}),
    "verify": ("", {f"{STEPS}.verify": ()}),
    "report": ("--markdown", {}),
    "explain": ("a.json add", {"warpfront_checks.explaining.explained": "import torch\n"}),
    "publish": ("", {f"{STEPS}.publish": {}}),
    "release list": ("", RELEASES),
    "release show": ("a/b:1", EXPLAINED),
    "release promote": ("nightly", {f"{COMMANDS}.channels.promote": {}}),
    "release yank": ("a/b:1", {**RELEASES, "warpfront.report.described.yank_text": "yanked"}),
    "release prune": ("nightly", RELEASES),
    "release export": ("out", {f"{COMMANDS}.channels.export": {}}),
    "release import": ("new", {f"{COMMANDS}.channels.promote": {}}),
    "why": ("a/b:1", EXPLAINED),
    "ci write": ("", {f"{COMMANDS}.workflows.ci_files": {"a.yml": "on: push\n"}}),
    "ci check": ("", {f"{COMMANDS}.workflows.ci_files": {}}),
    "ci plan": ("", {f"{COMMANDS}.ci_runs.dispatch": PLANNED}),
    "ci judge": ("", {"warpfront.cli.tasks.ci._judgement": JUDGED}),
    "ci notify": (
        "",
        {
            "warpfront.cli.tasks.ci._judgement": JUDGED,
            f"{COMMANDS}.ci_runs.notify": ("opened an issue",),
        },
    ),
    "ci queue": (
        "",
        {
            "warpfront.ci.forge_api.forge_api": GitHubApi(line=None, run=""),  # type: ignore[arg-type]
            f"{COMMANDS}.ci_runs.end_waiting_runs": ("ended run 1",),
        },
    ),
    "ci fingerprints": ("", {}),
    "ci merge": ("--below new", {}),
    "ci run": (
        "--step build --name build-cpu --cells cpu",
        {f"{COMMANDS}.ci_runs.work": Done(results=(), tries={})},
    ),
    "ci resume": ("--dry-run", {}),
    "runner setup": ("gpu --dry-run", {}),
    "runner tidy": ("gpu --dry-run", {}),
    "runner serve": ("gpu --dry-run", {}),
    "bench run": ("", {f"{COMMANDS}.benching.bench": ()}),
    "bench read-log": ("a.log", {}),
    "bench compare": ("a.log a.log --allow-undetermined", {}),
    "bench watch": ("n.jsonl", NIGHTS),
    "bench compare-stacks": ("", {f"{COMMANDS}.measurements.compare_layout": ((), ())}),
    "engine start": ("--dry-run", {}),
    "engine stop": ("--dry-run", {}),
    "engine status": ("", {}),
    "doctor": ("", {f"{COMMANDS}.machine.examine": ()}),
    "clean": ("", ENGINE),
    "sbom": ("", {f"{COMMANDS}.bills.bills": {}}),
    "audit": ("", {f"{COMMANDS}.bills.audits": {}}),
    "models": (
        "--write t.py --architecture llama",
        {f"{COMMANDS}.model_writing.write_model_test": Path("t.py")},
    ),
    "port preflight": (
        "new -r r.txt --offline --allow-undetermined",
        {f"{PORT}.preflighting.with_own_metadata": {}},
    ),
    "port fits": ("vllm", {f"{PORT}.preflighting.fitting_releases": {"vllm": ["0.9"]}}),
    "port try": ("new --dry-run -- python a.py", {}),
    "port scan": ("new --compiler none --allow-undetermined", {}),
    "port fix": ("new --compiler none", {}),
    "port check": ("new --compiler none --allow-undetermined", {}),
    "port compile": ("new --dry-run --sources *.cu", {}),
    **{
        f"compat {name}": (
            "",
            {
                f"{COMMANDS}.compat_update.read_indexes": _Update(),
                "warpfront.wheels.sources.site_when_needed": lambda: None,
                f"{COMMANDS}.compat_update.update_text": "",
                f"{COMMANDS}.compat_update.write_contents": False,
                f"{COMMANDS}.compat_update.refuse_stale": None,
                f"{COMMANDS}.compat_update.propose_update": "no forge",
            },
        )
        for name in ("update", "check", "propose")
    },
}


def test_each_declared_command_has_a_way_to_be_tried() -> None:
    assert WAYS.keys() == EVERY.keys()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a source tree beside it, in the current folder."""
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(f"{matrix.read_text()}\n{RUNNERS}\n")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.cu").write_text("int x;\n")
    (tmp_path / "new" / "a.py").write_text("import torch\n")
    (tmp_path / "r.txt").write_text("numpy\n")
    (tmp_path / "a.log").write_text(VLLM_SERVING)
    return tmp_path


@pytest.mark.parametrize("words", sorted(EVERY))
@pytest.mark.usefixtures("project")
def test_a_command_prints_one_json_value(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line, answers = WAYS[words]
    for name, answer in answers.items():
        monkeypatch.setattr(name, lambda *_, _answer=answer, **__: _answer)
    arguments, dashes, program = line.partition(" -- ")
    typed = [*words.split(), *arguments.split(), "--json", *(dashes + program).split()]
    monkeypatch.setattr(sys, "argv", ["warpfront", *typed])
    code = run(typed)
    printed = capsys.readouterr()
    value = json.loads(printed.out)
    assert code == 0, printed.err
    assert "error" not in value or not isinstance(value, dict)
    assert value != {"lines": []}, "a result, or a line on stderr"


def ended(body: Any) -> Ended:
    with pytest.raises(Ended) as caught:
        command()(body).run({"json": True})
    return caught.value


def test_an_error_is_the_value_where_there_is_no_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing() -> None:
        print("half of a table")
        raise InputError("x.yaml:3: no such row", hint="warpfront plan")

    code = ended(failing).code
    printed = capsys.readouterr()
    expected = {"error": "x.yaml:3: no such row", "hint": "warpfront plan", "exit_code": code}
    assert json.loads(printed.out) == expected
    assert printed.err == "half of a table\n"


def test_a_result_stays_the_value_when_the_command_then_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing(display: Display) -> None:
        display.result({"failed": Path("a")}, "a failed\n")
        raise InputError("one failed")

    ended(failing)
    assert json.loads(capsys.readouterr().out) == {"failed": "a"}


def test_lines_are_the_value_of_a_command_without_a_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def working(display: Display) -> None:
        display.step("cell", "building")
        display.say("removed a")

    command()(working).run({"json": True})
    assert json.loads(capsys.readouterr().out) == {"lines": ["removed a"]}


def test_a_wrong_command_line_is_a_value_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--json", "--taget", "cpu"]) == 2
    value = json.loads(capsys.readouterr().out)
    assert "--target" in value["error"]
    assert (value["hint"], value["exit_code"]) == ("`warpfront plan --help`", 2)


@pytest.mark.usefixtures("project")
def test_problems_of_a_matrix_are_values_with_their_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    matrix = Path("matrix.yaml")
    matrix.write_text(matrix.read_text().replace("template: torch", "templat: torch", 1))
    assert run(["plan", "--json"]) == 2
    value = json.loads(capsys.readouterr().out)
    problems = {(one["path"], one["message"], one["hint"]) for one in value["problems"]}
    assert ("matrix.yaml", "unknown key `templat`", "did you mean `template`?") in problems
    assert all(one["line"] > 0 for one in value["problems"])


@pytest.mark.usefixtures("project")
def test_a_pyproject_that_is_no_toml_is_one_error_with_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    matrix = Path("matrix.yaml")
    matrix.write_text(matrix.read_text().replace("install: {requirements: r.txt}\n", ""))
    Path("pyproject.toml").write_text("[project]\nname x\n")
    assert run(["ci", "check", "--json"]) == InputError.exit_code
    error = json.loads(capsys.readouterr().out)["error"]
    assert error == "pyproject.toml:2: this is no TOML"
