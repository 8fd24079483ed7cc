"""Notebooks as Python: the code cells, each line where a reader can find it again. Pure."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from warpfront_port.scan.findings import Match, SourceText

_NOT_PYTHON = ("%", "!", "?")


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
        lines = list(_cell_lines(cell.get("source", "")))
        try:
            ast.parse("\n".join(lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            start, message = len(text), f"cell {number} is no Python"
            broken.append(Match(rule="SC003", start=start, end=start, excerpt=message))
            lines = [f"# {line}" for line in lines]
        text += "\n".join((f"# cell {number}", *lines, ""))
    return SourceText(path=source.path, text=text), tuple(broken)


def _cell_lines(text: object) -> Iterator[str]:
    joined = "".join(map(str, text)) if isinstance(text, list) else str(text)
    if joined.lstrip().startswith("%%"):
        yield from (f"# {line}" for line in joined.split("\n"))
        return
    is_shell = False  # a command of the shell goes on after a backslash
    for line in joined.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        if is_shell:
            yield f"# {line}"
        else:
            is_shell = line.lstrip().startswith(_NOT_PYTHON)
            yield f"{indent}pass  # {line.strip()}" if is_shell else line
        is_shell = is_shell and line.endswith("\\")
