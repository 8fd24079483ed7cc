"""Which files are not for AMD, and of which nothing shows that they are: by twins for AMD beside
them, by their names and what they name. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from warpfront_port.scan.structured import kind_of
from warpfront_port.scan.words import is_aside

_OF_AMD = re.compile(r"(?i)(?<![a-z])(?:rocm|hip|amd)(?![a-z])")
_OF_A_VENDOR = re.compile(
    r"(?i)[-_.]?(?<![a-z])(?:rocm|hip|amd|cuda|nvidia|gpu)(?![a-z])(?:\d+(?:\.\d+)*)?"
)
_OF_HIP = re.compile(r"(?<![a-z])hip|HIP|ROCM|ROCm|rocm|__AMD")


def unproven_code(texts: Mapping[str, str]) -> frozenset[str]:
    """In a tree that knows AMD, the C++ and CUDA that names nothing of AMD's itself."""
    return frozenset(path for path, text in texts.items() if _OF_HIP.search(text) is None)


def unproven_beside(paths: Iterable[str]) -> frozenset[str]:
    """In a tree that knows AMD: what is packaged or built another way than from its root, and the
    Python that is no part of what is installed. Files with AMD's name are its own.
    """
    return frozenset(
        str(path)
        for path in map(PurePosixPath, paths)
        if not is_amds(str(path))
        and (_is_packaged_apart(path) or (path.suffix in (".py", ".ipynb") and is_aside(path)))
    )


def is_amds(path: str) -> bool:
    """Whether a name in a path says that the file is AMD's."""
    return _OF_AMD.search(path) is not None


def _is_packaged_apart(path: PurePosixPath) -> bool:
    kind = kind_of(path)
    of_root = kind in _MANIFESTS and path.name in _OF_THE_ROOT and len(path.parts) == 1
    return kind is not None and not of_root


_MANIFESTS = frozenset({"toml", "requirements", "cfg"})
_OF_THE_ROOT = frozenset({"pyproject.toml", "requirements.txt", "setup.cfg"})


def names_amd(paths: Iterable[str]) -> bool:
    """Whether an image or a list of requirements of the tree's is for AMD by its name."""
    return any(
        is_amds(path) and kind_of(PurePosixPath(path)) in ("dockerfile", "requirements")
        for path in paths
    )


def beside_amds(paths: Iterable[str]) -> frozenset[str]:
    """The files among `paths` with a sibling whose name is theirs with AMD in it: `setup.sh` beside
    `setup_rocm.sh`, and all images where one is for AMD.
    """
    twins: dict[str, list[str]] = defaultdict(list)
    for path in map(PurePosixPath, paths):
        kind = kind_of(path)
        if kind == "dockerfile" or (kind == "yaml" and "compose" in path.name):
            twins["images"].append(str(path))
        elif kind in ("shell", "requirements"):
            twins[f"{path.parent} {kind} {_OF_A_VENDOR.sub('', path.name)}"].append(str(path))
    return frozenset(
        path
        for key, found in twins.items()
        if any(is_amds(_named(key, path)) for path in found)
        for path in found
        if not is_amds(_named(key, path))
    )


def _named(key: str, path: str) -> str:
    """What may name a vendor: of an image its folders too."""
    return path if key == "images" else path.rpartition("/")[2]


def cudas_beside_amds(paths: Iterable[str]) -> frozenset[str]:
    """The files whose path, with a name of NVIDIA's part read as one of AMD's, is another file's
    or that of a folder with code: `cuda/queue.cpp` beside `hip/`, `cufft.h` beside `rocfft.h`.
    """
    amds: set[str] = set()
    nvidias: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        parts = path.split("/")
        code = path.endswith(_CODE)
        for depth, part in enumerate(parts, 1):
            is_file = depth == len(parts)
            name = part.partition(".")[0] if is_file else part
            above = "/".join(parts[: depth - 1])
            amd, nvidia = (pattern.sub(_PART, name) for pattern in (_PART_OF_AMD, _PART_OF_NVIDIA))
            if amd != name and (is_file or code):
                amds.add(f"{above}/{amd}")
            if nvidia != name:
                nvidias[f"{above}/{nvidia}"].append(path)
    return frozenset(path for part in nvidias.keys() & amds for path in nvidias[part])


_CODE = (".cu", ".cuh", ".hip", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".py")
_PART = r"@\g<library>"
_LIBRARY = r"(?P<library>blas(?:lt)?|fft|rand|solver|sparse|prim|dnn)?(?![a-z])"
_PART_OF_AMD = re.compile(
    rf"(?i)(?<![a-z])(?:(?:hip|rocm|roc(?=[a-z])|amd(?:gpu|gcn)?|hcc){_LIBRARY}|r(?=cclx?(?![a-z])))"
)
_PART_OF_NVIDIA = re.compile(
    rf"(?i)(?<![a-z])(?:(?:cuda|cu(?=[a-z])|nvidia|(?:nv)?ptx){_LIBRARY}|n(?=cclx?(?![a-z])))"
)
