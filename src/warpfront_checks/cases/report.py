"""A failed case made small, and described in the lines that a vendor's issue needs."""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from warpfront_checks.cases.axes import Assignment, Drawing, axes_of, build, in_domain
from warpfront_checks.cases.bounds import Verdict
from warpfront_checks.cases.case import Case
from warpfront_checks.cases.operation import Operation
from warpfront_checks.cases.run import execute, names_of
from warpfront_checks.executing import Watched
from warpfront_checks.precision import precision_settings

Fails = Callable[[Case], object]
SHOWN_OVERLOADS = 6


def shrunk(operation: Operation, assignment: Assignment, device: str, fails: Fails) -> Assignment:
    """Return an assignment that still fails, with most axes at their first value, sizes least."""
    dtypes = (assignment["dtype"],)
    axes = axes_of(operation, dtypes)
    for axis, values in axes.items():
        if axis in {"dtype", "rank"} or axis not in assignment or assignment[axis] == values[0]:
            continue
        drawing = Drawing(operation, dtypes, random.Random(0))
        smaller = drawing.constrained({**assignment, axis: values[0]})
        smaller |= {"seed": assignment["seed"], "wide": assignment["wide"]}
        if not axis.startswith("size "):
            smaller["lengths"] = assignment["lengths"]
        if in_domain(operation, smaller) and fails(build(operation, smaller, device)):
            assignment = smaller
    for name in assignment["lengths"]:
        while (size := assignment["lengths"][name]) > operation.least_of(name):
            lengths = {**assignment["lengths"], name: max(operation.least_of(name), size // 2)}
            smaller = {**assignment, "lengths": lengths}
            if not (in_domain(operation, smaller) and fails(build(operation, smaller, device))):
                break
            assignment = smaller
    return assignment


def least_sizes(case: Case, fails: Fails) -> Case:
    """Return a case of any provider that still fails, of which sizes and gradients are fewest."""
    plain = replace(case, arguments=tuple(replace(a, leaf=False) for a in case.arguments))
    case = plain if fails(plain) else case
    for size in sorted({n for a in case.arguments for n in a.shape}, reverse=True):
        rest = size
        while rest > 1 and fails(smaller := _resized(case, rest, rest // 2)):
            case, rest = smaller, rest // 2
    return case


def _resized(case: Case, size: int, smaller: int) -> Case:
    shapes = [tuple(smaller if n == size else n for n in a.shape) for a in case.arguments]
    pairs = zip(case.arguments, shapes, strict=True)
    return replace(case, arguments=tuple(replace(a, shape=x, drawn=x) for a, x in pairs))


def described(case: Case, verdict: Verdict) -> Iterator[str]:
    """Yield the lines of a failure: versions, the call, its arguments, and the worst element."""
    yield f"{case.operation}: {verdict.name} is wrong on {case.device}"
    yield from environment_lines(case.device)
    yield f"call: {'; '.join(case.call())}"
    for argument in case.arguments:
        lies = (
            f"strides {argument.strides}, offset {argument.offset}"
            if argument.strides
            else "contiguous"
        )
        kind = case.dtype if argument.floating else "integer or bool"
        expanded = f", expanded from {argument.drawn}" if argument.drawn != argument.shape else ""
        gradient = ", requires grad" if argument.leaf else ""
        yield f"  {argument.name}: shape {argument.shape}, {kind}, {lies}{expanded}{gradient}"
    yield f"wrong: {verdict.fault}"
    if not case.setup:
        # Of the other providers' calls the bound is measured: the fault has it.
        yield f"allowed: {case.ulps:g} units in the last place and {case.roundings:g} roundings"
    names = list(overloads(case))
    more = f" and {len(names) - SHOWN_OVERLOADS} more" if len(names) > SHOWN_OVERLOADS else ""
    yield f"overloads: {', '.join(names[:SHOWN_OVERLOADS])}{more}"


def environment_lines(device: str) -> Iterator[str]:
    """Yield versions, the device, and settings of threads and of precision."""
    yield f"torch {torch.__version__}, Python {platform.python_version()}, {_device(device)}"
    settings = ", ".join(f"{name} {value}" for name, value in precision_settings().items())
    yield f"{torch.get_num_threads()} threads; {settings}"


def overloads(case: Case) -> Iterator[str]:
    """Yield the aten overloads that a case's judged call runs."""
    names, ran = names_of(case), dict[str, None]()
    try:
        execute(case.inputs() + case.oracle() + case.sent(), names)
        with Watched(lambda operator, _: ran.setdefault(str(operator))):
            execute(case.call(), names)
    except Exception as error:  # noqa: BLE001 - what ran before it raised is of use
        ran[f"(then {type(error).__name__})"] = None
    yield from ran


def _device(device: str) -> str:
    if device != "cuda" or not torch.cuda.is_available():
        return f"{device} {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    properties = torch.cuda.get_device_properties(0)
    build = torch.version.hip or torch.version.cuda
    return f"{properties.name}, {'HIP' if torch.version.hip else 'CUDA'} {build}"
