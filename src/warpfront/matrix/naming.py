"""The names of a cell: its id and its tag. Written here, parsed back nowhere. Pure."""

from __future__ import annotations

import re

_BEFORE_NUMBER = re.compile(r"(?<=[a-z])_(?=[0-9])")
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,199}\Z")


def cell_id(
    *,
    vendor: str,
    toolkit: str,
    targets: tuple[str, ...],
    machine: str,
    python: str,
    torch: str,
    image: str,
) -> str:
    """Return `nvidia-cuda130-sm80_sm90-py311-torch2141-torch`: lower case, no dots. `toolkit`
    is name and version (`cuda13.0`), `machine` its part of the name (`aarch64`), "" for none.
    """
    parts = [
        vendor,
        toolkit.replace(".", ""),
        joined_targets(targets),
        "" if machine in targets else machine,
        f"py{python.replace('.', '')}",
        f"torch{torch.replace('.', '')}",
        image,
    ]
    return "-".join(part for part in parts if part)


def cell_tag(
    *, vendor: str, toolkit: str, targets: tuple[str, ...], machine: str, python: str, torch: str
) -> str:
    """Return `2.14.1-cuda13.0-py3.11`, with `targets` and `machine` after the toolkit if needed."""
    machine_part = "" if machine in targets else machine
    parts = [torch, toolkit or vendor, joined_targets(targets), machine_part, f"py{python}"]
    return "-".join(part for part in parts if part)


def is_id(text: str) -> bool:
    """Return true if `text` can be a file name, a folder and part of a PEP 751 file name."""
    return _ID.match(text) is not None


def joined_targets(targets: tuple[str, ...]) -> str:
    """Return targets as names have them, `sm80_sm90`: `sm_80` loses its underscore."""
    return "_".join(_BEFORE_NUMBER.sub("", target) for target in targets)


def verifying_job(cell_id: str, target: str) -> str:
    """Return the name of the job that verifies a cell on a target."""
    return f"verify-{cell_id}-{target}"
