"""C++ and CUDA as a tree: functions, scopes, declarations, arguments of calls. Pure.

The grammar reads code without preprocessor lines, so a file has readings: in each, every `#if` has
one of its arms, the first that a side gets unless the place that is asked about lies in another.
Bodies of macros are a reading of their own. Readings are made when a place in them is asked about.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache, cached_property

import tree_sitter
import tree_sitter_cuda
from tree_sitter import Node

from warpfront.port.scan.cuda.lexer import Directive, Span
from warpfront.port.scan.cuda.preprocessor import Reaches
from warpfront.port.scan.findings import SIDES, Side

Around = tuple[Node, ...]
"""The nodes around a place, the innermost first; empty where no reading has it."""

# Hostile text costs a bounded time: so many bytes are parsed and nodes passed for one file.
_MOST_BYTES = 1_500_000
_MOST_STEPS = 1_000_000
_MOST_READINGS = 12
_PIECE = 600
_MOST_PLACES = 1000

_MACRO_HEAD = re.compile(r"(?:\#|%:)\s*define\s+\w+(?:\([^()]*\))?")
_LAMBDA_SPECIFIERS = re.compile(r"\]\s*((?:__(?:host|device)__\s*)+)(?=[({])")
_NAME = re.compile(r"[A-Za-z_]\w*+")
_SPECIFIER = re.compile(r"__(global|device|host)__")
_FUNCTIONS = frozenset({"function_definition", "lambda_expression"})
_WRAPPING = {
    "pointer_declarator", "reference_declarator", "array_declarator", "init_declarator",
    "function_declarator", "parenthesized_declarator", "variadic_declarator",
    "qualified_identifier",
}  # fmt: skip
_DECLARING = {
    "declaration", "field_declaration", "parameter_declaration",
    "optional_parameter_declaration", "for_range_loop",
}  # fmt: skip
_SCOPES = _FUNCTIONS | {
    "compound_statement", "for_statement", "for_range_loop", "if_statement", "while_statement",
    "field_declaration_list", "declaration_list", "template_declaration", "translation_unit",
}  # fmt: skip
_PASSING = {
    "parenthesized_expression", "cast_expression", "conditional_expression",
    "binary_expression", "initializer_list", "unary_expression", "argument_list",
    "call_expression",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One declared name: `type` is all that stands in front of the first declarator, `shape` the
    declarators around the name, `scope` where it has its meaning: a class's members in all of it.
    """

    start: int
    type: str
    shape: tuple[Node, ...]
    scope: Span
    of_class: bool

    def is_a(self, kind: str) -> bool:
        """Whether the name has a declarator of this kind around it: `pointer`, `array`."""
        return any(one.type.startswith(kind) for one in self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call from its function's name to the closing bracket, and the spans of its arguments."""

    span: Span
    given: tuple[Span, ...]
    node: Node


@dataclass(kw_only=True)
class Syntax:
    """The trees of one file; `code` is blanked, offsets are the file's."""

    code: str
    directives: Sequence[Directive]
    reaches: Reaches
    _readings: list[tuple[Side, frozenset[int], tree_sitter.Tree]] = field(default_factory=list)
    _paths: dict[int, Around] = field(default_factory=dict)
    _declared: dict[str, tuple[Declaration, ...]] = field(default_factory=dict)
    _steps: int = 0
    _parsed: int = 0

    @cached_property
    def _defines(self) -> tuple[Span, ...]:
        return tuple((one.start, one.end) for one in self.directives if one.name == "define")

    @cached_property
    def _bytes(self) -> bytes:
        """The code, a byte a character. Heads of macros end the statement before them; the
        grammar knows no specifiers of lambdas.
        """
        text = bytearray(self.code.encode("ascii", "replace"))
        for start, end in self._defines:
            head = _MACRO_HEAD.match(self.code, start, end)
            stop = head.end() if head else end
            text[start:stop] = b";".ljust(stop - start)
        for found in _LAMBDA_SPECIFIERS.finditer(self.code):
            text[slice(*found.span(1))] = b" " * len(found[1])
        return bytes(text)

    def _parse(self, spans: Sequence[Span]) -> tree_sitter.Tree | None:
        self._parsed += sum(end - start for start, end in spans)
        if not spans or self._parsed > _MOST_BYTES:
            return None
        parser = tree_sitter.Parser(_language())
        parser.included_ranges = [
            tree_sitter.Range((0, start), (0, end), start, end) for start, end in spans
        ]
        return parser.parse(self._bytes)

    def _tree(self, offset: int) -> tree_sitter.Tree | None:
        """The reading that has `offset`: AMD's where AMD comes to, bodies of macros apart."""
        at = bisect_right(self._defines, (offset, len(self.code))) - 1
        if at >= 0 and offset < self._defines[at][1]:
            return self._of_macros
        side = self._side(offset)
        arms = frozenset(arm.directive.start for arm in self.reaches.at(offset).arms)
        for of, shown, read in self._readings:
            if of == side and arms <= shown:
                return read
        if side is None or len(self._readings) >= _MOST_READINGS:
            return None
        chosen = self._chosen(side, arms)
        tree = self._parse(tuple(self._spans(chosen)))
        if tree is not None:
            self._readings.append((side, chosen, tree))
        return tree

    def _side(self, offset: int) -> Side | None:
        reach = self.reaches.at(offset).reach
        return next((one for one in ("amd", *SIDES) if one in reach), None)

    @cached_property
    def _of_macros(self) -> tree_sitter.Tree | None:
        return self._parse([one for one in self._defines if _is_closed(self.code[slice(*one)])])

    def _chosen(self, side: Side, arms: frozenset[int]) -> frozenset[int]:
        """Of each chain the arm among `arms`, or else the first that the side gets."""
        chosen = set(arms)
        for chain in self.reaches.chains:
            starts = [arm.directive.start for arm in chain.arms if side in arm.reach]
            if starts and arms.isdisjoint(starts):
                chosen.add(starts[0])
        return frozenset(chosen)

    def _spans(self, chosen: frozenset[int]) -> Iterator[Span]:
        """What a reading is made of: regions in its arms, without lines that define macros."""
        defines = iter((*self._defines, (len(self.code), len(self.code))))
        define = next(defines)
        ends = (*self.reaches.starts[1:], len(self.code))
        for region, end in zip(self.reaches.regions, ends, strict=True):
            start = region.start
            shown = all(arm.directive.start in chosen for arm in region.arms)
            while define[0] < end:
                if shown and start < define[0]:
                    yield start, define[0]
                start = define[1]
                define = next(defines)
            if shown and start < end:
                yield start, end

    def path(self, offset: int) -> Around:
        """The nodes around `offset`; none once too many were looked at."""
        if offset not in self._paths:
            self._paths[offset] = self._path(self._tree(offset), offset)
        return self._paths[offset]

    def _path(self, tree: tree_sitter.Tree | None, offset: int) -> Around:
        if tree is None:
            return ()
        cursor = tree.walk()
        nodes = [tree.root_node]
        while self._steps < _MOST_STEPS and cursor.goto_first_child_for_byte(offset) is not None:
            node = cursor.node
            assert node is not None, "the cursor stands on what it went to"
            self._steps += 1 + node.child_count // 64
            if node.start_byte > offset:
                break
            nodes.append(node)
        return tuple(reversed(nodes)) if self._steps < _MOST_STEPS else ()

    def around(self, offset: int, *kinds: str) -> Node | None:
        """The innermost node of one of these kinds around `offset`."""
        return next((node for node in self.path(offset) if node.type in kinds), None)

    def text(self, node: Node | None) -> str:
        return "" if node is None else self.code[node.start_byte : node.end_byte]

    def specifiers(self, offset: int) -> frozenset[str]:
        """`global`, `device`, `host`, of the function around `offset`; a lambda without any has
        those of the function that it is in.
        """
        for node in self.path(offset):
            if node.type in _FUNCTIONS:
                inner = node.child_by_field_name("declarator") or node.child_by_field_name("body")
                end = node.end_byte if inner is None else inner.start_byte
                found = frozenset(_SPECIFIER.findall(self.code, node.start_byte, end))
                if found or node.type == "function_definition":
                    return found
        return frozenset()

    def function(self, offset: int) -> Node | None:
        """The function that is defined around `offset`, not a lambda."""
        return self.around(offset, "function_definition")

    def function_name(self, offset: int) -> str:
        """The name of the function whose head `offset` lies in; empty elsewhere, and where a
        function is only declared.
        """
        function = self.function(offset)
        body = None if function is None else function.child_by_field_name("body")
        node = None if body is None or offset >= body.start_byte else function
        while node is not None and (inner := _declared_in(node)) is not None:
            node = inner
        return self.text(node)

    def defines_function(self, offset: int) -> bool:
        """Whether the name at `offset` is that of a function which is defined there."""
        inner = self.around(offset, "function_declarator", "parameter_list", "compound_statement")
        named = inner is not None and inner.type == "function_declarator"
        return named and bool(self.function_name(offset))

    def call(self, offset: int) -> Called | None:
        """The call whose function's name stands at `offset`. Where the tree has none (a variable
        whose arguments look like parameters, text that is no C++), what follows is read by itself.
        """
        found = self._called(self.path(offset), offset)
        if found is None and _MAY_BE_CALL.match(self.code, offset):
            end = self.code.find(";", offset, offset + _PIECE)
            piece = end if end > 0 else min(len(self.code), offset + _PIECE)
            found = self._called(self._path(self._parse([(offset, piece)]), offset), offset)
        given = None if found is None else found.child_by_field_name("arguments")
        if found is None or given is None:
            return None
        spans = tuple((node.start_byte, node.end_byte) for node in given.named_children)
        return Called(span=(offset, found.end_byte), given=spans, node=found)

    def _called(self, path: Around, offset: int) -> Node | None:
        for node in path[:6]:
            if node.type == "call_expression":
                given = node.child_by_field_name("arguments")
                return node if given is not None and offset < given.start_byte else None
        return None

    def taker(self, offset: int, node: Node, operators: AbstractSet[str]) -> Node | None:
        """What a value is stored to that is made of `node` by casts and these operators: the
        declarator or the left side of the assignment.
        """
        path = self.path(offset)
        for inner, parent in itertools.pairwise(path[path.index(node) :] if node in path else ()):
            if parent.type in ("init_declarator", "assignment_expression"):
                return None if inner == parent.children[0] else parent.children[0]
            operator = parent.child_by_field_name("operator")
            called = self.text(parent.child_by_field_name("function"))
            if (
                parent.type not in _PASSING
                or (operator and operator.type not in operators)
                or (called and not called.startswith("static_cast"))
                or parent.child_by_field_name("condition") == inner
            ):
                return None
        return None

    @cached_property
    def _places(self) -> Mapping[str, list[int]]:
        found: dict[str, list[int]] = {}
        for name in _NAME.finditer(self.code):
            found.setdefault(name[0], []).append(name.start())
        return found

    def places(self, name: str, within: Node | None = None) -> Sequence[int]:
        """Where a name occurs, in a node or everywhere; no more than so many."""
        places = self._places.get(name, [])
        first = 0 if within is None else bisect_left(places, within.start_byte)
        last = len(places) if within is None else bisect_left(places, within.end_byte)
        return places[first : min(last, first + _MOST_PLACES)]

    def declared(self, name: str, offset: int) -> Declaration | None:
        """What the name means at `offset`: of the scopes around it the innermost that declares it,
        there the last before `offset`; members of a class may be declared later.
        """
        if name not in self._declared:
            places = (self._declaration(self.path(at)) for at in self.places(name))
            self._declared[name] = tuple(one for one in places if one is not None)
        every, side = self._declared[name], self._side(offset)
        before = bisect_right(every, offset, key=lambda one: one.start)
        later = (one for one in itertools.islice(every, before, None) if one.of_class)
        # no outer scope declares anything inside an inner one: the nearest is the innermost
        nearest = (
            next(
                (
                    one
                    for one in some
                    if one.scope[0] <= offset < one.scope[1]
                    and side in self.reaches.at(one.start).reach
                ),
                None,
            )
            for some in (later, (every[at] for at in range(before - 1, -1, -1)))
        )
        found = [one for one in nearest if one is not None]
        return max(found, key=lambda one: one.scope[0], default=None)

    def _declaration(self, path: Around) -> Declaration | None:
        for at, (node, parent) in enumerate(itertools.pairwise(path)):
            named = parent.children_by_field_name("declarator")
            if named and node not in named:
                return None
            if parent.type in _DECLARING:
                scope = _scope_of(path[at + 1 :])
                if scope is None or not named:
                    return None
                first = (
                    path[at + 1].child_by_field_name("type") if "loop" in parent.type else parent
                )
                head = self.code[(first or parent).start_byte : named[0].start_byte]
                typed = " ".join(head.split())
                start = path[0].start_byte
                return Declaration(
                    start=start,
                    type=typed,
                    shape=path[1 : at + 1],
                    scope=(scope.start_byte, scope.end_byte),
                    of_class=scope.type == "field_declaration_list",
                )
            if parent.type not in _WRAPPING:
                return None
        return None

    def values(self, name: str, offset: int) -> Iterator[Node]:
        """What the function around `offset` gives to a name, at its declaration and later."""
        function = self.function(offset)
        for place in self.places(name, function) if function is not None else ():
            for node, parent in itertools.pairwise(self.path(place)[:4]):
                kind = parent.type
                if (
                    kind in ("init_declarator", "assignment_expression")
                    and node == parent.children[0]
                ):
                    value = parent.child_by_field_name("value" if kind[0] == "i" else "right")
                    if value is not None:
                        yield value
                if kind not in ("pointer_declarator", "reference_declarator"):
                    break


_MAY_BE_CALL = re.compile(r"\w+\s*(?:<[^;{}]{0,200}>\s*)?\(")


@cache
def _language() -> tree_sitter.Language:
    return tree_sitter.Language(tree_sitter_cuda.language())


def _declared_in(node: Node) -> Node | None:
    """The declarator inside a declarator; references and brackets do not name theirs."""
    inner = node.child_by_field_name("declarator")
    bare = node.type in ("reference_declarator", "parenthesized_declarator")
    return node.named_children[0] if inner is None and bare and node.named_children else inner


def _is_closed(text: str) -> bool:
    return all(text.count(one) == text.count(other) for one, other in ("()", "[]", "{}"))


def _scope_of(path: Around) -> Node | None:
    """Of a declaration, with what is around it: of a parameter the function that is defined, none
    where there is only a type of one.
    """
    parameter = "parameter" in path[0].type
    for node in path[0:] if path[0].type in _SCOPES else path[1:]:
        if node.type in _SCOPES:
            return node
        if parameter and node.type in _DECLARING | {"type_descriptor"}:
            return None
    return None
