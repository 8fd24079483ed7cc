"""Rules about device code and its memory: PTX, half types, shared memory, launches,
operators of vectors. Pure.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tree_sitter import Node

from warpfront_port.scan.cuda.lexer import Span
from warpfront_port.scan.cuda.view import View, defines, number_of, patterns, rule_match
from warpfront_port.scan.findings import Match

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_GCN = re.compile(r"\s*(?:llvm\.|s_|v_|ds_|global_|buffer_|flat_|scratch_|image_|;)\w*")
_PTX = re.compile(
    r"\b[a-z][a-z0-9]*(?:\.[a-z0-9:_]+)+|%%?(?:laneid|warpid|lanemask_\w+|smid|clock|globaltimer|tid|"
    r"ctaid)\b|\.reg\b"
)
_BARE_PTX = re.compile(r"\s*(?:trap|exit|brkpt|membar|pmevent|nanosleep|discard)\b[\w. ]*;")
_TENSOR_CORE = re.compile(
    r"\b(?:mma\.|wmma\.|wgmma\.|ldmatrix|stmatrix|cp\.async|tcgen05\.|mbarrier\.|"
    r"fence\.proxy|cp\.reduce|setmaxnreg|griddepcontrol|elect\.sync|barrier\.cluster|mapa\.)"
)
MEMORY_NAMES = frozenset(
    {"atomicAdd", "atomicAdd_system", "atomicAdd_block", "cudaFuncSetAttribute"}
    | {"cuFuncSetAttribute"}
)
_HALF_PAIR = re.compile(r"\b(?:__)?(?:half2|nv_bfloat162)(?:\s+const)?\Z")
_HALF = re.compile(
    r"\b(?:__half2?|half2?|__nv_bfloat16(?:2)?|nv_bfloat16(?:2)?|at\s*::\s*(?:Half|BFloat16))\b"
)
_SIZES = {
    "char": 1, "int8_t": 1, "uint8_t": 1, "bool": 1, "unsigned char": 1, "half": 2, "__half": 2,
    "short": 2, "__nv_bfloat16": 2, "int16_t": 2, "uint16_t": 2, "float": 4, "int": 4,
    "unsigned": 4, "unsigned int": 4, "int32_t": 4, "uint32_t": 4, "half2": 4, "__half2": 4,
    "double": 8, "int64_t": 8, "uint64_t": 8, "float2": 8, "long long": 8, "float4": 16,
    "int4": 16, "uint4": 16, "double2": 16,
}  # fmt: skip
_LDS_BYTES = 65536
_STD_EXTREME = re.compile(r"\bstd\s*::\s*(max|min|clamp|swap|abs)\s*[(<]")
_VECTOR_OPERATOR = re.compile(
    r"\boperator\s*([-+*/]=?|==|!=)\s*\([^()]{0,120}\b(?:float|double|int|uint|short|ushort|char|"
    r"uchar|long|ulong|longlong|ulonglong)[1-4]\b[^()]{0,120}\)"
)
_COMPLEX = re.compile(r"\b(?:float2|double2)\b")
_TEMPLATE_TYPES = re.compile(r"\b(?:typename|class)\s+(?:\.\.\.\s*)?([A-Z]\w*)\b\s*[,>=]")
_DEPENDENT_CALL = re.compile(
    r"(?P<before>[;{}=]\s*)(?P<what>(?P<type>\w+)\s*::\s*[A-Z]\w*\s*\()(?=[^;{}]{0,200}?\)\s*\.)"
)
_LIBCUXX = re.compile(
    r"(?<![\w:])(?:::\s*)?cuda\s*::\s*(?:(?:std|barrier|pipeline\w*|atomic\w*|memcpy_async|ptx|semaphore|"
    r"latch|counting_semaphore|binary_semaphore|thread_scope\w*|aligned_size_t|annotated_ptr|"
    r"access_property|ceil_div|proclaim_return_type|device|make_pipeline|maximum|minimum)\b)"
)
_THRUST_CUDA = re.compile(r"\bthrust\s*::\s*(?:cuda|system\s*::\s*cuda|cuda_cub)\s*::")
_TEXTURE_REFERENCE = re.compile(r"(?<![\w:])texture\s*<(?![^;{}]{0,40}\bhip)")
_CLUSTER_SCOPE = re.compile(
    r"\b(?:cooperative_groups|cg)\s*::\s*(memcpy_async|wait|wait_prior|reduce|\w+clusive_scan|"
    r"cluster_group|this_cluster|invoke_one)\b"
)
_TILE_OF_32 = re.compile(r"\b(?:tiled_partition|thread_block_tile)\s*<\s*32\s*[,>]")


def asm_rule_matches(view: View, span: Span) -> Iterator[Match]:
    """PTX (CU107) or a tensor-core instruction (CU121) in the `asm` whose name lies at `span`.
    An empty text orders memory on any compiler; GCN's own instructions are ported code.
    """
    node = view.syntax.around(span[0], "gnu_asm_expression")
    found = view.code.find(";", span[1], span[1] + _FAR) if node is None else node.end_byte
    whole = (span[0], max(found, span[1]))
    operands = view.code.find(":", *whole)
    end = operands if operands >= 0 else whole[1]
    template = " ".join(_STRING.findall(view.source.text[span[1] : end]))
    if not template.strip() or _GCN.match(template) or not _may_be_ptx(view, span[0]):
        return
    certain = _PTX.search(template) or _BARE_PTX.match(template)
    if _TENSOR_CORE.search(template):
        yield rule_match(view, "CU121", whole, what=_short(template))
    elif certain or ("%" in template and view.in_device_code(span[0])):
        yield rule_match(view, "CU107", whole, what=_short(template), shift=0 if certain else -1)


_FAR = 4000


def _may_be_ptx(view: View, offset: int) -> bool:
    """Whether NVIDIA's compiler reads this for a device at all: other processors have dots in the
    names of their instructions too.
    """
    return (
        view.is_cuda
        or bool(view.names & _PTX_OPERANDS)
        or view.region(offset).reach == frozenset({"nvidia"})
    )


_PTX_OPERANDS = frozenset({"__cvta_generic_to_shared", "__CUDA_ARCH__", "__forceinline__"})


def _short(template: str) -> str:
    text = " ".join(template.replace("\\n", " ").replace("\\t", " ").split())
    return text if len(text) <= 60 else text[:57] + "..."


def memory_rule_matches(view: View, name: str, span: Span) -> Iterator[Match]:
    """What the use of one name says about memory: CU126, CU129."""
    whole, given = view.syntax.call(span[0])
    if not given:
        return
    if name in ("cudaFuncSetAttribute", "cuFuncSetAttribute"):
        text = view.code[slice(*whole)]
        asked = "MaxDynamicSharedMemorySize" in text or "MAX_DYNAMIC_SHARED" in text
        if asked and view.region(span[0]).reach != {"amd"}:  # in its own arm AMD was thought of
            size = number_of(view, view.code[slice(*given[-1])])
            yield rule_match(view, "CU129", whole, shift=int((size or 0) > _LDS_BYTES))
    elif _points_to_half(view, given[0]):
        yield rule_match(view, "CU126", whole)


def _points_to_half(view: View, pointer: Span) -> bool:
    """Whether the address that is added to is one of half-precision numbers: by a cast, or by what
    its name means there.
    """
    if _CAST_TO_HALF.search(view.code, *pointer):
        return True
    name = _NAMED.match(view.code, *pointer)
    declared = None if name is None else view.syntax.declared(name[1], pointer[0])
    if declared is None or not declared.shape & {"pointer_declarator", "array_declarator"}:
        return False
    return _HALF.search(declared.type) is not None


_NAMED = re.compile(r"\s*&?\s*(\w+)")
_CAST_TO_HALF = re.compile(rf"{_HALF.pattern}\s*(?:const\s*)?\*")


def device_rule_matches(view: View) -> Iterator[Match]:
    """What the text of the file says that no single name does."""
    for name, searching in _SEARCHES:
        if name in view.names:
            yield from searching(view)
    for name, pattern, rule in _PATTERNS:
        if name in view.names:
            yield from patterns(view, pattern, rule)


def _libcuxx(view: View) -> Iterator[Match]:
    """Names of `cuda::` that a project which has a namespace of that name may mean itself are only
    libcu++'s where its headers are.
    """
    included = any(_LIBCUXX_HEADER.match(one.body) for one in view.included)
    own = "cuda" in view.context.own_namespaces
    for found in _LIBCUXX.finditer(view.code):
        if included or not own or _CERTAINLY_LIBCUXX.search(found[0]):
            words = frozenset(re.findall(r"\w+", found[0]))
            yield rule_match(view, "CU122", found.span(), names=words)


_LIBCUXX_HEADER = re.compile(r"<(?:cuda|nv)/")
_CERTAINLY_LIBCUXX = re.compile(r"cuda\s*::\s*(?:std|ptx)\b")

_PATTERNS = (
    ("thrust", _THRUST_CUDA, "CU106"),
    ("texture", _TEXTURE_REFERENCE, "CU135"),
    ("cg", _CLUSTER_SCOPE, "CU119"),
    ("cooperative_groups", _CLUSTER_SCOPE, "CU119"),
    ("tiled_partition", _TILE_OF_32, "CU120"),
)


def _vector_operators(view: View) -> Iterator[Match]:
    """HIP's complex numbers are float2 and double2, with operators of their own; for the others it
    has templates, which lose against these.
    """
    if view.is_device_code:
        for found in _VECTOR_OPERATOR.finditer(view.code):
            shift = 0 if _COMPLEX.search(found[0]) else -1
            yield rule_match(view, "CU140", found.span(), shift=shift)


_OF_PAIRS = re.compile(r"\.\s*[xy]\b(?!\s*\()|(?<![=!<>])=\s*\{\s*\}(?=\s*;)")
"""Members, and `half2 x; x = {};`: HIP's half2 has several assignments that an empty list fits."""


def _half_members(view: View) -> Iterator[Match]:
    for found in _OF_PAIRS.finditer(view.code):
        node = view.syntax.around(found.start(), "field_expression", "assignment_expression")
        if node is not None and node.children[1].start_byte == found.start():
            value: Node | None = node.children[0]
            while value is not None and value.type == "subscript_expression":
                value = value.child_by_field_name("argument")
            name = view.syntax.text(value)
            declared = view.syntax.declared(name, found.start()) if name.isidentifier() else None
            if declared is not None and _HALF_PAIR.search(declared.type):
                yield rule_match(view, "CU127", (node.start_byte, found.end()))


def _shared_memory(view: View) -> Iterator[Match]:
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
            extents = [number_of(view, one) for one in bounds.rstrip("]").split("][") if bounds]
            span = (declaration.start_byte, variable.end_byte)
            if extents == [32] and _a_slot_a_warp(view, name, function):
                what = f"{name}[32], a slot a warp,"
                yield rule_match(view, "CU114", span, what=what, shift=-view.context.ported)
            size = _SIZES.get(" ".join(kind.split()), 0) if extents else 0
            size *= math.prod(extent or 0 for extent in extents)
            total[function.start_byte] += size
            if size and total[function.start_byte] > _LDS_BYTES:
                what = f"{total[function.start_byte]} bytes of __shared__"
                yield rule_match(view, "CU130", span, what=what)


def _a_slot_a_warp(view: View, name: str, function: Node) -> bool:
    """Whether a function numbers slots by warps or lanes, or hands them to a reduction."""
    used = rf"""\b{name}\s*\[\s*(?:w_?id|\w*(?:warp|lane)\w*)\s*\]|
        (?:reduce|shuffle|warp|prefix)\w*\s*(?:<[^;()]{{0,60}}>)?\([^;]{{0,200}}\b{name}\b"""
    return re.search(used, view.syntax.text(function), re.IGNORECASE | re.VERBOSE) is not None


def _launches_from_kernels(view: View) -> Iterator[Match]:
    for found in re.finditer("<<<", view.code):
        if "global" in view.syntax.specifiers(found.start()):
            yield rule_match(view, "CU134", found.span())


def _capabilities(view: View) -> Iterator[Match]:
    """Comparisons of what a device's properties call major, and arithmetic that makes one number
    of major and minor.
    """
    if _DEVICE_PROPERTIES & view.names or view.is_cuda:
        yield from patterns(view, _CAPABILITY, "CU151")


_DEVICE_PROPERTIES = frozenset(
    {"cudaDeviceProp", "cudaGetDeviceProperties", "getCurrentDeviceProperties"}
    | {"getDeviceProperties", "cudaDeviceProperties"}
)
_CAPABILITY = re.compile(
    r"(?:\.|->)\s*major\s*(?:[<>](?![<>])=?|[=!]=(?!\s*9999)|\*\s*10)|\b\d\s*(?:[<>](?![<>])=?|[=!]=)\s*[\w.()>-]{1,60}(?:\.|->)\s*major\b"
)


def _std_in_device_code(view: View) -> Iterator[Match]:
    for found in _STD_EXTREME.finditer(view.code):
        declaration = view.syntax.around(found.start(), "declaration", "field_declaration")
        head = view.code[declaration.start_byte : found.start()] if declaration else ""
        constant = "constexpr" in head and "{" not in head
        cuda = view.is_device_code or view.source.path.suffix in (".cu", ".cuh")
        listed = view.code.startswith("{", found.end())
        if view.in_device_code(found.start()) or (constant and cuda):
            shift = 1 if constant or listed else 0
            yield rule_match(view, "CU136", (found.start(), found.end() - 1), shift=shift)


def _missing_typenames(view: View) -> Iterator[Match]:
    if not view.is_device_code:
        return
    types = {found[1] for found in _TEMPLATE_TYPES.finditer(view.code)}
    for found in _DEPENDENT_CALL.finditer(view.code):
        if found["type"] in types and view.in_device_code(found.start("what")):
            yield rule_match(view, "CU139", (found.start("what"), found.end("what") - 1))


def _launch_bounds(view: View) -> Iterator[Match]:
    for place in view.syntax.places("__launch_bounds__"):
        bounds = view.syntax.around(place, "launch_bounds")
        given = () if bounds is None else bounds.named_children
        if bounds is None or not given:
            continue
        whole = (bounds.start_byte, bounds.end_byte)
        if number_of(view, view.syntax.text(given[0])) == 32:
            yield rule_match(view, "CU115", whole)
        if len(given) > 1 and number_of(view, view.syntax.text(given[1])) not in (0, 1):
            yield rule_match(view, "CU150", whole)


_SEARCHES: Final[tuple[tuple[str, Callable[[View], Iterator[Match]]], ...]] = (
    ("cuda", _libcuxx),
    ("half2", _half_members),
    ("__half2", _half_members),
    ("__nv_bfloat162", _half_members),
    ("__shared__", _shared_memory),
    ("__global__", _launches_from_kernels),
    ("operator", _vector_operators),
    ("major", _capabilities),
    ("std", _std_in_device_code),
    ("typename", _missing_typenames),
    ("__launch_bounds__", _launch_bounds),
)


def leftovers(view: View, name: str, span: Span) -> Iterator[Match]:
    """CUDA's names in a file that says it is HIP (CU138), and those that hipify's tables lack
    (CU147) where the tables are there.
    """
    known = view.context.identifiers
    hipified = view.source.path.suffix.lower() in (".cu", ".cuh")
    region = view.region(span[0])
    reached = view.is_hip and not hipified and "amd" in region.reach
    if (
        reached
        and not any(map(_OF_A_LIBRARY.search, region.tested))
        and not _is_shared(view, name, known)
    ):
        yield rule_match(view, "CU138", span)
    if known and name not in known and _API.match(name) and _is_foreign(view, name, span):
        yield rule_match(view, "CU147", span)


def _is_shared(view: View, name: str, known: Mapping[str, str]) -> bool:
    """Whether a name of CUDA's form means something on AMD: RCCL keeps NCCL's names, a project
    has names of its own, and wraps others; headers of that kind have HIP in their path.
    """
    return (
        name.startswith(("nccl", "NCCL"))
        or name in view.portable
        or _MAPPING_HEADER.search(str(view.source.path)) is not None
        or (bool(known) and name not in known)
    )


_OF_A_LIBRARY = re.compile(r"(?:^|_)CU(?:BLAS|FFT|SOLVER|SPARSE|DNN|RAND|TENSOR)")
_MAPPING_HEADER = re.compile(r"(?i)(?:hip|rocm)[^/]*(?:/[^/]+)*\.(?:h|hh|hpp|inl)\Z")
_API = re.compile(
    r"(?:cuda(?:Malloc|Memcpy|Memset|Free|Stream|Event|Device|Func|Graph|Launch|Host|Pointer|Mem|Get|"
    r"Set|Occupancy|Array|External|Import|Ipc|Ctx|User|Library|Kernel)|"
    r"cu(?:Ctx|Device|Event|Func|Graph|Launch|Link|Mem|Module|Pointer|Stream|Tensor|Library|Kernel)|"
    r"cublas|cusparse|cufft|curand|cusolver|nccl)[A-Z]\w*\Z"
)


def _is_foreign(view: View, name: str, span: Span) -> bool:
    """Whether a name is called, and not one that this file defines."""
    if not re.match(r"\s*\(", view.code[span[1] : span[1] + 10]) or name in view.macros:
        return False
    return not defines(view, name)
