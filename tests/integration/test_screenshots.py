"""The pictures of the documentation are made anew from what the program prints and renders."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from warpfront.system.process import environment

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("chromedriver"), reason="no chromium on this machine")
def test_pictures_of_page_site_and_terminal_are_made_anew(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "screenshots.py"), "--to", str(tmp_path)]
    path = f"{Path(sys.executable).parent}:{environment()['PATH']}"
    subprocess.run(command, cwd=ROOT, check=True, timeout=300, env={**environment(), "PATH": path})
    committed = {picture.name for picture in (ROOT / "docs" / "images").glob("*.webp")}
    made = {picture.name: picture.stat().st_size for picture in tmp_path.glob("*.webp")}
    assert committed <= set(made)
    assert all(5_000 < size < 50_000 for size in made.values())
