"""Notebooks as Python: the code cells, each line where a reader can find it again. Pure."""

from __future__ import annotations

import ast
import json
import re
from pathlib import PurePosixPath
from typing import Any

from warpfront_port.scan.findings import Match, SourceText

_MAGIC = re.compile(r"(?m)^([ \t]*)([%!?](?:.*\\\n)*.*)")


def reads(path: PurePosixPath) -> bool:
    return path.suffix == ".ipynb"


def as_python(source: SourceText) -> tuple[SourceText, tuple[Match, ...]]:
    """Return the code cells as one module, and a match for each cell that is no Python.

    The lines are the cells' lines, one after the other, with `# cell N` before each cell. Magics,
    shell lines and unparsable lines become comments. Raises `ValueError` for other files.
    """
    document: Any = json.loads(source.text)
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list):
        raise ValueError("no notebook: it has no list of cells")  # noqa: TRY004 - foreign text
    text, broken = "", []
    for number, cell in enumerate(cells, start=1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        python = _cell_text(cell.get("source", ""))
        try:
            ast.parse(python)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            start, message = len(text), f"cell {number} is no Python"
            broken.append(Match(rule="SC003", start=start, end=start, excerpt=message))
            python = re.sub(r"(?m)^", "# ", python)
        text += f"# cell {number}\n{python}\n"
    return SourceText(path=source.path, text=text), tuple(broken)


def _cell_text(text: object) -> str:
    """Return a cell with its magics as comments, and with commands of the shell, which go on after
    a backslash, as comments too.
    """
    joined = "".join(map(str, text)) if isinstance(text, list) else str(text)
    if joined.lstrip().startswith("%%"):
        return re.sub(r"(?m)^", "# ", joined)
    return _MAGIC.sub(lambda m: f"{m[1]}pass  # " + m[2].replace("\n", "\n# "), joined)
