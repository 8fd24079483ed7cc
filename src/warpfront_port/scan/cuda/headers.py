"""What the headers of a tree tell its other files: names with a meaning on AMD, macros that one
side alone gets, namespaces of its own. Pure.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import PurePosixPath

from warpfront_port.scan.cuda.conditions import macro_table
from warpfront_port.scan.cuda.guards import unwritten_arms
from warpfront_port.scan.cuda.preprocessor import EVERYWHERE, Reach, is_guard
from warpfront_port.scan.cuda.view import AMD_NAME, View, is_typed, portable_names
from warpfront_port.scan.findings import SIDES, Known, Side
from warpfront_port.scan.words import is_aside

_HEADERS = frozenset({".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl"})
_VENDOR = re.compile(r"CUDA|HIP|ROCM|AMD|NVCC|NVIDIA|hip[A-Z/]")
_NAMESPACE = re.compile(r"\bnamespace\s+((?:\w+\s*::\s*)*\w+)\s*\{")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFacts:
    """Of one file: `reaches` says of each macro that a header defines who gets a definition,
    `nvidias` are macros with CUDA in their name that are asked for beside one of AMD's, `asked` all
    that conditions name, `shared` those that AMD's arms lie in, `variables` what a header declares
    by names of CUDA's form. `unwritten`: an arm of AMD's says that it is to be written.
    """

    portable: frozenset[str]
    reaches: Mapping[str, Reach]
    namespaces: frozenset[str]
    nvidias: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    unwritten: bool = False


def facts_of(view: View) -> HeaderFacts:
    """What other files may take from this one. Macros of a `.cu` are its own business."""
    namespaces = frozenset(
        name.strip() for found in _NAMESPACE.findall(view.code) for name in found.split("::")
    )
    header = view.source.path.suffix.lower() in _HEADERS
    variables = declared_names(view) if header else frozenset()
    if not _VENDOR.search(view.source.text):
        return HeaderFacts(
            portable=frozenset(), reaches={}, namespaces=namespaces, variables=variables
        )
    reaches = dict(_macro_reaches(view)) if header else {}
    portable = portable_names(view)
    if header and view.is_hip:
        portable |= reaches.keys()
        reaches = dict.fromkeys(reaches, frozenset({"amd"}))
    return HeaderFacts(
        portable=portable,
        reaches=reaches,
        namespaces=namespaces,
        nvidias=_nvidias(view),
        asked=frozenset().union(*(chain.macros for chain in view.reaches.chains)),
        shared=_shared(view),
        variables=variables,
        unwritten=any(True for _ in unwritten_arms(view)),
    )


def declared_names(view: View) -> frozenset[str]:
    """Variables, members, parameters, and types of the driver's, which only those define who load
    it when they run; a type's name in front tells them from what is used. Where NVIDIA does not
    come to, a name of CUDA's stands for what is not there.
    """
    return frozenset(
        found[0]
        for found in _DECLARED.finditer(view.code)
        if not found[0].endswith("_t")
        and is_typed(view.code, found.start())
        and "nvidia" in view.region(found.start()).reach
    )


_DECLARED = re.compile(
    r"(?<![\w.>:])(?:cu(?:da|blas|fft|rand|solver|sparse)?[A-Z]|CU[a-z])\w*"
    r"(?=[ \t]*(?:[;,)\[{]|=(?!=)))"
)


def _nvidias(view: View) -> frozenset[str]:
    """In `#if X_CUDA ... #elif X_HIP` and in `X_CUDA || X_HIP`, AMD has no X_CUDA: the second would
    never be asked for.
    """
    found: set[str] = set()
    for chain in view.reaches.chains:
        before: set[str] = set()
        for arm in chain.arms:
            asked = {name for name in arm.macros if _CUDA_NAME.search(name)}
            amd = any(AMD_NAME.search(name) for name in arm.macros)
            if amd and "&&" not in arm.directive.body and "!" not in arm.directive.body:
                found |= before | asked
            elif len(arm.macros) == 1 and "!" not in arm.directive.body:
                before |= asked
    return frozenset(found)


def _shared(view: View) -> frozenset[str]:
    """Macros that stand together with one of AMD's: around its arm, or in one condition."""
    found: set[str] = set()
    for region in view.reaches.regions:
        if region.arms and any(map(AMD_NAME.search, region.arms[-1].macros)):
            found = found.union(*(arm.macros for arm in region.arms[:-1]))
            if "&&" in region.arms[-1].directive.body:
                found |= region.arms[-1].macros
    return frozenset(found)


_CUDA_NAME = re.compile(
    r"[A-Z0-9]_(?:\w+_)?CU(?:DA|BLAS|FFT|SOLVER)$|^CUDA_ENABLED$|[A-Z0-9]_CUDA_\w*$"
)


def _macro_reaches(view: View) -> Iterator[tuple[str, Reach]]:
    directives = view.directives
    guards = {d.body for at, d in enumerate(directives) if is_guard(directives, at)}
    for name, defined in view.macros.items():
        if name not in guards:
            yield name, frozenset().union(*(view.region(one.start).reach for one in defined))


_HEARD_OF = {
    "hip": (
        *("hip_runtime", "hipify", "hipcc", "__HIP", "HIP_PLATFORM", "LANGUAGE HIP", "(HIP"),
        *("USE_HIP", "USE_ROCM", "ENABLE_HIP", "WITH_HIP", "HAVE_ROCM", "WITH_ROCM", "ENABLE_ROCM"),
        *("find_package(hip", "HIPSYCL", "hipsycl"),
    ),
    "rocm": ("version.hip", "is_rocm", "is_hip", "IS_ROCM", "IS_HIP", "ROCM_HOME"),
    "extensions": ("CUDAExtension", "cpp_extension"),
    "renaming": ("hipify", "HIPIFY", "define __CUDACC__"),
    "hipify": ("hipify", "HIPIFY"),
}
_NAMES_OF_ROCM = (*_HEARD_OF["rocm"], "rocm", "ROCm", "ROCM", "amdgpu", "amdsmi")
_INCLUDED = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)
_RUNTIME = re.compile(r"cuda(?:_runtime(?:_api)?)?\.h$|hip/|cooperative_groups|cub/|thrust/")


def heard_of(code: Iterable[str], rest: Iterable[str] = ()) -> frozenset[str]:
    """What files have heard of: "hip", "rocm" (torch's ways to ask for it), torch's "extensions",
    which are hipified, other "renaming", and "hipify" by its name. A build of extensions that asks
    for ROCm, or more than five files that do, have "asked"; what is not C++ (the `rest`) asks by
    any name of ROCm's.
    """
    heard: set[str] = set()
    asking = 0
    said = ((_heard_in(text), _HEARD_OF["rocm"]) for text in code)
    for text, words in itertools.chain(said, ((text, _NAMES_OF_ROCM) for text in rest)):
        if any(word in text for word in words):
            builds = "CUDAExtension" in text and ("version.hip" in text or "IS_HIP" in text)
            asking += BEGUN + 1 if builds else 1
        heard |= {
            one
            for one, words in _HEARD_OF.items()
            if one not in heard and any(word in text for word in words)
        }
    return frozenset(heard | {"asked"} if asking > BEGUN else heard)


def _heard_in(text: str) -> str:
    """Code without devices may ask which compiler reads it (a header of portability's does)."""
    asks = "__HIP" in text and _OF_DEVICES.search(text) is None
    return text.replace("__HIP", "") if asks else text


_OF_DEVICES = re.compile(r"\b(?:hip|cuda)[A-Z_/]|__(?:device|global)__|\b(?:CUDA|HIP|ROCM)_")


def is_ported(
    heard: AbstractSet[str], texts: Collection[str], facts: Collection[HeaderFacts]
) -> bool:
    """Whether a tree comes to AMD's devices already: a header gives AMD one of CUDA's names, or
    more than five files say something of HIP, or half as many as have CUDA's runtime; and not half
    of them that it is still to be written. Or a third as many go by a layer that has AMD's devices.
    """
    cuda, hip, layer = _counted(texts, _RUNTIMES, _OF_HIP, _OF_A_LAYER)
    if layer and 3 * layer >= cuda:
        return True
    if "hip" not in heard:
        return False
    if any(_RUNTIMES.match(name) for one in facts for name in one.portable):
        return True
    if hip and 2 * sum(one.unwritten for one in facts) >= hip:
        return False
    return hip > BEGUN or 2 * hip >= cuda


def is_begun(texts: Collection[str]) -> bool:
    """Whether a fourth as many of `texts` name HIP as have CUDA's runtime."""
    cuda, hip = _counted(texts, _RUNTIMES, _OF_HIP)
    return 4 * hip >= cuda


def is_untouched(texts: Collection[str]) -> bool:
    """Whether none of `texts` names HIP where many have CUDA's runtime: a build that asks for AMD,
    or a README that names it, says what is to come.
    """
    cuda, hip = _counted(texts, _RUNTIMES, _OF_HIP)
    return cuda > 2 * BEGUN and not hip


def _counted(texts: Collection[str], *patterns: re.Pattern[str]) -> Iterator[int]:
    return (sum(one.search(text) is not None for text in texts) for one in patterns)


def says_amd(texts: Iterable[str]) -> bool:
    """Whether a README says so of AMD's devices, in no section about what is to come."""
    sections = (part for text in texts for part in _HEADING.split(text))
    return any(
        _AMDS_DEVICES.search(line) is not None and _DENIES.search(line) is None
        for part in sections
        if _TO_COME.search(part) is None
        for line in part.splitlines()
    )


_AMDS_DEVICES = re.compile(
    r"(?<![\w/.-])(?:ROC[mM]|HIP|AMD GPUs?|AMDGPU|Radeon|MI\d{3}X?)(?![\w-])"
)
_DENIES = re.compile(r"(?i)\b(?:not?|without|only|never|yet)\b|n't\b")
_TO_COME = re.compile(
    r"(?i)\b(?:plan(?:ned|s)?|future|upcoming|to come|to-?do|roadmap|tbu)\b|\[ \]"
)
_HEADING = re.compile(r"(?m)^(?=#)")


def has_code(texts: Mapping[str, str]) -> bool:
    """Whether any of `texts` by path, tests and examples apart, is for CUDA's runtime or asks
    whether CUDA is built for.
    """
    return any(
        _FOR_CUDA.search(text) is not None and not is_aside(PurePosixPath(path))
        for path, text in texts.items()
    )


_OF_A_LAYER = re.compile(r"\b(?:Kokkos|RAJA|amrex|sycl|alpaka|occa)::")
"""What is written once for all devices; OpenCL beside CUDA is a second program."""
BEGUN = 5
"""So many files for AMD are no port yet."""
_RUNTIMES = re.compile(r"\bcuda[A-Z]\w+|cuda_runtime|__global__|\bcublas[A-Z]")
_FOR_CUDA = re.compile(rf'{_RUNTIMES.pattern}|\b[A-Z]\w*_CUDA\b|"(?:cuda|CUDA)"')
_OF_HIP = re.compile(
    r"\bhip[A-Z_]|HIP|ROCM|AMD_PLATFORM|\broc(?:blas|fft|rand|solver|sparse|prim|tracer|tx|profiler)"
)


NO_CUDACC: Mapping[str, Mapping[Side, Known]] = {
    "__CUDACC__": {"nvidia": "set", "amd": "unset", "other": "unset"}
}
"""Where nothing renames it, hipcc has none."""


def shared_switches(texts: Iterable[str]) -> frozenset[str]:
    """Macros that a build of torch's extensions sets without asking for CUDA's toolkit: by
    `torch.cuda.is_available()`, which ROCm's torch answers yes to, or always.
    """
    builds = [text for text in texts if any(word in text for word in _HEARD_OF["extensions"])]
    asking = {name for text in builds if "CUDA_HOME" in text for name in _QUOTED.findall(text)}
    return frozenset(name for text in builds for name in _QUOTED.findall(text)) - asking


_QUOTED = re.compile(r"[\"'](?:-D)?([A-Z]\w*CUDA\w*|CUDA_\w+)[\"'=]")


def runtime_headers(texts: Mapping[str, str]) -> frozenset[str]:
    """The names of files that include CUDA's runtime, themselves or through others of the tree."""
    included = {path: _INCLUDED.findall(text) for path, text in texts.items()}
    names: set[str] = set()
    found = {path for path, headers in included.items() if any(map(_RUNTIME.match, headers))}
    while more := {path.rpartition("/")[2] for path in found} - names:
        names |= more
        found = {
            path
            for path, headers in included.items()
            if any(header.rpartition("/")[2] in more for header in headers)
        }
    return frozenset(names)


def own_macros(facts: Iterable[HeaderFacts]) -> frozenset[str]:
    """Macros of the tree's own whose names are of CUDA's form: `CUDA_CHECK`, `cudaSyncIfAsked`."""
    return frozenset(name for one in facts for name in one.reaches if _LIKE_CUDAS.match(name))


_LIKE_CUDAS = re.compile(r"CUDA_|cu(?:da|blas|fft|rand|solver|sparse)?[A-Z]")


def vendor_macros(facts: Iterable[HeaderFacts]) -> dict[str, Mapping[Side, Known]]:
    """The macros that no header defines for some side, and those that are asked for beside AMD's,
    by name: unset there. Those that the table knows stay as they are there.
    """
    reaches: dict[str, Reach] = {}
    facts = tuple(facts)
    asked = frozenset().union(*(one.asked for one in facts))
    for one in facts:
        reaches.update(dict.fromkeys(one.nvidias - reaches.keys(), frozenset({"nvidia"})))
        for name, reach in one.reaches.items():
            reaches[name] = reaches.get(name, frozenset()) | reach
    own = _beside_amds(asked).difference(*(one.shared for one in facts))
    reaches |= dict.fromkeys(own, frozenset({"nvidia"}))
    return {
        name: row
        for name, reach in reaches.items()
        if reach and reach != EVERYWHERE and (row := _row(name, EVERYWHERE - reach))
    }


def _beside_amds(asked: Iterable[str]) -> frozenset[str]:
    """Of macros that are asked for, NVIDIA's halves of pairs: `X_CUDA` beside `X_HIP`."""
    amds = {one for name in asked if (one := _PART_OF_AMD.sub("@", name)) != name}
    return frozenset(name for name in asked if _PART_OF_NVIDIA.sub("@", name) in amds)


_LIBRARY = "(?=BLAS|FFT|RAND|SOLVER|SPARSE)"
_PART_OF_AMD = re.compile(rf"(?<=[A-Za-z0-9]_)(?:(?:HIP|ROC){_LIBRARY}|(?:HIP|ROCM|AMD)(?![A-Z]))")
_PART_OF_NVIDIA = re.compile(rf"(?<=[A-Za-z0-9]_)(?:CU{_LIBRARY}|(?:CUDA|NVIDIA)(?![A-Z]))")


def _row(name: str, missing: Reach) -> Mapping[Side, Known]:
    """What is known of a macro on each side; nothing where the table says all of it."""
    table = macro_table()
    known = {side: table.known(name, side) for side in SIDES}
    if name in table.names or all(known[side] is not None for side in missing):
        return {}
    return {
        side: "unset" if value is None else value
        for side, value in known.items()
        if side in missing or value is not None
    }
