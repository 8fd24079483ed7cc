"""Faults that are seeded into collectives: what crosses between devices."""

from __future__ import annotations

from functools import partial

import torch

from warpfront_checks.check_options import CheckOptions
from warpfront_checks.claims import Claims
from warpfront_checks.devices.collectives import BACKENDS, exchange
from warpfront_checks.devices.device_session import CPU_RANKS
from warpfront_checks.devices.worker import FAULTS, OPERATIONS
from warpfront_checks.results import Check, CheckFinding, Recorder, failed, passed
from warpfront_checks.torch_devices import read_facts


def record_device_faults(
    claims: Claims, recorder: Recorder, _effort: CheckOptions | None = None
) -> None:
    """Part of `selftest`: every fault seeded into the collectives has to be caught where it is."""
    facts = read_facts(torch)
    world = CPU_RANKS if claims.device == "cpu" else len(facts.devices)
    if world < 2:
        recorder.note_unclaimed("faults of collectives", f"{world} devices, and they need two")
        return
    recorder.run(
        [
            Check(name=f"collectives: {name}", find=partial(_caught, claims, world, name))
            for name in FAULTS
        ]
    )


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
