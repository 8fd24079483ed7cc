"""`invoke try`: the program after `--` arrives as it was typed, and a folder is written once."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from invoke.program import Program

from warpfront.cli.tasks import namespace
from warpfront.errors import BlockedError, CommandFailedError, FindingsError, InputError
from warpfront.step_results import Blocked
from warpfront_port.tasks import porting
from warpfront_port.trying.trial import Miss, MissAnswer, Trial, trial_text

ROOT = Path(__file__).parents[3]


def ran(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    argv = ["warpfront", "try", *arguments]
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.chdir(ROOT)
    program = Program(name="warpfront", binary="warpfront", namespace=namespace, version="0")
    try:
        program.run(argv)
    except SystemExit as ended:
        return int(str(ended.code or 0))
    return 0


def test_words_with_blanks_stay_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--vendor", "cpu", "--image", "torch", "--dry-run", "--", "python", "-c", "print( 1 )")
    monkeypatch.setattr(sys, "argv", ["warpfront", "try", *asked])
    assert porting._words_after_dashes() == ("python", "-c", "print( 1 )")
    monkeypatch.chdir(ROOT)
    program = Program(name="warpfront", binary="warpfront", namespace=namespace, version="0")
    program.run(sys.argv, exit=False)
    assert "would run python -c 'print( 1 )' in cpu-x86_64-" in capsys.readouterr().out


def test_nothing_to_try_and_several_images_are_errors_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(monkeypatch, "--vendor", "cpu", "--image", "torch") == InputError.exit_code
    assert "it follows `--`" in capsys.readouterr().err
    named = ran(monkeypatch, "--image", "torch", "--name", "../../etc", "--", "true")
    assert named == InputError.exit_code
    assert "--name '../../etc' is no name of an image" in capsys.readouterr().err
    assert ran(monkeypatch, "--vendor", "cpu", "--dry-run", "--", "true") == 3
    assert "a program is tried in one image" in capsys.readouterr().err


def a_trial(exit_code: int | None, *found: MissAnswer) -> Trial:
    return Trial(
        cell_id="c",
        image="torch",
        torch="2.13.0",
        argv=("python", "t.py"),
        runs=1,
        exit_code=exit_code,
        tail="",
        found=found,
        by_hand=("docker", "run", "torch", "python", "my t.py"),
    )


EINOPS = MissAnswer(miss=Miss(module="einops"), requirement="einops", version="0.8")


def test_how_it_ended_is_the_exit_code() -> None:
    porting._raise_untried(a_trial(0, EINOPS))
    with pytest.raises(FindingsError, match="it lacks einops in c"):
        porting._raise_untried(a_trial(1, EINOPS))
    with pytest.raises(CommandFailedError, match="exited with 3, and no missing module is why"):
        porting._raise_untried(a_trial(3))
    with pytest.raises(CommandFailedError, match="was stopped"):
        porting._raise_untried(a_trial(None))


def test_the_way_out_of_a_read_only_project_is_a_copy_of_it() -> None:
    trial = dataclasses.replace(a_trial(1), tail="OSError: [Errno 30] Read-only file system: 'out'")
    with pytest.raises(CommandFailedError) as caught:
        porting._raise_untried(trial)
    assert caught.value.hint.endswith(
        "-- sh -c 'cp -r . /tmp/app && cd /tmp/app && exec python t.py'"
    )
    assert "--seconds" in a_trial(None).way_out
    assert trial_text(a_trial(None), name="app").endswith("at its time; it printed nothing\n")
    guarded = dataclasses.replace(a_trial(1), tail="ImportError: warpfront guard: torch: ...")
    assert guarded.way_out.startswith("rename what the project calls torch")


def test_an_images_folder_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    porting._write_image(a_trial(0, EINOPS), "app")
    assert (tmp_path / "images/app/requirements.txt").read_text().endswith("einops==0.8\n")
    assert "_shared/wheels.j2" in (tmp_path / "images/app/Dockerfile.j2").read_text()
    with pytest.raises(InputError, match="is there already"):
        porting._write_image(a_trial(0, EINOPS), "app")


def test_nothing_to_write_and_no_image_to_try_in_are_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = Blocked(step="verify", cell_id="c", reason="no image of it", hint="warpfront build")
    serves = "    docker run torch python 'my t.py'\nnothing to write: torch serves as it is"
    for found, code, said in (
        (a_trial(0), 0, serves),
        (a_trial(1), CommandFailedError.exit_code, "nothing to write: no package is missing"),
        (blocked, BlockedError.exit_code, "c: blocked: no image of it"),
    ):
        tried: Callable[..., object] = lambda *_, found=found: found  # noqa: E731 - a stand-in
        monkeypatch.setattr("warpfront_port.commands.trial_runs.try_project", tried)
        assert ran(monkeypatch, "--vendor", "cpu", "--write", "--", "true") == code
        assert said in capsys.readouterr().out
