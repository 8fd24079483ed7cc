"""Commands for this machine, its engine, and cleaning."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated

from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import Chosen, DryRun, Group, Json, Option, command
from warpfront.cli.tasks.showing import counted, print_result, workspace_here
from warpfront.errors import EngineError
from warpfront.system.foreign import remove_tree
from warpfront.system.process import environment
from warpfront.verify.results import Outcome

CACHE_FOLDERS = ("views", "tools", "toolbox", "layers", "wheelhouse")


@command(example="doctor")
def doctor(
    display: Display,
    *,
    json: Json = False,
    runner: Annotated[str, "ROW  check this machine for this row of `runners:`"] = "",
) -> None:
    """Examine this machine: engine, disk, indexes, devices.

    Each finding says what to do about it.
    """
    if runner:
        from warpfront.commands.readying import named_runner, ready

        ready(named_runner(workspace_here().matrix.runners, runner), display)
        print(f"this machine is what `runners:` says of {runner}")
        return
    from warpfront.commands.doctor import examine

    findings = examine(workspace_here(display), display)
    print_result(findings, "".join(f"{finding}\n" for finding in findings), json=json)
    broken = [finding for finding in findings if finding.outcome is Outcome.FAILED]
    if broken:
        raise EngineError(f"{counted(len(broken), 'finding')} must be resolved before a build")


engine_group = Group(
    name="engine",
    help="The embedded engine, a private dockerd: start, stop, status.",
    default="status",
)


@command("engine start", example="engine start")
def start(display: Display, *, json: Json = False, dry_run: DryRun = False) -> None:
    """Start a private dockerd, for a machine without an engine. Needs root."""
    from warpfront.images.engine import embedded

    if not dry_run:
        embedded.start(*embedded.folders(environment()), on_line=display.say)
    _print_status(json=json)


@command("engine stop", example="engine stop")
def stop(display: Display, *, json: Json = False, dry_run: DryRun = False) -> None:
    """Stop the embedded engine, and remove its bridge and mounts."""
    from warpfront.images.engine import embedded

    if not dry_run:
        embedded.stop(*embedded.folders(environment()), on_line=display.say)
    _print_status(json=json)


@command("engine status", example="engine status")
def status(*, json: Json = False) -> None:
    """Print which embedded engine runs, and its DOCKER_HOST."""
    _print_status(json=json)


def _print_status(*, json: bool) -> None:
    from warpfront.images.engine import embedded

    state = embedded.status(*embedded.folders(environment()))
    print_result(state, f"{state}\n", json=json)


@command(example="clean --target sm_90")
def clean(
    display: Display,
    cells: Chosen,
    *,
    dry_run: DryRun = False,
    all_: Annotated[
        bool,
        Option(
            "also empty the cache of wheels and tools that all projects share",
            formerly=("everything",),
        ),
    ] = False,
) -> None:
    """Remove build results and images of the selected cells.

    Wheels and locks stay.
    """
    from warpfront.images.engine import connect
    from warpfront.images.labels import CELL
    from warpfront.matrix.selection import select
    from warpfront.release.ledger import is_candidate

    remove = functools.partial(_remove, display, dry_run=dry_run)
    workspace = workspace_here()
    cell_ids = {cell.id for cell in select(workspace.matrix.cells, cells)}
    folders = [workspace.folders.store.cell_folder(cell_id) for cell_id in sorted(cell_ids)]
    if all_:
        folders += [workspace.folders.cache / name for name in CACHE_FOLDERS]
    for folder in folders:
        if folder.exists():
            remove(str(folder), functools.partial(remove_tree, folder))
    host, ours = connect(environment()), f"localhost/{workspace.matrix.project.name}/"
    for image in host.images(CELL):
        if image.labels[CELL] in cell_ids:
            for reference in image.references:
                # What is built on top of ours has its labels, too. A push that was killed leaves
                # the name that it was sent by.
                if reference.startswith(ours) or is_candidate(reference):
                    remove(reference, functools.partial(host.remove, reference))


def _remove(display: Display, kind: str, act: Callable[[], None], *, dry_run: bool) -> None:
    if not dry_run:
        act()
    display.say(f"{'would remove' if dry_run else 'removed'} {kind}")
