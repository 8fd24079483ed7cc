"""The facts that must be equal for two sides to have done the same work. Pure.

A fact that differs or is unknown refuses a comparison, unless its name is allowed; the rest is
shown. The rules of a benchmark make its time to train comparable. Where both sides reached its
target with the same global batch, an unlogged number format or sequence is shown only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from warpfront.bench.records import Difference, Metric, Run

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
    values = {getattr(run, name) for run in runs}
    if name == "parallel":
        return "; ".join(sorted({str(value) or UNKNOWN for value in values}))
    words = sorted(
        UNKNOWN if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        for value in values
    )
    return ", ".join(words)


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
