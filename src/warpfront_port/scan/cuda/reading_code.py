"""The scanner's engine for C, C++, CUDA and HIP: `reads`, `rule_matches`, `header_facts`. Pure.

A file is blanked once (`lexer`), its `#if` arms are judged once (`preprocessor`), and then one pass
over its identifiers asks the catalogue and the rules that begin with a name (`lanes`, `device`);
rules without a name of their own search the code only where a name that they need occurs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from warpfront_port.scan.cuda.device import (
    MEMORY_NAMES,
    asm_rule_matches,
    device_rule_matches,
    leftovers,
    memory_rule_matches,
)
from warpfront_port.scan.cuda.dialect import dialect_rule_matches
from warpfront_port.scan.cuda.guards import guard_rule_matches, own_names
from warpfront_port.scan.cuda.headers import HeaderFacts, declared_names, facts_of
from warpfront_port.scan.cuda.lexer import Span
from warpfront_port.scan.cuda.name_rows import NameRow, rows_including, rows_naming
from warpfront_port.scan.cuda.preprocessor import Reach
from warpfront_port.scan.cuda.view import (
    NAME,
    NEAR,
    View,
    is_definition,
    is_function,
    path_of,
    rule_match,
)
from warpfront_port.scan.cuda.warp_size_rules import (
    MASK_NAMES,
    lane_rule_matches,
    mask_rule_matches,
)
from warpfront_port.scan.findings import Context, Match, SourceText

SUFFIXES = frozenset(
    ".cu .cuh .hip .c .cc .cpp .cxx .h .hh .hpp .hxx .inl".split()  # noqa: SIM905 - a list to read
)
_ASM = frozenset({"asm", "__asm__", "__asm"})
_LOOKED_AT = _ASM | MASK_NAMES | MEMORY_NAMES
Seen = set[tuple[str, str, Reach]]
"""Rule, name and who gets there, of what a file has shown already."""

# Code that a generator wrote says the same thing again and again; what comes after these is not
# looked at closely, so that no file takes minutes.
_MOST_LOOKED_AT = 4000
_API_RULES = frozenset({"CU101", "CU102"})
_RENAMED = frozenset({"CU101", "CU102", "CU105", "CU128"})
"""What hipify renames: only where something in the tree calls it is there nothing to do."""
_RUNTIME = re.compile(r"cuda|cooperative_groups|cub/|thrust/|hip/")


def reads(path: PurePosixPath) -> bool:
    """Whether files of this name are this engine's."""
    return path.suffix.lower() in SUFFIXES


def rule_matches(source: SourceText, context: Context) -> Iterator[Match]:
    """Everything in `source` that a rule is about, code of every side included."""
    if not context.ported and str(source.path) in context.unproven:
        # A port that was begun elsewhere: what is behind `X_CUDA` here is still to be done.
        context = replace(context, vendor_macros={})
    view = View(source=source, context=context)
    if _is_cudas_own(view):
        return
    seen: Seen = set()
    yield from _included(view, seen)
    yield from guard_rule_matches(view)
    yield from own_names(view)
    yield from _named(view, seen)
    yield from lane_rule_matches(view)
    yield from device_rule_matches(view)
    yield from dialect_rule_matches(view)
    if context.untranslated:
        yield from _without_runtime(view)
        yield from _by_other_headers(view)
        yield from _launches(view)


def _is_cudas_own(view: View) -> bool:
    """Whether this is a copy of a header of the toolkit or of NVIDIA's tools: who has it describes
    CUDA to others (traces its calls, loads it at run time), and AMD's build has its own.
    """
    name = view.source.path.name
    named = _TOOLS.match(name) or any(row.rule in _API_RULES for row in rows_including(name))
    return bool(named and _TOOLKITS.search(view.source.text, 0, _HEAD))


_HEAD = 4000
_TOOLKITS = re.compile(
    r"Copyright[^\n]{0,40}NVIDIA(?s:.)*(?:Licensed Deliverables|Apache License)"
    r"|__(?:cuda_cuda_h|CUDA_RUNTIME)"
)
_TOOLS = re.compile(r"(?:dcgm|nvml|cupti)\w*\.h\Z")


def header_facts(source: SourceText, context: Context | None = None) -> HeaderFacts:
    """What a file tells the others of its tree: `Context` is made of them. What a copy of one of
    the toolkit's headers declares is CUDA's.
    """
    view = View(source=source, context=context or Context())
    facts = facts_of(view)
    return replace(facts, variables=frozenset()) if _is_cudas_own(view) else facts


def _included(view: View, seen: Seen) -> Iterator[Match]:
    for directive in view.directives:
        header = path_of(directive.body) if directive.name.startswith("include") else None
        if header is None:
            continue
        for row in rows_including(str(header)):
            span = (directive.start, directive.end)
            key = (row.rule, "", view.region(directive.start).reach)
            if row.once_a_file and key in seen:
                continue
            first = view.context.hipless and key not in seen and row.rule in _RENAMED | {"CU120"}
            shift = row.shift + (first or _everywhere(view, row))
            seen.add(key)
            yield rule_match(view, row.rule, span, what=str(header), shift=shift)


def _named(view: View, seen: Seen) -> Iterator[Match]:
    interesting = {name for name in view.names if name in _LOOKED_AT or rows_naming(name)}
    if not interesting:
        return
    places = [one for one in NAME.finditer(view.code) if one[0] in interesting]
    own = {one[0] for one in places if is_function(view, one.span())} | declared_names(view)
    looked_at = 0
    for found in places:
        if found[0] not in own:
            looked_at += 1
            if looked_at <= _MOST_LOOKED_AT:
                yield from _at_name(view, found[0], found.span())
            yield from _by_rows(view, found[0], found.span(), seen)


def _at_name(view: View, name: str, span: Span) -> Iterator[Match]:
    if name in _ASM:
        yield from asm_rule_matches(view, span)
    elif name in MASK_NAMES:
        yield from mask_rule_matches(view, name, span)
    elif name in MEMORY_NAMES:
        yield from memory_rule_matches(view, name, span)


def _by_rows(view: View, name: str, span: Span, seen: Seen) -> Iterator[Match]:
    for row in rows_naming(name):
        key = (row.rule, "" if row.once_a_file else name, view.region(span[0]).reach)
        once = (row.once and not _everywhere(view, row, name)) or row.once_a_file
        if (once and key in seen) or not _fits(view, row, span):
            continue
        seen.add(key)
        if is_definition(view, span) or (row.rule in _RENAMED and _is_own(view, name)):
            continue
        shift = row.shift + _everywhere(view, row, name)
        yield rule_match(view, row.rule, span, shift=shift, names={name})
        if row.rule in _API_RULES:
            yield from leftovers(view, name, span)


def _is_own(view: View, name: str) -> bool:
    """A macro of the tree's own, or a variable: a name of CUDA's is loaded by it when it runs."""
    own = name in view.macros or name in view.context.own_macros
    return (own and name not in view.context.identifiers) or name in view.context.own_variables


def _everywhere(view: View, row: NameRow, name: str = "") -> bool:
    """Whether each place has to change, not one list of names for a tool. RCCL has NCCL's names."""
    renamed = view.context.untranslated and row.rule in _RENAMED
    return renamed and not name.startswith("nccl")


def _without_runtime(view: View) -> Iterator[Match]:
    """nvcc includes cuda_runtime.h in every .cu by itself; hipcc includes nothing (CU152)."""
    if view.source.path.suffix.lower() != ".cu" or not view.is_device_code:
        return
    included = [one for one in view.directives if one.name.startswith("include")]
    for one in included:
        header = path_of(one.body)
        known = header is None or header.name in view.context.cuda_headers
        if known or _RUNTIME.match(str(header)):
            return
    span = (included[-1].start, included[-1].end) if included else (0, 0)
    yield rule_match(view, "CU152", span, what=view.source.path.name)


def _by_other_headers(view: View) -> Iterator[Match]:
    """The last include of a file that has CUDA's names by the project's own headers: there AMD's
    stand-in for the runtime would be included (CU101).
    """
    included = [one for one in view.directives if one.name.startswith("include")]
    headers = [path_of(one.body) for one in included]
    own = not any(header is not None and rows_including(str(header)) for header in headers)
    if own and headers[-1:] and '"' in included[-1].body and _CUDAS_NAMES.search(view.code):
        span = (included[-1].start, included[-1].end)
        yield rule_match(view, "CU101", span, what=f"names by {headers[-1]}", shift=1)


_CUDAS_NAMES = re.compile(r"\bcuda[A-Z]\w+|__global__|<<<|\bcu(?:blas|fft|sparse|solver|rand)[A-Z]")


def _launches(view: View) -> Iterator[Match]:
    """Where kernels are launched: what stands in the brackets and around them is CUDA's (CU157)."""
    for found in re.finditer("<<<", view.code):
        kernel = _LAUNCHED.search(view.code, max(0, found.start() - NEAR), found.start())
        yield rule_match(view, "CU157", ((kernel or found).start(), found.end()))


_LAUNCHED = re.compile(r"\w++\s*+(?:<[^;{}()]+>\s*+)?\Z")


def _fits(view: View, row: NameRow, span: Span) -> bool:
    """Whether what stands around a name is what its row asks for."""
    after = view.code[span[1] : span[1] + 8].lstrip()
    if row.scope:
        return after.startswith("::")
    if row.call:
        return after.startswith(("(", "<"))
    return True
