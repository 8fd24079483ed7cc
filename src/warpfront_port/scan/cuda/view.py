"""A source file for rules: code, regions, macros, declared types, device code. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from warpfront_port.scan.cuda.conditions import Value, evaluated, integer
from warpfront_port.scan.cuda.lexer import Directive, Span, blank
from warpfront_port.scan.cuda.preprocessor import Reaches, Region, read_reaches
from warpfront_port.scan.cuda.syntax import Syntax
from warpfront_port.scan.findings import SIDES, Context, Gate, Match, Side, SourceText
from warpfront_port.scan.words import NAMES_AMD, line_of

NAME = re.compile(r"[A-Za-z_]\w*+")
_OF_KERNELS = frozenset({"threadIdx", "blockIdx", "blockDim", "warpSize", "__syncthreads"})
_HIP_INCLUDE = re.compile(r"[<\"]hip/hip_")

WARP_NAME = re.compile(
    r"(?:warp_*(?:size|sz|threads?|width|lanes?|length)|threads?_*(?:per|in)_*(?:a_*)?warp|"
    r"lanes?_*(?:per|in)_*warp|wave_*size|wavefront_*size)",
    re.IGNORECASE,
)
AMD_NAME = re.compile(r"(?:^|_)(?:HIP|ROC)(?:M|CC|BLAS|FFT|SOLVER)?(?:_|$)")
"""A macro that is for AMD, by its name."""
HEADERS = frozenset({".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl"})
_OF_AMD = re.compile(r"HIP|ROCM|AMD|HCC|hip[A-Z]")


@dataclass(frozen=True, kw_only=True)
class View:
    """A file with the properties that rules query. Each is computed on first use."""

    source: SourceText
    context: Context

    @cached_property
    def _blanked(self) -> tuple[str, tuple[Directive, ...]]:
        return blank(self.source.text)

    @property
    def code(self) -> str:
        return self._blanked[0]

    @property
    def directives(self) -> tuple[Directive, ...]:
        return self._blanked[1]

    @cached_property
    def reaches(self) -> Reaches:
        return read_reaches(self.directives, self.context.vendor_macros)

    def region(self, offset: int) -> Region:
        return self.reaches.at(offset)

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the identifiers of the code."""
        return frozenset(NAME.findall(self.code))

    @cached_property
    def macros(self) -> Mapping[str, tuple[Directive, ...]]:
        """Return the `#define`s of the file by the name they define."""
        defines: dict[str, list[Directive]] = {}
        for directive in self.directives:
            name = NAME.match(directive.body) if directive.name == "define" else None
            if name is not None:
                defines.setdefault(name[0], []).append(directive)
        return {name: tuple(defined) for name, defined in defines.items()}

    @cached_property
    def portable(self) -> frozenset[str]:
        """Return names with another meaning on AMD, from this file or from the tree's headers."""
        return self.context.portable_names | portable_names(self)

    @cached_property
    def is_hip(self) -> bool:
        """Return true if the file is already ported: its suffix, or HIP's header on every side."""
        return self.source.path.suffix == ".hip" or any(
            directive.name == "include"
            and _HIP_INCLUDE.match(directive.body)
            and len(self.region(directive.start).reach) == len(SIDES)
            for directive in self.directives
        )

    @cached_property
    def is_of_cuda_alone(self) -> bool:
        """Return true if the file names nothing of AMD's: a part for CUDA in it has no twin."""
        return NAMES_AMD.search(self.source.text) is None

    @cached_property
    def is_device_code(self) -> bool:
        return bool({"__global__", "__device__"} & self.names)

    @cached_property
    def is_cuda(self) -> bool:
        """Return true for source for a CUDA compiler: its suffix, its specifiers, or its names."""
        return (
            self.source.path.suffix.lower() in (".cu", ".cuh", ".hip")
            or self.is_device_code
            or bool(_OF_KERNELS & self.names)
        )

    @cached_property
    def syntax(self) -> Syntax:
        return Syntax(code=self.code, directives=self.directives)

    def in_device_code(self, offset: int) -> bool:
        """Return true if `offset` is in a `__global__` or `__device__` function."""
        return self.is_device_code and not self.syntax.block(offset).specifiers <= {"host"}


def rule_match(
    view: View,
    rule: str,
    span: Span,
    *,
    excerpt: str = "",
    shift: int = 0,
    sides: Iterable[Side] | None = None,
    names: AbstractSet[str] = frozenset(),
) -> Match:
    """Return the match at `span`, with the sides that reach it. `what` defaults to the code there.

    Where the project gives one of `names` another meaning on AMD, that is its gate.
    """
    region = view.region(span[0])
    deciding = next((arm for arm in reversed(region.arms) if len(arm.reach) < len(SIDES)), None)
    line = 0 if deciding is None else line_of(view.code, deciding.directive.start)
    wrapped = bool(names & view.portable)
    return Match(
        rule=rule,
        start=span[0],
        end=span[1],
        excerpt=excerpt or " ".join(view.source.text[slice(*span)].split()),
        shift=shift,
        sides=region.reach if sides is None else frozenset(sides),
        gate=Gate.WRAPPED if wrapped else Gate.OPEN,
        gate_line=line,
    )


def is_declared(view: View, span: Span) -> bool:
    """Return true if the name at `span` is that of a function declared or defined there."""
    called = view.code[span[1] : span[1] + 10].lstrip().startswith("(")
    return called and view.syntax.declares_function(span[0])


def number_of(view: View, text: str, depth: int = 4) -> int | None:
    """Return the value of an expression of integers and of the file's macros for integers."""

    def operand(name: str) -> Value:
        bodies = macro_bodies(view, name)
        return (
            number_of(view, bodies[0], depth - 1) if depth and len(bodies) == 1 else integer(name)
        )

    value = evaluated(text, operand)
    return value if isinstance(value, int) else None


def macro_bodies(view: View, name: str, side: Side | None = None) -> tuple[str, ...]:
    """Return the bodies of the file's `#define`s of a name: on every side, or on one."""
    return tuple(
        directive.body[len(name) :].strip()
        for directive in view.macros.get(name, ())
        if side is None or side in view.region(directive.start).reach
    )


def portable_names(view: View) -> frozenset[str]:
    """Return the macros that the file defines for AMD.

    NVIDIA's names among them have another meaning there. Other files that include this one are
    portable in them.
    """
    if not _OF_AMD.search(view.source.text):
        return frozenset()
    return frozenset(
        name
        for name, defined in view.macros.items()
        if any(_is_amds(view.region(define.start)) for define in defined)
    )


def _is_amds(region: Region) -> bool:
    """Return true if only AMD reaches a region, or its arm tests a project's macro for AMD."""
    arm = region.arms[-1].directive if region.arms else None
    asks = arm is not None and arm.name in {"if", "ifdef", "elif"} and "!" not in arm.body
    return region.reach == {"amd"} or (asks and any(map(AMD_NAME.search, region.arms[-1].macros)))
