"""The engine for a machine without one: a private dockerd with its own socket, data, bridge and
containerd, from unpacked distribution packages. Edge.

It runs in the host's network namespace, because registries, proxies and indexes on loopback must be
reachable from builds, but shares nothing with another dockerd there: not docker0 (moby's PR 26989
has `--bridge none` delete it), not its iptables chains. Builds reach the network through one
nftables table of our own, which disappears as a whole. Published ports are served by docker-proxy,
a process of dockerd's for each, which ends with it.

The identity of a process shows whether it lives: another process may have its pid now.

Packages are unpacked into our own cache: nothing is installed, apt's own state is not touched. apt
fetches and verifies them, with its own state, from the machine's own mirror.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import os
import platform
import re
import shutil
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache as cached
from pathlib import Path
from typing import Literal

import yaml

from warpfront.errors import CommandFailedError, EngineError
from warpfront.system import process
from warpfront.system.digests import digest_of
from warpfront.system.packaged import packaged_text
from warpfront.system.process import Command, cache_folder
from warpfront.system.progress import Line
from warpfront.system.store import exclusive, folder_aside, read_text, write_json
from warpfront.system.strict_values import read_as

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_RUNTIME = Path("/run/warpfront")
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_LOG_LINES = 15
# Tried in turn: rarely used corners of the private ranges, none of them Docker's own defaults; as
# many as engines may run here at once.
_CORNERS = ("172.31.{}.0/24", "10.213.{}.0/24", "192.168.{}.0/24", "10.77.{}.0/24")
_SUBNETS = tuple(corner.format(254 - number) for number in range(4) for corner in _CORNERS)


class EnginePlace:
    """Paths of an engine, derived from `state`, so that engines of two states never meet.

    The socket is below /run: it must fit in 107 bytes, and must not survive a reboot. Network names
    derive from the folder itself: containers that share a network have folders of one path, and
    each its own.
    """

    def __init__(self, *, state: Path) -> None:
        self.state = state
        self.key = _short(str(state.absolute()))
        self.runtime = _RUNTIME / self.key
        self.socket = self.runtime / "docker.sock"
        self.host = f"unix://{self.socket}"
        self.log = state / "dockerd.log"
        # CDI specifications put here are seen by this engine only.
        self.cdi = state / "cdi"
        self.record = state / "engine.json"

    @property
    def network_key(self) -> str:
        try:
            folder = self.state.stat()
        except FileNotFoundError:
            return self.key
        return _short(f"{self.state.absolute()} {folder.st_dev} {folder.st_ino}")

    @property
    def bridge(self) -> str:
        return f"warp-{self.network_key}"

    @property
    def table(self) -> str:
        return f"warpfront_{self.network_key}"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process, distinct from every other one: `started` in clock ticks since `boot`.

    `namespace` is the pid namespace of `pid`; `host` the machine's name.
    """

    pid: str
    started: str
    boot: str
    namespace: str
    host: str

    def is_gone(self) -> bool:
        """True only where that is known: in this pid namespace, or an earlier boot of this host."""
        ours = identity(os.getpid())
        assert ours is not None
        if self.boot != ours.boot:
            return self.host == ours.host
        if self.namespace != ours.namespace:
            return False
        current = identity(int(self.pid)) if self.pid.isdigit() else None
        return current is None or current.started != self.started


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A running engine's own record. `forwarding` is true if we switched it on."""

    process: ProcessIdentity | None
    forwarding: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of an engine. `stale`: the daemon, or our record of it, is gone; its mounts, bridge
    or socket remain.
    """

    state: Literal["running", "stopped", "stale"]
    host: str
    log: Path
    pid: int | None = None

    def __str__(self) -> str:
        if self.state != "running":
            return f"the embedded engine is {self.state}; its log is {self.log}"
        return (
            f"the embedded engine runs (process {self.pid}); its log is {self.log}\n"
            f"for the docker command: export DOCKER_HOST={self.host}"
        )


def folders(environment: Mapping[str, str] | None = None) -> tuple[Path, Path]:
    """Return (cache, state): the cache's folder, and `engine` in it."""
    cache = cache_folder(environment)
    return cache, cache / "engine"


def status(cache: Path, state: Path) -> Status:  # noqa: ARG001 - one signature with start and stop
    """Return the state of the engine of `state`. Needs no rights and changes nothing."""
    place = EnginePlace(state=state)
    record = _read_record(place)
    daemon = record.process if record else None
    if daemon is not None and not daemon.is_gone():
        return Status(state="running", host=place.host, log=place.log, pid=int(daemon.pid))
    remains = record is not None or place.runtime.exists()
    return Status(state="stale" if remains else "stopped", host=place.host, log=place.log)


def start(cache: Path, state: Path, on_line: Line) -> Status:
    """Start the engine unless it runs, and wait until it answers. Two at once start one.

    Raise `EngineError` without root, for an unknown distribution, or with the end of the daemon's
    log when it does not come up.
    """
    _require_root()
    place = EnginePlace(state=state)
    with exclusive(state, on_line):
        before = status(cache, state)
        if before.state == "running" and _answers(place):
            return before
        tree = unpack("engine", cache, on_line)
        _end(place, tree, on_line)
        on_line(f"starting dockerd, data in {state}, log in {place.log}")
        try:
            _begin(place, tree, on_line)
        except BaseException:
            _end(place, tree, on_line)
            raise
    return status(cache, state)


def stop(cache: Path, state: Path, on_line: Line) -> Status:
    """Stop the engine with its containers and take back bridge, rules and mounts; images stay."""
    place = EnginePlace(state=state)
    if status(cache, state).state == "stopped":
        return status(cache, state)
    _require_root()
    with exclusive(state, on_line):
        tree = unpack("engine", cache, on_line)
        on_line("stopping dockerd")
        _end(place, tree, on_line)
    return status(cache, state)


def _require_root() -> None:
    if os.geteuid() == 0:
        return
    try:
        docker = this_distribution().docker_instead
    except EngineError:
        docker = DOCKER_PAGE
    raise EngineError(
        "the embedded engine needs root",
        hint=f"run it with sudo, or have Docker: {docker} ; "
        "without root: https://docs.docker.com/engine/security/rootless/",
    )


def _begin(place: EnginePlace, tree: PackageTree, on_line: Line) -> None:
    try:
        for folder in (place.runtime, place.cdi, place.state / "data"):
            folder.mkdir(parents=True, exist_ok=True)
        place.runtime.chmod(0o700)
        # dockerd would give the bridge the addresses it had in an earlier run, on another subnet.
        (place.state / "data" / "network" / "files" / "local-kv.db").unlink(missing_ok=True)
        # A subnet is free until its bridge exists: two engines that start at once take turns.
        with exclusive(_RUNTIME, on_line):
            was_off = _FORWARDING.read_text(encoding="ascii").strip() != "1"
            record = Record(process=None, forwarding=was_off)
            write_json(place.record, asdict(record))
            if was_off:
                _FORWARDING.write_text("1", encoding="ascii")
            _make_bridge(place, tree)
        config = place.state / "daemon.json"
        # docs.docker.com/reference/cli/dockerd
        settings = {
            "hosts": [place.host],
            "data-root": str(place.state / "data"),
            "exec-root": str(place.runtime / "exec"),
            "pidfile": str(place.runtime / "docker.pid"),
            "bridge": place.bridge,
            "iptables": False,
            "ip6tables": False,
            "ip-masq": False,
            "ip-forward": False,
            # Published ports: without rules of its own in the host's tables there is no other way.
            "userland-proxy": True,
            "userland-proxy-path": str(tree.program("docker-proxy")),
            "features": {"cdi": True, "containerd-snapshotter": True},
            "cdi-spec-dirs": [str(place.cdi), "/etc/cdi", "/var/run/cdi"],
            "init-path": str(tree.program("tini-static")),
        }
        config.write_text(json.dumps(settings, indent=2), encoding="utf-8")
        place.log.write_bytes(b"")
        argv = (str(tree.program("dockerd")), "--config-file", str(config))
        process.start_daemon(
            Command(
                argv=argv, environment=tree.environment, unset=("DOCKER_HOST", "NOTIFY_SOCKET")
            ),
            place.log,
        )
        write_json(place.record, asdict(replace(record, process=_await_daemon(place))))
    except OSError as error:
        raise EngineError(f"{error.filename or place.state}: {error.strerror}") from error
    except CommandFailedError as error:
        raise EngineError(error.message, hint=error.hint or f"see {place.log}") from error


def _await_daemon(place: EnginePlace) -> ProcessIdentity:
    """Return the identity of the daemon once it answers."""
    deadline = time.monotonic() + _START_SECONDS
    has_begun = False
    while time.monotonic() < deadline:
        daemon = _daemon(place)
        if daemon is not None and _answers(place):
            return daemon
        if has_begun and daemon is None:
            break
        has_begun = has_begun or daemon is not None
        time.sleep(0.1)
    tail = "(no log)"
    with contextlib.suppress(OSError):
        lines = place.log.read_text(encoding="utf-8", errors="replace").splitlines()
        tail = "\n".join(lines[-_LOG_LINES:])
    raise EngineError(f"dockerd did not come up\n{tail}", hint=f"the whole log is in {place.log}")


def _daemon(place: EnginePlace) -> ProcessIdentity | None:
    """Return the living dockerd that wrote the pid file, identified by its command line."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((place.runtime / "docker.pid").read_text(encoding="ascii"))
        if str(place.state / "daemon.json").encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            return identity(pid)
    return None


def _answers(place: EnginePlace) -> bool:
    """Return true if `GET /_ping` is answered on the socket."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5.0)
        client.connect(str(place.socket))
        client.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
        return b" 200 " in client.recv(64)
    return False


def _end(place: EnginePlace, tree: PackageTree, on_line: Line) -> None:
    """Remove an engine, running, killed or half started."""
    record = _read_record(place)
    daemon = _daemon(place)
    if daemon is not None:
        _end_daemon(place, int(daemon.pid), on_line)
    for pid in _left_over_processes(place):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # Mounts below our folders, deepest first (/proc/self/mountinfo, proc(5)): dockerd binds its
    # data folder onto itself and leaves that behind even on a clean end.
    roots = (f"{place.runtime}/", f"{place.state.absolute()}/data/")
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    points = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    for point in sorted((p for p in points if f"{p}/".startswith(roots)), key=len, reverse=True):
        process.run(Command(argv=("umount", "--lazy", point)))
    if place.table in _tables(tree):
        _tool(tree, "nft", "delete", "table", "ip", place.table).check()
    if Path(f"/sys/class/net/{place.bridge}").exists():
        _tool(tree, "ip", "link", "delete", place.bridge).check()
    is_shared = any(name.startswith("warpfront_") for name in _tables(tree))
    if record is not None and record.forwarding and not is_shared:
        _FORWARDING.write_text("0", encoding="ascii")
    shutil.rmtree(place.runtime, ignore_errors=True)
    place.record.unlink(missing_ok=True)


def _end_daemon(place: EnginePlace, pid: int, on_line: Line) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline:
            if _daemon(place) is None:
                return
            time.sleep(0.1)
        on_line(f"dockerd (process {pid}) did not end within {_STOP_SECONDS:g} s")
    raise EngineError(f"dockerd (process {pid}) cannot be ended", hint="see its log")


def _left_over_processes(place: EnginePlace) -> tuple[int, ...]:
    """Return a daemon that no record names, and containerd and shims of a killed one, known by our
    own folders in their arguments, and their children: the first processes of the containers.
    """
    marks = {
        b"dockerd": f"{place.state}/daemon.json".encode(),
        b"containerd": f"{place.runtime}/exec/".encode(),
    }
    parents = {}
    ours = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            program, _, arguments = (entry / "cmdline").read_bytes().partition(b"\0")
            parents[pid] = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
            if any(name in program and mark in arguments for name, mark in marks.items()):
                ours.add(pid)
    return tuple(sorted(ours | {pid for pid, parent in parents.items() if parent in ours}))


def _make_bridge(place: EnginePlace, tree: PackageTree) -> None:
    """Make it on the first of our subnets that overlaps no address or route of this host."""
    listed = _tool(tree, "ip", "-json", "-4", "route", "show", "table", "all").check().stdout
    # The default route overlaps everything.
    networks = [
        ipaddress.IPv4Network(route["dst"], strict=False)
        for route in json.loads(listed or "[]")
        if route["dst"] != "default"
    ]
    subnets = map(ipaddress.IPv4Network, _SUBNETS)
    subnet = next((s for s in subnets if not any(map(s.overlaps, networks))), None)
    if subnet is None:
        raise EngineError(f"no free subnet for the engine's bridge among {', '.join(_SUBNETS)}")
    address = f"{next(subnet.hosts())}/{subnet.prefixlen}"
    _tool(tree, "ip", "link", "add", "name", place.bridge, "type", "bridge").check()
    _tool(tree, "ip", "address", "add", address, "dev", place.bridge).check()
    _tool(tree, "ip", "link", "set", place.bridge, "up").check()
    rules = (
        f"table ip {place.table} {{\n"
        "  chain postrouting {\n"
        "    type nat hook postrouting priority srcnat; policy accept;\n"
        f'    ip saddr {subnet} oifname != "{place.bridge}" masquerade\n'
        "  }\n"
        "}\n"
    )
    _tool(tree, "nft", "-f", "-", stdin=rules).check()


def _tables(tree: PackageTree) -> tuple[str, ...]:
    listed = _tool(tree, "nft", "list", "tables").stdout
    return tuple(line.split()[-1] for line in listed.splitlines() if line)


def _tool(
    tree: PackageTree, program: str, *arguments: str, stdin: str | None = None
) -> process.Completed:
    argv = (str(tree.program(program)), *arguments)
    return process.run(Command(argv=argv, environment=tree.environment, stdin=stdin))


def _read_record(place: EnginePlace) -> Record | None:
    text = read_text(place.record, missing_ok=True)
    if text is None:
        return None
    try:
        return read_as(Record, json.loads(text))
    except ValueError:  # half a file of a killed run, as after a kill
        return Record(process=None, forwarding=False)


_STATE_FIELD, _START_FIELD = 0, 19  # of /proc/<pid>/stat behind the name; proc(5) counts from 1


def identity(pid: int) -> ProcessIdentity | None:
    """Return the living process `pid` of this machine; None for none, or only its zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None
    values = stat.rpartition(")")[2].split()
    if values[_STATE_FIELD] in "ZX":
        return None
    return ProcessIdentity(
        pid=str(pid),
        started=values[_START_FIELD],
        boot=Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
        namespace=namespace,
        host=socket.gethostname(),
    )


def read_identity(parts: Mapping[str, str]) -> ProcessIdentity | None:
    """Return the identity in a mapping of its parts, or None if one is missing."""
    try:
        return read_as(ProcessIdentity, parts)
    except ValueError:
        return None


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


def read_distribution(os_release: Mapping[str, str]) -> LinuxDistribution:
    """Return the row of `data/engine.yaml` for the variables of an `/etc/os-release`.

    Raise `EngineError`, naming the distributions there are, for one that has no row.
    """
    key, rows = f"{os_release.get('ID', '')}-{os_release.get('VERSION_ID', '')}", _rows()
    if key not in rows:
        raise EngineError(
            f"no embedded engine for this distribution ({key})",
            hint=f"install Docker Engine with buildx; the embedded one knows {', '.join(rows)}",
        )
    return rows[key]


def this_distribution() -> LinuxDistribution:
    try:
        return read_distribution(platform.freedesktop_os_release())
    except OSError:
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
                _fill(tree.root, distribution, getattr(distribution, name), on_line)
    return tree


def machine_mirror(codename: str, public: str) -> str:
    """Return the mirror of a suite in this machine's apt; `public` if it has none.

    Read from `apt-get update --print-uris`, which needs no network and no rights.
    """
    listed = process.run(Command(argv=("apt-get", "update", "--print-uris"))).stdout
    return read_mirror(listed, codename) or public


def read_mirror(print_uris: str, codename: str) -> str | None:
    """Return the mirror of `codename` in the output of `apt-get update --print-uris`."""
    match = re.search(rf"^'?(\S+?)/dists/{re.escape(codename)}/", print_uris, re.MULTILINE)
    return match[1] if match else None


def sources(distribution: LinuxDistribution, suites: tuple[Suite, ...], mirror: str) -> str:
    """Return the text of the `sources.list` that a set is fetched through."""
    lines = ""
    for suite in suites:
        old = " check-valid-until=no" if suite.release_may_be_old else ""
        options = f"signed-by={distribution.keyring}{old}"
        lines += f"deb [{options}] {mirror} {suite.suite} {distribution.components}\n"
    return lines


@cached
def _rows() -> Mapping[str, LinuxDistribution]:
    rows = yaml.safe_load(packaged_text("engine.yaml"))["distributions"]
    keyed = {key: {**row, "key": key} for key, row in rows.items()}
    return read_as(dict[str, LinuxDistribution], keyed)


def _tree(name: PackageSet, distribution: LinuxDistribution, cache: Path) -> PackageTree:
    """Named after its content's recipe, so that a changed recipe never meets an old tree."""
    recipe = [distribution.key, [[s.suite, *s.packages] for s in getattr(distribution, name)]]
    root = cache / "packages" / f"{name}-{digest_of(recipe)[:12]}"
    return PackageTree(root=root, perl=distribution.perl)


def _fill(
    root: Path, distribution: LinuxDistribution, suites: tuple[Suite, ...], on_line: Line
) -> None:
    work = root.parent / f".{root.name}.fetched"
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
        with folder_aside(root) as aside:
            for package in sorted((work / "debs").glob("*.deb")):
                process.run(Command(argv=("dpkg-deb", "-x", str(package), str(aside)))).check()
    except OSError as error:
        raise EngineError(f"{error.filename or root}: {error.strerror}") from error
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
