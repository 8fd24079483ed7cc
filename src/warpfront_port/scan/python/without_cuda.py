"""Rules for Intel Gaudi, some also for a CPU: `torch.cuda` is not available. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from warpfront_port.scan.python.module import Module, Seen, keyword, last_name, text_of
from warpfront_port.scan.python.scopes import parameters

_DEVICE_NAME = re.compile(
    r"(?:.*_)?(?:device|dev|accelerator|map_location|location|mem_type|placement|backend)(?:_?(?:type|str|"
    r"name|id|kind))?\Z",
    re.IGNORECASE,
)
_LOGGERS = ("logger", "logging", "log", "warnings", "console")
_QUESTIONS = frozenset({"torch.cuda.is_available", "torch.cuda.device_count"})
_DOING_NOTHING = frozenset(
    f"torch.cuda.{name}"
    for name in ("empty_cache", "manual_seed", "manual_seed_all", "memory_allocated",
                 "max_memory_allocated", "memory_reserved", "memory_stats")
)  # fmt: skip
"""They ask first whether CUDA was started, and do nothing where it was not."""
_FUNCTIONS = frozenset(
    {"current_device", "synchronize", "empty_cache", "set_device", "manual_seed"}
)
_DEVICE_ARGUMENTS = frozenset({"device", "map_location", "device_type"})
_HARMLESS = frozenset({"is_available", "device_count", "is_initialized", "is_bf16_supported"})


def device_calls(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `.cuda()`, `torch.cuda.*()`, `device="cuda"`, events, AMP and custom extensions."""
    dotted = module.dotted(node.func)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and not node.keywords:
        if dotted not in {"torch.cuda", "numba.cuda"}:
            yield Seen(rule="HP601", node=node, what=".cuda()")
    elif (
        dotted == "torch.cuda.Event"
        or dotted.startswith("torch.cuda.amp.")
        or _is_cuda_autocast(dotted, node)
    ):
        yield Seen(rule="HP601", node=node, what=dotted)
    elif dotted.startswith("torch.cuda.") and dotted.split(".")[-1] not in _HARMLESS:
        yield Seen(rule="HP601", node=node, what=dotted, shift=-2 * (dotted in _DOING_NOTHING))
    elif dotted.split(".")[-1] == "CUDAExtension":
        yield Seen(rule="HP606", node=node, what="CUDAExtension")
    if dotted == "torch.compile":
        backend = text_of(keyword(node, "backend"))
        if backend not in {"hpu_backend", "eager", "aot_eager"}:
            yield Seen(rule="HP608", node=node, what=f"backend={backend or 'inductor'}")


def _is_cuda_autocast(dotted: str, node: ast.Call) -> bool:
    if dotted not in {"torch.autocast", "torch.amp.autocast", "torch.amp.GradScaler"}:
        return False
    kinds = (*node.args[:1], keyword(node, "device_type"), keyword(node, "device"))
    return any(text_of(kind) == "cuda" for kind in kinds)


def device_strings(module: Module, node: ast.Constant) -> Iterator[Seen]:
    """Yield `"cuda"`, `"cuda:0"`, `f"cuda:{rank}"` where they choose or compare a device."""
    text = node.value
    if not isinstance(text, str) or not (text == "cuda" or text.startswith("cuda:")):
        return
    if node in module.docstrings:
        return
    whole, parent = _whole(module, node)
    if _is_said(module, parent):
        return
    if _is_asked(module, whole, parent) or text == "cuda:" or text.startswith(("cuda:%", "cuda:{")):
        yield Seen(rule="HP610", node=whole, what=module.shown(whole, 60))
    elif not (isinstance(parent, ast.keyword) and _is_mixed_precision(module, parent)):
        shift = _choice(module, node, whole, parent)
        if shift is not None:
            yield Seen(rule="HP601", node=node, what=f'"{text}"', shift=shift)


def _whole(module: Module, node: ast.AST) -> tuple[ast.AST, ast.AST]:
    """Return the expression that has the string as (a part of) its value, and its parent."""
    for parent, child in module.ancestors(node):
        part = isinstance(parent, ast.JoinedStr | ast.Attribute)
        part = part or (isinstance(parent, ast.BinOp) and not isinstance(parent.op, ast.BitOr))
        part = part or (isinstance(parent, ast.Call) and child is parent.func)
        if not part or (isinstance(parent, ast.Call) and parent.func is not child):
            return child, parent
    return node, module.tree


def _is_said(module: Module, parent: ast.AST) -> bool:
    """Return true if the text is for people: logged, printed, raised."""
    if not isinstance(parent, ast.Call):
        return False
    name = last_name(parent.func)
    root = module.dotted(parent.func).split(".")[0].lower()
    return name == "print" or name.endswith(("Error", "Exception")) or root.endswith(_LOGGERS)


def _is_asked(module: Module, whole: ast.AST, parent: ast.AST) -> bool:
    if isinstance(parent, ast.Tuple | ast.List | ast.Set):
        parent = module.parents[parent]
    if isinstance(parent, ast.Compare | ast.MatchValue):
        return True
    starts = isinstance(parent, ast.Call) and last_name(parent.func) in {"startswith", "endswith"}
    return starts and whole in getattr(parent, "args", ())


def _choice(module: Module, node: ast.AST, whole: ast.AST, parent: ast.AST) -> int | None:
    """Return the certainty that this chooses a device.

    The result is 0, or -1 where a caller may choose another, or None where no choice is visible.
    """
    beside = False
    while isinstance(parent, ast.IfExp | ast.BoolOp | ast.NamedExpr):
        beside = beside or '"cpu"' in module.source_of(parent).replace("'", '"')
        whole, parent = parent, module.parents[parent]
    shift: int | None = -1 if beside else None
    match parent:
        case ast.keyword(arg=str(name)) if _DEVICE_NAME.match(name):
            shift = 0
        case ast.Call():
            shift = 0 if _takes_device(module, parent, whole) else shift
        case ast.arguments():
            names = (name for name, default in parameters(parent) if default is whole)
            shift = -1 if any(map(_DEVICE_NAME.match, names)) else shift
        case ast.Assign(targets=[target, *_]) | ast.AnnAssign(target=target):
            shift = 0 if _DEVICE_NAME.match(last_name(target)) else shift
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            names = (text_of(key) or "" for key, value in pairs if value is whole)
            shift = -1 if any(map(_DEVICE_NAME.match, names)) else shift
        case ast.Return():
            scope = module.scope(node)
            shift = 0 if _DEVICE_NAME.match(getattr(scope, "name", "")) else shift
        case _:
            pass
    return shift


def _takes_device(module: Module, call: ast.Call, argument: ast.AST) -> bool:
    """Return true if the parameter for `argument` is a device."""
    if module.dotted(call.func) == "torch.device" or last_name(call.func) == "to":
        return True
    function = module.functions.get(last_name(call.func))
    if function is None:
        return False
    names = (name for name, _ in parameters(function.args))
    places = zip(names, call.args, strict=False)
    return any(passed is argument and _DEVICE_NAME.match(name) for name, passed in places)


def questions(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `torch.cuda.is_available()` and `.device_count()`: False and 0 on other devices.

    A program that names Gaudi itself is excluded.
    """
    dotted = module.dotted(node.func)
    if dotted not in _QUESTIONS or module.knows_gaudi:
        return
    parent = module.parents[node]
    if (
        isinstance(parent, ast.BinOp)
        and parent.right is node
        and isinstance(parent.op, ast.Mod | ast.FloorDiv | ast.Div)
    ):
        yield Seen(rule="HP610", node=node, what=f"dividing by {dotted}()", shift=1)
    else:
        yield Seen(rule="HP610", node=node, what=f"{dotted}()")


def device_attributes(module: Module, node: ast.Attribute) -> Iterator[Seen]:
    """Yield `tensor.is_cuda`, and functions of torch.cuda that are passed as values."""
    parent = module.parents[node]
    called = isinstance(parent, ast.Call) and parent.func is node
    if node.attr == "is_cuda" and not called and isinstance(node.ctx, ast.Load):
        if not module.knows_gaudi:
            worse = 1 if isinstance(parent, ast.Assert) else 0
            yield Seen(rule="HP610", node=node, what=module.shown(node, 60), shift=worse)
    elif (
        not called and node.attr in _FUNCTIONS and module.dotted(node) == f"torch.cuda.{node.attr}"
    ):
        yield Seen(rule="HP601", node=node, what=f"torch.cuda.{node.attr}")


def _is_mixed_precision(module: Module, argument: ast.keyword) -> bool:
    call = module.parents[argument]
    return isinstance(call, ast.Call) and _is_cuda_autocast(module.dotted(call.func), call)


def hpu_without_bridge(module: Module, node: ast.Constant) -> Iterator[Seen]:
    """Yield `"hpu"` as a device in a module that never loads habana_frameworks: the first one."""
    if node.value != "hpu" or "habana_frameworks" in module.text:
        return
    parent = module.parents[node]
    chosen = isinstance(parent, ast.Call) and node in parent.args
    named = isinstance(parent, ast.keyword) and parent.arg in _DEVICE_ARGUMENTS
    if not (chosen or named):
        return
    first = next(other for other in module.nodes if text_of(other) == "hpu")
    if first is node:
        yield Seen(rule="HP603", node=node, what='"hpu"')
