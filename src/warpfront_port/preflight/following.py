"""The packages behind a line: what to resolve, and whose demands lead back to it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from warpfront.wheels.core_metadata import Distribution, plain_requirement
from warpfront.wheels.lock.values import UnmetDemand
from warpfront.wheels.resolve.demands import unmet_demands
from warpfront_checks.guard.policy import Policy
from warpfront_checks.guard.refusal import explanation
from warpfront_port.preflight import findings
from warpfront_port.preflight.declared import DeclaredRequirement, Kind
from warpfront_port.preflight.effects import applies, breach_of
from warpfront_port.preflight.findings import Breach
from warpfront_port.preflight.stacks import CellStack

_PREFIX = "warpfront guard: "


@dataclass(frozen=True, slots=True, kw_only=True)
class StackBreaches:
    """The breaches of a stack by packages, each with the line that leads to it; `unknown` is what
    could not be followed, `notes` what changes nothing.
    """

    breaches: tuple[tuple[DeclaredRequirement, Breach], ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectLines:
    """The lines of a project on one stack. `local` are names that no index serves."""

    declared: tuple[DeclaredRequirement, ...]
    stack: CellStack
    local: frozenset[str] = frozenset()

    def followed(self, kind: Kind = Kind.REQUIREMENT) -> tuple[DeclaredRequirement, ...]:
        """Return the lines that an installer resolves on this stack: installed, from an index, and
        without a marker that is false on it.
        """
        return tuple(
            line
            for line in self.declared
            if line.kind is kind
            and line.is_installed
            and not line.requirement.url
            and line.name not in self.local
            and applies(line.requirement, self.stack, line.group)
        )

    def constraints(self) -> tuple[str, ...]:
        """Return the constraints that an installer applies, without those that are findings."""
        lines = (n for n in self.followed(Kind.CONSTRAINT) if not breach_of(n, self.stack))
        return tuple(plain_requirement(line.requirement) for line in lines)

    def rehearsed(self) -> tuple[str, ...]:
        """Return the lines to try on the stack as it is installed.

        They have no markers: a resolver may know no extra of the project. Lines that are findings
        already are skipped or lose their versions, so that they hide no other finding.
        """
        lines: list[str] = []
        for line in self.followed():
            if line.name in self.stack.stack.excluded:
                continue
            breach = breach_of(line, self.stack)
            if breach is None or breach.rule == findings.COMPANION:
                lines.append(plain_requirement(line.requirement))
            elif line.name in self.stack.stack.versions:
                lines.append(line.requirement.name)
        return tuple(dict.fromkeys(lines))

    def unfollowed(self) -> Iterator[str]:
        """Yield the lines whose packages are at a URL: only a build might tell their demands."""
        for line in self.declared:
            if line.kind is Kind.REQUIREMENT and line.is_installed and line.requirement.url:
                is_held = line.name in self.stack.stack.versions
                if applies(line.requirement, self.stack, line.group) and not is_held:
                    name = line.requirement.name
                    yield f"{line.where}: {name} is at a URL; what it demands is not known"

    def unmet(
        self, lines: tuple[str, ...], distributions: Iterable[Distribution]
    ) -> Iterator[tuple[DeclaredRequirement, UnmetDemand]]:
        """Yield each unmet demand of a package with the line that brought the package."""
        stack, machine = self.stack, self.stack.inputs.machine
        demands = unmet_demands(
            distributions, lines, stack.stack, python=stack.python, machine=machine, has_shims=False
        )
        by_name: dict[str, DeclaredRequirement] = {}
        for line in self.declared:
            if line.kind is Kind.REQUIREMENT and line.is_installed:
                by_name.setdefault(line.name, line)
        for demand in demands:
            if demand.chain:
                first = demand.chain[0].partition(" ")[0].partition("[")[0]
                asking = by_name.get(canonicalize_name(first))
                if asking is not None:
                    yield asking, demand


def breach_from(demand: UnmetDemand, stack: CellStack) -> Breach:
    """Return the breach by a package's demand: its chain (`vllm 0.11.0 -> torch==2.8.0`), the
    reason and the way out.
    """
    name = canonicalize_name(Requirement(demand.wanted).name)
    if name == "triton" and name not in stack.stack.versions:
        rule = findings.TRITON
    elif name in stack.stack.foreign:
        rule = findings.FOREIGN
    elif name in stack.stack.needs:
        rule = findings.NEEDS
    else:
        rule = findings.MOVED_BY_DEPENDENCY
    chain = " -> ".join((*demand.chain, demand.wanted))
    # The guard's own sentences about a demand: the image's version, and the next step.
    shims = {name: version.partition("+")[0] for name, version in stack.stack.answered.items()}
    reasons = dict.fromkeys(shims, "this torch has another build of it")
    policy = Policy(
        cell="",
        title=stack.title,
        protected=dict(stack.stack.versions),
        sentinels={**stack.stack.foreign, **reasons},
        needs={name: str(need.specifier) for name, need in stack.stack.needs.items()},
    )
    asker, requirement = demand.chain[-1], Requirement(demand.wanted)
    text = f"{asker} depends on {requirement.name}{requirement.specifier}"
    lines = (line.removeprefix(_PREFIX) for line in explanation(text, policy).splitlines())
    return Breach(rule=rule, why="\n".join((chain, *lines)))
