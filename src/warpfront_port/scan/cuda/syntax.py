"""C++ and CUDA by brackets and the text before them: functions, calls, declarations. Pure.

Each arm of an `#if` begins in the block in which the first arm began, and the code after the chain
is in the block in which the first arm ended. Bodies of macros are in no block of the file.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from warpfront_port.scan.cuda.lexer import Directive, Span

NEAR = 400
"""Text further from a place than this belongs to other code."""
_FAR = 4000
_MOST_PLACES = 1000

_NAME = re.compile(r"[A-Za-z_]\w*+")
_SPECIFIER = re.compile(r"__(global|device|host)__")
_STATEMENT = re.compile(r"\s*(?:if|for|while|switch|catch)\b")
_AFTER_PARAMETERS = re.compile(
    r"\s*(?:(?:const|noexcept|override|final|mutable)\b\s*)*(?:->[^=]*)?"
)
_CALL = re.compile(r"\w+\s*(?:<[^;{}()]{0,200}>\s*)?\(")
_BODY = re.compile(r"\s*\{")
_BRACKET = re.compile(r"[()\[\]{},]")
# What a statement stores to, what declares a name before it, and the value after it.
_STORED = re.compile(
    r"(?:[^=]|[=!<>]=)*?(?<![.>\w])([A-Za-z_]\w*)\s*(?:\[[^\[\]]*\]\s*)*(?:[|&^+]|<<|>>)?=(?!=)"
)
_OPEN_CALL = re.compile(r"[A-Za-z_]\w*\s*\([^()]*\Z")
_TYPE = (
    r"\s*((?!(?:return|else|case|default|do|throw|new|goto)\b)(?:[\w:]+(?:\s+|\s*[*&](?!&)\s*))+)\Z"
)
_DECLARED = re.compile(rf"(?:\A|[;{{}}(,<>]){_TYPE}")
_PROTOTYPE = re.compile(rf"(?:\s*template\s*<[^;{{}}()]*>)?{_TYPE}")
_VALUE = re.compile(r"\w+\s*(?:\[[^\[\]]*\]\s*)*(?:[|&^+]|<<|>>)?=(?!=)([^;]*)")


@dataclass(eq=False, slots=True)
class Block:
    """A block with the text before its brace, from `start` to `end`.

    `function` is the function around it, or itself; `specifiers` are `global`, `device`, `host`, by
    the innermost function or lambda that has any.
    """

    start: int
    end: int
    specifiers: frozenset[str] = frozenset()
    outer: Block | None = None
    function: Block | None = None


@dataclass(kw_only=True)
class Syntax:
    """The structure of one file; `code` is blanked, offsets are the file's."""

    code: str
    directives: Sequence[Directive]
    _declared: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    @cached_property
    def _blocks(self) -> tuple[Sequence[int], Sequence[Block]]:
        """Return the places from which on another block is the innermost one, and these blocks."""
        marks = [(match.start(), match[0]) for match in re.finditer("[{}]", self.code)]
        for directive in self.directives:
            marks.append((directive.start, directive.name))
            marks += [(directive.end, "end")] if directive.name == "define" else []
        file = block = outside = Block(0, len(self.code))
        chains: list[list[Block]] = []  # by chain: its block, and those in which its arms ended
        places, blocks = [0], [file]
        for place, mark in sorted(marks):
            if mark == "{":
                block = self._opened(place, block)
            elif mark == "}" and block.outer:
                block.end, block = place + 1, block.outer
            elif mark in {"if", "ifdef", "ifndef"}:
                chains.append([block])
            elif chains and mark in {"elif", "elifdef", "elifndef", "else"}:
                chains[-1].append(block)
                block = chains[-1][0]
            elif chains and mark == "endif":
                block = [*chains.pop(), block][1]
            elif mark == "define":
                outside, block = block, file
            elif mark == "end":
                block = outside
            places.append(place + (mark == "}"))
            blocks.append(block)
        return places, blocks

    def _opened(self, place: int, outer: Block) -> Block:
        """Return the block that the brace at `place` opens."""
        start = self.statement(place, _FAR)
        head = self.code[start:place]
        _, bracket, after = head.rpartition(")")
        specifiers = frozenset(_SPECIFIER.findall(head)) or outer.specifiers
        block = Block(start, len(self.code), specifiers, outer, outer.function)
        if bracket and _AFTER_PARAMETERS.fullmatch(after) and not _STATEMENT.match(head):
            block.function = block.function or block
        return block

    def block(self, offset: int) -> Block:
        """Return the innermost block around `offset`."""
        places, blocks = self._blocks
        return blocks[bisect_right(places, offset) - 1]

    def declares_function(self, offset: int) -> bool:
        """Return true if the name at `offset` is that of a function declared at that place."""
        return _PROTOTYPE.match(self.code, self.statement(offset, _FAR), offset) is not None

    def call(self, offset: int) -> tuple[Span, tuple[Span, ...]]:
        """Return the span of the call of the name at `offset`, and those of its arguments.

        Both are empty where it is no call.
        """
        called = _CALL.match(self.code, offset)
        depth, starts = 0, [called.end() if called else 0]
        brackets = _BRACKET.finditer(self.code, starts[0] - 1, starts[0] + _FAR) if called else ()
        for bracket in brackets:
            depth += 1 if bracket[0] in "([{" else -1 if bracket[0] in ")]}" else 0
            if depth <= 1 and bracket[0] == ",":
                starts.append(bracket.end())
            elif depth == 0:
                ends = (*(start - 1 for start in starts[1:]), bracket.start())
                spans = (self._stripped(*span) for span in zip(starts, ends, strict=True))
                return (offset, bracket.end()), tuple(span for span in spans if span[0] < span[1])
        return (offset, offset), ()

    def _stripped(self, start: int, end: int) -> Span:
        """Return a span without the spaces around its text."""
        text = self.code[start:end]
        return end - len(text.lstrip()), start + len(text.rstrip())

    def end_of_loop(self, offset: int) -> int:
        """Return where the loop with its keyword at `offset` ends."""
        header = self.call(offset)[0][1]
        brace = _BODY.match(self.code, header)
        return self.block(brace.end()).end if brace else self.code.find(";", header) + 1

    def statement(self, offset: int, far: int = NEAR) -> int:
        """Return where the statement of the place at `offset` begins, or the text `far` before."""
        first = max(0, offset - far)
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

    def places(self, name: str, within: Block | None = None) -> Sequence[int]:
        """Return the offsets of a name, in a node or everywhere, up to a limit."""
        places = self._places.get(name, [])
        if within is not None:
            start, end = within.start, within.end
            places = places[bisect_left(places, start) : bisect_left(places, end)]
        return places[:_MOST_PLACES]

    def type_of(self, name: str, offset: int) -> str:
        """Return the type in the last declaration of the name before `offset`, first that of its
        function; "" for none.
        """
        if name not in self._declared:
            starts = ((place, max(0, self.statement(place) - 1)) for place in self.places(name))
            found = ((place, _DECLARED.search(self.code, start, place)) for place, start in starts)
            self._declared[name] = [(place, match[1].strip()) for place, match in found if match]
        function = self.block(offset).function
        before = [declared for declared in self._declared[name] if declared[0] <= offset]
        own = [declared for declared in before if function and declared[0] >= function.start]
        return (own or before or [(0, "")])[-1][1]

    def values(self, name: str, offset: int) -> Iterator[Span]:
        """Yield the values that a name gets in the function around `offset`."""
        function = self.block(offset).function
        for place in self.places(name, function) if function else ():
            if value := _VALUE.match(self.code, place, place + NEAR):
                yield value.span(1)
