"""`invoke preflight`: the exit code is the answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from invoke.program import Program

from warpfront.cli.tasks import namespace
from warpfront.errors import FindingsError, InputError, UndeterminedError
from warpfront_port.commands import preflighting
from warpfront_port.preflight import findings
from warpfront_port.preflight.declared import Part
from warpfront_port.preflight.findings import LineBreach, Preflight

ROOT = Path(__file__).parents[3]


def a_finding(*, decides: bool) -> LineBreach:
    return LineBreach(
        rule=findings.MOVED,
        level="error",
        path="r.txt",
        line=1,
        end_line=1,
        source="torch<2",
        text="torch<2",
        group="" if decides else "old",
        why={"cpu": "`<2` does not accept this torch"},
        cells=("cpu-torch",),
        write="torch",
        option="" if decides else "--extra old",
        decides=decides,
    )


def ran(
    monkeypatch: pytest.MonkeyPatch,
    *arguments: str,
    findings: tuple[LineBreach, ...] = (),
    unknown: tuple[str, ...] = (),
) -> tuple[int, dict[str, object]]:
    """The exit code, and what the command was called with."""
    given: dict[str, object] = {}

    def examined(*_: object, **options: object) -> Preflight:
        given.update(options)
        stacks = {"cpu": ("cpu-torch",)}
        return Preflight(
            files=("r.txt",), stacks=stacks, findings=findings, unknown=unknown, lines=1
        )

    monkeypatch.setattr(preflighting, "preflight", examined)
    monkeypatch.setattr(sys, "argv", ["warpfront", "preflight", *arguments])
    monkeypatch.chdir(ROOT)
    program = Program(name="warpfront", binary="warpfront", namespace=namespace, version="0")
    try:
        program.run(sys.argv)
    except SystemExit as caught:
        return int(str(caught.code or 0)), given
    return 0, given


def test_the_exit_code_is_the_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(monkeypatch)[0] == 0
    assert capsys.readouterr().out.startswith("torch stays")
    assert ran(monkeypatch, unknown=("no index answers",))[0] == UndeterminedError.exit_code
    said = capsys.readouterr()
    assert said.out.startswith("not determined: ")
    assert "no index answers" in said.err
    moved = (a_finding(decides=True),)
    assert ran(monkeypatch, findings=moved, unknown=("x",))[0] == FindingsError.exit_code
    assert capsys.readouterr().out.startswith("1 requirement replaces or breaks torch; 1 thing")
    apart = (a_finding(decides=False),)
    assert ran(monkeypatch, findings=apart)[0] == 0
    assert "torch-moved (only with `--extra old`)" in capsys.readouterr().out


def test_whoever_accepts_it_may_leave_things_undetermined(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(monkeypatch, "--allow-undetermined", unknown=("x",))[0] == 0
    assert capsys.readouterr().out.startswith("not determined: ")
    moved = (a_finding(decides=True),)
    code, _ = ran(monkeypatch, "--allow-undetermined", findings=moved, unknown=("x",))
    assert code == FindingsError.exit_code


def test_extras_and_groups_are_repeatable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--extra", "a", "--extra", "b", "--group", "dev", "--json")
    code, given = ran(monkeypatch, *words)
    assert code == 0
    assert given["parts"] == ((Part.EXTRA, "a"), (Part.EXTRA, "b"), (Part.GROUP, "dev"))
    assert json.loads(capsys.readouterr().out)["unknown"] == []


def test_a_path_out_of_the_project_is_one_error_with_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\n-r /etc/hostname\n")
    monkeypatch.setattr(
        sys, "argv", ["warpfront", "preflight", "--repo", str(tmp_path), "--offline"]
    )
    monkeypatch.chdir(ROOT)
    program = Program(name="warpfront", binary="warpfront", namespace=namespace, version="0")
    with pytest.raises(SystemExit) as caught:
        program.run(sys.argv)
    assert caught.value.code == InputError.exit_code
    said = capsys.readouterr()
    assert "error: requirements.txt:2: it leads out of the project's folder" in said.err
    assert "hint: PATH names a folder" in said.err
    assert "Traceback" not in said.err
