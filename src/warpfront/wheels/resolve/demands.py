"""Demands of packages on a cell's torch stack, and those that are not met. Pure.

Every demand of a distribution's metadata on the stack is compared with the cell's version, and the
packages that lead to it are named. The same walk gives the requirers of each wheel of a lock.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.matrix.cell import Cell, Pin
from warpfront.wheels.core_metadata import (
    Distribution,
    applies,
    marker_environment,
    plain_requirement,
    readable_requirement,
)
from warpfront.wheels.lock.values import (
    LockedWheel,
    LockInputs,
    RelaxedPackage,
    UnmetDemand,
    matches,
    stack_names,
)
from warpfront_checks.guard.channels import sentinel
from warpfront_checks.guard.names import sentinels, stack_patterns, triton_shims

_IN_BASE = "the.base.has.its.own"
_Node = tuple[str, str]
"""A distribution and one of its extras; "" is for what it demands without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDemand:
    """The versions of a distribution that the stack accepts, and the names that demand them."""

    specifier: SpecifierSet
    requirers: tuple[str, ...]

    def accepts_some(self, specifier: SpecifierSet) -> bool:
        """Return true if a version may exist that meets both."""
        return not self.specifier.is_disjoint(specifier)

    def text(self, name: str) -> str:
        verb = "need" if self.requirers[1:] else "needs"
        return f"{' and '.join(self.requirers)} {verb} {name}{self.specifier}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A cell's torch stack: `versions` maps name to version, `answered` maps name to version of the
    shim in its place, and forbidden names map to a reason. `needs` are the stack's demands
    on other distributions.
    """

    versions: Mapping[str, str]
    answered: Mapping[str, str]
    foreign: Mapping[str, str]
    needs: Mapping[str, VersionDemand] = field(default_factory=dict)

    @property
    def pins(self) -> tuple[str, ...]:
        """Return requirements that only the stack's versions meet."""
        return tuple(
            str(Pin(name=name, version=version)) for name, version in sorted(self.versions.items())
        )

    @property
    def constraints(self) -> tuple[str, ...]:
        """Return constraints: forbidden names at no version, names of shims at theirs."""
        return (
            *(sentinel(name, why) for name, why in sorted(self.foreign.items())),
            *(f"{pin.name}=={pin.version}" for pin in self.shims),
        )

    @property
    def shims(self) -> tuple[Pin, ...]:
        """Return the names of the shims at their versions."""
        return tuple(
            Pin(name=name, version=Version(shim).public)
            for name, shim in sorted(self.answered.items())
        )

    @property
    def excluded(self) -> tuple[str, ...]:
        """Return the names that a resolution leaves out so that the stack does not change."""
        return tuple(sorted({*self.foreign, *self.answered}))

    def refuses(self, name: str, demand: Requirement) -> bool:
        """Return true if the stack does not meet a demand on one of its names."""
        version = self.versions.get(name) or self.answered.get(name)
        if need := self.needs.get(name):
            return not need.accepts_some(demand.specifier)
        if version is None:
            return name in self.foreign
        return bool(demand.url) or not demand.specifier.contains(version, prereleases=True)

    def instead_of(self, name: str) -> str:
        """Return what the stack has in the place of what was demanded."""
        if version := self.versions.get(name) or self.answered.get(name):
            return f"holds {name} {version}"
        if need := self.needs.get(name):
            return f"has {need.text(name)}"
        return f"must not hold it ({self.foreign.get(name, '').replace('.', ' ')})"


def stack_of(inputs: LockInputs, pins: Mapping[str, str]) -> Stack:
    """Return the stack of `pins` (name -> version), which are the matrix's and its vendor's. A
    stack that comes with the base is unknown, so that no other may be added.
    """
    names, patterns = stack_names(inputs), (*inputs.protected, *inputs.libraries)
    versions = {
        name: version for name, version in pins.items() if name in names or matches(name, patterns)
    }
    answered = {shim.name: shim.version for shim in triton_shims(versions)}
    in_base = {} if inputs.index else dict.fromkeys(inputs.protected, _IN_BASE)
    return Stack(
        versions=versions,
        answered=answered,
        foreign={
            name: why
            for name, why in {**sentinels(inputs.toolkit, versions), **in_base}.items()
            if "*" not in name and name not in answered
        },
    )


def belonging_to_a_stack(inputs: LockInputs, names: Iterable[str]) -> frozenset[str]:
    """Return those of `names`, beyond the matrix's, that belong to some torch stack."""
    requested = stack_names(inputs)
    patterns = (*inputs.protected, *inputs.libraries, *sentinels(inputs.toolkit, ()))
    return frozenset(name for name in {*names} - requested if matches(name, patterns))


def unmet_demands(
    distributions: Iterable[Distribution],
    requirements: Iterable[str],
    stack: Stack,
    *,
    python: str,
    machine: str,
    has_shims: bool = True,
) -> tuple[UnmetDemand, ...]:
    """Return the unmet demands on `stack`, each once per package, with the shortest chain from
    `requirements`, the image's own. Without shims, as outside of a guarded image, a demand on their
    names is unmet.
    """
    if not has_shims:
        reasons = dict.fromkeys(stack.answered, "this torch has another build of it")
        stack = dataclasses.replace(stack, answered={}, foreign={**stack.foreign, **reasons})
    by_name = {distribution.name: distribution for distribution in distributions}
    demands = demands_from(
        sorted(requirements),
        {name: distribution.requires for name, distribution in by_name.items()},
        marker_environment(python, machine),
        enters=lambda name, demand: (
            name not in {*stack.versions, *stack.answered} and not stack.refuses(name, demand)
        ),
    )
    unmet = (
        UnmetDemand(
            asker=chain[-1][0] if chain else "",
            wanted=str(demand).partition(";")[0].strip(),
            instead=stack.instead_of(name),
            chain=tuple(
                dict.fromkeys(
                    f"{part}{f'[{extra}]' if extra else ''} {by_name[part].version}"
                    for part, extra in chain
                )
            ),
        )
        for chain, name, demand in demands
        if stack.refuses(name, demand)
    )
    return tuple(dict.fromkeys(unmet))


def without_libraries(requires: Iterable[str]) -> tuple[str, ...]:
    """Return what a build of a torch release demands, without the libraries of its own vendor."""
    patterns = [name for toolkit in ("cuda", "rocm", "xpu") for name in stack_patterns(toolkit)]
    return tuple(
        str(requirement)
        for requirement in filter(None, map(readable_requirement, requires))
        if not matches(canonicalize_name(requirement.name), patterns)
    )


def needs_of(
    distributions: Iterable[Distribution], stack: Stack, *, python: str, machine: str
) -> Mapping[str, VersionDemand]:
    """Return the demands of these distributions, without extras, on others than the stack's."""
    names = {*stack.versions, *stack.answered, *stack.foreign}
    environment = marker_environment(python, machine)
    needs: dict[str, VersionDemand] = {}
    for distribution in distributions:
        for requirement in filter(None, map(readable_requirement, distribution.requires)):
            name = canonicalize_name(requirement.name)
            if name in names or not applies(requirement, environment):
                continue
            before = needs.get(name, VersionDemand(specifier=SpecifierSet(), requirers=()))
            needs[name] = VersionDemand(
                specifier=before.specifier & requirement.specifier,
                requirers=tuple(dict.fromkeys((*before.requirers, distribution.name))),
            )
    return needs


def relaxed_of(
    demands: tuple[UnmetDemand, ...],
    distributions: Iterable[Distribution],
    reasons: Mapping[str, str],
) -> tuple[RelaxedPackage, ...]:
    """Return the packages that `reasons` waives, with their unmet demands."""
    versions = {distribution.name: distribution.version for distribution in distributions}
    return tuple(
        RelaxedPackage(
            package=name,
            version=versions[name],
            reason=reasons[name],
            unmet=tuple(sorted({demand.wanted for demand in demands if demand.asker == name})),
        )
        for name in sorted({demand.asker for demand in demands} & reasons.keys())
    )


def demands_from(
    roots: Iterable[str],
    requires: Mapping[str, Iterable[str]],
    environment: Mapping[str, str],
    *,
    enters: Callable[[str, Requirement], bool] = lambda _name, _demand: True,
) -> Iterator[tuple[tuple[_Node, ...], str, Requirement]]:
    """Yield (chain from the roots, name, requirement) for each demand that applies. Breadth first,
    so that the first chain of a name is a shortest one. `requires` maps a name to its demands,
    which follow where `enters` is true. An extra counts only if a requirement names it.
    """
    pending = deque[tuple[tuple[_Node, ...], str]](((), text) for text in roots)
    visited: set[_Node] = set()
    while pending:
        chain, text = pending.popleft()
        demand = readable_requirement(text)
        if demand is None or not applies(demand, environment, chain[-1][1] if chain else ""):
            continue
        name = canonicalize_name(demand.name)
        yield chain, name, demand
        for node in ((name, extra) for extra in ("", *sorted(demand.extras))):
            if name in requires and node not in visited and enters(name, demand):
                visited.add(node)
                pending.extend(((*chain, node), line) for line in requires[name])


Edge = tuple[str, str, str]
"""The requirer, "" for the image; the required package; and the requirement's text."""


def asked_for(
    requires: Mapping[str, tuple[str, ...]], roots: Iterable[str], *, python: str, machine: str
) -> tuple[Edge, ...]:
    """Return the edges that apply on this Python and machine. `requires` maps a normalized name
    to its `Requires-Dist`; `roots` are the image's own requirements. An extra counts only if a
    requirement names it.
    """
    edges = {
        (chain[-1][0] if chain else "", name, plain_requirement(demand))
        for chain, name, demand in demands_from(
            roots, requires, marker_environment(python, machine)
        )
    }
    return tuple(sorted(edges))


def requirers_of(name: str, edges: tuple[Edge, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (the shortest chain from the image to the requirer, the requirement) for each
    requirer of `name`; an empty chain is the image itself.
    """
    requires: dict[str, list[str]] = {"": []}
    for asker, required, _ in edges:
        requires.setdefault(asker, []).append(required)
    chains: dict[str, tuple[str, ...]] = {"": ()}
    for chain, required, _ in demands_from(requires[""], requires, {}):
        chains.setdefault(required, (*(part for part, _ in chain), required))
    for asker, required, requirement in edges:
        if required == name:
            yield chains.get(asker, (asker,)), requirement


def asking_line(name: str, edges: tuple[Edge, ...]) -> str:
    """Return a line like `numpy: asked for by torch (numpy>=1.22)`, with the shortest chains."""
    requirers = [
        f"asked for by {' -> '.join(chain) or 'the image itself'}"
        + (f" ({text})" if text not in ("", name) else "")
        for chain, text in requirers_of(name, edges)
    ]
    return f"{name}: {'; '.join(requirers) or 'not in this lock'}"


def roots_of(chain: Iterable[Cell], wheels: Iterable[LockedWheel]) -> tuple[str, ...]:
    """Return what an image and those it is built on ask for themselves. A source without a name has
    that of the one of `wheels` which is made of it.
    """
    built = {wheel.source: wheel.name for wheel in wheels if wheel.source}
    roots: dict[str, None] = {}
    for cell in chain:
        tools = cell.compiler.requirements if cell.compiler else ()
        named = [
            f"{name}[{','.join(source.extras)}]" if source.extras else name
            for source in cell.listed.sources
            if (name := source.name or built.get(str(source), ""))
        ]
        roots.update(dict.fromkeys((*map(str, cell.stack), *cell.requirements)))
        roots.update(dict.fromkeys((*tools, *cell.listed.requirements, *named)))
    return tuple(roots)
