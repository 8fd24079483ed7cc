"""Distribution packages unpacked into our own cache: nothing is installed, apt's own state is not
touched. apt fetches and verifies them, with its own state, from the machine's own mirror. Edge.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache as cached
from pathlib import Path
from typing import Literal

import yaml
from pydantic import TypeAdapter

from warpfront.errors import EngineError
from warpfront.system import process
from warpfront.system.digests import digest_of
from warpfront.system.packaged import packaged_text
from warpfront.system.process import Command
from warpfront.system.progress import Line
from warpfront.system.store import exclusive

DOCKER_PAGE = "https://docs.docker.com/engine/install/"
PackageSet = Literal["engine", "bootstrap"]
_PROGRAM_FOLDERS = ("usr/sbin", "usr/bin", "sbin", "bin")
_BUILDX = "usr/libexec/docker/cli-plugins/docker-buildx"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Packages taken from one suite. `release_may_be_old`: its Valid-Until date is not enforced."""

    suite: str
    packages: tuple[str, ...]
    release_may_be_old: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LinuxDistribution:
    """Packages of a distribution. `install` is the administrator's command instead, if the
    distribution's own Docker can build what we build.
    """

    key: str
    mirror: str
    keyring: str
    components: str
    codename: str
    perl: str
    engine: tuple[Suite, ...]
    bootstrap: tuple[Suite, ...]
    install: str = ""

    @property
    def docker_instead(self) -> str:
        """Return how to install Docker rather than the embedded engine."""
        return f"`{self.install}`, or {DOCKER_PAGE}" if self.install else DOCKER_PAGE

    def suites(self, name: PackageSet) -> tuple[Suite, ...]:
        return self.engine if name == "engine" else self.bootstrap


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageTree:
    """An unpacked set of packages: a root folder laid out like `/`."""

    root: Path
    perl: str

    def program(self, name: str) -> Path:
        """Return a program of the tree. Raise `EngineError` if the packages do not carry it."""
        for folder in _PROGRAM_FOLDERS:
            path = self.root / folder / name
            if path.is_file():
                return path
        raise EngineError(f"{self.root}: no program {name} in the unpacked packages")

    @property
    def buildx(self) -> Path:
        return self.root / _BUILDX

    @property
    def environment(self) -> Mapping[str, str]:
        """Return variables by which the tree's programs find each other and their libraries."""
        root, triplet = self.root, f"{platform.machine()}-linux-gnu"
        libraries = [f"{root}/usr/lib/{triplet}", f"{root}/lib/{triplet}"]
        programs = [f"{root}/{folder}" for folder in _PROGRAM_FOLDERS]
        perl = [f"{root}/usr/share/perl/{self.perl}", f"{root}/usr/lib/{triplet}/perl/{self.perl}"]
        inherited = process.environment().get("PATH", os.defpath).split(":")
        search = dict.fromkeys((*programs, *inherited, "/usr/sbin", "/usr/bin", "/sbin", "/bin"))
        return {
            "PATH": ":".join(search),
            "LD_LIBRARY_PATH": ":".join(libraries),
            "PERL5LIB": ":".join((*perl, f"{root}/usr/share/perl5")),
        }


def read_distribution(os_release: str) -> LinuxDistribution:
    """Return the row of `data/engine.yaml` for the text of an `/etc/os-release`.

    Raise `EngineError`, naming the distributions there are, for one that has no row.
    """
    fields = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    key = f"{fields.get('ID', '').strip(chr(34))}-{fields.get('VERSION_ID', '').strip(chr(34))}"
    rows = _rows()
    if key not in rows:
        raise EngineError(
            f"no embedded engine for this distribution ({key})",
            hint=f"install Docker Engine with buildx; the embedded one knows {', '.join(rows)}",
        )
    return rows[key]


def this_distribution() -> LinuxDistribution:
    try:
        return read_distribution(Path("/etc/os-release").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EngineError("/etc/os-release: no such file", hint="install Docker Engine") from None


def unpacked(name: PackageSet, cache: Path) -> PackageTree | None:
    """Return the set of an earlier `unpack`, or None."""
    try:
        distribution = this_distribution()
    except EngineError:
        return None
    tree = _tree(name, distribution, cache)
    return tree if tree.root.is_dir() else None


def unpack(name: PackageSet, cache: Path, on_line: Line) -> PackageTree:
    """Fetch, verify and unpack a set of packages below `cache`, unless that was done before.

    One process at a time; what a broken-off run fetched, the next one goes on with.
    """
    distribution = this_distribution()
    tree = _tree(name, distribution, cache)
    if not tree.root.is_dir():
        with exclusive(cache / "packages", on_line, name=f".{name}.lock"):
            if not tree.root.is_dir():
                _fill(tree.root, distribution, distribution.suites(name), on_line)
    return tree


def machine_mirror(codename: str, public: str) -> str:
    """Return the mirror of a suite in this machine's apt; `public` if it has none.

    Read from `apt-get update --print-uris`, which needs no network and no rights.
    """
    listed = process.run(Command(argv=("apt-get", "update", "--print-uris"))).stdout
    return read_mirror(listed, codename) or public


def read_mirror(print_uris: str, codename: str) -> str | None:
    """Return the mirror of `codename` in the output of `apt-get update --print-uris`."""
    for line in print_uris.splitlines():
        address = line.split(" ", 1)[0].strip("'")
        mirror, parts, _ = address.partition(f"/dists/{codename}/")
        if parts:
            return mirror
    return None


def sources(distribution: LinuxDistribution, suites: tuple[Suite, ...], mirror: str) -> str:
    """Return the text of the `sources.list` that a set is fetched through."""
    lines = []
    for suite in suites:
        options = f"signed-by={distribution.keyring}"
        if suite.release_may_be_old:
            options += " check-valid-until=no"
        lines.append(f"deb [{options}] {mirror} {suite.suite} {distribution.components}\n")
    return "".join(lines)


@cached
def _rows() -> Mapping[str, LinuxDistribution]:
    rows = yaml.safe_load(packaged_text("engine.yaml"))["distributions"]
    reader = TypeAdapter(dict[str, LinuxDistribution])
    return reader.validate_python({key: {**row, "key": key} for key, row in rows.items()})


def _tree(name: PackageSet, distribution: LinuxDistribution, cache: Path) -> PackageTree:
    """Named after its content's recipe, so that a changed recipe never meets an old tree."""
    recipe = [distribution.key, [[s.suite, *s.packages] for s in distribution.suites(name)]]
    root = cache / "packages" / f"{name}-{digest_of(recipe)[:12]}"
    return PackageTree(root=root, perl=distribution.perl)


def _fill(
    root: Path, distribution: LinuxDistribution, suites: tuple[Suite, ...], on_line: Line
) -> None:
    work = root.parent / f".{root.name}.fetched"
    aside = root.parent / f".{root.name}.aside"
    try:
        for folder in ("lists/partial", "archives/partial", "debs"):
            (work / folder).mkdir(parents=True, exist_ok=True)
        mirror = machine_mirror(distribution.codename, distribution.mirror)
        names = [f"{package}/{suite.suite}" for suite in suites for package in suite.packages]
        (work / "sources.list").write_text(sources(distribution, suites, mirror), encoding="utf-8")
        (work / "status").touch()
        on_line(
            f"fetching {len(names)} packages from {mirror} (unpacked into the cache, not installed)"
        )
        for step in (("update",), ("download", *names)):
            run = process.stream(_apt(work, step), on_line)
            if run.returncode:
                raise EngineError(
                    f"apt-get {step[0]} from {mirror} failed with {run.returncode}\n{run.stdout}",
                    hint="check the machine's apt sources, or have Docker: "
                    f"{distribution.docker_instead}",
                )
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        for package in sorted((work / "debs").glob("*.deb")):
            process.run(Command(argv=("dpkg-deb", "-x", str(package), str(aside)))).check()
        aside.rename(root)
    except OSError as error:
        raise EngineError(f"{error.filename or root}: {error.strerror}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    shutil.rmtree(work, ignore_errors=True)


def _apt(work: Path, arguments: tuple[str, ...]) -> Command:
    """apt-get with a state of its own; only its proxies and credentials are the machine's."""
    settings = {
        "Dir::State": f"{work}",
        "Dir::State::lists": f"{work}/lists",
        "Dir::State::status": f"{work}/status",
        "Dir::Cache": f"{work}",
        "Dir::Cache::archives": f"{work}/archives",
        "Dir::Etc::sourcelist": f"{work}/sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Sandbox::User": "root",  # the folders are ours; `_apt` may not enter them
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Acquire::AllowInsecureRepositories": "false",
    }
    options = tuple(part for name, value in settings.items() for part in ("-o", f"{name}={value}"))
    argv = ("apt-get", "-q", *options, *arguments)
    return Command(argv=argv, cwd=work / "debs", environment={"LC_ALL": "C"})
