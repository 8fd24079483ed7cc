"""Commands that make and change a project: init, add, docs, completion."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import DryRun, Option, command


@command(example="init")
def init(display: Display, *, dry_run: DryRun = False) -> None:
    """Make a new project in this folder.

    Writes matrix.yaml, templates, tasks.py and noxfile.py, if none exists.
    """
    from warpfront.matrix.scaffold import make_project

    for path in make_project(Path.cwd(), dry_run=dry_run):
        display.say(f"{'would write' if dry_run else 'wrote'} {path}")
    display.say("next: edit matrix.yaml, then `warpfront plan`")


@command(example="completion bash >> ~/.bashrc")
def completion(
    shell: Annotated[
        str, Option("bash, zsh or fish", choices=("bash", "zsh", "fish"), place=True)
    ] = "bash",
) -> None:
    """Print the completion script of bash, zsh or fish."""
    from click.shell_completion import get_completion_class

    from warpfront.cli.program import Program

    kind = get_completion_class(shell)
    assert kind is not None
    print(kind(Program(), {}, "warpfront", "_WARPFRONT_COMPLETE").source())
