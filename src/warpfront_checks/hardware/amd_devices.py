"""AMD without torch: the kernel's KFD topology, then amd-smi, rocm-smi and rocminfo for names.

KFD is read first: it needs no program and no permission, and it is what the runtime itself reads
(Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c). Containers without a device see it too, so
access to the nodes is tested separately. rocm-smi is gone from ROCm 10.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from warpfront_checks.hardware.kernel_view import KFD, decode_gfx, kfd_nodes, read_properties
from warpfront_checks.hardware.machine_reader import Machine
from warpfront_checks.hardware.values import (
    Accelerator,
    Detected,
    device_table,
    gfx_family,
    read_json,
)

# heap_type of a memory bank: 0 is the system's, 1 and 2 are the device's own.
_DEVICE_HEAPS = {1, 2}


def read_amd(reader: Machine) -> Detected:
    """Return devices in the kernel's order, which is the runtime's; without KFD, the tools'."""
    devices, problems = tuple(_kfd_devices(reader)), []
    source, named = "", tuple[Accelerator, ...]()
    for argv, read in _TOOLS.items():
        if not named:  # later ones, being slow, do not run
            source, rows = argv[0], read(reader.run(argv).text)
            named = tuple(_named(index, *row) for index, row in enumerate(rows))
    if devices and named and len(devices) != len(named):
        problems.append(f"KFD shows {len(devices)} GPUs, {source} {len(named)}")
    elif devices and named:
        pairs = [*zip(devices, named, strict=True)]
        problems += [
            f"GPU {kfd.index}: KFD says {kfd.arch}, {source} says {tool.arch}"
            for kfd, tool in pairs
            if tool.arch and tool.arch != kfd.arch
        ]
        devices = tuple(
            replace(
                kfd, name=kfd.name or tool.name, memory_bytes=kfd.memory_bytes or tool.memory_bytes
            )
            for kfd, tool in pairs
        )
    if not all(device.usable for device in devices):
        access = reader.access("/dev/kfd")
        why = "a render node below /dev/dri is missing or may not be opened by this user"
        if access is None:
            why = "the kernel has AMD GPUs, but there is no /dev/kfd here: "
            why += "the container was given none"
        elif not access:
            why = "/dev/kfd may not be opened by this user: add its owning group"
        problems.append(why)
    module = (reader.text("/sys/module/amdgpu/version") or "").strip()
    loaded = bool(reader.names("/sys/module/amdgpu"))
    return Detected(
        accelerators=devices or named,
        drivers={"amdgpu": module or "the kernel's own"} if module or loaded else {},
        toolkits=_toolkits(reader),
        problems=tuple(problems),
    )


def _kfd_devices(reader: Machine) -> Iterator[Accelerator]:
    for index, (node, properties) in enumerate(kfd_nodes(reader)):
        per_unit = properties.get("simd_per_cu", 0)
        units = properties["simd_count"] // per_unit if per_unit else 0
        folder = f"{KFD}/{node}/mem_banks"
        files = (reader.text(f"{folder}/{bank}/properties") or "" for bank in reader.names(folder))
        banks = [*map(read_properties, files)]
        sizes = [
            bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in _DEVICE_HEAPS
        ]
        # Newer kernels have 0 for `local_mem_size`.
        memory = sum(sizes) or properties.get("local_mem_size", 0)
        device = _named(index, decode_gfx(properties["gfx_target_version"]), "", memory, units)
        render = f"/dev/dri/renderD{properties.get('drm_render_minor', 0)}"
        yield replace(
            device,
            wave=properties.get("wave_front_size") or device.wave,
            usable=bool(reader.access("/dev/kfd")) and bool(reader.access(render)),
        )


# Of a device: architecture, name, bytes of memory, compute units; unknown values are empty or 0.
_Row = tuple[str, str, int, int]


def _read_amd_smi(text: str) -> Iterator[_Row]:
    """Yield the devices of a list of GPUs, below `gpu_data` since ROCm 6.4 or so."""
    document = read_json(text)
    rows = document.get("gpu_data", []) if isinstance(document, dict) else document
    for row in rows if isinstance(rows, list) else []:
        asic, vram = (_fields(row, name) for name in ("asic", "vram"))
        size = vram.get("size")
        size = size if isinstance(size, dict) else {"value": size}
        arch, name = (str(asic.get(key, "")) for key in ("target_graphics_version", "market_name"))
        units = _number(asic.get("num_compute_units"))
        yield arch.lower(), name, _number(size.get("value")) * 2**20, units


def _read_rocm_smi(text: str) -> Iterator[_Row]:
    """`{"card0": {"Card Series": ..., "GFX Version": ..., "VRAM Total Memory (B)": ...}}`; the case
    of the keys changed between releases.
    """
    document = read_json(text)
    for card in sorted(
        document if isinstance(document, dict) else {}, key=lambda card: _number(card[4:])
    ):
        if not re.fullmatch(r"card[0-9]+", card):
            continue
        row = {str(key).lower(): value for key, value in _fields(document, card).items()}
        name = str(row.get("card series") or row.get("card model") or "")
        memory = _number(row.get("vram total memory (b)"))
        yield str(row.get("gfx version", "")).lower(), name, memory, 0


def _read_rocminfo(text: str) -> Iterator[_Row]:
    """Yield the agents that are GPUs. Only `Name:` is an arch: ISA lines say `gfx` too."""
    for agent in re.split(r"(?m)^Agent \d+", text)[1:]:
        fields: dict[str, str] = {}
        for key, value in re.findall(r"(?m)^  ([A-Z][A-Za-z ]+?):[ \t]*(.*)$", agent):
            fields.setdefault(key, value.strip())
        if fields.get("Device Type") == "GPU":
            units = _number(fields.get("Compute Unit"))
            yield fields.get("Name", ""), fields.get("Marketing Name", ""), 0, units


_TOOLS: Mapping[tuple[str, ...], Callable[[str], Iterator[_Row]]] = {
    ("amd-smi", "static", "--json"): _read_amd_smi,
    ("rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json"): _read_rocm_smi,
    ("rocminfo",): _read_rocminfo,
}


def _named(index: int, arch: str, name: str, memory: int, units: int) -> Accelerator:
    arch = arch.partition(":")[0]
    table, family = device_table()["amd"], gfx_family(arch)
    lanes = table["lanes"].get(family)
    return Accelerator(
        vendor="amd",
        index=index,
        name="" if name in {"N/A", "None"} else name,
        arch=arch if family else "",
        memory_bytes=memory or None,
        units=units or None,
        cores=units * lanes if units and lanes else None,
        wave=table["wave"].get(family),
    )


def _toolkits(reader: Machine) -> dict[str, str]:
    """ROCm's release; HIP's version is another number."""
    release = (reader.text("/opt/rocm/.info/version") or "").strip()
    if release:
        return {"rocm": release.split("-")[0]}
    hip = reader.run(("hipconfig", "--version")).text.strip()
    return {"hip": hip.split("-")[0]} if hip else {}


def _fields(row: Any, name: str) -> dict[str, Any]:
    value = row.get(name) if isinstance(row, dict) else None
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int:
    match = re.match(r"[0-9]+", str(value))
    return int(match[0]) if match else 0
