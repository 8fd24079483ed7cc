"""Rules about the imports and names of a module: packages, attributes, dtypes. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from warpfront_port.scan.python.module import Module, Seen, text_of
from warpfront_port.scan.python.tables import IMPORTS, NAMES, OF_PACKAGES, longest_known

_OCP = frozenset({"torch.float8_e4m3fn", "torch.float8_e5m2"})


def imports(module: Module, node: ast.Import) -> Iterator[Seen]:
    """Yield `import pynvml`, `import numba.cuda`."""
    for alias in node.names:
        yield from _imported(module, node, alias.name)


def imports_from(module: Module, node: ast.ImportFrom) -> Iterator[Seen]:
    """Yield `from flash_attn import x`, `from numba import cuda`."""
    if node.level:
        return
    package = node.module or ""
    if longest_known(package, IMPORTS):
        yield from _imported(module, node, package)
        return
    for alias in node.names:
        dotted = f"{package}.{alias.name}"
        if longest_known(dotted, IMPORTS):
            yield from _imported(module, node, dotted)
        elif entry := longest_known(dotted, NAMES):
            yield Seen(rule=NAMES[entry], node=node, what=dotted)


def imports_by_name(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `importlib.import_module("pynvml")`, `__import__("pynvml")`."""
    name = module.dotted(node.func)
    if node.args and name in {"importlib.import_module", "__import__"}:
        text = text_of(node.args[0])
        yield from _imported(module, node, text) if text is not None else ()


def _imported(module: Module, node: ast.AST, name: str) -> Iterator[Seen]:
    entry = longest_known(name, IMPORTS)
    if entry:
        rule = IMPORTS[entry]
        lazy = -1 if rule in OF_PACKAGES and module.in_function(node) else 0
        # cupy has a build for ROCm
        better = -2 if entry in {"cupy", "cupyx"} else 0
        yield Seen(rule=rule, node=node, what=name, shift=lazy + better)


def attributes(module: Module, node: ast.Attribute) -> Iterator[Seen]:
    """Yield dotted names of the table, and fp8 dtypes; each chain once, at its outermost."""
    if isinstance(module.parents[node], ast.Attribute):
        return
    dotted = module.dotted(node)
    if not dotted or "." not in dotted:
        return
    entry = longest_known(dotted, NAMES)
    if entry and not _is_gcn(module, node, dotted):
        one_of_many = isinstance(module.parents[node], ast.List | ast.Tuple)
        shift = -1 if one_of_many else 0
        yield Seen(rule=NAMES[entry], node=node, what=dotted, shift=shift)
    elif dotted in _OCP and not _is_compared(module, node):
        mixed = f"{dotted.removeprefix('torch.')}uz" in module.text
        yield Seen(rule="PY037", node=node, what=dotted, shift=-1 if mixed else 0)


def _is_gcn(module: Module, node: ast.Attribute, dotted: str) -> bool:
    """Return true if Triton gets assembly of AMD's: `s_getreg_b32`, `v_exp_f32`."""
    call = module.parents[node] if dotted.endswith("inline_asm_elementwise") else None
    return call is not None and _GCN.search(module.source_of(call)) is not None


_GCN = re.compile(
    r"\b(?:s|v|ds|global|buffer|flat)_[a-z]\w*_[biuf]\d+\b|\bs_(?:waitcnt|barrier|nop)"
)


def _is_compared(module: Module, node: ast.AST) -> bool:
    """Return true if a dtype is compared, described (`torch.finfo`) or listed, but not chosen."""
    for parent, _ in module.ancestors(node):
        if isinstance(parent, ast.Compare | ast.Dict | ast.Subscript):
            return True
        if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Subscript):
            return True
        if isinstance(parent, ast.Call) and module.dotted(parent.func).endswith("info"):
            return True
        if not isinstance(parent, ast.Tuple | ast.List | ast.Set):
            return False
        if sum(module.dotted(element).startswith("torch.") for element in parent.elts) > 1:
            return True
    return False


def device_names(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `torch.device("hip")`, `x.to("rocm")`: devices that no PyTorch has."""
    dotted = module.dotted(node.func)
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if dotted != "torch.device" and method != "to":
        return
    for argument in (*node.args, *(item.value for item in node.keywords if item.arg == "device")):
        text = text_of(argument)
        if text is not None and text.split(":")[0] in {"hip", "rocm", "amd"}:
            yield Seen(rule="PY023", node=argument, what=f'"{text}"')


def rocm_version(module: Module, node: ast.Attribute) -> Iterator[Seen]:
    """Yield `torch.version.rocm` without a test of its existence."""
    if module.dotted(node) != "torch.version.rocm":
        return
    if 'hasattr(torch.version, "rocm")' not in module.text.replace("'", '"'):
        yield Seen(rule="PY023", node=node, what="torch.version.rocm")
