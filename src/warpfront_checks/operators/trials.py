"""The `operators` session: every operation of the table, forward and backward, in every dtype that
the device computes; fused patterns, eager and compiled; derivatives, repeats and memory.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import torch

from warpfront_checks.check_options import CheckOptions
from warpfront_checks.claims import Claims
from warpfront_checks.judge import CaseVerdict
from warpfront_checks.models.wrapped import BACKENDS, missing_compiler
from warpfront_checks.operators.cases import Case, Execute, execute_case, make_maker
from warpfront_checks.operators.fused import (
    COMPILED,
    PATTERNS,
    compile_modes,
    execute_compiled,
    pattern_cases,
)
from warpfront_checks.operators.properties import (
    PropertyReport,
    check_gradients,
    check_memory,
    check_repeats,
)
from warpfront_checks.operators.table import Operator, operators
from warpfront_checks.operators.verdicts import expect, judge_case, lacks_kernel
from warpfront_checks.precision import (
    DTYPES,
    REQUIRED,
    computes_float64,
    precision_settings,
    require_full_precision,
    tested_dtypes,
)
from warpfront_checks.results import Check, CheckFinding, Recorder, failed, judged
from warpfront_checks.tolerance_profiles import Tally, document, total
from warpfront_checks.torch_devices import build_of

PROPERTIES = ("derivatives", "repeats", "memory")
QUICK_DTYPES = ("float32", "bfloat16", "int64")
# cuBLAS has deterministic algorithms only with one of two workspace sizes, set before its start.
WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
SHOWN = 20

Cases = Callable[[str, int], Iterable[Case]]


@dataclass(kw_only=True)
class Counts:
    """The mutable counts of a session, for the results file."""

    cases: Counter[str] = field(default_factory=Counter)
    tallies: list[dict[str, Tally]] = field(default_factory=list)

    def document(self) -> dict[str, object]:
        required = [operator for operator in operators() if operator.number]
        return {
            "operators": len(operators()),
            f"of the {max(o.number for o in required)}": len(required),
            "patterns": len(PATTERNS),
            "cases": sum(self.cases.values()),
            "cases per dtype": dict(self.cases),
            "profiles": document(total(self.tallies)),
        }


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """The circumstances of one session: the device, its required dtypes, and the effort."""

    device: str
    dtypes: tuple[str, ...]
    required: tuple[str, ...]
    effort: CheckOptions
    run: Execute
    counts: Counts = field(default_factory=Counts)


def record_operators(
    claims: Claims,
    recorder: Recorder,
    effort: CheckOptions | None = None,
    *,
    run: Execute = execute_case,
) -> None:
    """Judge every operation. `run` is the device: tests put faulty ones in."""
    names = [operator.name for operator in operators()]
    # gradcheck needs float64.
    properties = PROPERTIES if computes_float64(claims.device) else PROPERTIES[1:]
    recorder.plan([*names, *PATTERNS, *properties])
    circumstances = record_values(claims, recorder, effort, run=run)
    record_properties(claims, recorder, effort, run=run)
    _record_compiled(recorder, circumstances, build_of(torch))
    recorder.environment["counts"] = circumstances.counts.document()


def record_values(
    claims: Claims,
    recorder: Recorder,
    effort: CheckOptions | None = None,
    *,
    run: Execute = execute_case,
) -> Circumstances:
    """Run operations and patterns alone, any number of times: the part that depends on seeds."""
    os.environ.setdefault(*WORKSPACE)
    require_full_precision()
    recorder.environment["precision"] = precision_settings()
    circumstances = _circumstances(claims, effort or CheckOptions(), run)
    recorder.run([_operator_check(operator, circumstances) for operator in operators()])
    recorder.run([_pattern_check(name, circumstances) for name in PATTERNS])
    return circumstances


def record_properties(
    claims: Claims,
    recorder: Recorder,
    effort: CheckOptions | None = None,
    *,
    run: Execute = execute_case,
) -> None:
    """Check derivatives, repeats and memory."""
    os.environ.setdefault(*WORKSPACE)
    recorder.run(list(_property_checks(_circumstances(claims, effort or CheckOptions(), run))))


def _circumstances(claims: Claims, effort: CheckOptions, run: Execute) -> Circumstances:
    """Return the circumstances. Half precision is probed before it is tested; integers and
    float64 are required of every device.
    """
    double = ["float64"] if computes_float64(claims.device) else []
    dtypes = (*tested_dtypes(claims.device), *double, "int64", "int32", "bool")
    if effort.quick:
        dtypes = tuple(name for name in dtypes if name in QUICK_DTYPES)
    required = REQUIRED[claims.device]
    return Circumstances(
        device=claims.device, dtypes=dtypes, required=required, effort=effort, run=run
    )


@dataclass(kw_only=True)
class Tried:
    """The results of the cases of one check in one dtype."""

    cases: int = 0
    budget_used: float = 0.0
    rms_ratio: float = 0.0
    lacking: str = ""
    faults: list[str] = field(default_factory=list)
    tallies: list[dict[str, Tally]] = field(default_factory=list)

    def add(self, label: str, verdict: CaseVerdict) -> None:
        self.cases += 1
        self.budget_used = max(self.budget_used, verdict.budget_used)
        self.rms_ratio = max(self.rms_ratio, verdict.rms_ratio)
        self.faults += [f"{label}: {fault}" for fault in verdict.faults]
        self.tallies.append(dict(verdict.tallies))

    def document(self) -> dict[str, object]:
        fields: dict[str, object] = {
            "cases": self.cases,
            "budget_used": float(f"{self.budget_used:.4g}"),
            "rms_ratio": float(f"{self.rms_ratio:.4g}"),
        }
        return {**fields, "not implemented": self.lacking} if self.lacking else fields


def try_cases(cases: Cases, dtype: str, circumstances: Circumstances) -> Tried:
    """Run and judge cases of one dtype. A kernel that torch does not have is a fault only where
    the device must compute the dtype, or where the CPU has it.
    """
    outcome = Tried()
    for seed in circumstances.effort.seeds:
        for case in cases(dtype, seed):
            label = f"{dtype}, {case.name}, seed {seed}"
            try:
                verdict = _judged(case, dtype, seed, circumstances)
            except (RuntimeError, NotImplementedError) as error:
                if not lacks_kernel(error) or dtype in circumstances.required:
                    raise
                outcome.lacking = str(error).splitlines()[0]
                continue
            outcome.add(label, verdict)
    circumstances.counts.cases[dtype] += outcome.cases
    circumstances.counts.tallies += outcome.tallies
    return outcome


def _judged(case: Case, dtype: str, seed: int, circumstances: Circumstances) -> CaseVerdict:
    expected = expect(case, getattr(torch, dtype), circumstances.device, seed)
    outcome = circumstances.run(case, expected.cotangent, circumstances.device)
    return judge_case(case, outcome, expected, circumstances.device, circumstances.effort.profile)


def _operator_check(operator: Operator, circumstances: Circumstances) -> Check:
    cases = partial(operator.make_cases, quick=circumstances.effort.quick)
    dtypes = [name for name in circumstances.dtypes if name in operator.dtypes]
    return Check(name=operator.name, find=lambda: _cases_finding(cases, dtypes, circumstances))


def _pattern_check(name: str, circumstances: Circumstances) -> Check:
    def cases(dtype: str, seed: int) -> Iterator[Case]:
        maker = make_maker(getattr(torch, dtype), seed, quick=circumstances.effort.quick)
        return pattern_cases(name, maker)

    dtypes = [name for name in circumstances.dtypes if name in DTYPES]
    return Check(name=name, find=lambda: _cases_finding(cases, dtypes, circumstances))


def _cases_finding(
    cases: Cases, dtypes: Iterable[str], circumstances: Circumstances
) -> CheckFinding:
    outcomes = {dtype: try_cases(cases, dtype, circumstances) for dtype in dtypes}
    faults = [fault for outcome in outcomes.values() for fault in outcome.faults]
    tallies = total(tally for outcome in outcomes.values() for tally in outcome.tallies)
    details: dict[str, object] = {
        "dtypes": {dtype: outcome.document() for dtype, outcome in outcomes.items()},
        "profiles": document(tallies),
    }
    if not any(outcome.cases for outcome in outcomes.values()):
        return failed("no case of it could be computed", **details)
    return judged(faults, **({"faults": faults[:SHOWN]} if faults else {}), **details)


def _property_checks(circumstances: Circumstances) -> Iterator[Check]:
    chosen = operators()
    if computes_float64(circumstances.device):
        find = partial(check_gradients, chosen, circumstances.device)
        yield _property_check("derivatives", find)
    steady = [operator for operator in chosen if operator.name != "dropout"]
    yield _property_check(
        "repeats", partial(check_repeats, steady, circumstances.device, run=circumstances.run)
    )
    yield _property_check(
        "memory", partial(check_memory, chosen, circumstances.device, run=circumstances.run)
    )


def _property_check(name: str, report: Callable[[], PropertyReport]) -> Check:
    def find() -> CheckFinding:
        actual = report()
        details: dict[str, object] = {
            "tried": actual.tried,
            "no deterministic algorithm": list(actual.exempt),
            "spread": actual.spread,
            "grown_bytes": actual.grown_bytes,
        }
        faults: dict[str, object] = {"faults": list(actual.faults)} if actual.faults else {}
        return judged(actual.faults, f"{actual.tried} operations", **faults, **details)

    return Check(name=name, find=find)


def _record_compiled(recorder: Recorder, circumstances: Circumstances, build: str) -> None:
    """Run the patterns through torch.compile, where an image has its requirements."""
    names = {
        f"{name}, compiled ({mode})": (name, mode)
        for name in COMPILED
        for mode in compile_modes(build)
    }
    reason = (
        "a quick run does not compile"
        if circumstances.effort.quick
        else missing_compiler(circumstances.device)
    )
    if not reason and circumstances.device in BACKENDS:
        reason = (
            f"modes and patterns are Inductor's, and {circumstances.device} "
            f"has {BACKENDS[circumstances.device]}"
        )
    if reason:
        for name in names:
            recorder.note_unclaimed(name, reason)
        return
    recorder.run(
        [
            _compiled_check(label, name, mode, circumstances, build)
            for label, (name, mode) in names.items()
        ]
    )


def _compiled_check(
    label: str, name: str, mode: str, circumstances: Circumstances, build: str
) -> Check:
    """Return a check of the first case only, in float32, and on accelerators in bfloat16 too:
    compiling is slow.
    """

    def cases(dtype: str, seed: int) -> Iterator[Case]:
        return pattern_cases(name, make_maker(getattr(torch, dtype), seed, quick=True))

    compiled = Circumstances(
        device=circumstances.device,
        dtypes=circumstances.dtypes,
        required=circumstances.required,
        effort=CheckOptions(
            profile=circumstances.effort.profile, seeds=circumstances.effort.seeds[:1]
        ),
        run=partial(execute_compiled, mode=mode, build=build),
        counts=circumstances.counts,
    )
    dtypes = ("float32",) if circumstances.device == "cpu" else ("float32", "bfloat16")
    return Check(name=label, find=lambda: _cases_finding(cases, dtypes, compiled))
