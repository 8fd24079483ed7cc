"""Names and texts that mean NVIDIA's devices alone, where a module has no twin for AMD. Pure.

ROCm's torch keeps the word `cuda` for its devices: what is torch's, and that word in a module that
imports torch, means AMD's devices too. Other words for NVIDIA do not, in any spelling.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from warpfront_port.scan.python.mentions import NVIDIA_PACKAGES
from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import Text


def own_names(
    module: Module, node: ast.Name | ast.Attribute | ast.FunctionDef | ast.ClassDef
) -> Iterator[Seen]:
    """Yield `ExecutionSpace.Cuda`, `is_nvidia_system()`, and uses of NVIDIA's packages."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            is_nvidias = module.imported.get(name, "").partition(".")[0] in NVIDIA_PACKAGES
        case ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            is_nvidias = False
        case _:
            return
    if is_nvidias or (
        name in module.nvidia_names and module.dotted(node).partition(".")[0] != "torch"
    ):
        yield Seen("PY064", node, name)


def own_texts(module: Module, node: Text) -> Iterator[Seen]:
    """Yield `"Cuda"`, `r"cu\\d+"`, `"nvidia"` and the like, but for sentences and messages."""
    is_name = module.names_nvidia and len(node.value.split()) == 1
    if is_name and module.means_nvidia(node.value) and not module.is_said(node):
        yield Seen("PY064", node, node.value)
