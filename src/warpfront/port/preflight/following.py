"""From a line to the packages behind it: which lines to resolve, and whose demands lead back to
which line. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from warpfront.model import Distribution, UnmetDemand
from warpfront.port.preflight.asked import Asked, Kind
from warpfront.port.preflight.effects import applies
from warpfront.port.preflight.stacks import CellStack
from warpfront.wheels.demands import unmet_demands


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """The demands that a stack does not meet, each with the line that leads to it, and what could
    not be followed.
    """

    demands: tuple[tuple[Asked, UnmetDemand], ...] = ()
    unknown: tuple[str, ...] = ()


def wanted_lines(asked: Iterable[Asked], stack: CellStack) -> tuple[str, ...]:
    """What is to be resolved on this stack: what is always installed, comes from an index, applies
    there, and is not of the stack itself.
    """
    own = {*stack.stack.held, *stack.stack.excluded}
    lines = []
    for one in asked:
        if one.kind is not Kind.REQUIREMENT or one.group:
            continue
        requirement = Requirement(one.text)
        if requirement.url or canonicalize_name(requirement.name) in own:
            continue
        if applies(requirement, stack):
            lines.append(one.text)
    return tuple(dict.fromkeys(lines))


def unfollowed(asked: Iterable[Asked], stack: CellStack) -> Iterator[str]:
    """The lines whose packages are at a URL: reading what they demand could mean to build them."""
    for one in asked:
        if one.kind is Kind.REQUIREMENT and Requirement(one.text).url:
            requirement = Requirement(one.text)
            if applies(requirement, stack) and canonicalize_name(requirement.name) != "torch":
                yield f"{one.where}: {requirement.name} is at a URL; what it demands is not known"


def chain_of(demand: UnmetDemand) -> str:
    """From the line's own package to what is demanded: `vllm 0.11.0 -> torch==2.8.0`."""
    return " -> ".join((*demand.chain, demand.wanted))


def unmet(
    asked: Iterable[Asked],
    lines: tuple[str, ...],
    distributions: Iterable[Distribution],
    stack: CellStack,
) -> Iterator[tuple[Asked, UnmetDemand]]:
    """Each unmet demand of a package with the line that brought the package."""
    demands = unmet_demands(
        distributions, lines, stack.stack, python=stack.python, machine=stack.inputs.machine
    )
    by_name: dict[str, Asked] = {}
    for one in asked:
        if one.kind is Kind.REQUIREMENT and not one.group:
            by_name.setdefault(canonicalize_name(Requirement(one.text).name), one)
    for demand in demands:
        if demand.chain:
            line = by_name.get(
                canonicalize_name(demand.chain[0].partition(" ")[0].partition("[")[0])
            )
            if line is not None:
                yield line, demand
