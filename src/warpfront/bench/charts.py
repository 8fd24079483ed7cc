"""Comparisons as pictures: SVG by matplotlib, an extra, which is loaded only here. Pure.

Same comparison, same bytes: no dates, no random ids.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from warpfront.bench.comparability import bands_of
from warpfront.bench.forms import rate_of
from warpfront.bench.records import Bench, Comparison, Measurement, Metric, Run
from warpfront.bench.settling import metric_of, settled_steps, value_of

_A, _B = "#3b6ea5", "#c8553d"
_MOST_CASES = 40
_NAME = 48
_WIDE = 10
"""The range of times that needs a logarithmic axis."""


def charts_of(comparison: Comparison, sides: Sequence[Sequence[Run] | Bench]) -> Mapping[str, str]:
    """Return SVGs by file name, without those that have no data."""
    pictures: dict[str, str] = {}
    runs = [[] if isinstance(side, Bench) else side for side in sides]
    if any(run.steps for side in runs for run in side):
        pictures["steps.svg"] = _drawn(lambda axes: _steps(axes, comparison, runs))
    for name, side in zip("ab", sides, strict=True):
        if isinstance(side, Bench):
            pictures |= roofline_of(side, f"roofline-{name}.svg")
    if comparison.times:
        pictures["ratios.svg"] = _drawn(lambda axes: _ratios(axes, comparison))
    if comparison.losses:
        pictures["losses.svg"] = _drawn(lambda axes: _losses(axes, comparison, runs))
    return pictures


def roofline_of(bench: Bench, name: str = "roofline.svg") -> Mapping[str, str]:
    """Return the reached rates of operations over their arithmetic intensity (operations per byte).

    The roofs are the device's peaks, one per dtype. The result is empty where no
    operation counts both.
    """
    counted = [result for result in bench.results if result.bytes and rate_of(result, result.flops)]
    return {name: _drawn(lambda axes: _roofline(axes, bench, counted))} if counted else {}


def _drawn(draw: Any) -> str:
    import matplotlib as mpl  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    with mpl.rc_context({"svg.hashsalt": "warpfront", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        draw(figure.add_subplot())
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()


def _label(letter: str, name: str) -> str:
    """Return a side's letter and the name of its file or files, short enough for a legend."""
    short = name.rpartition("/")[2] or name
    return f"{letter}: {short if len(short) <= _NAME else '...' + short[3 - _NAME :]}"


def _plain(*axes: Any) -> None:
    """Label the ticks with integers and thousands separators; no powers of ten."""
    from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: PLC0415 - an extra

    for axis in axes:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axis.set_minor_formatter(NullFormatter())


def _steps(axes: Any, comparison: Comparison, sides: Sequence[Sequence[Run]]) -> None:
    """Draw every step pale, settled ones strong; wide ranges on a logarithmic axis."""
    plotted: list[float] = []
    named = (("A", comparison.a, _A, sides[0]), ("B", comparison.b, _B, sides[1]))
    for letter, side, colour, runs in named:
        for number, run in enumerate(runs):
            metric = metric_of(run)
            for steps, alpha in ((list(run.steps), 0.25), (settled_steps(run, metric), 1.0)):
                points = [(s.step, v) for s in steps if (v := value_of(s, metric)) is not None]
                plotted += [value for _, value in points]
                axes.plot(
                    *zip(*points, strict=True) if points else ((), ()),
                    ".-",
                    color=colour,
                    alpha=alpha,
                    markersize=3,
                    linewidth=0.8,
                    label=_label(letter, side.name) if alpha == 1.0 and not number else None,
                )
    if plotted and max(plotted) > _WIDE * min(plotted):
        axes.set_yscale("log")
        low, high = min(plotted), max(plotted)
        axes.set_yticks([low * (high / low) ** (tick / 4) for tick in range(5)])
    _plain(axes.xaxis, axes.yaxis)
    axes.set_xlabel("step")
    is_rate = comparison.metric == Metric.TOKENS_PER_SECOND
    axes.set_ylabel("seconds per token" if is_rate else "seconds per step")
    axes.legend()


def _ratios(axes: Any, comparison: Comparison) -> None:
    """Draw B's time over A's, with its interval; operations below the whole."""
    assert comparison.times is not None
    cases = comparison.cases[:_MOST_CASES]
    rows = [("all", comparison.times), *((case.id, case.ratio) for case in cases)]
    for row_index, (_, ratio) in enumerate(rows):
        axes.plot([ratio.low, ratio.high], [row_index, row_index], color=_B, linewidth=2)
        axes.plot([ratio.value], [row_index], "o", color=_B)
    axes.axvspan(1 - comparison.noise, 1 + comparison.noise, color="#dddddd", zorder=0)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel("B's time over A's; grey is the declared noise")


def _losses(axes: Any, comparison: Comparison, sides: Sequence[Sequence[Run]]) -> None:
    """Draw losses at equal tokens, over a band of the neighbouring losses."""
    tokens = [count for count, _, _ in comparison.losses]
    for index, letter, side, colour in ((1, "A", comparison.a, _A), (2, "B", comparison.b, _B)):
        label = _label(letter, side.name)
        axes.plot(tokens, [loss[index] for loss in comparison.losses], color=colour, label=label)
        bands = bands_of(sides[index - 1])
        if band := [band for band in bands if tokens[0] <= band[0] <= tokens[-1]]:
            places, low, high = zip(*band, strict=True)
            axes.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
    _plain(axes.xaxis, axes.yaxis)
    axes.set_xlabel("tokens (samples, where the sequence is unknown)")
    axes.set_ylabel("loss")
    axes.legend()


def _roofline(axes: Any, bench: Bench, counted: Sequence[Measurement]) -> None:
    """Draw FLOP/s over FLOP/byte, by formulas. A point above a roof had its data in the cache."""
    intensities = [(measurement.flops or 0) / (measurement.bytes or 1) for measurement in counted]
    ends = min(intensities) / 2, max(intensities) * 2
    for number, dtype in enumerate(dict.fromkeys(measurement.dtype for measurement in counted)):
        colour = f"C{number}"
        peak = next(measurement.peak for measurement in counted if measurement.dtype == dtype)
        alike = [c for c in zip(intensities, counted, strict=True) if c[1].dtype == dtype]
        points = [(intensity, rate_of(each, each.flops)) for intensity, each in alike]
        axes.plot(*zip(*points, strict=True), "o", color=colour, markersize=4, label=dtype)
        if peak and peak.flop_per_second and peak.bytes_per_second:
            ridge = peak.flop_per_second / peak.bytes_per_second
            corners = sorted({*ends, min(max(ridge, ends[0]), ends[1])})
            most, memory = peak.flop_per_second, peak.bytes_per_second
            roof = [min(most, intensity * memory) for intensity in corners]
            axes.plot(corners, roof, color=colour, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _plain(axes.xaxis)
    axes.set_xlabel("FLOP per byte")
    axes.set_ylabel("FLOP/s")
    axes.set_title(str(bench.environment.get("device_name") or "unknown device"))
    axes.legend()
