"""Code that runs at every start of the image's Python, so of these checks: .pth files."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from pathlib import Path

from warpfront_checks.guard.channels import pth_text
from warpfront_checks.guard.places import places_of_this_python
from warpfront_checks.results import CheckFinding, judged
from warpfront_checks.stack.descriptions import starts

_SHOWN = 80


def nothing_starts(folders: Iterable[Path], meant: Iterable[str]) -> CheckFinding:
    """Check that only known files run at a start: the guard's, and `starts:` of `smoke:`."""
    guard = places_of_this_python()
    allowed = {guard.pth.name: re.escape(pth_text(guard)), **starts(), **dict.fromkeys(meant, ".*")}
    wrong, names = [], []
    for path in (path for folder in folders for path in sorted(folder.glob("*.pth"))):
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.splitlines() if re.match(r"import[ \t]", line)]
        names += [path.name] if lines else []
        if lines and not re.fullmatch(rf"(?s:{allowed.get(path.name, '(?!)')})\n?", text):
            problem = f"{path.name} of {_owner(path)} begins with every Python"
            wrong.append(f"{problem}: {lines[0][:_SHOWN]}")
    return judged(wrong, ", ".join(names))


def _owner(path: Path) -> str:
    for distribution in importlib.metadata.distributions(path=[str(path.parent)]):
        if any(str(file) == path.name for file in distribution.files or ()):
            return f"{distribution.metadata['Name']} {distribution.version}"
    return "nobody"
