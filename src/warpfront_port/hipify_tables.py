"""The mapping of CUDA to HIP names by torch itself, read from the tables of an
installed torch. Edge.

torch is not imported: the file is read as text, and only its literal tables are used.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path

_TABLES = Path("utils", "hipify", "cuda_to_hip_mappings.py")


def read_identifiers() -> Mapping[str, str]:
    """Return CUDA name to HIP name (`cudaMalloc` -> `hipMalloc`); empty where no
    torch is installed.
    """
    path = _installed_tables()
    if path is None:
        return {}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return dict(_pairs(tree))


def _installed_tables() -> Path | None:
    spec: ModuleSpec | None = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / _TABLES
        if path.is_file():
            return path
    return None


def _pairs(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield every `"cuda...": ("hip...", ...)` and `("cuda...", ("hip...", ...))` of the tables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                yield from _pair(key, value)
        elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
            yield from _pair(node.elts[0], node.elts[1])


def _pair(key: ast.expr | None, value: ast.expr) -> Iterator[tuple[str, str]]:
    first = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value
    names = [node.value for node in (key, first) if isinstance(node, ast.Constant)]
    match names:
        case [str(cuda), str(hip)]:
            yield cuda, hip
        case _:
            return
