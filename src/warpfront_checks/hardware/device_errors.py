"""Errors of a machine's devices during a check: a lost device, an Xid, an uncorrected error. A
check that fails with one proves nothing of the image.

Xids are NVIDIA's, in the kernel's log (https://docs.nvidia.com/deploy/xid-errors/); only those that
no program can cause count: a wrong kernel has 13, 31 and 43 of its own. AMD's kernel module counts
errors for each block of a device (RAS; Linux, drivers/gpu/drm/amd/amdgpu/amdgpu_ras.c).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from warpfront_checks.hardware import Machine, read_devices

# Memory (48, 64, 94, 95), links (74), the bus (79), the device's own processor (119, 120, 140).
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?[^)]*\): (?:48|64|74|79|94|95|119|120|140)\b.*")
_CARDS = "/sys/class/drm"
_UNCORRECTED = re.compile(r"(?m)^ue: *([0-9]+)$")


@dataclass(frozen=True, kw_only=True)
class DeviceHealth:
    """The number of answering devices, lines of the kernel's log, and each block's errors."""

    answering: int
    xids: frozenset[str]
    uncorrected: Mapping[str, int]


def read_health(reader: Machine, vendor: str) -> DeviceHealth | None:
    """Return the health of a vendor's devices; None if their driver does not report it."""
    if vendor not in {"nvidia", "amd"}:
        return None
    devices, log, uncorrected = read_devices(reader, vendor).accelerators, [], {}
    if vendor == "nvidia":
        log = reader.run(("dmesg",)).text.splitlines()
    else:
        for card in reader.names(_CARDS):
            folder = f"{_CARDS}/{card}/device/ras"
            for name in reader.names(folder):
                count = _UNCORRECTED.search(reader.text(f"{folder}/{name}") or "")
                if name.endswith("_err_count") and count:
                    uncorrected[f"{card} {name.removesuffix('_err_count')}"] = int(count[1])
    return DeviceHealth(
        # One that only the kernel's list of boards still has, has no architecture.
        answering=sum(device.usable and bool(device.arch) for device in devices),
        xids=frozenset(line for line in log if _XID.search(line)),
        uncorrected=uncorrected,
    )


def mishaps(before: DeviceHealth | None, after: DeviceHealth | None) -> tuple[str, ...]:
    """Return the errors between two readings."""
    if before is None or after is None:
        return ()
    problems = []
    if after.answering < before.answering:
        lost = before.answering - after.answering
        problems.append(f"{lost} of {before.answering} devices no longer answers")
    for line in sorted(after.xids - before.xids):
        match = _XID.search(line)
        assert match
        problems.append(match[0].removeprefix("NVRM: "))
    for block, count in after.uncorrected.items():
        more = count - before.uncorrected.get(block, 0)
        if more > 0:
            problems.append(f"{more} uncorrected errors in {block}")
    return tuple(problems)
