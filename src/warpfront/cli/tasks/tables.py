"""The task of the tables that plans go by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import AllowUndetermined, Json, Option, command
from warpfront.cli.tasks.showing import print_result, workspace_here

if TYPE_CHECKING:
    from warpfront.pipeline.workspace import Workspace


@command
def compat(
    display: Display,
    *,
    json: Json = False,
    update: Annotated[bool, Option("write their contents")] = False,
    check: Annotated[bool, Option("fail where the file is not current (for CI)")] = False,
    propose: Annotated[
        bool, Option("open a pull or merge request with their contents (in a job of CI)")
    ] = False,
    fits: Annotated[
        str, Option("only say which releases of common packages accept this torch, as last read")
    ] = "",
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """Read the wheel indexes of the compat table and say what changed.

    Reads pages and METADATA, never a whole wheel. An index that cannot be read
    keeps what was written of it.
    """
    from warpfront.ci.forge_api import forge_api
    from warpfront.commands.compat_update import (
        propose_update,
        read_indexes,
        refuse_stale,
        update_text,
        write_contents,
    )
    from warpfront.determination import require_determined
    from warpfront.matrix.compat import packaged_rows
    from warpfront.system.process import environment
    from warpfront.system.provenance import now
    from warpfront.wheels.site import site_when_needed

    workspace = workspace_here()
    if fits:
        _print_fitting(workspace, fits, json=json)
        return
    root, cells = workspace.folders.root, workspace.matrix.cells
    index_update = read_indexes(
        packaged_rows(),
        workspace.material.compat.contents,
        site=site_when_needed()(),
        addresses={cell.index.name: cell.index.url for cell in cells if cell.index},
        today=now()[:10],
        watch=display,
    )
    print_result(index_update, update_text(index_update), json=json)
    if update:
        display.say("written" if write_contents(index_update, root) else "nothing changed")
    elif check:
        refuse_stale(index_update, root)
    elif propose:
        display.say(propose_update(index_update, root, forge_api(environment())))
    require_determined(
        index_update.unread,
        allow_undetermined=allow_undetermined,
        hint="what was written of these indexes is as it was; run it where they answer",
    )


def _print_fitting(workspace: Workspace, torch: str, *, json: bool) -> None:
    from warpfront.matrix.compat import packaged_rows
    from warpfront.matrix.index_evidence import fitting_packages

    accepted = fitting_packages(packaged_rows(), workspace.material.compat.contents, torch)
    lines = (f"{name} {version or 'none accepts it'}\n" for name, version in accepted.items())
    print_result(accepted, "".join(lines), json=json)
