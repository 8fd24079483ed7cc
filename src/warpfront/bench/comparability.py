"""The facts that must be equal for two sides to have done the same work, and their losses at equal
tokens, which show whether it was the same training. Pure.

A fact that differs or is unknown refuses a comparison, unless its name is allowed; the rest is
shown. The rules of a benchmark make its time to train comparable. Where both sides reached its
target with the same global batch, an unlogged number format or sequence is shown only.

Fast and wrong is no speed. The order of samples differs between frameworks, so a loss is compared
with the other's as the median of its neighbours; the band is their spread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from warpfront.bench.records import Difference, Metric, Remark, Run, Step

UNKNOWN = "unknown"
_IDENTITY = ("benchmark", "parameters", "model")
# Facts that have to be equal where both sides have them.
_SHAPE = (
    "parameters",
    "active_parameters",
    "layers",
    "hidden_size",
    "vocabulary",
    "target_quality",
)
_SHOWN = (
    "vendor",
    "device_name",
    "devices",
    "nodes",
    "framework",
    "framework_version",
    "torch",
    "global_batch",
    "micro_batch",
    "parallel",
)
SERVING, KERNELS = "serving", "kernels"
"""Metrics of a serving benchmark and of a profiler's kernels: every figure that both have."""
_LOAD = ("model", "scenario", "concurrency")
_LENGTHS = ("input_length", "output_length")
# The largest difference of counts that are often rounded, and of requests' mean lengths: sampled
# answers differ a little.
_NEAR = dict.fromkeys(("parameters", "active_parameters"), 0.01) | dict.fromkeys(_LENGTHS, 0.02)
# Facts that have to be known and equal, in addition to the model.
_WORK: Mapping[str, tuple[str, ...]] = {
    Metric.STEP_SECONDS: ("sequence", "precision", "global_batch", "devices"),
    Metric.TOKENS_PER_SECOND: ("sequence", "precision"),
    Metric.SAMPLES_PER_SECOND: ("sequence", "precision", "global_batch"),
    Metric.TIME_TO_TRAIN: ("benchmark", "global_batch", "sequence", "precision"),
    SERVING: ("request_rate", *_LENGTHS),
    KERNELS: (),
}
# A rate of all devices together is of as many, where their number is known.
_ALSO: Mapping[str, tuple[str, ...]] = {Metric.SAMPLES_PER_SECOND: ("devices",)}
_BY_THE_RULES = ("sequence", "precision")
ALLOWABLE = tuple(
    dict.fromkeys(("model", *_SHAPE, *(name for names in _WORK.values() for name in names), *_LOAD))
)


def differences(
    a: Sequence[Run], b: Sequence[Run], metric: str, allowed: Iterable[str]
) -> tuple[Difference, ...]:
    """Return the differences that refuse first, then those that are only shown."""
    names, refused = set(allowed), _model(a, b, metric)
    for name in _WORK[metric]:
        if not _agree(name, a, b):
            refused[name] = _text(name, a), _text(name, b)
    is_ruled = metric is Metric.TIME_TO_TRAIN and not {"benchmark", "global_batch"} & set(refused)
    open_by_the_rules = _BY_THE_RULES if is_ruled and all(r.succeeded for r in (*a, *b)) else ()
    unlike = []
    for name, (a_value, b_value) in refused.items():
        is_open = name in open_by_the_rules and UNKNOWN in {a_value, b_value}
        is_allowed = not is_open and name in names
        unlike.append(
            Difference(name=name, a=a_value, b=b_value, refused=not is_open, allowed=is_allowed)
        )
    texts = ((name, _text(name, a), _text(name, b)) for name in _SHOWN if name not in refused)
    unlike += [Difference(name=name, a=one, b=other) for name, one, other in texts if one != other]
    return tuple(unlike)


def _text(name: str, runs: Sequence[Run]) -> str:
    """Return the values of a field in the runs of a side, in a few words."""
    values = ("" if (value := getattr(run, name)) is None else value for run in runs)
    texts = (f"{value:g}" if isinstance(value, float) else str(value) for value in values)
    return ("; " if name == "parallel" else ", ").join(sorted({text or UNKNOWN for text in texts}))


def _model(a: Sequence[Run], b: Sequence[Run], metric: str) -> dict[str, tuple[str, str]]:
    """Return the differences of two models.

    Every known fact of both has to agree, and they have to share a name or a number of parameters.
    """
    is_training = metric not in {SERVING, KERNELS}
    model = {
        name: (_text(name, a), _text(name, b))
        for name in ((*_SHAPE, *_ALSO.get(metric, ())) if is_training else _LOAD)
        if _agree(name, a, b) is False
    }
    shared = any(_agree(name, a, b) for name in _IDENTITY)
    if is_training and not shared and not model:
        model["model"] = (_text("model", a), _text("model", b))
    return model


def _agree(name: str, a: Sequence[Run], b: Sequence[Run]) -> bool | None:
    """Return whether both sides have one value, None where a run has none. Counts of parameters
    are often rounded.
    """
    values = [getattr(run, name) for run in (*a, *b)]
    if None in values:
        return None
    if name in _NEAR:
        return bool(max(values) <= min(values) * (1 + _NEAR[name]))
    return len(set(values)) == 1


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
