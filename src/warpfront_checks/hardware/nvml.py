"""NVIDIA's management library in a child process: `python nvml.py` prints JSON, or fails.

A child, because a broken driver can take down the process that loads its library, and so that the
answer can be recorded. It has two values that nvidia-smi does not print: the CUDA version of the
driver, and the number of CUDA cores. https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_NAME_BYTES = 96


class NvmlError(Exception):
    """A call failed; the message names it and NVML's code."""


class _Memory(ctypes.Structure):
    _fields_ = [  # type: ignore[mutable-override]  # ctypes wants this very name
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


def main() -> int:
    try:
        answer = read_nvml(ctypes.CDLL(_LIBRARY))
    except (OSError, NvmlError, AttributeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(answer, indent=1, sort_keys=True) + "\n")
    return 0


def read_nvml(library: Any) -> dict[str, object]:
    """Return driver, CUDA version and devices. Raise `NvmlError`; AttributeError where the
    library is too old to have a function.
    """
    _call(library.nvmlInit_v2)
    try:
        count, cuda = ctypes.c_uint(), ctypes.c_int()
        driver = ctypes.create_string_buffer(_NAME_BYTES)
        _call(library.nvmlSystemGetDriverVersion, driver, _NAME_BYTES)
        _call(library.nvmlSystemGetCudaDriverVersion_v2, ctypes.byref(cuda))
        _call(library.nvmlDeviceGetCount_v2, ctypes.byref(count))
        return {
            "driver": driver.value.decode(),
            "cuda": f"{cuda.value // 1000}.{cuda.value % 1000 // 10}",
            "devices": [_device(library, index) for index in range(count.value)],
        }
    finally:
        library.nvmlShutdown()


def _device(library: Any, index: int) -> dict[str, object]:
    handle = ctypes.c_void_p()
    _call(library.nvmlDeviceGetHandleByIndex_v2, index, ctypes.byref(handle))
    name = ctypes.create_string_buffer(_NAME_BYTES)
    major, minor, cores = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint()
    memory = _Memory()
    _call(library.nvmlDeviceGetName, handle, name, _NAME_BYTES)
    _call(
        library.nvmlDeviceGetCudaComputeCapability,
        handle,
        ctypes.byref(major),
        ctypes.byref(minor),
    )
    _call(library.nvmlDeviceGetMemoryInfo, handle, ctypes.byref(memory))
    _call(library.nvmlDeviceGetNumGpuCores, handle, ctypes.byref(cores))
    return {
        "index": index,
        "name": name.value.decode(errors="replace"),
        "arch": f"sm_{major.value}{minor.value}",
        "memory_bytes": memory.total,
        "cores": cores.value,
    }


def _call(function: Any, *arguments: object) -> None:
    code = function(*arguments)
    if code:
        raise NvmlError(f"{function.__name__} returned {code}")


if __name__ == "__main__":
    sys.exit(main())
