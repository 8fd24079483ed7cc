"""Which processes of this machine have an accelerator open: a device left busy. Edge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_NVIDIA = "/dev/nvidia"
# Daemons of drivers, which hold devices for as long as a machine runs.
_KEEPERS = frozenset({"nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "dcgm-exporter"})


def device_holders(proc: Path = Path("/proc")) -> Mapping[int, str]:
    """Process -> its name, of those that may be looked at: root sees all, others their own."""
    found = {}
    for folder in proc.iterdir():
        if folder.name.isdigit() and _holds_device(folder / "fd"):
            name = _name(folder)
            if name not in _KEEPERS:
                found[int(folder.name)] = name
    return found


def _holds_device(folder: Path) -> bool:
    try:
        links = [str(one.readlink()) for one in folder.iterdir()]
    except OSError:  # it ended, or is somebody else's
        return False
    return any(_is_device(link) for link in links)


def _is_device(path: str) -> bool:
    """`/dev/nvidiactl` is open in whoever only asks what there is."""
    if path.startswith(_NVIDIA):
        return path.removeprefix(_NVIDIA).isdigit()
    return path.startswith(("/dev/kfd", "/dev/dri/renderD", "/dev/accel/"))


def _name(folder: Path) -> str:
    try:
        return (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "?"
