"""A failed case made small, and described in the lines that a vendor's issue needs."""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from warpfront_checks.cases.axes import Assignment, axes_of, build, constrained
from warpfront_checks.cases.case import Case
from warpfront_checks.cases.operation import Operation
from warpfront_checks.cases.run import Judged, execute, names_of
from warpfront_checks.precision import precision_settings

Fails = Callable[[Case], bool]
SHOWN_OVERLOADS = 6


def shrunk(operation: Operation, one: Assignment, device: str, fails: Fails) -> Assignment:
    """Return the assignment with as many axes at their first value as still fail, and the least
    sizes. `fails` runs a case.
    """
    dtypes = (one["dtype"],)
    axes = axes_of(operation, dtypes)
    for axis, values in axes.items():
        if axis in {"dtype", "rank"} or axis not in one or one[axis] == values[0]:
            continue
        smaller = constrained(operation, {**one, axis: values[0]}, random.Random(0))
        smaller |= {"seed": one["seed"], "wide": one["wide"]}
        if not axis.startswith("size "):
            smaller["lengths"] = one["lengths"]
        if fails(build(operation, smaller, device)):
            one = smaller
    for name in one["lengths"]:
        while (size := one["lengths"][name]) > max(1, operation.least_size):
            lengths = {**one["lengths"], name: max(operation.least_size, size // 2, 1)}
            smaller = {**one, "lengths": lengths}
            if not fails(build(operation, smaller, device)):
                break
            one = smaller
    return one


class _Overloads(TorchDispatchMode):  # type: ignore[misc]
    """The overloads of aten that run, each once."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, None] = {}

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.names[str(operator)] = None
        return operator(*args, **(kwargs or {}))


def described(case: Case, judged: Judged) -> Iterator[str]:
    """Yield the lines of a failure: versions, the call, its arguments, and the worst element."""
    verdict = judged.verdict
    yield f"{case.operation}: {judged.name} is wrong on {case.device}"
    yield f"torch {torch.__version__}, Python {platform.python_version()}, {_device(case.device)}"
    settings = ", ".join(f"{name} {value}" for name, value in precision_settings().items())
    yield f"{torch.get_num_threads()} threads; {settings}"
    yield f"call: {'; '.join(case.call())}"
    for one in case.arguments:
        lies = f"strides {one.strides}, offset {one.offset}" if one.strides else "contiguous"
        kind = case.dtype if one.floating else "integer or bool"
        expanded = f", expanded from {one.drawn}" if one.drawn != one.shape else ""
        gradient = ", requires grad" if one.leaf else ""
        yield f"  {one.name}: shape {one.shape}, {kind}, {lies}{expanded}{gradient}"
    yield f"wrong: {verdict.fault}"
    yield f"allowed: {case.ulps:g} units in the last place and {case.roundings:g} roundings"
    names = list(overloads(case))
    more = f" and {len(names) - SHOWN_OVERLOADS} more" if len(names) > SHOWN_OVERLOADS else ""
    yield f"overloads: {', '.join(names[:SHOWN_OVERLOADS])}{more}"


def overloads(case: Case) -> Iterator[str]:
    """Yield the aten overloads that a case's judged call runs."""
    names, mode = names_of(), _Overloads()
    try:
        execute(case.inputs() + case.oracle() + case.sent(), names)
        with mode:
            execute(case.call(), names)
    except Exception as error:  # noqa: BLE001 - what ran before it raised is of use
        yield from mode.names
        yield f"(then {type(error).__name__})"
        return
    yield from mode.names


def _device(device: str) -> str:
    if device != "cuda":
        return f"{device} {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    properties = torch.cuda.get_device_properties(0)
    build = torch.version.hip or torch.version.cuda
    return f"{properties.name}, {'HIP' if torch.version.hip else 'CUDA'} {build}"
