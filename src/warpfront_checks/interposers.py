"""Libraries that answer for a device in this process: preloaded ones, emulators, and the files
that define the entry points of a vendor's driver.

`read_answering` only looks; `claimed_device` judges.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from warpfront_checks.hardware import kernel_view
from warpfront_checks.hardware.kernel_view import KernelView, view_of
from warpfront_checks.stack.elf_symbols import loaded_files

SECONDS = 30.0
# The files of this process by the entry point that each defines.
Definers = Mapping[str, str]
_PRELOAD_FILE = Path("/etc/ld.so.preload")
_PRELOADING = ("LD_PRELOAD", "LD_AUDIT")
# Emulators by their libraries' names and by the variables of their launchers: rocJITsu and mirage
# (ROCm/rocm-systems, emulation/rocjitsu), ZLUDA, HIP-CPU, GPGPU-Sim, Accel-Sim.
_EMULATORS = re.compile(
    r"(lib)?(rocjitsu|mirage|zluda|nvcuda_zluda|softgpu|hip[-_]?cpu|gpgpu-?sim|accel-?sim|mockgpu)"
    r"([-_.][\w.-]*)?\Z",
    re.IGNORECASE,
)
_EMULATOR_VARIABLES = re.compile(r"(ROCJITSU|MIRAGE|ZLUDA)_\w+\Z")
# By vendor: entry points of the driver's library, and what the vendor calls the files with them.
ENTRY_POINTS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "nvidia": (("cuInit", "nvmlInit_v2"), r"lib(cuda|cuda_loader|nvidia-ml)\.so[.\d]*"),
    "amd": (
        ("hipInit", "hipGetDeviceCount", "hsa_init"),
        r"lib(amdhip64|hsa-runtime64)[\w-]*\.so[.\d]*",
    ),
    "gaudi": (("hlthunk_open", "synInitialize"), r"lib(hl-thunk|Synapse)\.so[.\d]*"),
    "intel": (("zeInit",), r"libze_[\w-]+\.so[.\d]*"),
}
# System calls that reach a device: the C library answers them, or an interposer does.
_CALLS = ("ioctl", "open64", "openat")
_OPENAT = {"x86_64": 257, "aarch64": 56}
_CURRENT_FOLDER = -100
_LIBC = re.compile(r"(libc|libpthread|ld-[\w-]+|libc\.musl-[\w-]+)([-.][\w.-]*)?\.so[.\d]*\Z")


@dataclass(frozen=True, kw_only=True)
class Answering:
    """The libraries that answer for a device. `preloaded` are the files that the loader puts
    first, `emulators` the evidence of an emulator, `foreign` entry points of the driver that a file
    with another name defines. `calls` are system calls that a file other than the C library
    answers, and drivers that are preloaded. `invented` are paths that this process sees and the
    kernel does not know. `apart` is the kernel's view of a process without preloaded libraries,
    None if none could be started. `unread` lists the facts that could not be read.
    """

    preloaded: tuple[str, ...] = ()
    emulators: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()
    apart: KernelView | None = None
    unread: tuple[str, ...] = ()
    definers: Mapping[str, str] = field(default_factory=dict)


def read_answering(vendor: str, kernel: KernelView) -> Answering:
    """Return what this process shows, once torch has looked for devices; `kernel` is its view."""
    environment = os.environ
    preloaded = tuple(preloads(environment))
    maps = sorted(loaded_files())  # of every process there are some
    definers = dict(_definers(vendor, maps))
    foreign, doubtful = entry_points(vendor, definers, preloaded)
    answers = {name: _file_of(ctypes.CDLL(None), name) for name in _CALLS}
    # A static Python answers for the C library; dladdr(3) may name it by its first argument.
    calls = [
        f"{name} is answered by {file}"
        for name, file in answers.items()
        if file
        and not _LIBC.match(Path(file).name)
        and os.path.realpath(shutil.which(file) or file) != os.path.realpath(sys.executable)
    ]
    apart, why = kernel_apart(vendor, environment)
    has_topology = any(board.startswith("kfd ") for board in kernel.boards)
    topology = ("/sys/class/kfd/kfd/topology/nodes",) if has_topology else ()
    paths = (*kernel.nodes, *kernel.shared, *kernel.drivers, *topology)
    return Answering(
        preloaded=preloaded,
        emulators=tuple(emulators(environment, (*preloaded, *maps))),
        foreign=foreign,
        calls=(*calls, *doubtful),
        invented=tuple(path for path in paths if not known_to_kernel(path)),
        apart=apart,
        unread=(*(() if maps else ("/proc/self/maps cannot be read",)), *why),
        definers=definers,
    )


def preloads(environment: Mapping[str, str], file: Path = _PRELOAD_FILE) -> Iterator[str]:
    """Yield the libraries that the loader puts before all others (ld.so(8))."""
    try:
        listed = re.sub(r"#.*", "", file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        listed = ""
    texts = [*(environment.get(name, "") for name in _PRELOADING), listed]
    yield from dict.fromkeys(word for text in texts for word in re.split(r"[\s:]+", text) if word)


def emulators(environment: Mapping[str, str], files: Iterable[str]) -> Iterator[str]:
    """Return names of known emulators: a library in the process, or a launcher's variable."""
    yield from dict.fromkeys(file for file in files if _EMULATORS.match(Path(file).name))
    yield from (name for name in sorted(environment) if _EMULATOR_VARIABLES.match(name))


def entry_points(
    vendor: str, definers: Definers, preloaded: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return entry points that a file without the vendor's own name for it defines, and those of a
    file with that name which is put before the driver's: it may be the driver's.
    """
    first = {os.path.realpath(file) for file in preloaded}
    foreign, doubtful = [], []
    for file, symbol in definers.items():
        is_first = os.path.realpath(file) in first
        if not re.fullmatch(ENTRY_POINTS[vendor][1], Path(file).name):
            how = " (preloaded)" if is_first else ""
            foreign.append(f"{symbol} is answered by {file}{how}")
        elif is_first:
            doubtful.append(f"{symbol} is answered by {file}, which is preloaded")
    return tuple(foreign), tuple(doubtful)


def kernel_apart(
    vendor: str, environment: Mapping[str, str]
) -> tuple[KernelView | None, tuple[str, ...]]:
    """Return the kernel's view of a process without preloads and emulators' variables."""
    variables = {
        name: value
        for name, value in environment.items()
        if name not in _PRELOADING and not _EMULATOR_VARIABLES.match(name)
    }
    program = f"from {kernel_view.__name__} import main; main({vendor!r})"
    argv = (sys.executable, "-c", program)
    try:
        completed = subprocess.run(
            argv,
            env={**variables, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        return view_of(json.loads(completed.stdout)), ()
    except (OSError, subprocess.SubprocessError, ValueError, TypeError) as error:
        return None, (f"a second process could not look: {type(error).__name__}",)


def known_to_kernel(path: str) -> bool:
    """Return whether a path exists by a system call that no library intercepts."""
    number = _OPENAT.get(platform.machine())
    if number is None:
        return True
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(
        number, _CURRENT_FOLDER, os.fsencode(path), os.O_PATH | os.O_CLOEXEC, 0
    )
    if descriptor < 0:
        return ctypes.get_errno() not in {errno.ENOENT, errno.ENOTDIR}
    os.close(descriptor)
    return True


def _definers(vendor: str, maps: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Return (file, symbol) for each mapped file that defines an entry point of the vendor's
    driver. Each loaded library is queried by its own handle, for torch opens the driver's
    with local names.
    """
    for path in maps:
        try:
            handle = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        except OSError:
            continue
        for symbol in ENTRY_POINTS[vendor][0]:
            if file := _file_of(handle, symbol):
                yield file, symbol


def _file_of(handle: ctypes.CDLL, symbol: str) -> str:
    """Return the file that defines what a name resolves to; "" where nothing does."""
    try:
        function = getattr(handle, symbol)
    except AttributeError:
        return ""
    # `Dl_info` of dladdr(3): four pointers, the first to the file's name.
    place = (ctypes.c_void_p * 4)()
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    status = dladdr(ctypes.cast(function, ctypes.c_void_p), place)
    return os.fsdecode(ctypes.string_at(place[0])) if status and place[0] else ""
