"""The `attention` session: every way to compute attention, with every kind of case, each in a child
process: computed, refused with a reason, wrong, crashed, hung, or silently by another's kernel.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from warpfront_checks.children import Returned, begin_beside, each_in_a_child, lanes_for
from warpfront_checks.claims import Claims
from warpfront_checks.results import (
    CheckFinding,
    Find,
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
_TIMED = {"width": 64, "mask": "causal", "heads": 8, "grouped": 8, "backward": True, "timed": True}
BAD = (WRONG, "crashed", "hung", ANOTHER)


# By the name of a backend: for each case its title, and what a child answered or how it ended.
Runs = dict[str, list[dict[str, Any]]]


def title_of(case: Mapping[str, Any]) -> str:
    """Return a case in words."""
    heads = "grouped" if case["grouped"] != case["heads"] else "equal heads"
    way = "backward" if case["backward"] else "forward"
    return f"{case['dtype']} width {case['width']}, {case['mask']}, {heads}, {way}"


def record_attention(
    claims: Claims,
    recorder: Recorder,
    effort: CheckOptions = USUAL,
    *,
    tiers: Sequence[Tier] = tuple(TIERS.values()),
) -> None:
    """Record one check for each backend that is present, and one for the order of their speed."""
    attention: Any = torch.nn.attention
    listed: list[object] = getattr(attention, "list_flash_attention_impls", list)()
    recorder.environment["flash implementations"] = [str(name) for name in listed]
    device = claims.device
    checks: dict[str, Find | str] = {f"tier {each.name}": each.absence(device) for each in tiers}
    present = [tier for tier in tiers if not tier.absence(device)]
    runs_by_tier: Runs = {}
    for tier in present:
        items = list(cases_of(tier, device, effort))
        seconds = COMPILED_SECONDS if tier.compiled else CASE_SECONDS
        returned = _children(device, items, seconds, 1 if effort.quick else tier.lanes)
        checks[f"tier {tier.name}"] = partial(find_tier, tier, returned, runs_by_tier)
    folder = recorder.path.parent
    parameters = {**_TIMED, "dtype": DTYPES_OF[device][0], "length": TIMED_LENGTHS[device]}

    def timings(correct: Sequence[Tier]) -> Iterator[tuple[Tier, Returned]]:
        """Time all backends one after the other in one child, which starts once."""
        items = [_item(tier, device, effort, **parameters) for tier in correct]
        return zip(correct, _children(device, items, COMPILED_SECONDS), strict=True)

    # With --quick, in parallel with the cases: most of the time is start-up and compiling.
    early = timings(present) if effort.quick else None
    times = (lambda _: early) if early else timings
    order = partial(_find_order, present, claims, times, runs_by_tier, folder)
    recorder.run({**checks, "order": order})
    # Every case of every backend, for readers who need more than the checks.
    table = [
        {"tier": name, **{key: run[key] for key in ("case", "outcome", "reason")}}
        for name, runs in runs_by_tier.items()
        for run in runs
    ]
    write_json(folder / "attention-table.json", table)


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


def _children(
    device: str, items: Sequence[Any], seconds: float, lanes: int = 1
) -> Iterator[Returned]:
    """Begin children at once where a device is for several: most of their time is their start."""
    if device != "cuda":
        return each_in_a_child(CHILD, items, seconds=seconds, environment=QUIET)
    lanes = max(1, min(lanes, lanes_for(device)))
    children = begin_beside(CHILD, items, lanes=lanes, seconds=seconds, environment=QUIET)
    return (answer.result() for answer in children.answers)


def find_tier(tier: Tier, returned: Iterable[Returned], runs_by_tier: Runs) -> CheckFinding:
    """A refusal is an answer; what is wrong, crashes, hangs or is another's kernel is none."""
    runs_by_tier[tier.name] = runs = [
        {
            "outcome": each.outcome,
            "reason": each.reason,
            **each.document,
            "case": title_of(each.item),
        }
        for each in returned
    ]
    counts = Counter(run["outcome"] for run in runs)
    refusals = Counter(run["reason"] for run in runs if run["outcome"] == REFUSED)
    details: dict[str, object] = {
        "outcomes": dict(counts),
        "refused": dict(refusals),
        "kernels": sorted({name for run in runs for name in run.get("kernels", ())[:1]}),
        "largest_share": max((run.get("share", 0.0) for run in runs), default=0.0),
    }
    bad = ["{case}: {outcome}: {reason}".format(**run) for run in runs if run["outcome"] in BAD]
    if bad:
        details["bad"] = bad[:12]
    summary = f"{counts[COMPUTED]} of {len(runs)} cases computed"
    summary = f"{summary}, {counts[REFUSED]} refused" if refusals else summary
    return judged(bad, summary, **details)


def _find_order(
    present: Sequence[Tier],
    claims: Claims,
    timings: Callable[[Sequence[Tier]], Iterator[tuple[Tier, Returned]]],
    runs_by_tier: Runs,
    folder: Path,
) -> CheckFinding:
    """Return the time of each backend that was always right; write the example from it."""
    outcomes = {name: {run["outcome"] for run in runs} for name, runs in runs_by_tier.items()}
    correct = [name for name, each in outcomes.items() if COMPUTED in each and not each & {*BAD}]
    timed = timings([tier for tier in present if tier.name in correct])
    took = {tier.name: float(each.document.get("seconds", 0)) for tier, each in timed}
    measured = [(name, took[name]) for name in correct if took[name]]
    if not measured:
        return failed("no way to compute attention was right here")
    (folder / EXAMPLE).write_text(fallback_text(claims.target, measured), encoding="utf-8")
    ordered = sorted(measured, key=lambda pair: pair[1])
    summary = ", ".join(f"{name} {1000 * seconds:.3g} ms" for name, seconds in ordered)
    summary = f"{DTYPES_OF[claims.device][0]}, forward and backward: {summary}"
    return passed(summary, seconds_of=dict(ordered))


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
    parts, functions = [_PARTS["head"].format(target=target, measured=f"{times}\n")], []
    for name in fastest:
        module = name.replace("-", "_")
        functions.append(f"by_{module.replace(' ', '_')}")
        kind = "dot product" if name in _BACKENDS else "flex" if name == "flex" else "library"
        values = {"function": functions[-1], "backend": _BACKENDS.get(name), "module": module}
        parts.append(_PARTS[kind].format(**values))
    return "\n".join([*parts, _PARTS["tail"].format(names=", ".join(functions))])
