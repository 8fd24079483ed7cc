"""What compilations of tests/compile by the command that users type have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from projects import REPOSITORY, Project

SOURCES = REPOSITORY / "tests" / "compile"
SWEPT = pytest.mark.exhaustive


def compiled(project: Project, repo: Path, *arguments: str, code: int) -> dict[str, Any]:
    """The compilation as `invoke compile --json` prints it."""
    ended = project.invoke(
        "compile", "--repo", str(repo), "--json", *arguments, timeout=800.0
    ).expect(code)
    found: dict[str, Any] = ended.json
    return found


def outcomes(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    checks = found["verification"]["checks"]
    return {check["name"]: (check["outcome"], check["reason"]) for check in checks}


def seeded(source: Path, copy: Path, old: str, new: str) -> None:
    """A copy of a source with one wrong word."""
    text = source.read_text()
    assert text.count(old) == 1
    copy.write_text(text.replace(old, new))
