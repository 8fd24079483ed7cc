"""C++ and CUDA as a tree: functions and arguments of calls; as text: declarations, values. Pure.

The grammar reads code without preprocessor lines, so a file has readings. In each reading, every
`#if` has one of its arms: the first that a side gets, or the one around the requested place. Bodies
of macros are a reading of their own. A reading is created on the first query of a place in it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import tree_sitter
from tree_sitter import Node

from warpfront_port.scan.cuda.conditions import parser
from warpfront_port.scan.cuda.lexer import Directive, Span
from warpfront_port.scan.cuda.preprocessor import Reaches
from warpfront_port.scan.findings import SIDES, Side

Around = tuple[Node, ...]
"""The nodes around a place, the innermost first; empty where no reading has it."""

# Hostile text costs a bounded time: so much is parsed and passed for one file.
_MOST_BYTES = 1_500_000
_MOST_STEPS = 1_000_000
_MOST_PLACES = 1000

_MACRO_HEAD = re.compile(r"(?:\#|%:)\s*define\s+\w+(?:\([^()]*\))?")
_NAME = re.compile(r"[A-Za-z_]\w*+")
_SPECIFIER = re.compile(r"__(global|device|host)__")
_FUNCTIONS = frozenset({"function_definition", "lambda_expression"})
# What a statement stores to, what declares a name before it, and the value after it.
_STORED = re.compile(
    r"(?:[^=]|[=!<>]=)*?(?<![.>\w])([A-Za-z_]\w*)\s*(?:\[[^\[\]]*\]\s*)*(?:[|&^+]|<<|>>)?=(?!=)"
)
_OPEN_CALL = re.compile(r"[A-Za-z_]\w*\s*\([^()]*\Z")
_DECLARED = re.compile(r"(?:\A|[;{}(,<>])\s*((?!(?:return|else|case|new)\b)(?:[\w:]+[\s*&]+)+)\Z")
_VALUE = re.compile(r"\w+\s*(?:\[[^\[\]]*\]\s*)*(?:[|&^+]|<<|>>)?=(?!=)([^;]*)")
# Text further from a place than this belongs to other code.
NEAR = 400


@dataclass(kw_only=True)
class Syntax:
    """The trees of one file; `code` is blanked, offsets are the file's."""

    code: str
    directives: Sequence[Directive]
    reaches: Reaches
    _readings: list[tuple[Side, set[int], tree_sitter.Tree]] = field(default_factory=list)
    _paths: dict[int, Around] = field(default_factory=dict)
    _steps: int = 0
    _parsed: int = 0

    @cached_property
    def _bytes(self) -> tuple[bytes, bytes]:
        """Return code, and the bodies of macros with balanced brackets: bytes, one a character."""
        text = bytearray(self.code.encode("ascii", "replace"))
        bodies = bytearray(b" " * len(text))
        for directive in self.directives:
            head = _MACRO_HEAD.match(self.code, directive.start, directive.end)
            if head is not None:
                body = b";".ljust(len(head[0])) + text[head.end() : directive.end]
                if all(body.count(a) == body.count(b) for a, b in (b"()", b"[]", b"{}")):
                    bodies[directive.start : directive.end] = body
                text[directive.start : directive.end] = b" " * (directive.end - directive.start)
        return bytes(text), bytes(bodies)

    def _parse(self, text: bytes) -> tree_sitter.Tree | None:
        self._parsed += len(text)
        return parser().parse(text) if self._parsed <= _MOST_BYTES else None

    @cached_property
    def _of_macros(self) -> tree_sitter.Tree | None:
        return self._parse(self._bytes[1])

    def _side(self, offset: int) -> Side | None:
        reach = self.reaches.at(offset).reach
        return next((side for side in ("amd", *SIDES) if side in reach), None)

    def _tree(self, offset: int) -> tree_sitter.Tree | None:
        """Return the reading with `offset`: AMD's where AMD reaches it, bodies of macros apart."""
        if self._bytes[1][offset : offset + 1].strip():
            return self._of_macros
        side = self._side(offset)
        arms = {arm.directive.start for arm in self.reaches.at(offset).arms}
        readings = (read for of, active, read in self._readings if of == side and arms <= active)
        tree = next(readings, None)
        if tree is None and side is not None and self._parsed <= _MOST_BYTES:
            tree = self._read(side, arms)
        return tree

    def _read(self, side: Side, arms: set[int]) -> tree_sitter.Tree | None:
        """Return a reading with these arms, and in other chains the side's first arm."""
        for chain in self.reaches.chains:
            reached = [arm.directive.start for arm in chain.arms if side in arm.reach]
            if reached and arms.isdisjoint(reached):
                arms.add(reached[0])
        text = bytearray(self._bytes[0])
        regions = self.reaches.regions
        ends = (*(region.start for region in regions[1:]), len(text))
        for region, end in zip(regions, ends, strict=True):
            if not all(arm.directive.start in arms for arm in region.arms):
                text[region.start : end] = b" " * (end - region.start)
        if (tree := self._parse(bytes(text))) is not None:
            self._readings.append((side, arms, tree))
        return tree

    def path(self, offset: int) -> Around:
        """Return the nodes around `offset`; none once the limit of visited nodes is reached."""
        if offset not in self._paths:
            self._paths[offset] = self._path(self._tree(offset), offset)
        return self._paths[offset]

    def _path(self, tree: tree_sitter.Tree | None, offset: int) -> Around:
        if tree is None:
            return ()
        cursor, nodes = tree.walk(), [tree.root_node]
        while self._steps < _MOST_STEPS and cursor.goto_first_child_for_byte(offset) is not None:
            node = cursor.node
            assert node is not None, "the cursor stands on what it went to"
            self._steps += 1 + node.child_count // 64
            if node.start_byte > offset:
                break
            nodes.append(node)
        return tuple(reversed(nodes)) if self._steps < _MOST_STEPS else ()

    def around(self, offset: int, *kinds: str) -> Node | None:
        """Return the innermost node of one of these kinds around `offset`."""
        return next((node for node in self.path(offset) if node.type in kinds), None)

    def text(self, node: Node | None) -> str:
        return "" if node is None else self.code[node.start_byte : node.end_byte]

    def specifiers(self, offset: int) -> frozenset[str]:
        """Return `global`, `device`, `host`, of the function around `offset`.

        A lambda without any has those of its enclosing function.
        """
        for node in self.path(offset):
            if node.type in _FUNCTIONS:
                inner = node.child_by_field_name("declarator") or node.child_by_field_name("body")
                end = node.end_byte if inner is None else inner.start_byte
                specifiers = frozenset(_SPECIFIER.findall(self.code, node.start_byte, end))
                if specifiers or node.type == "function_definition":
                    return specifiers
        return frozenset()

    def function(self, offset: int) -> Node | None:
        """Return the function that is defined around `offset`, not a lambda."""
        return self.around(offset, "function_definition")

    def declares_function(self, offset: int) -> bool:
        """Return true if the name at `offset` is that of a function declared at that place."""
        inner = self.around(offset, "function_declarator", "parameter_list", "compound_statement")
        return inner is not None and inner.type == "function_declarator"

    def call(self, offset: int) -> tuple[Span, tuple[Span, ...]]:
        """Return the span of the call of the name at `offset`, and those of its arguments.

        Both are empty where it is no call.
        """
        call_node = _called(self.path(offset), offset)
        arguments = None if call_node is None else call_node.child_by_field_name("arguments")
        nodes = () if arguments is None else arguments.named_children
        spans = tuple((node.start_byte, node.end_byte) for node in nodes)
        return (offset, offset if arguments is None else arguments.end_byte), spans

    def statement(self, offset: int) -> int:
        """Return where the statement of the place at `offset` begins, or text far before it."""
        first = max(0, offset - NEAR)
        return max(first, *(self.code.rfind(end, first, offset) + 1 for end in ";{}"))

    def stored_to(self, offset: int) -> tuple[str, int]:
        """Return the name and place to which the statement around `offset` stores, by no call."""
        stored = _STORED.match(self.code, self.statement(offset), offset)
        called = stored and _OPEN_CALL.search(self.code, stored.end(), offset)
        return (stored[1], stored.start(1)) if stored and not called else ("", -1)

    @cached_property
    def _places(self) -> Mapping[str, list[int]]:
        places: dict[str, list[int]] = {}
        for name in _NAME.finditer(self.code):
            places.setdefault(name[0], []).append(name.start())
        return places

    def places(self, name: str, within: Node | None = None) -> Sequence[int]:
        """Return the offsets of a name, in a node or everywhere, up to a limit."""
        places = self._places.get(name, [])
        if within is not None:
            start, end = within.start_byte, within.end_byte
            places = places[bisect_left(places, start) : bisect_left(places, end)]
        return places[:_MOST_PLACES]

    def type_of(self, name: str, offset: int) -> str:
        """Return the type in the last declaration of the name before `offset`, first that of its
        function; "" for none.
        """
        function, places = self.function(offset), self.places(name)
        before = places[: bisect_right(places, offset)]
        own = bisect_left(before, function.start_byte) if function else 0
        for place in (*reversed(before[own:]), *reversed(before[:own])):
            declared = _DECLARED.search(self.code, max(0, place - NEAR // 4), place)
            if declared:
                return declared[1].strip()
        return ""

    def values(self, name: str, offset: int) -> Iterator[Span]:
        """Yield the values that a name gets in the function around `offset`."""
        function = self.function(offset)
        for place in self.places(name, function) if function else ():
            if value := _VALUE.match(self.code, place, place + NEAR):
                yield value.span(1)


def _called(path: Around, offset: int) -> Node | None:
    call = next((node for node in path[:6] if node.type == "call_expression"), None)
    arguments = None if call is None else call.child_by_field_name("arguments")
    return call if arguments is not None and offset < arguments.start_byte else None
