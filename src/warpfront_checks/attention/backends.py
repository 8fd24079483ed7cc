"""The `attention` session: every way to compute attention, with every kind of case, each in a child
process: computed, refused with a reason, wrong, crashed, hung, or silently by another's kernel.

Backends are in the expected order of speed. Each takes (batch, heads, length, width) tensors;
`absence` is the reason for a missing one, `kernels` and `operators` are names of its work on a
device and on the CPU.
"""

from __future__ import annotations

import importlib
import itertools
import re
import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.bench.rounds import Clock
from warpfront_checks.cases.bounds import judge
from warpfront_checks.cases.measured import Limits
from warpfront_checks.check_options import USUAL, CheckOptions
from warpfront_checks.children import Returned, begin_beside, each_in_a_child, lanes_for
from warpfront_checks.claims import Claims
from warpfront_checks.documents import packaged
from warpfront_checks.executing import ACTIVITIES, differentiated, profiled, synchronise
from warpfront_checks.precision import DTYPES
from warpfront_checks.results import (
    CheckFinding,
    Find,
    Recorder,
    failed,
    judged,
    passed,
    write_json,
)

MASKS = ("none", "causal", "mask")


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A backend. `compute` is `module:function` of (q, k, v, kind of mask, mask) and of `options`,
    so that a child can find it. `compiled` ones get fewer cases: each new shape is compiled.
    `lanes` children run its cases, each of which starts slowly, if there are cores for them.
    """

    name: str
    compute: str
    kernels: str
    devices: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    operators: str = r"^$"
    needs: str = ""
    compiled: bool = False
    lanes: int = 1

    def absence(self, device: str) -> str:
        """Return why the backend is unavailable, or nothing."""
        if device not in self.devices:
            return f"it is not for {device}"
        if self.needs and find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        return ""


def dot_product(
    q: Tensor, k: Tensor, v: Tensor, kind: str, mask: Tensor | None, *, backend: str
) -> Tensor:
    attention: Any = importlib.import_module("torch.nn.attention")
    options: dict[str, Any] = {"is_causal": kind == "causal", "attn_mask": mask}
    if q.shape[1] != k.shape[1]:
        options["enable_gqa"] = True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with attention.sdpa_kernel([getattr(attention.SDPBackend, backend)]):
                return functional.scaled_dot_product_attention(q, k, v, **options)
        except RuntimeError as error:
            if "o available kernel" not in str(error):
                raise
            raise NotImplementedError(_why(caught) or str(error)) from error


def _why(caught: list[warnings.WarningMessage]) -> str:
    """Return torch's reason against a kernel: the last warning on this one."""
    texts = [re.sub(r"\s*\(Triggered internally.*", "", str(warning.message)) for warning in caught]
    reasons = [text for text in texts if "kernel not used because" not in text]
    return "; ".join(dict.fromkeys(reasons))[:300]


def library(
    q: Tensor, k: Tensor, v: Tensor, kind: str, mask: Tensor | None, *, module: str
) -> Tensor:
    """Both libraries take (batch, length, heads, width), and no mask but the causal one."""
    if mask is not None:
        raise NotImplementedError(f"{module}.flash_attn_func takes no mask")
    swapped = [x.transpose(1, 2) for x in (q, k, v)]
    function = importlib.import_module(module).flash_attn_func
    output: Any = function(*swapped, causal=kind == "causal")
    return (output[0] if isinstance(output, tuple) else output).transpose(1, 2)


def flex(q: Tensor, k: Tensor, v: Tensor, kind: str, mask: Tensor | None) -> Tensor:
    if mask is not None:
        raise NotImplementedError("not tried: a mask is code here, not a tensor")
    module: Any = importlib.import_module("torch.nn.attention.flex_attention")

    def later(score: Tensor, _: Tensor, __: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return torch.where(row >= column, score, -float("inf"))

    compiled = torch.compile(module.flex_attention, dynamic=False)
    change = later if kind == "causal" else None
    return compiled(q, k, v, score_mod=change, enable_gqa=q.shape[1] != k.shape[1])


_ROWS = packaged("attention/backends.json")["tiers"]
TIERS: Mapping[str, Tier] = {
    row["name"]: Tier(**{**row, "devices": tuple(row.get("devices", ("cuda",)))}) for row in _ROWS
}
# What no kernel of the plain way is called, and no operator.
FUSED = re.compile(r"flash|fmha|efficient_attention|cudnn_attention|attn_fwd|cutlassF")


COMPUTED, REFUSED, WRONG, ANOTHER = "computed", "refused", "wrong", "another kernel"
_FATAL = re.compile(r"(CUDA|HIP) error|illegal memory|device-side assert|unspecified launch")
_SHOWN = 3
_WARM = 2
# What a library refuses with; anything else that it raises is a fault of its own.
_REFUSALS = (RuntimeError, ValueError, TypeError, ImportError)

Compute = Callable[..., Tensor]


def do_item(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Judge or time a case."""
    module, _, name = item["tier"].compute.partition(":")
    compute: Compute = getattr(importlib.import_module(module), name)
    compute = partial(compute, **item["tier"].options)
    case_inputs = _CaseInputs(item)
    if item["tier"].compiled:
        # Of more shapes than torch allows of one program, the rest runs as it is written: on an
        # H100 8 of 16 cases did.
        torch._dynamo.reset()  # noqa: SLF001 - the way that torch documents
    try:
        if item["timed"]:
            work = partial(case_inputs.run, compute, case_inputs.device, case_inputs.dtype)
            clock = Clock(partial(synchronise, case_inputs.device), None)
            times = clock.times(work, _WARM + item["repetitions"])
            return {"outcome": COMPUTED, "seconds": statistics.median(times[_WARM:])}
        return _judged(compute, case_inputs, item["tier"])
    except _REFUSALS as error:
        if _FATAL.search(str(error)):
            raise
        return {"outcome": REFUSED, "reason": f"{' '.join(str(error).split())[:300]}"}


class _CaseInputs:
    """The same numbers for every tier, rounded to what is sent."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        self.device, self.kind, self.backward = item["device"], item["mask"], item["backward"]
        self.dtype = DTYPES[item["dtype"]]
        names = ("batch", "length", "heads", "grouped", "width")
        batch, length, heads, grouped, width = (item[name] for name in names)
        generator = torch.Generator().manual_seed(item["seed"])
        shapes = [(batch, count, length, width) for count in (heads, grouped, grouped, heads)]
        tensors = [torch.randn(shape, generator=generator).to(self.dtype) for shape in shapes]
        *self.tensors, self.cotangent = tensors
        some = torch.rand(length, length, generator=generator) < 0.7
        self.mask = (some | torch.eye(length, dtype=torch.bool)) if self.kind == "mask" else None

    def run(self, compute: Compute, device: str, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Return the output and, of a case that goes backward, the gradients."""
        mask = None if self.mask is None else self.mask.to(device)

        def called(*inputs: Tensor) -> Tensor:
            return compute(*inputs, self.kind, mask)

        inputs = [x.to(device, dtype) for x in self.tensors]
        if not self.backward:
            return (called(*inputs),)
        return differentiated(called, inputs, self.cotangent.to(device, dtype))


def _judged(compute: Compute, case_inputs: _CaseInputs, tier: Tier) -> dict[str, Any]:
    """Judge a case's tensors by float64 and by the CPU's own in their dtype."""
    device, dtype = case_inputs.device, case_inputs.dtype
    spent, outputs = profiled(lambda: case_inputs.run(compute, device, dtype), device)
    names = sorted(spent, key=spent.__getitem__, reverse=True)
    document: dict[str, Any] = {"outcome": COMPUTED, "reason": "", "share": 0.0}
    document["kernels"] = names[:_SHOWN]
    exact, cpu = (case_inputs.run(plain, "cpu", kind) for kind in (torch.float64, dtype))
    for name, tensor, expected, peer in zip(
        ("output", "q", "k", "v"), outputs, exact, cpu, strict=False
    ):
        if tensor.shape != expected.shape or tensor.dtype != dtype or tensor.device.type != device:
            fault = f"{tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device.type}"
            return {**document, "outcome": WRONG, "reason": f"{name}: {fault}"}
        verdict = judge(
            tensor.double(), expected, Limits.by_cpu(tensor, expected, peer, dtype).bound
        )
        if verdict.fault:
            return {**document, "outcome": WRONG, "reason": f"{name}: {verdict.fault}"}
        document["share"] = max(document["share"], float(f"{verdict.used:.3g}"))
    pattern = re.compile(tier.kernels if device in ACTIVITIES else tier.operators)
    fused = tier.name == "sdpa math" and any(map(FUSED.search, names))
    if fused or not any(map(pattern.search, names)):
        reason = f"not its own kernel: {', '.join(names[:_SHOWN])}"
        return {**document, "outcome": ANOTHER, "reason": reason}
    return document


def plain(q: Tensor, k: Tensor, v: Tensor, kind: str, mask: Tensor | None) -> Tensor:
    """Compute attention by its definition; queries share heads of `k` and `v`."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if kind == "causal":
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


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
    parameters = {**_TIMED, "dtype": DTYPES_OF[device][0], "length": TIMED_LENGTHS[device]}

    def timings(correct: Sequence[Tier]) -> Iterator[tuple[Tier, Returned]]:
        """Time all backends one after the other in one child, which starts once."""
        items = [_item(tier, device, effort, **parameters) for tier in correct]
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


# By name, the parts of the example that is written.
_PARTS: Mapping[str, str] = dict(
    re.findall(
        r"^=== (.+)\n((?:(?!=== ).*\n)*)",
        Path(__file__).with_name("fallback.txt").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
)
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
        functions.append(f"by_{re.sub('[- ]', '_', name)}")
        part = _PARTS[TIERS[name].compute.rpartition(":")[2]]
        parts.append(part.format(function=functions[-1], **TIERS[name].options))
    return "\n".join([*parts, _PARTS["tail"].format(names=", ".join(functions))])
