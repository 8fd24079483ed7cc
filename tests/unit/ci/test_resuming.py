"""Going on with a run, and the line that repeats what failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import a_built_image, a_cell, a_check, a_report_row, a_verification, make_project
from invoke.exceptions import Exit

from warpfront import pipeline
from warpfront.ci.retrying import remaining
from warpfront.cli.tasks import namespace
from warpfront.errors import NotVerifiedError
from warpfront.images.built import BuiltImage
from warpfront.report.rows import CellFacts, report_rows
from warpfront.step_results import Blocked, Failed
from warpfront.verify.results import Outcome

CELL = a_cell(targets=("x86_64",))


def test_what_failed_for_infrastructure_or_never_ran_is_left_to_do() -> None:
    left = remaining(
        [
            a_report_row(cell_id="done"),
            a_report_row(cell_id="gone", build="failed", verify="-", kind="infrastructure"),
            a_report_row(cell_id="new", build="-", verify="-"),
            a_report_row(cell_id="unverified", verify="-"),
            a_report_row(cell_id="absent", verify="unavailable", kind="infrastructure"),
        ]
    )
    assert left.build == ("gone", "new")
    assert [cell for cell, _ in left.verify] == ["gone", "new", "unverified", "absent"]
    assert left.refused == ()


@pytest.mark.parametrize("kind", ["resolution", "build", "verdict", "timeout", "cancelled"])
def test_what_would_fail_again_is_not_tried(kind: str) -> None:
    row = a_report_row(build="failed", verify="-", kind=kind)
    left = remaining([row])
    assert (left.build, left.verify, left.refused) == ((), (), (row,))


def test_two_targets_of_a_cell_are_two_things_to_verify_and_one_to_build() -> None:
    rows = [a_report_row(build="-", verify="-", target=target) for target in ("a", "b")]
    left = remaining(rows)
    assert len(left.build) == 1
    assert [target for _, target in left.verify] == ["a", "b"]


def row_of(build: BuiltImage | Blocked | Failed, outcome: Outcome | None = None) -> tuple[str, str]:
    found = {}
    if outcome is not None:
        check = a_check(outcome)
        hashed = getattr(build, "content_hash", "")
        found = {"x86_64": a_verification(check, target="x86_64", content_hash=hashed)}
    fact = CellFacts(cell=CELL, lock="", build=build, verifications=found)
    (row,) = report_rows([fact])
    return row.kind, row.repeat


def test_a_row_says_the_kind_of_its_failure_and_how_to_repeat_it() -> None:
    built = a_built_image(CELL)
    verify = f"warpfront verify --only {CELL.id} --target x86_64"
    failed = Failed(cell_id=CELL.id, step="build", reason="x", exit_code=6)
    blocked = Blocked(cell_id=CELL.id, step="lock", reason="far")
    assert row_of(failed) == ("build", f"warpfront build --locked --only {CELL.id}")
    assert row_of(blocked) == ("infrastructure", f"warpfront lock --only {CELL.id}")
    assert row_of(built, Outcome.FAILED) == ("verdict", verify)
    assert row_of(built, Outcome.UNAVAILABLE) == ("infrastructure", verify)
    assert row_of(built, Outcome.PASSED) == ("", "")


def test_what_failed_and_is_not_tried_again_is_no_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    row = a_report_row(verify="failed", kind="verdict")
    monkeypatch.setattr(pipeline, "report", lambda *_: (row,))
    task = namespace.tasks["resume"].body
    task(None, dry_run=True)
    with pytest.raises(Exit) as ended:
        task(None)
    assert ended.value.code == NotVerifiedError.exit_code
    assert f"not tried again: {row.cell_id}" in f"{capsys.readouterr().err}{ended.value.message}"
