"""Facts of a tree's headers that apply to its other files. Pure.

They are names with a meaning on AMD, and macros that one side alone gets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from warpfront_port.scan.cuda.conditions import is_named, table_row
from warpfront_port.scan.cuda.preprocessor import EVERYWHERE, Reach, is_guard
from warpfront_port.scan.cuda.view import AMD_NAME, View, is_typed, portable_names
from warpfront_port.scan.findings import SIDES, MacroValue, Side

_HEADERS = frozenset({".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl"})
_VENDOR = re.compile(r"CUDA|HIP|ROCM|AMD|NVCC|NVIDIA|hip[A-Z/]")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFacts:
    """The facts of a file that apply to other files.

    `reaches` maps each macro that a header defines to the sides that get a definition. `nvidias`
    are macros with CUDA in their name that are tested together with one of AMD's. `asked` are all
    macros that conditions name, `shared` those around AMD's arms.
    """

    portable: frozenset[str]
    reaches: Mapping[str, Reach]
    nvidias: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()


def facts_of(view: View) -> HeaderFacts:
    """Return the facts of a file that apply to other files. Macros of a `.cu` are private to it."""
    header = view.source.path.suffix.lower() in _HEADERS
    if not _VENDOR.search(view.source.text) and "typedef" not in view.source.text:
        return HeaderFacts(portable=frozenset(), reaches={})
    reaches = dict(_macro_reaches(view)) if header else {}
    portable = portable_names(view)
    if header and view.is_hip:
        portable |= reaches.keys()
        reaches = dict.fromkeys(reaches, frozenset({"amd"}))
    return HeaderFacts(
        portable=portable,
        reaches=reaches,
        nvidias=_nvidias(view),
        asked=frozenset().union(*(chain.macros for chain in view.reaches.chains)),
        shared=_shared(view),
    )


def declared_names(view: View) -> frozenset[str]:
    """Return declared variables, members, parameters and types with names of CUDA's form.

    Only code that loads the driver at run time declares the driver's types. A type's name in front
    tells declarations from uses. Where NVIDIA does not reach, a CUDA name is a stub.
    """
    return frozenset(
        match[0]
        for match in _DECLARED.finditer(view.code)
        if not match[0].endswith("_t")
        and is_typed(view.code, match.start())
        and "nvidia" in view.region(match.start()).reach
    )


_DECLARED = re.compile(
    r"(?<![\w.>:])(?:cu(?:da|blas|fft|rand|solver|sparse)?[A-Z]|CU[a-z])\w*"
    r"(?=[ \t]*(?:[;,)\[{]|=(?!=)))"
)


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


def _shared(view: View) -> frozenset[str]:
    """Return macros that occur together with one of AMD's: around its arm, or in one condition."""
    shared: set[str] = set()
    for region in view.reaches.regions:
        if region.arms and any(map(AMD_NAME.search, region.arms[-1].macros)):
            shared = shared.union(*(arm.macros for arm in region.arms[:-1]))
            if "&&" in region.arms[-1].directive.body:
                shared |= region.arms[-1].macros
    return frozenset(shared)


_CUDA_NAME = re.compile(
    r"[A-Z0-9]_(?:\w+_)?CU(?:DA|BLAS|FFT|SOLVER)$|^CUDA_ENABLED$|[A-Z0-9]_CUDA_\w*$"
)


def _macro_reaches(view: View) -> Iterator[tuple[str, Reach]]:
    directives = view.directives
    guards = {d.body for index, d in enumerate(directives) if is_guard(directives, index)}
    for name, defined in view.macros.items():
        if name not in guards:
            yield name, frozenset().union(*(view.region(define.start).reach for define in defined))


def vendor_macros(facts: Iterable[HeaderFacts]) -> dict[str, Mapping[Side, MacroValue]]:
    """Return the macros that are unset on some side, by name.

    These are macros that no header defines for that side, and those that are tested together with
    AMD's. Macros that the table knows keep their value there.
    """
    reaches: dict[str, Reach] = {}
    facts = tuple(facts)
    tested = frozenset().union(*(fact.asked for fact in facts))
    for fact in facts:
        reaches.update(dict.fromkeys(fact.nvidias - reaches.keys(), frozenset({"nvidia"})))
        for name, reach in fact.reaches.items():
            reaches[name] = reaches.get(name, frozenset()) | reach
    nvidia_only = _beside_amds(tested).difference(*(fact.shared for fact in facts))
    reaches |= dict.fromkeys(nvidia_only, frozenset({"nvidia"}))
    return {
        name: row
        for name, reach in reaches.items()
        if reach and reach != EVERYWHERE and (row := _row(name, EVERYWHERE - reach))
    }


def _beside_amds(tested: Iterable[str]) -> frozenset[str]:
    """Return NVIDIA's halves of pairs among tested macros: `X_CUDA` of `X_CUDA` and `X_HIP`."""
    amds = {pair for name in tested if (pair := _PART_OF_AMD.sub("@", name)) != name}
    return frozenset(name for name in tested if _PART_OF_NVIDIA.sub("@", name) in amds)


_LIBRARY = "(?=BLAS|FFT|RAND|SOLVER|SPARSE)"
_PART_OF_AMD = re.compile(rf"(?<=[A-Za-z0-9]_)(?:(?:HIP|ROC){_LIBRARY}|(?:HIP|ROCM|AMD)(?![A-Z]))")
_PART_OF_NVIDIA = re.compile(rf"(?<=[A-Za-z0-9]_)(?:CU{_LIBRARY}|(?:CUDA|NVIDIA)(?![A-Z]))")


def _row(name: str, missing: Reach) -> Mapping[Side, MacroValue]:
    """Return the known values of a macro on each side; empty where the table has all of them."""
    values = {side: table_row(name).get(side) for side in SIDES}
    if is_named(name) or all(values[side] is not None for side in missing):
        return {}
    return {
        side: "unset" if value is None else value
        for side, value in values.items()
        if side in missing or value is not None
    }


def narrow_masks(texts: Mapping[str, str]) -> Mapping[str, tuple[str, int]]:
    """Return the macros of headers with 32 bits set, with path and 1-based line."""
    masks: dict[str, tuple[str, int]] = {}
    for path, text in texts.items():
        for define in _MASK.finditer(text) if path.endswith(tuple(_HEADERS)) else ():
            masks.setdefault(define[1], (path, text.count("\n", 0, define.end()) + 1))
    return masks


_MASK = re.compile(
    r"(?m)^[ \t]*#[ \t]*define[ \t]+(\w*MASK\w*)[ \t]+\(?0[xX][fF]{8}[uU]?\)?[ \t]*(?://.*)?$"
)
