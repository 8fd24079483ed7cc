"""Comparisons as pictures: SVG by matplotlib, an extra, which is loaded only here. Pure.

Same comparison, same bytes: no dates, no random ids.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from warpfront.bench.records import Comparison, Metric, Run
from warpfront.bench.settling import metric_of, settled_steps, value_of

_A, _B = "#3b6ea5", "#c8553d"
_MOST_CASES = 40


def charts_of(found: Comparison, sides: Sequence[Sequence[Run]]) -> Mapping[str, str]:
    """Name of a file -> SVG; those for which there is something to draw."""
    pictures: dict[str, str] = {}
    if any(run.steps for runs in sides for run in runs):
        pictures["steps.svg"] = _drawn(lambda axes: _steps(axes, found, sides))
    if found.times:
        pictures["ratios.svg"] = _drawn(lambda axes: _ratios(axes, found))
    if found.losses:
        pictures["losses.svg"] = _drawn(lambda axes: _losses(axes, found))
    return pictures


def _drawn(draw: Any) -> str:
    import matplotlib as mpl  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    with mpl.rc_context({"svg.hashsalt": "warpfront", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        draw(figure.add_subplot())
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()


def _steps(axes: Any, found: Comparison, sides: Sequence[Sequence[Run]]) -> None:
    """Every step pale, the settled ones strong."""
    for name, colour, runs in (("A", _A, sides[0]), ("B", _B, sides[1])):
        for number, run in enumerate(runs):
            metric = metric_of(run)
            for steps, alpha in ((list(run.steps), 0.25), (settled_steps(run, metric), 1.0)):
                points = [(s.step, v) for s in steps if (v := value_of(s, metric)) is not None]
                label = f"{name}, settled" if alpha == 1.0 and not number else None
                axes.plot(
                    *zip(*points, strict=True) if points else ((), ()),
                    ".-",
                    color=colour,
                    alpha=alpha,
                    markersize=3,
                    linewidth=0.8,
                    label=label,
                )
    axes.set_yscale("log")
    axes.set_xlabel("step")
    is_rate = found.metric == Metric.TOKENS_PER_SECOND
    axes.set_ylabel("seconds a token" if is_rate else "seconds a step")
    axes.legend()


def _ratios(axes: Any, found: Comparison) -> None:
    """B's time over A's, with its interval; operations below the whole."""
    assert found.times is not None
    rows = [("all", found.times), *((case.id, case.ratio) for case in found.cases[:_MOST_CASES])]
    for at, (_, ratio) in enumerate(rows):
        axes.plot([ratio.low, ratio.high], [at, at], color=_B, linewidth=2)
        axes.plot([ratio.value], [at], "o", color=_B)
    axes.axvspan(1 - found.noise, 1 + found.noise, color="#dddddd", zorder=0)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel("B's time over A's; grey is the declared noise")


def _losses(axes: Any, found: Comparison) -> None:
    tokens = [at for at, _, _ in found.losses]
    for index, name, colour in ((1, "A", _A), (2, "B", _B)):
        axes.plot(tokens, [one[index] for one in found.losses], color=colour, label=name)
    axes.set_xlabel("tokens (samples, where the sequence is unknown)")
    axes.set_ylabel("loss")
    axes.legend()
