"""Names and texts that mean NVIDIA's devices alone, where a module has no twin for AMD. Pure.

ROCm's torch keeps the word `cuda` for its devices: what is torch's, and that word in a module that
imports torch, means AMD's devices too. Other words for NVIDIA do not, in any spelling.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from warpfront.matrix.products import target_of_product
from warpfront_port.scan.package_rules import longest_known
from warpfront_port.scan.python.conditions import UNKNOWN
from warpfront_port.scan.python.mentions import IMPORTS
from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import Text, elements, last_name, names_of, text_of
from warpfront_port.scan.words import NAMES_AMD

_WORD = re.compile(r"[^\W_]+")
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
    """Yield `"Cuda"`, `r"cu\\d+"`, and `"H100"` in tests and lists, but no messages."""
    parent = module.parents[node]
    starts = isinstance(parent, ast.Call) and last_name(parent.func) == "startswith"
    chooses = starts or (isinstance(parent, _CHOICES) and node not in getattr(parent, "values", ()))
    arm = _arm(module, node) if chooses else ""
    products = map(target_of_product, _WORD.findall(node.value) if chooses else ())
    of_model = not module.knows_hip and any(target.startswith("sm") for target in products)
    of_vendor = chooses or len(node.value.split()) == 1
    means = module.means_nvidia(node.value, arm) or _is_back_end(module, node, arm)
    if of_model or (of_vendor and means and not module.is_said(node)):
        yield Seen("PY064", node, node.value)


def _is_back_end(module: Module, node: Text, arm: str) -> bool:
    """Return true for `"cuda"` next to what is no device of torch's, or compared as a vendor."""
    if node.value != "cuda" or not arm or NAMES_AMD.search(arm):
        return False
    parent = module.parents[node]
    if not elements(parent):
        truths = module.conditions.truths(parent) if isinstance(parent, ast.Compare) else UNKNOWN
        # Where the program has a name of its own for AMD's devices, the word is not torch's.
        return truths["amd"] is not truths["nvidia"] or module.names_amd
    others = [text_of(element) for element in elements(parent)]
    return len(others) > 1 and not all(text and _DEVICE.match(text) for text in others)


_DEVICE = re.compile(
    r"(?:cpu|cuda|gpu|auto|meta|xla|tpu|mps|metal|mlx|musa|mtia|[xhnm][pl]u)(?::.*)?\Z"
)


def _arm(module: Module, node: ast.AST) -> str:
    """Return the source of the list, or of all arms of the test, that a twin would be in."""
    for parent, child in module.ancestors(node):
        is_arm = isinstance(parent, ast.If) and child in parent.body
        if is_arm or not isinstance(parent, ast.expr | ast.If):
            return module.source_of(child)
    return ""
