"""The `selftest` session: seeded faults in every check of the numerics, each of which has to be
caught on the claimed device, while the clean run passes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from warpfront_checks.check_options import DEVELOPMENT, CheckOptions, drawn_seeds
from warpfront_checks.claims import Claims
from warpfront_checks.models.families import NETWORKS
from warpfront_checks.models.layer_faults import seed_pass_faults
from warpfront_checks.mutations import MutationTally, finding_of_faults
from warpfront_checks.operators.case_faults import Subject, seed_faults, seed_property_faults
from warpfront_checks.operators.cases import Case, make_maker
from warpfront_checks.operators.fused import PATTERNS, pattern_cases
from warpfront_checks.operators.table import operators
from warpfront_checks.operators.trials import WORKSPACE
from warpfront_checks.opinfo.adapter import DatabaseMoved, load_database
from warpfront_checks.opinfo.entry_faults import seed_entry_faults
from warpfront_checks.opinfo.sweep import BACKWARD, Sweep
from warpfront_checks.precision import (
    computes_float64,
    require_full_precision,
    tested_dtypes,
)
from warpfront_checks.results import Check, CheckFinding, Recorder, unavailable

EXACT_DTYPES = ("int64", "int32", "bool")
Seed = Callable[[int, MutationTally], None]


def record_selftest(claims: Claims, recorder: Recorder, effort: CheckOptions | None = None) -> None:
    """Record one check per suite and dtype, passed when every fault seeded there was caught."""
    effort = effort or CheckOptions()
    os.environ.setdefault(*WORKSPACE)
    require_full_precision()
    device = claims.device
    floating = tested_dtypes(device)
    recorder.run(
        [*_network_checks(floating, device, effort), *_operator_checks(floating, device, effort)]
    )


def record_opinfo_faults(
    claims: Claims, recorder: Recorder, effort: CheckOptions | None = None
) -> None:
    """Record the same for the operator database."""
    floating = tested_dtypes(claims.device)
    recorder.run(list(_opinfo_checks(floating, claims.device, effort or CheckOptions())))


def _network_checks(floating: Sequence[str], device: str, effort: CheckOptions) -> Iterator[Check]:
    for dtype in floating:
        for network in NETWORKS:
            seed_in = partial(seed_pass_faults, network, dtype, device)
            yield _seeded_check(f"{network.name} {dtype}", seed_in, effort)


def _operator_checks(floating: Sequence[str], device: str, effort: CheckOptions) -> Iterator[Check]:
    double = ["float64"] if computes_float64(device) else []
    for dtype in (*floating, *double, *EXACT_DTYPES):
        yield _seeded_check(f"operators {dtype}", _in_operators(dtype, device), effort)
    for dtype in floating:
        yield _seeded_check(f"patterns {dtype}", _in_patterns(dtype, device), effort)

    def seed_in(_seed: int, ledger: MutationTally) -> None:
        seed_property_faults(operators(), device, ledger)

    yield _seeded_check("properties", seed_in, CheckOptions())


def _in_operators(dtype: str, device: str) -> Seed:
    def seed_in(seed: int, ledger: MutationTally) -> None:
        for operator in operators():
            if dtype in operator.dtypes:
                cases = partial(operator.make_cases, dtype, quick=True)
                subject = Subject(check=operator.name, dtype=dtype, device=device, cases=cases)
                seed_faults(subject, seed, ledger)

    return seed_in


def _in_patterns(dtype: str, device: str) -> Seed:
    def seed_in(seed: int, ledger: MutationTally) -> None:
        for name in PATTERNS:

            def cases(seed: int, name: str = name) -> Iterator[Case]:
                return pattern_cases(name, make_maker(getattr(torch, dtype), seed, quick=True))

            subject = Subject(check=name, dtype=dtype, device=device, cases=cases)
            seed_faults(subject, seed, ledger)

    return seed_in


def _opinfo_checks(floating: Sequence[str], device: str, effort: CheckOptions) -> Iterator[Check]:
    """Both directions in float32, and forward in bfloat16, whose rounding is the coarsest."""
    for dtype, pass_name in (("float32", ""), ("float32", BACKWARD), ("bfloat16", "")):
        if dtype in floating:
            sweep = Sweep(dtype=dtype, how=pass_name, device=device, effort=effort)
            yield Check(
                name=f"opinfo {sweep.name}",
                find=partial(_opinfo_finding, sweep, drawn_seeds(DEVELOPMENT, 1)),
            )


def _opinfo_finding(sweep: Sweep, seeds: tuple[int, ...]) -> CheckFinding:
    try:
        entries = load_database()
    except DatabaseMoved as error:
        return unavailable(str(error))
    ledger = MutationTally()
    for seed in seeds:
        seed_entry_faults(entries, sweep, seed, ledger)
    return finding_of_faults(ledger)


def _seeded_check(name: str, seed_in: Seed, effort: CheckOptions) -> Check:
    def find() -> CheckFinding:
        ledger = MutationTally()
        for seed in drawn_seeds(DEVELOPMENT, len(effort.seeds)):
            seed_in(seed, ledger)
        return finding_of_faults(ledger)

    return Check(name=name, find=find)
