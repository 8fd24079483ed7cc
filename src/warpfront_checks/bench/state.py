"""The state of a device (clocks, power, heat, processes): read twice, judged as `noisy` or not."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from warpfront_checks.hardware.machine_reader import Machine

NVML_PROGRAM = ("warpfront-nvml", "state")
_PCI = "/sys/bus/pci/devices"
# NVML's clocks event reasons that are no plan of anybody's; the power cap is a plan.
_HELD_BACK = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
_BUSY_PERCENT = 5.0
State = Mapping[str, Any]


def read_state(reader: Machine, device: str, address: str, uuid: str) -> dict[str, Any]:
    """Read the current state by PCI address (AMD) or UUID (NVIDIA), without unreadable fields."""
    # The load of the last minute is the kernel's, so of all processes on this machine.
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    state: dict[str, Any] = {"load": load, "cores": cores}
    if device != "cuda":
        return state
    if address:
        folder = f"{_PCI}/{address}"
        sensors = reader.names(f"{folder}/hwmon")
        sensor = f"{folder}/hwmon/{sensors[0]}" if sensors else ""
        scaled = {
            "clock_hertz": (f"{sensor}/freq1_input", 1.0),
            "power_watts": (f"{sensor}/power1_average", 1e-6),
            "power_limit_watts": (f"{sensor}/power1_cap", 1e-6),
            "temperature_celsius": (f"{sensor}/temp1_input", 1e-3),
            "busy_percent": (f"{folder}/gpu_busy_percent", 1.0),
        }
        read = {name: reader.text(path) for name, (path, _) in scaled.items()}
        digits = {name: text for name, text in read.items() if text and text.strip().isdecimal()}
        return state | {name: int(text) * scaled[name][1] for name, text in digits.items()}
    answer = reader.run((*NVML_PROGRAM, uuid))
    if not answer.text:
        return state | {"unread": answer.complaint or answer.output.strip() or "NVML said nothing"}
    return state | dict(json.loads(answer.text))


def here(device: str, properties: Any) -> tuple[Machine, str, str, str]:
    """Return this machine, and what `read_state` asks by, from torch's `properties` of a device."""
    uuid, address = str(getattr(properties, "uuid", "")), ""
    uuid = f"GPU-{uuid.removeprefix('GPU-')}" if uuid else ""
    parts = [getattr(properties, f"pci_{name}_id", None) for name in ("domain", "bus", "device")]
    if getattr(properties, "gcnArchName", "") and parts[1] is not None:
        address = "{:04x}:{:02x}:{:02x}.0".format(*(part or 0 for part in parts))
    return Machine(), device, address, uuid


def noisy(before: State, after: State) -> list[str]:
    """Return the reasons for which these timings may be disturbed; none if there is none."""
    reasons = []
    if before["load"] > before["cores"]:
        reasons.append(f"load {before['load']:.1f} on {before['cores']} cores before it began")
    if before.get("processes", 0) > 1:
        reasons.append(f"{before['processes']} processes use the device")
    if before.get("busy_percent", 0) > _BUSY_PERCENT:
        reasons.append(f"the device was {before['busy_percent']:.0f} % busy before it began")
    for moment, state in (("before", before), ("after", after)):
        bits = state.get("clocks_event_reasons") or 0
        reasons += [f"{why} {moment} it" for bit, why in _HELD_BACK.items() if bits & bit]
    return reasons
