"""Rules about compiler options in a setup.py (or another module that builds extensions). Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from warpfront_port.scan.python.module import (
    Module,
    Seen,
    is_true,
    last_name,
    text_of,
)
from warpfront_port.scan.python.settings import STARTERS
from warpfront_port.scan.words import CUDA_INDEX, GFX, compiler_flag

_HIP = re.compile(r"version\.hip|IS_HIP|ROCM|rocm|HIP_HOME|is_hip|hipcc")
_WINDOWS_LIBRARY = re.compile(r"(?:cublas|cudart|cuda|cudnn|cusparse|cusolver|nvrtc)\.lib")
_NVIDIA_ALONE = re.compile(r"(?i)nvidia|\bcuda\b|nvcc")
_NVCC = re.compile(r"(?:\A|/|\W)nvcc(?:\s|\Z)")
_ASKING = re.compile(
    r"(?:\S*/)?(rocminfo|rocm_agent_enumerator|amdgpu-arch|rocm-smi|amd-smi)(?:\s|\Z)"
)


def flags(module: Module, node: ast.Constant) -> Iterator[Seen]:
    """Yield flags and architectures in string constants."""
    text = node.value
    if not isinstance(text, str) or len(text) < 3 or node in module.docstrings:
        return
    if "/whl/cu" in text and CUDA_INDEX.search(text) and not is_said(module, node):
        yield Seen(rule="DP314", node=node, what=text[:80])
    if not module.builds_extensions or " is " in text:
        return
    if any(isinstance(parent, ast.Compare) for parent, _ in islice(module.ancestors(node), 3)):
        return
    for rule, flag in compiler_flag(text):
        yield Seen(rule=rule, node=node, what=flag)
    if GFX.search(text):
        yield Seen(rule="BL203", node=node, what=text[:60])
    asking = _ASKING.match(text)
    around = (module.source_of(ancestor) for ancestor, _ in islice(module.ancestors(node), 3))
    of_program = any("--version" in ancestor or "which(" in ancestor for ancestor in around)
    if asking is not None and "PYTORCH_ROCM_ARCH" not in module.text and not of_program:
        yield Seen(rule="BL204", node=node, what=asking[1])


def is_said(module: Module, node: ast.AST) -> bool:
    """Return true if a text is only printed, logged or raised."""
    calls = (
        last_name(ancestor.func)
        for ancestor, _ in module.ancestors(node)
        if isinstance(ancestor, ast.Call)
    )
    return _SAYING.search(next(calls, "")) is not None


_SAYING = re.compile(r"(?i)print|echo|warn|info|error|debug|log|exit")


def library_places(module: Module, node: ast.Constant) -> Iterator[Seen]:
    """Yield `"cublas.lib"`."""
    text = node.value
    if not isinstance(text, str) or not module.builds_extensions:
        return
    if _WINDOWS_LIBRARY.fullmatch(text):
        yield Seen(rule="BL207", node=node, what=text)


def knows_hip(module: Module) -> bool:
    """Return true if a build tests for ROCm anywhere."""
    return _HIP.search(module.text) is not None


def cuda_alone(module: Module, node: ast.Raise | ast.Assert) -> Iterator[Seen]:
    """Yield `raise RuntimeError("... an NVIDIA GPU ...")` in a build that never tests for ROCm."""
    message = node.exc if isinstance(node, ast.Raise) else node.msg
    if message is None or not module.builds_extensions or knows_hip(module):
        return
    texts = (text_of(part) or "" for part in ast.walk(message))
    if any(_NVIDIA_ALONE.search(text) for text in texts):
        yield Seen(rule="BL216", node=node, what=module.shown(node, 60))


def toolkit_imports(module: Module, node: ast.ImportFrom) -> Iterator[Seen]:
    """Yield `from torch.utils.cpp_extension import CUDA_HOME` without an import for ROCm."""
    named = any(alias.name == "CUDA_HOME" for alias in node.names)
    if named and node.module == "torch.utils.cpp_extension" and not knows_hip(module):
        yield Seen(rule="PY047", node=node, what="CUDA_HOME", shift=-1)


def libraries_added(module: Module, node: ast.Constant) -> Iterator[Seen]:
    """Yield `libraries=["cuda", "cublas"]`, `libraries.append("nccl")`, `ext_libs = ["cublas"]`."""
    if not module.builds_extensions or not _is_library(node.value):
        return
    for parent, _ in islice(module.ancestors(node), 3):
        to = parent.func if isinstance(parent, ast.Call) else None
        targets = parent.targets if isinstance(parent, ast.Assign) else [to] if to else []
        names = [module.source_of(name) for name in targets]
        if isinstance(parent, ast.keyword):
            names = [parent.arg] if parent.arg == "libraries" else []
        if any("lib" in name for name in names):
            yield Seen(rule="BL207", node=node, what=f"-l{node.value!s}")
            return


def source_globs(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `glob.glob("csrc/*.cpp")` where torch's hipify writes its files next to the sources."""
    if last_name(node.func) not in {"glob", "rglob", "iglob"} or not node.args:
        return
    if "CUDAExtension" not in module.text or knows_hip(module):
        return
    if re.search(r"\*\.(?:c|cc|cpp|cxx|cu)\b", module.source_of(node)):
        yield Seen(rule="BL211", node=node, what=module.shown(node, 60))


def packaged_data(module: Module, node: ast.keyword) -> Iterator[Seen]:
    """Yield `include_package_data=True` of a package whose extension is hipified."""
    if node.arg != "include_package_data" or not is_true(node.value):
        return
    if "CUDAExtension" in module.text and not knows_hip(module):
        yield Seen(rule="BL212", node=node, what="include_package_data=True")


def gencode_lists(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `torch.cuda.get_gencode_flags()` of a build: nvcc's options, which hipcc refuses."""
    if module.builds_extensions and module.dotted(node.func) == "torch.cuda.get_gencode_flags":
        yield Seen(rule="BL202", node=node, what="-gencode by get_gencode_flags()")


def compiler_versions(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `subprocess.check_output([CUDA_HOME + "/bin/nvcc", "-V"])`."""
    if last_name(node.func) not in STARTERS or not node.args:
        return
    for value in module.scopes.values(node.args[0]):
        head = value.elts[0] if isinstance(value, ast.List | ast.Tuple) and value.elts else value
        if any(_NVCC.search(text.text) for text in module.scopes.texts(head)):
            yield Seen(rule="BL214", node=node, what="nvcc")
            return


def _is_library(name: Any) -> bool:
    return isinstance(name, str) and ("BL207", f"-l{name}") in compiler_flag(f"-l{name}")
