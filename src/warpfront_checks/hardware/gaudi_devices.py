"""Intel Gaudi without torch: hl-smi, and the accel device nodes with Habana's PCI vendor number."""

from __future__ import annotations

import csv
import re

from warpfront_checks.hardware.machine_reader import Machine
from warpfront_checks.hardware.values import Accelerator, Detected, device_table

# https://docs.habana.ai/en/latest/Management_and_Monitoring/Embedded_System_Tools_Guide/System_Management_Interface_Tool.html
_QUERY = ("hl-smi", "-Q", "index,module_id,name,driver_version,memory.total", "-f", "csv")
_COLUMNS = 5
_PCI_VENDOR = "0x1da3"


def read_gaudi(reader: Machine) -> Detected:
    """Return devices from hl-smi; if it does not answer, unnamed ones by the kernel's nodes."""
    answer = reader.run(_QUERY)
    rows = _read_query(answer.text)
    nodes = _nodes(reader)
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


def _read_query(text: str) -> list[tuple[str, str, int | None]]:
    """Return (name, driver, memory) of each row; the header and other lines are skipped."""
    rows: list[tuple[str, str, int | None]] = []
    for fields in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(fields) != _COLUMNS or not fields[0].isdecimal():
            continue
        memory = re.match(r"([0-9]+) ?MiB", fields[4])
        rows.append((fields[2], fields[3], int(memory[1]) * 2**20 if memory else None))
    return rows


def _nodes(reader: Machine) -> list[str]:
    """/dev/accel/accelN of Habana's: other vendors' accelerators live there too."""
    names = [name for name in reader.names("/dev/accel") if re.fullmatch(r"accel[0-9]+", name)]
    files = {name: f"/sys/class/accel/{name}/device/vendor" for name in names}
    vendors = {name: (reader.text(file) or "").strip() for name, file in files.items()}
    return [f"/dev/accel/{name}" for name in names if vendors[name] == _PCI_VENDOR]
