"""Rules about Triton, and CUDA text for a compiler at run time. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from warpfront_port.scan.python.module import Module, Seen

_CUDA_TEXT = re.compile(
    r"__global__|__device__|__shfl|__ballot|__syncthreads|#include\s*[<\"](?:cuda|cub|cutlass)"
)
_PREFIX = re.compile(r"[a-zA-Z]*(?:\"\"\"|'''|\"|')")


def stages(module: Module, node: ast.keyword) -> Iterator[Seen]:
    """Yield `num_stages=4`, and the items of a list that are given so."""
    if node.arg == "num_stages" and "triton" in module.packages:
        for value in module.scopes.values(node.value):
            if isinstance(value, ast.Constant) and value.value not in (None, 1, 2):
                yield Seen("PY066", value, f"num_stages={module.source_of(value)}", via=node)


def cuda_texts(module: Module) -> Iterator[tuple[int, int, ast.AST]]:
    """Yield (start, end, node) of the insides of string literals that contain CUDA."""
    for node in module.texts if _CUDA_TEXT.search(module.text) else ():
        inner = isinstance(module.parents[node], ast.JoinedStr) or "\n" not in node.value
        if inner or _CUDA_TEXT.search(node.value) is None:
            continue
        start, end = module.span(node)
        opening = _PREFIX.match(module.text, start, end)
        if opening is not None:
            closing = 3 if opening[0].endswith(('"""', "'''")) else 1
            yield opening.end(), end - closing, node
