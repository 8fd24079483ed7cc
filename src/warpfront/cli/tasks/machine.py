"""Tasks for this machine, its engine, new projects, and cleaning."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import Chosen, DryRun, Json, Option, command
from warpfront.cli.tasks.showing import print_result, workspace_here
from warpfront.errors import EngineError
from warpfront.system.foreign import remove_tree
from warpfront.system.process import environment
from warpfront.verify.results import Outcome

CACHE_FOLDERS = ("views", "tools", "toolbox", "layers", "wheelhouse")


@command
def doctor(
    display: Display,
    *,
    json: Json = False,
    runner: Annotated[str, Option("hold it against this row of `runners:`, for CI")] = "",
) -> None:
    """Say what this machine has, and what to do about the rest.

    Looks at the engine, buildx, disk, indexes, registries and devices.
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
        raise EngineError(f"{len(broken)} findings stand in the way of a build")


@command
def engine(
    display: Display,
    *,
    json: Json = False,
    dry_run: DryRun = False,
    start: Annotated[bool, Option("start it (needs root)")] = False,
    stop: Annotated[bool, Option("stop it and remove its bridge and mounts")] = False,
    status: Annotated[bool, Option("say what runs (the default)")] = False,
) -> None:
    """Start or stop the embedded engine, a private dockerd, or say what runs.

    For machines that have no engine of their own.
    """
    from warpfront.images.engine import embedded

    del status  # the status is printed with every option
    folders = embedded.folders(environment())
    if start and not dry_run:
        embedded.start(*folders, on_line=display.say)
    elif stop and not dry_run:
        embedded.stop(*folders, on_line=display.say)
    state = embedded.status(*folders)
    print_result(state, f"{state}\n", json=json)


@command
def init(display: Display, *, dry_run: DryRun = False) -> None:
    """Make a new project in this folder.

    Writes matrix.yaml, templates, tasks.py and noxfile.py; nothing if one of
    them is there.
    """
    from warpfront.matrix.scaffold import make_project

    for path in make_project(Path.cwd(), dry_run=dry_run):
        display.say(f"{'would write' if dry_run else 'wrote'} {path}")
    display.say("next: edit matrix.yaml, then `invoke plan`")


@command
def clean(
    display: Display,
    cells: Chosen,
    *,
    dry_run: DryRun = False,
    everything: Annotated[
        bool, Option("also empty the cache of wheels and tools that all projects share")
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
    if everything:
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
