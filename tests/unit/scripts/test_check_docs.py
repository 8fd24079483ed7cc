"""tools/check-docs: a broken link of the docs site fails, and is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = """site_name: x
validation: {links: {anchors: warn, not_found: warn}}
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("link", "code", "named"),
    [
        ("[a](other.md#here)", 0, ""),
        ("[a](nosuch.md)", 1, "nosuch.md"),
        ("[a](other.md#nowhere)", 1, "#nowhere"),
    ],
)
def test_a_broken_link_fails(tmp_path: Path, link: str, code: int, named: str) -> None:
    (tmp_path / "mkdocs.yml").write_text(SETTINGS)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"# Home\n\n{link}\n")
    (tmp_path / "docs/other.md").write_text("# Other\n\n## Here\n")
    done = subprocess.run(
        (ROOT / "tools/check-docs", tmp_path),
        env={**os.environ, "MKDOCS": str(Path(sys.executable).parent / "mkdocs")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert named in done.stderr
