"""The path, in order. The only wing that joins pure and edge.

Each step takes a workspace, a selection and somebody to tell, takes the values that it needs out of
the workspace in its first lines, and returns values: one for each cell. A step is one file here.
What several steps share is in `within`; journeys that lead past the path are in `beside`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warpfront.pipeline.building import build
    from warpfront.pipeline.locking import lock
    from warpfront.pipeline.planning import plan
    from warpfront.pipeline.publishing import publish
    from warpfront.pipeline.rendering import render
    from warpfront.pipeline.reporting import report
    from warpfront.pipeline.verifying import verify
    from warpfront.pipeline.workspace import Workspace, open_workspace

# Each in its file, which is loaded when it is asked for: who publishes needs nothing of builders.
STEPS = {
    "plan": "planning",  # what would happen to each selected cell, and why; changes nothing
    "lock": "locking",  # every wheel of every selected cell, pinned by hash, in images/locks/
    "render": "rendering",  # the build context of every selected cell, in build/<cell>/context/
    "build": "building",  # the images, parents first, reusing those whose content exists
    "verify": "verifying",  # the checks, run inside each image
    "publish": "publishing",  # what was proven to its tags, with the proof beside it
    "report": "reporting",  # what all of that left behind
}

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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{STEPS.get(name, 'workspace')}"), name)
