"""Rules about torch.compile, Inductor's settings and graph capture. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from warpfront_port.scan.python.module import Module, Seen, called_name, last_name, text_of

_CAPTURES = frozenset({"torch.cuda.graph", "torch.cuda.graphs.graph"})
_CPU_RNG = ("torch.get_rng_state", "torch.set_rng_state", "torch.random.")
_RNG = frozenset({"get_rng_state", "set_rng_state", "get_rng_state_all", "set_rng_state_all"})
_FLASH_3 = re.compile(r"flash[-_]?att(?:entio)?n[-_]?3", re.IGNORECASE)
_SYNCHRONISING = frozenset({"item", "cpu", "tolist", "nonzero", "numpy", "synchronize"})


def capture_bodies(module: Module, node: ast.With) -> Iterator[Seen]:
    """Yield operations that are not allowed while a graph is captured."""
    calls = (item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call))
    if any(module.dotted(call.func) in _CAPTURES for call in calls):
        yield from _captured(module, node.body, node)


def capture_calls(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield the same operations between `capture_begin()` and `capture_end()` of one block."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "capture_begin":
        return
    statement = module.parents.get(node)
    block = module.block_of(statement) if isinstance(statement, ast.Expr) else []
    for following in block[block.index(statement) + 1 :] if statement in block else ():
        if "capture_end" in module.source_of(following):
            return
        yield from _captured(module, [following], node)


def _captured(module: Module, body: Iterable[ast.AST], via: ast.AST) -> Iterator[Seen]:
    """Yield operations in statements, and in functions of the module that they call."""
    for statement in body:
        for call in ast.walk(statement):
            if not isinstance(call, ast.Call) or _asks_whether_capturing(module, call):
                continue
            yield from _in_capture(module, call)
            function = module.functions.get(called_name(call.func))
            for inner in ast.walk(function) if function is not None else ():
                if isinstance(inner, ast.Call) and not _asks_whether_capturing(module, inner):
                    yield from (
                        replace(sighting, via=via) for sighting in _in_capture(module, inner)
                    )


def _asks_whether_capturing(module: Module, call: ast.Call) -> bool:
    return any(
        isinstance(parent, ast.If | ast.IfExp) and "is_current_stream_capturing" in text
        for parent, _ in module.ancestors(call)
        if (text := module.source_of(getattr(parent, "test", parent)))
    )


def _in_capture(module: Module, call: ast.Call) -> Iterator[Seen]:
    name = last_name(call.func)
    dotted = module.dotted(call.func)
    of_generator = name in {"get_state", "set_state"} and "generator" in module.source_of(call)
    if (name in _RNG and not dotted.startswith(_CPU_RNG)) or of_generator:
        yield Seen(rule="PY006", node=call, what=f"{name}()")
    elif name in _SYNCHRONISING and isinstance(call.func, ast.Attribute):
        yield Seen(rule="PY007", node=call, what=f".{name}()")
    elif name == "print" and any(not isinstance(a, ast.Constant) for a in call.args):
        yield Seen(rule="PY007", node=call, what="print()")


def rng_beside_capture(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield RNG state read or set in a function that captures a graph, outside its `with`."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in _RNG:
        return
    if not module.dotted(node.func).startswith("torch.cuda."):
        return
    scope = module.scope(node)
    if isinstance(scope, ast.Module) or "graph" not in module.source_of(scope).lower():
        return
    captures = any(
        isinstance(inner, ast.Call) and module.dotted(inner.func) == "torch.cuda.CUDAGraph"
        for inner in ast.walk(scope)
    )
    inside = any(
        isinstance(parent, ast.With) and "torch.cuda.graph" in module.source_of(parent)[:200]
        for parent, _ in module.ancestors(node)
    )
    if captures and not inside:
        yield Seen(rule="PY006", node=node, what=f"torch.cuda.{node.func.attr}()", shift=-1)


def kernels_of_the_hub(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `get_kernel("varunneal/flash-attention-3")`."""
    if last_name(node.func) == "get_kernel" and node.args:
        texts = (text_of(inner) or "" for inner in ast.walk(module.scopes.one(node.args[0])))
        name = next((text for text in texts if _FLASH_3.search(text)), "")
        if name:
            yield Seen(rule="PY035", node=node, what=f'get_kernel("{name}")')
