"""Rules about lanes: masks, ballots, shuffles, and the number 32. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from warpfront.port.scan.cuda.lexer import Span
from warpfront.port.scan.cuda.preprocessor import Reach
from warpfront.port.scan.cuda.view import (
    NARROW_TYPE,
    NEAR,
    WARP_NAME,
    View,
    call_arguments,
    inside,
    is_definition,
    last_declaration,
    macro_bodies,
    number_of,
    patterns,
    sighting,
    statement_before,
)
from warpfront.port.scan.findings import SIDES, Sighting

_SYNC = re.compile(r"__(?:shfl(?:_(?:up|down|xor))?|ballot|any|all|match_any|match_all)_sync\Z")
_BALLOTS = {"__ballot", "__ballot_sync", "__match_any_sync", "__match_all_sync"}
_BIT_OPERATIONS = {"__popc", "__ffs", "__clz", "__brev"}
_SHUFFLE_NAMES = {"__shfl", "__shfl_up", "__shfl_down", "__shfl_xor"}
MASK_NAMES = frozenset(
    {f"{name}_sync" for name in (*_SHUFFLE_NAMES, "__any", "__all")}
    | _SHUFFLE_NAMES
    | _BALLOTS
    | _BIT_OPERATIONS
    | {"__activemask"}
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
_NARROW_BEFORE = re.compile(rf"(?:^|[^\w>:]){NARROW_TYPE}(?:\s+const)?\s+\Z")
_WIDE_TYPE = re.compile(
    r"\b(?:u?int64_t|long\s+long(?:\s+int)?|lane_mask_t|size_t)(?:\s+const)?\s+\Z"
)
_ASSIGNED_NARROW = re.compile(
    rf"(?:^|[^\w>])(?:const\s+|constexpr\s+|volatile\s+)*{NARROW_TYPE}(?:\s+const)?\s+(\w+)\s*"
    r"(?:=|\(|\{)[^=;]{0,80}\Z"
)
_ASSIGNED = re.compile(r"(?:^|[^\w.>\]])(\w+)\s*[|&^]?=[^=;]{0,80}\Z")
_MASK_NAME = re.compile(r"(?:mask|ballot|active|lanes?|vote)", re.IGNORECASE)
_LANE = r"\b(?=\w*lane)(?!\w*(?:(?<!war)plane|log_|sub_?lane))\w+"
_SHIFTED_BY_LANE = re.compile(
    r"(?<!64_t\))(?<!long\))"
    rf"\b(?:1[uU]?|0[xX]1[uU]?)\s*<<\s*\(?\s*(?:{_LANE}|threadIdx\.x)",
    re.IGNORECASE,
)
_OF_A_CPU = re.compile(
    r"\b(?:_mm(?:256|512)?_\w+\s*\(|__m(?:256|512)\w*\b|sv(?:bool|float\d+)_t\b)"
)
"""Vectors of a CPU have lanes, too."""
_HALVING_FROM_16 = re.compile(
    r"\bfor\s*\([^;(){}]{0,60}=\s*(?:16|32\s*/\s*2|32\s*>>\s*1)\s*;[^;{}]{0,60};"
    r"[^;{}]{0,40}(?:>>=\s*1|/=\s*2|=\s*\w+\s*(?:>>\s*1|/\s*2))"
)
_DOUBLING_TO_32 = re.compile(
    r"\bfor\s*\([^;(){}]{0,60}=\s*1\s*;\s*\w+\s*(?:<\s*(?:=\s*16|32)|<\s*32)\s*;"
    r"[^;{}]{0,40}(?:<<=\s*1|\*=\s*2)"
)
_SHUFFLES = re.compile(r"shfl|shuffle", re.IGNORECASE)

_CONSTANT = re.compile(
    r"\b(?:constexpr|const|static|enum)\b[^;{}()=]{0,80}?\b(\w+)\s*(?:=|\{)\s*"
    r"(32|0[xX]20|64|0[xX]40)\s*[uU]?\s*[;,}]"
)
_ENUM = re.compile(r"\benum\b[^;{}]{0,80}\{[^}]{0,400}\}")
_ENUMERATOR = re.compile(r"\b(\w+)\s*=\s*(32|0[xX]20|64|0[xX]40)\b")
_LANE_ARITHMETIC = re.compile(
    r"(?P<left>\bthreadIdx\s*\.\s*[xyz]|\b\w+)\s*\)?\s*"
    r"(?P<op>&\s*(?:31|0[xX]1[fF]|\(\s*32\s*-\s*1\s*\))|>>\s*(?:5|0x5)|/\s*32|%\s*32)"
    r"[uU]?\b(?!\s*\*)(?![.\w])"
)
_THREAD_NAME = re.compile(
    r"(?:threadIdx\s*\.\s*[xyz]|(?:th(?:rea)?d?_?(?:i?d|idx|index|rank)|tid(?:x)?|t_?idx)_?\w?|"
    r"lane\w*|linear_?tid|thread_?rank|threadID\w*)\Z",
    re.IGNORECASE,
)
_LANE_RESULT = re.compile(r"\b(?:\w*(?:lane|warp)\w*)\s*(?:=|\()[^=;]{0,80}\Z", re.IGNORECASE)
_LAST_LANE = re.compile(
    rf"{_LANE}\s*[!=]=\s*(?:31|32\s*-\s*1)\b|\b(?:31|32\s*-\s*1)\s*[!=]=\s*{_LANE}",
    re.IGNORECASE,
)
_NARROW_LAUNCH = re.compile(
    r"\b\w*(?:launch|kernel|fwd|bwd|_cuda)\w*\s*<\s*32\s*,[^;{}()]{0,200}>\s*(?:\(|<<<)"
)
_NARROW_BLOCK = re.compile(r"<<<[^;<>]{0,200}?,\s*32\s*[,>]")
_NARROW_DIM = re.compile(r"\bdim3\s+\w*(?:thread|block)\w*\s*[({]\s*32\s*[,)}]\s*(?:1\s*[,)}])?")
_OWN_WARP_SIZE = re.compile(r"\b(?:int|unsigned|size_t|auto|u?int\d+_t)\s+warpSize\b")
_OTHER_LANGUAGE = re.compile(r"\b(?:sycl|cl_|musa|aclrt|mtl|vk_)")
_ARCH_MACRO = re.compile(r"gfx|GFX|WAVEFRONT|WAVE_?SIZE|CDNA|RDNA", re.IGNORECASE)
_WARP_SIZE_CONSTANT = re.compile(
    r"(?<![\w.\])>])(?:__shared__\s+)?(?:const\s+)?(?!return\b|else\b|delete\b|new\b|case\b)[A-Za-z_][\w:]*(?:<[^<>;]{0,40}>)?"
    r"[\s*]+\w+\s*\[[^\[\];]{0,40}(?<![:.])\bwarpSize\b[^\[\];]{0,20}\]\s*(?:\[[^\[\];]{0,40}\]\s*)*[;={]|"
    r"\bconstexpr\b[^;{}]{0,80}=[^;{}]{0,40}(?<![:.])\bwarpSize\b|"
    r"\bstatic_assert\s*\([^;]{0,60}(?<![:.])\bwarpSize\b|(?<!<)<\s*(?:\w+\s*,\s*){0,3}warpSize\s*[,>]"
)


def mask_sightings(view: View, name: str, span: Span) -> Iterator[Sighting]:
    """What the use of one warp function says: CU108 to CU112, CU115."""
    if is_definition(view, span) or inside(view.narrow_arms, span[0]):
        return
    if _SYNC.match(name):
        yield from _narrow_masks(view, name, span)
    if name in _BALLOTS or name == "__activemask":
        yield from _narrow_ballots(view, name, span)
    if name in _BIT_OPERATIONS:
        yield from _narrow_bits(view, span)
    if name.startswith("__shfl"):
        yield from _shuffle_constants(view, name, span)


def _narrow_masks(view: View, name: str, span: Span) -> Iterator[Sighting]:
    given = call_arguments(view.code, span[1])
    if not given:
        return
    mask = view.code[slice(*given[0])].strip()
    shift = mask_width_doubt(view, mask, span[0])
    if shift is None:
        return
    whole = (span[0], given[0][1])
    what = f"{name}({mask}, ...)"
    yield sighting(view, "CU108", whole, what=what, shift=shift, names={name, mask})


def mask_width_doubt(view: View, mask: str, offset: int) -> int | None:
    """0 where a mask at `offset` certainly has 32 bits, -1 where that is open, None where
    it has 64.
    """
    bodies = macro_bodies(view, mask, side="amd") or (mask,)
    if all(_WIDE_MASK.match(body) for body in bodies):
        return None
    if any(_NARROW_MASK.match(body.strip().strip("()").strip()) for body in bodies):
        return 0
    if not re.fullmatch(r"\w+", mask):
        return -1
    return _doubt_of_type(view, mask, offset)


def _doubt_of_type(view: View, name: str, offset: int) -> int | None:
    declared = last_declaration(view, name, offset)
    before = "" if declared is None else view.code[max(0, declared - 60) : declared]
    if _WIDE_TYPE.search(before) or (not before and name in view.wide_variables):
        return None
    narrow = _NARROW_BEFORE.search(before) or (not before and name in view.narrow_variables)
    return 0 if narrow else -1


def _narrow_ballots(view: View, name: str, span: Span) -> Iterator[Sighting]:
    rule = "CU110" if name == "__activemask" else "CU109"
    if not re.match(r"\s*\(", view.code[span[1] : span[1] + 20]):
        return
    before = statement_before(view.code, span[0])
    declared = _ASSIGNED_NARROW.search(before)
    assigned = declared or _ASSIGNED.search(before)
    if assigned is None or _closed_between(before[assigned.end(1) :]):
        return
    variable = assigned[1]
    if declared is None and re.search(r"[\w>*&]\s+\Z", before[: assigned.start(1)]):
        return  # declared here, as something else
    if declared is None and variable not in view.narrow_variables:
        return
    start = span[0] - len(before) + assigned.start(1)
    what = f"{variable} = {name}()"
    yield sighting(view, rule, (start, span[1]), what=what, names={name})


def _closed_between(text: str) -> bool:
    """Whether the ballot is an argument of another call: what that returns may be narrow."""
    return bool(re.search(r"\b(?!\s)(?:__\w+|popc\w*|ffs\w*|clz\w*)\s*\(\s*\Z", text)) or bool(
        re.search(r"[!=<>]=|[<>]", text)
    )


def _narrow_bits(view: View, span: Span) -> Iterator[Sighting]:
    given = call_arguments(view.code, span[1])
    if not given:
        return
    argument = view.code[slice(*given[0])]
    whole = (span[0], given[-1][1] + 1)
    words = set(re.findall(r"\w+", argument))
    if words & (_BALLOTS | {"__activemask", "__vballot"}):
        yield sighting(view, "CU111", whole, names=words)
    elif words & view.ballot_variables:
        yield sighting(view, "CU111", whole)
    elif _MASK_NAME.search(argument) and view.is_device_code:
        yield sighting(view, "CU111", whole, shift=-2)


def _shuffle_constants(view: View, name: str, span: Span) -> Iterator[Sighting]:
    given = call_arguments(view.code, span[1])
    lane_at = 2 if name.endswith("_sync") else 1
    if len(given) <= lane_at:
        return
    numbers = [number_of(view, view.code[slice(*argument)]) for argument in given[lane_at:]]
    whole = (span[0], given[-1][1] + 1)
    if numbers[0] == 31 and name in ("__shfl_sync", "__shfl"):
        yield sighting(view, "CU112", whole)
    elif len(numbers) > 1 and numbers[1] == 32:
        yield sighting(view, "CU112", whole, shift=-1)
    if numbers[0] == 16 and "up" not in name and not _has_step_32(view, span):
        yield sighting(view, "CU113", whole, shift=-1)


def _has_step_32(view: View, span: Span) -> bool:
    """Whether the steps of an unrolled reduction near by include the one that wave64 needs."""
    near = view.code[max(0, span[0] - NEAR) : span[1] + NEAR]
    return bool(re.search(r"shfl\w*\s*\([^;]{0,80},\s*32\s*[,)]", near))


def lane_sightings(view: View) -> Iterator[Sighting]:
    """What the file's arithmetic says of its idea of a warp: CU111, CU113 to CU117."""
    lowered = view.names_joined
    lanes = "lane" in lowered or "shfl" in lowered or "shuffle" in lowered
    if lanes and not _OF_A_CPU.search(view.code):
        # Without a warp's functions beside it, a number of lanes may be of planes, or of a CPU.
        warps = not view.context.ported and not MASK_NAMES.isdisjoint(view.names)
        yield from patterns(view, _SHIFTED_BY_LANE, "CU111", shift=0 if warps else -2)
        yield from patterns(view, _LAST_LANE, "CU114")
        yield from _halvings(view)
    if ("warp" in lowered or "wave" in lowered) and not _OTHER_LANGUAGE.search(lowered):
        yield from _warp_constants(view)
    if "warpSize" in view.names and not _OWN_WARP_SIZE.search(view.code):
        for found in _WARP_SIZE_CONSTANT.finditer(view.code):
            yield sighting(view, "CU116", found.span(), sides=_amd_too(view, found.start()))
    if "threadIdx" in view.names or view.is_device_code:
        yield from _lane_arithmetic(view)
    if view.is_device_code or "<<<" in view.code:
        for pattern in (_NARROW_LAUNCH, _NARROW_BLOCK, _NARROW_DIM):
            yield from patterns(view, pattern, "CU115")


def _amd_too(view: View, offset: int) -> Reach:
    """The sides of a rule about HIP code: being in AMD's arm makes it no worse."""
    reach = view.region(offset).reach
    return frozenset(SIDES) if reach == {"amd"} else reach


def _halvings(view: View) -> Iterator[Sighting]:
    """Where there is code for HIP, a kernel of 32 lanes may mean no more than 32 of them."""
    for pattern, shift in ((_HALVING_FROM_16, -view.context.ported), (_DOUBLING_TO_32, -1)):
        for found in pattern.finditer(view.code):
            if _SHUFFLES.search(view.code, found.end(), found.end() + NEAR):
                yield sighting(view, "CU113", found.span(), shift=shift)


def _warp_constants(view: View) -> Iterator[Sighting]:
    for name, defined in view.macros.items():
        if WARP_NAME.search(name):
            for directive, body in zip(defined, macro_bodies(view, name), strict=True):
                value = number_of(view, body)
                yield from _warp_constant(view, name, value, (directive.start, directive.end))
    for found in _CONSTANT.finditer(view.code):
        if WARP_NAME.search(found[1]):
            yield from _warp_constant(view, found[1], int(found[2], 0), found.span(1))
    for block in _ENUM.finditer(view.code):
        for found in _ENUMERATOR.finditer(view.code, block.start(), block.end()):
            if WARP_NAME.search(found[1]):
                yield from _warp_constant(view, found[1], int(found[2], 0), found.span(1))


def _warp_constant(view: View, name: str, value: int | None, span: Span) -> Iterator[Sighting]:
    region = view.region(span[0])
    amds, asked = region.reach == {"amd"}, any(map(_ARCH_MACRO.search, region.tested))
    if value == 32 and not (amds and asked):
        yield sighting(view, "CU114", span, what=f"{name} = 32", names={name})
    elif value == 64 and amds and not asked:
        yield sighting(view, "CU117", span, what=f"{name} = 64", sides=SIDES)


def _lane_arithmetic(view: View) -> Iterator[Sighting]:
    for found in _LANE_ARITHMETIC.finditer(view.code):
        left = found["left"]
        start = found.start()
        if _THREAD_NAME.fullmatch(left) or (
            view.in_device_code(start)
            and _LANE_RESULT.search(statement_before(view.code, start))
            and not left.isdigit()
        ):
            # Right as long as all of the kernel means groups of 32: open, as a constant is.
            yield sighting(view, "CU114", found.span(), shift=-view.context.ported)
