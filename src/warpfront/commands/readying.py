"""ready: this machine held against its row of `runners:`, and what an earlier job left, removed."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.ci.device_processes import device_holders, end_left_behind
from warpfront.ci.readiness import ROOM_BYTES, SPARE_FOLDERS, is_short_of_room, unready
from warpfront.errors import InputError, UnavailableError
from warpfront.images.engine import Engine, connect, embedded
from warpfront.images.labels import CELL
from warpfront.matrix.runners import Runner
from warpfront.system.process import Command, Run, environment, run
from warpfront.system.progress import Watch
from warpfront_checks.hardware import read_hardware
from warpfront_checks.hardware.machine_reader import Machine


def named_runner(runners: tuple[Runner, ...], name: str) -> Runner:
    """The row of that name."""
    found = [one for one in runners if one.name == name]
    if not found:
        known = ", ".join(one.name for one in runners) or "none"
        raise InputError(f"no runner is called {name!r}", hint=f"`runners:` has {known}")
    return found[0]


def tidy(runner: Runner, watch: Watch, engine: Engine) -> None:
    """Remove what earlier jobs left on a machine of our own: containers whose client is gone,
    processes of theirs that hold a device, and images of warpfront where room is scarce. What is
    anybody else's stays.
    """
    for name in engine.reap():
        watch.say(f"removed {name}, which an earlier job left")
    if runner.trust != "self-hosted":
        _make_room(watch, engine, environment(), run)
        return
    for pid, name in end_left_behind().items():
        watch.say(f"ended process {pid} ({name}), which an earlier job left with a device")
    for image in sorted(engine.images(CELL), key=lambda one: one.size_bytes, reverse=True):
        free = engine.features().free_bytes
        if free is None or free >= ROOM_BYTES:
            return
        for reference in image.references:
            engine.remove(reference)
            watch.say(f"removed {reference} for its room")


def _make_room(watch: Watch, engine: Engine, given: Mapping[str, str], run: Run) -> None:
    """Remove what a machine of GitHub's came with and no job uses, where room is short. Only the
    service itself says that a machine is its own, and thrown away after the job.
    """
    if given.get("RUNNER_ENVIRONMENT") != "github-hosted":
        return
    for folder in SPARE_FOLDERS:
        if not is_short_of_room(engine.features().free_bytes):
            return
        if run(Command(argv=("sudo", "-n", "rm", "-rf", folder))).returncode == 0:
            watch.say(f"removed {folder} for its room")


def engine_of(runner: Runner, watch: Watch) -> Engine:
    """The engine of this machine, started where its row says that it is warpfront's own."""
    if runner.engine == "embedded":
        embedded.start(*embedded.folders(environment()), on_line=watch.say)
    return connect(environment())


def ready(runner: Runner, watch: Watch, engine: Engine | None = None) -> None:
    """Start the engine that the row asks for, remove what earlier jobs left, and nothing else;
    raises `UnavailableError` with all that speaks against a job here.
    """
    engine = engine or engine_of(runner, watch)
    tidy(runner, watch, engine)
    found = unready(
        runner,
        machine=engine.machine,
        accelerators=read_hardware(Machine()).accelerators,
        holders=device_holders(),
        free_bytes=engine.features().free_bytes,
    )
    if reasons := tuple(found):
        raise UnavailableError(
            f"this machine is not what `runners:` says of {runner.name}: {'; '.join(reasons)}",
            hint=f"invoke doctor --runner {runner.name}, on the machine",
        )
