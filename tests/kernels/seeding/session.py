"""The checks of the selftest: each group of faults has to be caught, and the clean run passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from warpfront_checks.cases.catalogue import TOPICS
from warpfront_checks.cases.session import SEEN_ON
from warpfront_checks.cases.special.properties import sampled
from warpfront_checks.check_options import DEVELOPMENT, CheckOptions, drawn_seeds
from warpfront_checks.claims import Claims
from warpfront_checks.models.families import NETWORKS
from warpfront_checks.opinfo.adapter import DatabaseMoved, load_database
from warpfront_checks.opinfo.sweep import Sweep
from warpfront_checks.precision import kind_of, require_full_precision, tested_dtypes
from warpfront_checks.results import CheckFinding, Checks, Find, Recorder, unavailable

from .. import KERNELS, topic_of
from ..kernel import KEYS
from .cases import seed_case_faults, seed_property_faults
from .collectives import record_device_faults
from .dispatched import checks_of, seed_kernels
from .mutations import MutationTally, finding_of_faults
from .networks import record_model_faults, seed_pass_faults
from .samples import seed_entry_faults

Seed = Callable[[int, MutationTally], None]


def record(claims: Claims, recorder: Recorder, effort: CheckOptions) -> None:
    """Record all groups. What imports torch's test package comes last: that freezes the
    settings of precision.
    """
    require_full_precision()
    record_selftest(claims, recorder, effort)
    record_model_faults(claims, recorder, effort)
    record_device_faults(claims, recorder, effort)
    record_kernel_faults(claims, recorder)
    record_opinfo_faults(claims, recorder, effort)


def record_opinfo_faults(claims: Claims, recorder: Recorder, effort: CheckOptions) -> None:
    """Record one check for each dtype and direction of the operator database."""
    recorder.run(_opinfo_checks(tested_dtypes(claims.device), claims.device, effort))


def record_selftest(claims: Claims, recorder: Recorder, effort: CheckOptions) -> None:
    """Record one check for each network and dtype, each topic of cases, and the properties."""
    device, checks = claims.device, dict[str, Find]()
    for dtype in tested_dtypes(device):
        for network in NETWORKS:
            seed_in = partial(seed_pass_faults, network, dtype, device)
            checks[f"{network.name} {dtype}"] = _seeded_check(seed_in, effort)
    for topic, operations in TOPICS.items():
        if kind_of(device) not in SEEN_ON.get(topic, ()):
            continue

        def seed_in_cases(_seed: int, ledger: MutationTally, chosen: object = operations) -> None:
            seed_case_faults(chosen, "float32", device, ledger)  # type: ignore[arg-type]

        checks[f"cases of {topic}"] = _seeded_check(seed_in_cases, CheckOptions())

    def seed_in_properties(seed: int, ledger: MutationTally) -> None:
        seed_property_faults(sampled(seed), device, ledger)

    checks["properties"] = _seeded_check(seed_in_properties, CheckOptions())
    recorder.run(checks)


def record_kernel_faults(claims: Claims, recorder: Recorder) -> None:
    """Record one check for each topic of wrong kernels."""
    if not hasattr(torch.library, "get_kernel"):
        recorder.note_unclaimed("wrong kernels", f"torch {torch.__version__} has no get_kernel")
        return
    if claims.device not in KEYS:
        recorder.note_unclaimed("wrong kernels", f"no kernels are seeded on {claims.device}")
        return
    faults = [fault for fault in KERNELS.values() if checks_of(fault, claims.device)]
    topics = dict.fromkeys(topic_of(fault) for fault in faults)
    groups = {topic: [each for each in faults if topic_of(each) == topic] for topic in topics}
    recorder.run(
        {
            f"wrong kernels, {topic}": partial(_kernel_finding, mine, claims.device)
            for topic, mine in groups.items()
        }
    )


def _kernel_finding(faults: Sequence[object], device: str) -> CheckFinding:
    ledger = MutationTally()
    seed_kernels(list(faults), device, ledger)  # type: ignore[arg-type]
    return finding_of_faults(ledger)


def _opinfo_checks(floating: Sequence[str], device: str, effort: CheckOptions) -> Checks:
    """Both directions in float32, and forward in bfloat16, whose rounding is the coarsest."""
    sweeps = [
        Sweep(dtype=dtype, backward=backward, device=device, effort=effort)
        for dtype, backward in (("float32", False), ("float32", True), ("bfloat16", False))
        if dtype in floating
    ]
    seeds = drawn_seeds(DEVELOPMENT, 1)
    return {f"opinfo {each.name}": partial(_opinfo_finding, each, seeds) for each in sweeps}


def _opinfo_finding(sweep: Sweep, seeds: tuple[int, ...]) -> CheckFinding:
    try:
        entries = load_database()
    except DatabaseMoved as error:
        return unavailable(str(error))
    ledger = MutationTally()
    for seed in seeds:
        seed_entry_faults(entries, sweep, seed, ledger)
    return finding_of_faults(ledger)


def _seeded_check(seed_in: Seed, effort: CheckOptions) -> Find:
    def find() -> CheckFinding:
        ledger = MutationTally()
        for seed in drawn_seeds(DEVELOPMENT, len(effort.seeds)):
            seed_in(seed, ledger)
        return finding_of_faults(ledger)

    return find
