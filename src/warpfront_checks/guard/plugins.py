"""Entry points by which torch and triton load other people's code while they are imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping

from .fast_path import GROUPS, METADATA, groups_of, name_and_version
from .manifest import Manifest
from .policy import Policy

_TURNED_OFF = {"torch": ("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")}


def plugin_problems(
    policy: Policy, manifest: Manifest, folders: Iterable[str] | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yield (distribution, group, folder of its metadata) for each on the path that is loaded
    at an import of the stack and was not sealed with it.
    """
    location = os.path.realpath(manifest.location)
    sealed = {path for files in manifest.files.values() for path in files}
    for folder in dict.fromkeys(os.path.realpath(one or ".") for one in folders or sys.path):
        for entry in _metadata(folder):
            if folder == location and f"{entry}/entry_points.txt" in sealed:
                continue
            name = name_and_version(entry)[0]
            for group in groups_of(f"{folder}/{entry}"):
                if not policy.is_relaxed(name):
                    yield name, group, f"{folder}/{entry}"


def is_loaded_by(group: str, package: str, environment: Mapping[str, str]) -> bool:
    """Return whether importing `package` loads the group in this environment."""
    variable, off = _TURNED_OFF.get(package, ("", ""))
    return GROUPS[group] == package and (not variable or environment.get(variable) != off)


def _metadata(folder: str) -> list[str]:
    try:
        entries = os.listdir(folder)  # noqa: PTH208 - at every import of torch: names are enough
    except OSError:
        return []
    return sorted(one for one in entries if one.endswith(METADATA))
