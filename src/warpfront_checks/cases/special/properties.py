"""Properties of right operations apart from their values: derivatives that fit, the same
result every time, memory that is freed, and the dtype of results under autocast.
"""

from __future__ import annotations

import ctypes
import gc
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from warpfront_checks.cases.axes import Assignment, Drawing, axes_of, build
from warpfront_checks.cases.bounds import Bound, Tally, Verdict, judge
from warpfront_checks.cases.case import Case
from warpfront_checks.cases.catalogue import CATALOGUE
from warpfront_checks.cases.known_defects import preventing_thread, thread_of
from warpfront_checks.cases.operation import Operation
from warpfront_checks.cases.run import (
    REFUSALS,
    equal_numbers,
    execute,
    lacks_kernel,
    listed,
    names_of,
)

REPEATS = 3
# The number of operations that are repeated and measured; each seed draws others.
SAMPLE = 90
# Readings of the memory in use, one after each block of runs; the last steps have to be steady. The
# least step is one block of a device's allocator, and for a process well above the pages that
# malloc keeps for itself.
BLOCK, READINGS, STEADY = 3, 7, 5
DEVICE_STEP_BYTES = 512
PROCESS_STEP_BYTES = 2**20
STATM = Path("/proc/self/statm")
PAGE_BYTES = 4096
MALLINFO2 = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
SLIGHT = 1e-6
LONG = "past many blocks"
# docs/source/amp.rst of torch: what all its kinds of device have in common, then CUDA's and ROCm's.
LOWER = "mm bmm addmm baddbmm matmul linear conv1d conv2d attention"
FULL = "mse_loss l1_loss smooth_l1_loss cross_entropy kl_div"
FULL_ON_CUDA = "exp log softmax log_softmax sum cumsum prod layer_norm group_norm rsqrt softplus"
LOW = ("bfloat16", "float16")
Results = list["Tensor | None"]
Run = Callable[[], Results]
T = TypeVar("T")


def _enter(tally: Tally, operation: Operation, fault: str, device: str) -> None:
    """Enter a fault of an operation, which may be a known defect of torch."""
    thread = thread_of(operation.defects, f"{fault}, {operation.name}", device)
    tally.enter(Verdict.failed("", fault), f"{operation.name}: {fault}", thread)


def sampled(seed: int) -> list[Operation]:
    """Return operations of the catalogue, drawn by a seed."""
    operations = sorted(CATALOGUE.values(), key=lambda operation: operation.name)
    return random.Random(seed).sample(operations, min(SAMPLE, len(operations)))


def plain_case(operation: Operation, dtype: str, device: str, **changes: Any) -> Case:
    """Return the case with the first value of each axis, but for some of them."""
    return build(operation, plain_assignment(operation, dtype, **changes), device)


def plain_assignment(operation: Operation, dtype: str, **changes: Any) -> Assignment:
    """Return the choices of a plain case; of `lengths` and `seed` those of the changes decide."""
    drawing = Drawing(operation, (dtype,), random.Random(0))
    first = {axis: values[0] for axis, values in drawing.axes.items() if values}
    chosen = drawing.constrained({"dtype": dtype, **first, **changes})
    fixed: Assignment = {name: changes[name] for name in ("lengths", "seed") if name in changes}
    return {**chosen, "seed": 0, "wide": 0, **fixed}


def prepared(case: Case) -> dict[str, Any]:
    """Return the names of a case with its arguments on the device, and the oracle's results."""
    names = names_of()
    execute(case.inputs() + case.oracle() + case.sent(), names)
    return names


def _run(case: Case, names: dict[str, Any]) -> Results:
    """Make the call of a prepared case, and return its results and gradients."""
    execute(case.call(), names)
    return [*listed(names["found"]), *(names.get("gradients", ()) if case.leaves else ())]


def check_gradients(chosen: Sequence[Operation], device: str) -> Tally:
    """Run torch's gradcheck in float64 on the device: each backward fits its own forward."""
    report = Tally()
    for operation in chosen:
        double = axes_of(operation, ("float64",))["dtype"][:1] == ["float64"]
        if not operation.backward or not double:
            continue
        # What detaches a number has another gradient than its values' slope.
        if ".detach()" in operation.code + operation.definition:
            continue
        case = plain_case(operation, "float64", device, values="normal")
        if preventing_thread(operation.defects, device, case.axes):
            continue
        try:
            names = prepared(case)
            leaves = [names[leaf.name] for leaf in case.leaves]
            call = partial(_call, case, names)
            if not _slopes(call, leaves):
                continue
            torch.autograd.gradcheck(call, leaves, fast_mode=True, atol=1e-7, nondet_tol=1e-10)
        except GradcheckError as error:
            _enter(report, operation, str(error).strip().splitlines()[0], device)
        except (RuntimeError, NotImplementedError) as error:
            if not lacks_kernel(error):
                raise
            continue
        report.cases += 1
    return report


def _call(case: Case, names: dict[str, Any], *leaves: Tensor) -> Any:
    replaced = {leaf.name: x for leaf, x in zip(case.leaves, leaves, strict=True)}
    return eval(case.code, {**names, **replaced})  # noqa: S307 - an expression of the catalogue


def _slopes(call: Callable[..., Any], leaves: Sequence[Tensor]) -> bool:
    """Return whether any derivative is more than zeros."""
    ends = [x for x in listed(call(*leaves)) if x.requires_grad]
    back = [torch.linspace(1, 2, x.numel(), dtype=x.dtype).view(x.shape).to(x.device) for x in ends]
    gradients = torch.autograd.grad(ends, leaves, back, allow_unused=True) if ends else ()
    return any(x is not None and bool((x.abs() > SLIGHT).any()) for x in gradients)


def check_repeats(chosen: Sequence[Operation], device: str) -> Tally:
    """Check that three runs agree bit for bit under torch's deterministic algorithms, with a size
    of each operation longer than many blocks.

    Where torch has none for an operation it raises, and is exempt.
    """
    report = Tally()
    for name, run in _runs(chosen, device, long=True):
        report.cases += 1
        torch.use_deterministic_algorithms(True)
        try:
            runs = [_seeded(run) for _ in range(REPEATS)]
        except RuntimeError as error:
            if "determinis" not in str(error):
                raise
            report.excluded[f"{name} has no deterministic algorithm"] += 1
            runs = []
        finally:
            torch.use_deterministic_algorithms(False)
        if runs and not all(_same(runs[0], other) for other in runs[1:]):
            fault = f"{REPEATS} runs on the same inputs differ"
            _enter(report, CATALOGUE[name], fault, device)
    return report


def _seeded(run: Run) -> Results:
    """Return the results of a run from one state of the generators: some calls draw numbers."""
    torch.manual_seed(0)
    return run()


def _runs(
    chosen: Sequence[Operation], device: str, *, long: bool = False
) -> Iterator[tuple[str, Run]]:
    """Yield runs of operations that the device has in float32: of usual sizes, or a `long` one,
    drawn by the operations that were chosen.
    """
    draw = random.Random(" ".join(operation.name for operation in chosen))
    for operation in chosen:
        axes = axes_of(operation, ("float32",)) if long else {}
        sizes = [axis for axis in axes if axis.startswith("size ") and LONG in axes[axis]]
        changes = {draw.choice(sizes): LONG} if sizes else {}
        # A record of one kind of values has no right result for others.
        values = operation.values[0] if len(operation.values) == 1 else "normal"
        case = plain_case(operation, "float32", device, values=values, **changes)
        if preventing_thread(operation.defects, device, case.axes):
            continue
        try:
            run = partial(_run, case := replace(case, destination=""), prepared(case))
            run()
        except REFUSALS as error:
            # No call has every size without others that fit it.
            if not (changes or lacks_kernel(error)):
                raise
            continue
        yield operation.name, run


def check_memory(chosen: Sequence[Operation], device: str) -> Tally:
    """Check for memory in use that grows steadily. A device that counts its bytes is measured
    per operation. The CPU is measured for all together, by malloc's bytes and by the process's
    pages: free pages hide allocations, and malloc does not count memory mapped past it.
    """
    tries: list[tuple[str, Callable[[], object]]] = [*_runs(chosen, device)]
    report = Tally(cases=len(tries))
    measures, least = [torch.cuda.memory_allocated], DEVICE_STEP_BYTES
    if device != "cuda":
        works = [work for _, work in tries]
        tries = [("all operations", lambda: [work() for work in works])]
        measures, least = [_resident_bytes, _malloc_bytes], PROCESS_STEP_BYTES
    with _collecting_little() if device == "cuda" else nullcontext():
        for name, work in tries:
            grown = _growth(work, measures, least)
            if grown:
                grown = _growth(work, measures, least, collect=True)
            if grown:
                each = f"{grown} bytes more in use every {BLOCK} runs"
                report.faults.append(f"{name}: {each}, without an end")
    return report


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
    """Return the process's resident bytes, once glibc's malloc has returned unused memory."""
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)
    return int(STATM.read_text(encoding="ascii").split()[1]) * PAGE_BYTES


class _Mallinfo2(ctypes.Structure):
    """glibc's struct of that name (malloc.h, from 2.33): bytes, but for the counts of chunks."""

    _fields_: ClassVar[Sequence[Any]] = [(name, ctypes.c_size_t) for name in MALLINFO2.split()]


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


def _same(results: Results, other: Results) -> bool:
    pairs = zip(results, other, strict=True)
    return all(a is None or b is None or equal_numbers(a, b) for a, b in pairs)


def check_autocast(device: str) -> Tally:
    """Check operations that autocast computes in 16 bits and in float32, then a weight that changes
    between two casts.
    """
    full = f"{FULL} {FULL_ON_CUDA}" if device == "cuda" else FULL
    report = Tally(faults=list(_stale_weights(device)), cases=1)
    for low in LOW:
        for names, dtype, expected in ((LOWER, "float32", low), (full, low, "float32")):
            for name in names.split():
                report.faults += _cast_faults(name, dtype, expected, low, device)
                report.cases += 1
    return report


def _cast_faults(name: str, dtype: str, expected: str, low: str, device: str) -> Iterator[str]:
    """Yield how a result in the autocast dtype `low` differs from one in `expected`."""
    operation = CATALOGUE[name]
    values = "few" if "few" in operation.values else "quarters"
    case = plain_case(operation, dtype, device, values=values, gradient="none", destination="")
    space = prepared(case)
    result = _cast(case, space, low)
    if result.dtype != getattr(torch, expected):
        yield f"{name} in {low}: {result.dtype}, expected torch.{expected}"
    bound = Bound(ulps=4, roundings=64, least=1.0, unit=getattr(torch, low))
    if fault := judge(result, space["right"], bound).fault:
        yield f"{name} in {low}: {fault}"


def _cast(case: Case, names: dict[str, Any], low: str) -> Tensor:
    with torch.autocast(case.device, dtype=getattr(torch, low)):
        result = _run(case, names)[0]
    assert result is not None
    return result


def _stale_weights(device: str) -> Iterator[str]:
    """Yield the steps after which a weight's cast is that of an earlier step."""
    case = plain_case(CATALOGUE["linear without bias"], "float32", device, gradient="none")
    weight = torch.zeros(5, 8, device=device, requires_grad=True)
    names = {**names_of(), "a": torch.ones(3, 8, device=device), "b": weight}
    for step in range(3):
        if not bool((_cast(case, names, "bfloat16") == 8 * step).all()):
            yield f"linear after {step} changes of its weight: an earlier weight's result"
        with torch.no_grad():
            weight.add_(1)
