"""The steps, in order, a file each.

Each step is `step(workspace, selection, watch)` and returns one result per cell; `watch` receives
progress. A step unpacks the workspace in its first lines.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warpfront.pipeline.building import build as build
    from warpfront.pipeline.building_wheels import build_wheels as build_wheels
    from warpfront.pipeline.locking import lock as lock
    from warpfront.pipeline.planning import plan as plan
    from warpfront.pipeline.publishing import publish as publish
    from warpfront.pipeline.rendering import render as render
    from warpfront.pipeline.reporting import report as report
    from warpfront.pipeline.verifying import verify as verify
    from warpfront.pipeline.workspace import Workspace as Workspace
    from warpfront.pipeline.workspace import open_workspace as open_workspace

# Loaded on first use: a job that publishes needs no builder.
STEPS = {
    "plan": "planning",  # what would happen to each selected cell, and why; changes nothing
    "lock": "locking",  # every wheel of every selected cell, pinned by hash, in images/locks/
    "build-wheels": "building_wheels",  # those that no index has, in the images they are for
    "render": "rendering",  # the build context of every selected cell, in build/<cell>/context/
    "build": "building",  # the images, parents first, reusing those whose content exists
    "verify": "verifying",  # the checks, run inside each image
    "publish": "publishing",  # proven images to their tags, with the proof attached
    "report": "reporting",  # results of all steps
}


def __getattr__(name: str) -> Any:
    """Return a step, or what `workspace` has of that name."""
    module = STEPS.get(name.replace("_", "-"), "workspace")
    return getattr(import_module(f"{__name__}.{module}"), name)
