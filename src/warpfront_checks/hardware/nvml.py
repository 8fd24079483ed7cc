"""NVIDIA's management library in a child process: `python nvml.py` prints its devices as JSON, and
`python nvml.py state [UUID]` a device's clocks, power and temperature.

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
_SM_CLOCK, _MEMORY_CLOCK, _CORE_SENSOR = 1, 2, 0
_TOO_SMALL = 7


class NvmlError(OSError):
    """A call failed; the message names it and NVML's code."""


class _Memory(ctypes.Structure):
    _fields_ = [  # type: ignore[mutable-override]  # ctypes wants this very name
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


def main(arguments: list[str]) -> int:
    try:
        library = ctypes.CDLL(_LIBRARY)
        answer = read_nvml_state(library, *arguments[1:]) if arguments else read_nvml(library)
    except (OSError, AttributeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(answer, indent=1, sort_keys=True) + "\n")
    return 0


def read_nvml(library: Any) -> dict[str, object]:
    """Return driver, CUDA version and devices. Raise `NvmlError`, or AttributeError if too old."""
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
    capability = library.nvmlDeviceGetCudaComputeCapability
    _call(capability, handle, ctypes.byref(major), ctypes.byref(minor))
    _call(library.nvmlDeviceGetMemoryInfo, handle, ctypes.byref(memory))
    _call(library.nvmlDeviceGetNumGpuCores, handle, ctypes.byref(cores))
    return {
        "index": index,
        "name": name.value.decode(errors="replace"),
        "arch": f"sm_{major.value}{minor.value}",
        "memory_bytes": memory.total,
        "cores": cores.value,
    }


def read_nvml_state(library: Any, uuid: str = "") -> dict[str, object]:
    """Return what the device of this UUID, or the only one, reports. Raise `NvmlError`."""
    _call(library.nvmlInit_v2)
    try:
        handle, count, code = ctypes.c_void_p(), ctypes.c_uint(), 0
        if uuid:
            code = library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
        if code or not uuid:
            library.nvmlDeviceGetCount_v2(ctypes.byref(count))
            if count.value != 1:
                which = f"none is {uuid or 'named'} (NVML's {code})"
                raise NvmlError(f"{count.value} devices, and {which}")
            _call(library.nvmlDeviceGetHandleByIndex_v2, 0, ctypes.byref(handle))
        queries = (
            ("clock_hertz", library.nvmlDeviceGetClockInfo, (_SM_CLOCK,), 1e6),
            ("memory_clock_hertz", library.nvmlDeviceGetClockInfo, (_MEMORY_CLOCK,), 1e6),
            ("power_watts", library.nvmlDeviceGetPowerUsage, (), 1e-3),
            ("power_limit_watts", library.nvmlDeviceGetEnforcedPowerLimit, (), 1e-3),
            ("temperature_celsius", library.nvmlDeviceGetTemperature, (_CORE_SENSOR,), 1),
        )
        state: dict[str, object] = {}
        for name, function, arguments, scale in queries:
            value = ctypes.c_uint()
            if not function(handle, *arguments, ctypes.byref(value)):
                state[name] = value.value * scale
        reasons = ctypes.c_ulonglong()
        if not library.nvmlDeviceGetCurrentClocksThrottleReasons(handle, ctypes.byref(reasons)):
            state["clocks_event_reasons"] = reasons.value
        count = ctypes.c_uint(0)
        # A call with no room for them returns their number.
        code = library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), None)
        return state | ({"processes": count.value} if code in {0, _TOO_SMALL} else {})
    finally:
        library.nvmlShutdown()


def _call(function: Any, *arguments: object) -> None:
    code = function(*arguments)
    if code:
        raise NvmlError(f"{function.__name__} returned {code}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
