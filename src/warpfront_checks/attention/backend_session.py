"""The `attention` session: every way to compute attention, with every kind of case, each in a child
process: computed, refused with a reason, wrong, crashed, hung, or silently by another's kernel.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from warpfront_checks.attention.backends import (
    ANOTHER,
    COMPUTED,
    MASKS,
    REFUSED,
    TIERS,
    WRONG,
    Tier,
)
from warpfront_checks.check_options import USUAL, CheckOptions
from warpfront_checks.children import DONE, Returned, begin_beside, each_in_a_child, lanes_for
from warpfront_checks.claims import Claims
from warpfront_checks.results import (
    Check,
    CheckFinding,
    Recorder,
    failed,
    judged,
    passed,
    write_json,
)

CHILD = "warpfront_checks.attention.backends:do_item"
EXAMPLE = "attention_example.py"
WIDTHS, HEADS, GROUPED, BATCH = (64, 96, 128, 256, 512), 4, 2, 2
# An odd length, so that no tile is full.
LENGTHS = {"cpu": 65, "cuda": 129, "hpu": 129, "xpu": 129}
TIMED_LENGTHS = {"cpu": 512, "cuda": 2048, "hpu": 2048, "xpu": 2048}
DTYPES_OF = {
    "cpu": ("float32", "bfloat16"),
    "cuda": ("bfloat16", "float16", "float32"),
    "hpu": ("bfloat16", "float32"),
    "xpu": ("bfloat16", "float16", "float32"),
}
CASE_SECONDS, COMPILED_SECONDS = 120.0, 300.0
# torch 2.13's profiler else prints two lines for each operation.
QUIET = {"OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "99"}
REPETITIONS, QUICK_REPETITIONS = 7, 3
_TIMED = {
    "width": 64,
    "mask": "causal",
    "heads": 8,
    "grouped": 8,
    "backward": True,
    "timed": True,
}
BAD = (WRONG, "crashed", "hung", ANOTHER)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A case of a backend and its result."""

    case: Mapping[str, Any]
    outcome: str
    reason: str = ""
    kernels: Sequence[str] = ()
    share: float = 0.0

    @property
    def title(self) -> str:
        heads = "grouped" if self.case["grouped"] != self.case["heads"] else "equal heads"
        way = "backward" if self.case["backward"] else "forward"
        case = self.case
        return f"{case['dtype']} width {case['width']}, {case['mask']}, {heads}, {way}"


Runs = dict[str, list[Ran]]


def record_attention(claims: Claims, recorder: Recorder, effort: CheckOptions = USUAL) -> None:
    """Record one check for each backend that is present, and one for the order of their speed."""
    record_tiers(claims, recorder, effort, tuple(TIERS.values()))


def record_tiers(
    claims: Claims, recorder: Recorder, effort: CheckOptions, tiers: Sequence[Tier]
) -> None:
    attention: Any = torch.nn.attention
    listed: list[object] = getattr(attention, "list_flash_attention_impls", list)()
    recorder.environment["flash implementations"] = [str(name) for name in listed]
    present = []
    for tier in tiers:
        if absent := tier.absence(claims.device):
            recorder.note_unclaimed(f"tier {tier.name}", absent)
        else:
            present.append(tier)
    runs_by_tier: Runs = {}
    returned_by_tier = [
        _children(
            claims.device,
            list(cases_of(tier, claims.device, effort)),
            COMPILED_SECONDS if tier.compiled else CASE_SECONDS,
            1 if effort.quick else tier.lanes,
        )
        for tier in present
    ]
    checks = [
        Check(name=f"tier {tier.name}", find=partial(_find_tier, tier, returned, runs_by_tier))
        for tier, returned in zip(present, returned_by_tier, strict=True)
    ]
    folder = recorder.path.parent
    time_tiers = partial(_time_tiers, claims.device, effort)
    # With --quick, in parallel with the cases: most of the time is start-up and compiling.
    early = time_tiers(present) if effort.quick else None

    def timings(correct: Sequence[Tier]) -> Iterator[tuple[Tier, Returned]]:
        return early or time_tiers(correct)

    order = partial(_find_order, present, claims, timings, runs_by_tier, folder)
    recorder.run([*checks, Check(name="order", find=order)])
    write_json(folder / "attention-table.json", _table(runs_by_tier))


def cases_of(tier: Tier, device: str, effort: CheckOptions) -> Iterator[dict[str, Any]]:
    """Return all cases, few where each shape is compiled; quickly each two values of two once."""
    axes: tuple[tuple[Any, ...], ...] = (
        DTYPES_OF[device][: 1 if tier.compiled else None],
        (64, 128) if tier.compiled else WIDTHS,
        MASKS[:2] if tier.compiled else MASKS,
        (HEADS, GROUPED),
        (False, True),
    )
    for dtype, width, mask, grouped, backward in (
        pairwise_product(axes) if effort.quick else itertools.product(*axes)
    ):
        parameters = {"dtype": dtype, "width": width, "mask": mask, "grouped": grouped}
        yield _item(tier, device, effort, **parameters, backward=backward)


def pairwise_product(axes: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """Return rows of the product, by most new pairs, in which all two values of two axes meet."""
    rows = [
        (row, {(i, j, row[i], row[j]) for i in range(len(row)) for j in range(i)})
        for row in itertools.product(*axes)
    ]
    missing = {pair for _, pairs in rows for pair in pairs}
    while missing:
        row, pairs = max(rows, key=lambda row: len(row[1] & missing))
        missing -= pairs
        yield row


def _item(tier: Tier, device: str, effort: CheckOptions, **parameters: Any) -> dict[str, Any]:
    usual = {"batch": BATCH, "heads": HEADS, "length": LENGTHS[device], "timed": False}
    usual["repetitions"] = QUICK_REPETITIONS if effort.quick else REPETITIONS
    return {**usual, "tier": tier, "device": device, "seed": effort.seeds[0], **parameters}


def _find_tier(tier: Tier, returned: Iterator[Returned], runs_by_tier: Runs) -> CheckFinding:
    runs_by_tier[tier.name] = runs = [_ran(one) for one in returned]
    return finding_of_tier(runs)


def _children(
    device: str, items: Sequence[Any], seconds: float, lanes: int = 1
) -> Iterator[Returned]:
    """Begin children at once where a device is for several: most of their time is their start."""
    if device != "cuda":
        return each_in_a_child(CHILD, items, seconds=seconds, environment=QUIET)
    lanes = max(1, min(lanes, lanes_for(device)))
    begun = begin_beside(CHILD, items, lanes=lanes, seconds=seconds, environment=QUIET)
    return (answer.result() for answer in begun.answers)


def _ran(returned: Any) -> Ran:
    ended = {"outcome": returned.outcome, "reason": returned.reason}
    return Ran(case=returned.item, **(returned.document if returned.outcome == DONE else ended))


def finding_of_tier(runs: Sequence[Ran]) -> CheckFinding:
    """A refusal is an answer; what is wrong, crashes, hangs or is another's kernel is none."""
    counts = Counter(run.outcome for run in runs)
    refusals = Counter(run.reason for run in runs if run.outcome == REFUSED)
    details: dict[str, object] = {
        "outcomes": dict(counts),
        "refused": dict(refusals),
        "kernels": sorted({name for run in runs for name in run.kernels[:1]}),
        "largest_share": max((run.share for run in runs), default=0.0),
    }
    bad = [f"{run.title}: {run.outcome}: {run.reason}" for run in runs if run.outcome in BAD]
    if bad:
        details["bad"] = bad[:12]
    summary = f"{counts[COMPUTED]} of {len(runs)} cases computed"
    summary = f"{summary}, {counts[REFUSED]} refused" if refusals else summary
    return judged(bad, summary, **details)


def _time_tiers(
    device: str, effort: CheckOptions, tiers: Sequence[Tier]
) -> Iterator[tuple[Tier, Returned]]:
    """Time all backends one after the other in one child, which starts once."""
    parameters = {**_TIMED, "dtype": DTYPES_OF[device][0], "length": TIMED_LENGTHS[device]}
    items = [_item(tier, device, effort, **parameters) for tier in tiers]
    return zip(tiers, _children(device, items, COMPILED_SECONDS), strict=True)


def _find_order(
    present: Sequence[Tier],
    claims: Claims,
    timings: Callable[[Sequence[Tier]], Iterator[tuple[Tier, Returned]]],
    runs_by_tier: Mapping[str, Sequence[Ran]],
    folder: Path,
) -> CheckFinding:
    """Return the time of each backend that was always right; write the example from it."""
    correct = [tier for tier in present if _is_right(runs_by_tier.get(tier.name, ()))]
    timed = timings(correct)
    took = {tier.name: float(each.document.get("seconds", 0)) for tier, each in timed}
    measured = [(tier.name, took[tier.name]) for tier in correct if took[tier.name]]
    if not measured:
        return failed("no way to compute attention was right here")
    (folder / EXAMPLE).write_text(fallback_text(claims.target, measured), encoding="utf-8")
    ordered = sorted(measured, key=lambda pair: pair[1])
    summary = ", ".join(f"{name} {1000 * seconds:.3g} ms" for name, seconds in ordered)
    summary = f"{DTYPES_OF[claims.device][0]}, forward and backward: {summary}"
    return passed(summary, seconds_of=dict(ordered))


def _is_right(runs: Sequence[Ran]) -> bool:
    return any(r.outcome == COMPUTED for r in runs) and not any(r.outcome in BAD for r in runs)


def _table(runs_by_tier: Mapping[str, Sequence[Ran]]) -> list[dict[str, Any]]:
    """Return every case of every backend, for readers who need more than the checks."""
    return [
        {"tier": tier, "case": run.title, "outcome": run.outcome, "reason": run.reason}
        for tier, runs in runs_by_tier.items()
        for run in runs
    ]


# By name, the parts of the example that is written.
_PARTS: Mapping[str, str] = dict(
    re.findall(
        r"^=== (.+)\n((?:(?!=== ).*\n)*)",
        Path(__file__).with_name("fallback.txt").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
)
_BACKENDS: Mapping[str, str] = {
    "sdpa flash": "FLASH_ATTENTION",
    "sdpa efficient": "EFFICIENT_ATTENTION",
    "sdpa cudnn": "CUDNN_ATTENTION",
    "sdpa math": "MATH",
}
MOST_TIERS = 3


def fallback_text(target: str, measured: Sequence[tuple[str, float]]) -> str:
    """Return Python for the fastest of `measured` (tier and seconds, any order): three, and the
    plain way last where it is not among them, since it takes every case.
    """
    ordered = sorted(measured, key=lambda pair: pair[1])
    fastest = [name for name, _ in ordered][:MOST_TIERS]
    if "sdpa math" not in fastest and any(name == "sdpa math" for name, _ in ordered):
        fastest = [*fastest[: MOST_TIERS - 1], "sdpa math"]
    times = "\n".join(f"* {name}: {1000 * seconds:.3g} ms" for name, seconds in ordered)
    parts = [_PARTS["head"].format(target=target, measured=f"{times}\n"), *map(_way, fastest)]
    names = ", ".join(map(_function, fastest))
    return "\n".join([*parts, _PARTS["tail"].format(names=names)])


def _way(name: str) -> str:
    if name == "flex":
        return _PARTS["flex"].format(function=_function(name))
    if name in _BACKENDS:
        return _PARTS["dot product"].format(function=_function(name), backend=_BACKENDS[name])
    return _PARTS["library"].format(function=_function(name), module=name.replace("-", "_"))


def _function(name: str) -> str:
    return f"by_{name.replace(' ', '_').replace('-', '_')}"
