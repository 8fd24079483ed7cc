"""Wrong kernels under the dispatcher, each judged by the check that `seen.json` names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from warpfront_checks.cases.axes import assignments_of, build
from warpfront_checks.cases.case import Case
from warpfront_checks.cases.catalogue import CATALOGUE
from warpfront_checks.cases.known_defects import preventing_thread
from warpfront_checks.cases.operation import Operation
from warpfront_checks.cases.run import LackingError, NoOracleError, run_case
from warpfront_checks.cases.special.tables import TABLES, free_bytes, judge_rows
from warpfront_checks.check_options import CheckOptions
from warpfront_checks.opinfo.adapter import load_database
from warpfront_checks.opinfo.sweep import sweep_entries, sweeps_of

from ..kernel import WrongKernel, operators_of, seeded
from .mutations import MutationTally, Seeded

SEEN = Path(__file__).with_name("seen.json")
DTYPES = ("float32", "bfloat16", "float16", "float64")


@cache
def seen() -> Mapping[str, list[list[str]]]:
    """Return the checks that see each kernel: `cases`, an operation and the seed if not 0; `rows`,
    table and row; or `opinfo`, entry and sweep. Kernels that are not here are seen by
    nothing.
    """
    document: Mapping[str, list[list[str]]] = json.loads(SEEN.read_text(encoding="utf-8"))
    return document


def checks_of(fault: WrongKernel, device: str) -> list[list[str]]:
    """Return the checks that are tried here and see a kernel of a device."""
    if device not in fault.devices or not operators_of(fault, device):
        return []
    tried = (check for check in seen().get(fault.name, []) if check[0] in _TRIED)
    return [check for check in tried if len(check) > 1]


def seeing(fault: WrongKernel, device: str, check: list[str]) -> Iterator[str]:
    """Yield the faults that a check finds because of the kernel."""
    yield from _TRIED[check[0]](fault, device, *check[1:])


def cases_of(
    operation: Operation, dtypes: tuple[str, ...], device: str, seed: int
) -> Iterator[Case]:
    """Yield the cases of an operation for one seed."""
    for assignment in assignments_of(operation, operation.dtypes_on(device, dtypes), seed):
        yield build(operation, assignment, device)


def operation_faults(fault: WrongKernel, device: str, name: str, seed: str = "0") -> Iterator[str]:
    """Yield the faults of the first case of an operation that has any because of the kernel."""
    for case in cases_of(CATALOGUE[name], DTYPES, device, int(seed)):
        if preventing_thread(CATALOGUE[name].defects, device, case.axes):
            continue
        with seeded(fault, device):
            faults = list(case_faults(case))
        if faults and not list(case_faults(case)):
            yield from faults
            return


def case_faults(case: Case) -> Iterator[str]:
    """Yield the faults of a case; a call that raises is one."""
    try:
        yield from (each.fault for each in run_case(case) if each.fault)
    except (LackingError, NoOracleError):
        return
    except Exception as error:  # noqa: BLE001 - a case that raises is wrong
        yield f"{type(error).__name__}: {error}"


def row_faults(fault: WrongKernel, device: str, name: str, row_name: str) -> Iterator[str]:
    """Yield the faults of a row of a table that it lacks without the kernel."""
    rows = [row for row in TABLES[name] if row.name in row_name.split("; ")]
    if any(row.needed_bytes > free_bytes(device) for row in rows):
        return
    dtypes = list(dict.fromkeys(name for row in rows for name in row.dtypes))
    effort = CheckOptions(seeds=(0,))
    with seeded(fault, device):
        faults = judge_rows(rows, device, dtypes, effort).faults
    if faults and not judge_rows(rows, device, dtypes, effort).faults:
        yield from faults


def sample_faults(fault: WrongKernel, device: str, entry: str, how: str) -> Iterator[str]:
    """Yield the faults of a sweep of an entry of the operator database, because of the kernel."""
    entries = [each for each in load_database() if each.name == entry]
    sweep = next(each for each in sweeps_of(device, CheckOptions()) if each.name == how)
    with seeded(fault, device):
        faults = sweep_entries(entries, sweep).faults
    if faults and not sweep_entries(entries, sweep).faults:
        yield from faults


_TRIED: Mapping[str, Callable[..., Iterator[str]]] = {
    "cases": operation_faults,
    "rows": row_faults,
    "opinfo": sample_faults,
}


def seed_kernels(faults: list[WrongKernel], device: str, ledger: MutationTally) -> None:
    """Seed each kernel in turn; the first of its checks has to see it."""
    for fault in faults:
        entry: dict[str, Any] = {"suite": "kernels", "check": fault.name, "dtype": "float32"}
        seed = Seeded(mutation="wrong kernel", device=device, **entry)
        check = checks_of(fault, device)[0]
        ledger.enter(seed, caught=next(seeing(fault, device, check), "") != "")
