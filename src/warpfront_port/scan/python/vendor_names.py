"""Names and texts that mean NVIDIA's devices alone, in a module that names none of AMD's. Pure.

ROCm's torch keeps the word `cuda` for its devices: what is torch's, and that word in a module that
imports torch, means AMD's devices too. Other words for NVIDIA do not, in any spelling.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from warpfront_port.scan.package_rules import longest_known
from warpfront_port.scan.python.mentions import IMPORTS
from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import Text, last_name, names_of

_Named = (
    ast.Name | ast.Attribute | ast.FunctionDef | ast.ClassDef | ast.alias | ast.arg | ast.keyword
)
_CHOICES = (ast.Compare, ast.List, ast.Tuple, ast.Set, ast.MatchValue, ast.Dict)


def own_names(module: Module, node: _Named) -> Iterator[Seen]:
    """Yield `ExecutionSpace.Cuda`, `cuda_version=None`, and uses of NVIDIA's packages."""
    name, dotted = next(names_of(node), ""), module.dotted(node)
    if isinstance(node, ast.alias):
        dotted, name = module.imported.get(node.asname or name, name), name.rpartition(".")[2]
    is_read = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    of_package = is_read and longest_known(dotted, IMPORTS)
    differs = dotted == "torch.version.cuda" and not module.knows_hip
    of_torch = dotted.partition(".")[0] == "torch"
    if of_package or differs or (name in module.nvidia_names and not of_torch):
        yield Seen("PY064", node, name)


def own_texts(module: Module, node: Text) -> Iterator[Seen]:
    """Yield `"Cuda"`, `r"cu\\d+"`, in tests and lists, but no messages."""
    if module.knows_hip:
        return
    parent = module.parents[node]
    starts = isinstance(parent, ast.Call) and last_name(parent.func) == "startswith"
    chooses = starts or (isinstance(parent, _CHOICES) and node not in getattr(parent, "values", ()))
    whole = chooses or len(node.value.split()) == 1
    if whole and module.means_nvidia(node.value) and not module.is_said(node):
        yield Seen("PY064", node, node.value)
