"""A model with its inputs, made on the CPU, and the CPU's results: in float64 and in kind."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from warpfront_checks.cases.bounds import Verdict
from warpfront_checks.executing import tensors_in
from warpfront_checks.models.families import Family
from warpfront_checks.models.layers import Pick
from warpfront_checks.models.replaying import Precision, judge_whole
from warpfront_checks.models.watching import Pass, run_plainly
from warpfront_checks.operations import rounding_unit

# In float16 gradients would be too small to be normal numbers, so the loss is scaled; by a power of
# 2, which rounds nothing.
LOSS_SCALE = 1024.0
ROUNDED_DRAWS = 3
# Where a model chooses by number, the closest choice is this far from a tie (in standard deviations
# of what it chooses by): closer, and two correct devices may choose differently.
DECIDED = 0.1
_TRIES = 500


class UndecidedError(Exception):
    """No inputs were found whose choices are far enough from ties."""


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """A model and inputs on the CPU, as sent, never computed with; its results are cached."""

    family: str
    model: nn.Module
    inputs: tuple[Tensor, ...]
    precision: Precision

    @property
    def scale(self) -> float:
        return LOSS_SCALE if self.precision.dtype == torch.float16 else 1.0

    def sent(self, device: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """Return a fresh copy on a device, its floating inputs with gradients."""
        return copy.deepcopy(self.model).to(device), self._inputs(lambda x: x.to(device))

    @cached_property
    def exact(self) -> Pass:
        """The pass in float64, from the same rounded numbers."""
        model = copy.deepcopy(self.model).double()
        inputs = self._inputs(lambda x: x.double() if x.is_floating_point() else x.clone())
        return run_plainly(model, model, inputs, self.scale)

    @cached_property
    def same_dtype(self) -> Pass:
        """The pass on the CPU, as the device has to compute it."""
        model, inputs = self.sent("cpu")
        with self.precision.autocast("cpu"):
            return run_plainly(model, model, inputs, self.scale)

    def _inputs(self, change: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
        copies = tuple(change(x).detach().clone() for x in self.inputs)
        return tuple(x.requires_grad_() if x.is_floating_point() else x for x in copies)


_FUSED_BACKWARD = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"


class Rounded(TorchDispatchMode):
    """Whatever is computed in float64 is off by up to one rounding of a narrower dtype: what a
    correct device may make of it that rounds each step by itself.

    Of a fused attention's output each number is, for the backward, a whole rounding off, all to one
    side of the gradient. The kernel takes its product with the gradient from what was given to each
    key; keys are alike, and what that product is off by is multiplied by what they have in common.
    On an H200 the gradients of queries were 3 to 9 times as far off as with single steps, by that.
    """

    def __init__(self, unit: float, seed: int) -> None:
        super().__init__()
        self.unit, self.generator = unit, torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if operator.name() == _FUSED_BACKWARD:
            args = self._one_sided(*args)
        dispatch = operator(*args, **(kwargs or {}))
        schema = operator._schema  # noqa: SLF001 - the way to ask whether memory is shared
        if schema.is_mutable or any(argument.alias_info for argument in schema.returns):
            return dispatch
        for x in tensors_in(dispatch):
            if x.dtype == torch.float64 and x.layout == torch.strided:
                noise = torch.rand(x.shape, generator=self.generator, dtype=x.dtype) * 2 - 1
                # `.data`: autograd would take it for a change after the fact.
                x.data.mul_(1 + self.unit * noise)
        return dispatch

    def _one_sided(
        self, gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, *more: Any
    ) -> tuple[Any, ...]:
        side = torch.randint(2, (), generator=self.generator) * 2 - 1
        off = self.unit * side * output.abs() * gradient.sign()
        return gradient, q, k, v, output + off, *more


Wide = Callable[[], contextlib.AbstractContextManager[object]]


def judge_ends(
    passed: Pass, specimen: Specimen, wide: Wide = contextlib.nullcontext
) -> list[Verdict]:
    """Judge from end to end. If much cancels, the CPU's own errors may be small by luck: excess
    over their budget is compared with passes in float64, within `wide`, that round each step.
    """
    exact = specimen.exact
    rows = judge_whole(passed, exact, specimen.same_dtype, specimen.precision)
    for draw in range(ROUNDED_DRAWS if any(row.fault for row in rows) else 0):
        rounded = _rounded(specimen, draw, wide)
        second_rows = judge_whole(passed, exact, rounded, specimen.precision)
        pairs = zip(rows, second_rows, strict=True)
        rows = [second if mine.fault else mine for mine, second in pairs]
    return rows


def _rounded(specimen: Specimen, draw: int, wide: Wide) -> Pass:
    dtype, exact = specimen.precision.dtype, specimen.exact
    with wide(), Rounded(rounding_unit(dtype), draw):
        # A copy: the specimen has its exact pass already.
        passed = replace(specimen).exact
    own = specimen.precision.parameters
    gradients = {n: g.to(own) for n, g in passed.gradients.items() if n in exact.gradients}
    logits = passed.logits.to(specimen.same_dtype.logits.dtype)
    return replace(passed, logits=logits, gradients=gradients, loss=exact.loss)


def make_specimen(family: Family, precision: Precision, seed: int = 0) -> Specimen:
    """Return the same numbers on every machine, rounded to what is sent.

    Raises `UndecidedError` if every set of inputs comes too close to a tie.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = family.build()
    model = model.to(precision.parameters)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(_TRIES):
        drawn, dtype = family.inputs(generator), precision.parameters
        inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in drawn)
        specimen = Specimen(family=family.name, model=model, inputs=inputs, precision=precision)
        if _decided(specimen):
            return specimen
    raise UndecidedError(f"{family.name}: {_TRIES} sets of inputs are all close to a tie")


def _decided(specimen: Specimen) -> bool:
    """Return true if every choice of experts is clear, in float64."""
    model = copy.deepcopy(specimen.model).double()
    gaps: list[float] = []
    for module in model.modules():
        if isinstance(module, Pick):
            module.register_forward_pre_hook(lambda pick, args: gaps.append(_gap(pick, args[0])))
    if any(isinstance(module, Pick) for module in model.modules()):
        with torch.no_grad():
            model(*(x.double() if x.is_floating_point() else x for x in specimen.inputs))
    return all(gap > DECIDED for gap in gaps)


def _gap(pick: Pick, scores: Tensor) -> float:
    """Return the smallest distance of the last chosen and first rejected scores of an expert."""
    ranked = scores.sort(dim=0, descending=True).values
    between = ranked[pick.capacity - 1] - ranked[pick.capacity]
    return float(between.min() / scores.std())
