"""The names of a cell: its id and its tag. Written here, parsed back nowhere. Pure."""

from __future__ import annotations

import re

from warpfront.matrix.cell import Toolkit
from warpfront.matrix.expansion import Point
from warpfront.matrix.language import DEFAULT_MACHINE

_BEFORE_NUMBER = re.compile(r"(?<=[a-z])_(?=[0-9])")
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,199}\Z")


def cell_id(point: Point, toolkit: Toolkit | None, image: str) -> str:
    """Return `nvidia-cuda130-sm80_sm90-py311-torch2141-torch`: lower case, no dots."""
    hardware = (str(toolkit or ""), *_hardware(point, point.targets))
    parts = (point.vendor, *hardware, f"py{point.python}", f"torch{point.torch}", image)
    return "-".join(filter(None, parts)).replace(".", "")


def cell_tag(point: Point, toolkit: Toolkit | None) -> str:
    """Return `2.14.1-cuda13.0-py3.11`, with targets and machine after the toolkit if needed."""
    hardware = _hardware(point, point.targets if point.tag_targets else ())
    parts = (point.torch, str(toolkit or point.vendor), *hardware, f"py{point.python}")
    return "-".join(filter(None, parts))


def _hardware(point: Point, targets: tuple[str, ...]) -> tuple[str, str]:
    """Return the targets, and the machine if it is not the usual one, nor a target."""
    is_plain = point.machine in {DEFAULT_MACHINE, *targets}
    return joined_targets(targets), "" if is_plain else point.machine


def is_id(text: str) -> bool:
    """Return true if `text` can be a file name, a folder and part of a PEP 751 file name."""
    return _ID.match(text) is not None


def joined_targets(targets: tuple[str, ...]) -> str:
    """Return targets as names have them, `sm80_sm90`: `sm_80` loses its underscore."""
    return "_".join(_BEFORE_NUMBER.sub("", target) for target in targets)


def verifying_job(cell_id: str, target: str) -> str:
    """Return the name of the job that verifies a cell on a target."""
    return f"verify-{cell_id}-{target}"
