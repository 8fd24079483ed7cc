"""Rules about lanes: masks, ballots, shuffles, and the number 32. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from warpfront_port.scan.cuda.lexer import Span
from warpfront_port.scan.cuda.syntax import NEAR
from warpfront_port.scan.cuda.view import (
    HEADERS,
    NAME,
    WARP_NAME,
    View,
    macro_bodies,
    number_of,
    rule_match,
)
from warpfront_port.scan.findings import SIDES, Match

_SYNC = re.compile(
    r"__(?:(?:shfl(?:_(?:up|down|xor))?|ballot|any|all|match_any|match_all)_sync|syncwarp)\Z"
)
_BALLOTS = {"__ballot", "__ballot_sync", "__match_any_sync", "__match_all_sync"}
_BIT_OPERATIONS = {"__popc", "__ffs", "__clz", "__brev"}
_SHUFFLE_NAMES = {"__shfl", "__shfl_up", "__shfl_down", "__shfl_xor"}
MASK_NAMES = frozenset(
    {f"{name}_sync" for name in (*_SHUFFLE_NAMES, "__any", "__all")}
    | _BALLOTS
    | _BIT_OPERATIONS
    | {"__activemask", "__syncwarp"}
)
_NARROW_MASK = re.compile(
    r"(?:\(\s*(?:unsigned(?:\s+int)?|int|u?int32_t)\s*\)\s*)?"
    r"(?:0[xX][0-9a-fA-F]{1,8}[uUlL]{0,1}|-\s*1|~\s*0[uU]?|UINT_MAX|UINT32_MAX|\d{1,9}[uU]?)\Z"
)
_WIDE_MASK = re.compile(
    r".*(?:uint64_t|unsigned long long|\b[\dxXa-fA-F]+(?:[uU]?[lL]{2}[uU]?)\b|UINT64_MAX|"
    r"[fF]{16}|__activemask|__ballot|lanemask)",
    re.DOTALL,
)
_WIDE_WORDS = frozenset({"uint64_t", "int64_t", "size_t", "long", "lane_mask_t"})
_NARROW_WORDS = frozenset({"unsigned", "signed", "int", "uint32_t", "int32_t", "uint"})
_QUALIFIERS = frozenset({"const", "constexpr", "static", "volatile", "register", "__shared__"})
_HALVING_FROM_16 = re.compile(
    r"\bfor\s*\([^;(){}]{0,60}=\s*(?:16|32\s*/\s*2|32\s*>>\s*1)\s*;[^;{}]{0,60};"
    r"[^;{}]{0,40}(?:>>=\s*1|/=\s*2|=\s*\w+\s*(?:>>\s*1|/\s*2))"
)
_SHUFFLES = re.compile(r"\b\w*(?:shfl|shuffle)\w*", re.IGNORECASE)
_WIDTH = re.compile(r"\b(\w+)\s*(?:=|\{)\s*(32|0[xX]20|64|0[xX]40)[uU]?\s*[;,}]")
_CONSTANT = re.compile(r"\b(?:(?:const|constexpr|static)\b[^;{}]*|enum\b[^;{}]*\{[^;{}]*)\Z")
_LANE_ARITHMETIC = re.compile(
    r"(?P<left>\bthreadIdx\s*\.\s*[xyz]|\b\w+)\s*\)?\s*"
    r"(?P<op>&\s*(?:31|0[xX]1[fF]|\(\s*32\s*-\s*1\s*\))|>>\s*(?:5|0x5)|/\s*32|%\s*32)"
    r"[uU]?\b(?!\s*\*)(?![.\w])"
)
_THREAD_NAME = re.compile(
    r"(?:threadIdx\s*\.\s*[xyz]|(?:th(?:rea)?d?_?(?:i?d|idx|index|rank)|tid(?:x)?|t_?idx)_?\w?|"
    r"linear_?tid|thread_?rank|threadID\w*)\Z",
    re.IGNORECASE,
)
_OF_LANES = re.compile(r"lane|warp", re.IGNORECASE)
_SHIFT = re.compile(r"(?:<<|>>)[\s(]*\Z")
OF_THE_WAVE = re.compile(
    r"\b(?:__(?:shfl(?!_(?:up|down|xor))|ballot|any|all|match)\w*|WARP_(?:SHFL|BALLOT))(?=\s*\()"
    r"|\bwarpSize\b"
)
_ARCH_MACRO = re.compile(r"gfx|GFX|WAVEFRONT|WAVE_?SIZE|CDNA|RDNA", re.IGNORECASE)
_BUILT_IN = re.compile(r"\b__(?:ballot|activemask|match_any|match_all)(?:_sync)?\b")
_OF_A_THREAD = re.compile(r"\b(?:threadIdx|laneId|lane_id)\b")
_HALF = re.compile(r">>\s*32\b")
_PARTIAL_RETURN = re.compile(
    r"\bif\s*\((?P<condition>[^;{}]{1,120}?)\)\s*(?:\{\s*return\s*;\s*\}|return\s*;)"
)
_FULL_SHUFFLE = re.compile(
    r"\b(?P<name>__(?:shfl(?:_(?:up|down|xor))?|ballot|any|all)_sync)\s*\(\s*(?P<mask>[^,()]{1,60}),"
)
_ALL_LANES = re.compile(
    r"(?:\(\s*[\w ]+\s*\)\s*)?(?:0[xX](?:[fF]{8}|[fF]{16})[uUlL]*|-\s*1[lL]*|~\s*0[uUlL]*"
    r"|U?INT(?:32|64)?_MAX)"
)


def mask_rule_matches(view: View, name: str, span: Span) -> Iterator[Match]:
    """Yield the matches in the use of one warp function: CU108 to CU112, CU115."""
    if _SYNC.match(name):
        yield from _narrow_masks(view, name, span)
    if name in _BALLOTS or name == "__activemask":
        variable, start = view.syntax.stored_to(span[0])
        if variable and _width(view, variable, start) == 32:
            excerpt = f"{variable} = {name}()"
            yield rule_match(view, "CU109", (start, span[1]), excerpt=excerpt, names={name})
    if name in _BIT_OPERATIONS:
        yield from _narrow_bits(view, span)


def _narrow_masks(view: View, name: str, span: Span) -> Iterator[Match]:
    arguments = view.syntax.call(span[0])[1]
    if not arguments:
        return
    mask = view.code[slice(*arguments[0])]
    shift = mask_width_doubt(view, mask, span[0])
    if shift is None:
        return
    defined = view.macros.get(mask, ())
    if len(defined) == 1:
        place = (defined[0].start, defined[0].end)
        match = rule_match(view, "CU108", place, excerpt=mask, shift=shift, names={name, mask})
        yield replace(match, use=span[0], sides=view.region(span[0]).reach)
        return
    description, whole = f"{name}({mask}, ...)", (span[0], arguments[0][1])
    match = rule_match(view, "CU108", whole, excerpt=description, shift=shift, names={name, mask})
    yield replace(match, key=mask)


def mask_width_doubt(view: View, mask: str, offset: int) -> int | None:
    """Return 0 if a mask at `offset` certainly has 32 bits, -1 if that is open, None for 64."""
    bodies = macro_bodies(view, mask, side="amd") or (mask,)
    if all(_WIDE_MASK.match(body) for body in bodies):
        return None
    if any(_NARROW_MASK.match(body.strip().strip("()").strip()) for body in bodies):
        return 0
    return {32: 0, 64: None}.get(_width(view, mask, offset), -1)


def _width(view: View, name: str, offset: int) -> int:
    """Return the bits of an integer variable, or of an array's or pointer's element; 0: unknown."""
    words = {*view.syntax.type_of(name, offset).replace("std::", "").split()}
    if words & _WIDE_WORDS:
        return 64
    return 32 if words & _NARROW_WORDS and words <= _NARROW_WORDS | _QUALIFIERS else 0


def _narrow_bits(view: View, span: Span) -> Iterator[Match]:
    whole, arguments = view.syntax.call(span[0])
    if not arguments:
        return
    queries = frozenset(_BUILT_IN.findall(view.code, *arguments[0]))
    if queries or _comes_from(view, arguments[0], _BUILT_IN):
        yield rule_match(view, "CU111", whole, names=queries)


def _comes_from(view: View, span: Span, origin: re.Pattern[str]) -> bool:
    """Return true if a variable at `span` has a value with `origin`.

    Half of a mask that was selected on purpose is no mask of lanes.
    """
    names = sorted({*NAME.findall(view.code, *span)})[:12]
    values = [value for name in names for value in view.syntax.values(name, span[0])]
    return any(
        origin.search(view.code, *value) and not _HALF.search(view.code, *value) for value in values
    )


def lane_rule_matches(view: View) -> Iterator[Match]:
    """Yield the matches of arithmetic with an assumed warp size: CU111, CU113, CU114, CU117."""
    lowered = " ".join(sorted(view.names)).lower()
    lanes = "lane" in lowered or "shfl" in lowered or "shuffle" in lowered
    if lanes:
        yield from _halvings(view)
    if "warp" in lowered or "wave" in lowered:
        yield from _warp_constants(view)
    if "threadIdx" in view.names or view.is_device_code:
        yield from _lane_arithmetic(view)
    if lanes and view.is_device_code:
        yield from _after_partial_returns(view)


def _halvings(view: View) -> Iterator[Match]:
    """Yield halvings from 16 lanes. In HIP code, a kernel of 32 lanes may use only 32."""
    shift = 0 if _takes_whole_waves(view) else -1
    for match in _HALVING_FROM_16.finditer(view.code):
        end = view.syntax.end_of_loop(match.start())
        shuffle = _SHUFFLES.search(view.code, match.end(), end)
        if shuffle and not _is_of_a_group(view, shuffle[0], shuffle.start()):
            yield rule_match(view, "CU113", match.span(), shift=shift)


def _warp_constants(view: View) -> Iterator[Match]:
    for name, defined in view.macros.items():
        if WARP_NAME.search(name):
            for directive, body in zip(defined, macro_bodies(view, name), strict=True):
                value = number_of(view, body)
                yield from _warp_constant(view, name, value, (directive.start, directive.end))
    for match in _WIDTH.finditer(view.code):
        constant = _CONSTANT.search(view.code, max(0, match.start() - NEAR), match.start())
        if constant and WARP_NAME.search(match[1]):
            yield from _warp_constant(view, match[1], int(match[2], 0), match.span(1))


def _warp_constant(view: View, name: str, value: int | None, span: Span) -> Iterator[Match]:
    region = view.region(span[0])
    amds, by_architecture = region.reach == {"amd"}, any(map(_ARCH_MACRO.search, region.tested))
    if value == 32 and not (amds and by_architecture):
        # A header's width may be that of exchanges in what includes it.
        of_header = view.source.path.suffix in HEADERS and view.context.takes_whole_waves
        shift = 0 if of_header or _takes_whole_waves(view) else -1
        yield rule_match(view, "CU114", span, excerpt=f"{name} = 32", names={name}, shift=shift)
    elif value == 64 and amds and not by_architecture:
        yield rule_match(view, "CU117", span, excerpt=f"{name} = 64", sides=SIDES)


def _lane_arithmetic(view: View) -> Iterator[Match]:
    """Yield arithmetic that makes lanes of 32 from a thread's number.

    It is certain where the file takes lanes of a whole wave. A lane's number that is taken
    apart at 32 is that of a wave of 64: with 32 lanes nothing would remain.
    """
    shift = 0 if _takes_whole_waves(view) else -1
    for match in _LANE_ARITHMETIC.finditer(view.code):
        operand = match["left"]
        start = match.start()
        # The variable that the arithmetic is for may be named after lanes or warps.
        variable, _start = view.syntax.stored_to(start)
        shifted = _SHIFT.search(view.code, max(0, start - NEAR // 20), start)  # a bit of a word
        lanes = _OF_LANES.search(variable) and not (operand.isdigit() or shifted)
        lanes = lanes and view.in_device_code(start)
        if (lanes or _THREAD_NAME.fullmatch(operand)) and "lane" not in operand.lower():
            yield rule_match(view, "CU114", match.span(), shift=shift)


def _takes_whole_waves(view: View) -> bool:
    """Return true if the device's own width counts: as `warpSize`, in a vote, or in a shuffle from
    a numbered lane of no group. Lanes at a distance below 32 are in the same half of a wave of 64,
    so that code which counts 32 everywhere has the same results there.
    """
    calls = OF_THE_WAVE.finditer(view.code)
    return any(not _is_of_a_group(view, match[0], match.start()) for match in calls)


def _is_of_a_group(view: View, name: str, start: int) -> bool:
    """Return true if the call at `start` is a shuffle of 32 lanes: a wave of 64 has two groups."""
    arguments = view.syntax.call(start)[1]
    width = arguments[3 if "_sync" in name else 2 :] if "sh" in name.lower() else ()
    return bool(width) and number_of(view, view.code[slice(*width[0])]) == 32


def _after_partial_returns(view: View) -> Iterator[Match]:
    """Yield full-wave shuffles after a return that some lanes of a wave may take (CU171).

    The lanes that returned are undefined sources. 32 lanes may all stay where 64 do not.
    """
    for returned in _PARTIAL_RETURN.finditer(view.code):
        function = view.syntax.block(returned.start()).function
        if function is None:
            continue
        condition = returned.span("condition")
        direct = _OF_A_THREAD.search(view.code, *condition)
        if not direct and not _comes_from(view, condition, _OF_A_THREAD):
            continue
        shuffles = [
            match
            for match in _FULL_SHUFFLE.finditer(view.code, returned.end(), function.end)
            if _is_full(view, match["mask"])
            and not _is_of_a_group(view, match["name"], match.start())
        ]
        for shuffle in shuffles:
            description = f"{shuffle['name']} after `{returned['condition'].strip()}` returned"
            first = (shuffles[0].start(), shuffles[0].end())
            match = rule_match(view, "CU171", first, excerpt=description)
            yield replace(match, use=shuffle.start())


def _is_full(view: View, mask: str) -> bool:
    bodies = macro_bodies(view, mask.strip()) or (mask.strip(),)
    return all(_ALL_LANES.fullmatch(body.strip("() ")) for body in bodies)
