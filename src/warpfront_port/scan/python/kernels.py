"""Rules about Triton, CUDA text for a compiler at run time, and graph capture. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import called_name, last_name

_CUDA_TEXT = re.compile(
    r"__global__|__device__|__shfl|__ballot|__syncthreads|#include\s*[<\"](?:cuda|cub|cutlass)"
)
_PREFIX = re.compile(r"[a-zA-Z]*(?:\"\"\"|'''|\"|')")
_CAPTURES = frozenset({"torch.cuda.graph", "torch.cuda.graphs.graph"})
_CPU_RNG = ("torch.get_rng_state", "torch.set_rng_state", "torch.random.")
_RNG = frozenset({"get_rng_state", "set_rng_state", "get_rng_state_all", "set_rng_state_all"})
_SYNCHRONISING = frozenset({"item", "cpu", "tolist", "nonzero", "numpy", "synchronize"})


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


def capture_bodies(module: Module, node: ast.With) -> Iterator[Seen]:
    """Yield operations that are not allowed while a graph is captured, in functions too."""
    calls = (i.context_expr for i in node.items if isinstance(i.context_expr, ast.Call))
    captures = any(module.dotted(call.func) in _CAPTURES for call in calls)
    for call in _calls(module, node.body) if captures else ():
        yield from _in_capture(module, call)
        function = module.functions.get(called_name(call.func))
        for inner in _calls(module, [function] if function else []):
            yield from (replace(sighting, via=node) for sighting in _in_capture(module, inner))


def _calls(module: Module, body: Iterable[ast.AST]) -> Iterator[ast.Call]:
    """Yield the calls in statements, but for those behind `is_current_stream_capturing()`."""
    for call in (inner for statement in body for inner in ast.walk(statement)):
        if isinstance(call, ast.Call) and not any(
            "is_current_stream_capturing" in module.source_of(parent.test)
            for parent, _ in module.ancestors(call)
            if isinstance(parent, ast.If | ast.IfExp)
        ):
            yield call


def _in_capture(module: Module, call: ast.Call) -> Iterator[Seen]:
    name = last_name(call.func)
    of_generator = name in {"get_state", "set_state"} and "generator" in module.source_of(call)
    of_device = name in _RNG and not module.dotted(call.func).startswith(_CPU_RNG)
    if of_device or of_generator:
        yield Seen("PY006", call, f"{name}()")
    elif name in _SYNCHRONISING and isinstance(call.func, ast.Attribute):
        yield Seen("PY007", call, f".{name}()")
    elif name == "print" and any(not isinstance(a, ast.Constant) for a in call.args):
        yield Seen("PY007", call, "print()")
