"""Attention backends, in the expected order of speed. Each takes (batch, heads, length, width)
tensors; `present` is the reason for a missing one, `kernels` and `operators` are names of its work
on a device and on the CPU.
"""

from __future__ import annotations

import importlib
import re
import statistics
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.bench.rounds import Clock
from warpfront_checks.cases.bounds import judge
from warpfront_checks.cases.measured import Limits
from warpfront_checks.documents import packaged
from warpfront_checks.executing import ACTIVITIES, differentiated, profiled, synchronise
from warpfront_checks.precision import DTYPES

MASKS = ("none", "causal", "mask")


class RefusedError(Exception):
    """A tier does not take a case; the message is its own reason."""


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A backend. `compute` is `module:function` of (q, k, v, kind of mask, mask), so that a
    child can find it. `compiled` ones get fewer cases: each new shape is compiled. `lanes` children
    run its cases, each of which starts slowly, if there are cores for them.
    """

    name: str
    compute: str
    kernels: str
    devices: tuple[str, ...]
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


def _dot_product(backend: str) -> Callable[..., Tensor]:
    def compute(q: Tensor, k: Tensor, v: Tensor, kind: str, mask: Tensor | None) -> Tensor:
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
                raise RefusedError(_why(caught) or str(error)) from error

    return compute


def _why(caught: list[warnings.WarningMessage]) -> str:
    """Return torch's reason against a kernel: the last warning on this one."""
    texts = [re.sub(r"\s*\(Triggered internally.*", "", str(warning.message)) for warning in caught]
    reasons = [text for text in texts if "kernel not used because" not in text]
    return "; ".join(dict.fromkeys(reasons))[:300]


flash = _dot_product("FLASH_ATTENTION")
efficient = _dot_product("EFFICIENT_ATTENTION")
cudnn = _dot_product("CUDNN_ATTENTION")
composed = _dot_product("MATH")


def _swapped(module: str) -> Callable[..., Tensor]:
    """Both libraries take (batch, length, heads, width), and no mask but the causal one."""

    def compute(q: Tensor, k: Tensor, v: Tensor, kind: str, mask: Tensor | None) -> Tensor:
        if mask is not None:
            raise RefusedError(f"{module}.flash_attn_func takes no mask")
        library: Any = importlib.import_module(module)
        swapped = [x.transpose(1, 2) for x in (q, k, v)]
        output = library.flash_attn_func(*swapped, causal=kind == "causal")
        return (output[0] if isinstance(output, tuple) else output).transpose(1, 2)

    return compute


aiter_attention, flash_attn = _swapped("aiter"), _swapped("flash_attn")


def flex(q: Tensor, k: Tensor, v: Tensor, kind: str, mask: Tensor | None) -> Tensor:
    if mask is not None:
        raise RefusedError("not tried: a mask is code here, not a tensor")
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
_REFUSALS = (RefusedError, NotImplementedError, RuntimeError, ValueError, TypeError, ImportError)

Compute = Callable[..., Tensor]


def do_item(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Judge or time a case."""
    module, _, name = item["tier"].compute.partition(":")
    compute: Compute = getattr(importlib.import_module(module), name)
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
