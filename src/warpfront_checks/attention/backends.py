"""The `attention` session: every way to compute attention, with every kind of case, each in a child
process: computed, refused with a reason, wrong, crashed, hung, or silently by another's kernel.
"""

from __future__ import annotations

import re
import statistics
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import torch

from warpfront_checks.attention.provider import (
    DTYPES_OF,
    PARTS,
    TIERS,
    Tier,
    case_of,
    cases_of,
    item_of,
    title_of,
)
from warpfront_checks.bench.rounds import Clock
from warpfront_checks.cases.bounds import Verdict
from warpfront_checks.cases.case import Case
from warpfront_checks.cases.measured import ByPeer
from warpfront_checks.cases.report import described, least_sizes
from warpfront_checks.cases.run import (
    LackingError,
    compared,
    execute,
    names_of,
    reference_of,
    results_of,
)
from warpfront_checks.cases.session import fault_of
from warpfront_checks.check_options import USUAL, CheckOptions
from warpfront_checks.children import Returned, begin_beside, each_in_a_child, lanes_for
from warpfront_checks.claims import Claims
from warpfront_checks.executing import ACTIVITIES, Watched, profiled, synchronise
from warpfront_checks.results import (
    CheckFinding,
    Find,
    Recorder,
    failed,
    judged,
    passed,
    write_json,
)

# What no kernel of the plain way is called, and no operator.
FUSED = re.compile(r"flash|fmha|efficient_attention|cudnn_attention|attn_fwd|cutlassF")

COMPUTED, REFUSED, WRONG, ANOTHER = "computed", "refused", "wrong", "another kernel"
_FATAL = re.compile(r"(CUDA|HIP) error|illegal memory|device-side assert|unspecified launch")
_SHOWN = 3
_WARM = 2
# What a library refuses with; anything else that it raises is a fault of its own.
_REFUSALS = (LackingError, RuntimeError, ValueError, TypeError, ImportError)
# Tiers of which this process has described a wrong case.
_DESCRIBED: set[str] = set()


def do_item(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Judge or time a case."""
    case, tier = case_of(item), item["tier"]
    if tier.compiled:
        # Of more shapes than torch allows of one program, the rest runs as it is written: on an
        # H100 8 of 16 cases did.
        torch._dynamo.reset()  # noqa: SLF001 - the way that torch documents
    try:
        if "repetitions" in item:
            clock = Clock(partial(synchronise, case.device), None)
            times = clock.times(_call_of(case), _WARM + item["repetitions"])
            return {"outcome": COMPUTED, "seconds": statistics.median(times[_WARM:])}
        return _judged(case, item)
    except _REFUSALS as error:
        refusal = error.__cause__ or error if isinstance(error, LackingError) else error
        if _FATAL.search(str(refusal)):
            raise
        reason = _why(case) if "o available kernel" in str(refusal) else ""
        return {"outcome": REFUSED, "reason": f"{reason or ' '.join(str(refusal).split())[:300]}"}


def _call_of(case: Case) -> partial[None]:
    """Return the call of a case, of numbers on the device; its gradient is the queries'."""
    names = names_of(case)
    execute([*case.inputs(), "fed = a", *case.sent()], names)
    return partial(execute, case.call(), names)


def _why(case: Case) -> str:
    """Return torch's reason against a kernel: the last warning on this one."""
    with warnings.catch_warnings(record=True) as caught, suppress(RuntimeError):
        warnings.simplefilter("always")
        _call_of(case)()
    texts = [re.sub(r"\s*\(Triggered internally.*", "", str(warning.message)) for warning in caught]
    reasons = [text for text in texts if "kernel not used because" not in text]
    return "; ".join(dict.fromkeys(reasons))[:300]


def _judged(case: Case, item: Mapping[str, Any]) -> dict[str, Any]:
    """Judge a case's tensors, then by which kernels they were computed."""
    # The definition is none of the judged kernels, also where float64 is the CPU's own.
    reference, tier = reference_of(case, nullcontext()), item["tier"]
    call = partial(results_of, case, reference)
    if on_device := case.device in ACTIVITIES:
        spent, results = profiled(call, case.device)
        names = sorted(spent, key=spent.__getitem__, reverse=True)
    else:
        ran: dict[str, None] = {}
        with Watched(lambda operator, _: ran.setdefault(str(operator))):
            results = call()
        names = [*ran]
    document: dict[str, Any] = {"outcome": COMPUTED, "reason": "", "kernels": names[:_SHOWN]}
    verdicts = list(compared(results, ByPeer(case, reference)))
    document["share"] = max(float(f"{verdict.used:.3g}") for verdict in verdicts)
    if worst := next((verdict for verdict in verdicts if verdict.fault), None):
        reason = f"{worst.name}: {worst.fault}"
        document |= {} if tier.name in _DESCRIBED else _shown(item, worst)
        _DESCRIBED.add(tier.name)
        return {**document, "outcome": WRONG, "reason": reason}
    pattern = re.compile(tier.kernels if on_device else tier.operators)
    fused = tier.name == "sdpa math" and any(map(FUSED.search, names))
    if fused or not any(map(pattern.search, names)):
        reason = f"not its own kernel: {', '.join(names[:_SHOWN])}"
        return {**document, "outcome": ANOTHER, "reason": reason}
    return document


def _shown(item: Mapping[str, Any], worst: Verdict) -> dict[str, object]:
    """Return a wrong case made small, as lines and as the axes that make it again."""
    case, fails = case_of(item), partial(fault_of, bounds=ByPeer)
    if not item["tier"].compiled:
        case = least_sizes(case, fails)
    sizes = zip(("batch", "heads", "length", "width"), case.arguments[0].shape, strict=True)
    grouped, backward = case.arguments[1].shape[1], bool(case.leaves)
    small = {**item, **dict(sizes), "grouped": grouped, "backward": backward}
    report = list(described(case, fails(case) or worst))
    return {"case": {**small, "tier": item["tier"].name}, "report": report}


CHILD = "warpfront_checks.attention.backends:do_item"
EXAMPLE = "attention_example.py"
TIMED_LENGTHS = {"cpu": 512, "cuda": 2048, "hpu": 2048, "xpu": 2048}
CASE_SECONDS, COMPILED_SECONDS = 120.0, 300.0
# torch 2.13's profiler else prints two lines for each operation.
QUIET = {"OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "99"}
REPETITIONS, QUICK_REPETITIONS = 7, 3
_TIMED = {"width": 64, "mask": "causal", "heads": 8, "grouped": 8, "backward": True}
BAD = (WRONG, "crashed", "hung", ANOTHER)


# By the name of a backend: for each case its title, and what a child answered or how it ended.
Runs = dict[str, list[dict[str, Any]]]


def record_attention(claims: Claims, recorder: Recorder, effort: CheckOptions = USUAL) -> None:
    """Record one check for each backend that is present, and one for the order of their speed."""
    attention: Any = torch.nn.attention
    listed: list[object] = getattr(attention, "list_flash_attention_impls", list)()
    recorder.environment["flash implementations"] = [str(name) for name in listed]
    device = claims.device
    checks: dict[str, Find | str] = {f"tier {n}": tier.absence(device) for n, tier in TIERS.items()}
    present = [tier for tier in TIERS.values() if not tier.absence(device)]
    runs_by_tier: Runs = {}
    for tier in present:
        items = list(cases_of(tier, device, effort))
        seconds = COMPILED_SECONDS if tier.compiled else CASE_SECONDS
        returned = _children(device, items, seconds, 1 if effort.quick else tier.lanes)
        checks[f"tier {tier.name}"] = partial(find_tier, tier, returned, runs_by_tier)
    folder = recorder.path.parent
    parameters = {**_TIMED, "repetitions": QUICK_REPETITIONS if effort.quick else REPETITIONS}
    parameters |= {"dtype": DTYPES_OF[device][0], "length": TIMED_LENGTHS[device]}

    def timings(correct: Sequence[Tier]) -> Iterator[tuple[Tier, Returned]]:
        """Time all backends one after the other in one child, which starts once."""
        items = [item_of(tier, device, effort, **parameters) for tier in correct]
        return zip(correct, _children(device, items, COMPILED_SECONDS), strict=True)

    # With --quick, in parallel with the cases: most of the time is start-up and compiling.
    early = timings(present) if effort.quick else None

    def order() -> CheckFinding:
        """Return the time of each backend that was always right; write the example from it."""
        outcomes = {name: {run["outcome"] for run in runs} for name, runs in runs_by_tier.items()}
        correct = [n for n, each in outcomes.items() if COMPUTED in each and not each & {*BAD}]
        timed = early or timings([tier for tier in present if tier.name in correct])
        took = {tier.name: float(each.document.get("seconds", 0)) for tier, each in timed}
        measured = [(name, took[name]) for name in correct if took[name]]
        if not measured:
            return failed("no way to compute attention was right here")
        (folder / EXAMPLE).write_text(fallback_text(claims.target, measured), encoding="utf-8")
        ordered = sorted(measured, key=lambda pair: pair[1])
        summary = ", ".join(f"{name} {1000 * seconds:.3g} ms" for name, seconds in ordered)
        summary = f"{DTYPES_OF[device][0]}, forward and backward: {summary}"
        return passed(summary, seconds_of=dict(ordered))

    recorder.run({**checks, "order": order})
    # Every case of every backend, for readers who need more than the checks.
    table = [
        {"tier": name, "case": run["title"], "outcome": run["outcome"], "reason": run["reason"]}
        for name, runs in runs_by_tier.items()
        for run in runs
    ]
    write_json(folder / "attention-table.json", table)


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
            "title": title_of(each.item),
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
    wrong = next((run for run in runs if "report" in run), {})
    details |= {key: wrong[key] for key in ("case", "report") if key in wrong}
    bad = ["{title}: {outcome}: {reason}".format(**run) for run in runs if run["outcome"] in BAD]
    if bad:
        details["bad"] = bad[:12]
    summary = f"{counts[COMPUTED]} of {len(runs)} cases computed"
    summary = f"{summary}, {counts[REFUSED]} refused" if refusals else summary
    return judged(bad, summary, **details)


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
    functions = {name: f"by_{re.sub('[- ]', '_', name)}" for name in fastest}
    head = PARTS["head"].format(target=target, measured=f"{times}\n")
    tail = PARTS["tail"].format(names=", ".join(functions.values()))
    ways = (TIERS[name].function(function) for name, function in functions.items())
    return "\n".join([head, PARTS["imports"], *ways, tail])
