"""Properties of correct operations apart from their values: derivatives that fit, the same
result every time, and memory that is freed.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from warpfront_checks.executing import Computed
from warpfront_checks.operators.bounds import gradients_of
from warpfront_checks.operators.cases import Case, Execute, execute_case
from warpfront_checks.operators.table import Operator

REPEATS = 3
# Readings of the memory in use, one after each block of runs; the last steps have to be steady. The
# least step is one block of a device's allocator, and for a process well above the pages that
# malloc keeps for itself.
BLOCK, READINGS, STEADY = 3, 7, 5
DEVICE_STEP_BYTES = 512
PROCESS_STEP_BYTES = 2**20
STATM = Path("/proc/self/statm")
PAGE_BYTES = 4096
SLIGHT = 1e-6
Function = Callable[..., Tensor]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PropertyReport:
    """The faults by operation, the number of operations, and those that torch exempts."""

    faults: tuple[str, ...]
    tried: int
    exempt: tuple[str, ...] = ()
    spread: float = 0.0
    grown_bytes: int = 0


def _as_it_is(function: Function) -> Function:
    return function


def check_gradients(
    chosen: Sequence[Operator],
    device: str,
    *,
    alter: Callable[[Function], Function] = _as_it_is,
    largest: int = 1_000_000,
) -> PropertyReport:
    """Run torch's gradcheck in float64 on the device: each backward fits its own forward.
    Operations whose smallest case has more than `largest` numbers are skipped.
    """
    faults, count = [], 0
    for operator in chosen:
        case = _smallest(operator)
        if case is None or _size(case) > largest:
            continue
        count += 1
        inputs = [
            x.to(device).clone(memory_format=torch.contiguous_format).requires_grad_()
            for x in case.inputs(list(case.tensors))
        ]
        try:
            torch.autograd.gradcheck(
                alter(case.operation), inputs, fast_mode=True, atol=1e-7, nondet_tol=1e-10
            )
        except GradcheckError as error:
            faults.append(f"{operator.name}: {str(error).strip().splitlines()[0]}")
    return PropertyReport(faults=tuple(faults), tried=count)


def check_repeats(
    chosen: Sequence[Operator], device: str, *, run: Execute = execute_case, dtype: str = "float32"
) -> PropertyReport:
    """Check that three runs agree bit for bit under torch's deterministic algorithms.

    Where torch has none for an operation it raises. The spread of plain runs is then reported.
    """
    faults, exempt, count, spread = [], [], 0, 0.0
    for operator, case, cotangent in _plain_cases(chosen, dtype):
        count += 1
        torch.use_deterministic_algorithms(True)  # noqa: FBT003 - torch's own signature
        try:
            runs = [run(case, cotangent, device) for _ in range(REPEATS)]
        except RuntimeError as error:
            if "determinis" not in str(error):
                raise
            exempt.append(operator.name)
            runs = []
        finally:
            torch.use_deterministic_algorithms(False)  # noqa: FBT003 - as above
        if runs and not all(_same(runs[0], other) for other in runs[1:]):
            faults.append(f"{operator.name}: {REPEATS} runs on the same inputs differ")
        if not runs:
            plain = [run(case, cotangent, device) for _ in range(REPEATS)]
            spread = max(spread, *(_spread(plain[0], other) for other in plain[1:]))
    return PropertyReport(faults=tuple(faults), tried=count, exempt=tuple(exempt), spread=spread)


def check_memory(
    chosen: Sequence[Operator], device: str, *, run: Execute = execute_case
) -> PropertyReport:
    """Check for memory in use that grows steadily. A device that counts its bytes is measured
    per operation. The CPU is measured for all together, by malloc's bytes and by the process's
    pages: free pages hide allocations, and malloc does not count memory mapped past it.
    """
    cases = list(_plain_cases(chosen, "float32"))
    tries: list[tuple[str, Callable[[], object]]] = []
    for operator, case, cotangent in cases:
        tries.append((operator.name, partial(run, case, cotangent, device)))
    measures, least = [torch.cuda.memory_allocated], DEVICE_STEP_BYTES
    if device != "cuda":
        works = [work for _, work in tries]
        tries = [("all operations", lambda: [work() for work in works])]
        measures, least = [_resident_bytes, _malloc_bytes], PROCESS_STEP_BYTES
    faults, largest = [], 0
    with _collecting_little() if device == "cuda" else nullcontext():
        for name, work in tries:
            grown = _growth(work, measures, least)
            if grown:
                grown = _growth(work, measures, least, collect=True)
            largest = max(largest, grown)
            if grown:
                each = f"{grown} bytes more in use every {BLOCK} runs"
                faults.append(f"{name}: {each}, without an end")
    return PropertyReport(faults=tuple(faults), tried=len(cases), grown_bytes=largest)


@contextmanager
def _collecting_little() -> Iterator[None]:
    """Freeze existing objects, torch's modules included, so that garbage is collected once, not
    for each operation. That took half of the check's time.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _growth(
    work: Callable[[], object],
    measures: Sequence[Callable[[], int]],
    least: int,
    *,
    collect: bool = False,
) -> int:
    """Return the largest of the measures' systematic growth, in bytes."""
    rows = memory_readings(work, lambda: [measure() for measure in measures], collect=collect)
    return max(systematic_growth(readings, least) for readings in zip(*rows, strict=True))


def memory_readings(
    work: Callable[[], object], measure: Callable[[], T], *, collect: bool = False
) -> list[T]:
    """Return the memory in use after every `BLOCK` runs."""
    readings = []
    gc.collect()  # earlier garbage, freed meanwhile, would hide a leak
    for _ in range(READINGS):
        for _ in range(BLOCK):
            work()
        if collect:
            gc.collect()
        readings.append(measure())
    return readings


def systematic_growth(readings: Sequence[int], least: int) -> int:
    """Return the smallest step of the last `STEADY`, if each is at least so large; else
    nothing. One allocation (a workspace, a cache, a plan) shows in one step or two. A leak shows in
    all of them, except one in which other code freed as much.
    """
    last = readings[-STEADY - 1 :]
    lowest, *steps = sorted(after - before for before, after in pairwise(last))
    smallest = steps[0] if lowest <= -least else lowest
    return smallest if smallest >= least else 0


def _resident_bytes() -> int:
    """Return the process's resident bytes, after malloc has returned unused memory
    (glibc's alone can).
    """
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)
    return int(STATM.read_text(encoding="ascii").split()[1]) * PAGE_BYTES


class _Mallinfo2(ctypes.Structure):
    """glibc's struct of that name (malloc.h, from 2.33): bytes, but for the counts of chunks."""

    _fields_: ClassVar[Sequence[Any]] = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def _malloc_bytes() -> int:
    """Return the bytes that malloc allocated and did not free, in heaps and mapped; 0 without a
    malloc that reports it.
    """
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = _Mallinfo2
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


def _plain_cases(
    chosen: Sequence[Operator], dtype: str
) -> Iterator[tuple[Operator, Case, Tensor | None]]:
    """Yield the first case of each operation, with a gradient for its backward."""
    for operator in chosen:
        case = next(iter(operator.make_cases(dtype, 0, quick=True)))
        output = case.operation(*case.inputs(list(case.tensors)))
        differentiable = case.backward and output.is_floating_point()
        yield operator, case, torch.ones_like(output) if differentiable else None


def _smallest(operator: Operator) -> Case | None:
    """Return the float64 case with the fewest numbers whose gradient is more than zeros."""
    cases = [case for case in operator.make_cases("float64", 0, quick=True) if case.backward]
    return next((case for case in sorted(cases, key=_size) if _slopes(case)), None)


def _size(case: Case) -> int:
    return sum(x.numel() for x in case.tensors)


def _slopes(case: Case) -> bool:
    inputs = case.inputs(list(case.tensors))
    output = case.operation(*inputs)
    if not output.is_floating_point() or not output.numel():
        return False
    cotangent = torch.linspace(1.0, 2.0, output.numel(), dtype=output.dtype).square()
    gradients = gradients_of(case.operation, inputs, cotangent.reshape(output.shape))
    return any(bool((gradient.abs() > SLIGHT).any()) for gradient in gradients)


def _same(computed: Computed, other: Computed) -> bool:
    pairs = zip(computed.all, other.all, strict=True)
    return all(a is None or b is None or torch.equal(a, b) for a, b in pairs)


def _spread(computed: Computed, other: Computed) -> float:
    """Return the largest difference of two runs, relative to the root mean square."""
    worst = 0.0
    for a, b in zip(computed.all, other.all, strict=True):
        if a is not None and b is not None and a.numel():
            size = float(a.double().square().mean().sqrt()) or 1.0
            worst = max(worst, float((a.double() - b.double()).abs().max()) / size)
    return worst
