"""A model with its inputs, made on the CPU, and what the CPU says of it: in float64 and in kind."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from warpfront.inside.checks.models.families import Family
from warpfront.inside.checks.models.layers import Pick
from warpfront.inside.checks.models.replaying import Precision
from warpfront.inside.checks.models.watching import Pass, run_plainly

# In float16 gradients would be too small to be normal numbers, so the loss is scaled; by a power of
# 2, which rounds nothing.
LOSS_SCALE = 1024.0
# Where a model chooses by number, the closest choice is this far from a tie (in standard deviations
# of what it chooses by): closer, and two correct devices may choose differently.
DECIDED = 0.1
_TRIES = 500


class UndecidedError(Exception):
    """No inputs were found whose choices are far enough from ties."""


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """`model` and `inputs` are on the CPU, in the dtype that is sent; never computed with. What the
    CPU makes of them is computed once, where somebody asks.
    """

    family: str
    model: nn.Module
    inputs: tuple[Tensor, ...]
    how: Precision

    @property
    def scale(self) -> float:
        return LOSS_SCALE if self.how.dtype == torch.float16 else 1.0

    def sent(self, device: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """A fresh copy on a device, its floating inputs with gradients."""
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
        with self.how.autocast("cpu"):
            return run_plainly(model, model, inputs, self.scale)

    def _inputs(self, change: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
        copies = tuple(change(x).detach().clone() for x in self.inputs)
        return tuple(x.requires_grad_() if x.is_floating_point() else x for x in copies)


def make_specimen(family: Family, how: Precision, seed: int = 0) -> Specimen:
    """The same numbers on every machine, rounded to what is sent.

    Raises `UndecidedError` if every set of inputs comes too close to a tie.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = family.build()
    model = model.to(how.parameters)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(_TRIES):
        inputs = tuple(
            x.to(how.parameters) if x.is_floating_point() else x for x in family.inputs(generator)
        )
        specimen = Specimen(family=family.name, model=model, inputs=inputs, how=how)
        if _decided(specimen):
            return specimen
    raise UndecidedError(f"{family.name}: {_TRIES} sets of inputs are all close to a tie")


def _decided(specimen: Specimen) -> bool:
    """Whether every choice of experts is clear, in float64."""
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
    """The smallest distance between the last score taken and the first one left, of all experts."""
    ranked = scores.sort(dim=0, descending=True).values
    between = ranked[pick.capacity - 1] - ranked[pick.capacity]
    return float(between.min() / scores.std())
