"""ready: compare this machine with its row of `runners:`, and remove remains of earlier jobs."""

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
    """Return the row of that name."""
    matches = [runner for runner in runners if runner.name == name]
    if not matches:
        names = ", ".join(runner.name for runner in runners) or "none"
        raise InputError(f"no runner is called {name!r}", hint=f"`runners:` has {names}")
    return matches[0]


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
    for image in sorted(
        engine.images(CELL), key=lambda stored_image: stored_image.size_bytes, reverse=True
    ):
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
        embedded.start(*embedded.folders(environment()), on_line=watch.say)
    return connect(environment())


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
    if reasons := tuple(obstacles):
        raise UnavailableError(
            f"this machine is not what `runners:` says of {runner.name}: {'; '.join(reasons)}",
            hint=f"warpfront doctor --runner {runner.name}, on the machine",
        )
