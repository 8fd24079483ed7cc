"""The `numerics` session: blocks forward and backward on the claimed device,
judged against float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from warpfront.inside.checks.blocks import BLOCKS, Block, Inputs, Trace, execute, make_inputs
from warpfront.inside.checks.claims import Claims
from warpfront.inside.checks.effort import STRICT, Effort
from warpfront.inside.checks.judge import Verdict, judge, make_baseline
from warpfront.inside.checks.opinions import document, total
from warpfront.inside.checks.precision import (
    DTYPES,
    REQUIRED,
    precision_settings,
    probe,
    require_full_precision,
)
from warpfront.inside.checks.results import Check, CheckFinding, Recorder, failed, passed

Execute = Callable[[Block, Inputs, str], Trace]


def record_numerics(
    claims: Claims, recorder: Recorder, effort: Effort | None = None, *, run: Execute = execute
) -> None:
    """Judge every block in every dtype that the device must compute, or does.

    `run` is the device: tests put faulty ones in.
    """
    effort = effort or Effort()
    required = REQUIRED[claims.device]
    recorder.plan(["dtypes", *(f"{b.name} {d}" for d in required for b in BLOCKS)])
    require_full_precision()
    recorder.environment["precision"] = precision_settings()
    probes = {name: probe(dtype, claims.device) for name, dtype in DTYPES.items()}
    recorder.environment["dtypes"] = {
        name: problem or "computed" for name, problem in probes.items()
    }
    tested = [name for name, problem in probes.items() if not problem or name in required]
    checks = [Check(name="dtypes", find=lambda: _dtypes_finding(probes, required))]
    for name in tested:
        checks += [
            _block_check(block, name, _Run(device=claims.device, run=run, effort=effort))
            for block in BLOCKS
        ]
    recorder.run(checks)


@dataclass(frozen=True, kw_only=True)
class _Run:
    device: str
    run: Execute
    effort: Effort


def judge_block(
    block: Block,
    dtype: torch.dtype,
    device: str,
    *,
    run: Execute = execute,
    seed: int = 0,
    profile: str = STRICT,
) -> Verdict:
    """Run one block once on a device and judge everything it computed."""
    inputs = make_inputs(block, dtype, seed)
    trace = run(block, inputs, device)
    return judge(block, inputs, trace, make_baseline(block, inputs), device, profile=profile)


def _block_check(block: Block, dtype: str, how: _Run) -> Check:
    def find() -> CheckFinding:
        verdicts = [
            judge_block(
                block,
                DTYPES[dtype],
                how.device,
                run=how.run,
                seed=seed,
                profile=how.effort.profile,
            )
            for seed in how.effort.seeds
        ]
        return _block_finding(block, dtype, how, verdicts)

    return Check(name=f"{block.name} {dtype}", find=find)


def _block_finding(
    block: Block, dtype: str, how: _Run, verdicts: Sequence[Verdict]
) -> CheckFinding:
    faults = [
        f"seed {seed}: {fault}"
        for seed, verdict in zip(how.effort.seeds, verdicts, strict=True)
        for fault in verdict.faults
    ]
    details: dict[str, object] = {
        "device": how.device,
        "dtype": dtype,
        "seeds": list(how.effort.seeds),
        "budget_used": _largest([verdict.budget_used for verdict in verdicts]),
        "rms_ratio": _largest([verdict.rms_ratio for verdict in verdicts]),
        "profiles": document(total(verdict.tallies for verdict in verdicts)),
        "faults": faults,
    }
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        return failed(f"{block.name} in {dtype} on {how.device}: {faults[0]}{more}", **details)
    return passed(**details)


def _largest(tables: Sequence[Any]) -> dict[str, float]:
    """Per tensor the largest number of all seeds, rounded for reading."""
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: float(f"{max(table.get(name, 0.0) for table in tables):.4g}") for name in names}


def _dtypes_finding(probes: dict[str, str], required: Sequence[str]) -> CheckFinding:
    said = ", ".join(f"{name} {problem or 'computed'}" for name, problem in probes.items())
    broken = [name for name in required if probes[name]]
    if broken:
        return failed(f"{broken[0]} is required here: {probes[broken[0]]}", probes=said)
    return passed(said)
