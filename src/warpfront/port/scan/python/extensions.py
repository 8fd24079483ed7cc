"""Rules about what a setup.py (or another module that builds extensions) tells compilers. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from warpfront.port.scan.python.module import Module, Seen, text_of
from warpfront.port.scan.words import CUDA_INDEX, GFX, compiler_flags

_LIBRARIES = frozenset(
    {
        "cuda",
        "cudart",
        "cublas",
        "cublasLt",
        "cudnn",
        "nccl",
        "nvToolsExt",
        "nvrtc",
        "cusparse",
        "cusolver",
        "cufft",
        "curand",
        "cupti",
        "nvidia-ml",
    }
)
_ASKING = re.compile(
    r"(?:\S*/)?(rocminfo|rocm_agent_enumerator|amdgpu-arch|rocm-smi|amd-smi)(?:\s|\Z)"
)


def flags(module: Module, node: ast.Constant) -> Iterator[Seen]:
    """Flags and architectures in string constants."""
    text = node.value
    if not isinstance(text, str) or len(text) < 3 or node in module.docstrings:
        return
    if "/whl/cu" in text and CUDA_INDEX.search(text):
        yield Seen(rule="DP314", node=node, what=text[:80])
    if not module.builds_extensions or " is " in text:
        return
    if _is_compared(module, node):
        return
    for rule, _, _, flag in compiler_flags(text):
        yield Seen(rule=rule, node=node, what=flag)
        break
    if GFX.search(text):
        yield Seen(rule="BL203", node=node, what=text[:60])
    asking = _ASKING.match(text)
    if asking is not None and "PYTORCH_ROCM_ARCH" not in module.text:
        yield Seen(rule="BL204", node=node, what=asking[1])


def _is_compared(module: Module, node: ast.AST) -> bool:
    return any(isinstance(parent, ast.Compare) for parent, _ in _first_three(module, node))


def _first_three(module: Module, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    for count, pair in enumerate(module.ancestors(node)):
        if count == 3:
            return
        yield pair


def linked_libraries(module: Module, node: ast.keyword) -> Iterator[Seen]:
    """`libraries=["cuda", "cublas"]`."""
    if node.arg != "libraries" or not isinstance(node.value, ast.List | ast.Tuple):
        return
    if module.builds_extensions:
        for element in node.value.elts:
            if text_of(element) in _LIBRARIES:
                yield Seen(rule="BL207", node=element, what=f"-l{text_of(element)}")
