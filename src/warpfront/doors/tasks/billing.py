"""The task that says what an image is made of."""

from __future__ import annotations

from typing import Annotated

from warpfront.doors.display import Display
from warpfront.doors.tasks.declaring import Chosen, Json, Option, command
from warpfront.doors.tasks.showing import finish, workspace_here
from warpfront.model import Blocked, Failed


@command
def bill(
    display: Display,
    cells: Chosen,
    *,
    json: Json = False,
    who: Annotated[str, Option("say who asked for this wheel instead; no image is needed")] = "",
) -> None:
    """Write what each verified image is made of: SBOMs, and a table of licences.

    CycloneDX 1.6, SPDX 2.3, Markdown and JSON, in build/<cell>/bill/.
    """
    from warpfront.pipeline.beside.bills import bills
    from warpfront.pipeline.beside.who_asked import who_asked
    from warpfront.release.bill.askers import asking_line

    workspace = workspace_here(display)
    if not who:
        finish(bills(workspace, cells), json=json)
        return
    asked = who_asked(workspace, cells)
    lines = {
        cell_id: one if isinstance(one, Blocked | Failed) else asking_line(who, one)
        for cell_id, one in asked.items()
    }
    finish(lines, json=json)
