"""Processes of this machine that have an accelerator open: a busy device after a job. Edge."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path

_NVIDIA = "/dev/nvidia"
_DEVICES = ("/dev/kfd", "/dev/dri/renderD", "/dev/accel/")
# Daemons of drivers, which use devices for as long as a machine runs.
_JOBS = (b"GITHUB_RUN_ID=", b"CI_JOB_ID=")
"""What forges put into the environment of a job, and so of everything that it starts."""
_KEEPERS = frozenset({"nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "dcgm-exporter"})


def device_holders(proc: Path = Path("/proc")) -> Mapping[int, str]:
    """Return the names of processes with an open device, by pid: root sees all, a user its own."""
    holders = {}
    for folder in proc.iterdir():
        if folder.name.isdigit() and _holds_device(folder / "fd"):
            try:
                name = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
            except OSError:
                name = "?"
            if name not in _KEEPERS:
                holders[int(folder.name)] = name
    return holders


def end_left_behind(proc: Path = Path("/proc")) -> Mapping[int, str]:
    """Kill the orphans among those and return them: started by a CI job, without a parent that
    waits for them. By KILL: what hangs in a driver ignores TERM.
    """
    holders = device_holders(proc)
    behind = {pid: name for pid, name in holders.items() if _is_orphan_of_a_job(proc / str(pid))}
    for pid in behind:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return behind


def _is_orphan_of_a_job(folder: Path) -> bool:
    try:
        started = (folder / "environ").read_bytes().split(b"\0")
        # `pid (any name) state parent`: the name may have spaces and brackets.
        parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
    except OSError:
        return False
    return parent == "1" and any(variable.startswith(_JOBS) for variable in started)


def _holds_device(folder: Path) -> bool:
    try:
        links = [str(path.readlink()) for path in folder.iterdir()]
    except OSError:  # it ended, or is another user's
        return False
    # `/dev/nvidiactl` is open in processes that only list devices, too.
    return any(
        link.startswith(_DEVICES) or (link.startswith(_NVIDIA) and link[len(_NVIDIA) :].isdigit())
        for link in links
    )
