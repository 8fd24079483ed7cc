"""Resolution: from what a cell asks for to the exact wheels, by uv, from what this site
can reach. Edge.

The only place that knows uv's and pip's arguments. URLs with credentials reach uv through its
environment, never through its arguments, and nothing of a site but the bytes' hashes ends in a
lock.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

import tomli_w
import uv
from packaging.pylock import Package, PackageSdist, PackageWheel, Pylock, PylockValidationError
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from warpfront.errors import BlockedError, CommandFailedError, LockError, WheelError
from warpfront.model import Distribution, LockedWheel, LockInputs, Pin, Source, WheelIndex
from warpfront.system import process
from warpfront.system.process import Command, Completed, Run
from warpfront.system.store import storing
from warpfront.system.watch import Line
from warpfront.wheels.archives import unpack
from warpfront.wheels.resolution import NO_TERMS, Contradiction, Resolution, Sdist, Terms
from warpfront.wheels.sources import (
    PYPI,
    Link,
    Refusal,
    Site,
    links,
    local_path,
    probe,
    without_secrets,
)
from warpfront.wheels.wheelhouse import (
    Build,
    Wheelhouse,
    put_in_place,
    read_requires,
    requires_of,
    save,
)

if TYPE_CHECKING:
    from warpfront.wheels.transport import Transport

SDISTS = frozenset({"rocm"})
"""Distributions that their index offers as a source archive only (AMD's, from ROCm 7.14): built
once by us.
"""

BUILD_CONSTRAINTS = ("setuptools==80.9.0", "wheel==0.45.1")
"""What an sdist is built with: a fixed choice, or two machines would build wheels with two hashes.
"""

# A build that asks for torch gets none in isolation: it would be another than the cell's.
_NO_TORCH = tuple(
    f"{name}==0+name.the.package.under.builds" for name in ("torch", "torchvision", "torchaudio")
)
_STACK = "stack"
_PROJECT = "this-cell"
_EXPLANATION_CHARACTERS = 1500
_KEPT_SETTINGS = frozenset(
    {"UV_CACHE_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS", "UV_PYTHON_DOWNLOADS"}
)
_PLATFORM_MINORS = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
_NETWORK_WORDS = re.compile(
    r"failed to fetch|error sending request|http status|error decoding response|timed out|"
    r"request failed after|network|error reading a body|failed to read metadata",
    re.IGNORECASE,
)


def uv_binary() -> Path:
    """The uv that came with this installation."""
    return Path(uv.find_uv_bin())


def uv_version() -> str:
    return importlib.metadata.version("uv")


def read_site(run: Run) -> Site:
    """What pip, asked with `pip config list`, and the environment say of indexes, certificate and
    proxies.
    """
    argv = (sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list")
    completed = run(Command(argv=argv)).check(hint="is pip installed here?")
    values = read_pip_configuration(completed.stdout)
    environment = process.environment()
    credentials: dict[str, tuple[str, str]] = {}

    def urls(key: str) -> tuple[str, ...]:
        return tuple(_without_credentials(url, credentials) for url in values.get(key, "").split())

    return Site(
        index_url=(urls("index-url") or (PYPI,))[0],
        extra_index_urls=urls("extra-index-url"),
        find_links=urls("find-links"),
        no_index=values.get("no-index", "").lower() in {"1", "true", "yes", "on"},
        certificate=values.get("cert") or _first(environment, _CERTIFICATES) or None,
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        proxies=_proxies(environment, values.get("proxy", "")),
        credentials=credentials,
    )


def read_pip_configuration(text: str) -> Mapping[str, str]:
    """The output of `pip config list` as option -> value; the environment over `install` over
    `global`.
    """
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if equals and section in sections:
            sections[section][option] = str(ast.literal_eval(value))
    return {**sections["global"], **sections["install"], **sections[":env:"]}


def why_unresolvable(index: WheelIndex, stack: Iterable[Pin], site: Site) -> str:
    """Why the stack cannot be had from here, with the URL; "" when its index answers or the site
    has it.
    """
    pins = tuple(stack)
    if not pins:
        return ""
    reason = _why_not(site, index.url, pins[0].name)
    if not reason:
        return ""
    with site.transport(connect_seconds=5.0, stall_seconds=10.0) as transport:
        lacking = [str(pin) for pin in pins if not _site_offers(pin, site, transport)]
    return f"{index.url}: {reason}; nothing else here has {', '.join(lacking)}" if lacking else ""


def wheel_of(
    path: Path, sha256: str, *, source: str = "", index: str = "", sdist: Sdist | None = None
) -> LockedWheel:
    """The lock's entry for a wheel in the wheelhouse."""
    name, version, _, _ = parse_wheel_filename(path.name)
    return LockedWheel(
        name=name,
        version=str(version),
        filename=path.name,
        sha256=sha256,
        size_bytes=path.stat().st_size,
        index=sdist.index if sdist else index,
        sdist=sdist.path.name if sdist else "",
        sdist_sha256=sdist.sha256 if sdist else "",
        source=sdist.source if sdist else source,
    )


class UvResolver:
    """A `Resolver` of one cell's requirements, by uv, from what this site can reach."""

    def __init__(
        self,
        inputs: LockInputs,
        site: Site,
        *,
        run: Run,
        on_line: Line,
        wheelhouse: Wheelhouse | None = None,
    ) -> None:
        self._inputs = inputs
        self._site = site
        self._run = run
        self._on_line = on_line
        self._wheelhouse = wheelhouse or Wheelhouse()
        self._reach = _reach(inputs, site, on_line)
        self._given: dict[str, LockedWheel] = {}

    def give(self, wheel: LockedWheel, extras: tuple[str, ...] = ()) -> str:
        """Take this wheel, which the wheelhouse has, wherever its name is demanded; the requirement
        that asks for it.
        """
        self._given[canonicalize_name(wheel.name)] = wheel
        asked = f"[{','.join(extras)}]" if extras else ""
        return f"{wheel.name}{asked} @ {self._wheelhouse.path(wheel).as_uri()}"

    def given_for(self, requirement: str) -> str:
        """The requirement, asking for the wheel that was given under its name if one was."""
        wheel = self._given.get(canonicalize_name(Requirement(requirement).name))
        return requirement if wheel is None else self.give(wheel)

    def sdist(self, resolution: Resolution, name: str) -> Sdist:
        """The source archive of a distribution, verified, in the wheelhouse."""
        package = next(one for one in resolution.pylock.packages if one.name == name)
        if package.sdist is None:
            raise LockError(f"{self._inputs.cell_id}: {name} {package.version} has no sources")
        with self._site.transport() as transport:
            return self._locking(transport).sdist(package, package.sdist)

    def wheel_at(self, source: Source) -> LockedWheel:
        """The wheel at a source's address, verified, in the wheelhouse."""
        filename = unquote(source.location.rpartition("/")[2])
        with self._site.transport() as transport:
            link = Link(url=source.location, filename=filename)
            kept, sha256 = self._locking(transport).kept(source.name, link)
        if sha256 != source.pin:
            raise WheelError(f"{source}: its line says sha256 {source.pin}, it has {sha256}")
        return wheel_of(kept, sha256, source=str(source))

    def resolution(
        self, requirements: tuple[str, ...], terms: Terms = NO_TERMS
    ) -> Resolution | Contradiction:
        """The distributions that meet `requirements` on `terms`.

        Raises `BlockedError` when the index or PyPI is out of reach and nothing else here has what
        is asked for.
        """
        inputs, reach = self._inputs, self._reach
        found = self._compiled(requirements, terms)
        if isinstance(found, Resolution):
            return found
        silent = reach.silent or {}
        stack_is_silent = inputs.index is not None and inputs.index.url in silent
        pypi_is_silent = self._site.index_url in silent
        if stack_is_silent and not pypi_is_silent:
            alone = self._compiled(inputs.stack_requirements, NO_TERMS)
            stack_is_silent = isinstance(alone, Contradiction)
        if stack_is_silent or pypi_is_silent:
            raise BlockedError(
                f"{inputs.cell_id}: out of reach: "
                + "; ".join(f"{url} ({reason})" for url, reason in silent.items()),
                hint=f"nothing else here has it: {found.explanation}",
            )
        return found

    def distributions(
        self, resolution: Resolution, *, without: Collection[str] = ()
    ) -> tuple[Distribution, ...]:
        """What was found, with its metadata; not asked for the names in `without`."""
        asked = [one for one in resolution.pylock.packages if one.name not in without]
        with self._site.transport() as transport, ThreadPoolExecutor(8) as pool:
            return tuple(pool.map(self._locking(transport).distribution, asked))

    def wheels(self, resolution: Resolution) -> tuple[LockedWheel, ...]:
        """One wheel per distribution, the best for the base's Python and C library."""
        with self._site.transport() as transport, ThreadPoolExecutor(8) as pool:
            found = pool.map(self._locking(transport).wheel, resolution.pylock.packages)
            wheels = tuple(sorted(found))
        _check_stack(self._inputs, wheels)
        size_bytes = sum(wheel.size_bytes for wheel in wheels)
        self._on_line(f"{self._inputs.cell_id}: {len(wheels)} wheels, {size_bytes:,} bytes")
        return wheels

    def _compiled(self, requirements: tuple[str, ...], terms: Terms) -> Resolution | Contradiction:
        """uv's resolution. Wheels only, and a second time with the sdists we allow if that is what
        was missing.
        """
        found = self._compiled_once(requirements, terms)
        if isinstance(found, Contradiction) and any(
            re.search(rf"\b{name}\b", found.explanation) for name in SDISTS
        ):
            return self._compiled_once(requirements, terms, sdists=SDISTS)
        return found

    def _compiled_once(
        self, requirements: tuple[str, ...], terms: Terms, *, sdists: frozenset[str] = frozenset()
    ) -> Resolution | Contradiction:
        inputs = self._inputs
        with tempfile.TemporaryDirectory(prefix="warpfront-") as name:
            folder = Path(name)
            pinned = self._reach.stack is not None
            project = _project(inputs, requirements, pinned_to_stack=pinned)
            (folder / "pyproject.toml").write_text(project, "utf-8")
            arguments = (
                *("pip", "compile", "pyproject.toml", "--format", "pylock.toml"),
                *_settings(folder, terms.unread),
                *("--quiet", "--output-file", "pylock.toml", "--python", sys.executable),
                *("--python-version", inputs.python, "--python-platform", _platform(inputs)),
                *("--only-binary", ":all:"),
                *(
                    word
                    for one in sorted({*sdists, *terms.unread})
                    for word in ("--no-binary", one)
                ),
                *_written(folder, "build-constraints", BUILD_CONSTRAINTS),
                *_written(folder, "overrides", terms.overrides),
                *_written(folder, "excludes", terms.excludes),
                *_written(folder, "constraints", terms.constraints),
                *("--index-strategy", "unsafe-best-match"),
            )
            completed = self._run(
                _uv_command(arguments, site=self._site, indexes=self._reach, cwd=folder)
            )
            if completed.returncode != 0:
                return _read_failure(inputs, completed)
            text = (folder / "pylock.toml").read_text("utf-8")
            return Resolution(pylock=_read_pylock(text, inputs.cell_id))

    def _locking(self, transport: Transport) -> _Locking:
        inputs = self._inputs
        return _Locking(
            inputs=inputs,
            site=self._site,
            tags=supported_tags(inputs.python, inputs.machine, inputs.glibc),
            transport=transport,
            wheelhouse=self._wheelhouse,
            build=sdist_builder(self._site, self._run),
            given=self._given,
        )


def supported_tags(python: str, machine: str, glibc: str) -> tuple[Tag, ...]:
    """What may be installed, best first: CPython `python` (X.Y) on `machine` with C library `glibc`
    (2.NN).
    """
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


def sdist_builder(site: Site, run: Run, *, constraints: tuple[str, ...] = ()) -> Build:
    """Builds a wheel from an sdist or an unpacked one in isolation, with fixed build tools and
    timestamps, and whatever `constraints` allow.
    """

    def build(sdist: Path, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        fixed = folder / "build-constraints.txt"
        fixed.write_text("\n".join((*BUILD_CONSTRAINTS, *constraints)) + "\n", "utf-8")
        command = _uv_command(
            (
                *("build", "--wheel", "--no-config", "--index-strategy", "unsafe-best-match"),
                *("--python", sys.executable, "--build-constraints", str(fixed)),
                *("--out-dir", str(folder), str(sdist)),
            ),
            site=site,
            indexes=_Reach(site=_answering(site), stack=None),
            extra={"SOURCE_DATE_EPOCH": "315532800"},
        )
        run(command).check(hint=f"{sdist.name} must build with {', '.join(BUILD_CONSTRAINTS)}")
        built = sorted(folder.glob("*.whl"))
        if len(built) != 1:
            raise CommandFailedError(f"{sdist.name}: built {len(built)} wheels, not one")
        return built[0]

    return build


def pure_builder(site: Site, run: Run) -> Build:
    """Builds a wheel of Python code alone from sources in isolation. Raises `LockError` for one
    that needs torch to build, or holds compiled code: those need the cell's own container.
    """
    build = sdist_builder(site, run, constraints=_NO_TORCH)

    def pure(sdist: Path, folder: Path) -> Path:
        with tempfile.TemporaryDirectory(prefix="warpfront-") as name:
            wheel = build(unpack(sdist, Path(name) / sdist.stem), folder)
        if not wheel.name.endswith("-none-any.whl"):
            raise LockError(
                f"{wheel.name}: holds compiled code, for the machine that built it",
                hint="name it under `builds:` of its image in matrix.yaml: it is then built in the "
                "image's own container",
            )
        return wheel

    return pure


def install_toolbox(folder: Path, *, python: str, machine: str, site: Site, run: Run) -> Path:
    """nox, at this installation's version, with what it needs for Python `python` (X.Y) on
    `machine`, below `folder`.

    Made once per version, aside, and moved into place.
    """
    wanted = f"nox=={importlib.metadata.version('nox')}"
    hint = "the checks need nox inside the image's Python"
    return install_tools(
        folder, (wanted,), python=python, machine=machine, site=site, run=run, hint=hint
    )


def install_tools(
    folder: Path,
    wanted: tuple[str, ...],
    *,
    python: str,
    machine: str,
    site: Site,
    run: Run,
    hint: str,
) -> Path:
    """Requirements that programs in an image need and the image does not hold, below `folder`, for
    Python `python` (X.Y) on `machine`. Made once, aside, and moved into place. torch is never among
    them.
    """
    text, mark = " ".join(wanted), folder / ".made-of"
    if mark.is_file() and mark.read_text("utf-8") == text:
        return folder
    with storing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            with tempfile.TemporaryDirectory(prefix="warpfront-") as name:
                command = _uv_command(
                    (
                        *("pip", "install", "--no-config", "--target", str(aside), *wanted),
                        *("--python", sys.executable, "--python-version", python),
                        *("--python-platform", f"{machine}-manylinux_2_28"),
                        *("--only-binary", ":all:", "--index-strategy", "unsafe-best-match"),
                        *_written(Path(name), "constraints", _NO_TORCH),
                    ),
                    site=site,
                    indexes=_Reach(site=_answering(site), stack=None),
                    cwd=Path(name),
                )
                run(command).check(hint=hint)
            (aside / ".made-of").write_text(text, "utf-8")
            aside.chmod(0o755)
            put_in_place(aside, folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return folder


def installed_in(folder: Path) -> tuple[str, ...]:
    """The distributions in a folder of tools, as exact pins."""
    found = importlib.metadata.distributions(path=[str(folder)])
    return tuple(sorted(f"{canonicalize_name(one.name)}=={one.version}" for one in found))


_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_LEGACY_LEVELS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reach:
    """The indexes to use, best first (mirrors, then PyPI), the cell's own if it answers, and why
    others do not.
    """

    site: tuple[str, ...]
    stack: str | None
    silent: Mapping[str, str] | None = None


def _reach(inputs: LockInputs, site: Site, on_line: Line) -> _Reach:
    """Ask every index first, briefly: uv would give up at the first that does not answer."""
    names = [Requirement(text).name for text in (*inputs.requirements, *inputs.stack_requirements)]
    silent: dict[str, str] = {}
    for url in site.indexes:
        if names and (reason := _why_not(site, url, names[0])) and not _says_no_such(reason):
            silent[url] = reason
    stack = inputs.index.url if inputs.index and inputs.stack_requirements else None
    if stack is not None and inputs.stack_requirements:
        reason = _why_not(site, stack, Requirement(inputs.stack_requirements[0]).name)
        if reason:
            silent[stack] = reason
    for url, reason in silent.items():
        on_line(f"{inputs.cell_id}: {url}: {reason}; going on without it")
    return _Reach(
        site=tuple(url for url in site.indexes if url not in silent),
        stack=None if stack in silent else stack,
        silent=silent,
    )


def _why_not(site: Site, url: str, name: str) -> str:
    return "pip's no-index is set" if site.no_index else probe(site, url, name)


def _says_no_such(reason: str) -> bool:
    """A mirror that lacks one distribution still serves others."""
    return reason.startswith(("HTTP 404", "no such folder")) or "names no files" in reason


def _answering(site: Site) -> tuple[str, ...]:
    """The site's indexes without those that do not answer."""
    reasons = {url: _why_not(site, url, "pip") for url in site.indexes}
    return tuple(url for url, why in reasons.items() if not why or _says_no_such(why))


def _settings(folder: Path, unread: tuple[str, ...]) -> tuple[str, ...]:
    """No settings of this machine's; where sources are taken unread, the one that says so."""
    if not unread:
        return ("--no-config",)
    entries = [{"name": name, "requires-dist": []} for name in unread]
    (folder / "uv.toml").write_text(tomli_w.dumps({"dependency-metadata": entries}), "utf-8")
    return ("--config-file", "uv.toml")


def _written(folder: Path, option: str, lines: tuple[str, ...]) -> tuple[str, ...]:
    """The option with a file of `lines`; nothing where there are none."""
    if not lines:
        return ()
    (folder / f"{option}.txt").write_text("\n".join(lines) + "\n", "utf-8")
    return (f"--{option}", f"{option}.txt")


def _project(inputs: LockInputs, requirements: tuple[str, ...], *, pinned_to_stack: bool) -> str:
    """A project that asks for `requirements`; the stack's may come from the cell's index only."""
    stack = {canonicalize_name(Requirement(text).name) for text in inputs.stack_requirements}
    document: dict[str, object] = {
        "project": {
            "name": _PROJECT,
            "version": "0",
            "requires-python": f"=={inputs.python}.*",
            "dependencies": list(requirements),
        }
    }
    if pinned_to_stack:
        document["tool"] = {"uv": {"sources": {name: {"index": _STACK} for name in sorted(stack)}}}
    return tomli_w.dumps(document)


def _uv_command(
    arguments: tuple[str, ...],
    *,
    site: Site,
    indexes: _Reach,
    cwd: Path | None = None,
    extra: Mapping[str, str] | None = None,
) -> Command:
    """uv with this site's sources. Indexes come first to last; the cell's own is the last, so that
    what PyPI has too comes from PyPI.
    """
    ours = [site.with_credentials(url) for url in indexes.site if url != indexes.stack]
    if indexes.stack is not None:
        ours.append(f"{_STACK}={site.with_credentials(indexes.stack)}")
    environment = {
        **site.proxies,
        **({"SSL_CERT_FILE": site.certificate} if site.certificate else {}),
        "UV_HTTP_TIMEOUT": "30",
        "UV_FIND_LINKS": ",".join(site.with_credentials(url) for url in site.find_links),
        **(extra or {}),
    }
    if ours:
        environment |= {"UV_INDEX": " ".join(ours[:-1]), "UV_DEFAULT_INDEX": ours[-1]}
    hosts = tuple(word for host in site.trusted_hosts for word in ("--allow-insecure-host", host))
    settings = [name for name in process.environment() if name.startswith("UV_")]
    return Command(
        argv=(str(uv_binary()), *arguments, *hosts, *(() if ours else ("--no-index",))),
        cwd=cwd,
        environment={name: value for name, value in environment.items() if value},
        timeout_seconds=1800,
        unset=tuple(name for name in settings if name not in _KEPT_SETTINGS),
    )


def _platform(inputs: LockInputs) -> str:
    """uv's name for the newest manylinux level that the base's C library can load."""
    minor = int(inputs.glibc.split(".")[1])
    level = next((one for one in _PLATFORM_MINORS if one <= minor), None)
    if level is None:
        raise LockError(f"{inputs.cell_id}: glibc {inputs.glibc} is older than any manylinux level")
    return f"{inputs.machine}-manylinux_2_{level}"


def _read_failure(inputs: LockInputs, completed: Completed) -> Contradiction:
    """uv's refusal: a contradiction is a value, anything else an error of its own kind."""
    text = without_secrets(completed.stderr or completed.stdout).replace(_PROJECT, inputs.cell_id)
    if "No solution found" in text:
        return Contradiction(explanation=_explanation(text))
    if _NETWORK_WORDS.search(text):
        raise BlockedError(
            f"{inputs.cell_id}: an index stopped answering while resolving\n{_explanation(text)}",
            hint="try again; uv names the URL and the reason above",
        )
    raise LockError(f"{inputs.cell_id}: uv could not resolve it\n{_explanation(text)}")


def _explanation(text: str) -> str:
    """The reasons uv gives, without its headings and hints about its own options."""
    lines = [
        re.sub(r"^\s*(error:|cause:|\u00d7|[\u2500-\u25ff]+)\s*", "", line)
        for line in text.splitlines()
    ]
    kept = [line.strip() for line in lines if line.strip() and "No solution found" not in line]
    return "\n".join(f"    {line}" for line in kept)[:_EXPLANATION_CHARACTERS]


def _read_pylock(text: str, cell_id: str) -> Pylock:
    try:
        return Pylock.from_dict(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, PylockValidationError) as error:
        raise LockError(f"{cell_id}: uv wrote a lock that is not valid: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Locking:
    """Makes locked wheels of what uv resolved: the one best file, its size, its hash, its public
    index.
    """

    inputs: LockInputs
    site: Site
    tags: tuple[Tag, ...]
    transport: Transport
    wheelhouse: Wheelhouse
    build: Build
    given: Mapping[str, LockedWheel]

    def wheel(self, package: Package) -> LockedWheel:
        if package.name in self.given:
            return self.given[package.name]
        best = self._best(package)
        if best is None:
            return self._built(package)
        url = best.url or str(best.path)
        sha256, size = best.hashes.get("sha256", ""), best.size
        if not sha256:
            kept, sha256 = self.kept(package.name, Link(url=url, filename=best.filename))
            size = kept.stat().st_size
        return LockedWheel(
            name=package.name,
            version=str(parse_wheel_filename(best.filename)[1]),
            filename=best.filename,
            sha256=sha256,
            size_bytes=self._size(url) if size is None else size,
            index=self._index(package, url),
        )

    def distribution(self, package: Package) -> Distribution:
        """What the best file's metadata demands: from the file beside it where the index has one
        (PEP 658), else from the wheel itself.
        """
        given, best = self.given.get(package.name), self._best(package)
        if given is None and best is not None:
            requires = self._requires(package.name, best)
        else:
            requires = read_requires(self.wheelhouse.path(given or self._built(package)))
        version = given.version if given else str(package.version)
        return Distribution(name=package.name, version=version, requires=requires)

    def _requires(self, name: str, wheel: PackageWheel) -> tuple[str, ...]:
        url = wheel.url or str(wheel.path)
        local = local_path(url)
        if local is not None:
            return read_requires(local)
        beside = self.transport.read(f"{url}.metadata")
        if not isinstance(beside, Refusal):
            return requires_of(beside[2])
        kept, _ = self.kept(name, Link(url=url, filename=wheel.filename))
        return read_requires(kept)

    def _best(self, package: Package) -> PackageWheel | None:
        ranks = {tag: rank for rank, tag in enumerate(self.tags)}
        fitting = []
        for wheel in package.wheels or ():
            try:
                _, _, build, tags = parse_wheel_filename(wheel.filename)
            except InvalidWheelFilename:
                continue
            rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
            if rank is not None:
                fitting.append((-rank, build, wheel.filename, wheel))
        return max(fitting, key=lambda one: one[:3])[3] if fitting else None

    def _built(self, package: Package) -> LockedWheel:
        """The wheel of a distribution that has only an sdist, built here and kept in the
        wheelhouse.
        """
        sdist = package.sdist
        if sdist is None or package.name not in SDISTS:
            raise LockError(
                f"{self.inputs.cell_id}: {package.name} {package.version} has no wheel for Python "
                f"{self.inputs.python}, {self.inputs.machine}, glibc {self.inputs.glibc}",
                hint="ask for a version that has one",
            )
        url = sdist.url or str(sdist.path)
        with tempfile.TemporaryDirectory(prefix="warpfront-") as folder:
            kept, sha256 = self.kept(package.name, Link(url=url, filename=sdist.filename))
            self._check_sdist(sdist, sha256)
            built = self.build(kept, Path(folder))
            wheel, wheel_sha256 = self.wheelhouse.keep(built)
        return LockedWheel(
            name=package.name,
            version=str(parse_wheel_filename(wheel.name)[1]),
            filename=wheel.name,
            sha256=wheel_sha256,
            size_bytes=wheel.stat().st_size,
            index=self._index(package, url),
            sdist=sdist.filename,
            sdist_sha256=sha256,
        )

    def sdist(self, package: Package, sdist: PackageSdist) -> Sdist:
        url = sdist.url or str(sdist.path)
        kept, sha256 = self.kept(package.name, Link(url=url, filename=sdist.filename))
        self._check_sdist(sdist, sha256)
        return Sdist(path=kept, sha256=sha256, index=self._index(package, url))

    def _check_sdist(self, sdist: PackageSdist, sha256: str) -> None:
        said = sdist.hashes.get("sha256", sha256)
        if said != sha256:
            raise WheelError(f"{sdist.filename}: its index says sha256 {said}, it has {sha256}")

    def kept(self, name: str, link: Link) -> tuple[Path, str]:
        """A file in the wheelhouse, with its sha256: for indexes that give no hashes."""
        with tempfile.TemporaryDirectory(prefix="warpfront-") as folder:
            path = Path(folder) / link.filename
            failure = save(link, path, self.transport)
            if failure is not None:
                raise BlockedError(f"{self.inputs.cell_id}: {name}: {_bare(failure)}")
            return self.wheelhouse.keep(path)

    def _size(self, url: str) -> int:
        local = local_path(url)
        if local is not None:
            return local.stat().st_size
        size = self.transport.size_bytes(url)
        if isinstance(size, Refusal):
            raise BlockedError(f"{self.inputs.cell_id}: {_bare(size)}")
        return size

    def _index(self, package: Package, url: str) -> str:
        """The public index to name: the cell's for its stack and for what only it can have; PyPI
        for the rest.
        """
        index = self.inputs.index
        if index is None:
            return PYPI
        stack = {canonicalize_name(Requirement(one).name) for one in self.inputs.stack_requirements}
        local_label = package.version is not None and package.version.local is not None
        same_host = urlsplit(url).netloc == urlsplit(index.url).netloc != ""
        protected = any(fnmatch(package.name, pattern) for pattern in self.inputs.protected)
        own = package.name in stack or protected
        return index.url if own or local_label or same_host else PYPI


def _check_stack(inputs: LockInputs, wheels: tuple[LockedWheel, ...]) -> None:
    """The stack is what was asked for, and a cell whose torch is in its base gets no second one."""
    versions = {wheel.name: wheel.version for wheel in wheels}
    for text in inputs.stack_requirements:
        wanted = Requirement(text)
        found = versions.get(canonicalize_name(wanted.name), "nothing")
        if found == "nothing" or not wanted.specifier.contains(found, prereleases=True):
            raise LockError(f"{inputs.cell_id}: {text} asked for, {found} resolved")
    if inputs.index is None and "torch" in versions:
        raise LockError(
            f"{inputs.cell_id}: its requirements bring torch {versions['torch']}, and the base has "
            "its own",
            hint="drop the requirement that needs torch, or install it without dependencies",
        )


def _site_offers(pin: Pin, site: Site, transport: Transport) -> bool:
    sources = [(source, True) for source in site.find_links]
    sources += [(source, False) for source in site.indexes]
    return any(
        _has_version(links(source, pin.name, transport, flat=flat), pin) for source, flat in sources
    )


def _has_version(offered: tuple[Link, ...] | Refusal, pin: Pin) -> bool:
    if isinstance(offered, Refusal):
        return False
    for link in offered:
        try:
            name, version, _, _ = parse_wheel_filename(link.filename)
        except InvalidWheelFilename:
            continue
        if name == canonicalize_name(pin.name) and str(version) == pin.version:
            return True
    return False


def _bare(failure: Refusal) -> str:
    return without_secrets(str(failure))


def _without_credentials(url: str, credentials: dict[str, tuple[str, str]]) -> str:
    """`url` bare; its user and password, if any, go into `credentials`."""
    parts = urlsplit(url)
    if parts.username is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    credentials[host] = (unquote(parts.username), unquote(parts.password or ""))
    return urlunsplit(parts._replace(netloc=host))


def _proxies(environment: Mapping[str, str], configured: str) -> Mapping[str, str]:
    """The proxy variables in force; pip's own `proxy` option wins over the environment."""
    found = {name: _first(environment, (name, name.lower())) for name in _PROXIES}
    if configured:
        found |= {"HTTP_PROXY": configured, "HTTPS_PROXY": configured}
    return {name: value for name, value in found.items() if value}


def _first(environment: Mapping[str, str], names: Iterable[str]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")
