"""Rules for Intel Gaudi, some also for a CPU: `torch.cuda` is not available. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import Text, last_name

_DEVICE_NAME = re.compile(
    r"(?i)(?:.*_)?(?:device|dev|accelerator|map_location|location|mem_type|placement|backend)"
    r"(?:_?(?:type|str|name|id|kind))?\Z"
)
_QUESTIONS = frozenset({"torch.cuda.is_available", "torch.cuda.device_count"})
# They ask first whether CUDA was started, and do nothing where it was not.
_DOING_NOTHING = frozenset(
    {"empty_cache", "manual_seed", "manual_seed_all", "memory_allocated"}
    | {"max_memory_allocated", "memory_reserved", "memory_stats"}
)
_HARMLESS = frozenset({"is_initialized", "is_bf16_supported"})


def device_names(module: Module, node: ast.Name | ast.Attribute) -> Iterator[Seen]:
    """Yield `.cuda()`, `torch.cuda.*`, `tensor.is_cuda` and custom extensions."""
    dotted, name = module.dotted(node), last_name(node)
    parent = module.parents[node]
    is_called = isinstance(parent, ast.Call) and parent.func is node
    if isinstance(parent, ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return
    if dotted in _QUESTIONS or name == "is_cuda":
        yield from _asked(module, node)
    elif dotted.startswith("torch.cuda.") and name not in _HARMLESS:
        yield Seen("HP601", node, dotted, shift=-2 * (name in _DOING_NOTHING))
    elif is_called and name == "cuda" and dotted not in {"torch.cuda", "numba.cuda"}:
        yield Seen("HP601", parent, ".cuda()")


def _asked(module: Module, node: ast.AST) -> Iterator[Seen]:
    """Yield what decides by CUDA's device, in a module that names no other accelerator."""
    if re.search(r"\bhpu\b|habana|torch\.accelerator", module.text) is None:
        yield Seen("HP610", node)


def device_strings(module: Module, node: Text) -> Iterator[Seen]:
    """Yield `"cuda"`, `"cuda:0"`, `f"cuda:{rank}"` where they choose or compare a device."""
    if node.value.partition(":")[0] != "cuda":
        return
    # The expression that has the string as (a part of) its value.
    parts = (ast.JoinedStr, ast.BinOp, ast.IfExp, ast.BoolOp, ast.Tuple, ast.List, ast.Set)
    parent, whole = next((p, c) for p, c in module.ancestors(node) if not isinstance(p, parts))
    match parent:
        case ast.Compare() | ast.MatchValue():
            yield from _asked(module, whole)
        case ast.Call(func=function) if last_name(function) in {"device", "to", "autocast"}:
            yield Seen("HP601", node, f'"{node.value}"')
        case ast.arguments():
            yield Seen("HP601", node, f'"{node.value}"', shift=-1)
        case ast.keyword(arg=str(name)) if _DEVICE_NAME.match(name):
            yield Seen("HP601", node, f'"{node.value}"')
        case ast.Assign(targets=[target, *_]) | ast.AnnAssign(target=target) if _DEVICE_NAME.match(
            last_name(target)
        ):
            yield Seen("HP601", node, f'"{node.value}"')
        case _:
            pass
