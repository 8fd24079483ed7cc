"""preflight: the effect of the packages behind a project's lines on each torch stack, by uv's
own dry run on the metadata of that stack.

Lines that contradict each other are reduced: those that keep the rest from being met are dropped,
each with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.errors import BlockedError, LockError, WheelError
from warpfront.system.progress import Watch
from warpfront.wheels.core_metadata import Distribution, readable_requirement, requirement_name
from warpfront.wheels.resolve.candidates import absence_of
from warpfront.wheels.resolve.demands import Stack, unmet_demands
from warpfront.wheels.resolve.resolver import Contradiction, Terms, rehearsed
from warpfront_port.preflight import findings
from warpfront_port.preflight.declared import DeclaredRequirement, Kind
from warpfront_port.preflight.effects import ProjectLines, StackBreaches, breach_from
from warpfront_port.preflight.findings import Breach
from warpfront_port.preflight.metadata_index import MOST_REQUESTS, MetadataIndex
from warpfront_port.preflight.stacks import CellStack

MOST_RESOLUTIONS = 60
"""The most calls of uv for one stack while lines are dropped."""

NEWEST_RELEASES = 24
"""The releases of a package that are looked through for one that fits."""

_SHOWN_CHARACTERS = 300

Lines = tuple[str, ...]
Installations = Mapping[str, str]
"""The packages that uv would install: name -> version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Following(ProjectLines):
    """The lines of a project on one stack, and the index that has their packages."""

    index: MetadataIndex
    watch: Watch
    calls: list[int] = field(default_factory=lambda: [0])

    def breaches(self) -> StackBreaches:
        """Return the breaches by packages. An index out of reach leaves unknowns."""
        unknown = tuple(self.unfollowed())
        of_stack = {*self.stack.stack.versions, *self.stack.stack.excluded}
        if of_stack.issuperset(line.name for line in self.followed()):
            return StackBreaches(unknown=unknown)
        self.watch.step(self.stack.title, "following what the packages demand")
        try:
            followed = self._breaches()
        except (BlockedError, LockError, WheelError) as error:
            followed = StackBreaches(unknown=(f"not followed: {error.message.splitlines()[0]}",))
        finally:
            self.watch.step(self.stack.title, "")
        silent = (f"out of reach: {url} ({why})" for url, why in self.index.silent.items())
        notes = []
        for line in self.followed():
            requirement = line.requirement
            absence = absence_of(requirement.specifier, self.index.versions(requirement.name))
            if absence and absence.hidden:  # by an earlier index, from uv; pip takes it
                notes.append(f"{line.where}: {requirement}: {absence.text}")
        unknown = (*unknown, *followed.unknown, *silent)
        return replace(followed, unknown=unknown, notes=tuple(notes))

    def _breaches(self) -> StackBreaches:
        # Without the lines that no source has a version for.
        lines = self.rehearsed()
        in_stack = self.stack.stack.versions
        outside = [line for line in lines if requirement_name(line) not in in_stack]

        def why(line: str) -> str:
            requirement = Requirement(line)
            absence = absence_of(requirement.specifier, self.index.versions(requirement.name))
            return absence.text if absence and not absence.hidden else ""

        with ThreadPoolExecutor(MOST_REQUESTS) as pool:
            reasons = dict(zip(outside, pool.map(why, outside), strict=True))
        offered = tuple(line for line in lines if not reasons.get(line))
        unknown = [f"{self._left_out(line)}: {text}" for line, text in reasons.items() if text]
        # No installer keeps a vendor's pre-release in a base: the stack is excluded at once.
        versions = map(Version, self.stack.stack.versions.values())
        is_in_base = any(version.is_prerelease for version in versions)
        outcome = self._tried(offered) if not is_in_base else Contradiction(explanation="")
        left_out: Lines = ()
        if isinstance(outcome, Contradiction):
            left_out, contradictions = self._culprits_of(offered)
            unknown += contradictions
            offered = tuple(line for line in offered if line not in left_out)
            if left_out and not is_in_base:
                outcome = self._tried(offered)
        if isinstance(outcome, Contradiction):
            alone = self._tried(offered, with_stack=False)
            breaches = [] if isinstance(alone, Contradiction) else self._unmet(alone, offered)
            if not (breaches or unknown or is_in_base):
                unknown.append(f"with this torch uv finds no answer: {_shown(outcome)}")
            outcome = alone
        else:
            breaches = self._explained(outcome, offered)
        for line in left_out[:5]:
            alone = self._tried((line,))
            if isinstance(alone, Mapping):
                breaches += self._explained(alone, (line,))
        if isinstance(outcome, Mapping):
            tells = "is a source archive, and only building it tells what it demands"
            unread = (package for package in outcome.items() if package in self.index.unread)
            unknown += (f"{name} {version} {tells}" for name, version in unread)
        return StackBreaches(breaches=tuple(dict.fromkeys(breaches)), unknown=tuple(unknown))

    def _tried(self, lines: Lines, *, with_stack: bool = True) -> Installations | Contradiction:
        """Return the installations of uv for these lines.

        `with_stack` keeps the stack as it is installed; False resolves without it, and without the
        packages that conflict with it.
        """
        stack_names = () if with_stack else tuple(self.stack.stack.versions)
        installed_names = {*stack_names, *self.stack.stack.excluded}
        tried_lines = tuple(line for line in lines if requirement_name(line) not in installed_names)
        if not tried_lines:
            return {}
        self.calls[0] += 1
        terms = Terms(excludes=tuple(sorted(installed_names)), constraints=self.constraints())
        return rehearsed(
            tried_lines,
            self.stack.installed if with_stack else (),
            terms,
            inputs=replace(self.stack.inputs, cell_id=self.stack.title),
            index_url=self.index.url,
            cache=self.index.cache,
        )

    def _culprits_of(self, lines: Lines) -> tuple[Lines, list[str]]:
        """Return the lines that keep the rest from being met without the stack, and why."""
        left_out: list[str] = []
        reasons: list[str] = []
        while remaining := tuple(line for line in lines if line not in left_out):
            outcome = self._tried(remaining, with_stack=False)
            if isinstance(outcome, Mapping):
                break
            if self.calls[0] >= MOST_RESOLUTIONS:
                reasons.append("not followed: too many lines contradict each other")
                break
            *earlier, last = self._culprits(remaining, outcome)
            against = f"it contradicts {', '.join(earlier)}: " if earlier else ""
            reasons.append(f"{self._left_out(last)}: {against}{_shown(outcome)}")
            left_out.append(last)
        return tuple(left_out), reasons

    def _culprits(self, lines: Lines, contradiction: Contradiction) -> Lines:
        """Return the fewest of `lines` that have no answer together: of those that uv names, where
        these are enough, and else the first that it names.
        """

        def contradict(some: Lines) -> bool:
            if not some or self.calls[0] >= MOST_RESOLUTIONS:
                return False
            return isinstance(self._tried(some, with_stack=False), Contradiction)

        words = set(map(canonicalize_name, re.findall(r"[\w.-]+\w", contradiction.explanation)))
        named = tuple(line for line in lines if requirement_name(line) in words) or lines
        if len(named) == 1 or not contradict(named):
            return named[:1]
        for line in named:
            without = tuple(other for other in named if other != line)
            if contradict(without):
                named = without
        return named

    def _left_out(self, line: str) -> str:
        lines = (each for each in self.declared if each.kind is Kind.REQUIREMENT)
        where = next((each.where for each in lines if each.name == requirement_name(line)), "")
        return f"{where}: {line} was left out"

    def _unmet(
        self, installations: Installations, lines: Lines
    ) -> list[tuple[DeclaredRequirement, Breach]]:
        distributions = [
            Distribution(name=name, version=version, requires=self.index.requires(name, version))
            for name, version in installations.items()
            if name not in {*self.stack.stack.versions, *self.stack.stack.excluded}
        ]
        unmet = []
        for line, demand in self.unmet(lines, distributions):
            breach = breach_from(demand, self.stack)
            if breach.rule == findings.MOVED_BY_DEPENDENCY:
                stack, machine = self.stack, self.stack.inputs.machine
                text = fitting_text(self.index, demand.asker, stack.stack, stack.python, machine)
                breach = replace(breach, why="\n".join(filter(None, (breach.why, text))))
            condition = line.condition
            for above, below in pairwise((*demand.chain, demand.wanted)):
                release = re.sub(r"\[.*?\]", "", above)
                if requirement_name(below) in self.index.conditional.get(release, ()):
                    condition = f"setup.py of {release}"
                    break
            unmet.append((replace(line, condition=condition), breach))
        return unmet

    def _explained(
        self, installations: Installations, lines: Lines
    ) -> list[tuple[DeclaredRequirement, Breach]]:
        """Return the lines whose packages disturb the stack, of those that uv would install; and
        those that bring a name that is excluded here, such as another triton.
        """
        stack, moved = self.stack.stack, []
        for name, version in installations.items():
            need = stack.needs.get(name)
            is_unmet = need and not need.specifier.contains(version, prereleases=True)
            if name in stack.versions or is_unmet:
                moved.append(f"{name} {version}")
        breaches = self._unmet(installations, lines) if moved or stack.excluded else []
        if not moved:
            foreign = {findings.TRITON, findings.FOREIGN}
            return [breach for breach in breaches if breach[1].rule in foreign]
        if breaches:
            return breaches
        # No single demand is the reason: the lines together are.
        why = f"with all lines together uv takes {', '.join(moved)}"
        installed = self.followed()
        moving = (line for line in installed if line.name in installations)
        first = next(moving, installed[0])
        return [(first, Breach(rule=findings.MOVED_BY_DEPENDENCY, why=why))]


def fitting_text(index: MetadataIndex, name: str, stack: Stack, python: str, machine: str) -> str:
    """Return which of the newest releases of a package accepts the stack, by its own METADATA; ""
    where no index has a release of it.
    """
    offered = {offer.version for offer in index.offers(name) if not offer.version.is_prerelease}
    newest = [str(version) for version in sorted(offered, reverse=True)[:NEWEST_RELEASES]]
    torch = f"torch {stack.versions.get('torch', '')}".strip()
    unread = 0
    for version in newest:
        requires = index.requires(name, version)
        release = Distribution(name=name, version=version, requires=requires)
        if (name, version) in index.unread:
            unread += 1
        elif not unmet_demands(
            (release,), (name,), stack, python=python, machine=machine, has_shims=False
        ):
            demands = filter(None, map(readable_requirement, requires))
            if any(demand.name == "torch" for demand in demands):
                return f"by its METADATA {name} {version} is the newest that accepts {torch}"
            return f"{name} {version} demands no torch: whether its code fits is not determined"
    if unread:
        return f"{name}: not determined, {unread} of the {len(newest)} newest would need a build"
    none = f"by its METADATA none of the {len(newest)} newest of {name} accepts {torch}"
    return none if newest else ""


def fitting_texts(index: MetadataIndex, names: Iterable[str], stack: CellStack) -> Iterator[str]:
    """Return the sentence of `fitting_text` for each package; silent sources are named."""
    for name in names:
        text = fitting_text(index, name, stack.stack, stack.python, stack.inputs.machine)
        silent = "".join(f"; out of reach: {url} ({why})" for url, why in index.silent.items())
        yield text or f"no index has a package {name}{silent}"


def _shown(contradiction: Contradiction) -> str:
    lines = [line.strip() for line in contradiction.explanation.splitlines() if line.strip()]
    return " ".join(lines)[:_SHOWN_CHARACTERS] or "uv found no solution"
