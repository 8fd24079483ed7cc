"""Rules for Intel Gaudi, and what of them holds on a CPU: `torch.cuda` is not there. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from warpfront.port.scan.python.module import Module, Seen, keyword, text_of

_DEVICE_ARGUMENTS = frozenset({"device", "map_location", "device_type"})
_HARMLESS = frozenset({"is_available", "device_count", "is_initialized", "is_bf16_supported"})


def device_calls(module: Module, node: ast.Call) -> Iterator[Seen]:
    """`.cuda()`, `torch.cuda.*()`, `device="cuda"`, events, AMP and custom extensions."""
    dotted = module.dotted(node.func)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and not node.keywords:
        if dotted not in {"torch.cuda", "numba.cuda"}:
            yield Seen(rule="HP601", node=node, what=".cuda()")
    elif dotted == "torch.cuda.Event":
        yield Seen(rule="HP605", node=node, what=dotted)
    elif dotted.startswith("torch.cuda.amp.") or _is_cuda_autocast(dotted, node):
        yield Seen(rule="HP604", node=node, what=dotted)
    elif dotted.startswith("torch.cuda.") and dotted.split(".")[-1] not in _HARMLESS:
        yield Seen(rule="HP601", node=node, what=dotted)
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
    """`"cuda"`, `"cuda:0"` where a device is chosen."""
    text = node.value
    if not isinstance(text, str) or not (text == "cuda" or text.startswith("cuda:")):
        return
    parent = module.parents[node]
    if isinstance(parent, ast.keyword) and parent.arg in _DEVICE_ARGUMENTS:
        if not _is_mixed_precision(module, parent):
            yield Seen(rule="HP601", node=node, what=f'"{text}"')
    elif isinstance(parent, ast.Call) and node in parent.args:
        name = module.dotted(parent.func)
        method = parent.func.attr if isinstance(parent.func, ast.Attribute) else ""
        if name == "torch.device" or method == "to":
            yield Seen(rule="HP601", node=node, what=f'"{text}"')


def _is_mixed_precision(module: Module, argument: ast.keyword) -> bool:
    call = module.parents[argument]
    return isinstance(call, ast.Call) and _is_cuda_autocast(module.dotted(call.func), call)


def nccl(module: Module, node: ast.Call) -> Iterator[Seen]:
    """`init_process_group("nccl")`: Gaudi's collectives answer to hccl."""
    if module.dotted(node.func).split(".")[-1] != "init_process_group":
        return
    for argument in (*node.args[:1], *(i.value for i in node.keywords if i.arg == "backend")):
        if text_of(argument) == "nccl":
            yield Seen(rule="HP602", node=argument, what='"nccl"')


def hpu_without_bridge(module: Module, node: ast.Constant) -> Iterator[Seen]:
    """`"hpu"` as a device in a module that never loads habana_frameworks: the first one."""
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


def double_precision(module: Module, node: ast.Call) -> Iterator[Seen]:
    """`.double()`, `dtype=torch.float64`, in a module that also names a device."""
    wide = keyword(node, "dtype")
    device = keyword(node, "device")
    if wide is None or device is None or text_of(device) == "cpu":
        return
    if module.dotted(wide) in {"torch.float64", "torch.double"}:
        yield Seen(rule="HP607", node=wide, what=module.dotted(wide))
