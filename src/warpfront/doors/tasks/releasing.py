"""The tasks of the release: publish what was proven, and keep house in registries."""

from __future__ import annotations

from typing import Annotated

from warpfront.doors.display import Display
from warpfront.doors.tasks.declaring import Chosen, DryRun, Json, Option, command
from warpfront.doors.tasks.showing import finish, workspace_here

Channel = Annotated[str, Option("the channel of matrix.yaml's release: (release if not given)")]
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
    """Give proven images their tags, with the proof attached and signed.

    Nothing that a channel's demands are not met for is sent; docs/release.md.
    """
    from warpfront import pipeline

    results = pipeline.publish(
        workspace_here(), cells, display, channel=channel, to=to, key=key, dry_run=dry_run
    )
    finish(results, json=json)
