"""The second part of the `operators` session: a check a class of hazards, each row in every dtype
that the device computes.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from warpfront_checks.cases.run import lacks_kernel
from warpfront_checks.cases.session import SEEN_ON
from warpfront_checks.check_options import CheckOptions
from warpfront_checks.edge_cases.answers import (
    USUAL,
    CaseContext,
    Hazard,
    HazardClass,
    answer_fault,
    kind_of,
)
from warpfront_checks.edge_cases.hazard_table import HAZARDS
from warpfront_checks.parallel_checks import begin_checks
from warpfront_checks.precision import (
    computes_float64,
    require_full_precision,
    tested_dtypes,
)
from warpfront_checks.results import SKIPPED, Check, CheckFinding, Recorder, failed, judged

SHOWN = 20
# The longest classes, each of which starts in a lane of its own.
LONG = ("kept state", "kinds of numbers")


@dataclass(kw_only=True)
class ClassTally:
    """The mutable counts of the rows of a class."""

    answers: int = 0
    largest: float = 0.0
    faults: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)

    def finding(self) -> CheckFinding:
        details: dict[str, object] = {
            "answers": self.answers,
            "budget_used": float(f"{self.largest:.4g}"),
            "no such kernel": self.lacking,
            "no memory": self.too_large,
            "known defects of torch": self.known,
        }
        if self.faults:
            details["faults"] = self.faults[:SHOWN]
        elif not self.answers and self.too_large:
            return CheckFinding(outcome=SKIPPED, reason=self.too_large[0], details=details)
        elif not self.answers:
            return failed("no row of it could be computed", **details)
        suffix = "".join(f"; torch gets {thread} wrong" for thread in self.known)
        return judged(self.faults, f"{self.answers} answers{suffix}", **details)


def begin_classes(
    device: str, effort: CheckOptions, recorder: Recorder, *, lanes: int
) -> list[Check]:
    """Begin a check for each class that applies to this device, in parallel lanes."""
    names = sorted(
        (hazard_class.name for hazard_class in claimed_classes(device, recorder)),
        key=lambda name: LONG.index(name) if name in LONG else len(LONG),
    )
    recorder.plan(names)
    jobs = {name: {"name": name, "device": device} for name in names}
    return begin_checks("edge_cases.hazard_checks:find_class", jobs, effort, lanes=lanes)


def class_checks(device: str, effort: CheckOptions, recorder: Recorder) -> list[Check]:
    """Return a check for each class that applies to this device."""
    return [
        Check(
            name=hazard_class.name,
            find=partial(find_class, hazard_class.name, device, effort),
        )
        for hazard_class in claimed_classes(device, recorder)
    ]


def claimed_classes(device: str, recorder: Recorder) -> list[HazardClass]:
    """Return the classes that can run on the device, and report the others to the recorder
    with a reason. Those that the case engine replaces there are neither.
    """
    classes = [hazard for hazard in HAZARDS if not is_replaced(hazard, device)]
    obstacles = {hazard.name: _obstacle(hazard, device) for hazard in classes}
    for name, reason in obstacles.items():
        if reason:
            recorder.note_unclaimed(name, reason)
    return [hazard for hazard in classes if not obstacles[hazard.name]]


def is_replaced(hazard_class: HazardClass, device: str) -> bool:
    """Return whether cases of the engine are claimed on a device in place of a class."""
    claimed = [kind_of(device) in SEEN_ON.get(topic, ()) for topic in hazard_class.topics]
    return bool(claimed) and all(claimed)


def find_class(name: str, device: str, effort: CheckOptions) -> CheckFinding:
    require_full_precision()
    dtypes = (*tested_dtypes(device), *(["float64"] if computes_float64(device) else []))
    if effort.quick:
        dtypes = tuple(name for name in dtypes if name in USUAL)
    hazard_class = class_named(name)
    return judge_rows(
        hazard_class, rows_for(hazard_class, device), device, dtypes, effort
    ).finding()


def rows_for(hazard_class: HazardClass, device: str) -> list[Hazard]:
    return [
        row for row in hazard_class.hazards if not row.devices or kind_of(device) in row.devices
    ]


def _obstacle(hazard_class: HazardClass, device: str) -> str:
    """Return the reason why no row of a class can run on the device, or an empty string."""
    rows = rows_for(hazard_class, device)
    if not hazard_class.judges(device):
        kinds = ", ".join(hazard_class.seen_on)
        return f"was seen to be right on {kinds} alone, never tried on {kind_of(device)}"
    if not rows:
        return f"says nothing about {device}"
    least, free = min(row.needed_bytes for row in rows), free_bytes(device)
    if least and least > free:
        return f"needs {least / 2**30:.0f} GiB of the device's memory, {free / 2**30:.0f} are free"
    return ""


def free_bytes(device: str) -> int:
    return int(torch.cuda.mem_get_info()[0]) if device == "cuda" else 0


def judge_rows(
    hazard_class: HazardClass,
    rows: Sequence[Hazard],
    device: str,
    dtypes: Sequence[str],
    effort: CheckOptions,
) -> ClassTally:
    """Judge rows of a class in their dtypes. A row that raises is a fault, and the
    others still run.
    """
    judged = ClassTally()
    for row in rows:
        if row.needed_bytes > free_bytes(device) and row.needed_bytes:
            judged.too_large.append(f"{row.name}: {row.needed_bytes / 2**30:.0f} GiB are not free")
            continue
        for dtype in hazard_class.tried(row, dtypes, quick=effort.quick):
            for seed in effort.seeds if row.each_seed else effort.seeds[:1]:
                ground = CaseContext(
                    device=device,
                    dtype=getattr(torch, dtype),
                    seed=seed,
                    generator=torch.Generator().manual_seed(seed),
                    quick=effort.quick,
                )
                _judge_row(row, ground, judged)
    return judged


def _judge_row(row: Hazard, ground: CaseContext, judged: ClassTally) -> None:
    where = f"{row.name}, {str(ground.dtype).removeprefix('torch.')}, seed {ground.seed}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for answer in row.answers(ground):
                fault, share = answer_fault(answer)
                judged.answers += 1
                thread = _known(row, answer.label, ground) if fault else ""
                if thread:
                    judged.known[thread] = judged.known.get(thread, 0) + 1
                    continue
                judged.largest = max(judged.largest, share if not fault else 0.0)
                judged.faults += [f"{where}: {fault}"] if fault else []
    except torch.OutOfMemoryError:
        judged.too_large.append(f"{where}: the device's memory was taken meanwhile")
    except Exception as error:  # noqa: BLE001 - a row that raises is a result; the rest go on
        first = next(iter(str(error).strip().splitlines()), "")[:300]
        if isinstance(error, (RuntimeError, NotImplementedError)) and lacks_kernel(error):
            judged.lacking.append(f"{where}: {first}")
        else:
            judged.faults.append(f"{where}: raised {type(error).__name__}: {first}")
    if row.needed_bytes:
        gc.collect()
        torch.cuda.empty_cache()


def _known(row: Hazard, label: str, ground: CaseContext) -> str:
    major, minor = torch.__version__.split(".")[:2]
    torch_version = (int(major), int(minor))
    return next((d.thread for d in row.known if d.covers(label, ground.device, torch_version)), "")


def class_named(name: str) -> HazardClass:
    return next(hazard for hazard in HAZARDS if hazard.name == name)
