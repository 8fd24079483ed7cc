"""When something is built: now, or when somebody says that it is."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from warpfront.errors import CommandFailedError
from warpfront.system.process import Command, Completed
from warpfront.system.provenance import fixed_moment, read_provenance


def no_git(command: Command) -> Completed:
    raise CommandFailedError(f"{command.argv[0]}: not found")


def test_a_fixed_moment_is_when_everything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795000000")
    assert fixed_moment() == "2026-11-18T11:06:40+00:00"
    assert read_provenance(tmp_path, no_git).created == fixed_moment()


@pytest.mark.parametrize("epoch", ["", "yesterday", "-1", "1.5", "9" * 30, "\u0661"])
def test_what_is_no_number_of_seconds_fixes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: str
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    assert fixed_moment() == ""
    created = datetime.fromisoformat(read_provenance(tmp_path, no_git).created)
    assert abs((datetime.now(UTC) - created).total_seconds()) < 60
