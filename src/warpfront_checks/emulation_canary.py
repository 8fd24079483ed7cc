"""A kernel of a name that is drawn for one run, dispatched before a session in an emulator, whose
log then has to show it. Usage: emulation_canary.py NAME PROGRAM ARGUMENT...

The kernel is compiled by hipRTC and launched by HIP, both as the image's torch loads them, so its
dispatch takes the way of every other. Then PROGRAM takes the place of this process.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

COMPUTED = " computed"
_MAPS = Path("/proc/self/maps")
_LIBRARY = r"\S*/lib{}[\w-]*\.so[.\d]*$"
_THREADS = 64
_TO_HOST = 2
_SOURCE = """
extern "C" __global__ void {name}(unsigned int* out) {{
    out[threadIdx.x] = threadIdx.x * 3u + 7u;
}}
"""


class CanaryError(Exception):
    """The kernel did not compute, with the reason."""


def main(arguments: Sequence[str]) -> None:
    name, *program = arguments
    # This script's own folder is first on the path: its modules must not shadow others.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".") != Path(__file__).parent]
    try:
        run_kernel(name)
    except CanaryError as error:
        sys.exit(f"the canary kernel did not compute: {error}")
    sys.stdout.write(f"{name}{COMPUTED}\n")
    sys.stdout.flush()
    os.execvp(program[0], program)  # noqa: S606


def run_kernel(name: str) -> None:
    """Compile and launch the kernel, and compare what it wrote. Raise `CanaryError`."""
    try:
        importlib.import_module("torch")
    except Exception as error:
        raise CanaryError(f"torch does not import: {type(error).__name__}: {error}") from error
    driver_file = _mapped("amdhip64")
    # Of a torch without MIOpen, or before its first compilation, the compiler is not loaded yet.
    beside = sorted(map(str, Path(driver_file or "/").parent.glob("libhiprtc.so*")))
    compiler_file = _mapped("hiprtc") or next(iter(beside), "")
    if not driver_file or not compiler_file:
        raise CanaryError("torch loads no libamdhip64 and libhiprtc: it is no build for ROCm")
    compiler, driver = ctypes.CDLL(compiler_file), ctypes.CDLL(driver_file)
    # The code object for the device that HIP sees.
    program, code_size = ctypes.c_void_p(), ctypes.c_size_t()
    source = _SOURCE.format(name=name).encode()
    _call(compiler, "hiprtcCreateProgram", ctypes.byref(program), source, b"canary", 0, None, None)
    _call(compiler, "hiprtcCompileProgram", program, 0, None)
    _call(compiler, "hiprtcGetCodeSize", program, ctypes.byref(code_size))
    code = ctypes.create_string_buffer(code_size.value)
    _call(compiler, "hiprtcGetCode", program, code)
    module, function, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    written = (ctypes.c_uint * _THREADS)()
    _call(driver, "hipModuleLoadData", ctypes.byref(module), code)
    _call(driver, "hipModuleGetFunction", ctypes.byref(function), module, name.encode())
    _call(driver, "hipMalloc", ctypes.byref(memory), ctypes.c_size_t(ctypes.sizeof(written)))
    values = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
    shape = [ctypes.c_uint(count) for count in (1, 1, 1, _THREADS, 1, 1, 0)]
    _call(driver, "hipModuleLaunchKernel", function, *shape, None, values, None)
    _call(driver, "hipDeviceSynchronize")
    size = ctypes.c_size_t(ctypes.sizeof(written))
    _call(driver, "hipMemcpy", written, memory, size, _TO_HOST)
    if list(written) != [3 * place + 7 for place in range(_THREADS)]:
        raise CanaryError(f"it wrote {list(written[:4])}, not [7, 10, 13, 16]")


def _mapped(stem: str) -> str:
    """Return the file of a library that torch loaded; "" where it loaded none."""
    match = re.search(_LIBRARY.format(stem), _MAPS.read_text(encoding="utf-8"), re.MULTILINE)
    return match[0] if match else ""


def _call(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    function: Callable[..., int] = getattr(library, name)
    if status := function(*arguments):
        raise CanaryError(f"{name} returned {status}")


if __name__ == "__main__":
    main(sys.argv[1:])
