"""The build of torch and the devices that it sees: two separate facts, and no judgement.

The machine without torch is the subject of `hardware`, the presence of a claimed device
that of `claimed_device`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warpfront_checks.hardware.intel_devices import gaudi_arch, intel_arch
from warpfront_checks.hardware.values import EVERY_VARIABLE, device_table, gfx_family

# What changes what torch and the libraries under it compute, and how fast, by its first letters.
TELLING = re.compile(
    "AITER|CUBLAS|CUDA|ENABLE_|FLASH_ATTENTION|GPU_MAX_HW_QUEUES|HABANA|HIP|HL_|HSA|KMP_"
    "|LD_AUDIT|LD_LIBRARY_PATH|LD_PRELOAD|MIOPEN|MIRAGE|MKL|NCCL|NVIDIA|NVTE|OMP_|ONEAPI|PT_|PYTORCH"
    "|RCCL|ROC|SYCL|TORCH|TRITON|ZE_"
)
_ROCM_LABEL = re.compile(r"\+rocm(\d+\.\d+)")
_SECRET = re.compile("AUTH|CREDENTIAL|KEY|PASSW|SECRET|TOKEN")
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
_NODES = ("nvidiactl", "nvidia0", "kfd", "dri/renderD128", "accel/accel0")
DEVICE_NODES = tuple(f"/dev/{node}" for node in _NODES)


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device as torch reports it. `arch` is `sm_90`, `gfx942`, or empty if torch does not
    report it. `multiprocessors` of RDNA are pairs of compute units. `wave` is the number of threads
    that run in step, 0 if neither torch nor the architecture gives it.
    """

    index: int
    name: str
    arch: str
    memory_bytes: int
    multiprocessors: int
    wave: int = 0
    cores: int = 0
    capability: str = ""


@dataclass(frozen=True, kw_only=True)
class TorchFacts:
    """`build` is what torch was compiled for (`cuda`, `rocm`, `xpu`, `hpu`, `cpu`); `devices` is
    what is there now.

    `obstacle` is torch's own words for why a build for a device sees none. `accelerator` is what
    torch itself calls its current accelerator, a cross-check (torch 2.7 and newer).
    """

    build: str
    devices: tuple[Device, ...]
    obstacle: str
    visibility: Mapping[str, str]
    nodes: tuple[str, ...]
    accelerator: str = ""

    def evidence(self) -> dict[str, object]:
        return asdict(self)


def read_facts(torch: Any) -> TorchFacts:
    """Ask an imported torch. Never raises for a missing device: that is a fact, too."""
    build = build_of(torch)
    devices, obstacle = _devices(torch, build) if build != "cpu" else ((), "")
    current = getattr(getattr(torch, "accelerator", None), "current_accelerator", lambda **_: None)
    try:
        accelerator = current(check_available=True)
    except TypeError:  # 2.6 has no such argument
        accelerator = current()
    return TorchFacts(
        build=build,
        devices=devices,
        obstacle=obstacle,
        visibility={name: os.environ[name] for name in EVERY_VARIABLE if name in os.environ},
        nodes=tuple(node for node in DEVICE_NODES if Path(node).exists()),
        accelerator=str(accelerator) if accelerator is not None else "",
    )


def build_of(torch: Any) -> str:
    """Return the vendor that torch was compiled for. A ROCm build also answers to `torch.cuda`, so
    `hip` comes first. `torch.hip` exists in no build, and some device names are empty.
    """
    for name, build in (("hip", "rocm"), ("cuda", "cuda"), ("xpu", "xpu")):
        if getattr(torch.version, name, None):
            return build
    return "hpu" if importlib.util.find_spec("habana_frameworks") is not None else "cpu"


def rocm_release(torch: Any) -> str:
    """Return the ROCm release (X.Y) that a build of torch is for, "" for another build: what
    `torch.version.rocm` names, else its local version (`+rocm10.0.0`), else HIP's version, whose
    number is ROCm's up to 7.14 (ROCm 10.0 has HIP 7.15).
    """
    hip = getattr(torch.version, "hip", None)
    if not hip:
        return ""
    local = _ROCM_LABEL.search(str(torch.__version__))
    release = getattr(torch.version, "rocm", None) or (local[1] if local else hip)
    return ".".join(str(release).split(".")[:2])


def read_arch_list(torch: Any) -> tuple[str, ...]:
    """Return the architectures torch was compiled for, read without a device.

    `torch.cuda.get_arch_list()` answers nothing where no device is; the build's own flags
    are always there.
    """
    if build_of(torch) == "xpu":
        return tuple(torch.xpu.get_arch_list())
    listed = tuple(torch.cuda.get_arch_list())
    flags = getattr(torch._C, "_cuda_getArchFlags", None)  # noqa: SLF001 - no public reader works GPU-less
    if listed or flags is None:
        return listed
    return tuple((flags() or "").split())


def environment_of(torch: Any) -> dict[str, object]:
    """Return the environment for a results file: interpreter, torch, devices. No host names."""
    facts = read_facts(torch)
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "machine": platform.machine(),
        "torch": torch.__version__,
        "torch_git": getattr(torch.version, "git_version", None),
        "torch_version_cuda": getattr(torch.version, "cuda", None),
        "torch_version_hip": getattr(torch.version, "hip", None),
        "arch_list": list(read_arch_list(torch)),
        "variables": telling_variables(os.environ),
        **facts.evidence(),
    }


def telling_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables that decide about numbers or speed, with secrets and logins masked."""
    return {
        name: "***" if _SECRET.search(name) else _LOGIN.sub("***@", value)
        for name, value in sorted(environ.items())
        if TELLING.match(name)
    }


def _devices(torch: Any, build: str) -> tuple[tuple[Device, ...], str]:
    """Return the devices of a build, and why there are none. Gaudi's are untested on hardware."""
    name, device_of = _BACKENDS[build]
    try:
        if name == "hpu":
            # `torch.hpu` appears once that is imported.
            importlib.import_module("habana_frameworks.torch.core")
        backend = getattr(torch, name)
        available = backend.is_available()
        if not available and name == "cuda":
            backend.init()
    except (ImportError, OSError, RuntimeError, AssertionError) as error:
        return (), f"{type(error).__name__}: {error}".strip().splitlines()[0]
    if not available:
        return (), f"torch.{name}.is_available() is False"
    return tuple(device_of(torch, index) for index in range(backend.device_count())), ""


def _cuda_device(torch: Any, index: int) -> Device:
    properties = torch.cuda.get_device_properties(index)
    if getattr(torch.version, "hip", None):
        arch = str(getattr(properties, "gcnArchName", "")).split(":")[0]
    else:
        arch = f"sm_{properties.major}{properties.minor}"
    # Threads in step and fp32 lanes of torch's multiprocessor; 0 where unknown.
    table, family = device_table(), gfx_family(arch)
    nvidia, amd = table["nvidia"], table["amd"]
    wave, lanes = amd["wave"].get(family, 0), amd["lanes"].get(family, 0)
    lanes *= amd["units_per_multiprocessor"].get(family, 1)
    if arch.startswith("sm_"):
        wave, lanes = nvidia["wave"], nvidia["lanes"].get(arch, 0)
    return Device(
        index=index,
        name=properties.name,
        arch=arch,
        memory_bytes=int(properties.total_memory),
        multiprocessors=int(properties.multi_processor_count),
        wave=int(getattr(properties, "warp_size", wave)),
        cores=int(properties.multi_processor_count) * lanes,
        capability=f"{properties.major}.{properties.minor}",
    )


def _hpu_device(torch: Any, index: int) -> Device:
    name = torch.hpu.get_device_name(index)
    # Its properties print as `(..., dramSize=102106132480, ...)`, and have no `total_memory`.
    match = re.search(r"dramSize=(\d+)", str(torch.hpu.get_device_properties(index)))
    facts: dict[str, Any] = {"arch": gaudi_arch(name)}
    facts["memory_bytes"] = int(match[1]) if match else 0
    return Device(index=index, name=name, multiprocessors=0, **facts)


def _xpu_device(torch: Any, index: int) -> Device:
    """Untested on real hardware. torch leaves out a processor's GPU where a card is."""
    properties = torch.xpu.get_device_properties(index)
    return Device(
        index=index,
        name=properties.name,
        arch=intel_arch(int(getattr(properties, "architecture", 0))),
        memory_bytes=int(properties.total_memory),
        multiprocessors=int(properties.max_compute_units),
        wave=max(getattr(properties, "sub_group_sizes", None) or [0]),
    )


_BACKENDS: Mapping[str, tuple[str, Callable[[Any, int], Device]]] = {
    **dict.fromkeys(("cuda", "rocm"), ("cuda", _cuda_device)),
    "hpu": ("hpu", _hpu_device),
    "xpu": ("xpu", _xpu_device),
}
