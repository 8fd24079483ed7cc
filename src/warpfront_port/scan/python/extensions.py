"""Rules about compiler options in a setup.py (or another module that builds extensions). Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice

from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import Text, last_name, text_of
from warpfront_port.scan.words import CUDA_INDEX, GFX, compiler_flag

_NVIDIA_ALONE = re.compile(r"(?i)nvidia|\bcuda\b|nvcc")
_RUN_TIME_FLAG = re.compile(
    r"--gpu-architecture(?:=(?:sm|compute)_\d|\Z)|-arch=(?:sm|compute)_(?:\d|\Z)|--use_fast_math\Z"
    r"|nvrtc(?:CompileProgram|CreateProgram|GetPTX)\w*\Z"
)
_NVCC_COMMAND = re.compile(r"(?:\A|[/\\\s])nvcc(?:\.exe)?[\"']?\s+-")
_COPY = re.compile(r"\b(?:cp|rsync|ln)\s+-\w+\s")
_SEEKING = frozenset(
    {"replace", "remove", "removeprefix", "removesuffix", "index", "count", "find"}
)
_PATTERN = re.compile(r"\*\.(?:c|cc|cpp|cxx|cu)\b")


def strings(module: Module, node: Text) -> Iterator[Seen]:
    """Yield package indexes, commands of nvcc, texts that tell to copy files over those of an
    installed package, and flags for a compiler at run time.
    """
    text, parent = node.value, module.parents[node]
    if "/whl/cu" in text and CUDA_INDEX.search(text) and not module.is_said(node):
        yield Seen("DP314", node, text[:80])
    if _NVCC_COMMAND.search(text) and not module.is_said(node):
        yield Seen("BL214", node, "nvcc")
    if "site-packages" in text and _COPY.search(text):
        yield Seen("PY060", node, "site-packages")
    # Text that is searched for, or removed, is no flag.
    sought = isinstance(parent, ast.Compare) or (
        isinstance(parent, ast.Call) and last_name(parent.func) in _SEEKING
    )
    if not module.builds_extensions and _RUN_TIME_FLAG.match(text) and not sought:
        yield Seen("BL201", node, text[:60])


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
    if GFX.search(text):
        yield Seen("BL203", node, text[:60])


def _is_linked(module: Module, node: ast.AST) -> bool:
    """Return true in `libraries=["cuda"]`, `libraries.append("nccl")`, `ext_libs = ["cublas"]`."""
    for parent, _ in islice(module.ancestors(node), 3):
        named = [*getattr(parent, "targets", ()), getattr(parent, "func", None)]
        names = [module.source_of(target) for target in named if target is not None]
        if getattr(parent, "arg", "") == "libraries" or any("lib" in name for name in names):
            return True
    return False


def cuda_alone(module: Module, node: ast.Raise | ast.Assert) -> Iterator[Seen]:
    """Yield `raise RuntimeError("... an NVIDIA GPU ...")` in a build that never tests for ROCm."""
    message = node.exc if isinstance(node, ast.Raise) else node.msg
    if message is None or not module.builds_extensions or module.knows_hip:
        return
    test = getattr(node if isinstance(node, ast.Assert) else module.parents[node], "test", None)
    truths = module.conditions.truths(test) if test is not None else {}
    is_decided = truths.get("other") is not None
    if is_decided and truths["amd"] is truths["nvidia"]:
        return  # a tensor on AMD's device is on "cuda" too
    if any(_NVIDIA_ALONE.search(text_of(part) or "") for part in ast.walk(message)):
        yield Seen("BL216", node)


def toolkit_imports(module: Module, node: ast.ImportFrom) -> Iterator[Seen]:
    """Yield `from torch.utils.cpp_extension import CUDA_HOME` without an import for ROCm."""
    named = any(alias.name == "CUDA_HOME" for alias in node.names)
    if named and node.module == "torch.utils.cpp_extension" and not module.knows_hip:
        yield Seen("PY047", node, "CUDA_HOME", shift=-1)


def arms(module: Module, node: ast.If | ast.IfExp) -> Iterator[Seen]:
    """Yield conditions that refuse the build for AMD, or leave its GPU extension out there."""
    truths = module.conditions.truths(node.test)
    if not module.builds_extensions or truths["amd"] is None or truths["nvidia"] is truths["amd"]:
        return
    body, other = ([arm] if isinstance(arm, ast.expr) else arm for arm in (node.body, node.orelse))
    if not truths["amd"]:
        left_out = body
    elif isinstance(node, ast.If) and isinstance(body[-1], ast.Raise):
        if module.path.name == "setup.py":
            yield Seen("BL216", node.test, shift=1)
        return
    else:
        left_out = other
        if isinstance(body[-1], ast.Return):
            block = getattr(module.parents[node], "body", [])
            left_out = [*other, *block[block.index(node) + 1 :]] if node in block else other
    inside = {n for start in left_out for n in ast.walk(start) if last_name(n) == "CUDAExtension"}
    mentions = {n for n in module.nodes if last_name(n) == "CUDAExtension"}
    if inside and inside == mentions:
        yield Seen("PY047", node.test, shift=-int(module.knows_hip))


def calls(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `glob.glob("csrc/*.cpp")` where torch's hipify writes its files next to the sources."""
    name = last_name(node.func)
    if name in {"glob", "rglob", "iglob"} and node.args:
        hipified = "CUDAExtension" in module.text and not module.knows_hip
        if hipified and _PATTERN.search(module.source_of(node)):
            yield Seen("BL211", node)
