"""preflight: what the packages behind a project's lines do to each torch stack, by uv's own dry run
beside the metadata of that stack.

Where the lines cannot be met together, those that keep the rest from being met are left out, each
with its reason, and the rest is followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.errors import BlockedError, LockError, WheelError
from warpfront.model import Distribution
from warpfront.port.preflight import rule_texts
from warpfront.port.preflight.asked import Asked
from warpfront.port.preflight.breaches import Breach
from warpfront.port.preflight.following import (
    Followed,
    breach_from,
    followed_lines,
    rehearsed_lines,
    unfollowed,
    unmet,
    wanted_lines,
)
from warpfront.port.preflight.stacks import CellStack
from warpfront.system.process import run
from warpfront.system.progress import Watch
from warpfront.wheels.candidates import why_hidden, why_no_candidate
from warpfront.wheels.metadata import read_remote_requires
from warpfront.wheels.resolution import Contradiction, Resolution, Terms
from warpfront.wheels.resolver import UvResolver
from warpfront.wheels.sources import Site
from warpfront.wheels.wheelless import askers_without_wheels

MOST_RESOLUTIONS = 60
"""How often uv is called for one stack while lines are left out."""

_SHOWN_CHARACTERS = 300

Known = dict[tuple[str, str], Distribution]
"""(name, version) -> its metadata: stacks share most of what they bring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A resolution of `lines`: the rest was left out, for the reasons in `unknown`."""

    resolution: Resolution | None
    lines: tuple[str, ...]
    left_out: tuple[str, ...]
    wheelless: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """The lines of a project on one stack. `local` are names that no index serves."""

    asked: tuple[Asked, ...]
    stack: CellStack
    site: Site
    watch: Watch
    known: Known
    local: frozenset[str] = frozenset()
    calls: list[int] = field(default_factory=lambda: [0])

    def followed(self) -> Followed:
        """Return the breaches by packages. An index out of reach leaves unknowns."""
        unknown = tuple(unfollowed(self.asked, self.stack))
        lines = wanted_lines(self.asked, self.stack, self.local)
        if not lines:
            return Followed(unknown=unknown)
        self.watch.step(self.stack.title, "following what the packages demand")
        try:
            found = self._followed(lines)
        except (BlockedError, LockError, WheelError) as error:
            found = Followed(unknown=(f"not followed: {error.message.splitlines()[0]}",))
        finally:
            self.watch.step(self.stack.title, "")
        return replace(found, unknown=(*unknown, *found.unknown), notes=(*self._hidden(),))

    def _followed(self, lines: tuple[str, ...]) -> Followed:
        inputs = replace(
            self.stack.inputs,
            cell_id=self.stack.title,
            requirements=lines,
            stack_requirements=(),
            index=None,
        )
        resolver = UvResolver(inputs, self.site, run=run, on_line=self.watch.say)
        installed = rehearsed_lines(self.asked, self.stack, self.local)
        excluded = tuple(self.stack.stack.excluded)
        changes = self._rehearsed(resolver, installed, excluded)
        if isinstance(changes, Mapping) and not self._disturbed(changes):
            return Followed(breaches=tuple(self._below(resolver, changes, lines)))
        if isinstance(changes, Mapping):
            return Followed(breaches=tuple(self._explained(resolver, changes, lines)))
        return self._in_part(resolver, lines, installed, changes)

    def _rehearsed(
        self, resolver: UvResolver, lines: tuple[str, ...], excludes: tuple[str, ...]
    ) -> Mapping[str, str] | Contradiction:
        if any(Version(one).is_prerelease for one in self.stack.stack.held.values()):
            # An installer does not keep an installed pre-release that a line does not name.
            return Contradiction(explanation="this stack's torch is a pre-release")
        return resolver.rehearsal(lines, self.stack.installed, excludes)

    def _disturbed(self, changes: Mapping[str, str]) -> bool:
        """Whether these installations replace a distribution of the stack, or break it."""
        stack = self.stack.stack
        broken = any(
            not need.specifier.contains(changes[name], prereleases=True)
            for name, need in stack.needs.items()
            if name in changes
        )
        return broken or any(name in stack.held for name in changes)

    def _in_part(
        self,
        resolver: UvResolver,
        lines: tuple[str, ...],
        installed: tuple[str, ...],
        refusal: Contradiction,
    ) -> Followed:
        """The same where uv finds no answer for all lines: the stack is left out, so that its
        demands are no reason, and then the lines that have no answer among themselves.
        """
        solved = self._solved(resolver, lines)
        breaches = self._unmet(resolver, solved)
        unknown = list(solved.unknown)
        kept = tuple(one for one in installed if one not in solved.left_out)
        excludes = (*self.stack.stack.excluded, *solved.wheelless)
        if solved.resolution is not None and not breaches:
            again = self._rehearsed(resolver, kept, excludes) if kept else {}
            if isinstance(again, Mapping) and self._disturbed(again):
                breaches = list(self._explained(resolver, again, solved.lines))
            elif isinstance(again, Contradiction) and not self._is_base_stack:
                unknown.append(f"with this torch uv finds no answer: {_shown(again)}")
        for line in solved.left_out[:5]:
            alone = self._solved(resolver, (line,), explain=False)
            breaches += self._unmet(resolver, alone)
        if not breaches and solved.resolution is None and not unknown:
            unknown.append(f"not followed: {_shown(refusal)}")
        return Followed(breaches=tuple(dict.fromkeys(breaches)), unknown=tuple(unknown))

    @property
    def _is_base_stack(self) -> bool:
        return any(Version(one).is_prerelease for one in self.stack.stack.held.values())

    def _solved(
        self, resolver: UvResolver, lines: tuple[str, ...], *, explain: bool = True
    ) -> Solved:
        """The lines without the stack, and without those that keep the others from an answer."""
        left_out: list[str] = []
        wheelless: list[str] = []
        unknown: list[str] = []
        kept = lines
        found: Resolution | Contradiction | None = None
        while kept and self.calls[0] < MOST_RESOLUTIONS:
            found = self._resolution(resolver, kept, wheelless)
            if isinstance(found, Resolution):
                break
            if more := askers_without_wheels(found.explanation, wheelless):
                wheelless += more
                unknown += [f"{name} has no wheel; what it demands is not known" for name in more]
                kept = tuple(one for one in kept if _name(one) not in more)
                continue
            culprits = self._culprits(resolver, kept, found, wheelless)
            unknown.append(self._why_left_out(culprits, found))
            left_out.append(culprits[-1])
            kept = tuple(one for one in kept if one != culprits[-1])
        if not isinstance(found, Resolution) and kept:
            unknown.append("not followed: too many lines contradict each other")
        return Solved(
            resolution=found if isinstance(found, Resolution) and kept else None,
            lines=kept,
            left_out=tuple(left_out),
            wheelless=tuple(wheelless),
            unknown=tuple(unknown) if explain else (),
        )

    def _resolution(
        self, resolver: UvResolver, lines: tuple[str, ...], wheelless: list[str]
    ) -> Resolution | Contradiction:
        self.calls[0] += 1
        own = (*self.stack.stack.held, *self.stack.stack.excluded)
        excludes = tuple(sorted({*own, *wheelless}))
        return resolver.resolution(lines, Terms(excludes=excludes, best_match=True))

    def _culprits(
        self,
        resolver: UvResolver,
        lines: tuple[str, ...],
        found: Contradiction,
        wheelless: list[str],
    ) -> tuple[str, ...]:
        """The fewest of `lines` that have no answer together: of those that uv names, where these
        are enough, and else the first that it names.
        """

        def contradict(some: tuple[str, ...]) -> bool:
            if not some or self.calls[0] >= MOST_RESOLUTIONS:
                return False
            found = self._resolution(resolver, some, wheelless)
            return isinstance(found, Contradiction) and not askers_without_wheels(
                found.explanation, wheelless
            )

        words = {canonicalize_name(one) for one in re.findall(r"[\w.-]+\w", found.explanation)}
        named = tuple(one for one in lines if _name(one) in words) or lines
        if len(named) == 1 or not contradict(named):
            return named[:1]
        for one in named:
            without = tuple(other for other in named if other != one)
            if contradict(without):
                named = without
        return named

    def _why_left_out(self, culprits: tuple[str, ...], found: Contradiction) -> str:
        asked = next((one.where for one in self.asked if self._is(one, culprits[-1])), "")
        where = f"{asked}: {culprits[-1]} was left out"
        if len(culprits) > 1:
            others = ", ".join(culprits[:-1])
            return f"{where}: it contradicts {others}: {_shown(found)}"
        with self.site.transport() as transport:
            why = why_no_candidate(Requirement(culprits[0]), self.site, transport)
        return f"{where}: {why or _shown(found)}"

    @staticmethod
    def _is(asked: Asked, line: str) -> bool:
        try:
            return _name(asked.text) == _name(line)
        except ValueError:
            return False

    def _unmet(self, resolver: UvResolver, solved: Solved) -> list[tuple[Asked, Breach]]:
        if solved.resolution is None:
            return []
        distributions = self._distributions(resolver, solved.resolution)
        demands = unmet(self.asked, solved.lines, distributions, self.stack)
        return [(line, breach_from(demand, self.stack)) for line, demand in demands]

    def _below(
        self, resolver: UvResolver, changes: Mapping[str, str], lines: tuple[str, ...]
    ) -> Iterator[tuple[Asked, Breach]]:
        """What packages bring that is excluded here and would come elsewhere: another triton."""
        if self.stack.stack.excluded:
            for line, breach in self._explained(resolver, changes, lines, is_disturbed=False):
                if breach.rule in {rule_texts.TRITON, rule_texts.FOREIGN}:
                    yield line, breach

    def _explained(
        self,
        resolver: UvResolver,
        changes: Mapping[str, str],
        lines: tuple[str, ...],
        *,
        is_disturbed: bool = True,
    ) -> Iterator[tuple[Asked, Breach]]:
        """The lines whose packages disturb the stack, of those that uv would install."""
        own = {*self.stack.stack.held, *self.stack.stack.excluded}
        pins = tuple(f"{name}=={version}" for name, version in changes.items() if name not in own)
        found: list[tuple[Asked, Breach]] = []
        resolution = self._resolution(resolver, pins, []) if pins else None
        if isinstance(resolution, Resolution):
            distributions = self._distributions(resolver, resolution)
            demands = unmet(self.asked, lines, distributions, self.stack)
            found = [(line, breach_from(demand, self.stack)) for line, demand in demands]
        if found or not is_disturbed:
            yield from found
            return
        # No single demand is the reason: the lines together are.
        stack = self.stack.stack
        moved = [f"{n} {v}" for n, v in changes.items() if n in stack.held or n in stack.needs]
        why = f"with all lines together uv takes {', '.join(moved)}"
        installed = followed_lines(self.asked, self.stack, self.local)
        first = next((one for one in installed if _name(one.text) in changes), installed[0])
        yield first, Breach(rule=rule_texts.MOVED_BY_DEPENDENCY, why=why)

    def _distributions(self, resolver: UvResolver, found: Resolution) -> tuple[Distribution, ...]:
        """With what the wheels demand, read without fetching them where that can be."""
        wanted = [one for one in found.versions.items() if one not in self.known]
        urls = {str(one.name): one.wheels[0].url for one in found.pylock.packages if one.wheels}
        with self.site.transport() as transport, ThreadPoolExecutor(8) as pool:

            def read(one: tuple[str, str]) -> tuple[str, ...] | None:
                url = urls.get(one[0])
                return read_remote_requires(url, transport) if url else None

            for (name, version), requires in zip(wanted, pool.map(read, wanted), strict=True):
                if requires is not None:
                    self.known[name, version] = Distribution(
                        name=name, version=version, requires=requires
                    )
        kept = {one[0]: self.known[one] for one in found.versions.items() if one in self.known}
        new = resolver.distributions(found, without=tuple(kept))
        self.known.update({(one.name, one.version): one for one in new})
        return (*kept.values(), *new)

    def _hidden(self) -> Iterator[str]:
        """Notes on versions that an earlier index hides from uv."""
        lines = followed_lines(self.asked, self.stack, self.local)
        with self.site.transport() as transport, ThreadPoolExecutor(8) as pool:

            def why(one: Asked) -> str:
                return why_hidden(Requirement(one.text), self.site, transport)

            for one, text in zip(lines, pool.map(why, lines), strict=True):
                if text:
                    yield f"{one.where}: {text}"


def _name(line: str) -> str:
    return canonicalize_name(Requirement(line).name)


def _shown(found: Contradiction) -> str:
    lines = [line.strip() for line in found.explanation.splitlines() if line.strip()]
    return " ".join(lines)[:_SHOWN_CHARACTERS] or "uv found no solution"
