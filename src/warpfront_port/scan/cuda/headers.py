"""Facts of a tree's headers that apply to its other files. Pure.

They are names with a meaning on AMD, and macros that one side alone gets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from warpfront_port.scan.cuda.conditions import MacroRow, is_named, table_row
from warpfront_port.scan.cuda.preprocessor import EVERYWHERE, Reach, is_guard
from warpfront_port.scan.cuda.view import AMD_NAME, HEADERS, View, portable_names
from warpfront_port.scan.findings import SIDES
from warpfront_port.scan.words import line_of

_VENDOR = re.compile(r"CUDA|HIP|ROCM|AMD|NVCC|NVIDIA|hip[A-Z/]")
_CUDA_NAME = re.compile(
    r"[A-Z0-9]_(?:\w+_)?CU(?:DA|BLAS|FFT|SOLVER)$|^CUDA_ENABLED$|[A-Z0-9]_CUDA_\w*$"
)
_TESTS = re.compile(r"(?m)^[ \t]*#[ \t]*(?:el)?if(.*)")
_NAME = re.compile(r"\b[A-Za-z_]\w*(?:CUDA|HIP|ROCM)\w*|\b(?:CUDA|HIP|ROCM)_\w+")
_MASK = re.compile(
    r"(?m)^[ \t]*#[ \t]*define[ \t]+(\w*MASK\w*)[ \t]+\(?0[xX][fF]{8}[uU]?\)?[ \t]*(?://.*)?$"
)
_CHOICE_OF_WIDTH = re.compile(
    r"(?m)^[ \t]*#[ \t]*if(?:def\b)?(?:[ \t()&|]|defined|USE_ROCM|__HIP_PLATFORM_AMD__)*"
    r"__(?:GFX\d+|gfx\w+)__(?:[ \t()|]|defined|__(?:GFX\d+|gfx\w+)__)*\n"
    r"[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+64\s*\n"
    r"[ \t]*#[ \t]*el(?:se|if)\b[^\n]*\n[ \t]*#[ \t]*define[ \t]+\1[ \t]+32\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFacts:
    """The facts of a file that apply to other files.

    `reaches` maps each macro that a header defines to the sides that get a definition. `nvidias`
    are macros with CUDA in their name that are tested together with one of AMD's.
    """

    portable: frozenset[str] = frozenset()
    reaches: Mapping[str, Reach] = field(default_factory=dict)
    nvidias: frozenset[str] = frozenset()


def facts_of(view: View) -> HeaderFacts:
    """Return the facts of a file that apply to other files. Macros of a `.cu` are private to it."""
    header = view.source.path.suffix.lower() in HEADERS
    if not _VENDOR.search(view.source.text) and "typedef" not in view.source.text:
        return HeaderFacts()
    directives = view.directives
    guards = {d.body for index, d in enumerate(directives) if is_guard(directives, index)}
    reaches: dict[str, Reach] = {
        name: frozenset().union(*(view.region(define.start).reach for define in defined))
        for name, defined in (view.macros.items() if header else ())
        if name not in guards
    }
    portable = portable_names(view)
    if header and view.is_hip:
        portable |= reaches.keys()
        reaches = dict.fromkeys(reaches, frozenset({"amd"}))
    return HeaderFacts(portable=portable, reaches=reaches, nvidias=_nvidias(view))


def _nvidias(view: View) -> frozenset[str]:
    """Return macros that are unset on AMD because AMD has its own.

    In `#if X_CUDA ... #elif X_HIP` and in `X_CUDA || X_HIP`, AMD has no X_CUDA: the second would
    never be tested.
    """
    cuda_macros: set[str] = set()
    for chain in view.reaches.chains:
        before: set[str] = set()
        for arm in chain.arms:
            macros = {name for name in arm.macros if _CUDA_NAME.search(name)}
            amd = any(AMD_NAME.search(name) for name in arm.macros)
            if amd and "&&" not in arm.directive.body and "!" not in arm.directive.body:
                cuda_macros |= before | macros
            elif len(arm.macros) == 1 and "!" not in arm.directive.body:
                before |= macros
    return frozenset(cuda_macros)


def vendor_macros(facts: Iterable[HeaderFacts]) -> dict[str, MacroRow]:
    """Return the macros that are unset on some side, by name.

    These are macros that no header defines for that side, and those that are tested together with
    AMD's. Macros that the table knows keep their value there.
    """
    reaches: dict[str, Reach] = {}
    for fact in facts:
        reaches.update(dict.fromkeys(fact.nvidias - reaches.keys(), frozenset({"nvidia"})))
        for name, reach in fact.reaches.items():
            reaches[name] = reaches.get(name, frozenset()) | reach
    rows: dict[str, MacroRow] = {}
    for name, reach in reaches.items():
        values = {side: table_row(name).get(side) for side in SIDES}
        missing = EVERYWHERE - reach
        is_known = is_named(name) or all(values[side] is not None for side in missing)
        if reach and not is_known:
            rows[name] = {
                side: "unset" if value is None else value
                for side, value in values.items()
                if side in missing or value is not None
            }
    return rows


def twin_macros(texts: Iterable[str]) -> Mapping[str, str]:
    """Return the macros of CUDA's that conditions test, with their twins of HIP's, tested too. A
    project that tests none for HIP lacks the twin of each macro of its own.
    """
    tested = {
        name for text in texts for line in _TESTS.finditer(text) for name in _NAME.findall(line[1])
    }
    if not any(map(AMD_NAME.search, tested)):
        own = (name for name in tested if _CUDA_NAME.search(name) and not is_named(name))
        return {name: name.replace("CUDA", "HIP") for name in own}
    twins = ((name, name.replace("CUDA", other)) for name in tested for other in ("HIP", "ROCM"))
    return {name: twin for name, twin in twins if twin != name and twin in tested}


def narrow_masks(texts: Mapping[str, str]) -> Mapping[str, tuple[str, int]]:
    """Return the macros of headers with 32 bits set, with path and 1-based line."""
    masks: dict[str, tuple[str, int]] = {}
    for path, text in texts.items():
        for define in _MASK.finditer(text) if path.endswith(tuple(HEADERS)) else ():
            masks.setdefault(define[1], (path, text.count("\n", 0, define.end()) + 1))
    return masks


def device_widths(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Return the macros that are 64 where `__GFX9__` is set and 32 else, with `path:line`.

    No such macro is set while the host's code is compiled.
    """
    return {
        choice[1]: f"{path}:{line_of(text, choice.start(1))}"
        for path, text in texts.items()
        for choice in _CHOICE_OF_WIDTH.finditer(text)
    }
