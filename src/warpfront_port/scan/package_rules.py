"""The rules for a requirement string on another vendor. Pure."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from urllib.parse import unquote

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.system.packaged import packaged_text, packaged_toml
from warpfront.wheels.core_metadata import foreign_requirement
from warpfront_port.scan.catalogue import rules_by_name

_VENDOR_EXTRA = re.compile(
    r"(?:.*[-_.])?(?:cuda|gpu|nv[a-z]+|cu\d{2,3}|tensorrt|trt"
    r"|cpu|xpu|npu|hpu|mps|mlx|tpu|ascend|intel|rocm|amd|mac(?:os)?|osx|darwin|apple|metal|win(?:dows)?)(?:[-_.\d].*)?\Z"
)
_JAX = frozenset({"jax", "jaxlib"})


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorPackage:
    """Modules of a distribution that is built for CUDA, its first version for ROCm, if any, and the
    rule about it: where an installer builds it, that fails, and a wheel installs.
    """

    modules: tuple[str, ...]
    for_rocm: Version | None
    rule: str


@cache
def vendor_packages() -> Mapping[str, VendorPackage]:
    """Return what the files of PyPI show, by distribution (`tools/vendor-packages.py`)."""
    text = packaged_text("vendor-packages.txt", package="warpfront_port")
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    return {
        name: VendorPackage(
            modules=tuple(modules.split()),
            for_rocm=None if first == "-" else Version(first),
            rule="DP304" if evidence.startswith(("source:", "will not build")) else "DP303",
        )
        for name, modules, _, first, evidence in rows
    }


def modules_for_cuda(ecosystem: str = "") -> AbstractSet[str]:
    """Return the modules that CUDA alone has, of Python's or of the language of an ending."""
    own = (p for n, p in vendor_packages().items() if n.rpartition(":")[0] == ecosystem)
    return {module for package in own if not package.for_rocm for module in package.modules}


def modules_of(name: str) -> tuple[str, ...]:
    """Return the names by which modules may import a distribution."""
    return (name, *(package.modules if (package := vendor_packages().get(name)) else ()))


def longest_known(dotted: str, table: Container[str]) -> str:
    """Return the longest prefix of `dotted`, at its dots, that the table has; "" for none."""
    dotted = ".".join(dotted.split(".", 8)[:8])  # a hostile name may have thousands of dots
    while dotted and dotted not in table:
        dotted = dotted.rpartition(".")[0]
    return dotted


_DISTRIBUTIONS = rules_by_name("distributions")
_PREFIXES = sorted((name[:-1] for name in _DISTRIBUTIONS if name.endswith("*")), key=len)[::-1]


def rule_of_package(name: str) -> str:
    """Return the rule about a distribution; "" for none."""
    normal = canonicalize_name(name)
    package = vendor_packages().get(normal)
    of_cuda = package.rule if package and not package.for_rocm else ""
    of_cuda = of_cuda or "DP303" * bool(_NAMED_BY_CUDA.search(normal))
    prefix = next((start for start in _PREFIXES if normal.startswith(start)), None)
    return _DISTRIBUTIONS.get(normal) or of_cuda or _DISTRIBUTIONS.get(f"{prefix}*", "")


def known_name(name: str) -> str:
    """Return the normal name of a distribution: `transformer-engine` for TransformerEngine too."""
    normal = canonicalize_name(name)
    return normal if rule_of_package(normal) else canonicalize_name(_CAMEL.sub("-", name))


_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NAMED_BY_CUDA = re.compile(r"-cu(?:da)?-?(?:\d{2,3}(?:-\d)?|\d\dx)\Z")
"""`spconv-cu126`, `somelib-cuda12`: a project's wheels for one CUDA."""
_NEWEST = Version("999999")


def read_requirement(text: str, *, extra: str = "") -> Iterator[tuple[str, int]]:
    """Yield (rule, shift) for `torch==2.7.1` and the like.

    `extra` is the optional group of the requirement: a vendor's group is optional on other vendors.
    """
    address = _WHEEL.fullmatch(text.strip()) or _REPOSITORY.fullmatch(text.strip())
    try:
        requirement = foreign_requirement(f"{address[1]} @ {text.strip()}" if address else text)
    except InvalidRequirement:
        return
    name = known_name(requirement.name)
    rule = rule_of_package(name)
    if rule != "DP302" and _CUDA_BUILD.search(unquote(str(requirement))):
        rule = "DP303"
    if name in _JAX and any(option.startswith("cuda") for option in requirement.extras):
        rule = "DP303"
    package = vendor_packages().get(name)
    # Only versions from before the first one for ROCm.
    if package and package.for_rocm and rule != "DP303":
        clauses = (clause for clause in requirement.specifier if clause.operator != "===")
        named = [Version(clause.version.removesuffix(".*")) for clause in clauses]
        later = [v for v in (package.for_rocm, _NEWEST, *named) if v >= package.for_rocm]
        rule = rule if any(map(requirement.specifier.contains, later)) else package.rule
    marker = requirement.marker if "extra" not in str(requirement.marker) else None
    elsewhere = marker and not marker.evaluate({**_LINUX, "platform_machine": "x86_64"})
    if not rule or elsewhere or _OTHERS_WHEEL.search(str(requirement)):
        return
    operators = {clause.operator for clause in requirement.specifier}
    exact = not operators.isdisjoint({"==", "===", "~="})
    at_least = operators <= {">", ">=", "!="}
    if rule == "DP302" and (at_least or requirement.specifier.contains(_torch())):
        return  # the torch that is there satisfies it
    yield rule, _shift(name, rule, extra=extra, exact=exact, pinned=not at_least)


_WHEEL = re.compile(r"https?://\S+/(\w+)-[^/\s]+\.whl(?:#\S*)?")
_REPOSITORY = re.compile(
    r"(?:git\+)?https?://[\w.]+/(?!(?i:rocm|amd)/)[\w.-]+/(\w[\w-]*)(?:[.@/#].*)?"
)
"""A repository's, but for one of AMD's own."""
_CUDA_BUILD = re.compile(r"(?:==[\w.!]+|/\w+-[\w.]+)\+\w*?cu(?:da)?\d{2,3}")
"""`==0.0.22+cu118`, `lib-2.5.8+cu122torch2.3-cp310-...whl`: a version that was built for CUDA."""
_OTHERS_WHEEL = re.compile(r"==[\w.]+\+(?:xpu|rocm|cpu)")


@cache
def _torch() -> str:
    """Return the version of torch whose headers a scan reads."""
    return str(packaged_toml("toolchain.toml", package="warpfront_port")["torch"][0]["version"])


_LINUX = {"platform_system": "Linux", "sys_platform": "linux", "os_name": "posix"}


def _shift(name: str, rule: str, *, extra: str, exact: bool, pinned: bool) -> int:
    shift = 1 if rule == "DP302" and exact else 0
    if name.startswith("nvidia-"):  # it installs, and nothing uses it
        shift = -1
    if (rule == "DP315" and not pinned) or name == "cupy":  # its source builds for ROCm
        shift = -1
    if _VENDOR_EXTRA.match(extra.lower()):
        shift -= 2
    elif extra:  # an optional requirement is the user's choice
        shift -= 1 if rule == "DP302" or extra in {"all", "full"} else 2
    return shift
