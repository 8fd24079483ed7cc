"""The kernel's own traces of a vendor's devices: nodes, drivers, boards; by plain file reads.

`main` prints them as JSON: a second process, started without preloaded libraries, is compared
with this one.

`devices.json` has the places of each vendor. WSL2 serves GPUs by /dev/dxg (drivers/hv/dxgkrnl).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from warpfront_checks.documents import packaged
from warpfront_checks.hardware.machine_reader import Machine

_PCI = "/sys/bus/pci/devices"
KFD, NVIDIA_PROC = "/sys/class/kfd/kfd/topology/nodes", "/proc/driver/nvidia"
# PCI base class 03 is a display controller, 12 a processing accelerator (MI300X, Gaudi).
_PCI_CLASSES = ("0x03", "0x12")


@dataclass(frozen=True, kw_only=True)
class KernelView:
    """The kernel's files. `nodes` are device nodes of the vendor's own kernel driver, `shared`
    those of another system's (WSL2), `drivers` files of a loaded driver, `boards` one line a device
    with its arch or PCI id. `unseen` are places that this process cannot read, `lists_pci` is true
    if PCI devices of any vendor are listed.
    """

    nodes: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    boards: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    lists_pci: bool = False


def nvidia_boards(reader: Machine) -> Iterator[tuple[str, str]]:
    """Yield PCI address and name (`NVIDIA H100 80GB HBM3`) of each GPU below /proc."""
    for place in reader.names(f"{NVIDIA_PROC}/gpus"):
        text = reader.text(f"{NVIDIA_PROC}/gpus/{place}/information") or ""
        model = re.search(r"(?m)^Model:\s*(.*)$", text)
        yield place, model[1].strip() if model else ""


def kfd_nodes(reader: Machine) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Yield number and properties of each GPU in the kernel's KFD topology, in its order."""
    for node in sorted((name for name in reader.names(KFD) if name.isdecimal()), key=int):
        properties = read_properties(reader.text(f"{KFD}/{node}/properties") or "")
        if properties.get("simd_count") and properties.get("gfx_target_version"):
            yield node, properties


def decode_gfx(version: int) -> str:
    """Return `gfx90a` of 90010, `gfx942` of 90402, `gfx1100` of 110000: major, minor and
    stepping in steps of 100, the last two written in hexadecimal.
    """
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}"


def read_properties(text: str) -> dict[str, int]:
    """Return the numbers of a KFD `properties` file: `key value` lines; others are skipped."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def read_kernel(reader: Machine, vendor: str) -> KernelView:
    """Return what the kernel shows of a vendor's devices. A missing place raises nothing."""
    places: Mapping[str, Any] = packaged("hardware/devices.json")["kernel"][vendor]
    paths = [f"{folder}/{name}" for folder in places["listed"] for name in reader.names(folder)]
    nodes = [path for path in paths if re.fullmatch(places["nodes"], path)]

    def pci(place: str, name: str) -> str:
        return (reader.text(f"{_PCI}/{place}/{name}") or "").strip()

    listed = [place for place in reader.names(_PCI) if pci(place, "vendor") == places["pci"]]
    listed = [place for place in listed if pci(place, "class").startswith(_PCI_CLASSES)]
    boards = [f"pci {place} {places['pci']}:{pci(place, 'device')}" for place in listed]
    if vendor == "nvidia":
        boards = [*(" ".join(board).strip() for board in nvidia_boards(reader)), *boards]
    elif vendor == "amd":
        archs = ((n, decode_gfx(each["gfx_target_version"])) for n, each in kfd_nodes(reader))
        boards = [*(f"kfd {node} {arch}" for node, arch in archs), *boards]
    return KernelView(
        nodes=tuple(node for node in nodes if reader.access(node) is not None),
        shared=tuple(path for path in ("/dev/dxg",) if reader.access(path) is not None),
        drivers=tuple(
            path
            for path in places["drivers"]
            if reader.names(path) or reader.text(path) is not None
        ),
        boards=tuple(boards),
        unseen=tuple(path for path in ("/dev", "/sys/bus", "/proc") if not reader.names(path)),
        lists_pci=bool(reader.names(_PCI)),
    )


def main(vendor: str) -> None:
    """Print this process's view as JSON."""
    sys.stdout.write(json.dumps(asdict(read_kernel(Machine(), vendor))) + "\n")
