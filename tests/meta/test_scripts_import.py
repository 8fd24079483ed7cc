"""Benchmarks and tools import what is there: no checker reads those without a suffix."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from source_modules import ROOT

SOURCES = ROOT / "src"
# Also in programs that a text holds, for `python -c`.
IMPORT = re.compile(r"\bfrom (?:warpfront[\w.]*) import \w+(?:, \w+)*")


def scripts() -> Iterator[Path]:
    for folder in ("benchmarks", "tools", "scripts"):
        for path in sorted((ROOT / folder).iterdir()):
            if path.is_file() and (path.suffix == ".py" or b"python" in path.read_bytes()[:40]):
                yield path


def lacking(text: str) -> list[str]:
    """Return the modules and names of `from warpfront... import ...` that are not in src."""
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    return [
        f"{node.module}.{alias.name}"
        for node in imports
        if (node.module or "").startswith("warpfront")
        for alias in node.names
        if not _is_there(SOURCES.joinpath(*str(node.module).split(".")), alias.name)
    ]


def _is_there(module: Path, name: str) -> bool:
    if (module / f"{name}.py").exists() or (module / name / "__init__.py").exists():
        return True
    file = (
        module.with_suffix(".py") if module.with_suffix(".py").exists() else module / "__init__.py"
    )
    return file.exists() and name in _words(file)


@cache
def _words(file: Path) -> set[str | None]:
    """Return the names in a module."""
    return {
        word
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for word in (
            getattr(node, "id", None),
            getattr(node, "name", None),
            getattr(node, "asname", None),
        )
    }


def test_every_script_imports_what_is_there() -> None:
    found = {path.name: lacking(path.read_text(encoding="utf-8")) for path in scripts()}
    assert len(found) > 30
    assert {name: names for name, names in found.items() if names} == {}


def test_programs_in_texts_import_what_is_there() -> None:
    folders = ("benchmarks", "tools", "scripts", "tests/contract", "tests/integration")
    paths = [path for folder in folders for path in (ROOT / folder).iterdir()]
    found = {
        path.name: lacking("\n".join(IMPORT.findall(path.read_text(encoding="utf-8"))))
        for path in paths
        if path.is_file()
    }
    assert len(found) > 80
    assert {name: names for name, names in found.items() if names} == {}


def test_a_name_or_module_that_is_gone_is_found() -> None:
    for line in ("from warpfront.bench.nights import never_there", "from warpfront.none import it"):
        assert len(lacking(line)) == 1
    assert lacking("from warpfront.bench.nights import standing_of") == []
