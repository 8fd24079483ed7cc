"""Rules about device code and its memory: PTX, half types, shared memory, launches,
operators of vectors. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

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
MEMORY_NAMES = frozenset({"cudaFuncSetAttribute", "cuFuncSetAttribute"})
_LDS_BYTES = 65536
_FAR = 4000
_PTX_OPERANDS = frozenset({"__cvta_generic_to_shared", "__CUDA_ARCH__", "__forceinline__"})


def asm_rule_matches(view: View, _name: str, span: Span) -> Iterator[Match]:
    """Yield PTX (CU107) in the `asm` with its name at `span`.

    An empty text orders memory on any compiler; GCN's own instructions are ported code.
    """
    whole = (span[0], max(view.code.find(";", span[1], span[1] + _FAR), span[1]))
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
        function = view.syntax.block(span[0]).function
        yield replace(match, use=function.start) if function else match


def memory_rule_matches(view: View, _name: str, span: Span) -> Iterator[Match]:
    """Yield the opt-in to more shared memory than AMD has (CU129)."""
    whole, arguments = view.syntax.call(span[0])
    text = view.code[slice(*whole)]
    opts_in = "MaxDynamicSharedMemorySize" in text or "MAX_DYNAMIC_SHARED" in text
    if arguments and opts_in and view.region(span[0]).reach != {"amd"}:
        size = number_of(view, view.code[slice(*arguments[-1])])
        if size is None or size > _LDS_BYTES:
            yield rule_match(view, "CU129", whole, shift=-1 if size is None else 1)
