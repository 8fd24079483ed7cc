"""Readiness of a machine for its row of `runners:`, before a job begins. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from warpfront.matrix.runners import Runner
from warpfront.system.texts import readable_size
from warpfront_checks.hardware.values import Accelerator

ROOM_BYTES = 20 * 10**9
"""A CUDA image and its build need about this much (docs/performance.md)."""
SPARE_FOLDERS = (
    "/usr/share/dotnet",
    "/usr/local/lib/android",
    "/usr/local/share/powershell",
    "/usr/share/swift",
    "/opt/ghc",
    "/usr/local/.ghcup",
    "/opt/hostedtoolcache/CodeQL",
)
"""What GitHub's machines have and no job of ours uses: actions/runner-images,
images/ubuntu/Ubuntu2404-Readme.md, and images/ubuntu/scripts/build/install-*.sh for the folders.
"""


def is_short_of_room(free_bytes: int | None) -> bool:
    """Return whether the engine reports less free room than a job needs."""
    return free_bytes is not None and free_bytes < ROOM_BYTES


def unready(
    runner: Runner,
    *,
    machine: str,
    accelerators: Iterable[Accelerator],
    holders: Mapping[int, str],
    free_bytes: int | None,
) -> Iterator[str]:
    """Yield the reasons against a job here. `holders` are processes that have a device open,
    `free_bytes` the room of the engine, None where it is unknown.
    """
    if machine != runner.machine:
        yield f"the engine's machine is {machine}, and the row says {runner.machine}"
    if is_short_of_room(free_bytes):
        yield f"{readable_size(free_bytes)} free, and a job needs {readable_size(ROOM_BYTES)}"
    if not runner.targets or runner.vendor == "cpu":
        return
    devices = [accelerator for accelerator in accelerators if accelerator.vendor == runner.vendor]
    usable = {device.arch for device in devices if device.usable}
    for target in runner.targets:
        if target not in usable and (usable or not devices):
            yield f"no {target} here: {', '.join(sorted(usable)) or f'nothing of {runner.vendor}'}"
    if devices and not usable:
        yield f"the device nodes of {runner.vendor} may not be opened by this user"
    for pid, name in sorted(holders.items()):
        yield f"process {pid} ({name}) holds a device"
