"""Rules about device code and its memory: PTX, half types, shared memory, launches,
operators of vectors. Pure.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from tree_sitter import Node

from warpfront_port.scan.cuda.lexer import Span
from warpfront_port.scan.cuda.view import View, number_of, rule_match
from warpfront_port.scan.findings import Match

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_GCN = re.compile(r"\s*(?:llvm\.|s_|v_|ds_|global_|buffer_|flat_|scratch_|image_|;)\w*")
_PTX = re.compile(
    r"\b[a-z][a-z0-9]*(?:\.[a-z0-9:_]+)+|%%?(?:laneid|warpid|lanemask_\w+|smid|clock|globaltimer|tid|"
    r"ctaid)\b|\.reg\b"
)
_BARE_PTX = re.compile(r"\s*(?:trap|exit|brkpt|membar|pmevent|nanosleep|discard)\b[\w. ]*;")
MEMORY_NAMES = frozenset(
    {"cudaFuncSetAttribute", "cuFuncSetAttribute", "alloca", "__builtin_alloca"}
)
_SIZES = {
    "char": 1, "int8_t": 1, "uint8_t": 1, "bool": 1, "unsigned char": 1, "half": 2, "__half": 2,
    "short": 2, "__nv_bfloat16": 2, "int16_t": 2, "uint16_t": 2, "float": 4, "int": 4,
    "unsigned": 4, "unsigned int": 4, "int32_t": 4, "uint32_t": 4, "half2": 4, "__half2": 4,
    "double": 8, "int64_t": 8, "uint64_t": 8, "float2": 8, "long long": 8, "float4": 16,
    "int4": 16, "uint4": 16, "double2": 16,
}  # fmt: skip
_LDS_BYTES = 65536
_FAR = 4000
_PTX_OPERANDS = frozenset({"__cvta_generic_to_shared", "__CUDA_ARCH__", "__forceinline__"})


def asm_rule_matches(view: View, _name: str, span: Span) -> Iterator[Match]:
    """Yield PTX (CU107) in the `asm` with its name at `span`.

    An empty text orders memory on any compiler; GCN's own instructions are ported code.
    """
    node = view.syntax.around(span[0], "gnu_asm_expression")
    close = view.code.find(";", span[1], span[1] + _FAR) if node is None else node.end_byte
    whole = (span[0], max(close, span[1]))
    operands = view.code.find(":", *whole)
    end = operands if operands >= 0 else whole[1]
    template = " ".join(_STRING.findall(view.source.text[span[1] : end]))
    # Other processors have dots in the names of their instructions too.
    devices = view.is_cuda or not _PTX_OPERANDS.isdisjoint(view.names)
    nvidias = devices or view.region(span[0]).reach == {"nvidia"}
    if not template.strip() or _GCN.match(template) or not nvidias:
        return
    certain = bool(_PTX.search(template) or _BARE_PTX.match(template))
    if certain or ("%" in template and view.in_device_code(span[0])):
        shift = 0 if certain else -1
        text = " ".join(template.replace("\\n", " ").replace("\\t", " ").split())
        text = text if len(text) <= 60 else text[:57] + "..."
        match = rule_match(view, "CU107", whole, excerpt=text, shift=shift)
        function = view.syntax.function(span[0])
        yield replace(match, use=function.start_byte) if function else match


def memory_rule_matches(view: View, name: str, span: Span) -> Iterator[Match]:
    """Yield the matches in the memory use of one name: CU129, CU170."""
    whole, arguments = view.syntax.call(span[0])
    if not arguments:
        return
    if name in ("alloca", "__builtin_alloca"):
        if view.in_device_code(span[0]):
            yield rule_match(view, "CU170", whole)
        return
    text = view.code[slice(*whole)]
    opts_in = "MaxDynamicSharedMemorySize" in text or "MAX_DYNAMIC_SHARED" in text
    if opts_in and view.region(span[0]).reach != {"amd"}:
        size = number_of(view, view.code[slice(*arguments[-1])])
        if size is None or size > _LDS_BYTES:
            yield rule_match(view, "CU129", whole, shift=-1 if size is None else 1)


def shared_memory_rule_matches(view: View) -> Iterator[Match]:
    """Yield static shared memory that is too large, and arrays with a slot a warp."""
    total: Counter[int] = Counter()
    for place in view.syntax.places("__shared__"):
        declaration, function = (
            view.syntax.around(place, "declaration"),
            view.syntax.function(place),
        )
        if declaration is None or function is None:
            continue
        kind = view.syntax.text(declaration.child_by_field_name("type"))
        for variable in declaration.children_by_field_name("declarator"):
            name, _, bounds = view.syntax.text(variable).partition("[")
            extents = [number_of(view, bound) for bound in bounds.rstrip("]").split("][") if bounds]
            span = (declaration.start_byte, variable.end_byte)
            if extents == [32] and _a_slot_a_warp(view, name, function):
                description = f"{name}[32], a slot a warp,"
                yield rule_match(view, "CU114", span, excerpt=description)
            size = _SIZES.get(" ".join(kind.split()), 0) if extents else 0
            size *= math.prod(extent or 0 for extent in extents)
            total[function.start_byte] += size
            if size and total[function.start_byte] > _LDS_BYTES:
                description = f"{total[function.start_byte]} bytes of __shared__"
                yield rule_match(view, "CU130", span, excerpt=description)


def _a_slot_a_warp(view: View, name: str, function: Node) -> bool:
    """Return true if a function numbers slots by warps or lanes, or passes them to a reduction."""
    used = rf"""\b{name}\s*\[\s*(?:w_?id|\w*(?:warp|lane)\w*)\s*\]|
        (?:reduce|shuffle|warp|prefix)\w*\s*(?:<[^;()]{{0,60}}>)?\([^;]{{0,200}}\b{name}\b"""
    return re.search(used, view.syntax.text(function), re.IGNORECASE | re.VERBOSE) is not None
