"""What is not a step, a module each. Path."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warpfront.commands import adopting as adopting
    from warpfront.commands import benching as benching
    from warpfront.commands import bills as bills
    from warpfront.commands import channels as channels
    from warpfront.commands import ci_runs as ci_runs
    from warpfront.commands import compat_update as compat_update
    from warpfront.commands import machine as machine
    from warpfront.commands import measurements as measurements
    from warpfront.commands import model_writing as model_writing
    from warpfront.commands import paging as paging
    from warpfront.commands import project_edits as project_edits
    from warpfront.commands import spreading as spreading
    from warpfront.commands import why_published as why_published
    from warpfront.commands import workflows as workflows


def __getattr__(name: str) -> ModuleType:
    """Return a module, which is loaded on first use: `--help` needs none."""
    return import_module(f"{__name__}.{name}")
