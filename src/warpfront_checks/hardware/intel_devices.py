"""Intel's discrete GPUs without torch: the kernel's DRM devices with Intel's PCI vendor number.

Untested on real hardware. GPUs inside a processor are omitted: many machines with another vendor's
card have one that no row means.
"""

from __future__ import annotations

import re

from warpfront_checks.hardware.machine_reader import Machine
from warpfront_checks.hardware.values import Accelerator, Detected, device_table

_CARDS = "/sys/class/drm"
_PCI_VENDOR = "0x8086"
_DRIVERS = ("xe", "i915")


def read_intel(reader: Machine) -> Detected:
    """Return devices in the kernel's order of cards, each with its render node."""
    cards = [name for name in reader.names(_CARDS) if re.fullmatch(r"card[0-9]+", name)]
    cards.sort(key=lambda name: int(name[4:]))
    found = [(card, arch) for card in cards if (arch := _arch(reader, card))]
    devices = tuple(
        Accelerator(
            vendor="intel", index=index, arch=arch, usable=bool(reader.access(_node(reader, card)))
        )
        for index, (card, arch) in enumerate(found)
    )
    shut = not all(device.usable for device in devices)
    loaded = [name for name in _DRIVERS if found and reader.names(f"/sys/module/{name}")]
    return Detected(
        accelerators=devices,
        drivers=dict.fromkeys(loaded, "the kernel's own"),
        problems=("render nodes of Intel's GPUs may not be opened by this user",) if shut else (),
    )


def intel_arch(architecture: int) -> str:
    """`bmg` of what SYCL numbers a device by, 0x500400400: major, release and revision of the
    graphics core, as `torch.xpu`'s properties have it; "" for one that is not in the table
    (intel/llvm, sycl_ext_oneapi_device_architecture; intel/compute-runtime, platform ids).
    """
    core = architecture >> 8
    names: dict[str, str] = device_table()["intel"]["cores"]
    return names.get(f"{core >> 22}.{core >> 14 & 0xFF}", "")


def _arch(reader: Machine, card: str) -> str:
    if (reader.text(f"{_CARDS}/{card}/device/vendor") or "").strip() != _PCI_VENDOR:
        return ""
    device = (reader.text(f"{_CARDS}/{card}/device/device") or "").strip().removeprefix("0x")
    boards: dict[str, str] = device_table()["intel"]["boards"]
    return next((arch for start, arch in boards.items() if device.startswith(start)), "")


def _node(reader: Machine, card: str) -> str:
    names = reader.names(f"{_CARDS}/{card}/device/drm")
    return next((f"/dev/dri/{name}" for name in names if name.startswith("renderD")), "")
