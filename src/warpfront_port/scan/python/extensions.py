"""Rules about builds of extensions, and about what Python installs or starts. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice

from warpfront_port.scan.package_rules import read_requirement
from warpfront_port.scan.python.conditions import Conditions
from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import Text, keyword, last_name, text_of
from warpfront_port.scan.python.scopes import HOLE
from warpfront_port.scan.words import CUDA_INDEX, GFX, compiler_flag

_STARTED = re.compile(rf"\s*(?:\w+=\S*\s+)*(?:\S*/)?(nvidia-smi|nsys|ncu|nvprof)(?:[\s{HOLE}]|\Z)")
_NVCC = re.compile(r"(?:\A|/|\W)nvcc(?:\s|\Z)")
_AMDS_PROGRAMS = re.compile(r"\b(?:rocm[-_]?smi|amd[-_]?smi|rocminfo|rocprof)")
_NVCC_COMMAND = re.compile(r"(?:\A|[/\\\s])nvcc(?:\.exe)?[\"']?\s+-")


def strings(module: Module, node: Text) -> Iterator[Seen]:
    """Yield package indexes, and commands of nvcc."""
    text = node.value
    if "/whl/cu" in text and CUDA_INDEX.search(text) and not module.is_said(node):
        yield Seen("DP314", node, text[:80])
    if _NVCC_COMMAND.search(text) and not module.is_said(node):
        yield Seen("BL214", node, "nvcc")


def build_strings(module: Module, node: Text) -> Iterator[Seen]:
    """Yield flags, architectures and libraries of a build."""
    text = node.value
    if len(text) < 3 or not module.builds_extensions:
        return
    library = f"-l{text}"
    if ("BL207", library) in compiler_flag(library) and _is_linked(module, node):
        yield Seen("BL207", node, library)
    around = [ancestor for ancestor, _ in islice(module.ancestors(node), 3)]
    if " is " in text or any(isinstance(ancestor, ast.Compare) for ancestor in around):
        return
    for rule, flag in compiler_flag(text):
        yield Seen(rule, node, flag)
    if GFX.search(text) and all("gfx" in word or word[0] == "-" for word in text.split()):
        yield Seen("BL203", node, text[:60])


def _is_linked(module: Module, node: ast.AST) -> bool:
    """Return true in `libraries=["cuda"]`, `libraries.append("nccl")`, `ext_libs = ["cublas"]`."""
    for parent, _ in islice(module.ancestors(node), 3):
        named = [*getattr(parent, "targets", ()), getattr(parent, "func", None)]
        names = [module.source_of(target) for target in named if target is not None]
        if getattr(parent, "arg", "") == "libraries" or any("lib" in name for name in names):
            return True
    return False


def switches(module: Module, node: ast.BoolOp | ast.Compare) -> Iterator[Seen]:
    """Yield `WITH_CUDA = CUDA_HOME is not None`; the arms of a statement tell themselves."""
    parent = module.parents[node]
    named = any(last_name(part) == "CUDA_HOME" for part in ast.walk(node))
    if named and not (module.knows_hip or isinstance(parent, ast.BoolOp | ast.If | ast.IfExp)):
        yield Seen("PY047", node)


def arms(module: Module, node: ast.If | ast.IfExp) -> Iterator[Seen]:
    """Yield conditions that refuse the build for AMD, or leave its GPU extension out there."""
    if not module.builds_extensions:
        return
    truths = Conditions(module, asks=True, unset=True).truths(node.test)
    on_amd = truths["amd"]
    if on_amd is None or truths["nvidia"] is on_amd:
        return
    body, other = ([arm] if isinstance(arm, ast.expr) else arm for arm in (node.body, node.orelse))
    left_out = other if on_amd else body
    if on_amd and isinstance(node, ast.If) and isinstance(body[-1], ast.Raise):
        if module.path.name == "setup.py" or "CUDA_HOME" in module.source_of(node.test):
            yield Seen("BL216", node.test, shift=-int(module.knows_hip))
        return
    if on_amd and isinstance(body[-1], ast.Return):
        block = getattr(module.parents[node], "body", [])
        left_out = [*other, *block[block.index(node) + 1 :]] if node in block else other
    inside = {n for start in left_out for n in ast.walk(start) if last_name(n) == "CUDAExtension"}
    mentions = {n for n in module.nodes if last_name(n) == "CUDAExtension"}
    if inside and inside == mentions:
        yield Seen("PY047", node.test, shift=-int(module.knows_hip))


def started_commands(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `subprocess.run(["nvidia-smi", "-L"])`, `os.popen("nvcc -V")`."""
    for head in module.scopes.heads(node):
        if started := _STARTED.match(head.text):
            shift = -2 if _AMDS_PROGRAMS.search(module.text) else 0
            yield Seen("PY016", head.node, started[1], shift=shift, via=node)
        elif _NVCC.search(head.text):
            yield Seen("BL214", node, "nvcc")


def setup_requirements(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `setup(install_requires=[...], extras_require={...})`."""
    if last_name(node.func) == "setup":
        for group in ("install_requires", "setup_requires", "tests_require"):
            yield from _required(module, keyword(node, group), "", node)
        for value in module.scopes.values(keyword(node, "extras_require")):
            groups = value if isinstance(value, ast.Dict) else ast.Dict(keys=[], values=[])
            for key, listed in zip(groups.keys, groups.values, strict=True):
                yield from _required(module, listed, text_of(key) or "?", node)


def _required(module: Module, node: ast.expr | None, extra: str, via: ast.AST) -> Iterator[Seen]:
    """Yield the requirements of a list."""
    for value in module.scopes.values(node):
        for word in {word for words in module.scopes.words(value) for word in words} or {value}:
            for text in module.scopes.texts(word):
                for rule, shift in read_requirement(text.text, extra=extra):
                    yield Seen(rule, text.node, text.text, shift, via)
