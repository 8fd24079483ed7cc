"""The task of machines that take CI's jobs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import DryRun, Option, command
from warpfront.cli.tasks.showing import workspace_here
from warpfront.errors import InputError


@command
def runner(
    display: Display,
    *,
    dry_run: DryRun = False,
    row: Annotated[str, Option("the row of `runners:` that this machine is")] = "",
    prepare: Annotated[bool, Option("get ready: engine, devices, groups")] = False,
    tidy: Annotated[bool, Option("remove what jobs left here, and nobody else's")] = False,
    serve: Annotated[bool, Option("take jobs, each by a registration of its own")] = False,
    forge: Annotated[str, Option("the forge's API: https://api.github.com/repos/me/mine")] = "",
    agent: Annotated[str, Option("the folder of the forge's own agent, with its run.sh")] = "",
    token: Annotated[str, Option("a file with the token that registers; - for stdin")] = "",
    jobs: Annotated[int, Option("take so many and end; 0 for no end")] = 0,
) -> None:
    """Be a machine that takes jobs of CI: get ready, tidy up, serve.

    `invoke doctor --runner ROW` says whether it can.
    """
    from warpfront.commands import serving
    from warpfront.commands.readying import engine_of, named_runner
    from warpfront.commands.readying import tidy as tidy_up
    from warpfront.system.process import run, stream

    named = named_runner(workspace_here().matrix.runners, row)
    if prepare + tidy + serve != 1:
        raise InputError("one of --prepare, --tidy and --serve", hint="docs/ci.md")
    if dry_run:
        display.say(f"would be {named.name}: {', '.join(named.labels)}")
    elif prepare:
        serving.prepare(named, display, run)
        print(f"this machine is what `runners:` says of {named.name}")
    elif tidy:
        tidy_up(named, display, engine_of(named, display))
    else:
        place = serving.JobSource(api=forge.rstrip("/"), agent=Path(agent), token=_token(token))
        serving.serve(
            named,
            place,
            display,
            lambda agent_command: stream(agent_command, display.say),
            jobs=jobs,
            pause=time.sleep,
        )


def _token(path: str) -> str:
    """Never as an argument: every user of the machine can read those."""
    from warpfront.system.store import read_text

    if path == "-":
        return sys.stdin.readline().strip()
    return (read_text(Path(path)) or "").strip() if path else ""
