"""Rules for Intel Gaudi, some also for a CPU: `torch.cuda` is not available. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import Text, keyword, last_name, text_of

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
_FUNCTIONS = frozenset(
    {"current_device", "synchronize", "empty_cache", "set_device", "manual_seed"}
)
_COMPARING = (ast.Compare, ast.MatchValue)
_HARMLESS = frozenset({"is_available", "device_count", "is_initialized", "is_bf16_supported"})


def device_calls(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `.cuda()`, `torch.cuda.*()`, events, AMP and custom extensions."""
    dotted, name = module.dotted(node.func), last_name(node.func)
    if isinstance(node.func, ast.Attribute) and name == "cuda" and not node.keywords:
        if dotted not in {"torch.cuda", "numba.cuda"}:
            yield Seen("HP601", node, ".cuda()")
    elif _is_cuda_autocast(dotted, node):
        yield Seen("HP601", node, dotted)
    elif dotted.startswith("torch.cuda.") and name not in _HARMLESS:
        idle = dotted == f"torch.cuda.{name}" and name in _DOING_NOTHING
        yield Seen("HP601", node, dotted, shift=-2 * idle)
    elif dotted.split(".")[-1] == "CUDAExtension":
        yield Seen("HP606", node, "CUDAExtension")


def questions(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `torch.cuda.is_available()` and `.device_count()`: False and 0 on other devices.

    A program that names Gaudi itself is excluded.
    """
    dotted = module.dotted(node.func)
    if dotted in _QUESTIONS and not _knows_gaudi(module):
        match module.parents[node]:
            case ast.BinOp(op=ast.Mod() | ast.FloorDiv() | ast.Div(), right=by) if by is node:
                yield Seen("HP610", node, f"dividing by {dotted}()", shift=1)
            case _:
                yield Seen("HP610", node, f"{dotted}()")


def _knows_gaudi(module: Module) -> bool:
    """Return true if the module names Gaudi's device, or uses any available accelerator."""
    return re.search(r"\bhpu\b|habana|torch\.accelerator", module.text) is not None


def _is_cuda_autocast(dotted: str, node: ast.Call) -> bool:
    kinds = (*node.args[:1], keyword(node, "device_type"), keyword(node, "device"))
    return dotted in {"torch.autocast", "torch.amp.autocast", "torch.amp.GradScaler"} and any(
        text_of(kind) == "cuda" for kind in kinds
    )


def device_strings(module: Module, node: Text) -> Iterator[Seen]:
    """Yield `"cuda"`, `"cuda:0"`, `f"cuda:{rank}"` where they choose or compare a device."""
    text = node.value
    if text.partition(":")[0] != "cuda":
        return
    # The expression that has the string as (a part of) its value.
    composing = (ast.JoinedStr, ast.Attribute, ast.BinOp)
    around = ((p, c) for p, c in module.ancestors(node) if not isinstance(p, composing))
    parent, whole = next((p, c) for p, c in around if getattr(p, "func", None) is not c)
    if isinstance(parent, ast.Call) and module.is_said(whole):
        return
    listed = isinstance(parent, ast.Tuple | ast.List | ast.Set)
    begins = (
        isinstance(parent, ast.Call)
        and whole in parent.args
        and last_name(parent.func) in {"startswith", "endswith"}
    )
    compared = isinstance(module.parents[parent] if listed else parent, _COMPARING)
    if compared or begins or text == "cuda:" or text[5:6] in {"%", "{"}:
        yield Seen("HP610", whole)
        return
    call = module.parents[parent] if isinstance(parent, ast.keyword) else None
    mixed = isinstance(call, ast.Call) and _is_cuda_autocast(module.dotted(call.func), call)
    shift = None if mixed else _choice(module, node, parent)
    if shift is not None:
        yield Seen("HP601", node, f'"{text}"', shift=shift)


def _choice(module: Module, node: ast.AST, parent: ast.AST) -> int | None:
    """Return the certainty that this chooses a device.

    The result is 0, or -1 where a caller may choose another, or None where no choice is visible.
    """
    beside = False
    while isinstance(parent, ast.IfExp | ast.BoolOp | ast.NamedExpr):
        beside = beside or '"cpu"' in module.source_of(parent).replace("'", '"')
        parent = module.parents[parent]
    if isinstance(parent, ast.Call) and (
        module.dotted(parent.func) == "torch.device" or last_name(parent.func) == "to"
    ):
        return 0
    name = ""
    match parent:
        case ast.Dict(keys=keys) if node in keys:
            return None
        case ast.arguments() | ast.Dict():
            return -1
        case ast.keyword(arg=str(name)):
            pass
        case ast.Assign(targets=[target, *_]) | ast.AnnAssign(target=target):
            name = last_name(target)
        case ast.Return():
            name = getattr(module.scope(node), "name", "")
        case _:
            pass
    return 0 if _DEVICE_NAME.match(name) else -1 if beside else None


def device_attributes(module: Module, node: ast.Attribute) -> Iterator[Seen]:
    """Yield `tensor.is_cuda`, and functions of torch.cuda that are passed as values."""
    parent = module.parents[node]
    if isinstance(parent, ast.Call) and parent.func is node:
        return
    if node.attr == "is_cuda" and isinstance(node.ctx, ast.Load):
        if not _knows_gaudi(module):
            worse = int(isinstance(parent, ast.Assert))
            yield Seen("HP610", node, shift=worse)
    elif node.attr in _FUNCTIONS and module.dotted(node) == f"torch.cuda.{node.attr}":
        yield Seen("HP601", node, f"torch.cuda.{node.attr}")
