"""The work of the attention session's children: a case of a tier, computed and judged."""

from __future__ import annotations

import importlib
import re
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.attention.backends import FUSED, RefusedError, Tier
from warpfront_checks.cases.bounds import judge
from warpfront_checks.cases.measured import Limits
from warpfront_checks.executing import differentiated
from warpfront_checks.precision import DTYPES, require_full_precision

COMPUTED, REFUSED, WRONG, ANOTHER = "computed", "refused", "wrong", "another kernel"
_ACTIVITIES = {"cuda": "CUDA", "xpu": "XPU"}
_FATAL = re.compile(r"(CUDA|HIP) error|illegal memory|device-side assert|unspecified launch")
_SHOWN = 3
_WARM = 2
# What a library refuses with; anything else that it raises is a fault of its own.
_REFUSALS = (RefusedError, NotImplementedError, RuntimeError, ValueError, TypeError, ImportError)

Compute = Callable[..., Tensor]


def do_item(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Judge or time a case."""
    require_full_precision()
    module, _, name = item["tier"].compute.partition(":")
    compute: Compute = getattr(importlib.import_module(module), name)
    case_inputs = _CaseInputs(item)
    if item["tier"].compiled:
        # Of more shapes than torch allows of one program, the rest runs as it is written: on an
        # H100 8 of 16 cases did.
        torch._dynamo.reset()  # noqa: SLF001 - the way that torch documents
    try:
        if item["timed"]:
            durations = []
            for _ in range(_WARM + item["repetitions"]):
                start = time.perf_counter()
                case_inputs.run(compute, case_inputs.device, case_inputs.dtype)
                _settle(case_inputs.device)
                durations.append(time.perf_counter() - start)
            seconds = statistics.median(durations[_WARM:])
            return {"outcome": COMPUTED, "seconds": seconds}
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
    names, outputs = _profiled(lambda: case_inputs.run(compute, device, dtype), device)
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
    if not _its_own(tier, names, device):
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


def _its_own(tier: Tier, names: list[str], device: str) -> bool:
    pattern = re.compile(tier.kernels if device in _ACTIVITIES else tier.operators)
    fused = tier.name == "sdpa math" and any(FUSED.search(name) for name in names)
    return any(pattern.search(name) for name in names) and not fused


def _profiled(
    work: Callable[[], tuple[Tensor, ...]], device: str
) -> tuple[list[str], tuple[Tensor, ...]]:
    """Return names of what ran, slowest first: kernels of a profiled device, else operators."""
    activity = torch.profiler.ProfilerActivity
    on_device = device in _ACTIVITIES
    more = [getattr(activity, _ACTIVITIES[device])] if on_device else []
    with torch.profiler.profile(activities=[activity.CPU, *more]) as profile:
        outputs = work()
        _settle(device)
    spent: dict[str, float] = {}
    for event in profile.events() or ():
        is_device_event = "CPU" not in str(event.device_type)
        if is_device_event == on_device:
            times = event.time_range.elapsed_us()
            spent[event.name] = spent.get(event.name, 0.0) + float(times)
    return sorted(spent, key=spent.__getitem__, reverse=True), outputs


def _settle(device: str) -> None:
    if device != "cpu":
        getattr(torch, device).synchronize()
