"""Rules about kernels in Python: Triton, and CUDA text handed to a compiler at run time. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from warpfront_port.scan.python.module import Module, Seen, keyword, text_of

_CUDA_TEXT = re.compile(
    r"__global__|__device__|__shfl|__ballot|__syncthreads|#include\s*[<\"](?:cuda|cub|cutlass)"
)
_PREFIX = re.compile(r"[a-zA-Z]*(?:\"\"\"|'''|\"|')")
_TRITON_WARP = re.compile(r"\b32\s*\*\s*num_warps\b|\bnum_warps\s*\*\s*32\b")


def launches(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `num_warps=32`, `num_ctas=2`: of a launch or a `triton.Config`."""
    if not module.names("triton"):
        return
    warps = keyword(node, "num_warps")
    if count := _too_many(warps):
        yield Seen(rule="PY038", node=warps or node, what=f"num_warps={count}")
    elif isinstance(warps, ast.Name):
        yield from _warps_tried(module, node, warps.id)
    clusters = keyword(node, "num_ctas")
    ctas = clusters.value if isinstance(clusters, ast.Constant) else None
    if clusters is not None and isinstance(ctas, int) and ctas > 1:
        yield Seen(rule="PY039", node=clusters, what=f"num_ctas={ctas}")


def _warps_tried(module: Module, node: ast.AST, name: str) -> Iterator[Seen]:
    """Yield `for num_warps in [8, 16, 32]` of the comprehension or loop around a configuration."""
    for around, _ in module.ancestors(node):
        for loop in [around] if isinstance(around, ast.For) else getattr(around, "generators", ()):
            if isinstance(loop.target, ast.Name) and loop.target.id == name:
                elements = getattr(loop.iter, "elts", ())
                # The autotuner of Triton leaves out a configuration that lacks resources.
                shift = 0 if all(map(_too_many, elements)) else -1
                for element in elements:
                    if count := _too_many(element):
                        what = f"{name}={count}"
                        yield Seen(rule="PY038", node=element, what=what, shift=shift)


def _too_many(node: ast.expr | None) -> int:
    """Return the number of warps that a block of AMD's cannot have; 0 for another, or for none."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) and value >= 32 else 0


def warps_assigned(module: Module, node: ast.Assign) -> Iterator[Seen]:
    """Yield `num_warps = 32`."""
    named = any(
        isinstance(target, ast.Name) and target.id == "num_warps" for target in node.targets
    )
    if named and module.names("triton") and (count := _too_many(node.value)):
        yield Seen(rule="PY038", node=node, what=f"num_warps = {count}")


def warp_products(module: Module, node: ast.BinOp) -> Iterator[Seen]:
    """Yield `32 * num_warps`: the lanes of a warp written down."""
    if isinstance(node.op, ast.Mult) and _TRITON_WARP.fullmatch(module.source_of(node)):
        yield Seen(rule="PY039", node=node, what=module.source_of(node))


def cuda_texts(module: Module) -> Iterator[tuple[int, int, ast.AST]]:
    """Yield (start, end, node) of the insides of string literals that contain CUDA."""
    if _CUDA_TEXT.search(module.text) is None:
        return
    for node in module.nodes:
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
