"""A model with its inputs, made on the CPU, and the CPU's results: in float64 and in kind."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from warpfront_checks.cases.measured import RoundedSteps
from warpfront_checks.models.families import Family
from warpfront_checks.models.layers import Pick
from warpfront_checks.models.watching import Pass, run_plainly

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
class Precision:
    """The precision of a pass: `dtype` of tensors (pure), or of the autocast region (`mixed`)."""

    dtype: torch.dtype
    mixed: bool = False

    def autocast(self, device: str) -> contextlib.AbstractContextManager[object]:
        if not self.mixed:
            return contextlib.nullcontext()
        region: contextlib.AbstractContextManager[object] = torch.autocast(device, dtype=self.dtype)
        return region

    @property
    def parameters(self) -> torch.dtype:
        return torch.float32 if self.mixed else self.dtype


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """A model and inputs on the CPU, as sent, never computed with; its results are cached. `wide`
    is a region in which the model's code stays in float64.
    """

    model: nn.Module
    inputs: tuple[Tensor, ...]
    precision: Precision
    wide: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext

    @property
    def scale(self) -> float:
        return LOSS_SCALE if self.precision.dtype == torch.float16 else 1.0

    def sent(self, device: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """Return a fresh copy on a device, its floating inputs with gradients."""
        return copy.deepcopy(self.model).to(device), self._inputs(lambda x: x.to(device))

    @cached_property
    def exact(self) -> Pass:
        """The pass in float64, from the same rounded numbers."""
        return self._in_float64(contextlib.nullcontext())

    @cached_property
    def rounded(self) -> list[Pass]:
        """Passes in float64 whose steps are rounded to the dtype by chance."""
        dtype = self.precision.dtype
        return [self._in_float64(RoundedSteps(dtype, draw)) for draw in range(ROUNDED_DRAWS)]

    def _in_float64(self, mode: contextlib.AbstractContextManager[object]) -> Pass:
        model = copy.deepcopy(self.model).double()
        inputs = self._inputs(lambda x: x.double() if x.is_floating_point() else x.clone())
        with self.wide(), mode:
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
        specimen = Specimen(model=model, inputs=inputs, precision=precision)
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
