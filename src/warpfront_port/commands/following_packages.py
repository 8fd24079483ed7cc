"""preflight: the effect of the packages behind a project's lines on each torch stack, by uv's own
dry run on the metadata of that stack.

Where the lines cannot be met together, those that keep the rest from being met are left out, each
with its reason, and the rest is followed.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.pylock import PackageSdist
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.errors import BlockedError, InputError, LockError, WheelError
from warpfront.model import Distribution
from warpfront.system.process import run
from warpfront.system.progress import Watch
from warpfront.wheels.candidates import why_hidden, why_no_candidate
from warpfront.wheels.metadata import read_remote_requires
from warpfront.wheels.missing_wheel_errors import requirers_without_wheels
from warpfront.wheels.resolution import Contradiction, Resolution, Terms
from warpfront.wheels.resolver import UvResolver
from warpfront.wheels.sdist_files import LONGEST_ARCHIVE_BYTES, unpack_project_files
from warpfront.wheels.sources import Link, Site
from warpfront.wheels.variant_pages import write_stand_in
from warpfront.wheels.wheelhouse import final_requires, save
from warpfront_port.commands.project_files import read_project
from warpfront_port.preflight import rule_texts
from warpfront_port.preflight.asked import Asked, Kind
from warpfront_port.preflight.breaches import Breach
from warpfront_port.preflight.following import (
    Followed,
    breach_from,
    constraint_lines,
    followed_lines,
    rehearsed_lines,
    unfollowed,
    unmet,
    wanted_lines,
)
from warpfront_port.preflight.stacks import CellStack

MOST_RESOLUTIONS = 60
"""How often uv is called for one stack while lines are left out."""

MOST_ARCHIVES = 12
"""How many source archives are fetched for one stack."""

_SHOWN_CHARACTERS = 300

Known = dict[tuple[str, str], Distribution]
"""(name, version) -> its metadata: stacks share most of what they bring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A resolution of `lines`: the rest was left out, for the reasons in `unknown`."""

    resolution: Resolution | None
    lines: tuple[str, ...]
    left_out: tuple[str, ...]
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
    unread: list[str] = field(default_factory=list)
    stood_for: list[str] = field(default_factory=list)

    def followed(self) -> Followed:
        """Return the breaches by packages. An index out of reach leaves unknowns."""
        unknown = tuple(unfollowed(self.asked, self.stack))
        lines = wanted_lines(self.asked, self.stack, self.local)
        if not lines:
            return Followed(unknown=unknown)
        self.watch.step(self.stack.title, "following what the packages demand")
        try:
            with tempfile.TemporaryDirectory(prefix="warpfront-") as folder:
                found = self._followed(lines, Path(folder))
        except (BlockedError, LockError, WheelError) as error:
            found = Followed(unknown=(f"not followed: {error.message.splitlines()[0]}",))
        finally:
            self.watch.step(self.stack.title, "")
        return replace(found, unknown=(*unknown, *found.unknown), notes=(*self._hidden(),))

    def _followed(self, lines: tuple[str, ...], folder: Path) -> Followed:
        inputs = replace(
            self.stack.inputs,
            cell_id=self.stack.title,
            requirements=lines,
            stack_requirements=(),
            index=None,
        )
        # What stands for packages without wheels comes from a folder of this run.
        site = replace(self.site, find_links=(*self.site.find_links, str(folder)))
        resolver = UvResolver(inputs, site, run=run, on_line=self.watch.say)
        installed = rehearsed_lines(self.asked, self.stack, self.local)
        tried = self._rehearsed(resolver, installed, folder)
        solved: Solved | None = None
        if isinstance(tried, Contradiction):
            solved = self._solved(resolver, lines, folder)
            installed = tuple(one for one in installed if one not in solved.left_out)
            tried = self._rehearsed(resolver, installed, folder) if installed else {}
        breaches = []
        unknown = list(solved.unknown if solved else ())
        if isinstance(tried, Mapping):
            breaches += self._explained(resolver, tried, lines)
        elif solved is not None:
            breaches += self._unmet(resolver, solved)
            if not (breaches or unknown or self._is_in_base):
                unknown.append(f"with this torch uv finds no answer: {_shown(tried)}")
        for line in solved.left_out[:5] if solved else ():
            alone = self._rehearsed(resolver, (line,), folder)
            if isinstance(alone, Mapping):
                breaches += self._explained(resolver, alone, (line,))
        unknown += [f"{name} has no wheel; what it demands is not known" for name in self.unread]
        return Followed(breaches=tuple(dict.fromkeys(breaches)), unknown=tuple(unknown))

    @property
    def _is_in_base(self) -> bool:
        """Return whether torch comes with the base, as a vendor's pre-release. No installer keeps
        one that no line names, so that uv is not tried on it.
        """
        return any(Version(one).is_prerelease for one in self.stack.stack.held.values())

    def _rehearsed(
        self, resolver: UvResolver, lines: tuple[str, ...], folder: Path
    ) -> Mapping[str, str] | Contradiction:
        """Return the installations of uv for these lines, without packages that it cannot read."""
        if self._is_in_base:
            return Contradiction(explanation="torch comes with the base")
        while True:
            kept = tuple(one for one in lines if _name(one) not in self.unread)
            if not kept:
                return {}
            terms = Terms(
                excludes=(*self.stack.stack.excluded, *self.unread),
                constraints=constraint_lines(self.asked, self.stack),
            )
            found = resolver.rehearsal(kept, self.stack.installed, terms)
            if isinstance(found, Mapping):
                return found
            if not self._read_archives(resolver, kept, found, folder):
                return found

    def _read_archives(
        self, resolver: UvResolver, lines: tuple[str, ...], found: Contradiction, folder: Path
    ) -> bool:
        """Return whether packages without wheels were the reason. A wheel of metadata stands for a
        package whose source archive has its demands; any other is left unread.
        """
        more = requirers_without_wheels(found.explanation, self.unread)
        new = tuple(name for name in more if name not in self.stood_for)
        archives = self._archives(resolver, lines, new[: MOST_ARCHIVES - len(self.stood_for)])
        self.stood_for.extend(archives)
        for name in dict.fromkeys((*more, *archives)):
            if name not in archives or not self._stand_in(name, archives[name], folder):
                self.unread.append(name)
        return bool(more)

    def _archives(
        self, resolver: UvResolver, lines: tuple[str, ...], names: tuple[str, ...]
    ) -> dict[str, tuple[str, PackageSdist]]:
        """Return the source archives that uv takes of these packages, each with its version."""
        own = {*self.stack.stack.held, *self.stack.stack.excluded}
        wanted = tuple(one for one in lines if _name(one) not in own)
        found: Resolution | Contradiction | None = None
        while names and not isinstance(found, Resolution):
            found = self._resolution(resolver, wanted, unread=names)
            if isinstance(found, Contradiction):
                more = requirers_without_wheels(found.explanation, (*self.unread, *names))
                if not more or len(names) >= MOST_ARCHIVES:
                    break
                names += more
        if not isinstance(found, Resolution):
            return {}
        return {
            str(one.name): (str(one.version), one.sdist)
            for one in found.pylock.packages
            if one.name in names and one.sdist is not None
        }

    def _stand_in(self, name: str, archive: tuple[str, PackageSdist], folder: Path) -> bool:
        """Write a wheel of a source archive's metadata, where that follows without running it."""
        version, sdist = archive
        asking = (Requirement(one.text) for one in self.asked if one.kind is Kind.REQUIREMENT)
        if any(canonicalize_name(one.name) == name and one.extras for one in asking):
            return False
        with (
            self.site.transport() as transport,
            tempfile.TemporaryDirectory(prefix="warpfront-") as place,
        ):
            url = sdist.url or str(sdist.path)
            link = Link(url=url, filename=sdist.filename, size_bytes=sdist.size)
            key = name, f"{version} (source archive)"
            if key not in self.known:
                path = Path(place) / "sdist.tar.gz"
                if (link.size_bytes or 0) > LONGEST_ARCHIVE_BYTES:
                    return False
                if save(link, path, transport) is not None:
                    return False
                requires = _demands_of(path, Path(place) / "files")
                if requires is None:
                    return False
                self.known[key] = Distribution(name=name, version=key[1], requires=requires)
        stem = f"{name.replace('-', '_')}-{version}"
        wheel = f"{stem}-py3-none-any.whl"
        write_stand_in(wheel, folder, requires=self.known[key].requires)
        return True

    def _disturbed(self, changes: Mapping[str, str]) -> bool:
        """Return whether these installations replace a distribution of the stack, or break it."""
        stack = self.stack.stack
        broken = any(
            not need.specifier.contains(changes[name], prereleases=True)
            for name, need in stack.needs.items()
            if name in changes
        )
        return broken or any(name in stack.held for name in changes)

    def _solved(self, resolver: UvResolver, lines: tuple[str, ...], folder: Path) -> Solved:
        """Resolve the lines without the stack, and without those that have no answer."""
        left_out: list[str] = []
        unknown: list[str] = []
        kept = lines
        found: Resolution | Contradiction | None = None
        while kept and self.calls[0] < MOST_RESOLUTIONS:
            kept = tuple(one for one in kept if _name(one) not in self.unread)
            found = self._resolution(resolver, kept)
            if isinstance(found, Resolution):
                break
            if self._read_archives(resolver, kept, found, folder):
                continue
            culprits = self._culprits(resolver, kept, found)
            unknown.append(self._why_left_out(culprits, found))
            left_out.append(culprits[-1])
            kept = tuple(one for one in kept if one != culprits[-1])
        if not isinstance(found, Resolution) and kept:
            unknown.append("not followed: too many lines contradict each other")
        return Solved(
            resolution=found if isinstance(found, Resolution) and kept else None,
            lines=kept,
            left_out=tuple(left_out),
            unknown=tuple(unknown),
        )

    def _resolution(
        self, resolver: UvResolver, lines: tuple[str, ...], unread: tuple[str, ...] = ()
    ) -> Resolution | Contradiction:
        self.calls[0] += 1
        own = (*self.stack.stack.held, *self.stack.stack.excluded)
        terms = Terms(
            excludes=tuple(sorted({*own, *self.unread})),
            constraints=constraint_lines(self.asked, self.stack),
            unread=unread,
            best_match=True,
        )
        return resolver.resolution(lines, terms)

    def _culprits(
        self,
        resolver: UvResolver,
        lines: tuple[str, ...],
        found: Contradiction,
    ) -> tuple[str, ...]:
        """Return the fewest of `lines` that have no answer together: of those that uv names, where
        these are enough, and else the first that it names.
        """

        def contradict(some: tuple[str, ...]) -> bool:
            if not some or self.calls[0] >= MOST_RESOLUTIONS:
                return False
            found = self._resolution(resolver, some)
            return isinstance(found, Contradiction) and not requirers_without_wheels(
                found.explanation, self.unread
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

    def _explained(
        self, resolver: UvResolver, changes: Mapping[str, str], lines: tuple[str, ...]
    ) -> list[tuple[Asked, Breach]]:
        """Return the lines whose packages disturb the stack, of those that uv would install; and
        those that bring a name that is excluded here, such as another triton.
        """
        is_disturbed = self._disturbed(changes)
        if not (is_disturbed or self.stack.stack.excluded):
            return []
        own = {*self.stack.stack.held, *self.stack.stack.excluded}
        pins = tuple(f"{name}=={version}" for name, version in changes.items() if name not in own)
        resolution = self._resolution(resolver, pins) if pins else None
        found: list[tuple[Asked, Breach]] = []
        if isinstance(resolution, Resolution):
            distributions = self._distributions(resolver, resolution)
            demands = unmet(self.asked, lines, distributions, self.stack)
            found = [(line, breach_from(demand, self.stack)) for line, demand in demands]
        if not is_disturbed:
            foreign = {rule_texts.TRITON, rule_texts.FOREIGN}
            return [one for one in found if one[1].rule in foreign]
        if found:
            return found
        # No single demand is the reason: the lines together are.
        stack = self.stack.stack
        moved = [f"{n} {v}" for n, v in changes.items() if n in stack.held or n in stack.needs]
        why = f"with all lines together uv takes {', '.join(moved)}"
        installed = followed_lines(self.asked, self.stack, self.local)
        first = next((one for one in installed if _name(one.text) in changes), installed[0])
        return [(first, Breach(rule=rule_texts.MOVED_BY_DEPENDENCY, why=why))]

    def _distributions(self, resolver: UvResolver, found: Resolution) -> tuple[Distribution, ...]:
        """Return the distributions with their demands, read by ranges of the wheels if possible."""
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
        """Return notes on versions that an earlier index hides from uv."""
        lines = followed_lines(self.asked, self.stack, self.local)
        with self.site.transport() as transport, ThreadPoolExecutor(8) as pool:

            def why(one: Asked) -> str:
                return why_hidden(Requirement(one.text), self.site, transport)

            for one, text in zip(lines, pool.map(why, lines), strict=True):
                if text:
                    yield f"{one.where}: {text}"


def _demands_of(archive: Path, folder: Path) -> tuple[str, ...] | None:
    """Return the demands in a source archive: of its metadata where that is final (PEP 643), or of
    its project's files where they need not be run; None where neither has them.
    """
    folder.mkdir()
    project = unpack_project_files(archive, folder)
    if project is None:
        return None
    metadata = project / "PKG-INFO"
    text = metadata.read_text("utf-8", errors="replace") if metadata.is_file() else ""
    if (final := final_requires(text)) is not None:
        return final
    try:
        read = read_project(project)
    except InputError:
        return None
    asked = [one for file in read for one in file.asked if one.kind is Kind.REQUIREMENT]
    texts = tuple(one.text for one in asked if one.is_installed)
    is_known = read and not any(file.unknown for file in read)
    return texts if is_known and not any(Requirement(one).url for one in texts) else None


def _name(line: str) -> str:
    return canonicalize_name(Requirement(line).name)


def _shown(found: Contradiction) -> str:
    lines = [line.strip() for line in found.explanation.splitlines() if line.strip()]
    return " ".join(lines)[:_SHOWN_CHARACTERS] or "uv found no solution"
