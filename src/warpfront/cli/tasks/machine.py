"""Commands for this machine, its engine, and cleaning."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Annotated

from warpfront import commands
from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import Chosen, DryRun, Group, Option, command
from warpfront.cli.tasks.showing import workspace_here
from warpfront.errors import EngineError
from warpfront.matrix.selection import select
from warpfront.system.foreign import remove_tree
from warpfront.system.texts import counted
from warpfront.verify.results import Outcome

CACHE_FOLDERS = ("views", "tools", "toolbox", "layers", "wheelhouse")
_CACHE = "also empty the cache of wheels and tools that all projects share"
EmptyCache = Annotated[bool, Option(_CACHE, formerly=("everything",))]


@command(example="doctor")
def doctor(
    display: Display,
    *,
    runner: Annotated[str, "ROW  check this machine for this row of `runners:`"] = "",
) -> None:
    """Examine this machine: engine, disk, indexes, devices.

    Each finding says what to do about it.
    """
    if runner:
        row = commands.machine.named_runner(workspace_here().matrix.runners, runner)
        commands.machine.ready(row, display)
        print_ready(display, runner)
        return
    findings = tuple(commands.machine.examine(workspace_here(display), display))
    display.result(findings, "".join(f"{finding}\n" for finding in findings))
    broken = [finding for finding in findings if finding.outcome is Outcome.FAILED]
    if broken:
        raise EngineError(f"{counted(len(broken), 'finding')} must be resolved before a build")


def print_ready(display: Display, runner: str) -> None:
    """Print that this machine is ready for the jobs of a runner."""
    display.result({"runner": runner, "ready": True}, f"this machine is ready as runner {runner}\n")


_ENGINE = "The embedded engine, a private dockerd: start, stop, status."
engine_group = Group(name="engine", help=_ENGINE, default="status")


@command("engine start", example="engine start")
def start(display: Display, *, dry_run: DryRun = False) -> None:
    """Start a private dockerd, for a machine without an engine. Needs root."""
    from warpfront.images.engine import embedded

    if not dry_run:
        embedded.start(*embedded.folders(), on_line=display.say)
    status.body(display)


@command("engine stop", example="engine stop")
def stop(display: Display, *, dry_run: DryRun = False) -> None:
    """Stop the embedded engine, and remove its bridge and mounts."""
    from warpfront.images.engine import embedded

    if not dry_run:
        embedded.stop(*embedded.folders(), on_line=display.say)
    status.body(display)


@command("engine status", example="engine status")
def status(display: Display) -> None:
    """Print which embedded engine runs, and its DOCKER_HOST."""
    from warpfront.images.engine import embedded

    state = embedded.status(*embedded.folders())
    display.result(state, f"{state}\n")


@command(example="clean --target sm_90")
def clean(
    display: Display, cells: Chosen, *, dry_run: DryRun = False, all_: EmptyCache = False
) -> None:
    """Remove build results and images of the selected cells.

    Wheels and locks stay.
    """
    from warpfront.images.engine.protocol import connect
    from warpfront.images.labels import CELL
    from warpfront.release.ledger import is_candidate

    workspace = workspace_here()
    cell_ids = {cell.id for cell in select(workspace.matrix.cells, cells)}
    folders = [workspace.folders.store.cell_folder(cell_id) for cell_id in sorted(cell_ids)]
    if all_:
        folders += [workspace.folders.cache / name for name in CACHE_FOLDERS]

    def removals() -> Iterator[tuple[str, Callable[[], None]]]:
        for folder in folders:
            if folder.exists():
                yield str(folder), functools.partial(remove_tree, folder)
        host, ours = connect(), f"localhost/{workspace.matrix.project.name}/"
        images = (image for image in host.images(CELL) if image.labels[CELL] in cell_ids)
        for reference in (reference for image in images for reference in image.references):
            # What is built on top of ours has its labels, too. A push that was killed leaves the
            # name that it was sent by.
            if reference.startswith(ours) or is_candidate(reference):
                yield reference, functools.partial(host.remove, reference)

    removed: list[str] = []
    for name, remove in removals():
        if not dry_run:
            remove()
        removed.append(name)
        display.say(f"{'would remove' if dry_run else 'removed'} {name}")
    display.result({"removed": removed, "dry_run": dry_run})
