"""tools/screenshots.py makes the page that it takes a picture of; a browser is not needed here."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "screenshots.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("screenshots", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_says_that_its_states_are_made_up(tool: ModuleType) -> None:
    page = tool.report_page()
    assert "(an example: the states are made up)" in page
    states = ("failed", "blocked", "unavailable", "missing", "quick", "passed")
    assert [state for state in states if f'class="tile {state}' not in page] == []


@pytest.mark.process
def test_the_terminal_shows_what_its_commands_print(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the toolchain that a scan may find in this user's cache, or would fetch."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page = tool.terminal_page(tmp_path / "home")
    assert "$ warpfront port scan app --target gfx942" in page
    assert "gfx942: will not build: " in page
    assert "cpu-x86_64-py311-torch2130-torch" in page
