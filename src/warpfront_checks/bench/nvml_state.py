"""An NVIDIA device's clocks, power and temperature: `python nvml_state.py [UUID]` prints JSON.

A child of its own, as `hardware/nvml.py` is, because a broken driver can take a process down. A
field that the device does not report is omitted. https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK, _MEMORY_CLOCK, _CORE_SENSOR = 1, 2, 0
_TOO_SMALL = 7


def main(arguments: list[str]) -> int:
    try:
        state = read_nvml_state(ctypes.CDLL(_LIBRARY), *arguments)
    except (OSError, AttributeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(state, sort_keys=True) + "\n")
    return 0


def read_nvml_state(library: Any, uuid: str = "") -> dict[str, float]:
    """Read the state of the device of this UUID, or of the only one. Raise OSError if
    it is unavailable.
    """
    if code := library.nvmlInit_v2():
        raise OSError(f"nvmlInit returned {code}")
    try:
        return dict(_state(library, _handle(library, uuid)))
    finally:
        library.nvmlShutdown()


def _handle(library: Any, uuid: str) -> Any:
    handle, count = ctypes.c_void_p(), ctypes.c_uint()
    code = library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) if uuid else 0
    if uuid and not code:
        return handle
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    if count.value != 1:
        raise OSError(f"{count.value} devices, and none is {uuid or 'named'} (NVML's {code})")
    if code := library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)):
        raise OSError(f"nvmlDeviceGetHandleByIndex returned {code}")
    return handle


def _state(library: Any, handle: Any) -> Iterator[tuple[str, float]]:
    queries = (
        ("clock_hertz", library.nvmlDeviceGetClockInfo, (_SM_CLOCK,), 1e6),
        ("memory_clock_hertz", library.nvmlDeviceGetClockInfo, (_MEMORY_CLOCK,), 1e6),
        ("power_watts", library.nvmlDeviceGetPowerUsage, (), 1e-3),
        ("power_limit_watts", library.nvmlDeviceGetEnforcedPowerLimit, (), 1e-3),
        ("temperature_celsius", library.nvmlDeviceGetTemperature, (_CORE_SENSOR,), 1),
    )
    for name, function, arguments, scale in queries:
        value = ctypes.c_uint()
        if not function(handle, *arguments, ctypes.byref(value)):
            yield name, value.value * scale
    reasons = ctypes.c_ulonglong()
    if not library.nvmlDeviceGetCurrentClocksThrottleReasons(handle, ctypes.byref(reasons)):
        yield "clocks_event_reasons", reasons.value
    count = ctypes.c_uint(0)
    # A call with no room for them returns their number.
    code = library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), None)
    if code in {0, _TOO_SMALL}:
        yield "processes", count.value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
