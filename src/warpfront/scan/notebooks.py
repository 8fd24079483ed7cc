"""Notebooks as Python: the code cells, each line where a reader can find it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from warpfront.scan.findings import Source

_NOT_PYTHON = ("%", "!", "?")


def reads(path: PurePosixPath) -> bool:
    return path.suffix == ".ipynb"


def as_python(source: Source) -> Source:
    """The code cells as one module. Its lines are the cells' lines, one after the other; before
    each cell stands `# cell N`. Magics and shell lines become comments. Raises `ValueError` for
    what is no notebook.
    """
    document: Any = json.loads(source.text)
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list):
        raise ValueError("no notebook: it has no list of cells")  # noqa: TRY004 - foreign text
    lines: list[str] = []
    for number, cell in enumerate(cells, start=1):
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            lines.append(f"# cell {number}")
            lines.extend(_cell_lines(cell.get("source", "")))
    return Source(path=source.path, text="\n".join(lines) + "\n")


def _cell_lines(text: object) -> Iterator[str]:
    joined = "".join(map(str, text)) if isinstance(text, list) else str(text)
    if joined.lstrip().startswith("%%"):
        yield from (f"# {line}" for line in joined.split("\n"))
        return
    for line in joined.split("\n"):
        magic = line.lstrip().startswith(_NOT_PYTHON)
        indent = line[: len(line) - len(line.lstrip())]
        yield f"{indent}pass  # {line.strip()}" if magic else line
