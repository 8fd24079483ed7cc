"""The session `operators`: cases of the catalogue, tables of rows, properties, and patterns that
compilers fuse by torch.compile: one graph, without a fall-back to eager.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from warpfront_checks.cases.bounds import Tally
from warpfront_checks.cases.case import Case
from warpfront_checks.cases.catalogue.patterns import COMPILED
from warpfront_checks.cases.run import execute, names_of
from warpfront_checks.cases.session import FIND_CASES, check_name, claimed_operations, verdicts_of
from warpfront_checks.cases.special.properties import (
    check_autocast,
    check_gradients,
    check_memory,
    check_repeats,
    plain_case,
    sampled,
)
from warpfront_checks.cases.special.tables import FIND_TABLE, table_obstacles
from warpfront_checks.check_options import USUAL, CheckOptions
from warpfront_checks.children import begin_checks, lanes_for
from warpfront_checks.claims import Claims
from warpfront_checks.models.modes import BACKENDS, missing_compiler, try_widest_alone
from warpfront_checks.precision import computes_float64
from warpfront_checks.results import CheckFinding, Checks, Recorder
from warpfront_checks.torch_devices import build_of

# cuBLAS has deterministic algorithms only with one of two workspace sizes, set before its start.
WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# Cases end last of all sessions where every kernel was compiled before: more lanes than others.
CASE_LANES = 2
# reduce-overhead captures graphs, and on ROCm it is refused outright (seed of the porting rules).
GRAPH_MODE, PLAIN_MODE = "reduce-overhead", "default"
NO_GRAPHS = {"triton.cudagraphs": False, "triton.cudagraph_trees": False, "memory_planning": False}


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
    for find, names, times in ((FIND_TABLE, tables, 1), (FIND_CASES, cases, CASE_LANES)):
        calls = {check: {"name": name, "device": device} for check, name in names.items()}
        special |= begin_checks(find, calls, effort, lanes=lanes_for(device, times=times))
    recorder.run(special)


def property_checks(device: str, effort: CheckOptions) -> Checks:
    """Return the checks of derivatives, repeats, memory and autocast. gradcheck needs float64."""
    chosen = sampled(effort.seeds[0])
    reports: dict[str, Callable[[], Tally]] = {
        "repeats": partial(check_repeats, chosen, device),
        "memory": partial(check_memory, chosen, device),
        "autocast": partial(check_autocast, device),
    }
    if computes_float64(device):
        reports["derivatives"] = partial(check_gradients, chosen, device)
    return {name: partial(_finding_of, report) for name, report in reports.items()}


def _finding_of(report: Callable[[], Tally]) -> CheckFinding:
    return report().finding("operations")


def compiled_checks(device: str, effort: CheckOptions) -> Checks:
    """Return a check for each pattern and mode, unclaimed where the image cannot compile."""
    build = build_of(torch)
    reason = "a quick run does not compile" if effort.quick else missing_compiler(device)
    if not reason and device in BACKENDS:
        reason = f"modes and patterns are Inductor's, and {device} has {BACKENDS[device]}"
    modes = (PLAIN_MODE, *[GRAPH_MODE] * (build == "cuda"))  # no other captures graphs
    return {
        f"{each.name}, compiled ({mode})": reason or partial(_find, each.name, device, mode, build)
        for each in COMPILED
        for mode in modes
    }


def _find(name: str, device: str, mode: str, build: str) -> CheckFinding:
    """Judge the plain case alone, in float32, and on accelerators in bfloat16 too."""
    operation = next(operation for operation in COMPILED if operation.name == name)
    both = ("float32", "bfloat16")
    dtypes = both[:1] if device == "cpu" else operation.dtypes_on(device, both)
    tally = Tally()
    for dtype in dtypes:
        case = plain_case(operation, dtype, device)
        torch.compiler.reset()
        for each in verdicts_of(case, tally, function=compiled_function(case, mode, build)):
            tally.cases += 1
            tally.enter(each, f"{dtype}: {each.name}: {each.fault}; of {case.code}")
    return tally.finding("results")


def compiled_function(case: Case, mode: str, build: str) -> Callable[..., Any]:
    """Return the call of a case as a compiled function of its arguments."""
    try_widest_alone()
    names = names_of()
    arguments = ", ".join(argument.name for argument in case.arguments)
    execute([f"def function({arguments}):", f"    return {case.code}"], names)
    options: dict[str, Any] = {"options": NO_GRAPHS} if build == "rocm" else {"mode": mode}
    compiled: Callable[..., Any] = torch.compile(
        names["function"], fullgraph=True, dynamic=False, **options
    )
    return compiled
