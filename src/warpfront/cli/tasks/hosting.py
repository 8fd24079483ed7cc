"""The commands of machines that take jobs of CI."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import DryRun, Group, Option, command
from warpfront.cli.tasks.machine import print_ready
from warpfront.cli.tasks.showing import workspace_here

if TYPE_CHECKING:
    from warpfront.matrix.runners import Runner

Row = Annotated[str, Option("the row of `runners:` that this machine is", place=True)]

runner_group = Group(name="runner", help="Set up and run this machine as a self-hosted CI runner.")


@command("runner setup", example="runner setup gpu-1", formerly=("runner --prepare",))
def setup(display: Display, row: Row = "", *, dry_run: DryRun = False) -> None:
    """Prepare this machine for jobs: engine, devices and groups.

    `doctor --runner ROW` checks it without changing anything.
    """
    from warpfront.commands import serving
    from warpfront.system.process import run

    if (runner := _named(row, display, dry_run=dry_run)) is not None:
        serving.prepare(runner, display, run)
        print_ready(display, runner.name)


@command("runner tidy", example="runner tidy gpu-1")
def tidy(display: Display, row: Row = "", *, dry_run: DryRun = False) -> None:
    """Remove what jobs of this project left on this machine, and nothing else."""
    from warpfront.commands.readying import engine_of
    from warpfront.commands.readying import tidy as tidy_up

    if (runner := _named(row, display, dry_run=dry_run)) is not None:
        tidy_up(runner, display, engine_of(runner, display))


@command("runner serve", example="runner serve gpu-1 --agent ~/agent --token token.txt")
def serve(
    display: Display,
    row: Row = "",
    *,
    dry_run: DryRun = False,
    forge: Annotated[
        str, "address of the CI service's API: https://api.github.com/repos/me/mine"
    ] = "",
    agent: Annotated[str, "folder of the CI service's agent, with its run.sh"] = "",
    token: Annotated[str, "file with the registration token; - for stdin"] = "",
    jobs: Annotated[int, "N  stop after this many jobs (0: never)"] = 0,
) -> None:
    """Take jobs of CI, each with a registration of its own."""
    from warpfront.commands import serving
    from warpfront.system.process import stream
    from warpfront.system.store import read_text

    if (runner := _named(row, display, dry_run=dry_run)) is None:
        return
    # Never as an argument: every user of the machine can read those.
    if token == "-":  # noqa: S105 - stdin's name
        token = sys.stdin.readline()
    elif token:
        token = read_text(Path(token)) or ""
    serving.serve(
        runner,
        serving.JobSource(api=forge.rstrip("/"), agent=Path(agent), token=token.strip()),
        display,
        lambda agent_command: stream(agent_command, display.say),
        jobs=jobs,
        pause=time.sleep,
    )


def _named(row: str, display: Display, *, dry_run: bool) -> Runner | None:
    """Return the row of this name; None, with a line on stderr, for a dry run."""
    from warpfront.commands.readying import named_runner

    runner = named_runner(workspace_here().matrix.runners, row)
    if dry_run:
        display.say(f"would be {runner.name}: {', '.join(runner.labels)}")
        display.result({"runner": runner.name, "labels": runner.labels, "dry_run": True})
        return None
    return runner
