"""Patterns that compilers fuse, by torch.compile: one graph, without a fall-back to eager."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from warpfront_checks.cases.case import Case
from warpfront_checks.cases.catalogue.patterns import COMPILED
from warpfront_checks.cases.run import execute, names_of, run_case
from warpfront_checks.cases.special.properties import plain_case
from warpfront_checks.check_options import CheckOptions
from warpfront_checks.models.modes import BACKENDS, missing_compiler
from warpfront_checks.results import CheckFinding, Checks, judged
from warpfront_checks.torch_devices import build_of

# reduce-overhead captures graphs, and on ROCm it is refused outright (seed of the porting rules).
GRAPH_MODE, PLAIN_MODE = "reduce-overhead", "default"
NO_GRAPHS = {"triton.cudagraphs": False, "triton.cudagraph_trees": False, "memory_planning": False}


def compiled_checks(device: str, effort: CheckOptions) -> Checks:
    """Return a check for each pattern and mode, unclaimed where the image cannot compile."""
    build = build_of(torch)
    reason = "a quick run does not compile" if effort.quick else missing_compiler(device)
    if not reason and device in BACKENDS:
        reason = f"modes and patterns are Inductor's, and {device} has {BACKENDS[device]}"
    return {
        f"{each.name}, compiled ({mode})": reason or partial(_find, each.name, device, mode, build)
        for each in COMPILED
        for mode in compile_modes(build)
    }


def compile_modes(build: str) -> tuple[str, ...]:
    """Return the modes of torch.compile that are judged: graphs are captured on NVIDIA only."""
    return (PLAIN_MODE, GRAPH_MODE) if build == "cuda" else (PLAIN_MODE,)


def _find(name: str, device: str, mode: str, build: str) -> CheckFinding:
    """Judge the plain case alone, in float32, and on accelerators in bfloat16 too."""
    operation = next(operation for operation in COMPILED if operation.name == name)
    both = ("float32", "bfloat16")
    dtypes = both[:1] if device == "cpu" else operation.dtypes_on(device, both)
    faults = []
    for dtype in dtypes:
        case = plain_case(operation, dtype, device)
        torch.compiler.reset()
        function = compiled_function(case, mode, build)
        faults += [
            f"{dtype}: {each.name}: {each.fault}; of {case.code}"
            for each in run_case(case, function=function)
            if each.fault
        ]
    return judged(
        faults, f"compiled in {', '.join(dtypes)}", **({"faults": faults} if faults else {})
    )


def compiled_function(case: Case, mode: str, build: str) -> Callable[..., Any]:
    """Return the call of a case as a compiled function of its arguments."""
    names = names_of()
    arguments = ", ".join(argument.name for argument in case.arguments)
    execute([f"def function({arguments}):", f"    return {case.code}"], names)
    options: dict[str, Any] = {"options": NO_GRAPHS} if build == "rocm" else {"mode": mode}
    compiled: Callable[..., Any] = torch.compile(
        names["function"], fullgraph=True, dynamic=False, **options
    )
    return compiled
