"""doctor: what this machine has for the selected work, each with what to do about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from warpfront.ci.readiness import ROOM_BYTES
from warpfront.errors import EngineError, without_secrets
from warpfront.images.engine.bases import registry_reachable
from warpfront.images.engine.protocol import Engine, connect
from warpfront.matrix.cell import Cell
from warpfront.matrix.compat import Compat
from warpfront.matrix.vendors import VENDORS
from warpfront.pipeline.workspace import Workspace
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
        except InvalidVersion:
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
