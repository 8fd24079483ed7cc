"""The second part of the `operators` session: a check a class of hazards, each row in every dtype
that the device computes.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from warpfront.inside.checks.claims import Claims
from warpfront.inside.checks.effort import Effort
from warpfront.inside.checks.hazards.answers import Ground, Hazard, HazardClass, answer_fault
from warpfront.inside.checks.hazards.hazard_table import HAZARDS
from warpfront.inside.checks.operators.verdicts import lacks_kernel
from warpfront.inside.checks.precision import (
    computes_float64,
    require_full_precision,
    tested_dtypes,
)
from warpfront.inside.checks.results import Check, CheckFinding, Recorder, failed, judged

SHOWN = 20
QUICK_DTYPES = ("float32", "bfloat16")


@dataclass(kw_only=True)
class ClassTally:
    """What the rows of a class came to; grows."""

    answers: int = 0
    largest: float = 0.0
    faults: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)

    def finding(self) -> CheckFinding:
        details: dict[str, object] = {
            "answers": self.answers,
            "budget_used": float(f"{self.largest:.4g}"),
            "no such kernel": self.lacking,
            "known defects of torch": self.known,
        }
        if self.faults:
            details["faults"] = self.faults[:SHOWN]
        elif not self.answers:
            return failed("no row of it could be computed", **details)
        said = "".join(f"; torch gets {thread} wrong" for thread in self.known)
        return judged(self.faults, f"{self.answers} answers{said}", **details)


def record_hazards(claims: Claims, recorder: Recorder, effort: Effort | None = None) -> None:
    """A check for each class that says anything about this device."""
    effort = effort or Effort()
    require_full_precision()
    dtypes = (
        *tested_dtypes(claims.device),
        *(["float64"] if computes_float64(claims.device) else []),
    )
    checks = []
    if effort.quick:
        dtypes = tuple(name for name in dtypes if name in QUICK_DTYPES)
    for one in HAZARDS:
        here = [row for row in one.hazards if not row.devices or claims.device in row.devices]
        reason = _obstacle(one, here, claims.device)
        if reason:
            recorder.note_unclaimed(one.name, reason)
            continue
        find = partial(_finding, one, here, claims.device, dtypes, effort)
        checks.append(Check(name=one.name, find=find))
    recorder.run(checks)


def _obstacle(one: HazardClass, here: Sequence[Hazard], device: str) -> str:
    """Why no row of a class can be tried here, or nothing."""
    if not one.judges(device):
        return f"was seen to be right on {', '.join(one.seen_on)} alone, never tried on {device}"
    if not here:
        return f"says nothing about {device}"
    least, free = min(row.needed_bytes for row in here), free_bytes(device)
    if least and least > free:
        return f"needs {least / 2**30:.0f} GiB of the device's memory, {free / 2**30:.0f} are free"
    return ""


def free_bytes(device: str) -> int:
    return int(torch.cuda.mem_get_info()[0]) if device == "cuda" else 0


def _finding(
    own: HazardClass, here: Sequence[Hazard], device: str, dtypes: Sequence[str], effort: Effort
) -> CheckFinding:
    return judge_rows(own, here, device, dtypes, effort).finding()


def judge_rows(
    own: HazardClass, here: Sequence[Hazard], device: str, dtypes: Sequence[str], effort: Effort
) -> ClassTally:
    """Rows of a class in their dtypes. One that raises is wrong, and the others go on."""
    judged = ClassTally()
    for row in here:
        if row.needed_bytes > free_bytes(device) and row.needed_bytes:
            judged.lacking.append(f"{row.name}: {row.needed_bytes / 2**30:.0f} GiB are not free")
            continue
        for dtype in own.tried(row, dtypes, quick=effort.quick):
            for seed in effort.seeds[:1] if row.once else effort.seeds:
                ground = Ground(
                    device=device,
                    dtype=getattr(torch, dtype),
                    seed=seed,
                    generator=torch.Generator().manual_seed(seed),
                    quick=effort.quick,
                )
                _judge_row(row, ground, judged)
    return judged


def _judge_row(row: Hazard, ground: Ground, judged: ClassTally) -> None:
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
        judged.lacking.append(f"{where}: the device's memory was taken meanwhile")
    except Exception as error:  # noqa: BLE001 - a row that raises is a result; the rest go on
        first = next(iter(str(error).strip().splitlines()), "")[:300]
        if isinstance(error, (RuntimeError, NotImplementedError)) and lacks_kernel(error):
            judged.lacking.append(f"{where}: {first}")
        else:
            judged.faults.append(f"{where}: raised {type(error).__name__}: {first}")
    if row.needed_bytes:
        gc.collect()
        torch.cuda.empty_cache()


def _known(row: Hazard, label: str, ground: Ground) -> str:
    major, minor = torch.__version__.split(".")[:2]
    here = (int(major), int(minor))
    return next((d.thread for d in row.known if d.covers(label, ground.device, here)), "")


def class_named(name: str) -> HazardClass:
    return next(one for one in HAZARDS if one.name == name)


def hazards_named(name: str) -> Iterator[Hazard]:
    yield from class_named(name).hazards
