"""Faults that are seeded into collectives: what crosses between devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from warpfront_checks.check_options import CheckOptions
from warpfront_checks.claims import Claims
from warpfront_checks.devices.device_session import BACKENDS, CPU_RANKS, OPERATIONS, Group, exchange
from warpfront_checks.results import CheckFinding, Recorder, failed, passed
from warpfront_checks.torch_devices import read_facts


class _LeftOut(Group):
    """The last rank's part is missing from every sum."""

    def all_reduce(self, x: Tensor, largest: bool) -> Tensor:
        return super().all_reduce(x * (self.rank != self.world - 1), largest)

    def reduce_scatter(self, parts: Sequence[Tensor]) -> Tensor:
        return super().reduce_scatter([x * (self.rank != self.world - 1) for x in parts])


class _Rounded(Group):
    """Sums of float32 are made in bfloat16."""

    def all_reduce(self, x: Tensor, largest: bool) -> Tensor:
        if x.dtype != torch.float32:
            return super().all_reduce(x, largest)
        return super().all_reduce(x.bfloat16(), largest).float()


class _WrongOrder(Group):
    """Parts arrive in another order than the ranks'."""

    def all_gather(self, x: Tensor) -> list[Tensor]:
        return super().all_gather(x)[::-1]

    def all_to_all(self, parts: Sequence[Tensor]) -> list[Tensor]:
        return super().all_to_all(parts)[::-1]


class _Stale(Group):
    """Nothing arrives: what was in the buffers stays there."""

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        super().broadcast(x, source)
        return x

    def pass_on(self, x: Tensor) -> Tensor:
        return torch.zeros_like(super().pass_on(x))


# Name, group, and the operations that have to fail.
FAULTS: dict[str, tuple[type[Group], tuple[str, ...]]] = {
    "one rank left out": (_LeftOut, ("all_reduce", "reduce_scatter")),
    "float32 summed in bfloat16": (_Rounded, ("all_reduce",)),
    "parts in the wrong order": (_WrongOrder, ("all_gather", "all_to_all")),
    "nothing arrives": (_Stale, ("broadcast", "send and receive")),
}


def record_device_faults(
    claims: Claims, recorder: Recorder, _effort: CheckOptions | None = None
) -> None:
    """Part of `selftest`: every fault seeded into the collectives has to be caught where it is."""
    facts = read_facts(torch)
    world = CPU_RANKS if claims.device == "cpu" else len(facts.devices)
    if world < 2:
        recorder.note_unclaimed("faults of collectives", f"{world} devices, and they need two")
        return
    recorder.run({f"collectives: {n}": partial(_caught, claims, world, n) for n in FAULTS})


def _caught(claims: Claims, world: int, fault: str) -> CheckFinding:
    exchanged = exchange(claims.device, world, fault)
    backend = BACKENDS[claims.device]
    wrong = {n for n in OPERATIONS if exchanged.finding(n, backend).outcome != "passed"}
    wrong -= {n for n in OPERATIONS if exchanged.unsupported(n)}
    expected = {n for n in FAULTS[fault][1] if not exchanged.unsupported(n)}
    reasons = {n: exchanged.finding(n, backend).reason for n in sorted(wrong)}
    if wrong != expected:
        return failed(f"caught in {sorted(wrong)}, seeded in {sorted(expected)}", reasons=reasons)
    return passed(f"caught in {', '.join(sorted(wrong))}", reasons=reasons)
