"""Runs, benches and comparisons as people read them: text for a terminal, Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import jinja2

from warpfront.bench.logs.facts import KERNEL
from warpfront.bench.records import (
    Bench,
    Comparison,
    ComparisonOutcome,
    Interval,
    Measurement,
    Metric,
    Run,
    Step,
    Summary,
    Training,
)
from warpfront.bench.settling import is_timed
from warpfront.bench.statistics import quantile
from warpfront.system.packaged import packaged_text
from warpfront.system.texts import counted, fitted, markdown_table, markdown_text

Rows = list[tuple[str, ...]]
BENCH_HEAD = ("operation", "median ms", "p05..p95", "TFLOP/s", "GB/s", "of peak", "kernel")
_KERNEL_CHARACTERS = 40
CASES_HEAD = ("operation", "B / A", "95 %", "p", "")
SIDES_HEAD = ("", "what", "runs", "samples", "median")
_MEDIANS: Mapping[str, tuple[float, int, str]] = {
    Metric.STEP_SECONDS: (1000, 1, "ms"),
    Metric.TIME_TO_TRAIN: (1 / 60, 2, "min"),
    Metric.SAMPLES_PER_SECOND: (1, 2, "samples/s"),
    "serving": (1, 1, "tokens/s"),
}
"""The scale, digits and unit of a metric's median."""
_MOST_CASES = 40
_GIB = 2**30
# By the beginning of a figure's name.
_SERVING_UNITS = dict.fromkeys((KERNEL, "ttft_", "tpot_", "itl_", "e2e_"), " s")
_SERVING_UNITS |= dict.fromkeys(("request_throughput", "scheduled_throughput"), " requests/s")
_SERVING_UNITS |= dict.fromkeys(("output_throughput", "total_throughput"), " tokens/s")


def run_text(run: Run, summary: Summary) -> str:
    """Return one run, a fact a line; missing facts are listed, not guessed at."""
    facts = {name: value for name in _SAID if (value := getattr(run, name)) is not None}
    origins = dict.fromkeys(run.given, " (given)")
    origins |= dict.fromkeys(run.solved, " (solved from other figures)")
    lines = [
        f"{run.source.path}: {run.source.format}",
        f"  because       {run.source.evidence}",
        *(f"  {n.replace('_', ' '):<13} {value}{origins.get(n, '')}" for n, value in facts.items()),
        *([f"  parallel      {run.parallel}"] if str(run.parallel) else []),
        *(f"  {name:<13} {value}" for name, value in _figures(run, summary)),
        *([f"  not said      {', '.join(run.missing)}"] if run.missing else []),
        *(
            f"  {finding.level}: {finding.message}"
            for finding in (*run.findings, *summary.findings)
        ),
    ]
    return "\n".join(lines) + "\n"


_SAID = (
    "framework",
    "vendor",
    "device_name",
    "devices",
    "nodes",
    "precision",
    "model",
    "parameters",
    "global_batch",
    "micro_batch",
    "accumulation",
    "sequence",
    "tokens_per_step",
    "benchmark",
    "scenario",
    "request_rate",
    "run_seconds",
)


def _figures(run: Run, summary: Summary) -> Iterable[tuple[str, str]]:
    if run.serving:
        for name, value in list(run.serving.items())[:_MOST_CASES]:
            label = name if name.startswith(KERNEL) else name.replace("_", " ")
            fits = (unit for part, unit in _SERVING_UNITS.items() if name.startswith(part))
            yield label, f"{value:,.6g}{next(fits, '')}"
        return
    yield "steps", _counted_steps(run, summary)
    if summary.settled_from is not None:
        yield "settled", f"from step {summary.settled_from}: {summary.settled_steps} steps"
    elif is_timed(run):
        yield "settled", "nothing: figures are medians of all lines"
    for level in summary.levels if len(summary.levels) > 1 else ():
        name = f"steps {level.first_step} to {level.last_step}"
        yield "level", f"{name}: {level.median:.5g} s"
    names = ("tokens_per_second_per_device", "flop_per_second_per_device", "samples_per_second")
    rate, flop, samples = (getattr(summary, n) or _median_of(run.steps, n) for n in names)
    memory, loss = summary.peak_memory_bytes, summary.last_loss
    total = _median_of(run.steps, "tokens_per_second")
    together = f"{total:,.1f} of all devices" if total else None
    kind = f", {run.memory_kind}" if run.memory_kind else ""
    middle, mean = summary.median_seconds, summary.mean_seconds
    step = f"{mean * 1000:,.1f} ms, mean of the run" if mean else None
    if not middle and (seconds := _median_of(run.steps, "seconds")):
        step = f"{seconds * 1000:,.1f} ms, median of all lines"
    for name, text in (
        ("step", f"{_interval(middle, 1000, 1)} ms, median" if middle else step),
        ("samples/s", f"{samples:,.2f} of all devices" if samples else None),
        ("tokens/s", f"{rate:,.1f} per device" if rate else together),
        ("TFLOP/s", f"{flop / 1e12:,.1f} per device, as printed" if flop else None),
        ("memory", f"{memory / _GIB:,.2f} GiB{kind}" if memory else None),
        ("slow steps", str(summary.slow_steps) if summary.slow_steps else None),
        ("last loss", f"{loss:.5g}" if loss is not None else None),
    ):
        if text is not None:
            yield name, text


def _counted_steps(run: Run, summary: Summary) -> str:
    steps = sum(step.steps for step in run.steps)
    if not steps:
        return "none was read"
    dropped = f"{summary.dropped_steps} dropped before it settled"
    last = f", to step {run.steps[-1].step}" if run.steps[-1].step > steps else ""
    timed = dropped if is_timed(run) else "none with a time"
    return f"{steps} in {counted(len(run.steps), 'line')}{last}, {timed}"


def _median_of(steps: Sequence[Step], name: str) -> float | None:
    values = [value for step in steps if (value := getattr(step, name))]
    return median(values) if values else None


def _interval(interval: Interval, scale: float = 1, digits: int = 3) -> str:
    value, low, high = (bound * scale for bound in (interval.value, interval.low, interval.high))
    return f"{value:,.{digits}f} ({low:,.{digits}f}..{high:,.{digits}f})"


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
    lines = [line for block in fitted(BENCH_HEAD, rows, width) for line in block]
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


def sentence(comparison: Comparison) -> str:
    """Return the result of a comparison in one line; never a winner."""
    verdicts = {ComparisonOutcome.NO_DIFFERENCE, ComparisonOutcome.DIFFERENCE}
    if comparison.verdict not in verdicts or comparison.times is None:
        return f"{comparison.verdict}: {'; '.join(comparison.reasons)}"
    names = f"A ({comparison.a.name}) and B ({comparison.b.name})"
    differs = comparison.verdict is ComparisonOutcome.DIFFERENCE
    outcome = f"{names} differ" if differs else f"no difference between {names}"
    return (
        f"{outcome}: B takes {_interval(comparison.times)} times as long as A, "
        f"A {_interval(comparison.times.inverse)} times as long as B; {comparison.resampled}"
    )


def _tables(comparison: Comparison) -> Iterable[tuple[str, tuple[str, ...], Rows]]:
    sides: Rows = []
    scale, digits, unit = _MEDIANS.get(comparison.metric, (1, 1, "tokens/s/device"))
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        middle = "-" if side.median is None else f"{side.median * scale:,.{digits}f} {unit}"
        sides.append((letter, side.name, str(side.runs), str(side.samples), middle))
    yield f"By {comparison.metric}", SIDES_HEAD, sides
    if comparison.differences:
        words = {(False, False): "shown", (True, False): "refused", (True, True): "allowed"}
        unlike: Rows = [
            (each.name, each.a, each.b, words[each.refused, each.refused and each.allowed])
            for each in comparison.differences
        ]
        yield "What they do not share", ("", "A", "B", ""), unlike
    if comparison.cases:
        cases: Rows = []
        ordered = sorted(comparison.cases, key=lambda case: case.ratio.value, reverse=True)
        for case in ordered[:_MOST_CASES]:
            ratio, changed = f"{case.ratio.value:.3f}", "changed" if case.changed else ""
            figures = (f"{case.ratio.low:.3f}..{case.ratio.high:.3f}", f"{case.p_value:.3g}")
            bounds = figures if case.ratio.low < case.ratio.high else ("-", "-")
            cases.append((case.id, ratio, *bounds, changed))
        yield "By operation", CASES_HEAD, cases


def _remarks(comparison: Comparison) -> list[str]:
    sides = (("A", comparison.a), ("B", comparison.b))
    remarks = [
        f"{letter}, steps {level.first_step} to {level.last_step}: {level.median:.5g} s a step"
        for letter, side in sides
        for summary in (side.summaries if side.runs == 1 else ())
        for level in (summary.levels if len(summary.levels) > 1 else ())
    ]
    memory = []
    for _, side in sides:
        peaks = (summary.peak_memory_bytes or 0 for summary in side.summaries)
        memory.append(max(peaks, default=0))
    if all(memory):  # where both logs have it
        a, b = (f"{peak / _GIB:,.2f} GiB" for peak in memory)
        remarks.append(f"peak memory: A {a}, B {b}, {memory[1] / memory[0]:.3f} times")
    remarks += (finding.message for finding in comparison.findings)
    for letter, names in (("A", comparison.only_in_a), ("B", comparison.only_in_b)):
        if names:
            remarks.append(f"only in {letter}: {', '.join(names)}")
    high = comparison.times.high if comparison.times else 0.0
    if comparison.limit and not comparison.slower and high > comparison.limit:
        remarks.append(f"B is not slower than allowed for certain, but may be: {high:.3f} times")
    return remarks


def comparison_text(comparison: Comparison, *, width: int = 120) -> str:
    lines: list[str] = []
    for title, head, rows in _tables(comparison):
        lines += [title, *(line for block in fitted(head, rows, width) for line in block)]
    return "\n".join([*lines, *_remarks(comparison), sentence(comparison)]) + "\n"


def comparison_markdown(comparison: Comparison) -> str:
    parts = [f"**{markdown_text(sentence(comparison))}**\n"]
    for title, head, rows in _tables(comparison):
        parts.append("\n".join([f"{title}:", "", *markdown_table(head, rows), ""]))
    remarks = _remarks(comparison)
    if remarks:
        parts.append("".join(f"* {markdown_text(remark)}\n" for remark in remarks))
    return "\n".join(parts)


def comparison_html(comparison: Comparison, charts: Mapping[str, str]) -> str:
    """Return one self-contained page; `charts` are SVGs of ours by name.

    Jinja2 escapes the text of logs, matplotlib that of the charts.
    """
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(packaged_text("page", "comparison.html.j2")).render(
        sentence=sentence(comparison),
        tables=list(_tables(comparison)),
        remarks=_remarks(comparison),
        charts={name: picture[picture.index("<svg") :] for name, picture in charts.items()},
        style=packaged_text("page", "page.css"),
    )
