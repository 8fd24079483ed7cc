"""The last line of a run of all tiers is their sum, and no failure is lost in it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
UNIT = "....\n1 failed\n===== 2 failed, 5429 passed, 59 deselected in 61.02s (0:01:01) =====\n"
CHECKS = "....   [100%]\n390 passed, 1 skipped, 3 warnings in 75.10s (0:01:15)\n"
BROKEN = "!!!!!\n=== 1 error in 0.12s ===\n"


@pytest.fixture
def tally(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    return importlib.import_module("tally")


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        ({"Success: no issues": False, CHECKS: False}, "390 passed, 1 skipped"),
        ({UNIT: True, CHECKS: False}, "2 failed, 5819 passed, 1 skipped"),
        ({BROKEN: True, CHECKS: False}, "390 passed, 1 skipped, 1 error"),
        ({"E501 Line too long": True, CHECKS: False}, "390 passed, 1 skipped, 1 error"),
        ({"E501": True, BROKEN: True}, "2 errors"),
        ({"Success": False}, "no tests ran"),
        ({CHECKS + UNIT: True}, "2 failed, 5429 passed"),
        ({CHECKS + "=== 2 failed, 9 passed in 7 s ===\n": True}, "2 failed, 9 passed"),
    ],
)
def test_logs_come_to_one_line_in_pytests_form(
    tally: Any, logs: dict[str, bool], said: str
) -> None:
    assert tally.line(tally.total(logs.items()), 982) == f"=== {said} in 982 s ==="


def test_logs_are_read_from_files(
    tally: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {name: tmp_path / name for name in ("lint", "checks")}
    paths["lint"].write_text("E501")
    paths["checks"].write_text(CHECKS)
    tally.main(["7", "--failed", str(paths["lint"]), *map(str, paths.values())])
    assert capsys.readouterr().out == "=== 390 passed, 1 skipped, 1 error in 7 s ===\n"
