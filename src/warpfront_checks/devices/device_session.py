"""The `devices` session: every visible device computes, and devices exchange numbers."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from warpfront_checks.cases.bounds import judge
from warpfront_checks.check_options import USUAL, CheckOptions
from warpfront_checks.children import DONE, Returned, each_in_a_child
from warpfront_checks.claims import Claims
from warpfront_checks.detection import disagreements
from warpfront_checks.devices.worker import OPERATIONS
from warpfront_checks.golden.suite import CASES, compute
from warpfront_checks.hardware import Hardware, Machine, read_hardware
from warpfront_checks.precision import DTYPES, probe, probe_dtypes, require_full_precision
from warpfront_checks.results import Check, CheckFinding, Recorder, errored, failed, passed
from warpfront_checks.torch_devices import TorchFacts, read_facts

CHILD = "warpfront_checks.devices.worker:exchange_all"
# NCCL answers for RCCL as well; gloo on the CPU only tests this code.
BACKENDS = {"cuda": "nccl", "hpu": "hccl", "xpu": "xccl", "cpu": "gloo"}
TIME_LIMIT_SECONDS = 150.0
# On the CPU two processes talk over gloo: that tests this code, and no device.
CPU_RANKS = 2
SEED = 4


def record_devices(claims: Claims, recorder: Recorder, effort: CheckOptions = USUAL) -> None:
    """Check every visible device, and where there are two or more what passes between them. A quick
    run leaves out the stand-in for that on the CPU.
    """
    recorder.plan(["all devices", "dtypes"])
    require_full_precision()
    facts, hardware = read_facts(torch), read_hardware(Machine())
    recorder.environment["hardware"] = hardware.document()
    places = places_of(claims.device, facts)
    # A Gaudi belongs to the process that used it first, until that ends: theirs is the first turn.
    if claims.device == "hpu":
        _record_collectives(claims, recorder, len(places))
    usable = [place for place in places if not _withheld(place, recorder)]
    checks = [
        Check(name="all devices", find=lambda: every_device(facts, hardware, places)),
        Check(name="dtypes", find=lambda: probed(claims.device)),
        *(
            Check(name=f"device {place}", find=functools.partial(use_device, place))
            for place in usable
        ),
        *(
            Check(name=f"copy {a} to {b}", find=functools.partial(copy_across, a, b))
            for a, b in zip(usable, usable[1:] + usable[:1], strict=True)
            if a != b
        ),
    ]
    recorder.run(checks)
    if effort.quick and claims.device == "cpu":
        recorder.note_unclaimed("collectives", "a quick run leaves out gloo on the CPU")
    elif claims.device != "hpu":
        _record_collectives(claims, recorder, len(places))


def _withheld(place: str, recorder: Recorder) -> bool:
    """Return true for a second Gaudi, which is another process's: this one's first is in use."""
    if not place.startswith("hpu:") or place == "hpu:0":
        return False
    try:
        torch.ones(1, device=place)
    except RuntimeError as error:
        reason = f"a process has one Gaudi: {str(error).splitlines()[0]}"
        recorder.note_unclaimed(f"device {place}", reason)
        return True
    return False


def places_of(device: str, facts: TorchFacts) -> list[str]:
    """Return `cuda:0`, `cuda:1`, ...; the CPU is one place."""
    return ["cpu"] if device == "cpu" else [f"{device}:{each.index}" for each in facts.devices]


def every_device(facts: TorchFacts, hardware: Hardware, places: list[str]) -> CheckFinding:
    """Check that torch sees every device that should be visible, all of one arch."""
    details: dict[str, object] = {"devices": list(places), "problems": list(hardware.problems)}
    different = disagreements(hardware, facts) if places != ["cpu"] else ()
    archs = sorted({device.arch for device in facts.devices})
    if different:
        return failed(different[0], disagreements=list(different), **details)
    if len(archs) > 1:
        return failed(f"the visible devices are of several archs: {', '.join(archs)}", **details)
    return passed(f"{len(places)}: {', '.join(places)}", **details)


def probed(device: str) -> CheckFinding:
    """Return a record of what the device computes; what it must is judged where it is used."""
    answers = probe_dtypes(device)
    able = [name for name, answer in answers.items() if answer == "computed"]
    return passed(", ".join(able), probes=answers)


def use_device(place: str) -> CheckFinding:
    """Judge the golden suite's operations on one device by number, against float64."""
    kind = torch.device(place).type
    used: dict[str, float] = {}
    for dtype in (name for name, dtype in DTYPES.items() if not probe(dtype, kind)):
        for case in CASES:
            inputs, cotangent = case.make(DTYPES[dtype], SEED)
            computed = compute(case.operation, inputs, cotangent, place)
            for name, (exact, bound) in case.expect(inputs, cotangent).items():
                tensor = computed[name]
                if tensor.device != torch.device(place):
                    return failed(f"{case.name} {dtype} {name}: on {tensor.device}, not {place}")
                verdict = judge(tensor.double(), exact, bound)
                if verdict.fault:
                    reason = f"{case.name} {dtype} {name}: {verdict.fault}"
                    return failed(f"{place}: {reason}", used=used)
                used[dtype] = max(used.get(dtype, 0.0), float(f"{verdict.used:.3g}"))
    return passed(f"{len(CASES)} operations in {', '.join(used)}", used=used)


def copy_across(source: str, target: str) -> CheckFinding:
    """Check that numbers copied from device to device, and back, are unchanged."""
    for size in (1, 33, 1 << 20):
        payload = torch.arange(size, dtype=torch.int64)
        arrived = payload.to(source).to(target)
        if arrived.device != torch.device(target) or not torch.equal(arrived.cpu(), payload):
            return failed(f"{size} numbers from {source} to {target} arrived wrong")
        if not torch.equal(arrived.to(source).cpu(), payload):
            return failed(f"{size} numbers came back wrong from {target} to {source}")
    return passed()


def _record_collectives(claims: Claims, recorder: Recorder, count: int) -> None:
    backend = BACKENDS[claims.device]
    stand_in = claims.device == "cpu"
    world = CPU_RANKS if stand_in else count
    label = f"{backend} on the CPU, a stand-in" if stand_in else backend
    if world < 2:
        recorder.note_unclaimed("collectives", "one device is visible, and they need two")
        return
    present: Any = getattr(torch.distributed, f"is_{backend}_available", lambda: True)
    if not torch.distributed.is_available() or not present():
        reason = f"this torch has no {backend}"
        if stand_in:
            recorder.note_unclaimed("collectives", reason)
        else:
            recorder.run([Check(name="collectives", find=lambda: failed(reason))])
        return
    recorder.plan([f"{name} ({label})" for name in OPERATIONS] if not stand_in else [])
    checks = []
    for name in OPERATIONS:
        lacking = exchange(claims.device, world).unsupported(name) if stand_in else ""
        if lacking:
            recorder.note_unclaimed(f"{name} ({label})", f"gloo has none: {lacking}")
            continue
        find = functools.partial(_exchanged, claims.device, world, name)
        checks.append(Check(name=f"{name} ({label})", find=find))
    recorder.run(checks)


def _exchanged(device: str, world: int, operation: str) -> CheckFinding:
    return exchange(device, world).finding(operation, BACKENDS[device])


@dataclass(frozen=True)
class Told:
    """Return what each rank returned, in their order."""

    ranks: Sequence[Returned]

    def finding(self, operation: str, backend: str) -> CheckFinding:
        """Return one operation's outcome over all ranks."""
        details: dict[str, object] = {"ranks": len(self.ranks), "backend": backend}
        for rank, returned in enumerate(self.ranks):
            if operation not in returned.document:
                ending = f"{returned.outcome}: {returned.reason}"
                ending = "it ended early" if returned.outcome == DONE else ending
                return errored(f"rank {rank} left no answer: {ending}", **details)
        answers = [returned.document[operation] for returned in self.ranks]
        faults = [
            f"rank {n}: {answer['fault']}" for n, answer in enumerate(answers) if answer["fault"]
        ]
        unsupported = [answer["unsupported"] for answer in answers if answer["unsupported"]]
        if faults or unsupported:
            reason = faults[0] if faults else f"{backend} has no {operation}: {unsupported[0]}"
            return failed(reason, faults=faults, unsupported=unsupported, **details)
        return passed(f"{len(answers)} ranks over {backend}", **details)

    def unsupported(self, operation: str) -> str:
        """Return the message of a backend that lacks the operation, or nothing."""
        answers = (returned.document.get(operation, {}) for returned in self.ranks)
        return next(filter(None, (answer.get("unsupported") for answer in answers)), "")


@functools.lru_cache(maxsize=8)
def exchange(device: str, world: int, fault: str = "") -> Told:
    """Let `world` processes exchange numbers, each on its own device of a type."""
    common = {"world": world, "backend": BACKENDS[device], "device": device, "fault": fault}

    def returned(rank: int) -> Returned:
        item = {**common, "rank": rank, "meeting": f"{name}/meeting"}
        # Habana's bridge reads them as it is loaded: the card of LOCAL_RANK becomes the process's.
        ranks = {"LOCAL_RANK": str(rank), "RANK": str(rank), "WORLD_SIZE": str(world)}
        return next(each_in_a_child(CHILD, [item], seconds=TIME_LIMIT_SECONDS, environment=ranks))

    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(world) as pool:
        return Told([*pool.map(returned, range(world))])
