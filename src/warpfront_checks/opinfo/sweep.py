"""The `opinfo` session: PyTorch's operator database on the claimed device, a check per
dtype and direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch

from warpfront_checks.cases.bounds import Tally, Verdict
from warpfront_checks.cases.case import Case
from warpfront_checks.cases.measured import Measured
from warpfront_checks.cases.report import described
from warpfront_checks.cases.run import NoOracleError, Reference, reference_of
from warpfront_checks.cases.session import verdicts_of
from warpfront_checks.check_options import USUAL, CheckOptions
from warpfront_checks.children import begin_checks, lanes_for
from warpfront_checks.claims import Claims
from warpfront_checks.documents import packaged
from warpfront_checks.executing import Watched, tensors_in
from warpfront_checks.opinfo.adapter import DatabaseMoved, Entry, Sample, load_database
from warpfront_checks.opinfo.provider import cases_of_sample
from warpfront_checks.precision import computes_float64, kind_of, tested_dtypes
from warpfront_checks.results import (
    ERROR,
    PASSED,
    CheckFinding,
    Recorder,
    passed,
    unavailable,
)

# The database is swept in so many parts where there are lanes for them. Where nothing was compiled
# before they end last of all sessions: more lanes than others.
PARTS, LANES = 48, 1.5
FIND = "opinfo.sweep:find_part"
# Of the first so many; each option of so many more, on devices whose correct kernels pass them.
AMONG, OPTIONS_AMONG = 24, 160
MORE_SAMPLES, FEW_SAMPLES, EXACT_SAMPLES, QUICK_SAMPLES = 8, 6, 3, 1
# Swept on devices whose correct kernels pass them.
EXACTLY = ("uint8", "bool", "int64", "int32", "int8", "complex64")
SEEN_ON = ("cpu", "cuda")
WIDER = "it asks for float64, which this device does not compute"
# Of these the argument afterwards is not judged on CUDA.
OVERWRITING = ("linalg.eig", "linalg.eigvals")
OVERWRITTEN = "cuSOLVER's general eigenvalues write over their matrix (torch 2.11 on an H200)"
TWICE = "a row that is looked up twice is at times scaled twice to max_norm there (pytorch#85377)"
UNREAD = "torch's operator database could not be read: see `database`"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A pass over the database: dtype, direction, device, and number of samples per entry."""

    dtype: str
    device: str
    effort: CheckOptions
    backward: bool = False

    @property
    def name(self) -> str:
        return f"{self.dtype}{' backward' * self.backward}"

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds: the samples are always the same, but the output's gradients are not."""
        return self.effort.seeds if self.backward else self.effort.seeds[:1]


def record_opinfo(claims: Claims, recorder: Recorder, effort: CheckOptions = USUAL) -> None:
    """Sweep the database: in parallel parts, where there are several sweeps and cores for them."""
    device = claims.device
    if kind_of(device) not in SEEN_ON:
        reason = f"was not seen to refuse nothing that is right on {kind_of(device)}"
        recorder.note_unclaimed("opinfo of whole numbers and complex ones", reason)
    sweeps = sweeps_of(device, effort)
    recorder.plan(["database", *(sweep.name for sweep in sweeps)])
    names = [sweep.name for sweep in sweeps]
    lanes = 0 if effort.quick else lanes_for(device, times=LANES)
    count = PARTS if lanes else 1
    parts = [{"device": device, "part": part, "count": count} for part in range(count)]
    # All sweeps of an entry are one process's: each of its kernels is compiled and loaded once.
    calls = {f"part {part['part']}": {"names": names, **part} for part in parts}
    shared = begin_checks(FIND, calls, effort, lanes=lanes) if lanes else dict.fromkeys(calls)

    def find(name: str) -> CheckFinding:
        tally = Tally()
        for part, begun in zip(parts, shared.values(), strict=True):
            finding = begun() if begun else None
            if finding is None or finding.outcome == ERROR:
                # The sweep that ended a part's process says nothing of the others.
                call = {name: {"names": [name], **part}}
                finding = begin_checks(FIND, call, effort, lanes=min(lanes, 1))[name]()
            if finding.outcome != PASSED:
                return finding
            counts: Any = finding.details[name]
            tally.add_part(counts)
        report = {"report": tally.report} if tally.report else {}
        return tally.finding("samples", entries=tally.entries, profiles=tally.profiles, **report)

    recorder.run({"database": _database, **{name: partial(find, name) for name in names}})


def find_part(
    *, names: Sequence[str], device: str, part: int, count: int, effort: CheckOptions
) -> CheckFinding:
    """Make the sweeps of these names over a part of the database: every so many entries."""
    try:
        entries = load_database()[part::count]
    except DatabaseMoved:
        return unavailable(UNREAD)
    sweeps = [sweep for sweep in sweeps_of(device, effort) if sweep.name in names]
    return passed("", **{sweep.name: sweep_entries(entries, sweep).as_json() for sweep in sweeps})


def sweeps_of(device: str, effort: CheckOptions) -> list[Sweep]:
    """Return the sweeps: float32 first, computed 16 bits; in a quick run float32 forward."""
    directions = [(dtype, back) for dtype in tested_dtypes(device) for back in (False, True)]
    if kind_of(device) in SEEN_ON:
        directions += [*((dtype, False) for dtype in EXACTLY), ("complex64", True)]
    return [
        Sweep(dtype=dtype, device=device, effort=effort, backward=back)
        for dtype, back in (directions[:1] if effort.quick else directions)
    ]


def _database() -> CheckFinding:
    """Return whether the database can be read: a torch that has moved it is no wrong device."""
    try:
        entries = load_database()
    except DatabaseMoved as error:
        return unavailable(str(error))
    names = {entry.name for entry in entries}
    gone = sorted({e.name for e in exclusions()} - names)
    return passed(f"{len(entries)} entries", excluded_but_absent=gone)


def sweep_entries(entries: Sequence[Entry], sweep: Sweep) -> Tally:
    """Judge the samples of every entry that has the dtype on the device and is not excluded."""
    tally = Tally()
    dtype = getattr(torch, sweep.dtype)
    for entry in entries:
        dtypes = entry.backward_dtypes if sweep.backward else entry.dtypes
        if dtype not in dtypes(sweep.device):
            continue
        reason = excluded(entry.name, sweep.dtype, sweep.device, backward=sweep.backward)
        if reason:
            tally.excluded[reason] += 1
            continue
        tally.entries += 1
        for seed in sweep.seeds:
            _sweep_samples(entry, dtype, seed, sweep, tally)
    return tally


def _sweep_samples(entry: Entry, dtype: torch.dtype, seed: int, sweep: Sweep, tally: Tally) -> None:
    flags = {"backward": sweep.backward, "options": True}
    barred = bool(excluded(entry.name, sweep.dtype, sweep.device, **flags))
    whole = not (dtype.is_floating_point or dtype.is_complex)
    for sample in samples_for(entry, dtype, sweep, barred=barred):
        if sweep.device != "cpu" and sample.raw.kwargs.get("max_norm"):
            tally.excluded[TWICE] += 1
            continue
        values = (*sample.raw.args, *sample.raw.kwargs.values())
        if whole and any(isinstance(x, float) for x in values):
            tally.refused += 1
            continue
        options: dict[str, Any] = {"dtype": sweep.dtype, "device": sweep.device, "seed": seed}
        for cases in cases_of_sample(entry, sample, **options):
            _sweep_cases(cases, f"{entry.name}, sample {sample.number}, seed {seed}", sweep, tally)


def _sweep_cases(cases: Sequence[Case], label: str, sweep: Sweep, tally: Tally) -> None:
    """Judge cases that have one reference."""
    try:
        reference = reference_of(cases[0], nullcontext())
    except NoOracleError:
        tally.refused += 1
        return
    if not computes_float64(sweep.device) and makes_float64(cases[0], reference):
        tally.excluded[WIDER] += 1
        return
    for case in cases:
        counts = Tally()
        verdicts = verdicts_of(case, counts, reference=reference, bounds=Measured)
        if sweep.device == "cuda" and case.operation in OVERWRITING:
            verdicts = [each for each in verdicts if not each.name.startswith("argument")]
            tally.excluded[OVERWRITTEN] += 1
        # The database states that the device has the call.
        verdicts += [Verdict.failed("raised", lacking) for lacking in counts.lacking]
        _enter(case, verdicts, label, sweep, tally)


def _enter(case: Case, verdicts: Sequence[Verdict], label: str, sweep: Sweep, tally: Tally) -> None:
    """Count the verdicts on one case; the first that is a fault is its fault."""
    tally.cases += 1
    for verdict in verdicts:
        tally.enter_profiles(verdict)
        tally.largest = max(tally.largest, verdict.share * (not verdict.fault))
    profile = sweep.effort.profile
    if worst := next((verdict for verdict in verdicts if verdict.fault_by(profile)), None):
        tally.faults.append(f"{label}: {worst.fault_by(profile)}")
        tally.report = tally.report or list(described(case, worst))


def samples_for(
    entry: Entry, dtype: torch.dtype, sweep: Sweep, *, barred: bool = False
) -> Iterator[Sample]:
    """Yield torch's samples, those with options last unless `barred`."""
    affected = kind_of(sweep.device) in SEEN_ON
    few = MORE_SAMPLES if affected and sweep.name == "float32" else FEW_SAMPLES
    many = few if dtype.is_floating_point else EXACT_SAMPLES
    limit = QUICK_SAMPLES if sweep.effort.quick else many
    among = AMONG if limit > 1 else 1
    options = 0
    if affected and limit > 1 and not barred and (dtype == torch.float32 or not sweep.backward):
        options = OPTIONS_AMONG
    yield from entry.samples(
        "cpu", dtype, limit=limit, backward=sweep.backward, among=among, options_among=options
    )


def makes_float64(case: Case, reference: Reference) -> bool:
    """Return whether the CPU computes the call itself in float64."""
    dtypes: set[torch.dtype] = set()
    with Watched(lambda _, result: dtypes.update(x.dtype for x in tensors_in(result))):
        _ = Measured(case, reference).peers
    return not dtypes.isdisjoint({torch.float64, torch.complex128})


@dataclass(frozen=True, kw_only=True)
class Exclusion:
    """An entry that is not judged, with the reason. `what` names the part: all, backward, the
    samples that exist for their options alone, or the backward of those. `dtypes` are its dtypes
    (none: all). It may apply only to devices other than the CPU.
    """

    name: str
    reason: str
    what: str
    dtypes: Sequence[str] = ()
    elsewhere: bool = False

    def covers(
        self, name: str, dtype: str, device: str, *, backward: bool, options: bool = False
    ) -> bool:
        if self.name != name or (self.elsewhere and device == "cpu"):
            return False
        among = {"all": True, "backward": backward, "options": options}
        covered = all(among[word] for word in self.what.split())
        return covered and (not self.dtypes or dtype in self.dtypes)


@cache
def exclusions() -> tuple[Exclusion, ...]:
    """Return the declared exclusions, with their reasons in words."""
    table = packaged("opinfo/exclusions.json")
    reasons = table["reasons"]
    return tuple(
        Exclusion(**{**row, "reason": reasons[row["reason"]]}) for row in table["exclusions"]
    )


@cache
def excluded(name: str, dtype: str, device: str, *, backward: bool, options: bool = False) -> str:
    """Return the reason for an exclusion in this dtype and direction on a device, or an empty
    string. It applies to an entry, or to its samples with options.
    """
    part = {"backward": backward, "options": options}
    covering = (each for each in exclusions() if each.covers(name, dtype, device, **part))
    return next((each.reason for each in covering), "")
