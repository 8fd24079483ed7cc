"""Commands that make and change a project: init, add, migrate, docs, completion."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from warpfront import commands
from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import DryRun, Group, Option, command
from warpfront.cli.tasks.showing import project_root
from warpfront.errors import InputError
from warpfront.matrix.selection import nearest
from warpfront.system.packaged import packaged_folder

if TYPE_CHECKING:
    from warpfront.matrix.scaffold import Edit


@command(example="init --vendors cpu,nvidia:13.0,amd --registry ghcr.io/me")
def init(
    display: Display,
    *,
    dry_run: DryRun = False,
    name: Annotated[str, "name of the project (default: of this folder)"] = "",
    vendors: Annotated[str, "ROWS  rows to begin with: cpu,nvidia:13.0,amd"] = "",
    base: Annotated[str, "base of the images: debian-12 or debian-13"] = "",
    registry: Annotated[str, "HOST/PATH  registry of published images"] = "",
    from_: Annotated[str, "FILE  a GPU Dockerfile: its row, and an image with its packages"] = "",
) -> None:
    """Make a new project in this folder.

    Writes matrix.yaml, templates, README, tasks.py and noxfile.py, if none
    exists. On a terminal it asks for what no option names.
    """
    from warpfront.matrix.scaffold import new_project

    folder = Path.cwd()
    if not vendors and not from_:
        vendors = _answer("rows: cpu, nvidia:13.0, amd, ...", "cpu==2.13.0")
    plain = "".join(c if c.isalnum() else "-" for c in folder.name.lower()).strip("-")
    facts = {
        "name": name or (plain if plain.isascii() and plain else "my-images"),
        "vendors": vendors,
        "base": base or _answer("base: debian-12 (Python 3.11), debian-13 (3.13)", "debian-12"),
        "registry": registry or _answer("registry of published images", "ghcr.io/my"),
    }
    project_from = commands.project_edits.project_from
    edit = project_from(folder, Path(from_), **facts) if from_ else new_project(folder, **facts)
    _write(display, edit, dry_run=dry_run, root=folder)
    display.say("next: `warpfront plan`, then `warpfront build`")


def _answer(question: str, default: str) -> str:
    """Return what a person types, or the default: an empty line, or no terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return default
    sys.stderr.write(f"{question} [{default}]: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip() or default


def _write(display: Display, edit: Edit, *, dry_run: bool, root: Path | None = None) -> None:
    for line in edit.write(root or project_root(), dry_run=dry_run):
        display.say(line)
    display.result({"files": list(edit.files), "notes": edit.notes, "dry_run": dry_run})


add_group = Group(name="add", help="Add an image, a row or a Python to matrix.yaml.")


@command("add image", example="add image app --requirements requirements.txt")
def add_image(
    display: Display,
    name: Annotated[str, "name of the image"],
    *,
    dry_run: DryRun = False,
    parent: Annotated[str, "image that it is built on (default torch)"] = "torch",
    requirements: Annotated[str, Option("FILE  requirements to copy", short="r")] = "",
) -> None:
    """Add an image with its template and requirements.

    Comments and every other byte of matrix.yaml stay.
    """
    add = commands.project_edits.add_image
    edit = add(project_root(), name, parent=parent, requirements=requirements)
    _write(display, edit, dry_run=dry_run)


@command("add row", example="add row nvidia 13.0")
def add_row(
    display: Display,
    vendor: Annotated[str, "nvidia, amd or cpu"],
    toolkit: Annotated[
        str, Option("version of CUDA or ROCm (default: the newest)", place=True)
    ] = "",
    *,
    dry_run: DryRun = False,
) -> None:
    """Add a row with the newest torch that has wheels for a toolkit.

    The compat table chooses torch, index and targets.
    """
    edit = commands.project_edits.add_row(project_root(), vendor, toolkit)
    _write(display, edit, dry_run=dry_run)


@command("add python", example="add python 3.13")
def add_python(
    display: Display, version: Annotated[str, "version of Python"], *, dry_run: DryRun = False
) -> None:
    """Add every row of the default Python for another Python, with its base."""
    _write(display, commands.project_edits.add_python(project_root(), version), dry_run=dry_run)


@command(example="migrate --dry-run")
def migrate(display: Display, *, dry_run: DryRun = False) -> None:
    """Rewrite the project of an older warpfront by today's names.

    Keys of matrix.yaml, and modules that tasks.py and noxfile.py import.
    Comments and every other byte stay.
    """
    edit = commands.project_edits.migrate(project_root())
    _write(display, edit, dry_run=dry_run)
    if not edit.files:
        display.say("nothing to migrate")


Topic = Annotated[str, Option("name of a page; `options` lists common options", place=True)]
_SHELLS = ("bash", "zsh", "fish")


@command(example="docs matrix")
def docs(display: Display, topic: Topic = "") -> None:
    """Print a page of the documentation, without a network.

    Without TOPIC: the names of the pages.
    """
    from warpfront.cli.program import common_options

    paths = pages()
    topics = (*paths, "options")
    if topic and topic not in topics:
        raise InputError(f"no page {topic!r}", hint=nearest(topic, paths))
    if topic:
        text = common_options() if topic == "options" else paths[topic].read_text("utf-8")
        display.result({"topic": topic, "text": text}, text)
    else:
        display.result({"topics": topics}, "".join(f"{name}\n" for name in topics))


def pages() -> dict[str, Path]:
    """Return the files of pages and guides by their names."""
    folder = packaged_folder("docs")
    paths = (*folder.glob("guides/*.md"), *folder.glob("*.md"))
    return {path.stem: path for path in sorted(paths, key=lambda path: path.stem)}


@command(example="completion bash >> ~/.bashrc")
def completion(
    display: Display,
    shell: Annotated[str, Option("bash, zsh or fish", choices=_SHELLS, place=True)] = "bash",
) -> None:
    """Print the completion script of bash, zsh or fish."""
    from click.shell_completion import get_completion_class

    from warpfront.cli.program import Program

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(Program(), {}, "warpfront", "_WARPFRONT_COMPLETE").source()
    display.result({"shell": shell, "script": script}, f"{script}\n")
