"""The `opinfo` session: PyTorch's operator database on the claimed device, a check per
dtype and direction.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from warpfront.inside.checks.claims import Claims
from warpfront.inside.checks.effort import STRICT, Effort
from warpfront.inside.checks.executing import Computed, tensors_in
from warpfront.inside.checks.finding_beside import begin_checks, lanes_for
from warpfront.inside.checks.judge import CaseVerdict
from warpfront.inside.checks.opinfo.adapter import DatabaseMoved, Entry, Sample, load_database
from warpfront.inside.checks.opinfo.entry_verdicts import (
    Execute,
    Saturated,
    convert_sample,
    cotangents_for,
    disturbed,
    execute_entry,
    judge_results,
    widen,
    wrong_dtypes,
)
from warpfront.inside.checks.opinions import Tally, document, total
from warpfront.inside.checks.precision import (
    computes_float64,
    precision_settings,
    require_full_precision,
    tested_dtypes,
)
from warpfront.inside.checks.results import (
    Check,
    CheckFinding,
    Recorder,
    failed,
    judged,
    passed,
    unavailable,
)

EXCLUSIONS = Path(__file__).with_name("exclusions.json")
SAMPLES, QUICK_SAMPLES = 6, 1
# One draw may by chance leave a result of few numbers where it was.
DRAWS = 3
SHOWN = 200
WIDER = "it asks for float64, which this device does not compute"
UNREAD = "torch's operator database could not be read: see `database`"
# What torch raises where an entry has no such kernel, or a sample does not fit.
REFUSALS = (RuntimeError, NotImplementedError, TypeError, ValueError, AssertionError, IndexError)


@dataclass(frozen=True, kw_only=True)
class Exclusion:
    """An entry that is not judged: in which direction and dtypes (none named: all), and why."""

    name: str
    reason: str
    what: str
    dtypes: tuple[str, ...] = ()

    def covers(self, name: str, dtype: str, *, backward: bool) -> bool:
        direction = self.what == "all" or backward
        return self.name == name and direction and (not self.dtypes or dtype in self.dtypes)


@cache
def exclusions() -> tuple[Exclusion, ...]:
    """The declared exclusions, with their reasons in words."""
    text = json.loads(EXCLUSIONS.read_text(encoding="utf-8"))
    return tuple(
        Exclusion(
            name=row["name"],
            reason=text["reasons"][row["reason"]],
            what=row["what"],
            dtypes=tuple(row.get("dtypes", ())),
        )
        for row in text["exclusions"]
    )


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One pass over the database: a dtype, a direction, a device, how many samples each."""

    dtype: str
    backward: bool
    device: str
    effort: Effort
    run: Execute = execute_entry

    @property
    def name(self) -> str:
        return f"{self.dtype} backward" if self.backward else self.dtype

    @property
    def seeds(self) -> tuple[int, ...]:
        """The samples are always the same; what is fed into the backward is not."""
        return self.effort.seeds if self.backward else self.effort.seeds[:1]


@dataclass(kw_only=True)
class Swept:
    """What a sweep came to. `refused` are samples that the CPU's float64 does not take either."""

    entries: int = 0
    samples: int = 0
    refused: int = 0
    excluded: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    tallies: list[Mapping[str, Tally]] = field(default_factory=list)

    def add(self, label: str, verdict: CaseVerdict) -> None:
        self.samples += 1
        self.ratios.append(verdict.rms_ratio)
        self.tallies.append(verdict.tallies)
        self.faults += [f"{label}: {fault}" for fault in verdict.faults[:1]]

    def document(self) -> dict[str, object]:
        return {
            "entries": self.entries,
            "samples": self.samples,
            "refused by the reference": self.refused,
            "excluded": dict(self.excluded),
            "rms_ratio": _quantiles(self.ratios),
            "profiles": document(total(self.tallies)),
        }


def record_opinfo(
    claims: Claims,
    recorder: Recorder,
    effort: Effort | None = None,
    *,
    run: Execute = execute_entry,
) -> None:
    """Sweep the database. `run` is the device: tests put faulty ones in."""
    effort = effort or Effort()
    recorder.plan(["database"])
    require_full_precision()
    recorder.environment["precision"] = precision_settings()
    sweeps = list(_sweeps(claims, effort, run))
    recorder.plan([sweep.name for sweep in sweeps])
    entries: list[Entry] = []
    recorder.run([Check(name="database", find=partial(_load, entries))])
    absent = unavailable(UNREAD)
    recorder.run(
        [
            Check(
                name=sweep.name,
                find=partial(_sweep_finding, entries, sweep) if entries else lambda: absent,
            )
            for sweep in sweeps
        ]
    )


def record_beside(claims: Claims, recorder: Recorder, effort: Effort | None = None) -> None:
    """The session `opinfo`: sweep beside sweep, where there are several and cores for them."""
    effort = effort or Effort()
    sweeps, lanes = _sweeps(claims, effort, execute_entry), lanes_for(claims.device)
    if not lanes or len(sweeps) == 1:
        record_opinfo(claims, recorder, effort)
        return
    asked = {
        sweep.name: {"dtype": sweep.dtype, "backward": sweep.backward, "device": sweep.device}
        for sweep in sweeps
    }
    recorder.plan(["database", *asked])
    begun = begin_checks("opinfo.sweep:find_sweep", asked, effort, lanes=lanes)
    require_full_precision()
    recorder.environment["precision"] = precision_settings()
    recorder.run([Check(name="database", find=partial(_load, [])), *begun])


def find_sweep(*, dtype: str, backward: bool, device: str, effort: Effort) -> CheckFinding:
    require_full_precision()
    sweep = Sweep(dtype=dtype, backward=backward, device=device, effort=effort)
    try:
        return _sweep_finding(list(load_database()), sweep)
    except DatabaseMoved:
        return unavailable(UNREAD)


def _sweeps(claims: Claims, effort: Effort, run: Execute) -> list[Sweep]:
    """Float32 first; 16 bits where the device computes them; quickly: float32 forward."""
    dtypes = tested_dtypes(claims.device)
    return [
        Sweep(dtype=dtype, backward=backward, device=claims.device, effort=effort, run=run)
        for dtype in (dtypes[:1] if effort.quick else dtypes)
        for backward in ((False,) if effort.quick else (False, True))
    ]


def _load(entries: list[Entry]) -> CheckFinding:
    """A torch that has moved its database is not a wrong device, and not a right one either."""
    try:
        entries += load_database()
    except DatabaseMoved as error:
        return unavailable(str(error))
    names = {entry.name for entry in entries}
    gone = sorted({e.name for e in exclusions()} - names)
    return passed(f"{len(entries)} entries", excluded_but_absent=gone)


def _sweep_finding(entries: list[Entry], sweep: Sweep) -> CheckFinding:
    swept = sweep_entries(entries, sweep)
    details = swept.document()
    if not swept.samples:
        return failed("no entry of the database could be judged", **details)
    if swept.faults:
        details["faults"] = swept.faults[:SHOWN]
    return judged(swept.faults, f"{swept.entries} entries, {swept.samples} samples", **details)


def sweep_entries(entries: list[Entry], sweep: Sweep) -> Swept:
    """Judge the samples of every entry that has the dtype on the device and is not excluded."""
    swept = Swept()
    dtype = getattr(torch, sweep.dtype)
    for entry in entries:
        known = entry.backward_dtypes if sweep.backward else entry.dtypes
        if dtype not in known(sweep.device):
            continue
        reason = excluded(entry.name, sweep)
        if reason:
            swept.excluded[reason] += 1
            continue
        swept.entries += 1
        for seed in sweep.seeds:
            _sweep_samples(entry, dtype, seed, sweep, swept)
    return swept


def excluded(name: str, sweep: Sweep) -> str:
    """Why an entry is not judged in this sweep, or nothing."""
    return next(
        (
            exclusion.reason
            for exclusion in exclusions()
            if exclusion.covers(name, sweep.dtype, backward=sweep.backward)
        ),
        "",
    )


def _sweep_samples(entry: Entry, dtype: torch.dtype, seed: int, sweep: Sweep, swept: Swept) -> None:
    limit = QUICK_SAMPLES if sweep.effort.quick else SAMPLES
    samples = entry.samples("cpu", dtype, limit=limit, backward=sweep.backward)
    for i, sample in enumerate(samples):
        expected = expect_sample(entry, sample, dtype, seed, backward=sweep.backward)
        if expected is None:
            swept.refused += 1
            continue
        label = f"{entry.name}, sample {i}, seed {seed}"
        asked = asked_as(entry, sample, i)
        if not computes_float64(sweep.device) and makes_float64(entry, asked, expected.cotangents):
            swept.excluded[WIDER] += 1
            continue
        try:
            found = sweep.run(entry, asked, expected.cotangents, sweep.device)
        except REFUSALS as error:
            swept.samples += 1
            swept.faults.append(f"{label}: {type(error).__name__}: {_first_line(error)}")
            continue
        swept.add(label, expected.judge(found, sweep.device, sweep.effort.profile))


class _Widths(TorchDispatchMode):
    """Whether anything that is computed is wider than what was sent."""

    wide = False

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = operator(*args, **(kwargs or {}))
        doubles = (torch.float64, torch.complex128)
        self.wide = self.wide or any(x.dtype in doubles for x in tensors_in(given))
        return given


def makes_float64(entry: Entry, sample: Sample, cotangents: list[torch.Tensor] | None) -> bool:
    """By what the CPU does with the sample as it is."""
    with _Widths() as widths:
        _attempt(entry, sample, cotangents)
    return widths.wide


def asked_as(entry: Entry, sample: Sample, number: int) -> Sample:
    """Every second sample is sent as views with gaps, and what is fed back as well."""
    return replace(sample, strided=number % 2 == 1 and entry.takes_strides)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The float64 results of one sample on the CPU, and how they were had."""

    exact: Computed
    same_dtype: Callable[[], Computed | None]
    sensitivity: Callable[[], tuple[Computed, ...]]
    saturated: Callable[[], Computed | None]
    cotangents: list[torch.Tensor] | None
    dtype: torch.dtype

    def judge(self, found: Computed, device: str, profile: str = STRICT) -> CaseVerdict:
        """The CPU's own answer in the dtype is a baseline for other devices only; what dtype a
        result should have it says for every device.
        """
        unusual = any(
            x is not None and (x.is_floating_point() or x.is_complex()) and x.dtype != self.dtype
            for x in found.all
        )
        peer = self.same_dtype() if unusual or device != "cpu" else None
        faults = wrong_dtypes(found, self.exact, peer, self.dtype)
        if faults:
            return CaseVerdict(faults=faults)
        baseline = None if device == "cpu" else peer
        return judge_results(
            found,
            self.exact,
            baseline,
            self.sensitivity,
            saturated=self.saturated,
            device=device,
            unit_dtype=self.dtype,
            profile=profile,
        )


def expect_sample(
    entry: Entry, sample: Sample, dtype: torch.dtype, seed: int, *, backward: bool
) -> Expected | None:
    """None if the reference itself, float64 on the CPU, refuses the sample."""
    wide = convert_sample(sample, widen)
    try:
        cotangents = None
        if backward:
            outputs = execute_entry(entry, sample, None, "cpu").outputs
            cotangents = cotangents_for(outputs, dtype, seed)
        raised = None if cotangents is None else [widen(c) for c in cotangents]
        exact = execute_entry(entry, wide, raised, "cpu")
    except REFUSALS:
        return None

    def same_dtype() -> Computed | None:
        return _attempt(entry, sample, cotangents)

    def sensitivity() -> tuple[Computed, ...]:
        # Forward kernels for 16 bits compute in float32; a backward is composed of several, with
        # the results between them rounded.
        inside = dtype if backward else torch.float32
        draws = range(seed, seed + DRAWS)
        tried = (_attempt(entry, *disturbed(wide, raised, inside, draw)) for draw in draws)
        return tuple(results for results in tried if results is not None)

    def saturated() -> Computed | None:
        with Saturated(float(torch.finfo(dtype).max)):
            return _attempt(entry, wide, raised)

    return Expected(
        saturated=saturated,
        exact=exact,
        same_dtype=same_dtype,
        sensitivity=sensitivity,
        cotangents=cotangents,
        dtype=dtype,
    )


def _attempt(
    entry: Entry, sample: Sample, cotangents: list[torch.Tensor] | None
) -> Computed | None:
    try:
        return execute_entry(entry, sample, cotangents, "cpu")
    except REFUSALS:
        return None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")[:300]


def _quantiles(ratios: list[float]) -> dict[str, float]:
    """How far off the results were, in units of what is allowed for once."""
    ordered = sorted(ratios)
    if not ordered:
        return {}
    return {
        f"p{share}": float(f"{ordered[min(len(ordered) - 1, len(ordered) * share // 100)]:.4g}")
        for share in (50, 90, 95, 99, 100)
    }
