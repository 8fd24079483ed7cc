"""Wrong kernels under the dispatcher, each judged by the check that `seen.json` names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from warpfront_checks.cases.axes import cases_of
from warpfront_checks.cases.case import Case
from warpfront_checks.cases.catalogue import CATALOGUE
from warpfront_checks.cases.run import LackingError, NoOracleError, run_case
from warpfront_checks.check_options import CheckOptions
from warpfront_checks.edge_cases.hazard_checks import class_named, free_bytes, judge_rows

from ..kernel import WrongKernel, operators_of, seeded
from .mutations import MutationTally, Seeded

SEEN = Path(__file__).with_name("seen.json")
DTYPES = ("float32", "bfloat16", "float16", "float64")


@cache
def seen() -> Mapping[str, list[str]]:
    """Return what sees each kernel: `cases`, an operation, and seed and number of its case; or
    `edge cases`, class and row; or the name of another session. Kernels that are not here are
    seen by nothing.
    """
    document: Mapping[str, list[str]] = json.loads(SEEN.read_text(encoding="utf-8"))
    return document


def seeing(fault: WrongKernel, device: str) -> Iterator[str]:
    """Yield the faults that the named check finds in the first of its tries that finds any."""
    kind, *place = seen()[fault.name]
    if kind == "cases":
        seed, number = (int(part) for part in place[1].split(":"))
        case = _case(place[0], device, seed, number)
        with seeded(fault, device):
            yield from case_faults(case)
    elif kind == "edge cases":
        yield from row_faults(fault, device, *place)


def _case(operation: str, device: str, seed: int, number: int) -> Case:
    cases = cases_of(CATALOGUE[operation], DTYPES, device, seed)
    return next(case for place, case in enumerate(cases) if place == number)


def case_faults(case: Case) -> Iterator[str]:
    """Yield the faults of a case; a call that raises is one."""
    try:
        yield from (each.verdict.fault for each in run_case(case) if each.verdict.fault)
    except (LackingError, NoOracleError):
        return
    except Exception as error:  # noqa: BLE001 - a case that raises is wrong
        yield f"{type(error).__name__}: {error}"


def row_faults(fault: WrongKernel, device: str, name: str, row_name: str) -> Iterator[str]:
    """Yield the faults of a row of edge cases, by one of its turns, that it lacks without it."""
    hazard_class = class_named(name)
    rows = [row for row in hazard_class.hazards if row.name in row_name.split("; ")]
    if not hazard_class.judges(device) or any(r.needed_bytes > free_bytes(device) for r in rows):
        return
    dtypes = list(dict.fromkeys(name for row in rows for name in row.dtypes))
    for seed in range(max(row.turns for row in rows)):
        effort = CheckOptions(seeds=(seed,))
        with seeded(fault, device):
            faults = judge_rows(hazard_class, rows, device, dtypes, effort).faults
        if faults and not judge_rows(hazard_class, rows, device, dtypes, effort).faults:
            yield from faults
            return


def concerns(fault: WrongKernel, device: str) -> bool:
    """Return whether a check that is tried here names the fault, and the device has its kernel."""
    kind = seen().get(fault.name, [""])[0]
    tried = kind in {"cases", "edge cases"} and device in fault.devices
    return tried and bool(operators_of(fault, device))


def seed_kernels(faults: list[WrongKernel], device: str, ledger: MutationTally) -> None:
    """Seed each kernel in turn."""
    for fault in faults:
        entry: dict[str, Any] = {"suite": "kernels", "check": fault.name, "dtype": "float32"}
        seed = Seeded(mutation="wrong kernel", device=device, **entry)
        ledger.enter(seed, caught=next(seeing(fault, device), "") != "")
