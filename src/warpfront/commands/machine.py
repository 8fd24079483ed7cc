"""This machine: what it has for the selected work, each with what to do about it (doctor); and as a
runner of CI, for which it gets ready, serves by one registration for each job, and removes remains.
"""

from __future__ import annotations

import platform
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from warpfront.ci.device_processes import device_holders, end_left_behind
from warpfront.ci.readiness import ROOM_BYTES, SPARE_FOLDERS, is_short_of_room, unready
from warpfront.errors import (
    CommandFailedError,
    EngineError,
    InputError,
    UnavailableError,
    without_secrets,
)
from warpfront.images.engine import embedded
from warpfront.images.engine.bases import registry_reachable
from warpfront.images.engine.protocol import Engine, connect
from warpfront.images.labels import CELL
from warpfront.matrix.cell import Cell, HostDevices
from warpfront.matrix.compat import Compat
from warpfront.matrix.runners import Runner
from warpfront.matrix.vendors import VENDORS
from warpfront.pipeline.workspace import Workspace
from warpfront.system.process import Command, Run, environment, run
from warpfront.system.progress import Watch
from warpfront.system.texts import readable_size
from warpfront.verify.results import Outcome
from warpfront.wheels.sources import probe, read_site
from warpfront_checks.hardware import read_hardware
from warpfront_checks.hardware.machine_reader import Machine
from warpfront_checks.hardware.values import Accelerator, Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """An observation of this machine. `FAILED` prevents every build, `UNAVAILABLE` some."""

    subject: str
    outcome: Outcome
    text: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f"\n    hint: {self.hint}" if self.hint else ""
        return f"{self.outcome:<12}{self.subject}: {self.text}{hint}"


def examine(workspace: Workspace, watch: Watch) -> Iterator[Observation]:
    """Engine, buildx, disk, registries, indexes and devices, in that order. Changes nothing."""
    cells, compat = workspace.matrix.cells, workspace.material.compat
    hardware, host = read_hardware(Machine()), None
    try:
        engine = connect()
    except EngineError as error:
        yield _observed("engine", Outcome.FAILED, error.message, error.hint)
    else:
        host = engine.host_devices()
        yield from _examine_engine(engine)
        for other in sorted({cell.machine for cell in cells} - {engine.machine}):
            hint = f"its cells are blocked here; they need an engine on {other}"
            text = f"the engine's machine is {engine.machine}"
            yield _observed(f"machine {other}", Outcome.UNAVAILABLE, text, hint)
    yield from _examine_network(cells, watch)
    for name in sorted({cell.vendor for cell in cells}) if host else ():
        assert host is not None
        access = VENDORS[name].device_access(host)
        text = ", ".join((*access.cdi, *access.nodes)) or "needs none" if access else ""
        hint = "images build and load here; their checks on the device say unavailable"
        state = text or "none on this machine"
        yield _available(f"devices of {name}", state, hint, is_here=bool(text))
    yield from examine_drivers(cells, compat, hardware)
    yield from examine_hardware(hardware)


def _examine_engine(engine: Engine) -> Iterator[Observation]:
    features = engine.features()
    cdi = f"CDI {'on' if features.cdi else 'off'}"
    text = f"{engine.name}, version {features.version}, {features.storage}, {cdi}"
    yield _observed("engine", Outcome.PASSED, text)
    yield _observed("buildx", Outcome.PASSED, " ".join(engine.buildx))
    if not features.named_contexts:
        text = "the engine's BuildKit has no named contexts"
        hint = "use Docker 23 or newer, or `warpfront engine start`"
        yield _observed("BuildKit", Outcome.FAILED, text, hint)
    free = features.free_bytes
    if free is None:
        hint = "the engine stores images on another machine: look there"
        text = f"not determined: {features.root} is no folder of this machine"
        yield _observed("disk", Outcome.UNAVAILABLE, text, hint)
    else:
        text = f"{readable_size(free)} free below {features.root}"
        hint = f"a CUDA image needs about {readable_size(ROOM_BYTES)} while it builds"
        yield _available("disk", text, hint, is_here=free >= ROOM_BYTES)


def _examine_network(cells: tuple[Cell, ...], watch: Watch) -> Iterator[Observation]:
    site = read_site()
    named = (cell.base for cell in cells if cell.base.digest or cell.base.unpinned)
    bases = {base.name: base for base in named}
    for name, base in sorted(bases.items()):
        watch.step("doctor", f"asking the registry of {name}")
        address = f"the registry of {base.reference}"
        hint = "it will be bootstrapped with mmdebstrap" if base.bootstrap else _BLOCKED
        yield _reached(f"base {name}", address, registry_reachable(base.reference), hint)
    indexes = {cell.index.name: cell.index for cell in cells if cell.index}
    for index in sorted(indexes.values(), key=lambda index: index.name):
        watch.step("doctor", f"asking the index {index.url}")
        hint = f"{_BLOCKED} unless they are locked already or pip's configuration has a mirror"
        yield _reached(f"index {index.name}", index.url, probe(site, index.url, "torch"), hint)
    watch.step("doctor", "")


_BLOCKED = "its cells are blocked here"


def _reached(subject: str, address: str, reason: str | None, hint: str) -> Observation:
    text = f"{address}: {reason}" if reason else f"{address} answers"
    return _available(subject, text, hint, is_here=not reason)


def examine_drivers(
    cells: Iterable[Cell], compat: Compat, hardware: Hardware
) -> Iterator[Observation]:
    """Compare this machine's driver with the minimum of each toolkit of the cells."""
    toolkits = {(cell.vendor, cell.toolkit) for cell in cells if cell.toolkit}
    for vendor, toolkit in sorted(toolkits, key=str):
        floor = compat.driver_floor(vendor, toolkit.version)
        version = hardware.drivers.get(vendor, "")
        if floor is None or not version:
            continue
        subject, needs = f"driver for {toolkit}", f"{floor.minimum} or later ({floor.source})"
        try:
            is_new = Version(version) >= Version(floor.minimum)
        except ValueError:
            text = f"not determined: {version!r} is no version; {needs}"
            yield _observed(subject, Outcome.UNAVAILABLE, text)
            continue
        hint = f"its images start here and find no device: {needs}"
        yield _available(subject, f"{version} is here, {needs}", hint, is_here=is_new)


def examine_hardware(hardware: Hardware) -> Iterator[Observation]:
    """Yield this machine's accelerators as their drivers report them."""
    kinds = defaultdict[tuple[str, str, str], list[Accelerator]](list)
    for device in hardware.accelerators:
        kinds[device.vendor, device.arch, device.name].append(device)
    for (vendor, arch, name), devices in kinds.items():
        words = " ".join((name or "unnamed", f"({arch or 'unknown arch'})"))
        memory = devices[0].memory_bytes
        size = f", {readable_size(memory)} each" if memory else ""
        driver = ", ".join(f"{key} {value}" for key, value in hardware.drivers.items())
        text = f"{len(devices)} x {words}{size}, driver {driver or 'unknown'}"
        hint, usable = "its device nodes may not be opened here", [d.usable for d in devices]
        yield _available(f"hardware of {vendor}", text, hint, is_here=all(usable))
    for problem in hardware.problems:
        hint = "`python -m warpfront_checks detect` shows every source that was asked"
        yield _observed("hardware", Outcome.UNAVAILABLE, problem, hint)


def _available(subject: str, text: str, hint: str, *, is_here: bool) -> Observation:
    """Return what is here, or what is not, with the hint."""
    outcome = Outcome.PASSED if is_here else Outcome.UNAVAILABLE
    return _observed(subject, outcome, text, "" if is_here else hint)


def _observed(subject: str, outcome: Outcome, text: str, hint: str = "") -> Observation:
    subject, text, hint = map(without_secrets, (subject, text, hint))
    return Observation(subject=subject, outcome=outcome, text=text, hint=hint)


JIT_VARIABLE = "ACTIONS_RUNNER_INPUT_JITCONFIG"
"""The agent takes each of its options so, and removes it before a job begins: no list of processes
shows it.
"""
JOB_SECONDS = 6 * 3600.0
_PAUSES_SECONDS = (10.0, 60.0, 600.0)
_CDI_PROGRAMS = {
    "nvidia": ("nvidia-ctk", "cdi", "generate", "--output=/etc/cdi/nvidia.yaml"),
    "amd": ("amd-ctk", "cdi", "generate", "--output=/etc/cdi/amd.json"),
}


def prepare(runner: Runner, watch: Watch, run: Run, engine: Engine | None = None) -> None:
    """Start the engine, describe devices to it with the vendor's program, list what a user needs
    for the device nodes, and compare the machine with its row.
    """
    engine = engine or engine_of(runner, watch)
    for note in _described(runner, engine.host_devices(), run):
        watch.say(note)
    ready(runner, watch, engine)


def _described(runner: Runner, host: HostDevices, run: Run) -> Iterator[str]:
    groups = sorted(set(host.nodes.values()))
    if groups:
        nodes = ", ".join(f"{node} ({group})" for node, group in sorted(host.nodes.items()))
        yield f"device nodes and their groups: {nodes}"
        yield f"whoever runs jobs has to be in the groups {', '.join(map(str, groups))}"
    argv = _CDI_PROGRAMS.get(runner.vendor)
    if argv is None or any(device.startswith(f"{runner.vendor}.com/") for device in host.cdi):
        return
    try:
        run(Command(argv=argv, timeout_seconds=60.0)).check()
    except CommandFailedError as error:
        first = str(error).splitlines()[0]
        yield f"no CDI specification: {first}; devices are passed on by their nodes"
    else:
        yield f"wrote {argv[-1].partition('=')[2]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSource:
    """The source of jobs: `api` is the CI service's address of the repository or organisation,
    `agent` the folder with the agent's `run.sh`.
    """

    api: str
    agent: Path
    token: str

    def __post_init__(self) -> None:
        if not self.api.startswith("https://") and not self.api.startswith("http://127.0.0.1:"):
            hint = "https://api.github.com/repos/me/mine, or .../orgs/mine"
            raise InputError(f"{self.api!r} is no address of a forge's interface", hint=hint)
        if not (self.agent / "run.sh").is_file():
            hint = "unpack https://github.com/actions/runner/releases there"
            raise InputError(f"{self.agent} has no run.sh", hint=hint)
        if not self.token:
            raise InputError("no token", hint="--token FILE, or --token - to read it from stdin")


def serve(
    runner: Runner,
    place: JobSource,
    watch: Watch,
    run: Run,
    *,
    jobs: int,
    pause: Callable[[float], None],
    engine: Engine | None = None,
) -> int:
    """Take so many jobs (0: no end), each by a registration of its own, on a machine that is ready;
    how many were taken. A machine that is not is not registered, and looked at again after a while.
    """
    count = refused = 0
    while not jobs or count < jobs:
        try:
            chosen_engine = engine or engine_of(runner, watch)
            ready(runner, watch, chosen_engine)
            from warpfront.ci import forge_api  # noqa: PLC0415 - its HTTP takes long to load

            name = f"{runner.name}-{platform.node()}-{secrets.token_hex(4)}"
            configuration = forge_api.one_job_configuration(
                name, runner.labels, runner.group, api=place.api, token=place.token
            )
            watch.say(f"{name} waits for a job")
            agent = Command(
                argv=(str(place.agent / "run.sh"),),
                cwd=place.agent,
                environment={JIT_VARIABLE: configuration},
                timeout_seconds=JOB_SECONDS,
            )
            watch.say(f"{name} ended with {run(agent).returncode}")
        except UnavailableError as error:
            if refused >= len(_PAUSES_SECONDS) and jobs:
                raise
            seconds = _PAUSES_SECONDS[min(refused, len(_PAUSES_SECONDS) - 1)]
            watch.say(f"{error.message}; looked at again in {seconds:g} s")
            refused += 1
            pause(seconds)
            continue
        count, refused = count + 1, 0
        tidy(runner, watch, chosen_engine)
    return count


def named_runner(runners: tuple[Runner, ...], name: str) -> Runner:
    """Return the row of that name."""
    by_name = {runner.name: runner for runner in reversed(runners)}
    if name not in by_name:
        names = ", ".join(runner.name for runner in runners) or "none"
        raise InputError(f"no runner is called {name!r}", hint=f"`runners:` has {names}")
    return by_name[name]


def tidy(runner: Runner, watch: Watch, engine: Engine) -> None:
    """Remove remains of earlier jobs on a self-hosted machine: containers without a client, their
    processes on a device, and images of warpfront if the disk is full. Nothing else is removed.
    """
    for name in engine.reap():
        watch.say(f"removed {name}, which an earlier job left")
    if runner.trust != "self-hosted":
        _make_room(watch, engine, environment(), run)
        return
    for pid, name in end_left_behind().items():
        watch.say(f"ended process {pid} ({name}), which an earlier job left with a device")
    for image in sorted(engine.images(CELL), key=lambda image: -image.size_bytes):
        free = engine.features().free_bytes
        if free is None or free >= ROOM_BYTES:
            return
        for reference in image.references:
            engine.remove(reference)
            watch.say(f"removed {reference} for its room")


def _make_room(watch: Watch, engine: Engine, variables: Mapping[str, str], run: Run) -> None:
    """Remove preinstalled files that no job uses on GitHub's machines, if the disk is full. Only
    GitHub can confirm that a machine is its own and is thrown away after the job.
    """
    if variables.get("RUNNER_ENVIRONMENT") != "github-hosted":
        return
    for folder in SPARE_FOLDERS:
        if not is_short_of_room(engine.features().free_bytes):
            return
        if run(Command(argv=("sudo", "-n", "rm", "-rf", folder))).returncode == 0:
            watch.say(f"removed {folder} for its room")


def engine_of(runner: Runner, watch: Watch) -> Engine:
    """Return the engine of this machine; start it if its row names warpfront's own."""
    if runner.engine == "embedded":
        embedded.start(*embedded.folders(), on_line=watch.say)
    return connect()


def ready(runner: Runner, watch: Watch, engine: Engine | None = None) -> None:
    """Start the engine of the row and remove remains of earlier jobs. Raise `UnavailableError`
    with every reason against a job here.
    """
    engine = engine or engine_of(runner, watch)
    tidy(runner, watch, engine)
    obstacles = unready(
        runner,
        machine=engine.machine,
        accelerators=read_hardware(Machine()).accelerators,
        holders=device_holders(),
        free_bytes=engine.features().free_bytes,
    )
    if reasons := "; ".join(obstacles):
        message = f"this machine is not what `runners:` says of {runner.name}: {reasons}"
        hint = f"warpfront doctor --runner {runner.name}, on the machine"
        raise UnavailableError(message, hint=hint)
