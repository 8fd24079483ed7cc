"""Losses of two sides at equal tokens: whether it was the same training. Pure.

Fast and wrong is no speed. The order of samples differs between frameworks, so a loss is compared
with the other's as the median of its neighbours; the band is their spread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from statistics import median

from warpfront.bench.records import Remark, Run, Step

_POINTS = 200
_NEIGHBOURS = 5
_AWAY = 0.05
_MOST_SKIPPED = 0.01

Curve = list[tuple[int, float]]
Losses = tuple[tuple[int, float, float], ...]


def curve_of(run: Run) -> Curve:
    """Return (tokens, loss of a step); samples where the sequence is unknown."""
    losses = [(_tokens_at(run, step), step.loss) for step in run.steps]
    return sorted({tokens: loss for tokens, loss in losses if tokens and loss is not None}.items())


def _tokens_at(run: Run, step: Step) -> int | None:
    """Return the tokens since the start of the run, printed or counted."""
    if step.tokens:
        return step.tokens
    if step.samples is None and run.tokens_per_step:
        return step.step * run.tokens_per_step
    samples = step.samples or (run.global_batch and step.step * run.global_batch)
    return samples and samples * (run.sequence or 1)


def evaluations_of(run: Run) -> Curve:
    """Return (tokens, value of an evaluation), in the same way."""
    values = [(each.samples * (run.sequence or 1), each.value) for each in run.evaluations]
    return sorted(dict(values).items())


def losses_at_equal_tokens(a: Sequence[Run], b: Sequence[Run]) -> Losses:
    """Return (tokens, A's, B's) smoothed losses of the first run of each side.

    They are the steps' own losses; those of evaluations, where one side lacks them.
    """
    for curve in (curve_of, evaluations_of):
        a_curve, b_curve = (next((c for run in side if (c := curve(run))), []) for side in (a, b))
        if a_curve and b_curve:
            end = min(a_curve[-1][0], b_curve[-1][0])
            common = [tokens for tokens, _ in a_curve if b_curve[0][0] <= tokens <= end]
            step = max(1, -(-len(common) // _POINTS))
            chosen = common[::-1][::step][::-1]
            points = ((tokens, _smooth(a_curve, tokens)) for tokens in chosen)
            return tuple((tokens, loss, _smooth(b_curve, tokens)) for tokens, loss in points)
    return ()


def _smooth(curve: Curve, tokens: int) -> float:
    index = bisect_left(curve, (tokens, float("-inf")))
    low = max(0, index - _NEIGHBOURS // 2)
    near = curve[low : low + _NEIGHBOURS] or curve[-_NEIGHBOURS:]
    return median(loss for _, loss in near)


def training_findings(a: Sequence[Run], b: Sequence[Run], losses: Losses) -> Iterable[Remark]:
    """Yield the reasons why the two were not the same training, if any."""
    unlike, sides = list[str](), (("A", a), ("B", b))
    for name, runs in sides:
        steps = [step for run in runs for step in run.steps]
        if any(step.nan for step in steps):
            unlike.append(f"a loss of {name} is no number")
        skipped = sum(step.skipped or 0 for step in steps)
        if skipped > _MOST_SKIPPED * sum(step.steps for step in steps):
            unlike.append(f"{name} skipped {skipped} steps")
    if losses:
        tokens, a_loss, b_loss = losses[-1]
        if abs(a_loss - b_loss) > _AWAY * min(abs(a_loss), abs(b_loss)):
            unlike.append(f"a loss of {a_loss:.4g} against {b_loss:.4g} after {tokens:,} tokens")
    yield from (Remark(level="warning", message=f"not the same training: {why}") for why in unlike)
    if not losses:
        lacking = [
            n for n, side in sides if not any(curve_of(r) or evaluations_of(r) for r in side)
        ]
        why = "neither has any" if lacking else "they share no number of tokens"
        if len(lacking) == 1:
            why = f"{lacking[0]} has none at a known number of samples"
        yield Remark(level="warning", message=f"losses not compared: {why}")


def bands_of(runs: Sequence[Run]) -> list[tuple[int, float, float]]:
    """Return (tokens, lowest, highest) of neighbouring losses of a side's first run with losses."""
    curve = next((points for run in runs if (points := curve_of(run))), [])
    step = max(1, -(-len(curve) // _POINTS))
    width = max(_NEIGHBOURS, step)
    near = (
        (tokens, curve[max(0, i - width // 2) : i + width // 2 + 1])
        for i, (tokens, _) in list(enumerate(curve))[::step]
    )
    return [(tokens, min(v for _, v in part), max(v for _, v in part)) for tokens, part in near]
