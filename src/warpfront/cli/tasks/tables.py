"""The commands of the compat table."""

from __future__ import annotations

from typing import Literal

from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import AllowUndetermined, DryRun, Group, command
from warpfront.cli.tasks.showing import workspace_here
from warpfront.system.process import environment

compat_group = Group(
    name="compat",
    help="The table of wheels: compare with the indexes, or update.",
    default="update --dry-run",
)
Mode = Literal["write", "check", "propose", "print"]


@command("compat update", example="compat update")
def update(
    display: Display, *, dry_run: DryRun = False, allow_undetermined: AllowUndetermined = False
) -> None:
    """Read the wheel indexes of the compat table, and write their contents.

    Reads pages and METADATA, never a whole wheel. An index that cannot be read
    keeps its old contents.
    """
    mode: Mode = "print" if dry_run else "write"
    _read(display, mode, allow_undetermined=allow_undetermined)


@command("compat check", example="compat check")
def check(display: Display, *, allow_undetermined: AllowUndetermined = False) -> None:
    """Fail if the wheel indexes have releases that the compat table lacks."""
    _read(display, "check", allow_undetermined=allow_undetermined)


@command("compat propose", example="compat propose", hidden=True)
def propose(display: Display, *, allow_undetermined: AllowUndetermined = False) -> None:
    """Open a pull or merge request with the contents, in a job of CI."""
    _read(display, "propose", allow_undetermined=allow_undetermined)


def _read(display: Display, mode: Mode, *, allow_undetermined: bool) -> None:
    from warpfront.ci.forge_api import forge_api
    from warpfront.commands.compat_update import (
        propose_update,
        read_indexes,
        refuse_stale,
        update_text,
        write_contents,
    )
    from warpfront.matrix.compat import packaged_rows
    from warpfront.step_results import require_determined
    from warpfront.system.provenance import now
    from warpfront.wheels.sources import site_when_needed

    workspace = workspace_here()
    root, cells = workspace.folders.root, workspace.matrix.cells
    index_update = read_indexes(
        packaged_rows(),
        workspace.material.compat.contents,
        site=site_when_needed()(),
        addresses={cell.index.name: cell.index.url for cell in cells if cell.index},
        today=now()[:10],
        watch=display,
    )
    display.result(index_update, update_text(index_update))
    if mode == "write":
        display.say("written" if write_contents(index_update, root) else "nothing changed")
    elif mode == "check":
        refuse_stale(index_update, root)
    elif mode == "propose":
        display.say(propose_update(index_update, root, forge_api(environment())))
    require_determined(
        index_update.unread,
        allow_undetermined=allow_undetermined,
        hint="what was written of these indexes is as it was; run it where they answer",
    )
