"""The `devices` session: every visible device computes, and devices exchange numbers.

Of the collectives each rank is a child. It knows the data of every other, so it judges its own
result: integers exactly, sums of floating numbers by the rounding of each addition.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from warpfront_checks.cases.bounds import Bound, floor_of, judge, rounding_unit
from warpfront_checks.cases.measured import ByPeer
from warpfront_checks.cases.run import run_case
from warpfront_checks.check_options import USUAL, CheckOptions
from warpfront_checks.children import DONE, Returned, each_in_a_child
from warpfront_checks.claims import Claims
from warpfront_checks.detection import disagreements
from warpfront_checks.golden.vectors import SUITE, case_of
from warpfront_checks.hardware import Hardware, Machine, read_hardware
from warpfront_checks.precision import DTYPES, probe, probe_dtypes
from warpfront_checks.results import (
    CheckFinding,
    Checks,
    Find,
    Recorder,
    errored,
    failed,
    judged,
    passed,
)
from warpfront_checks.selftest import faults_folder, load_faults
from warpfront_checks.torch_devices import TorchFacts, read_facts

CHILD = "warpfront_checks.devices.device_session:exchange_all"
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
    facts, hardware = read_facts(torch), read_hardware(Machine())
    recorder.environment["hardware"] = hardware.document()
    places = places_of(claims.device, facts)
    collectives = functools.partial(collective_checks, claims.device, len(places), effort)
    # A Gaudi belongs to the process that used it first, until that ends: theirs is the first turn.
    first = claims.device == "hpu"
    if first:
        recorder.run(collectives())
    withheld = {place: _withheld(place) for place in places}
    usable = [place for place in places if not withheld[place]]

    def probed() -> CheckFinding:
        """Record what the device computes; what it must is judged where it is used."""
        answers = probe_dtypes(claims.device)
        able = [name for name, answer in answers.items() if answer == "computed"]
        return passed(", ".join(able), probes=answers)

    pairs = [(a, b) for a, b in zip(usable, usable[1:] + usable[:1], strict=True) if a != b]
    checks: Checks = {
        "all devices": functools.partial(every_device, facts, hardware, places),
        "dtypes": probed,
        **{f"device {n}": withheld[n] or functools.partial(use_device, n) for n in places},
        **{f"copy {a} to {b}": functools.partial(copy_across, a, b) for a, b in pairs},
    }
    recorder.run(checks)
    if not first:
        recorder.run(collectives())


def _withheld(place: str) -> str:
    """Return why a second Gaudi is another process's, where this one's first is in use."""
    try:
        if place.startswith("hpu:") and place != "hpu:0":
            torch.ones(1, device=place)
    except RuntimeError as error:
        return f"a process has one Gaudi: {str(error).splitlines()[0]}"
    return ""


def places_of(device: str, facts: TorchFacts) -> list[str]:
    """Return `cuda:0`, `cuda:1`, ...; the CPU is one place."""
    return ["cpu"] if device == "cpu" else [f"{device}:{each.index}" for each in facts.devices]


def every_device(facts: TorchFacts, hardware: Hardware, places: list[str]) -> CheckFinding:
    """Check that torch sees every device that should be visible, all of one arch."""
    details: dict[str, object] = {"devices": list(places), "problems": list(hardware.problems)}
    wrong = disagreements(hardware, facts) if places != ["cpu"] else ()
    if wrong:
        return failed(wrong[0], disagreements=list(wrong), **details)
    archs = sorted({device.arch for device in facts.devices})
    several = f"the visible devices are of several archs: {', '.join(archs)}"
    return judged([several] * (len(archs) > 1), f"{len(places)}: {', '.join(places)}", **details)


def use_device(place: str) -> CheckFinding:
    """Judge the golden suite's calls on one device by number, against float64."""
    kind = torch.device(place).type
    used: dict[str, float] = {}
    for dtype in (name for name, dtype in DTYPES.items() if not probe(dtype, kind)):
        for name in SUITE:
            for verdict in run_case(case_of(name, dtype, place, SEED), bounds=ByPeer):
                if verdict.fault:
                    fault = f"{place}: {name} {dtype} {verdict.name}: {verdict.fault}"
                    return failed(fault, used=used)
                used[dtype] = max(used.get(dtype, 0.0), float(f"{verdict.used:.3g}"))
    return passed(f"{len(SUITE)} operations in {', '.join(used)}", used=used)


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


def collective_checks(device: str, count: int, effort: CheckOptions) -> Checks:
    """Return a check for each collective; a quick run leaves out the stand-in on the CPU."""
    backend, stand_in = BACKENDS[device], device == "cpu"
    world = CPU_RANKS if stand_in else count
    if effort.quick and stand_in:
        return {"collectives": "a quick run leaves out gloo on the CPU"}
    if world < 2:
        return {"collectives": "one device is visible, and they need two"}
    present: Any = getattr(distributed, f"is_{backend}_available", lambda: True)
    if not distributed.is_available() or not present():
        reason = f"this torch has no {backend}"
        return {"collectives": reason if stand_in else lambda: failed(reason)}

    def check(name: str) -> Find | str:
        lacking = exchange(device, world).unsupported(name) if stand_in else ""
        if lacking:
            return f"gloo has none: {lacking}"
        return lambda: exchange(device, world).finding(name, backend)

    label = f"{backend} on the CPU, a stand-in" if stand_in else backend
    return {f"{name} ({label})": check(name) for name in OPERATIONS}


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
        faults = [f"rank {n}: {each['fault']}" for n, each in enumerate(answers) if each["fault"]]
        unsupported = [answer["unsupported"] for answer in answers if answer["unsupported"]]
        reasons = faults + [f"{backend} has no {operation}: {each}" for each in unsupported]
        if reasons:
            return failed(reasons[0], faults=faults, unsupported=unsupported, **details)
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


TIMEOUT_SECONDS = 60
SIZES = (1, 33, 1025, 65537)  # no multiple of a warp, a wavefront or a transfer's unit
INTEGERS = ("int32", "int64")
FLOATS = ("float32", "bfloat16", "float16")
# Messages of backends that lack an operation.
_UNSUPPORTED = ("not supported", "not implemented", "does not support", "no support", "unsupported")


class Group:
    """The collectives of the process group, on tensors of this rank's device. Faults replace it."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world

    def all_reduce(self, x: Tensor, largest: bool) -> Tensor:  # noqa: FBT001 - sum or maximum
        y = x.clone()
        kind = distributed.ReduceOp.MAX if largest else distributed.ReduceOp.SUM
        distributed.all_reduce(y, kind)
        return y

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        y = x.clone()
        distributed.broadcast(y, source)
        return y

    def all_gather(self, x: Tensor) -> list[Tensor]:
        parts = [torch.zeros_like(x) for _ in range(self.world)]
        distributed.all_gather(parts, x)
        return parts

    def reduce_scatter(self, parts: Sequence[Tensor]) -> Tensor:
        y = torch.zeros_like(parts[0])
        distributed.reduce_scatter(y, list(parts))
        return y

    def all_to_all(self, parts: Sequence[Tensor]) -> list[Tensor]:
        stacked, got = torch.stack(list(parts)), torch.zeros_like(torch.stack(list(parts)))
        distributed.all_to_all_single(got, stacked)
        return list(got.unbind())

    def pass_on(self, x: Tensor) -> Tensor:
        """Send to the next rank and receive from the one before."""
        y = torch.zeros_like(x)
        ahead, behind = (self.rank + 1) % self.world, (self.rank - 1) % self.world
        pair = [
            distributed.P2POp(distributed.isend, x, ahead),
            distributed.P2POp(distributed.irecv, y, behind),
        ]
        for request in distributed.batch_isend_irecv(pair):
            request.wait()
        return y


def part_of(rank: int, dtype: str, size: int, number: int = 0) -> Tensor:
    """Return a rank's data, the same everywhere: integers below 50, for exact sums."""
    seed = 1000 * rank + 10 * size + number
    generator = torch.Generator().manual_seed(seed)
    if dtype in INTEGERS:
        return torch.randint(-50, 50, (size,), generator=generator).to(getattr(torch, dtype))
    return torch.randn(size, generator=generator).to(getattr(torch, dtype))


def judge_operation(group: Group, name: str, dtype: str, device: str) -> str:
    """Return the fault of one operation in one dtype, or nothing.

    Goes on after a fault: a rank that stops early leaves the others waiting.
    """
    faults = []
    for size in SIZES:
        # What each rank has for all, what each has for this one, and what this one has for each.
        every, shares = (
            [part_of(rank, dtype, size, number) for rank in range(group.world)]
            for number in (0, group.rank)
        )
        mine = [part_of(group.rank, dtype, size, n).to(device) for n in range(group.world)]
        for received, parts, summed in _COLLECTIVES[name](group, mine, every, shares):
            fault = f"{received.dtype} {tuple(received.shape)}"
            if (received.dtype, received.shape) == (parts[0].dtype, parts[0].shape):
                wide = torch.stack([part.double() for part in parts])
                bound = Bound()
                if summed and received.dtype.is_floating_point:
                    # Every addition rounds once, whatever the order; and once more where it is
                    # stored.
                    size_of_sum = len(parts) * rounding_unit(received.dtype) * wide.abs().sum(0)
                    bound = Bound(slack=size_of_sum + floor_of(received.dtype))
                fault = judge(received.double(), wide.sum(0), bound).fault
            faults += [f"{name} of {size} {dtype}: {fault}"] if fault else []
    return faults[0] if faults else ""


Tensors = list[Tensor]
# What was received, the parts that it is made of, and whether by their sum.
Received = list[tuple[Tensor, Tensors, bool]]
_COLLECTIVES: dict[str, Callable[[Group, Tensors, Tensors, Tensors], Received]] = {
    "all_reduce": lambda group, mine, every, _: [
        (group.all_reduce(mine[0], False), every, True),  # noqa: FBT003 - a sum
        (group.all_reduce(mine[0], True), [torch.stack(every).amax(0)], False),  # noqa: FBT003 - a maximum
    ],
    "broadcast": lambda group, mine, every, _: [
        (group.broadcast(mine[0], source), [part], False) for source, part in enumerate(every)
    ],
    "all_gather": lambda group, mine, every, _: [
        (received, [part], False)
        for received, part in zip(group.all_gather(mine[0]), every, strict=True)
    ],
    "reduce_scatter": lambda group, mine, _, shares: [(group.reduce_scatter(mine), shares, True)],
    "all_to_all": lambda group, mine, _, shares: [
        (received, [part], False)
        for received, part in zip(group.all_to_all(mine), shares, strict=True)
    ],
    "send and receive": lambda group, mine, every, _: [
        (group.pass_on(mine[0]), [every[group.rank - 1]], False)
    ],
}
OPERATIONS = tuple(_COLLECTIVES)


def exchange_all(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the result of every operation on this rank."""
    rank, world = item["rank"], item["world"]
    kind = item["device"]
    if kind == "cuda":
        torch.cuda.set_device(rank)
    if kind == "hpu":
        # Both the device and its backend are there only after that.
        importlib.import_module("habana_frameworks.torch.distributed.hccl")
        # A process that sees all of them takes its own; one with a single card, that of its
        # LOCAL_RANK, has no other number than 0 for it and refuses. `hpu` is right for both.
        with contextlib.suppress(RuntimeError):
            torch.hpu.set_device(rank)
    device = kind if kind in {"cpu", "hpu"} else f"{kind}:{rank}"
    distributed.init_process_group(
        item["backend"],
        init_method=Path(item["meeting"]).resolve().as_uri(),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=TIMEOUT_SECONDS),
    )
    group = (_seeded(item["fault"]) if item["fault"] else Group)(rank, world)
    results = {name: _result(group, name, device) for name in OPERATIONS}
    distributed.destroy_process_group()
    return results


def _seeded(fault: str) -> type[Group]:
    """Return a group of the selftest's faults by its name."""
    faults = importlib.import_module(f"{load_faults(faults_folder())}.seeding.collectives")
    group: type[Group] = faults.FAULTS[fault][0]
    return group


def _result(group: Group, name: str, device: str) -> dict[str, str]:
    """`fault` and `unsupported`: at most one of them is not empty."""
    fault = unsupported = ""
    try:
        faults = [judge_operation(group, name, dtype, device) for dtype in (*INTEGERS, *FLOATS)]
        fault = next(filter(None, faults), "")
    except Exception as error:  # noqa: BLE001 - what one operation raises is its own result
        first = (str(error).strip().splitlines() or ["no reason given"])[0][:200]
        if any(words in str(error).lower() for words in _UNSUPPORTED):
            unsupported = first
        else:
            fault = f"{type(error).__name__}: {first}"
    return {"fault": fault, "unsupported": unsupported}
