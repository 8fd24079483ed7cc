"""The changes that an edit of a tree made for NVIDIA. Pure.

A port for AMD keeps its changes behind gates. The code that NVIDIA's devices reach is the same
before and after, statement by statement, line by line.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from warpfront_port.scan import cuda, python
from warpfront_port.scan.cuda.view import View
from warpfront_port.scan.findings import Context, Gate, Match, SourceText
from warpfront_port.scan.python.conditions import Conditions, Truth
from warpfront_port.scan.python.gates import is_test
from warpfront_port.scan.python.module import Module
from warpfront_port.scan.words import line_of

RULE = "PY058"
_SHOWN = 80
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A statement, or a line of C++, that NVIDIA reaches. `line` is 1-based."""

    text: str
    line: int


def isolation_rule_matches(before: SourceText, after: SourceText) -> tuple[Match, ...]:
    """Return code that NVIDIA reaches only in `after`, and the places of removed code.

    A file that cannot be read as its language has no matches, since other rules report it.
    """
    if before.text == after.text:
        return ()
    if python.reads(after.path):
        try:
            nodes = ast.walk(ast.parse(before.text))
            defined = frozenset(node.name for node in nodes if isinstance(node, _DEFINITIONS))
            old, new = _python_steps(before, None), _python_steps(after, defined)
        except (SyntaxError, RecursionError, ValueError):
            return ()
    elif cuda.reads(after.path):
        old, new = nvidia_lines(before), nvidia_lines(after)
    else:
        return ()
    changes = tuple(_changes(old, new, after.text))
    if is_test(after.path):
        return tuple(replace(change, gate=Gate.TEST) for change in changes)
    return changes


def _changes(old: Sequence[Step], new: Sequence[Step], text: str) -> Iterator[Match]:
    matcher = difflib.SequenceMatcher(
        a=[step.text for step in old], b=[step.text for step in new], autojunk=False
    )
    starts = [0, *(match.end() for match in re.finditer("\n", text)), len(text)]

    def place(message: str, line: int) -> Match:
        return Match(rule=RULE, start=starts[line - 1], end=starts[line], excerpt=message)

    for tag, first, last, start, end in matcher.get_opcodes():
        if tag == "equal":
            continue
        for step in new[start:end]:
            yield place(f"`{step.text[:_SHOWN]}` is new for NVIDIA", step.line)
        if tag == "delete":
            line = new[min(start, len(new) - 1)].line if new else 1
            gone = old[first].text[:_SHOWN]
            more = f" and {last - first - 1} more" if last - first > 1 else ""
            yield place(f"`{gone}`{more} is gone for NVIDIA", line)


def nvidia_lines(source: SourceText) -> list[Step]:
    """Return the C++ lines that NVIDIA's compiler reads, without white space and directives."""
    view = View(source=source, context=Context())
    steps = []
    offset = 0
    inside: set[int] = set()
    for directive in view.directives:
        last = line_of(view.code, directive.end - 1)
        inside.update(range(line_of(view.code, directive.start), last + 1))
    for number, line in enumerate(view.code.split("\n"), 1):
        text = " ".join(line.split())
        if text and number not in inside and "nvidia" in view.region(offset).reach:
            steps.append(Step(text=text, line=number))
        offset += len(line) + 1
    return steps


def _python_steps(source: SourceText, names: frozenset[str] | None) -> list[Step]:
    """Return the statements that NVIDIA reaches.

    Definitions outside `names` (None: all are in it) are omitted, since only steps call them.
    """
    module = Module(source.path, source.text)
    reader = _NvidiaReader(module.conditions)
    return list(_steps(reader.visit(module.tree), reader, names))


class _NvidiaReader(ast.NodeTransformer):
    """A transformer that removes vendor tests from a tree, as NVIDIA reads it."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions

    def decided(self, test: ast.expr) -> Truth:
        """Return the value of a test on NVIDIA, where it tells NVIDIA from AMD; else None."""
        truths = self._conditions.truths(test)
        return truths["nvidia"] if truths["nvidia"] is not truths["amd"] else None

    def visit_If(self, node: ast.If | ast.IfExp) -> ast.AST | list[ast.stmt]:
        truth = self.decided(node.test)
        self.generic_visit(node)
        if truth is None:
            return node
        return node.body if truth else node.orelse

    visit_IfExp = visit_If  # noqa: N815 - the name that ast looks for

    def visit_List(self, node: ast.List) -> ast.List:
        """Reduce `[a, *[b]]` to `[a, b]`: an element that one vendor alone gets."""
        self.generic_visit(node)
        elements: list[ast.expr] = []
        for element in node.elts:
            spread = element.value if isinstance(element, ast.Starred) else None
            elements += spread.elts if isinstance(spread, ast.List) else [element]
        return ast.List(elts=elements, ctx=node.ctx)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Reduce `x and not is_rocm`, and `x or is_rocm`, to `x` for NVIDIA."""
        neutral = isinstance(node.op, ast.And)
        values = [value for value in node.values if self.decided(value) is not neutral]
        self.generic_visit(node)
        if not values or len(values) == len(node.values):
            return node
        return values[0] if len(values) == 1 else ast.BoolOp(op=node.op, values=values)


def _steps(node: ast.AST, reader: _NvidiaReader, names: frozenset[str] | None) -> Iterator[Step]:
    for child in ast.iter_child_nodes(node):
        imported = isinstance(child, ast.Import | ast.ImportFrom | ast.Pass)
        new = isinstance(child, _DEFINITIONS) and names is not None and child.name not in names
        if imported or new:
            continue
        # Gates use it: `is_rocm = torch.version.hip is not None`.
        value = child.value if isinstance(child, ast.Assign | ast.AnnAssign) else None
        gate = value is not None and reader.decided(value) is not None
        if isinstance(child, ast.stmt) and not gate:
            # the first line, without decorators: what is below are steps of their own
            lines = ast.unparse(child).splitlines()
            text = next((line for line in lines if not line.startswith("@")), "")
            yield Step(text=text, line=child.lineno)
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _steps(child, reader, names)
