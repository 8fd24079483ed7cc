"""A folder of packages that child processes see, and one of them described."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from guarded import make_environment
from stacks_site import ENTRY, Site

from warpfront_checks.stack import descriptions


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without packages: a session reads the metadata of all that it sees."""
    folder = tmp_path_factory.mktemp("bare")
    make_environment(folder)
    return folder / "bin/python"


@pytest.fixture
def site(tmp_path: Path, bare_python: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setattr(sys, "executable", str(bare_python))
    return Site(tmp_path / "site")


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    entry = json.loads(json.dumps(ENTRY))
    monkeypatch.setattr(descriptions, "table", lambda: {"ops": [entry]})
    assert isinstance(entry, dict)
    return entry
