"""Syntax newer than the running Python, overwritten in place so that a file parses. Pure.

A grammar that knows it (tree-sitter's) finds the new forms: type parameters and aliases, f-strings
that nest their own quotes, t-strings, `except A, B`. Each is overwritten with an older form of the
same length, so that every place in the tree is a place in the text. The inside of a nested f-string
is not read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

import tree_sitter
import tree_sitter_python

# The forms of newer Pythons that can be overwritten, and strings, which may be new in part.
_NEW = """
(function_definition (type_parameter) @parameters)
(class_definition (type_parameter) @parameters)
(type_alias_statement left: (_) @name right: (_) @value) @alias
(except_clause "," @comma)
(string_start) @start
(interpolation) @inserted
"""


def parsed(text: str) -> ast.Module:
    """Return the tree of Python text, of this Python or of a newer one.

    Raises the error of `ast.parse` for the text as it is.
    """
    try:
        return ast.parse(text)
    except SyntaxError:
        try:
            return ast.parse(_lowered(text.encode("utf-8", "surrogatepass")))
        except (SyntaxError, ValueError):
            pass
        raise


def _lowered(source: bytes) -> bytes:
    """Return the text with its new forms overwritten."""
    language = tree_sitter.Language(tree_sitter_python.language())
    parser, query = tree_sitter.Parser(language), tree_sitter.Query(language, _NEW)
    edits = [
        edit
        for _, captures in tree_sitter.QueryCursor(query).matches(parser.parse(source).root_node)
        for edit in _edits({name: nodes[0] for name, nodes in captures.items()})
    ]
    pieces, position = [], 0
    for start, new in sorted(edits):
        if start >= position:
            pieces += [source[position:start], new]
            position = start + len(new)
    return b"".join([*pieces, source[position:]])


def _edits(captures: Mapping[str, tree_sitter.Node]) -> Iterator[tuple[int, bytes]]:
    """Yield where a new form begins, and what is written over it."""
    for capture, node in captures.items():
        text = node.text or b""
        if capture == "parameters":
            yield node.start_byte, re.sub(rb"[^\n]", b" ", text)
        elif capture == "alias":  # `type X[T] = list[T]` becomes `X = list[T]`
            name = (captures["name"].text or b"").partition(b"[")[0].strip()
            length = captures["value"].start_byte - node.start_byte
            yield node.start_byte, name.ljust(length - 2) + b"= "
        elif capture == "comma":  # `except A, B:` becomes `except A| B:`
            yield node.start_byte, b"|"
        elif capture == "start" and b"t" in text.lower():
            yield node.start_byte, text.replace(b"t", b"f")
        elif capture == "inserted" and _is_nested(node):
            # Literal text of the same length and lines, each line end escaped.
            lines = [b" " * len(line) for line in text.split(b"\n")]
            escaped = (line[:-1] + b"\\" for line in lines[:-1])
            yield node.start_byte, b"\n".join([*escaped, lines[-1]])


def _is_nested(node: tree_sitter.Node) -> bool:
    """Return true if an interpolation contains text that is invalid before Python 3.12."""
    string = node.parent
    opening = string.children[0].text if string is not None else None
    text = node.text or b""
    if opening is None:
        return False
    quote = opening.lstrip(b"rRbBfFuUtT")
    return quote in text or b"\\" in text or b"#" in text or (len(quote) == 1 and b"\n" in text)
