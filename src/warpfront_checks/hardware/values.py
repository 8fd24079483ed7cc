"""Values of detection, and the CPU: what this process may use of it, and its instructions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from warpfront_checks.documents import packaged
from warpfront_checks.hardware.kernel_view import KernelView
from warpfront_checks.hardware.machine_reader import Machine
from warpfront_checks.hardware.recording import ProbeRecord


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """A device. None and empty text are unknown values.

    `units` are multiprocessors (NVIDIA), compute units (AMD) or TPCs (Gaudi), `cores` their fp32
    lanes in all, `wave` the threads that run in step. An MI250X is two of these: each of its dies
    is a device of its own. `usable` is False if this user may not open the device's nodes.
    """

    vendor: str
    index: int
    name: str = ""
    arch: str = ""
    memory_bytes: int | None = None
    units: int | None = None
    cores: int | None = None
    wave: int | None = None
    usable: bool = True


@dataclass(frozen=True, kw_only=True)
class Processor:
    """The CPU: `threads` that this process may use, `memory_bytes` that its group leaves."""

    name: str
    machine: str
    threads: int
    memory_bytes: int | None
    features: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Visibility:
    """Variables that limit the devices of a process, and which of them won.

    `visible` are positions in the machine's list of devices, None if only the driver knows.
    `problems` are settings that drivers reject or that contradict each other.
    """

    vendor: str
    variables: Mapping[str, str] = field(default_factory=dict)
    winner: str = ""
    visible: tuple[int, ...] | None = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Detected:
    """The devices of one vendor's sources; `problems` are obstacles to one."""

    accelerators: tuple[Accelerator, ...] = ()
    drivers: Mapping[str, str] = field(default_factory=dict)
    toolkits: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Hardware(Detected):
    """The machine without torch. `problems` are also contradictions between sources; `evidence` is
    every source that was read; `kernel` are plain files of each vendor's devices.
    """

    processor: Processor
    visibility: Mapping[str, Visibility]
    evidence: tuple[ProbeRecord, ...]
    kernel: Mapping[str, KernelView] = field(default_factory=dict)

    def of(self, vendor: str) -> tuple[Accelerator, ...]:
        return tuple(device for device in self.accelerators if device.vendor == vendor)

    def document(self) -> dict[str, Any]:
        return asdict(self)


def device_table() -> dict[str, Any]:
    """Return facts that an architecture decides and sources lack: devices.json."""
    return packaged("hardware/devices.json")


def read_json(text: str) -> Any:
    """Return a tool's JSON; some print warnings before it."""
    start = min((place for place in (text.find("{"), text.find("[")) if place >= 0), default=0)
    try:
        return json.loads(text[start:]) if text.strip() else None
    except ValueError:
        return None


def gfx_family(arch: str) -> str:
    """Return `gfx9` of `gfx942`, `gfx11` of `gfx1100`: without minor version and stepping."""
    return arch[:-2] if re.fullmatch(r"gfx[0-9]{1,2}[0-9a-f]{2}", arch) else ""


# By vendor, the filters in their order: of each the first variable that is set decides; and what a
# container's runtime reads, or changes the devices of a process in another way.
_VARIABLES: Mapping[str, Mapping[str, Any]] = device_table()["visibility"]


def variables_of(vendor: str) -> tuple[str, ...]:
    """Return the variables that decide which of a vendor's devices a process sees."""
    return (*chain(*_VARIABLES[vendor]["filters"]), *_VARIABLES[vendor]["others"])


EVERY_VARIABLE = tuple(dict.fromkeys(chain(*map(variables_of, _VARIABLES))))


def resolve_visibility(vendor: str, environment: Mapping[str, str], count: int) -> Visibility:
    """Return the devices that a process with this environment sees among `count` of a vendor."""
    names = variables_of(vendor)
    variables = {name: environment[name] for name in names if name in environment}
    problems = _amd_contradictions(variables) if vendor == "amd" else []
    visible: tuple[int, ...] | None = tuple(range(count))
    winners = []
    for choice in _VARIABLES[vendor]["filters"]:
        name = next((name for name in choice if name in variables), "")
        if not name:
            continue
        total = 0 if visible is None else len(visible)
        chosen = _chosen(variables[name], count if visible is None else total)
        if chosen == () and total:
            problems.append(f"{name}={variables[name]!r} hides all {total} devices")
        both = visible is not None and chosen is not None
        visible = tuple(visible[place] for place in chosen) if both else None  # type: ignore[index, union-attr]
        winners.append(name)
    return Visibility(
        vendor=vendor,
        variables=variables,
        winner=", then ".join(winners),
        visible=visible,
        problems=tuple(problems),
    )


def _amd_contradictions(variables: Mapping[str, str]) -> list[str]:
    hip, rocr = variables.get("HIP_VISIBLE_DEVICES"), variables.get("ROCR_VISIBLE_DEVICES")
    refuses = {
        "CUDA_VISIBLE_DEVICES": "HIP_ wins where it is accepted, newer ROCm refuses",
        "GPU_DEVICE_ORDINAL": "newer ROCm refuses",
    }
    problems = [
        f"HIP_VISIBLE_DEVICES={hip} and {name}={variables[name]} differ: {result}; unset {name}"
        for name, result in refuses.items()
        if hip is not None and variables.get(name, hip) != hip
    ]
    if rocr is not None and hip is not None and len(hip.split(",")) > len(rocr.split(",")):
        problems.append(
            f"HIP_VISIBLE_DEVICES={hip} names more devices than ROCR_VISIBLE_DEVICES={rocr} leaves:"
            " torch refuses"
        )
    if "HSA_OVERRIDE_GFX_VERSION" in variables:
        problems.append(
            f"HSA_OVERRIDE_GFX_VERSION={variables['HSA_OVERRIDE_GFX_VERSION']} makes devices report"
            " another arch than they have"
        )
    return problems


def _chosen(value: str, count: int) -> tuple[int, ...] | None:
    """Return indices up to the first that is none; None where a device is named by identity."""
    chosen: list[int] = []
    for entry in (part.strip() for part in value.split(",")):
        if entry.startswith(("GPU-", "MIG-")) or "." in entry:
            return None
        if not entry.isdecimal() or int(entry) >= count or int(entry) in chosen:
            break
        chosen.append(int(entry))
    return tuple(chosen)


# Flags of /proc/cpuinfo that change what torch computes with (oneDNN dispatches on them).
_FEATURES = (
    *("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "avx_vnni", "amx_bf16", "amx_fp16"),
    *("amx_int8", "bf16", "fphp", "asimdhp", "sve"),
)
_MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def read_features(reader: Machine) -> tuple[str, ...]:
    """Return the flags of the processor that change what torch computes with."""
    text = reader.text("/proc/cpuinfo") or ""
    flags = re.search(r"(?m)^(?:flags|Features)\s*:\s*(.*)$", text)
    return tuple(feature for feature in _FEATURES if flags and feature in flags[1].split())


def read_processor(reader: Machine) -> Processor:
    text = reader.text("/proc/cpuinfo") or ""
    name = re.search(r"(?m)^model name\s*:\s*(.*)$", text)
    # Listed threads, at most those this process is bound to and its quota.
    threads = len(re.findall(r"(?m)^processor\s*:", text))
    match = re.search(
        r"(?m)^Cpus_allowed_list:\s*([0-9,-]+)$", reader.text("/proc/self/status") or ""
    )
    spans = [span.split("-") for span in match[1].split(",")] if match else []
    bound = sum(int(span[-1]) - int(span[0]) + 1 for span in spans)
    quota = (reader.text("/sys/fs/cgroup/cpu.max") or "max 1").split()
    allowed = max(1, int(quota[0]) // int(quota[1])) if quota[0].isdecimal() else threads
    return Processor(
        name=name[1].strip() if name else "",
        machine=reader.run(("uname", "-m")).text.strip(),
        threads=min((number for number in (threads, bound, allowed) if number), default=1),
        memory_bytes=memory_bytes(reader),
        features=read_features(reader),
    )


def memory_bytes(reader: Machine) -> int | None:
    """Return what this process may use: its group's limit, or the machine's memory."""
    total = re.search(r"(?m)^MemTotal:\s*(\d+) kB", reader.text("/proc/meminfo") or "")
    limits = [(reader.text(path) or "").strip() for path in _MEMORY_LIMITS]
    sizes = [int(total[1]) * 1024] if total else []
    return min([*sizes, *(int(limit) for limit in limits if limit.isdecimal())], default=None)
