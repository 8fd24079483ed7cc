"""The check `device`: the claimed device is present, torch computes on it, and it is hardware.

Nothing falls back to the CPU: a missing device is `unavailable`, a torch that would compute on the
CPU although it need not is `failed`. The report of torch is compared with the kernel's own traces
and with the libraries that answer for the device in this process: preloaded ones, emulators, and
the files that define the entry points of a vendor's driver. `emulated` names the substitute for
hardware; `undetermined` names the facts that could not be read.
"""

from __future__ import annotations

import contextlib
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from warpfront_checks.claims import Claims
from warpfront_checks.documents import Reader
from warpfront_checks.hardware import Hardware, kernel_view
from warpfront_checks.hardware.kernel_view import KernelView
from warpfront_checks.hardware.values import device_table
from warpfront_checks.results import (
    EMULATED,
    PASSED,
    UNDETERMINED,
    CheckFinding,
    Recorder,
    failed,
    passed,
    unavailable,
)
from warpfront_checks.stack.elf_symbols import loaded_files
from warpfront_checks.torch_devices import TorchFacts, environment_of, read_facts

# What torch has to be built for; the CPU's claims are true of every build.
BUILDS = {"nvidia": "cuda", "amd": "rocm", "gaudi": "hpu", "intel": "xpu"}


def judge_presence(claims: Claims, facts: TorchFacts, hardware: Hardware) -> CheckFinding | None:
    """Return None if torch can compute on the claimed device, else the finding for every
    check of it.

    `failed`: torch is built for something else, or devices that this user may open are present and
    torch sees none. `unavailable`: no such device, it may not be opened, a variable hides it, or it
    is of another arch than the target.
    """
    build = BUILDS.get(claims.vendor)
    if build is None:
        return None
    details: dict[str, object] = {"torch": facts.evidence(), "hardware": hardware.document()}
    if facts.build != build:
        needs = f"a cell for {claims.target} needs {build}, and would run on the CPU"
        return failed(f"torch is a {facts.build} build: {needs}", **details)
    devices, target = hardware.of(claims.vendor), claims.target
    suffix = f" (torch: {facts.obstacle})" if facts.obstacle else ""
    counted = (
        f"{len(devices)} {devices[0].arch or claims.vendor} devices are here" if devices else ""
    )
    first = next(iter(facts.devices), None)
    # sm_90a and sm_100f name the features of code, not other hardware.
    if first and first.arch in {target, target.rstrip("af")}:
        return None
    if first:
        arch = first.arch or "of unknown arch"
        reason = f"the device here is {arch} ({first.name}), not {target}"
    elif not devices:
        reason = f"no {target} device here{suffix}"
    elif not all(device.usable for device in devices):
        why = next(iter(hardware.problems), "they may not be opened")
        reason = f"{counted}, but not for this process: {why}{suffix}"
    elif hardware.visibility[claims.vendor].visible == ():
        reason = f"{counted}, hidden by {hardware.visibility[claims.vendor].winner}{suffix}"
    else:
        return failed(f"{counted}, and torch sees none{suffix}: it would run on the CPU", **details)
    return unavailable(reason, **details)


def judge_reality(
    claims: Claims, facts: TorchFacts, hardware: Hardware, answering: Answering
) -> CheckFinding | None:
    """Return None if hardware is known to be behind the claimed device, else a finding
    with the doubt.

    `emulated`: something takes the place of the device. `undetermined`: the evidence cannot be read
    in this process; a container without /sys, gVisor and WSL2 end so, and never as `emulated`.
    """
    if BUILDS.get(claims.vendor) is None:
        return None
    kernel = hardware.kernel[claims.vendor]
    overridden = facts.visibility.get("HSA_OVERRIDE_GFX_VERSION")
    if overridden and (other := _other_arch(facts, kernel)):
        reason = f"the device here is {other}; HSA_OVERRIDE_GFX_VERSION={overridden} renames it"
        return unavailable(reason, hardware=hardware.document())
    signs = [*_signs(facts, kernel, answering)]
    doubts = [*_doubts(hardware, facts, kernel, answering)]
    if not signs and not doubts:
        return None
    return CheckFinding(
        outcome=EMULATED if signs else UNDETERMINED,
        reason="; ".join(signs or doubts),
        details={
            "signs": signs,
            "not determined": doubts,
            "answering": asdict(answering),
            "torch": facts.evidence(),
            "hardware": hardware.document(),
        },
    )


def _signs(facts: TorchFacts, kernel: KernelView, answering: Answering) -> Iterator[str]:
    """Return the signs of an emulation: each alone shows that no hardware answers."""
    yield from (f"an emulator is in this process: {emulator}" for emulator in answering.emulators)
    yield from answering.foreign
    if answering.invented:
        yield f"this process sees {', '.join(answering.invented)}, which the kernel does not know"
    count = f"torch reports {len(facts.devices)} devices"
    # Where these cannot be read, driver and board may be there.
    hidden = {"/sys/bus", "/proc"} & {*kernel.unseen} or not kernel.lists_pci
    if not (kernel.nodes or kernel.shared) and "/dev" not in kernel.unseen:
        yield f"{count}, and the kernel has no device node of their driver"
    elif kernel.nodes and not kernel.drivers and not kernel.boards and not hidden:
        yield f"{count}, and the kernel has neither their driver nor such a board"
    if other := _other_arch(facts, kernel):
        yield f"torch reports {facts.devices[0].arch}, the kernel's topology {other}"
    apart = answering.apart
    if apart is not None:
        for name in ("nodes", "drivers", "boards"):
            if gone := sorted({*getattr(kernel, name)} - {*getattr(apart, name)}):
                yield f"a process without preloaded libraries does not see {', '.join(gone[:3])}"


def _doubts(
    hardware: Hardware, facts: TorchFacts, kernel: KernelView, answering: Answering
) -> Iterator[str]:
    """Return the reasons for which it is unknown that the hardware answers."""
    yield from answering.unread
    yield from answering.calls
    if "/dev" in kernel.unseen:
        yield "/dev cannot be listed"
    if kernel.shared and not kernel.nodes:
        yield f"{kernel.shared[0]} serves the device (WSL2), and no file names the board behind it"
    elif not kernel.drivers and not kernel.boards:
        places = ", ".join(kernel.unseen) or "/sys and /proc/driver"
        yield f"neither driver nor board can be seen in {places}: not mounted in this container?"
    boards = [board for board in kernel.boards if not board.startswith("pci ")]
    if boards and len(facts.devices) > len(boards):
        yield f"torch reports {len(facts.devices)} devices, the kernel {len(boards)}"
    archs = {device.arch for device in hardware.of("nvidia") if device.arch}
    if facts.build == "cuda" and archs and facts.devices[0].arch not in archs:
        yield f"torch reports {facts.devices[0].arch}, NVIDIA's tools {', '.join(sorted(archs))}"


def _other_arch(facts: TorchFacts, kernel: KernelView) -> str:
    """Return the archs of the kernel's topology (AMD's names them), if torch's is none of them."""
    archs = {board.rpartition(" ")[2] for board in kernel.boards if board.startswith("kfd ")}
    return "" if not archs or facts.devices[0].arch in archs else ", ".join(sorted(archs))


def find_device(claims: Claims, recorder: Recorder, torch: Any, hardware: Hardware) -> bool:
    """Make the first check of every session that computes, `device`; return whether it computes.

    If the claimed device is missing, this is the session's only check. An emulated device computes,
    and the check reports it: a user of an emulator wants the results.
    """
    facts = read_facts(torch)
    recorder.environment.update(environment_of(torch))
    check_finding = judge_device(claims, facts, hardware)
    if check_finding is None:
        first = f"{facts.devices[0].name} ({facts.devices[0].arch})" if facts.devices else ""
        name = first if BUILDS.get(claims.vendor) else "the CPU"
        check_finding = passed(name, **facts.evidence())
    recorder.run({"device": lambda: check_finding})
    return computes(check_finding)


def computes(check_finding: CheckFinding | None) -> bool:
    """Return whether a device with this finding computes at all."""
    return check_finding is None or check_finding.outcome in {PASSED, EMULATED, UNDETERMINED}


def judge_device(claims: Claims, facts: TorchFacts, hardware: Hardware) -> CheckFinding | None:
    """Return None if the claimed device is present and is hardware, else the finding."""
    lacking = judge_presence(claims, facts, hardware)
    if lacking is not None or BUILDS.get(claims.vendor) is None:
        return lacking
    kernel = hardware.kernel[claims.vendor]
    return judge_reality(claims, facts, hardware, read_answering(claims.vendor, kernel))


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
    definers: dict[str, str] = {}
    names = device_table()["entry_points"][vendor]["names"]
    for path in maps:
        # Each library is queried by its own handle, for torch opens the driver's with local names.
        with contextlib.suppress(OSError):
            handle = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            files = {_file_of(handle, symbol): symbol for symbol in names}
            definers |= {file: symbol for file, symbol in files.items() if file}
    foreign, doubtful = entry_points(vendor, definers, preloaded)
    answers = {name: _file_of(ctypes.CDLL(None), name) for name in _CALLS}
    calls = [
        f"{name} is answered by {file}"
        for name, file in answers.items()
        # A static Python answers for the C library; dladdr(3) may name it by its first argument.
        if file
        and not _LIBC.match(Path(file).name)
        and os.path.realpath(shutil.which(file) or file) != os.path.realpath(sys.executable)
    ]
    apart, why = kernel_apart(vendor)
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
    vendors_own = device_table()["entry_points"][vendor]["files"]
    for file, symbol in definers.items():
        answered, is_first = f"{symbol} is answered by {file}", os.path.realpath(file) in first
        if not re.fullmatch(vendors_own, Path(file).name):
            foreign.append(f"{answered} (preloaded)" if is_first else answered)
        elif is_first:
            doubtful.append(f"{answered}, which is preloaded")
    return tuple(foreign), tuple(doubtful)


def kernel_apart(vendor: str) -> tuple[KernelView | None, tuple[str, ...]]:
    """Return the kernel's view of a process without preloads and emulators' variables."""
    variables = {
        name: value
        for name, value in os.environ.items()
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
        reader = Reader(error=ValueError)
        return reader.record(KernelView, json.loads(completed.stdout), "the view"), ()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
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
