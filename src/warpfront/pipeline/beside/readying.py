"""ready: this machine held against its row of `runners:`, and what an earlier job left, removed."""

from __future__ import annotations

from warpfront.ci.holders import device_holders
from warpfront.ci.readiness import unready
from warpfront.errors import InputError, UnavailableError
from warpfront.images.engine import Engine, connect, embedded
from warpfront.inside.checks.hardware import read_hardware
from warpfront.inside.checks.hardware.machine_reader import Machine
from warpfront.matrix.runners import Runner
from warpfront.system.process import environment
from warpfront.system.progress import Watch


def named_runner(runners: tuple[Runner, ...], name: str) -> Runner:
    """The row of that name."""
    found = [one for one in runners if one.name == name]
    if not found:
        known = ", ".join(one.name for one in runners) or "none"
        raise InputError(f"no runner is called {name!r}", hint=f"`runners:` has {known}")
    return found[0]


def ready(runner: Runner, watch: Watch, engine: Engine | None = None) -> None:
    """Start the engine that the row asks for, remove containers whose client is gone, and nothing
    else; raises `UnavailableError` with all that speaks against a job here.
    """
    if engine is None and runner.engine == "embedded":
        embedded.start(*embedded.folders(environment()), on_line=watch.say)
    engine = engine or connect(environment())
    for name in engine.reap():
        watch.say(f"removed {name}, which an earlier job left")
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
