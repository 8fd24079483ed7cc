"""The scanner's engine for C, C++, CUDA and HIP: `reads` and `rule_matches`. Pure.

A file is blanked once (`lexer`), and its `#if` arms are judged once (`preprocessor`). One pass over
its identifiers then looks up the catalogue and the rules that begin with a name (`warp_size_rules`,
`device`). Rules without a name search the code only where a needed name occurs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath

from warpfront_port.scan.cuda.device import (
    MEMORY_NAMES,
    asm_rule_matches,
    memory_rule_matches,
)
from warpfront_port.scan.cuda.guards import guard_rule_matches, value_rule_matches
from warpfront_port.scan.cuda.lexer import Span
from warpfront_port.scan.cuda.name_rows import rows, rows_including, rows_naming
from warpfront_port.scan.cuda.preprocessor import Reach
from warpfront_port.scan.cuda.syntax import NEAR
from warpfront_port.scan.cuda.view import NAME, View, is_declared, rule_match
from warpfront_port.scan.cuda.warp_size_rules import (
    MASK_NAMES,
    lane_rule_matches,
    mask_rule_matches,
)
from warpfront_port.scan.findings import Context, Match, SourceText
from warpfront_port.scan.hipify_names import hipify_names

SUFFIXES = frozenset(
    ".cu .cuh .hip .c .cc .cpp .cxx .h .hh .hpp .hxx .inl".split()  # noqa: SIM905 - a list to read
)
_BY_NAME: Mapping[str, Callable[[View, str, Span], Iterator[Match]]] = {
    **dict.fromkeys(("asm", "__asm__", "__asm"), asm_rule_matches),
    **dict.fromkeys(MASK_NAMES, mask_rule_matches),
    **dict.fromkeys(MEMORY_NAMES, memory_rule_matches),
}
Seen = set[tuple[str, str, Reach]]
"""Rule, name and who gets there, of what a file has shown already."""

# Generated code repeats the same finding; matches after the first of these are not
# looked at closely, so that no file takes minutes.
_MOST_LOOKED_AT = 4000
_DEFINE = re.compile(r"(?:\#|%:)\s*define\Z")
_OF_ANOTHER = re.compile(r"(?:\.|->|\w::)\Z")
_INCLUDED = re.compile(r"[<\"]([^>\"]+)[>\"]")
_GLOBAL = re.compile(r"cuda[A-Z]|cu[A-Z]|nv[a-z]+[A-Z]|__|tex[123]D|surf[123]D")


def reads(path: PurePosixPath) -> bool:
    """Return true if this engine reads files of this name, or of one that a build makes of it."""
    return PurePosixPath(path.name.removesuffix(".in")).suffix.lower() in SUFFIXES


def rule_matches(source: SourceText, context: Context) -> Iterator[Match]:
    """Yield the matches of every rule in `source`, code of every side included."""
    view = View(source=source, context=context)
    reported: Seen = set()
    yield from _included(view, reported)
    yield from guard_rule_matches(view)
    yield from value_rule_matches(view)
    yield from _named(view, reported)
    yield from lane_rule_matches(view)
    yield from _patterned(view)


def _included(view: View, reported: Seen) -> Iterator[Match]:
    for_cuda = view.is_of_cuda_alone and not view.context.is_hipified
    for directive in view.directives:
        named = _INCLUDED.match(directive.body) if directive.name.startswith("include") else None
        header = str(PurePosixPath(named[1])) if named else ""  # none for a macro
        span = (directive.start, directive.end)
        for row in () if header in view.context.own_headers else rows_including(header):
            key = (row.rule, "", view.region(directive.start).reach)
            if not (row.once_a_file and key in reported):
                reported.add(key)
                yield rule_match(view, row.rule, span, excerpt=header, shift=row.shift)
        if for_cuda and header in hipify_names().headers:
            yield rule_match(view, "CU124", span, excerpt=f"{header}, and none for HIP")


def _patterned(view: View) -> Iterator[Match]:
    """Yield the matches of patterns."""
    for row in rows():
        named = not (row.words and view.names.isdisjoint(row.words))
        possible = row.pattern and named and row.requires.search(view.source.text)
        for match in row.pattern.finditer(view.code) if row.pattern and possible else ():
            function = view.syntax.block(match.start()).function
            text = view.code[function.start : function.end] if row.within and function else ""
            if row.within is None or row.within.search(text):
                named_there = frozenset(NAME.findall(match[0]))
                yield rule_match(view, row.rule, match.span(), names=named_there)


def _named(view: View, reported: Seen) -> Iterator[Match]:
    """Yield the matches of the rules that begin with a name."""
    interesting = {name for name in view.names if name in _BY_NAME or rows_naming(name)}
    if not interesting:
        return
    places = [match for match in NAME.finditer(view.code) if match[0] in interesting]
    looked_at = 0
    for place in places:
        name, span = place[0], place.span()
        if not _is_use(view, name, span):
            continue
        looked_at += 1
        if looked_at <= _MOST_LOOKED_AT and name in _BY_NAME:
            yield from _BY_NAME[name](view, name, span)
        yield from _by_rows(view, name, span, reported)


def _is_use(view: View, name: str, span: Span) -> bool:
    """Return true for no definition or prototype, no member, no name in another namespace."""
    before = view.code[max(0, span[0] - NEAR) : span[0]].rstrip()
    of_another = _GLOBAL.match(name) and _OF_ANOTHER.search(before)
    return not (of_another or _DEFINE.search(before) or is_declared(view, span))


def _by_rows(view: View, name: str, span: Span, reported: Seen) -> Iterator[Match]:
    after = view.code[span[1] : span[1] + 8].lstrip()
    for row in rows_naming(name):
        key = (row.rule, "" if row.once_a_file else name, view.region(span[0]).reach)
        if ((row.once or row.once_a_file) and key in reported) or not row.then.match(after):
            continue
        reported.add(key)
        is_open = any("amd" in arm.open for arm in view.region(span[0]).arms)
        shift = row.shift + row.open_shift * is_open
        yield rule_match(view, row.rule, span, shift=shift, names={name})
