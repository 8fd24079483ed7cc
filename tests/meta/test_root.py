"""The root of the repository has the entries of this list, and no others."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALLOWED = frozenset(
    {
        ".ci",
        ".devcontainer",
        ".github",
        ".gitignore",
        ".gitlab",
        ".pre-commit-hooks.yaml",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "README.md",
        "benchmarks",
        "action.yml",
        "changelog.d",
        "ci",
        "docs",
        "examples",
        "images",
        "integrations",
        "matrix.yaml",
        "mkdocs.yml",
        "noxfile.py",
        "pyproject.toml",
        "scripts",
        "src",
        "tasks.py",
        "tests",
        "tools",
    }
)


def entries(root: Path) -> set[str]:
    """Return the names at the root, without git's own and those that .gitignore names."""
    lines = (root / ".gitignore").read_text(encoding="utf-8").splitlines()
    ignored = [line.strip("/") for line in lines if line]
    return {
        path.name
        for path in root.iterdir()
        if path.name != ".git" and not any(fnmatch.fnmatch(path.name, one) for one in ignored)
    }


def complaints(names: Iterable[str], allowed: frozenset[str]) -> dict[str, list[str]]:
    return {
        "not allowed at the root": sorted(set(names) - allowed),
        "allowed and not there": sorted(allowed - set(names)),
    }


def test_the_root_has_what_is_allowed_there() -> None:
    found = complaints(entries(ROOT), ALLOWED)
    assert found == {"not allowed at the root": [], "allowed and not there": []}


def test_a_stray_file_is_seen_and_one_that_git_ignores_is_not(tmp_path: Path) -> None:
    for name in ("-", "README.md", ".venv", "made.egg-info"):
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*.egg-info/\n.venv\n/build/\n")
    assert entries(tmp_path) == {"-", "README.md", ".gitignore"}
    assert complaints(entries(tmp_path), frozenset({"README.md", "src"})) == {
        "not allowed at the root": ["-", ".gitignore"],
        "allowed and not there": ["src"],
    }
