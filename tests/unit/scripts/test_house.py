"""tools/house counts what it says: on a made-up package whose figures are known."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "house"
FILES = {
    "src/made/__init__.py": '"""Made up."""\n',
    "src/made/words.py": "class Place:\n    pass\n",
    "src/made/near/__init__.py": "from made import words\nfrom made.far.reading import read\n",
    "src/made/near/reading.py": (
        "from . import other\nfrom .. import words\nimport json\nimport made.words\n"
    ),
    "src/made/near/other.py": "class Place:\n    pass\nclass Only:\n    pass\n",
    "src/made/far/__init__.py": "",
    # One import inside a function: an arrow, and nothing that the top of the file names.
    "src/made/far/reading.py": (
        "def read():\n"
        '    """Reads what there is to read and gives it to whoever\n'
        "    asked.\n"
        '    """\n'
        "    from made import words\n"
        "    return words\n"
        "def short(): return 1\n"
        "def sound():\n"
        '    """Ends well.\n'
        "\n"
        "    usage: this\n"
        '    """\n'
    ),
    "tests/test_made.py": (
        "def test_one(monkeypatch):\n"
        "    monkeypatch.setattr(made, 'x', 1)\n"
        "def test_two(): pass\n"
        "def helper(): pass\n"
    ),
}
FIGURES = {
    "top-level entries": 4,
    "rooms": 7,
    "arrows between rooms": 5,
    "arrows between top-level entries": 3,
    "files sharing a basename": 2,
    "class names with several meanings": 1,
    "largest __init__": 2,
    "imports per module, mean": 0.9,
    "imports per module, most": 4,
    "lines of src": 25,
    "functions": 3,
    "function lines, median": 5,
    "function lines, p90": 6,
    "function lines, longest": 6,
    "docstrings ending in one or two words": 1,
    "tests": 2,
    "lines of tests": 4,
    "tests : code": 0.16,
    "mocks per test": 0.5,
}


def measure(*arguments: str | Path) -> str:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "checkout"


@pytest.mark.process
def test_a_tree_with_known_figures_has_them(tree: Path) -> None:
    assert json.loads(measure("--json", tree)) == {str(tree): FIGURES}


@pytest.mark.process
def test_checkouts_stand_side_by_side(tree: Path) -> None:
    other = shutil.copytree(tree, tree.with_name("other"))
    (other / "src" / "made" / "words.py").write_text("")
    lines = measure(tree, other).splitlines()
    assert lines[0] == f"| | {tree} | {other} |"
    assert "| lines of src | 25 | 23 |" in lines
    assert "| class names with several meanings | 1 | 0 |" in lines
