"""The check `device`: the claimed device is present, torch computes on it, and it is hardware.

Nothing falls back to the CPU: a missing device is `unavailable`, a torch that would compute on the
CPU although it need not is `failed`. The report of torch is compared with the kernel's own traces
and with the libraries that answer for the device in this process. `emulated` names the substitute
for hardware; `undetermined` names the facts that could not be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from warpfront_checks.claims import Claims
from warpfront_checks.hardware import Hardware
from warpfront_checks.hardware.kernel_view import KernelView
from warpfront_checks.interposers import Answering, read_answering
from warpfront_checks.results import (
    EMULATED,
    PASSED,
    UNDETERMINED,
    Check,
    CheckFinding,
    Recorder,
    failed,
    passed,
    unavailable,
)
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
        return failed(
            f"torch is a {facts.build} build: a cell for {claims.target} needs {build}, and would"
            " run on the CPU",
            **details,
        )
    if not facts.devices:
        return _no_device(claims, facts, hardware, details)
    first = facts.devices[0]
    # sm_90a and sm_100f name the features of code, not other hardware.
    if first.arch not in {claims.target, claims.target.rstrip("af")}:
        arch = first.arch or "of unknown arch"
        reason = f"the device here is {arch} ({first.name}), not {claims.target}"
        return unavailable(reason, **details)
    return None


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
    recorder.run([Check(name="device", find=lambda: check_finding)])
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


def _no_device(
    claims: Claims, facts: TorchFacts, hardware: Hardware, details: dict[str, object]
) -> CheckFinding:
    devices = hardware.of(claims.vendor)
    suffix = f" (torch: {facts.obstacle})" if facts.obstacle else ""
    if not devices:
        return unavailable(f"no {claims.target} device here{suffix}", **details)
    listed = f"{len(devices)} {devices[0].arch or claims.vendor} devices are here"
    if not all(device.usable for device in devices):
        reason = next(iter(hardware.problems), "they may not be opened")
        return unavailable(f"{listed}, but not for this process: {reason}{suffix}", **details)
    visibility = hardware.visibility[claims.vendor]
    if visibility.visible == ():
        return unavailable(f"{listed}, hidden by {visibility.winner}{suffix}", **details)
    return failed(f"{listed}, and torch sees none{suffix}: it would run on the CPU", **details)
