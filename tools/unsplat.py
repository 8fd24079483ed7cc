#!/usr/bin/env python3
"""Write `*("a", "b"),` in a tuple, list, set or call as the plain elements `"a", "b",`.

usage: tools/unsplat.py PATH ...     files and folders; run `ruff format` on them afterwards

Splats of literal tuples served only to keep the formatter from one element a line. After each file
its syntax tree is compared with the one before, in which such splats are dissolved: they are equal,
or the file stays as it was and this ends with an error.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path


class Dissolve(ast.NodeTransformer):
    """Put the elements of a literal tuple in the place of its splat."""

    def visit(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        for field in ("elts", "args"):
            if elements := _list(getattr(node, field, None)):
                setattr(node, field, [one for each in elements for one in _dissolved(each)])
        return node


def _list(value: object) -> list[ast.AST]:
    """Return the elements of a node's field; none of what is no list of nodes."""
    return value if isinstance(value, list) else []


def _dissolved(element: ast.AST) -> list[ast.AST]:
    return list(element.value.elts) if splat_of_literal(element) else [element]  # type: ignore[attr-defined]


def splat_of_literal(node: ast.AST) -> bool:
    """Return whether a node is `*(...)` with elements written out."""
    return (
        isinstance(node, ast.Starred)
        and isinstance(node.value, ast.Tuple)
        and bool(node.value.elts)
    )


def splats(tree: ast.Module) -> Iterator[ast.Starred]:
    """Yield splats that are elements or arguments, from the last in the text to the first."""
    found = [
        element
        for node in ast.walk(tree)
        for field in ("elts", "args")
        for element in _list(getattr(node, field, None))
        if splat_of_literal(element)
    ]
    yield from sorted(found, key=lambda one: (one.lineno, one.col_offset), reverse=True)


def rewritten(text: str) -> str:
    """Return a module's text without such splats. Raises `ValueError` if its tree would differ."""
    right = ast.dump(Dissolve().visit(ast.parse(text)))
    while node := next(splats(ast.parse(text)), None):
        lines = text.encode().splitlines(keepends=True)
        begin = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
        end = sum(map(len, lines[: (node.end_lineno or 0) - 1])) + (node.end_col_offset or 0)
        raw = text.encode()
        # Between `*(` and `)`; without a comma at its end, for the element has one of its own.
        inner = raw[begin:end].split(b"(", 1)[1][:-1].strip()
        inner = inner.removesuffix(b",")
        text = (raw[:begin] + inner + raw[end:]).decode()
    if ast.dump(ast.parse(text)) != right:
        raise ValueError("its tree would be another")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    wrong = 0
    for path in parser.parse_args().paths:
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            before = file.read_text(encoding="utf-8")
            if "*(" not in before:
                continue
            try:
                file.write_text(rewritten(before), encoding="utf-8")
            except (SyntaxError, ValueError) as error:
                print(f"{file}: {error}", file=sys.stderr)
                wrong += 1
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
