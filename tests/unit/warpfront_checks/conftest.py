"""A folder of packages that child processes see, and one of them described."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from stacks_site import ENTRY, Site

from warpfront_checks.stack import descriptions


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    # Without the packages of this environment, whose metadata takes long to read.
    monkeypatch.setattr(sys, "executable", sys._base_executable)  # type: ignore[attr-defined]
    return Site(tmp_path / "site")


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    entry = json.loads(json.dumps(ENTRY))
    monkeypatch.setattr(descriptions, "table", lambda: {"ops": [entry]})
    assert isinstance(entry, dict)
    return entry
