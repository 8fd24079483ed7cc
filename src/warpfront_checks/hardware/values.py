"""Values of detection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from warpfront_checks.documents import packaged
from warpfront_checks.hardware.kernel_view import KernelView
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
    """The devices of one vendor's sources."""

    accelerators: tuple[Accelerator, ...] = ()
    drivers: Mapping[str, str] = field(default_factory=dict)
    toolkits: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The machine without torch. `problems` are contradictions between sources and obstacles
    to a device; `evidence` is every source that was read; `kernel` are plain files of
    each vendor's devices.
    """

    accelerators: tuple[Accelerator, ...]
    processor: Processor
    drivers: Mapping[str, str]
    toolkits: Mapping[str, str]
    visibility: Mapping[str, Visibility]
    problems: tuple[str, ...]
    evidence: tuple[ProbeRecord, ...]
    kernel: Mapping[str, KernelView] = field(default_factory=dict)

    def of(self, vendor: str) -> tuple[Accelerator, ...]:
        return tuple(device for device in self.accelerators if device.vendor == vendor)

    def document(self) -> dict[str, Any]:
        return asdict(self)


def device_table() -> Mapping[str, Any]:
    """Return facts that an architecture decides and sources lack: devices.json."""
    table: Mapping[str, Any] = packaged("hardware/devices.json")
    return table


def gfx_family(arch: str) -> str:
    """Return `gfx9` of `gfx942`, `gfx11` of `gfx1100`: without minor version and stepping."""
    return arch[:-2] if re.fullmatch(r"gfx[0-9]{1,2}[0-9a-f]{2}", arch) else ""
