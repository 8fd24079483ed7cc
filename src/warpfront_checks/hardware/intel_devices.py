"""Intel without torch. Gaudi: hl-smi, and the accel device nodes with Habana's PCI vendor number.
Discrete GPUs: the kernel's DRM devices with Intel's.

GPUs are untested on real hardware. Those inside a processor are omitted: many machines with another
vendor's card have one that no row means.
"""

from __future__ import annotations

import csv
import re

from warpfront_checks.hardware.machine_reader import Machine
from warpfront_checks.hardware.values import Accelerator, Detected, device_table

# https://docs.habana.ai/en/latest/Management_and_Monitoring/Embedded_System_Tools_Guide/System_Management_Interface_Tool.html
_QUERY = ("hl-smi", "-Q", "index,module_id,name,driver_version,memory.total", "-f", "csv")
_COLUMNS = 5
_HABANA = "0x1da3"


def read_gaudi(reader: Machine) -> Detected:
    """Return devices from hl-smi; if it does not answer, unnamed ones by the kernel's nodes."""
    answer = reader.run(_QUERY)
    rows: list[tuple[str, str, int | None]] = []
    for fields in csv.reader(answer.text.splitlines(), skipinitialspace=True):
        if len(fields) != _COLUMNS or not fields[0].isdecimal():
            continue
        memory = re.match(r"([0-9]+) ?MiB", fields[4])
        rows.append((fields[2], fields[3], int(memory[1]) * 2**20 if memory else None))
    names = [name for name in reader.names("/dev/accel") if re.fullmatch(r"accel[0-9]+", name)]
    files = {name: f"/sys/class/accel/{name}/device/vendor" for name in names}
    vendors = {name: (reader.text(file) or "").strip() for name, file in files.items()}
    nodes = [f"/dev/accel/{name}" for name in names if vendors[name] == _HABANA]
    usable = bool(nodes) and all(reader.access(node) for node in nodes)
    units = device_table()["gaudi"]["units"]
    devices = tuple(
        Accelerator(
            vendor="gaudi",
            index=index,
            name=name,
            arch=gaudi_arch(name),
            memory_bytes=memory,
            units=units.get(gaudi_arch(name)),
            usable=usable,
        )
        for index, (name, _, memory) in enumerate(rows or [("", "", None)] * len(nodes))
    )
    problems = []
    if nodes and not rows:
        problems.append(f"{len(nodes)} Gaudi device nodes, but hl-smi does not list any")
    if rows and not usable:
        problems.append("hl-smi lists devices, but their nodes below /dev/accel cannot be opened")
    module = (reader.text("/sys/module/habanalabs/version") or "").strip()
    driver = module or next((driver for _, driver, _ in rows), "")
    drivers = {"habanalabs": driver} if driver else {}
    return Detected(accelerators=devices, drivers=drivers, problems=tuple(problems))


def gaudi_arch(name: str) -> str:
    """Return `gaudi3` of `HL-325L`, and of names that spell it out; else nothing."""
    names = device_table()["gaudi"]["names"]
    board = next((arch for start, arch in names.items() if name.upper().startswith(start)), "")
    spelled = re.search(r"gaudi ?([23])", name.lower())
    return board or (f"gaudi{spelled[1]}" if spelled else "")


_CARDS = "/sys/class/drm"
_INTEL = "0x8086"
_DRIVERS = ("xe", "i915")


def read_intel(reader: Machine) -> Detected:
    """Return devices in the kernel's order of cards, each with its render node."""
    boards: dict[str, str] = device_table()["intel"]["boards"]
    cards = [name for name in reader.names(_CARDS) if re.fullmatch(r"card[0-9]+", name)]
    devices: list[Accelerator] = []
    for card in sorted(cards, key=lambda name: int(name[4:])):
        folder = f"{_CARDS}/{card}/device"
        pci = [(reader.text(f"{folder}/{name}") or "").strip() for name in ("vendor", "device")]
        board = pci[1].removeprefix("0x")
        arch = next((arch for start, arch in boards.items() if board.startswith(start)), "")
        if arch and pci[0] == _INTEL:
            nodes = (name for name in reader.names(f"{folder}/drm") if name.startswith("renderD"))
            usable = bool(reader.access(f"/dev/dri/{next(nodes, '')}"))
            devices.append(
                Accelerator(vendor="intel", index=len(devices), arch=arch, usable=usable)
            )
    shut = not all(device.usable for device in devices)
    loaded = [name for name in _DRIVERS if devices and reader.names(f"/sys/module/{name}")]
    return Detected(
        accelerators=tuple(devices),
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
