"""Faulty devices for the operator database: each mutation on every result of one sample
of every entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from warpfront.inside.checks.mutations import ON_TENSORS, UNCHANGED, MutationTally, Seeded, changes
from warpfront.inside.checks.opinfo.adapter import Entry
from warpfront.inside.checks.opinfo.entry_verdicts import Results
from warpfront.inside.checks.opinfo.sweep import REFUSALS, Sweep, excluded, expect_sample

SUITE = "opinfo"


def seed_entry_faults(
    entries: Sequence[Entry], sweep: Sweep, seed: int, ledger: MutationTally
) -> None:
    """The first usable sample of every entry, its outputs and gradients mutated one at a time."""
    dtype = getattr(torch, sweep.dtype)
    for entry in entries:
        known = entry.backward_dtypes if sweep.backward else entry.dtypes
        if dtype in known(sweep.device) and not excluded(entry.name, sweep):
            _seed_entry(entry, dtype, sweep, seed, ledger)


def _seed_entry(
    entry: Entry, dtype: torch.dtype, sweep: Sweep, seed: int, ledger: MutationTally
) -> None:
    samples = entry.samples("cpu", dtype, limit=1, backward=sweep.backward)
    for sample in samples:
        expected = expect_sample(entry, sample, dtype, seed, backward=sweep.backward)
        if expected is None:
            continue
        try:
            clean = sweep.run(entry, sample, expected.cotangents, sweep.device)
        except REFUSALS as error:
            ledger.missed.append(f"clean: {entry.name} {sweep.name}: {error}")
            return
        for i, tensor in enumerate(clean.all):
            if tensor is not None and tensor.numel():
                for name, mutate in ON_TENSORS.items():
                    place = "output" if i < len(clean.outputs) else "gradient"
                    seeded = Seeded(
                        mutation=name,
                        suite=SUITE,
                        check=entry.name,
                        dtype=sweep.dtype,
                        device=sweep.device,
                        place=place,
                    )
                    mutated = mutate(tensor)
                    if not changes(tensor, mutated):
                        ledger.excuse(name, UNCHANGED)
                        continue
                    verdict = expected.judge(_with(clean, i, mutated), sweep.device)
                    ledger.enter(seeded, caught=bool(verdict.faults), said=verdict.tallies)
        return


def _with(clean: Results, index: int, tensor: Tensor) -> Results:
    if index < len(clean.outputs):
        outputs = [*clean.outputs]
        outputs[index] = tensor
        return replace(clean, outputs=tuple(outputs))
    gradients = [*clean.gradients]
    gradients[index - len(clean.outputs)] = tensor
    return replace(clean, gradients=tuple(gradients))
