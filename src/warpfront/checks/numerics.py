"""The `numerics` session: blocks forward and backward on the claimed device, judged against
float64.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from warpfront.checks.blocks import BLOCKS, Block, Inputs, Trace, execute, make_inputs
from warpfront.checks.claims import Claims
from warpfront.checks.detect import Facts, environment_of, read_facts
from warpfront.checks.effort import STRICT, Effort
from warpfront.checks.judge import Verdict, judge, make_baseline
from warpfront.checks.profiles import document, total
from warpfront.checks.results import Check, Finding, Recorder, failed, passed, unavailable

Execute = Callable[[Block, Inputs, str], Trace]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# What every target of a device type must compute; the rest is tested where a probe computes it.
REQUIRED = {
    "cuda": ("float32", "bfloat16", "float16"),
    "hpu": ("float32", "bfloat16"),
    "cpu": ("float32",),
}


def record_numerics(
    claims: Claims, recorder: Recorder, *, run: Execute = execute, effort: Effort | None = None
) -> None:
    """Judge every block in every dtype that the device must compute, or does.

    `run` is the device: tests put faulty ones in. A missing device makes every check `unavailable`;
    nothing is ever computed elsewhere instead.
    """
    effort = effort or Effort()
    required = REQUIRED[claims.device]
    recorder.plan(["device", "dtypes", *(f"{b.name} {d}" for d in required for b in BLOCKS)])
    require_full_precision()
    facts = read_facts(torch)
    recorder.environment.update(environment_of(torch), precision=precision_settings())
    lacking = missing_device(claims, facts)
    if lacking is not None:
        recorder.run([Check(name=name, find=lambda: lacking) for name in recorder.planned])
        return
    probes = {name: probe(dtype, claims.device) for name, dtype in DTYPES.items()}
    recorder.environment["dtypes"] = {
        name: problem or "computed" for name, problem in probes.items()
    }
    tested = [name for name, problem in probes.items() if not problem or name in required]
    checks = [
        Check(name="device", find=lambda: passed(_device_found(claims, facts), **facts.evidence())),
        Check(name="dtypes", find=lambda: _dtypes_finding(probes, required)),
    ]
    for name in tested:
        checks += [
            _block_check(block, name, _Run(device=claims.device, run=run, effort=effort))
            for block in BLOCKS
        ]
    recorder.run(checks)


def missing_device(claims: Claims, facts: Facts) -> Finding | None:
    """`unavailable` with the evidence if the claimed device is not here, else None."""
    if claims.device == "cpu":
        return None
    if not facts.devices:
        reason = f"no {claims.target} device: torch is a {facts.build} build and sees none"
        return unavailable(
            reason + (f" ({facts.obstacle})" if facts.obstacle else ""), **facts.evidence()
        )
    first = facts.devices[0]
    if first.arch != claims.target.rstrip("af") and first.arch != claims.target:
        arch = first.arch or "of unknown arch"
        reason = f"the device here is {arch} ({first.name}), not {claims.target}"
        return unavailable(reason, **facts.evidence())
    return None


def require_full_precision() -> None:
    """No TF32, no reductions in low precision: verification judges the dtype it names.

    `torch.backends.cudnn` convolutions use TF32 by default, and the reduced reductions default to
    on.
    """
    backends: Any = torch.backends
    if hasattr(backends.cuda.matmul, "fp32_precision"):
        for backend in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):
            backend.fp32_precision = "ieee"
        for name in ("matmul", "conv", "rnn"):
            part: Any = getattr(backends.mkldnn, name, None)
            if hasattr(part, "fp32_precision"):
                part.fp32_precision = "ieee"
    else:
        backends.cuda.matmul.allow_tf32 = False
        backends.cudnn.allow_tf32 = False
    backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def precision_settings() -> dict[str, object]:
    """The settings in force, for the results file."""
    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    names = (
        "fp32_precision",
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    )
    settings = {
        f"matmul.{name}": str(getattr(matmul, name)) for name in names if hasattr(matmul, name)
    }
    if hasattr(cudnn, "conv"):
        settings["cudnn.conv.fp32_precision"] = str(cudnn.conv.fp32_precision)
    else:
        settings["cudnn.allow_tf32"] = str(cudnn.allow_tf32)
    return dict(settings)


def probe(dtype: torch.dtype, device: str) -> str:
    """Empty if the device computes a small product in this dtype, forward and backward, else what
    it said.

    Small integers are exact in every dtype, so the answer must be exact.
    """
    if device == "hpu":
        importlib.import_module("habana_frameworks.torch.core")
    try:
        left = torch.arange(1.0, 5.0).reshape(2, 2).to(dtype).to(device).requires_grad_()
        product = left @ left
        product.sum().backward()
        found = (product.tolist(), left.grad.tolist())
    except (RuntimeError, NotImplementedError, TypeError) as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    expected = ([[7.0, 10.0], [15.0, 22.0]], [[7.0, 11.0], [9.0, 13.0]])
    return "" if found == expected else f"wrong product: {found}"


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
    def find() -> Finding:
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


def _block_finding(block: Block, dtype: str, how: _Run, verdicts: Sequence[Verdict]) -> Finding:
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


def _dtypes_finding(probes: dict[str, str], required: Sequence[str]) -> Finding:
    said = ", ".join(f"{name} {problem or 'computed'}" for name, problem in probes.items())
    broken = [name for name in required if probes[name]]
    if broken:
        return failed(f"{broken[0]} is required here: {probes[broken[0]]}", probes=said)
    return passed(said)


def _device_found(claims: Claims, facts: Facts) -> str:
    return f"{facts.devices[0].name} ({facts.devices[0].arch})" if facts.devices else claims.device
