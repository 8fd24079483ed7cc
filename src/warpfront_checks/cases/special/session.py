"""The session `operators`: cases of the catalogue, tables of rows, and properties."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from warpfront_checks.cases.session import FIND_CASES, check_name, claimed_operations
from warpfront_checks.cases.special.autocast import check_autocast
from warpfront_checks.cases.special.compiled import compiled_checks
from warpfront_checks.cases.special.properties import (
    PropertyReport,
    check_gradients,
    check_memory,
    check_repeats,
    sampled,
)
from warpfront_checks.cases.special.tables import FIND_TABLE, table_obstacles
from warpfront_checks.check_options import USUAL, CheckOptions
from warpfront_checks.children import begin_checks, lanes_for
from warpfront_checks.claims import Claims
from warpfront_checks.precision import computes_float64
from warpfront_checks.results import Checks, Recorder

# cuBLAS has deterministic algorithms only with one of two workspace sizes, set before its start.
WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def record_operators(claims: Claims, recorder: Recorder, effort: CheckOptions = USUAL) -> None:
    """Run all parts: cases and tables in parallel lanes where there are cores for them."""
    os.environ.setdefault(*WORKSPACE)
    device = claims.device
    special = {**property_checks(device, effort), **compiled_checks(device, effort)}
    cases = {check_name(name): name for name in claimed_operations(device, recorder)}
    obstacles = table_obstacles(device)
    special |= {name: reason for name, reason in obstacles.items() if reason}
    tables = {name: name for name, reason in obstacles.items() if not reason}
    planned = [name for name, find in special.items() if not isinstance(find, str)]
    recorder.plan([*planned, *tables, *cases])
    lanes = lanes_for(device)
    for find, names in ((FIND_TABLE, tables), (FIND_CASES, cases)):
        calls = {check: [{"name": name, "device": device}] for check, name in names.items()}
        special |= begin_checks(find, calls, effort, lanes=lanes)
    recorder.run(special)


def property_checks(device: str, effort: CheckOptions) -> Checks:
    """Return the checks of derivatives, repeats, memory and autocast. gradcheck needs float64."""
    chosen = sampled(effort.seeds[0])
    reports: dict[str, Callable[[], PropertyReport]] = {
        "repeats": partial(check_repeats, chosen, device),
        "memory": partial(check_memory, chosen, device),
        "autocast": partial(check_autocast, device),
    }
    if computes_float64(device):
        reports["derivatives"] = partial(check_gradients, chosen, device)
    return {name: lambda mine=report: mine().finding() for name, report in reports.items()}  # type: ignore[misc]
