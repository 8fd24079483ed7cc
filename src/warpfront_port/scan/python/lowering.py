"""Syntax newer than the running Python, overwritten in place so that a file parses. Pure.

A grammar that knows it (tree-sitter's) finds the new forms: type parameters and aliases, f-strings
that nest their own quotes, t-strings, `except A, B`. Each is overwritten with an older form of the
same length, so that every place in the tree is a place in the text. The inside of a nested f-string
is not read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import tree_sitter
import tree_sitter_python


class _Edit(NamedTuple):
    start: int
    end: int
    text: bytes


def parsed(text: str) -> ast.Module:
    """Return the tree of Python text, of this Python or of a newer one.

    Raises the error of `ast.parse` for the text as it is.
    """
    try:
        return ast.parse(text)
    except SyntaxError:
        lowered = _lowered(text.encode("utf-8", "surrogatepass"))
        if lowered is None:
            raise
        try:
            return ast.parse(lowered)
        except (SyntaxError, ValueError):
            pass
        raise


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_python.language()))


def _lowered(source: bytes) -> bytes | None:
    """Return the text with its new forms overwritten; None where it has none."""
    edits = sorted(_edits(_parser().parse(source).root_node))
    if not edits:
        return None
    pieces, position = [], 0
    for edit in edits:
        if edit.start >= position:
            pieces += [source[position : edit.start], edit.text]
            position = edit.end
    return b"".join([*pieces, source[position:]])


def _edits(root: tree_sitter.Node) -> Iterator[_Edit]:
    pending = [root]
    while pending:
        node = pending.pop()
        pending += node.children
        text = node.text or b""
        if node.type == "type_parameter" and _declares(node):
            yield _Edit(node.start_byte, node.end_byte, _blank(text))
        elif node.type == "type_alias_statement":
            yield from _alias(node)
        elif node.type == "except_clause":
            yield from _caught(node)
        elif node.type == "string_start" and b"t" in text.lower():
            yield _Edit(node.start_byte, node.end_byte, text.replace(b"t", b"f"))
        elif node.type == "interpolation" and _is_nested(node):
            yield _Edit(node.start_byte, node.end_byte, _filler(text))


def _declares(node: tree_sitter.Node) -> bool:
    """Return true if type parameters are those of a `def` or `class`, not of a used type."""
    parent = node.parent
    return parent is not None and parent.type in {"function_definition", "class_definition"}


def _alias(node: tree_sitter.Node) -> Iterator[_Edit]:
    """Rewrite `type X[T] = list[T]` to `X = list[T]`."""
    name_node = node.child_by_field_name("left")
    value_node = node.child_by_field_name("right")
    if name_node is not None and value_node is not None and name_node.text is not None:
        name = name_node.text.partition(b"[")[0].strip()
        length = value_node.start_byte - node.start_byte
        yield _Edit(node.start_byte, value_node.start_byte, name.ljust(length - 2) + b"= ")


def _caught(node: tree_sitter.Node) -> Iterator[_Edit]:
    """Rewrite `except A, B:` to `except A| B:`."""
    for child in node.children:
        if child.type == "block":
            return
        if child.type == ",":
            yield _Edit(child.start_byte, child.end_byte, b"|")


def _is_nested(node: tree_sitter.Node) -> bool:
    """Return true if an interpolation contains text that is invalid before Python 3.12."""
    string = node.parent
    opening = string.children[0].text if string is not None else None
    text = node.text or b""
    if opening is None:
        return False
    quote = opening.lstrip(b"rRbBfFuUtT")
    return quote in text or b"\\" in text or b"#" in text or (len(quote) == 1 and b"\n" in text)


def _blank(text: bytes) -> bytes:
    return bytes(byte if byte == 10 else 32 for byte in text)


def _filler(text: bytes) -> bytes:
    """Return literal text of the same length and lines, each line end escaped."""
    lines = [b" " * len(line) for line in text.split(b"\n")]
    return b"\n".join([*(line[:-1] + b"\\" for line in lines[:-1]), lines[-1]])
