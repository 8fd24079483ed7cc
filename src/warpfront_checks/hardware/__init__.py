"""The machine without torch: its accelerators, from every available source.

`read_hardware(Machine())` is this machine; `read_hardware(Recorded(folder))` a recorded one.
"""

from __future__ import annotations

from warpfront_checks.hardware.amd_devices import read_amd
from warpfront_checks.hardware.intel_devices import read_gaudi, read_intel
from warpfront_checks.hardware.kernel_view import read_kernel
from warpfront_checks.hardware.machine_reader import Machine
from warpfront_checks.hardware.nvidia_devices import read_nvidia
from warpfront_checks.hardware.recording import Recording
from warpfront_checks.hardware.values import Detected, Hardware, read_processor, resolve_visibility

__all__ = ["Hardware", "Machine", "read_hardware"]

_VENDORS = {"nvidia": read_nvidia, "amd": read_amd, "gaudi": read_gaudi, "intel": read_intel}


def read_devices(reader: Machine, vendor: str) -> Detected:
    """Return the devices and drivers of one vendor; none of a CPU's."""
    return _VENDORS[vendor](reader) if vendor in _VENDORS else Detected()


def read_hardware(reader: Machine) -> Hardware:
    """Return the hardware of a machine. Nothing raises: the unreadable is missing, or a problem."""
    noting = Recording(reader)
    by_vendor = {vendor: read(noting) for vendor, read in _VENDORS.items()}
    present = {vendor: view for vendor, view in by_vendor.items() if view.accelerators}
    visibility = {
        vendor: resolve_visibility(vendor, noting.environment, len(view.accelerators))
        for vendor, view in present.items()
    }
    problems = [problem for view in by_vendor.values() for problem in view.problems]
    problems += [problem for view in visibility.values() for problem in view.problems]
    if len(present) > 1:
        problems.append(f"devices of more than one vendor: {', '.join(present)}")
    return Hardware(
        accelerators=tuple(device for view in present.values() for device in view.accelerators),
        processor=read_processor(noting),
        drivers={name: text for view in by_vendor.values() for name, text in view.drivers.items()},
        toolkits={
            name: text for view in by_vendor.values() for name, text in view.toolkits.items()
        },
        visibility=visibility,
        problems=tuple(problems),
        evidence=noting.evidence,
        kernel={vendor: read_kernel(reader, vendor) for vendor in _VENDORS},
    )
