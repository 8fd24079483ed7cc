"""Rules about kernels in Python: Triton, and CUDA text handed to a compiler at run time. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import elements, keyword, last_name, text_of

_CUDA_TEXT = re.compile(
    r"__global__|__device__|__shfl|__ballot|__syncthreads|#include\s*[<\"](?:cuda|cub|cutlass)"
)
_PREFIX = re.compile(r"[a-zA-Z]*(?:\"\"\"|'''|\"|')")
_TRITON_WARP = re.compile(r"\b32\s*\*\s*num_warps\b|\bnum_warps\s*\*\s*32\b")
_LANES_OF_A_WARP = re.compile(r"/\s*32\b")
_WARP_NAME = re.compile(r"(?i)_*(?:WARP_?SIZE|THREADS_PER_WARP|WARP_THREADS|NUM_LANES)_*\Z")
_LAUNCHES = re.compile(r"(?i)triton|cuda|kernel|warp|launch|RawKernel|load_inline")


def launches(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `num_warps=32`, `num_ctas=2`: of a launch or a `triton.Config`.

    Triton's autotuner leaves out a configuration that lacks resources, so `for num_warps in
    [8, 32]` is less than 32 alone.
    """
    warps, clusters = keyword(node, "num_warps"), keyword(node, "num_ctas")
    if not module.names("triton") or not (warps or clusters):
        return
    warp_values = [warps]
    if isinstance(warps, ast.Name):
        bound = [value for value in module.scopes.bound(warps) if value is not None]
        warp_values = [value for value in bound if elements(module.parents.get(value))]
    for value in warp_values:
        if _number(value) >= 32:
            shift = 0 if all(_number(other) >= 32 for other in warp_values) else -1
            excerpt = f"num_warps={_number(value)}"
            yield Seen("PY038", value or node, excerpt, shift=shift)
    if warps is not None and _LANES_OF_A_WARP.search(module.source_of(warps)):
        yield Seen("PY039", warps, f"num_warps={module.source_of(warps)}")
    if clusters is not None and _number(clusters) > 1:
        yield Seen("PY039", clusters, f"num_ctas={_number(clusters)}")


def _number(node: ast.expr | None) -> int:
    """Return the whole number that a node is; 0 for another one."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) else 0


def warps_assigned(module: Module, node: ast.Assign) -> Iterator[Seen]:
    """Yield `num_warps = 32`, and `WARP_SIZE = 32` in a module that launches kernels."""
    number = _number(node.value)
    for name in map(last_name, node.targets) if number >= 32 else ():
        if name == "num_warps" and "triton" in module.text:
            yield Seen("PY038", node, f"num_warps = {number}")
        elif number == 32 and _WARP_NAME.match(name) and _LAUNCHES.search(module.text):
            yield Seen("PY055", node, f"{name} = 32")


def warp_products(module: Module, node: ast.BinOp) -> Iterator[Seen]:
    """Yield `32 * num_warps`: the lanes of a warp written down."""
    if isinstance(node.op, ast.Mult) and _TRITON_WARP.fullmatch(module.source_of(node)):
        yield Seen("PY039", node, module.source_of(node))


def cuda_texts(module: Module) -> Iterator[tuple[int, int, ast.AST]]:
    """Yield (start, end, node) of the insides of string literals that contain CUDA."""
    for node in module.of(ast.Constant) if _CUDA_TEXT.search(module.text) else ():
        text = text_of(node)
        if text is None or "\n" not in text or _CUDA_TEXT.search(text) is None:
            continue
        if node in module.docstrings or isinstance(module.parents.get(node), ast.JoinedStr):
            continue
        start, end = module.span(node)
        opening = _PREFIX.match(module.text, start, end)
        if opening is not None:
            closing = 3 if opening[0].endswith(('"""', "'''")) else 1
            yield opening.end(), end - closing, node
