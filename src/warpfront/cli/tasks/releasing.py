"""The commands of published images: publish, list, promote, withdraw, carry, explain."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from warpfront import commands, pipeline
from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import (
    COMMON,
    AllowUndetermined,
    Chosen,
    DryRun,
    Group,
    Option,
    command,
)
from warpfront.cli.tasks.showing import finish, workspace_here
from warpfront.errors import InputError
from warpfront.step_results import require_determined

Trust = Annotated[str, COMMON["trust"]]
OldChannel = Annotated[str, Option("CHANNEL  a channel, or `candidates` alone", place=True)]
Published = Annotated[str, "the image: REGISTRY/NAME:TAG or @sha256:..."]


@dataclass(frozen=True)
class Place:
    """A channel, and its repository if another than the matrix's."""

    channel: Annotated[str, COMMON["channel"]] = "release"
    to: Annotated[str, COMMON["to"]] = ""


@dataclass(frozen=True)
class Signed(Place):
    """The same, and the key of its signatures; `dry_run` publishes nothing."""

    key: Annotated[str, COMMON["key"]] = ""
    dry_run: DryRun = False


@command(example="publish --channel nightly --dry-run")
def publish(display: Display, cells: Chosen, *, place: Signed) -> None:
    """Tag proven images, attach the proof, and sign it.

    An image that lacks what its channel demands is not sent.
    """
    finish(display, pipeline.publish(workspace_here(), cells, display, **vars(place)))


release_group = Group(
    name="release", help="Published images: list, promote, withdraw, remove, carry.", default="list"
)


@command("release list", example="release list --channel nightly")
def list_(display: Display, cells: Chosen, *, place: Place) -> None:
    """List the images of a channel with their tags, newest first."""
    from warpfront.report.described import stock_text

    with commands.channels.open_channel(workspace_here(), cells, **vars(place)) as repositories:
        stock = repositories.stock()
        display.result(stock, stock_text(stock))


@command("release show", example="release show ghcr.io/me/torch:2.13.0-cpu-py3.11")
def show(display: Display, reference: Published, *, trust: Trust = "") -> None:
    """Print what a published image is, and what was proven of it."""
    _explain(display, reference, trust)


@command("release promote", example="release promote nightly --channel release")
def promote(
    display: Display,
    cells: Chosen,
    source: Annotated[str, "FROM  the channel whose images are promoted"],
    *,
    place: Signed,
    trust: Trust = "",
) -> None:
    """Publish images of one channel in another, by the proof attached to them."""
    options = {"source": source, "trust": trust, **vars(place)}
    finish(display, commands.channels.promote(workspace_here(), cells, display, **options))


@command("release yank", example="release yank ghcr.io/me/torch:2.13.0-cpu-py3.11 --reason CVE")
def yank(
    display: Display,
    cells: Chosen,
    reference: Annotated[str, "the image to withdraw"],
    *,
    place: Place,
    dry_run: DryRun = False,
    reason: Annotated[str, Option("the reason, for its users", formerly=("because",))] = "",
) -> None:
    """Withdraw an image, and move its tags back to the previous one."""
    from warpfront.report.described import yank_text

    with commands.channels.open_channel(workspace_here(), cells, **vars(place)) as repositories:
        yanked = repositories.yank(reference, reason, dry_run=dry_run)
        display.result(yanked, yank_text(yanked, dry_run=dry_run))


@command("release prune", example="release prune nightly --days 14 --yes")
def prune(
    display: Display,
    cells: Chosen,
    old: OldChannel = "candidates",
    *,
    dry_run: DryRun = False,
    days: Annotated[int, "N  age of what is removed (default 14)"] = 14,
    yes: Annotated[bool, "remove them; without it they are only listed"] = False,
    place: Place,
) -> None:
    """Remove old images of a channel and old candidates."""
    from warpfront.report.described import pruning_text

    only_candidates = old == "candidates"
    options = vars(place) if only_candidates else {**vars(place), "channel": old}
    with commands.channels.open_channel(workspace_here(), cells, **options) as repositories:
        dry = dry_run or not yes
        removed = repositories.prune("" if only_candidates else old, days=days, dry_run=dry)
        display.result(removed, pruning_text(removed, dry_run=dry))


@command("release export", example="release export layouts --channel release")
def export_(
    display: Display,
    cells: Chosen,
    folder: Annotated[str, "DIR  the folder to write OCI layouts into"],
    *,
    place: Place,
) -> None:
    """Write published images into a folder as OCI layouts."""
    options = {"folder": Path(folder), **vars(place)}
    finish(display, commands.channels.export(workspace_here(), cells, display, **options))


@command("release import", example="release import layouts --to registry.internal/me")
def import_(
    display: Display,
    cells: Chosen,
    folder: Annotated[str, "DIR  a folder of `release export`"],
    *,
    place: Signed,
    trust: Trust = "",
) -> None:
    """Publish the images of a folder that `release export` wrote."""
    if not Path(folder).is_dir():
        raise InputError(f"{folder}: no such folder", hint="`release export DIR` writes one")
    promote.body(display, cells, folder, place=place, trust=trust)


@command(example="why ghcr.io/me/torch:2.13.0-cpu-py3.11")
def why(
    display: Display,
    reference: Published,
    since: Annotated[
        str, Option("OLDER  an older image: list what changed since it", place=True)
    ] = "",
    *,
    trust: Trust = "",
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """Print what a published image holds, and what was proven.

    With OLDER: which wheels, Debian packages and folders changed since.
    """
    if not since:
        _explain(display, reference, trust)
        return
    from warpfront.release.tag_contents import difference_text

    tag_difference = commands.why_published.compare_tags(reference, since, trust=trust)
    display.result(tag_difference, difference_text(tag_difference))
    hint = "publish with this version: its SBOMs list wheels, packages and folders"
    unknown = tag_difference.undetermined
    require_determined(unknown, allow_undetermined=allow_undetermined, hint=hint)


def _explain(display: Display, reference: str, trust: str) -> None:
    from warpfront.release.why import why_text

    explanation = commands.why_published.explain(workspace_here(), reference, trust=trust)
    display.result(explanation, why_text(explanation))
