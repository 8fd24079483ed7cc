"""The tasks of the release: publish what was proven, and keep house in registries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import (
    AllowUndetermined,
    Chosen,
    DryRun,
    Json,
    Option,
    command,
)
from warpfront.cli.tasks.showing import finish, print_result, workspace_here
from warpfront.determination import require_determined
from warpfront.errors import InputError
from warpfront.matrix.cell import Selection

Channel = Annotated[
    str, Option("which of the channels in matrix.yaml (the one called release if not given)")
]
To = Annotated[str, Option("another repository than the matrix's (127.0.0.1:5000/trial)")]
Key = Annotated[
    str, Option("what cosign signs with: a file, a KMS address, or keyless; else COSIGN_KEY")
]


@command
def publish(
    display: Display,
    cells: Chosen,
    *,
    json: Json = False,
    dry_run: DryRun = False,
    channel: Channel = "release",
    to: To = "",
    key: Key = "",
) -> None:
    """Give proven images their tags, attach the proof, and sign it with a key.

    Nothing that a channel's demands are not met for is sent; docs/release.md.
    """
    from warpfront import pipeline

    results = pipeline.publish(
        workspace_here(), cells, display, channel=channel, to=to, key=key, dry_run=dry_run
    )
    finish(results, json=json)


@dataclass(frozen=True)
class ReleaseOptions:
    """The action of `release`: at most one of these options, the listing by default."""

    list_: Annotated[bool, Option("list what is published (the default)")] = False
    show: Annotated[str, Option("one image by its reference: what `why` says of it")] = ""
    promote: Annotated[
        str, Option("the channel whose images go into --channel, proven by what is attached")
    ] = ""
    yank: Annotated[str, Option("take this image back: its aliases go where they were before")] = ""
    because: Annotated[str, Option("why, for who finds it taken back")] = ""
    prune: Annotated[
        str, Option("remove old images of this channel and old candidates; or only `candidates`")
    ] = ""
    days: Annotated[int, Option("how old they have to be (14 if not given)")] = 14
    yes: Annotated[bool, Option("remove them: without it, prune only says what it would")] = False
    export: Annotated[str, Option("write published images into this folder, as OCI layouts")] = ""
    trust: Annotated[
        str, Option("the public key of who proved what is promoted, if not the one that signs here")
    ] = ""
    import_: Annotated[str, Option("publish what `--export` wrote into this folder")] = ""


@command
def release(
    display: Display,
    cells: Chosen,
    *,
    json: Json = False,
    dry_run: DryRun = False,
    keeping: ReleaseOptions,
    channel: Channel = "release",
    to: To = "",
    key: Key = "",
) -> None:
    """List what is published, promote it, take it back, carry it, clear up.

    Without an option of its own, every image of the channel with its tags.
    """
    from warpfront.commands.exporting import export
    from warpfront.commands.promoting import promote

    if keeping.show:
        _explain(keeping.show, keeping.trust, json=json)
    elif keeping.import_ and not Path(keeping.import_).is_dir():
        raise InputError(f"{keeping.import_}: no such folder", hint="`--export DIR` writes one")
    elif source := keeping.promote or keeping.import_:
        promoted = promote(
            workspace_here(),
            cells,
            display,
            source=source,
            channel=channel,
            to=to,
            key=key,
            trust=keeping.trust,
            dry_run=dry_run,
        )
        finish(promoted, json=json)
    elif keeping.export:
        folder = Path(keeping.export)
        written = export(workspace_here(), cells, display, folder=folder, channel=channel, to=to)
        finish(written, json=json)
    else:
        _keep_house(cells, keeping, channel, to, json=json, dry_run=dry_run)


def _keep_house(
    cells: Selection, keeping: ReleaseOptions, channel: str, to: str, *, json: bool, dry_run: bool
) -> None:
    from warpfront.commands.keeping import open_house
    from warpfront.report.releases import pruning_text, stock_text, yank_text

    tag = keeping.prune if keeping.prune not in {"", "candidates"} else channel
    with open_house(workspace_here(), cells, channel=tag, to=to) as house:
        if keeping.yank:
            yanked = house.yank(keeping.yank, keeping.because, dry_run=dry_run)
            print_result(yanked, yank_text(yanked, dry_run=dry_run), json=json)
        elif keeping.prune:
            dry = dry_run or not keeping.yes
            old = "" if keeping.prune == "candidates" else keeping.prune
            removed = house.prune(old, days=keeping.days, dry_run=dry)
            print_result(removed, pruning_text(removed, dry_run=dry), json=json)
        else:
            stock = house.stock()
            print_result(stock, stock_text(stock), json=json)


@command
def why(
    *,
    reference: Annotated[str, Option("the image: registry.example/repository:tag, or @sha256:...")],
    trust: Annotated[str, Option("a public key whose signature it should have")] = "",
    since: Annotated[
        str, Option("show what changed since this image instead: a tag, digest or reference")
    ] = "",
    allow_undetermined: AllowUndetermined = False,
    json: Json = False,
) -> None:
    """Say what a published image is, and what was proven of it.

    And who asked for each of its wheels, where this project has its lock.
    Of two (`warpfront why A B`, or --since B): which wheels, Debian packages
    and folders changed.
    """
    if not since:
        _explain(reference, trust, json=json)
        return
    from warpfront.commands.why_published import compare_tags
    from warpfront.release.tag_page import difference_text

    tag_difference = compare_tags(reference, since, trust=trust)
    print_result(tag_difference, difference_text(tag_difference), json=json)
    require_determined(
        tag_difference.undetermined,
        allow_undetermined=allow_undetermined,
        hint="publish with this version: its SBOMs list wheels, packages and folders",
    )


def _explain(reference: str, trust: str, *, json: bool) -> None:
    from warpfront.commands.why_published import explain
    from warpfront.release.why import why_text

    explanation = explain(workspace_here(), reference, trust=trust)
    print_result(explanation, why_text(explanation), json=json)
