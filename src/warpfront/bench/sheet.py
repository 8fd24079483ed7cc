"""A bench as people read it: what each operation took, and what its formula makes of it. Pure."""

from __future__ import annotations

from itertools import chain
from statistics import median

from warpfront.bench.records import Bench, Measurement, Training
from warpfront.bench.statistics import quantile
from warpfront.system.columns import fitted

_HEAD = ("operation", "median ms", "p05..p95", "TFLOP/s", "GB/s", "of peak", "kernel")
_KERNEL_CHARACTERS = 40


def rate_of(measurement: Measurement, counted: int | None) -> float | None:
    """Return what was counted (FLOPs, bytes) over the median time."""
    seconds = measurement.median_seconds
    return counted / seconds if counted and seconds else None


def share_of_peak(measurement: Measurement) -> float | None:
    """Return the share of the peak that bounds an operation by its formula.

    The bound is the arithmetic where it is counted, else the memory. None where the device's
    peak is unknown.
    """
    peak = measurement.peak
    rate, most = rate_of(measurement, measurement.flops), peak and peak.flop_per_second
    if rate is None:
        rate, most = rate_of(measurement, measurement.bytes), peak and peak.bytes_per_second
    return rate / most if rate and most else None


def tokens_per_second(training: Training) -> float:
    """Return the rate of each device, by the median step."""
    return training.tokens_per_step / median(training.step_seconds) / training.devices


def model_flops_utilization(training: Training) -> float | None:
    """Return MFU: the model's own FLOP/s over the dense peak of this very dtype."""
    peak, flops = training.peak and training.peak.flop_per_second, training.model_flops_per_token
    return tokens_per_second(training) * flops / peak if peak and flops else None


def bench_text(bench: Bench, *, width: int) -> str:
    rows = [_row(result) for result in bench.results]
    lines = list(chain.from_iterable(fitted(_HEAD, rows, width)))
    # The medians by `torch.utils.benchmark`, where they were requested.
    lines += [
        f"{result.id}: {1000 * reference:.4g} ms by torch.utils.benchmark, "
        f"{reference / seconds:.3f} times"
        for result in bench.results
        if (reference := result.torch_benchmark_seconds) and (seconds := result.median_seconds)
    ]
    for run in bench.training:
        mfu = model_flops_utilization(run)
        share = "unknown" if mfu is None else f"{mfu:.1%}"
        rate, seconds = tokens_per_second(run), 1000 * median(run.step_seconds)
        lines.append(f"{run.id}: {seconds:.4g} ms a step, {rate:,.0f} tokens/s, MFU {share}")
    lines += (f"{finding.level}: {finding.message}" for finding in bench.findings)
    name = bench.environment.get("device_name") or "unknown device"
    whose = f"{bench.image_digest or 'no image'}, {bench.verified}"
    return "\n".join([f"{bench.cell_id} on {bench.target} ({name}): {whose}", *lines]) + "\n"


def _row(measurement: Measurement) -> tuple[str, ...]:
    times, seconds = measurement.times, measurement.median_seconds
    if seconds is None:
        return (measurement.id, measurement.outcome, measurement.note, "", "", "", "")
    low, high = (1000 * quantile(sorted(times), share) for share in (0.05, 0.95))
    share = share_of_peak(measurement)
    return (
        measurement.id,
        f"{1000 * seconds:.4g}",
        f"{low:.4g}..{high:.4g}",
        _scaled(rate_of(measurement, measurement.flops), 1e12),
        _scaled(rate_of(measurement, measurement.bytes), 1e9),
        "-" if share is None else f"{share:.1%}",
        (measurement.kernel or "-")[:_KERNEL_CHARACTERS],
    )


def _scaled(rate: float | None, unit: float) -> str:
    return "-" if rate is None else f"{rate / unit:.4g}"
