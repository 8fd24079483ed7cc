"""The session: times of each case on the claimed device, in `bench.json`. Judges nothing."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import torch

from warpfront_checks.bench.options import BENCH_OPTIONS, SCHEMA, BenchEffort, read_bench_effort
from warpfront_checks.bench.rounds import (
    BLOCKS,
    RECALLED,
    WARM_WINDOW,
    Clock,
    Peak,
    Work,
    peak_of,
    repetitions_of_a_block,
    rotated,
    warm_up,
)
from warpfront_checks.bench.state import here, noisy, read_state
from warpfront_checks.bench.timed_cases import PRESETS, TimedCase, cases_of, chosen
from warpfront_checks.bench.work import STEPS, WARM_STEPS, training_step, work_of
from warpfront_checks.check_options import add_options, parsed
from warpfront_checks.claimed_device import computes, judge_device
from warpfront_checks.claims import Claims, ClaimsError, read_claims
from warpfront_checks.executing import profiled, synchronise
from warpfront_checks.hardware import Machine, read_hardware
from warpfront_checks.hardware.values import read_processor
from warpfront_checks.precision import precision_settings, require_full_precision
from warpfront_checks.results import write_json
from warpfront_checks.torch_devices import Device, environment_of, read_facts

TIMED, UNAVAILABLE, ERROR = "timed", "unavailable", "error"
_KERNEL_NAME_CHARACTERS = 200
_TRAINED = ("float32", "bfloat16")
MEMORY_FLOOR_BYTES = 8 * 10**9
"""The memory that PyFlame's cases are made for."""
_PRODUCTS = {"float32": "tf32"}


class NoDeviceError(Exception):
    """The claimed device is missing: the CPU's times would pass for its own."""


def main(arguments: list[str]) -> int:
    """`bench --claims FILE --results FOLDER [options]`; exits 2 if it could not begin."""
    parser = argparse.ArgumentParser(prog="python -m warpfront_checks bench")
    parser.add_argument("--claims", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    add_options(parser, BENCH_OPTIONS)
    options = parser.parse_args(arguments)
    # torch 2.13's profiler else prints two lines for each operation.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    try:
        effort = parsed(options, BENCH_OPTIONS, read_bench_effort)
        claims = read_claims(options.claims)
        options.results.mkdir(parents=True, exist_ok=True)
        record_bench(claims, effort, options.results)
    except (ClaimsError, NoDeviceError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def record_bench(claims: Claims, effort: BenchEffort, folder: Path) -> Path:
    """Write `bench.json`. Raise `NoDeviceError`."""
    facts = read_facts(torch)
    doubtful = judge_device(claims, facts, read_hardware(Machine()))
    if doubtful is not None and not computes(doubtful):
        raise NoDeviceError(doubtful.reason)
    device = None if claims.device == "cpu" else next(iter(facts.devices), None)
    require_full_precision(products="tf32" if effort.tf32 else "ieee")
    bench = TorchBench(claims.device, device, cold=effort.cold, tf32=effort.tf32)
    is_cuda = claims.device == "cuda"
    where = here(claims.device, torch.cuda.get_device_properties(0) if is_cuda else None)
    before = read_state(*where)
    preset = PRESETS[effort.preset]
    cases = chosen(cases_of(preset, effort.dtypes), effort.suites, effort.cases)
    results = time_cases(cases, bench, effort)
    if effort.reference:
        from torch.utils.benchmark import Timer  # noqa: PLC0415 - on request

        threads = torch.get_num_threads()  # its own default is one
        for result, case in zip(results, cases, strict=True):
            if result["outcome"] == TIMED:
                timer = Timer("work()", globals={"work": bench.make(case)}, num_threads=threads)
                measured = timer.blocked_autorange(min_run_time=effort.seconds)
                result["torch_benchmark_seconds"] = float(measured.median)
    training = _train(bench, effort)
    after = read_state(*where)
    messages = [f"noisy: {reason}" for reason in noisy(before, after)]
    messages += [f"{doubtful.outcome}: {doubtful.reason}"] if doubtful else []
    if device is not None and device.memory_bytes < MEMORY_FLOOR_BYTES:
        memory = f"{device.memory_bytes / 2**30:.1f} GiB"
        floor = f"{MEMORY_FLOOR_BYTES / 1e9:g} GB"
        messages.append(f"memory: the device has {memory}; cases may fail below {floor}")
    document = {
        "schema": SCHEMA,
        "kind": "Timings",
        "target": claims.target,
        "environment": {
            **environment_of(torch),
            "device_name": device.name if device else read_processor(Machine()).name,
            "arch": device.arch if device else "cpu",
            "memory_bytes": device.memory_bytes if device else None,
            "threads": torch.get_num_threads(),
            "cudnn_or_miopen": torch.backends.cudnn.version() if device else None,
            "precision": precision_settings(),
            "power_limit_watts": before.get("power_limit_watts"),
            "state_before": before,
            "state_after": after,
            "nothing_takes_seconds": median(bench.clock.times(lambda: None, 50)),
        },
        "settings": effort.document(),
        "results": results,
        "training": training,
        "findings": [{"level": "warning", "message": message} for message in messages],
    }
    write_json(folder / "bench.json", document)
    return folder / "bench.json"


class TorchBench:
    """A device by torch, with the clock that times its work, and its peak."""

    def __init__(self, device: str, found: Device | None, *, cold: bool, tf32: bool) -> None:
        self.device, self._found, self._tf32 = device, found, tf32
        self.clock = clock_of(device, cold=cold)

    def make(self, case: TimedCase) -> Work:
        return work_of(case, self.device)

    def peak(self, dtype: str) -> Peak | None:
        if self._found is None:
            return None
        counted = _PRODUCTS.get(dtype, dtype) if self._tf32 else dtype
        return peak_of(self._found.arch, self._found.name, self._found.memory_bytes, counted)

    def memory_from_here(self) -> None:
        if self.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def memory_peak(self) -> int | None:
        return int(torch.cuda.max_memory_allocated()) if self.device == "cuda" else None

    def kernel(self, work: Work) -> str | None:
        """Return the device's own name where it is one, on the CPU torch's of the operation.
        Who waits for a core does so in whatever operation it was: on the CPU the least of
        three times counts.
        """
        runs = [profiled(work, self.device)[0] for _ in range(1 if self.device == "cuda" else 3)]
        spent = {name: min(run.get(name, most) for run in runs) for name, most in runs[0].items()}
        longest = max(spent, key=spent.__getitem__, default="")
        return longest[:_KERNEL_NAME_CHARACTERS] or None


@dataclass
class Timing:
    """A case, while it is timed."""

    case: TimedCase
    outcome: str = TIMED
    blocks: list[list[float]] = field(default_factory=list)
    first_seconds: float | None = None
    warm_seconds: float = 0.0
    memory_peak_bytes: int | None = None
    kernel: str | None = None
    notes: list[str] = field(default_factory=list)

    def add_block(self, bench: TorchBench, budget: BenchEffort) -> None:
        """Time one block more. An error ends this case, and no other."""
        try:
            work = bench.make(self.case)
            if not self.blocks:
                bench.memory_from_here()
                self.first_seconds, times, settled = warm_up(bench.clock, work, budget)
                self.memory_peak_bytes = bench.memory_peak()
                self.warm_seconds = median(times if budget.warmup else times[-WARM_WINDOW:])
                if not settled:
                    self.notes.append(f"not still after {len(times)} repetitions of warming up")
            else:
                bench.clock.times(work, RECALLED)
            count = repetitions_of_a_block(budget, self.warm_seconds)
            self.blocks.append(bench.clock.times(work, count))
            if len(self.blocks) == BLOCKS:
                self.kernel = bench.kernel(work)
        except LookupError as error:
            self.outcome = UNAVAILABLE
            self.notes.append(str(error))
        except Exception as error:  # noqa: BLE001 - a case that raises is a result; the rest go on
            self.outcome = ERROR
            message = str(error).strip().splitlines() or [""]
            self.notes.append(f"{type(error).__name__}: {message[0]}"[:500])

    def document(self, peak: Peak | None) -> dict[str, Any]:
        """Return the case for a record. One that failed later has no times: half are none."""
        case = self.case
        names = ("id", "suite", "op", "shape", "dtype", "direction", "flops", "bytes")
        return {
            **{name: getattr(case, name) for name in names},
            "outcome": self.outcome,
            "samples_seconds": self.blocks if self.outcome == TIMED else [],
            "first_seconds": self.first_seconds,
            "peak": peak,
            "memory_peak_bytes": self.memory_peak_bytes,
            "kernel": self.kernel,
            "note": "; ".join(filter(None, [case.note, *self.notes])),
        }

    def line(self) -> str:
        """Return the line of progress for this case, printed while the rest are timed."""
        if self.outcome != TIMED:
            return f"{self.case.id}: {self.outcome}: {self.notes[-1]}"
        return f"{self.case.id}: {1000 * median(chain.from_iterable(self.blocks)):.4g} ms"


def time_cases(
    cases: Sequence[TimedCase], bench: TorchBench, budget: BenchEffort
) -> list[dict[str, Any]]:
    """Time every case in every block; return documents in the order of the table."""
    timings = {case.id: Timing(case) for case in cases}
    for block in range(BLOCKS):
        for case in rotated(cases, block):
            timing = timings[case.id]
            if timing.outcome == TIMED:
                timing.add_block(bench, budget)
                if timing.outcome != TIMED or block == BLOCKS - 1:
                    _say(timing.line())
    return [
        timing.document(None if timing.case.suite == "memory" else bench.peak(timing.case.dtype))
        for timing in timings.values()
    ]


def _train(bench: TorchBench, effort: BenchEffort) -> list[dict[str, Any]]:
    if effort.suites and "train" not in effort.suites:
        return []
    preset, trained = PRESETS[effort.preset], []
    shape = preset.decoder
    dtypes = [name for name in effort.dtypes or preset.dtypes if name in _TRAINED]
    named = [
        TimedCase("train", "decoder", tuple(vars(shape).values()), dtype, "both")
        for dtype in dtypes
    ]
    for case in chosen(named, (), effort.cases):
        bench.memory_from_here()
        step = training_step(shape, case.dtype, bench.device)
        losses: list[Any] = []

        def work(step: Work = step, losses: list[Any] = losses) -> None:
            losses.append(step())

        # A step as it is: what the host takes between its kernels is a part of it.
        clock = clock_of(bench.device, ahead=False)
        clock.times(work, WARM_STEPS)
        seconds = clock.times(work, STEPS)
        _say(f"{case.id}: {1000 * median(seconds):.4g} ms a step")
        read = [float(loss) for loss in losses[WARM_STEPS:]]
        document = {
            "id": case.id,
            "dtype": case.dtype,
            "tokens_per_step": shape.tokens_per_step,
            "devices": 1,
            "step_seconds": seconds,
            # JSON has no NaN and no infinity, so one such loss empties the list.
            "losses": read if all(map(math.isfinite, read)) else [],
            "model_flops_per_token": shape.model_flops_per_token,
            "peak": bench.peak(case.dtype),
            "memory_peak_bytes": bench.memory_peak(),
        }
        trained.append(document)
    return trained


def _say(line: str) -> None:
    sys.stdout.write(f"bench: {line}\n")
    sys.stdout.flush()


# For a torch that does not report the size of the last cache: more than any known has.
_CACHE_BYTES = 256 * 2**20
_CYCLES = 10_000_000
# What takes longer to launch is no short operation, and waits for no head start.
_LONGEST_LAUNCH_SECONDS = 1e-3


def clock_of(device: str, *, cold: bool = False, ahead: bool = True) -> Clock:
    """`cold` writes over the cache before every repetition, outside of what is timed. `ahead` lets
    the host launch while the device waits; without it what the host takes counts.
    """
    spoil: Work | None = None
    if cold:
        size = _CACHE_BYTES
        if device == "cuda":
            size = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0) or size
        spoil = torch.empty(2 * size, dtype=torch.uint8, device=device).zero_
    if device in {"cuda", "xpu"}:
        module: Any = getattr(torch, device)
        return EventClock(module, spoil, _waiting(module) if ahead else None)
    return Clock(partial(synchronise, device), spoil)


class EventClock(Clock):
    """A pair of events for each repetition, and one synchronisation at the end.

    Before each, the device is made to wait for twice as long as launching takes. Else something
    shorter than its launch would take as long as the host does, which is busy with other things.
    """

    def __init__(
        self, module: Any, spoil: Work | None, wait: Callable[[float], object] | None
    ) -> None:
        super().__init__(module.synchronize, spoil)
        self._module, self._wait = module, wait

    def times(self, work: Work, repetitions: int) -> list[float]:
        event = self._module.Event
        pairs = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(repetitions)]
        self._synchronise()
        launching = _LONGEST_LAUNCH_SECONDS
        for start, end in pairs:
            if self._spoil:
                self._spoil()
            if self._wait:
                self._wait(2 * launching)
            started = time.perf_counter()
            start.record()
            work()
            end.record()
            # The shortest: once the host is far ahead, launching waits for the device.
            launching = min(launching, time.perf_counter() - started)
        self._synchronise()
        return [start.elapsed_time(end) / 1000 for start, end in pairs]


def _waiting(module: Any) -> Callable[[float], object] | None:
    """Return a function that makes a device wait for so many seconds, None if torch cannot. It
    is a spinning kernel, counted in cycles. The cycles of a second are measured, the second time,
    when the clock is up.
    """
    sleep = getattr(module, "_sleep", None)
    if sleep is None:
        return None
    bare = EventClock(module, None, None)
    _, seconds = bare.times(lambda: sleep(_CYCLES), 2)
    return lambda duration: sleep(int(duration * _CYCLES / seconds))
