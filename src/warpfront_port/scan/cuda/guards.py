"""Rules about conditions that leave AMD without code (CU123, CU124, CU153, CU155, CU156), and about
the names of a project's own part for CUDA where there is none for AMD (CU154). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from warpfront_port.scan.cuda.conditions import Macros, macro_table, truth
from warpfront_port.scan.cuda.lexer import Span
from warpfront_port.scan.cuda.name_rows import rows_including, rows_naming
from warpfront_port.scan.cuda.preprocessor import Arm, ConditionChain, condition_of
from warpfront_port.scan.cuda.view import NAME, View, path_of, rule_match
from warpfront_port.scan.findings import Match

_VERSIONS = {
    *("CUDA_VERSION", "CUDART_VERSION", "__NVCC__", "__CUDACC__"),
    *("__CUDACC_VER_MAJOR__", "__CUDACC_VER_MINOR__"),
}

_COMPILERS = {"__GNUC__", "__clang__", "_MSC_VER", "__OPTIMIZE__"}
"""Beside one of these it is about a fault of nvcc's."""


def guard_rule_matches(view: View) -> Iterator[Match]:
    """Arms that hang on a macro of NVIDIA's compiler, in chains that AMD comes to and that have
    no arm for it, or none that was written.
    """
    for chain, arm, span in unwritten_arms(view):
        if "amd" in chain.reach:
            what = f"#{arm.directive.name} {arm.directive.body}"
            yield rule_match(view, "CU156", span, what=what)
    for chain in view.reaches.chains:
        yield from (_at(view, "CU155", arm, chain) for arm in chain.arms if _of_old_hip(view, arm))
        if "amd" not in chain.reach or _has_arm_for_amd(chain):
            continue
        for arm in chain.arms:
            rule = _rule_of(view, arm)
            if rule:
                yield _at(view, rule, arm, chain)
            if rule == "CU153":
                yield from _end_of(view, arm, chain)


def unwritten_arms(view: View) -> Iterator[tuple[ConditionChain, Arm, Span]]:
    """Arms that ask for AMD behind one for CUDA and hold nothing but a remark that they are still
    to be written, with where that stands.
    """
    for chain in view.reaches.chains if _TO_DO.search(view.source.text) else ():
        ends = [*(arm.directive.start for arm in chain.arms[2:]), chain.end]
        for before, arm, end in zip(chain.arms, chain.arms[1:], ends, strict=False):
            said = _TO_DO.search(view.source.text, arm.directive.end, end)
            code = view.code[arm.directive.end : end].strip()
            asks = any(map(_OF_AMD.search, arm.macros)) and any(map(_NVIDIAS.search, before.macros))
            if said and asks and (not code or code.startswith("#endif")):
                yield chain, arm, said.span()


_OF_AMD = re.compile(r"(?<![A-Z])(?:HIP|ROC|AMD)")
_NVIDIAS = re.compile(r"CUDA|CUBLAS|CUFFT|CUSOLVER|NVIDIA|NVCC")
_TO_DO = re.compile(r"(?i)\btodo\b|fixme|not (?:yet )?(?:implemented|supported)")


def _end_of(view: View, arm: Arm, chain: ConditionChain) -> Iterator[Match]:
    """The `#else` or `#endif` after an arm too long to see both: there AMD's arm would begin."""
    opened = arm.directive
    later = [one.directive for one in chain.arms if one.directive.start > opened.start]
    after = later[0] if later else next(d for d in view.directives if d.end == chain.end)
    if view.line(after.start) - view.line(opened.start) > _FAR:
        what = f"#{after.name} of #{opened.name} {opened.body}"
        span = (after.start, after.end)
        yield rule_match(view, "CU153", span, what=what, sides=chain.reach)


_FAR = 6


def _of_old_hip(view: View, arm: Arm) -> bool:
    """Whether an arm asks for AMD by the name that ROCm 6 took away, and by no other, in a file
    that does not define it, nor names the flag that does.
    """
    if "__HIP_PLATFORM_HCC__" in view.macros or "-D__HIP_PLATFORM_HCC__" in view.source.text:
        return False
    return "__HIP_PLATFORM_HCC__" in arm.macros and not arm.macros & _OF_HIP


_OF_HIP = {"__HIP_PLATFORM_AMD__", "__HIPCC__", "__HIP__", "USE_ROCM", "__HIP_DEVICE_COMPILE__"}


def _rule_of(view: View, arm: Arm) -> str:
    """The rule that an arm breaks: it keeps AMD out, or lets AMD in for a wrong reason."""
    reached = "amd" in arm.reach
    if "__CUDA_ARCH__" in arm.macros and (not reached or _is_for_hosts(arm)):
        return "CU123"
    versions = arm.macros & _VERSIONS and arm.macros.isdisjoint(_COMPILERS)
    # only hipify makes something of __CUDACC__ that hipcc defines
    of_nvcc = view.context.untranslated and "__CUDACC__" in arm.macros
    # where nothing, or HIP's own number, stands, a bound sends AMD to the arm of old releases
    old = "<" in condition_of(arm.directive) and _certain_on_amd(arm)
    if versions and (not reached or old or of_nvcc):
        return "CU124"
    alone = view.context.hipless if reached else _left_behind(view)
    return "CU153" if alone and _of_cuda_alone(view, arm) else ""


def _is_for_hosts(arm: Arm) -> bool:
    """Whether an arm is there because no device is compiled for; with a number beside it, it is for
    everything but old devices.
    """
    condition = condition_of(arm.directive)
    if "||" not in condition and _NOT_ON_DEVICES.search(condition):
        return True
    return ">" not in condition and _certain_on_amd(arm)


_NOT_ON_DEVICES = re.compile(
    r"&&\s*!\s*defined\s*\(?\s*__CUDA_ARCH__|\A\s*!\s*defined\s*\(?\s*__CUDA_ARCH__\W+&&"
)


def _certain_on_amd(arm: Arm) -> bool:
    """Whether a condition holds on AMD, host and device, and may not hold on NVIDIA."""
    condition = condition_of(arm.directive)
    macros = Macros(table=macro_table())
    return truth(condition, "amd", macros) is True and truth(condition, "nvidia", macros) is None


def _of_cuda_alone(view: View, arm: Arm) -> bool:
    """Whether an arm names a macro that the project's own build sets for CUDA alone."""
    if "||" in arm.directive.body and any(map(_OTHER_WAY.search, arm.macros)):
        return False
    guards = view.macros.keys() if arm.directive.name == "ifndef" else ()
    return any(
        _SWITCH.search(macro) and not _NO_SWITCH.search(macro)
        for macro in arm.macros - view.context.portable_names
        if macro not in guards
    )


_OTHER_WAY = re.compile(r"_(?:OPENCL|SYCL|KOKKOS)(?![A-Z])")
_SWITCH = re.compile(r"(?:^|_)CU(?:DA|BLAS|FFT|SOLVER)(?:_|$)")
_NO_SWITCH = re.compile(
    r"^_(?!_?[A-Z]\w*?_CU(?:DA|BLAS|FFT|SOLVER)(?:_|$))|^_+(?:CU|LIB|NV)|^CUDA_(?!ENABLED$|BUILD$|SUPPORT|AVAILABLE$|FOUND$|BACKEND$)|VERSION|ARCH"
    r"|_(?:H|HPP|HH|CUH|INCLUDED|GUARD)_*$|(?:^|_)(?:NO|NOT|WITHOUT|SKIP|NON)_"
)


def _left_behind(view: View) -> bool:
    """Whether the rest of the tree asks for HIP beside CUDA, and this file, which is not CUDA's by
    its name, never does.
    """
    cudas = view.source.path.suffix in (".cu", ".cuh") or _is_cudas(view)
    return _AMDS.search(view.source.text) is None and not cudas


_AMDS = re.compile(r"HIP|ROCM|ROCm|AMD|[^c]hip(?:[A-Z_/]|\b)")


def _is_cudas(view: View) -> bool:
    """Whether the name of a file (suffix apart) or of a folder above it says that it is CUDA's."""
    return _CUDAS.search(str(view.source.path)) is not None


_CUDAS = re.compile(r"(?i)(?:[/._-]|\A)(?:cuda|nvidia)[\d.]*(?:[._/-]|\Z)|Cuda[^/]*\Z|CUDA[^/]*\Z")


def own_names(view: View) -> Iterator[Match]:
    """Where code that is not CUDA's alone names the project's own part for CUDA, in words of the
    code or as a string: one a line.
    """
    if not view.context.untranslated or _is_cudas(view) or _is_for_torch(view):
        return
    lines: set[int] = set()
    for start, end in sorted((*_own_headers(view), *_own_identifiers(view), *_own_words(view))):
        line = view.line(start)
        if line not in lines:
            lines.add(line)
            yield rule_match(view, "CU154", (start, end))


def _is_for_torch(view: View) -> bool:
    """Whether a file is about torch's devices: ROCm's are called CUDA's there."""
    return any(_TORCHS.match(one.body) for one in view.included)


_TORCHS = re.compile(r"[<\"](?:torch|ATen|c10)/")


def _own_words(view: View) -> Iterator[tuple[int, int]]:
    for found in _WORD_FOR_CUDA.finditer(view.source.text):
        if view.code[found.start()] == '"':
            yield found.span()


_WORD_FOR_CUDA = re.compile(r'"(?:cuda|CUDA|Cuda|nvidia|NVIDIA)"')


def _own_headers(view: View) -> Iterator[tuple[int, int]]:
    for directive in view.included:
        path = path_of(directive.body)
        if path is None or rows_including(str(path)):
            continue
        own = directive.body.startswith('"') or path.name in view.context.cuda_headers
        if own and (_OWN.search(str(path)) or _OF_LIBRARIES.search(path.name)):
            yield directive.start, directive.end


_OF_LIBRARIES = re.compile(r"cu(?:dnn|blas|fft|sparse|solver|rand)")


def _own_identifiers(view: View) -> Iterator[tuple[int, int]]:
    known = view.context.identifiers
    guards = {directive.body for directive in view.directives if directive.name == "ifndef"}
    for name, defined in view.macros.items():
        if _OWN.search(name) and name not in known and name not in guards:
            yield from ((one.start, one.end) for one in defined)
    own = {n for n in view.names if _OWN.search(n) and n not in known and _is_own(view, n)}
    for found in NAME.finditer(view.code) if own else ():
        if found[0] in own and not _OF_TORCH.search(
            view.code, max(0, found.start() - 9), found.start()
        ):
            yield found.span()


def _is_own(view: View, name: str) -> bool:
    """`is_cuda` is a tensor's, and true on ROCm."""
    return name != "is_cuda" and (not rows_naming(name) or name in view.context.own_macros)


_OF_TORCH = re.compile(r"\b(?:torch|at|c10|Kokkos)\s*::\s*\Z")
_OWN = re.compile(r"(?:^|[^A-Za-z]|[a-z](?=C))(?:cuda|Cuda|CUDA)(?:[^a-zA-Z]|(?<=[a-z])[A-Z]|$)")


def _has_arm_for_amd(chain: ConditionChain) -> bool:
    """Whether somebody thought of AMD: an arm that it alone gets, or a macro of HIP's."""
    return any(arm.reach == {"amd"} for arm in chain.arms) or any(
        "HIP" in name or "ROCM" in name or "AMD" in name for name in chain.macros
    )


def _at(view: View, rule: str, arm: Arm, chain: ConditionChain) -> Match:
    directive = arm.directive
    what = f"#{directive.name} {directive.body}"
    span = (directive.start, directive.end)
    return rule_match(view, rule, span, what=what, sides=chain.reach)
