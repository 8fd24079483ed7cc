"""The path, in order. The only wing that joins pure and edge.

Each step takes a workspace, a selection and somebody to tell, takes the values that it needs out of
the workspace in its first lines, and returns values: one for each cell. A step is one file here.
What several steps share is in `within`; journeys that lead past the path are in `beside`.
"""

from warpfront.pipeline.building import build
from warpfront.pipeline.locking import lock
from warpfront.pipeline.planning import plan
from warpfront.pipeline.publishing import publish
from warpfront.pipeline.rendering import render
from warpfront.pipeline.reporting import report
from warpfront.pipeline.verifying import verify
from warpfront.pipeline.workspace import Workspace, open_workspace

STEPS = (
    plan,  # what would happen to each selected cell, and why; changes nothing
    lock,  # every wheel of every selected cell, pinned by hash, in images/locks/
    render,  # the build context of every selected cell, in build/<cell>/context/
    build,  # the images, parents first, reusing those whose content exists
    verify,  # the checks, run inside each image
    publish,  # what was proven to its tags, with the proof beside it
    report,  # what all of that left behind
)

__all__ = [
    "STEPS",
    "Workspace",
    "build",
    "lock",
    "open_workspace",
    "plan",
    "publish",
    "render",
    "report",
    "verify",
]
