"""Faulty devices for the operator database: each mutation on every result of one sample
of every entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from warpfront_checks.cases.measured import Measured
from warpfront_checks.cases.run import (
    REFUSALS,
    LackingError,
    NoOracleError,
    reference_of,
    results_of,
)
from warpfront_checks.opinfo.adapter import Entry
from warpfront_checks.opinfo.provider import cases_of_sample
from warpfront_checks.opinfo.sweep import Sweep, excluded

from .mutations import MutationTally, Seeded, seed_results

SUITE = "opinfo"


def seed_entry_faults(
    entries: Sequence[Entry], sweep: Sweep, seed: int, ledger: MutationTally
) -> None:
    """Mutate outputs and gradients of the first usable sample of every entry, one at a time."""
    dtype = getattr(torch, sweep.dtype)
    for entry in entries:
        dtypes = entry.backward_dtypes if sweep.backward else entry.dtypes
        if dtype in dtypes(sweep.device) and not excluded(
            entry.name, sweep.dtype, sweep.device, backward=sweep.backward
        ):
            _seed_entry(entry, dtype, sweep, seed, ledger)


def _seed_entry(
    entry: Entry, dtype: torch.dtype, sweep: Sweep, seed: int, ledger: MutationTally
) -> None:
    options: dict[str, Any] = {"dtype": sweep.dtype, "device": sweep.device, "seed": seed}
    for sample in entry.samples("cpu", dtype, limit=1, backward=sweep.backward):
        case, *_ = next(cases_of_sample(entry, sample, **options))
        try:
            reference = reference_of(case, nullcontext())
            results = results_of(case, reference)
        except NoOracleError:
            continue
        except (LackingError, *REFUSALS) as error:
            ledger.missed.append(f"clean: {entry.name} {sweep.name}: {error}")
            return
        of = Seeded(
            mutation="", suite=SUITE, check=entry.name, dtype=sweep.dtype, device=sweep.device
        )
        seed_results(results, Measured(case, reference), of, ledger)
        return
