"""Resolution: from what a cell asks for to the exact wheels, by uv, from what this site
can reach. Edge.

Nothing of a site but the bytes' hashes ends in a lock.

uv takes a name from the first index with a page for it. So names that belong to one index have
pages in an index of our own, read before any other source, and an empty page forbids a name.
Overlaid stubs demand nothing. If the site's first source has a name without the version of a
parent image, its page lists the one file of the parent's lock: its hash identifies it.
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from packaging.pylock import Package, Pylock, PylockValidationError
from packaging.requirements import Requirement
from packaging.tags import (
    Tag,
    compatible_tags,
    cpython_tags,
    create_compatible_tags_selector,
)
from packaging.utils import canonicalize_name, parse_wheel_filename

from warpfront.errors import BlockedError, LockError, StoreError, WheelError, without_secrets
from warpfront.matrix.cell import NO_VARIANT, Pin, Recipe, Source
from warpfront.matrix.language import Patch
from warpfront.system.process import DISK_FULL, Completed, run
from warpfront.system.progress import Line
from warpfront.system.store import scratch_folder, storing
from warpfront.system.toml import dump_toml
from warpfront.wheels.core_metadata import NAME, Distribution, requires_of
from warpfront.wheels.lock.values import (
    PYPI,
    IndexRule,
    LockedWheel,
    LockInputs,
    UnbuiltWheel,
    index_rule,
    known_names,
    misplaced,
)
from warpfront.wheels.metadata import write_environment
from warpfront.wheels.rocm import ROCM, rocm_wheel
from warpfront.wheels.sources import (
    FLAT_PAGE,
    FLAT_WAY_OUT,
    Link,
    NoAnswer,
    Reach,
    Site,
    files_of,
    links,
    local_path,
    page_of,
    reach_of,
)
from warpfront.wheels.store.archives import write_stand_in
from warpfront.wheels.store.wheelhouse import Wheelhouse, read_wheel_metadata, sha256_of
from warpfront.wheels.uv_program import Table, option_file, uv_command, wheels_for

if TYPE_CHECKING:
    from warpfront.wheels.transport import Transport
    from warpfront.wheels.variants.pages import TakenVariant, VariantPages


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Terms of a resolution beyond the requirements.

    `overrides` replace every demand on their names. `excludes` are names without any effect,
    wherever they are demanded. `constraints` limit versions of demanded names. `unread` are source
    archives whose demands only a build would show. `answered` are pins of names that a shim of the
    image replaces: no index is read for them, and they are in no lock.
    """

    overrides: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    answered: tuple[Pin, ...] = ()


NO_TERMS = Terms()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """uv found no solution; its explanation."""

    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Distributions that uv resolved, by normalized name, each with its version."""

    pylock: Pylock

    @property
    def versions(self) -> Mapping[str, str]:
        return {package.name: str(package.version) for package in self.pylock.packages}

    @property
    def unbuilt(self) -> tuple[str, ...]:
        """The names that were found as source archives only."""
        packages = self.pylock.packages
        return tuple(
            package.name for package in packages if package.sdist is not None and not package.wheels
        )

    def package(self, name: str) -> Package:
        """Return a resolved distribution."""
        return next(package for package in self.pylock.packages if package.name == name)

    def without(self, names: Iterable[str]) -> Resolution:
        names = frozenset(names)
        packages = [package for package in self.pylock.packages if package.name not in names]
        return Resolution(pylock=dataclasses.replace(self.pylock, packages=packages))


Outcome = Resolution | Contradiction


@dataclass(frozen=True, slots=True, kw_only=True)
class Sdist:
    """A source archive in the wheelhouse, of a public `index` or of another `source`."""

    path: Path
    sha256: str
    index: str = ""
    source: str = ""


class WheelMaker(Protocol):
    """Makes wheels that no index has, for one cell.

    A wheel that is not built yet is represented by its metadata alone and an `UnbuiltWheel`.
    """

    def from_source(self, source: Source) -> tuple[LockedWheel, Recipe | UnbuiltWheel | None]:
        """Return the wheel of a folder or a commit, and how it was built if in a container."""

    def from_sdist(self, sdist: Sdist, recipe: Recipe) -> tuple[LockedWheel, Recipe | UnbuiltWheel]:
        """Return the wheel of an index's source archive, built in a container."""

    def from_wheel(self, original: LockedWheel, patches: tuple[Patch, ...]) -> LockedWheel:
        """Return the wheel with patches in it, which no index has."""


_PROJECT = "this-cell"
_EXPLANATION_CHARACTERS = 1500
_INSTALLS = re.compile(r"^ \+ ([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
_PLATFORM_MINORS = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
# uv's advice to take a name from whichever index has the highest version: docs/security.md.
_OTHER_STRATEGY = re.compile(r"^hint: .*--index-strategy.*$", re.MULTILINE)
_NETWORK_WORDS = re.compile(
    r"failed to fetch|error sending request|http status|error decoding response|timed out|"
    r"request failed after|network|error reading a body|failed to read metadata",
    re.IGNORECASE,
)


class UvResolver:
    """A resolver of one cell's requirements, by uv, from what this site can reach. Raises
    `BlockedError` if a source is out of reach and no other has its distributions.
    """

    def __init__(
        self,
        inputs: LockInputs,
        transport: Transport,
        *,
        on_line: Line,
        wheelhouse: Wheelhouse,
        held: tuple[LockedWheel, ...] = (),
    ) -> None:
        self._inputs, self.site, self._transport = inputs, transport.site, transport
        self._on_line = on_line
        self._wheelhouse = wheelhouse
        self.reach = reach_of(inputs, self.site, on_line)
        self.tags = supported_tags(inputs.python, inputs.machine, inputs.glibc)
        self._variants: VariantPages | None = None
        if inputs.variants:
            from warpfront.wheels.variants.pages import VariantPages  # noqa: PLC0415 - optional

            self._variants = VariantPages(inputs, self.tags, self._wheelhouse, transport)
        self._shelf = OverlayIndex(inputs, transport, self.reach, self._variants, held)
        self._given: dict[str, LockedWheel] = {}

    def give(self, wheel: LockedWheel, extras: tuple[str, ...] = ()) -> str:
        """Use this wheel of the wheelhouse for its name; return the requirement for it."""
        self._given[canonicalize_name(wheel.name)] = wheel
        extras_text = f"[{','.join(extras)}]" if extras else ""
        return f"{wheel.name}{extras_text} @ {self._wheelhouse.path(wheel).as_uri()}"

    def given_for(self, requirement: str) -> str:
        """Return the requirement, asking for the wheel that was given under its name if one was."""
        wheel = self._given.get(canonicalize_name(Requirement(requirement).name))
        return requirement if wheel is None else self.give(wheel)

    def sdist(self, resolution: Resolution, name: str) -> Sdist:
        """Return the source archive of a distribution, verified, in the wheelhouse."""
        package = resolution.package(name)
        sdist = package.sdist
        if sdist is None:
            raise LockError(f"{self._inputs.cell_id}: {name} {package.version} has no sources")
        url = sdist.url or str(sdist.path)
        file, sha256 = self._stored(name, Link(url=url, filename=sdist.filename))
        digest = sdist.hashes.get("sha256", sha256)
        if digest != sha256:
            raise WheelError(f"{sdist.filename}: its index says sha256 {digest}, it has {sha256}")
        return Sdist(path=file, sha256=sha256, index=self._index(package, url))

    def wheel_at(self, source: Source) -> LockedWheel:
        """Return the wheel at a source's address, verified, in the wheelhouse."""
        filename = unquote(source.location.rpartition("/")[2])
        link = Link(url=source.location, filename=filename)
        path, sha256 = self._stored(source.name, link)
        if sha256 != source.pin:
            raise WheelError(f"{source}: its line says sha256 {source.pin}, it has {sha256}")
        return wheel_of(path, sha256, source=str(source))

    def resolution(self, requirements: tuple[str, ...], terms: Terms = NO_TERMS) -> Outcome:
        """Return the distributions that meet `requirements` on `terms`.

        Raise `BlockedError` if the index or PyPI is out of reach and no other source has them.
        """
        inputs, reach = self._inputs, self.reach
        resolution = self._compiled(requirements, terms)
        if isinstance(resolution, Resolution):
            return resolution
        silent = reach.silent
        if inputs.index is not None and silent.get(inputs.index.url) == FLAT_PAGE:
            raise LockError(f"{inputs.cell_id}: {inputs.index.url}: {FLAT_PAGE}", hint=FLAT_WAY_OUT)
        stack_is_silent = inputs.index is not None and inputs.index.url in silent
        pypi_is_silent = self.site.index_url in silent
        if stack_is_silent and not pypi_is_silent:
            alone = self._compiled(inputs.stack_requirements, NO_TERMS)
            stack_is_silent = isinstance(alone, Contradiction)
        if stack_is_silent or pypi_is_silent:
            explanation = " ".join(resolution.explanation.split())
            raise BlockedError(
                f"{inputs.cell_id}: out of reach: "
                + "; ".join(f"{url} ({reason})" for url, reason in silent.items()),
                hint=f"no other source here has it. Without the index, uv concludes: {explanation}",
            )
        return resolution

    def distributions(
        self, resolution: Resolution, *, without: Collection[str] = ()
    ) -> tuple[Distribution, ...]:
        """Return the resolved distributions with their metadata, except the names in `without`."""
        packages = [
            package for package in resolution.pylock.packages if package.name not in without
        ]
        with ThreadPoolExecutor(8) as pool:
            return tuple(pool.map(self._distribution, packages))

    def _distribution(self, package: Package) -> Distribution:
        """Return the demands of the best file, by the index's own file (PEP 658) or the wheel."""
        built = self._given.get(package.name)
        variant = self._variant(package)
        if built is not None:
            requires = read_wheel_metadata(self._wheelhouse.path(built)).requires
        elif variant is not None and variant.requires is not None:
            requires = variant.requires
        else:
            best = self._best(package)
            file = local_path(best.url)
            beside = None if file else self._transport.read(f"{best.url}.metadata")
            if isinstance(beside, tuple):
                requires = requires_of(beside[2])
            else:
                file = file or self._stored(package.name, best)[0]
                requires = read_wheel_metadata(file).requires
        version = built.version if built else str(package.version)
        return Distribution(name=package.name, version=version, requires=requires)

    def _variant(self, package: Package) -> TakenVariant | None:
        return self._variants.taken(package.name, package.version) if self._variants else None

    def _best(self, package: Package) -> Link:
        """Return the best file of a distribution for this cell. Raise `LockError` for none."""
        inputs = self._inputs
        named = [(wheel, parse_wheel_filename(wheel.filename)) for wheel in package.wheels or ()]
        # Of equal tags the highest build.
        named.sort(key=lambda pair: (pair[1][2], pair[0].filename), reverse=True)
        select = create_compatible_tags_selector(self.tags)
        best = next(select((wheel, name[3]) for wheel, name in named), None)
        if best is None:
            raise LockError(
                f"{inputs.cell_id}: {package.name} {package.version} has no wheel for Python "
                f"{inputs.python}, {inputs.machine}, glibc {inputs.glibc}",
                hint="ask for a version that has one",
            )
        return Link(
            url=best.url or str(best.path),
            filename=best.filename,
            sha256=best.hashes.get("sha256", ""),
            size_bytes=best.size,
        )

    def _stored(self, name: str, link: Link) -> tuple[Path, str]:
        """Return a file in the wheelhouse, with its sha256: for indexes that give no hashes."""
        return self._wheelhouse.bring(link, self._transport, f"{self._inputs.cell_id}: {name}")

    def _index(self, package: Package, url: str) -> str:
        """Return the public index to name, whichever mirror served the file: the one that it
        belongs to; else the cell's for what only that can have, and PyPI for the rest.
        """
        index, where = self._inputs.index, index_rule(package.name, self._inputs)
        if where is not None and (where.alone or self._shelf.holds(package.name)):
            return where.url
        local_label = package.version is not None and package.version.local is not None
        same_host = index and urlsplit(url).netloc == urlsplit(index.url).netloc != ""
        return index.url if index and (local_label or same_host) else PYPI

    def wheels(self, resolution: Resolution) -> tuple[LockedWheel, ...]:
        """Return one wheel per distribution, the best for the base's Python and C library."""
        with ThreadPoolExecutor(8) as pool:
            wheels = tuple(sorted(pool.map(self.wheel, resolution.pylock.packages)))
        _check_stack(self._inputs, wheels)
        for wheel in wheels:
            for line in self._variants.why_not(wheel.name) if self._variants else ():
                if line.startswith(f"{wheel.name} {wheel.version}:"):
                    self._on_line(f"{self._inputs.cell_id}: {line}")
        size_bytes = sum(wheel.size_bytes for wheel in wheels)
        self._on_line(f"{self._inputs.cell_id}: {len(wheels)} wheels, {size_bytes:,} bytes")
        for target in self._inputs.targets:
            of_target = sum(
                wheel.size_bytes for wheel in wheels if wheel.name.endswith(f"-{target}")
            )
            self._on_line(f"{self._inputs.cell_id}: of these {of_target:,} bytes for {target}")
        return wheels

    def wheel(self, package: Package) -> LockedWheel:
        """Return the lock's entry for the best file of a distribution, or for its variant."""
        if package.name in self._given:
            return self._given[package.name]
        by_variant = self._variant(package)
        link = by_variant.link if by_variant else self._best(package)
        plain = by_variant.plain if by_variant else link.filename
        sha256, size = link.sha256, link.size_bytes
        if not sha256:
            unnamed = dataclasses.replace(link, filename=plain)
            file, sha256 = self._stored(package.name, unnamed)
            size = file.stat().st_size
        if size is None:
            local = local_path(link.url)
            answer = local.stat().st_size if local else self._transport.size_bytes(link.url)
            if isinstance(answer, NoAnswer):
                raise BlockedError(f"{self._inputs.cell_id}: {answer}")
            size = answer
        return LockedWheel(
            name=package.name,
            version=str(parse_wheel_filename(plain)[1]),
            filename=link.filename,
            sha256=sha256,
            size_bytes=size,
            index=self._index(package, link.url),
            variant=by_variant.variant if by_variant else NO_VARIANT,
        )

    def _compiled(self, requirements: tuple[str, ...], terms: Terms) -> Outcome:
        """uv's resolution, of wheels only; again with a wheel made of `rocm` if it lacked one."""
        outcome = self._from_shelf(requirements, terms)
        if ROCM in self._given or not (
            isinstance(outcome, Contradiction) and re.search(rf"\b{ROCM}\b", outcome.explanation)
        ):
            return outcome
        unread = dataclasses.replace(terms, unread=(*terms.unread, ROCM))
        undecided = self._from_shelf(requirements, unread)
        if isinstance(undecided, Contradiction) or ROCM not in undecided.versions:
            return outcome
        sdist, targets = self.sdist(undecided, ROCM), self._inputs.targets
        with scratch_folder() as folder:
            stored = self._wheelhouse.keep(rocm_wheel(sdist.path, folder, targets))
        self.give(dataclasses.replace(wheel_of(*stored, sdist=sdist), targets=targets))
        return self._from_shelf(requirements, terms)

    def _from_shelf(self, requirements: tuple[str, ...], terms: Terms) -> Outcome:
        """uv's resolution, repeated until every name that belongs to one index came from there."""
        self._shelf.put(known_names(self._inputs))
        archives: tuple[str, ...] = ()
        while True:
            unread = tuple(sorted({*terms.unread, *archives}))
            outcome = self._compiled_once(requirements, dataclasses.replace(terms, unread=unread))
            if isinstance(outcome, Resolution):
                new = self._shelf.missing(outcome.versions)
                if not new and not (self._variants and self._variants.read(outcome.versions)):
                    self._shelf.check(outcome.without(shim.name for shim in terms.answered))
                    return outcome
            else:
                new = self._shelf.missing_of(outcome.explanation)
                # uv gets only the name and version of archives that may be missing: their demands
                # would need their code to run.
                skipped = {*unread, *self._given, ROCM}
                more = tuple(
                    name
                    for name in (() if new else self._inputs.allow_builds)
                    if name not in skipped and re.search(rf"\b{name}\b", outcome.explanation)
                )
                if not (new or more):
                    lines = (outcome.explanation, *self._shelf.lacking(outcome.explanation))
                    return Contradiction(explanation="\n    ".join(lines))
                archives += more
            self._shelf.put(new)

    def _compiled_once(self, requirements: tuple[str, ...], terms: Terms) -> Outcome:
        inputs = self._inputs
        with storing(Path(tempfile.gettempdir())), scratch_folder() as folder:
            if ROCM in self._given and ROCM not in terms.unread:
                requirements = (*requirements, self.given_for(ROCM))
            project = {
                "name": _PROJECT,
                "version": "0",
                "requires-python": f"=={inputs.python}.*",
                "dependencies": list(requirements),
            }
            (folder / "pyproject.toml").write_text(dump_toml({"project": project}), "utf-8")
            arguments = (
                *("pip", "compile", "pyproject.toml", "--quiet"),
                *("--format", "pylock.toml", "--output-file", "pylock.toml"),
                *wheels_for(inputs.python, uv_platform(inputs)),
                *(word for name in terms.unread for word in ("--no-binary", name)),
                *option_file(folder, "overrides", tuple(map(self.given_for, terms.overrides))),
                *option_file(folder, "excludes", terms.excludes),
                *option_file(folder, "constraints", terms.constraints),
            )
            command = uv_command(
                arguments,
                site=self.site,
                indexes=self.reach.indexes,
                folder=folder,
                overlay=self._shelf.tables(folder / "shelf", terms.answered),
                unread=terms.unread,
            )
            completed = run(command)
            if completed.returncode != 0:
                return _read_failure(inputs, completed)
            text = (folder / "pylock.toml").read_text("utf-8")
            try:
                return Resolution(pylock=Pylock.from_dict(tomllib.loads(text)))
            except (tomllib.TOMLDecodeError, PylockValidationError) as error:
                reason = f"uv wrote a lock that is not valid: {error}"
                raise LockError(f"{inputs.cell_id}: {reason}") from error


def rehearsed(
    requirements: tuple[str, ...],
    installed: Iterable[Distribution],
    terms: Terms,
    *,
    inputs: LockInputs,
    index_url: str,
    cache: Path,
) -> Mapping[str, str] | Contradiction:
    """Return what uv would install (name -> version) where `installed` are there, by its own dry
    run, from one index of wheels on this machine. Only metadata is read. Of `terms`, excludes and
    constraints count. `cache` is a folder for uv's own cache.
    """
    with scratch_folder() as folder:
        write_environment(folder / "environment", installed)
        (folder / "requirements.in").write_text("\n".join(requirements), "utf-8")
        arguments = (
            *("pip", "install", "--dry-run", "--target", "environment"),
            *wheels_for(inputs.python, uv_platform(inputs)),
            *("--cache-dir", str(cache), "--requirements", "requirements.in"),
            *option_file(folder, "excludes", terms.excludes),
            *option_file(folder, "constraints", terms.constraints),
        )
        site, extra = Site(index_url=index_url), {"NO_PROXY": "127.0.0.1"}
        command = uv_command(arguments, site=site, indexes=(index_url,), folder=folder, extra=extra)
        completed = run(command)
    if completed.returncode != 0:
        return _read_failure(inputs, completed)
    lines = _INSTALLS.findall(completed.stdout + completed.stderr)
    return {canonicalize_name(name): version for name, version in lines}


def uv_platform(inputs: LockInputs) -> str:
    """uv's name for the newest manylinux level that the base's C library can load."""
    minor = int(inputs.glibc.split(".")[1])
    level = next((level for level in _PLATFORM_MINORS if level <= minor), None)
    if level is None:
        raise LockError(f"{inputs.cell_id}: glibc {inputs.glibc} is older than any manylinux level")
    return f"{inputs.machine}-manylinux_2_{level}"


def _read_failure(inputs: LockInputs, completed: Completed) -> Contradiction:
    """uv's refusal: a contradiction is a value, anything else an error of its own kind."""
    text = without_secrets(completed.stderr or completed.stdout).replace(_PROJECT, inputs.cell_id)
    if DISK_FULL in text.lower():
        raise StoreError(
            f"{inputs.cell_id}: the disk is full, so uv could not resolve it\n{_explanation(text)}",
            hint="free some space, or `warpfront clean`",
        )
    if "No solution found" in text:
        return Contradiction(explanation=_explanation(text))
    if _NETWORK_WORDS.search(text):
        raise BlockedError(
            f"{inputs.cell_id}: an index stopped answering while resolving\n{_explanation(text)}",
            hint="try again; uv names the URL and the reason above",
        )
    raise LockError(f"{inputs.cell_id}: uv could not resolve it\n{_explanation(text)}")


def _explanation(text: str) -> str:
    """Return the reasons uv gives, without its headings and hints about its own options."""
    text = _OTHER_STRATEGY.sub("", text)
    lines = [
        re.sub(r"^\s*(error:|cause:|\u00d7|[\u2500-\u25ff]+)\s*", "", line)
        for line in text.splitlines()
    ]
    relevant = [line.strip() for line in lines if line.strip() and "No solution found" not in line]
    return "\n".join(f"    {line}" for line in relevant)[:_EXPLANATION_CHARACTERS]


def _check_stack(inputs: LockInputs, wheels: tuple[LockedWheel, ...]) -> None:
    """Check that the stack has its extras, and that a base's torch gets no second one."""
    names = {wheel.name for wheel in wheels}
    for text in inputs.stack_requirements:
        demand = Requirement(text)
        # An extra that a wheel does not have is a warning to uv, and nothing of it is installed.
        lacking = [extra for extra in demand.extras if f"amd-{demand.name}-{extra}" not in names]
        if lacking:
            raise LockError(
                f"{inputs.cell_id}: {demand.name}{demand.specifier} has no extra "
                f"{', '.join(sorted(lacking))} on its index: no device code for that target",
                hint="leave the target out of the row, or name another `torch:` or `index:`",
            )
    if inputs.index is None and (wrong := misplaced(wheels, inputs)):
        raise LockError(
            f"{inputs.cell_id}: its requirements bring {wrong}",
            hint="drop the requirement that needs it, or install it without dependencies",
        )


_LEGACY_LEVELS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def supported_tags(python: str, machine: str, glibc: str) -> tuple[Tag, ...]:
    """Return installable tags, best first: of CPython X.Y on `machine` with glibc 2.NN."""
    major, minor = (int(part) for part in python.split("."))
    platforms: list[str] = []
    for level in range(int(glibc.split(".")[1]), 4, -1):
        platforms.append(f"manylinux_2_{level}_{machine}")
        if level in _LEGACY_LEVELS:
            platforms.append(f"{_LEGACY_LEVELS[level]}_{machine}")
    platforms.append(f"linux_{machine}")  # what ROCm wheels up to 6.2 called themselves
    name = f"cp{major}{minor}"
    return (
        *cpython_tags((major, minor), abis=[name], platforms=platforms),
        *compatible_tags((major, minor), interpreter=name, platforms=platforms),
    )


def wheel_of(
    path: Path, sha256: str, *, source: str = "", sdist: Sdist | None = None
) -> LockedWheel:
    """Return the lock's entry for a wheel in the wheelhouse."""
    name, version, _, _ = parse_wheel_filename(path.name)
    return LockedWheel(
        name=name,
        version=str(version),
        filename=path.name,
        sha256=sha256,
        size_bytes=path.stat().st_size,
        index=sdist.index if sdist else "",
        sdist=sdist.path.name if sdist else "",
        sdist_sha256=sdist.sha256 if sdist else "",
        source=sdist.source if sdist else source,
    )


class OverlayIndex:
    """The shelf of one cell. `put` asks the indexes; the rest is memory."""

    def __init__(
        self,
        inputs: LockInputs,
        transport: Transport,
        reach: Reach,
        variants: VariantPages | None,
        held: Iterable[LockedWheel] = (),
    ) -> None:
        self._inputs, self._transport = inputs, transport
        self._reach, self._variants = reach, variants
        self._held = {
            wheel.name: wheel
            for wheel in held
            if wheel.index
            and not (index_rule(wheel.name, inputs) or inputs.allows_variants_of(wheel.name))
        }
        self._files: dict[str, tuple[Link, ...] | None] = {}

    def holds(self, name: str) -> bool:
        """Return true if its index has the name."""
        return bool(self._files.get(name))

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of `names` that belong to one index and have no page yet."""
        canonical = {str(canonicalize_name(name)) for name in names}
        return tuple(
            sorted(
                name
                for name in canonical
                if name not in self._files
                and (index_rule(name, self._inputs) or self._inputs.allows_variants_of(name))
            )
        )

    def missing_of(self, text: str) -> tuple[str, ...]:
        """Return the same for uv's explanation; with all names of a parent if it has one."""
        names = {canonicalize_name(name) for name in re.findall(NAME, text)}
        overlaid = self._held.keys() - self._files.keys()
        return (*self.missing(names), *(sorted(overlaid) if overlaid & names else ()))

    def put(self, names: Iterable[str]) -> None:
        """Put what the index of each of `names` offers of it here."""
        for name in self.missing(names):
            files = self._offered(name, index_rule(name, self._inputs))
            if files and self._variants and self._inputs.allows_variants_of(name):
                files = self._variants.page(name, files)
            self._files[name] = files
        wheels = [self._held[name] for name in names if name in self._held]
        with ThreadPoolExecutor(8) as pool:
            same = pool.map(self._same, wheels)
            self._files |= zip((wheel.name for wheel in wheels), same, strict=True)

    def tables(self, folder: Path, answered: Iterable[Pin]) -> list[Table]:
        """Write the overlay as an index, `folder`, with an empty wheel for each of `answered`, and
        return it for uv, with the indexes of its files: uv has to know their credentials.
        """
        folder.mkdir()
        stubs: dict[str, tuple[Link, ...]] = {}
        for pin in answered:
            filename = f"{pin.name.replace('-', '_')}-{pin.version}-py3-none-any.whl"
            url = write_stand_in(filename, folder).as_uri()
            stubs[pin.name] = (Link(url=url, filename=filename),)
        for name, files in {**self._files, **stubs}.items():
            if files is None:
                continue
            listed = []
            for link in files:
                variant = self._variants.stood_for(link.filename) if self._variants else None
                if variant is None:
                    listed.append(link)
                else:  # to a stand-in
                    path = write_stand_in(variant.plain, folder, requires=variant.requires or ())
                    listed.append(replace(link, url=path.as_uri(), sha256=""))
            (folder / name).mkdir(parents=True)
            (folder / name / "index.html").write_text(page_of(listed), "utf-8")
        stack = [self._inputs.index.url] if self._inputs.index else []
        urls = dict.fromkeys((*stack, *(index.url for index in self._inputs.own_indexes)))
        own = [{"name": f"own-{n}", "url": url, "explicit": True} for n, url in enumerate(urls)]
        return [{"name": "shelf", "url": folder.as_uri()}, *own]

    def lacking(self, text: str) -> tuple[str, ...]:
        """Lines about the names in an explanation of uv's that have no variant for the cell."""
        if self._variants is None:
            return ()
        names = sorted({canonicalize_name(name) for name in re.findall(NAME, text)})
        return tuple(line for name in names for line in self._variants.why_not(name))

    def check(self, resolution: Resolution) -> None:
        """Raise `LockError` where a name did not come from its page: never, unless uv changes."""
        for package in resolution.pylock.packages:
            files = self._files.get(package.name)
            if files is None or package.directory or package.archive:
                continue
            filenames = {link.filename for link in files}
            archives = [archive.filename for archive in (package.sdist,) if archive]
            chosen = {*archives, *(wheel.filename for wheel in package.wheels or ())}
            if not chosen <= filenames:
                raise LockError(
                    f"{self._inputs.cell_id}: {', '.join(sorted(chosen - filenames))} came from "
                    "elsewhere than its index",
                    hint="this uv orders indexes otherwise: use the version that came with "
                    "warpfront",
                )

    def _offered(self, name: str, where: IndexRule | None) -> tuple[Link, ...] | None:
        """Return the files of a name in its index, or in the index's local mirrors together;
        none; or None if the site's other indexes may have it. A name that belongs to no index is
        overlaid for its variants: then the first index of the site that has it counts.
        """
        unanswered: list[NoAnswer] = []
        groups: list[tuple[tuple[str, bool], ...]] = [(source,) for source in self._reach.sources]
        if where is not None:
            reached = not self._transport.site.no_index and where.url not in self._reach.silent
            groups = [((where.url, False),) if reached else (), self._mirrors(where)]
        for sources in groups:
            files: list[Link] = []
            for source, flat in sources:
                answer = links(source, name, self._transport, flat=flat)
                if not isinstance(answer, NoAnswer):
                    files += [link for link in answer if _names(link.filename, name)]
                elif answer.is_failure:
                    unanswered.append(answer)
            if files:
                return tuple(map(_hashed, files))
        if unanswered:
            raise BlockedError(
                f"{self._inputs.cell_id}: {name}: {unanswered[0]}",
                hint="only this index may have it; try again",
            )
        return () if where is not None and where.alone else None

    def _same(self, wheel: LockedWheel) -> tuple[Link, ...] | None:
        """Return the file of the parent's lock, if one of the site's sources has it."""
        for source, flat in self._reach.sources:
            for _, link in files_of(source, wheel.name, self._transport, flat=flat):
                if link.filename == wheel.filename and link.sha256 in {"", wheel.sha256}:
                    return (replace(link, sha256=wheel.sha256),)
        return None

    def _mirrors(self, where: IndexRule) -> tuple[tuple[str, bool], ...]:
        """Return this machine's mirrors of the cell's index: folders of pip's find-links; for
        PyPI also pip's `index-url` and extra indexes that are folders. An index to which
        matrix.yaml gives names has no mirror.
        """
        site = self._transport.site
        if self._inputs.index is None or where.url != self._inputs.index.url:
            return ()
        folders = tuple((link, True) for link in site.find_links if local_path(link) is not None)
        if where.url != PYPI:
            return folders
        stands = [url for url in self._reach.indexes if url == site.index_url or local_path(url)]
        return (*folders, *((stand, False) for stand in stands))


def _hashed(link: Link) -> Link:
    """Return the link with its local file's hash, which uv would unpack the wheel to compute."""
    path = None if link.sha256 else local_path(link.url)
    if path is None or not path.is_file():
        return link
    status = path.stat()
    return replace(link, sha256=_sha256(path, status.st_size, status.st_mtime_ns))


@cache
def _sha256(path: Path, _size: int, _written_ns: int) -> str:
    return sha256_of(path)


def _names(filename: str, name: str) -> bool:
    """Return true if a file is one of the distribution `name`: folders have those of others too."""
    if filename.endswith("-variants.json"):
        return canonicalize_name(filename.removesuffix("-variants.json").rpartition("-")[0]) == name
    stem = filename.removesuffix(".whl").removesuffix(".tar.gz").removesuffix(".zip")
    prefix = stem.split("-")[0] if filename.endswith(".whl") else stem.rpartition("-")[0]
    return canonicalize_name(prefix) == name
