"""Rules for single operations; `operations.py` has those for networks.

Three classes. Exact (E): the reference rounded once, or bit for bit. Rounded (U): a number of units
in the last place of the reference. Accumulating (A): `budget` of `operations.py`, with the
magnitude and the length of each sum. Gradients are always budgets, for autograd composes them of
several rounded steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from warpfront_checks.operations import (
    Arithmetic,
    Budgeted,
    Called,
    ExpectedResults,
    budget,
    floor_of,
)

Sizes = Callable[..., "Tensor"]
# Where a derivative jumps, and by how much.
Kinks = tuple[tuple[float, float], ...]
C_RULE = 4.0


def spacing(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the distance between neighbours of `dtype` at float64 values: one unit in
    the last place.
    """
    eps, smallest = float(torch.finfo(dtype).eps), float(torch.finfo(dtype).smallest_normal)
    finite = torch.where(values.isfinite(), values.abs(), torch.ones_like(values))
    exponent = torch.frexp(finite.clamp(min=smallest)).exponent - 1
    return torch.ldexp(torch.full_like(finite, eps), exponent)


def within(reference: Tensor, ulps: float, dtype: torch.dtype, extra: float = 0.0) -> Budgeted:
    """Return the budget of the reference rounded to the dtype, give or take so many units in
    the last place.
    """
    if not reference.is_floating_point():
        return Budgeted(reference=reference, bound=torch.zeros(reference.shape).double())
    rounded = reference.to(dtype).double()
    return Budgeted(reference=rounded, bound=ulps * spacing(rounded, dtype) + extra)


@dataclass(frozen=True, kw_only=True)
class Elementwise(Called):
    """A rule for one output element from one element of each input, with broadcasting: classes
    E and U.

    `ulps` are for float32 and float64, `ulps_half` for the 16-bit types, `absolute` is added in
    float32 only. `size` is the magnitude that rounding errors scale with, for outputs that are
    differences of larger numbers. `slope` is the same for each input's derivative (default: the
    derivative itself). `kinks` are those of a function of one input, for `undecided`.
    """

    kind: str = "elementwise"
    kinks: Kinks = ()
    ulps: float = 0.0
    ulps_half: float = 1.0
    absolute: float = 0.0
    size: Sizes | None = None
    slope: Callable[..., Sequence[Tensor]] | None = None

    def judge(
        self, inputs: Sequence[Tensor], cotangent: Tensor, arithmetic: Arithmetic
    ) -> ExpectedResults:
        reference = self.function(*inputs)
        floats = [i for i, x in enumerate(inputs) if x.is_floating_point()]
        gradients: tuple[Budgeted, ...] = ()
        has_gradient = bool(cotangent.any())
        if reference.is_floating_point() and (has_gradient or not cotangent.numel()):
            gradients = self._gradients(inputs, floats, cotangent, arithmetic)
        return ExpectedResults(output=self.judge_output(inputs, arithmetic), gradients=gradients)

    def undecided(self, x: Tensor, off: Tensor, flowing: Tensor) -> Tensor:
        """Return the part of each gradient that depends on the side of a kink, where x may be
        off by `off`.
        """
        near = [((x - place).abs() <= off) * jump for place, jump in self.kinks]
        return flowing.abs() * sum(near, start=torch.zeros_like(x))

    def judge_output(self, inputs: Sequence[Tensor], arithmetic: Arithmetic) -> Budgeted:
        reference = self.function(*inputs)
        if self.size is not None and reference.is_floating_point():
            once = torch.ones_like(reference)
            return budget(reference, self.size(*inputs), once, how=arithmetic, c=C_RULE)
        narrow = arithmetic.dtype in (torch.float16, torch.bfloat16)
        ulps = self.ulps_half if narrow else self.ulps
        return within(reference, ulps, arithmetic.dtype, 0.0 if narrow else self.absolute)

    def _gradients(
        self,
        inputs: Sequence[Tensor],
        floats: Sequence[int],
        cotangent: Tensor,
        arithmetic: Arithmetic,
    ) -> tuple[Budgeted, ...]:
        """Return budgets of local derivatives on inputs broadcast to the output's shape,
        then summed back.
        """
        wide = [x.expand(cotangent.shape).detach().clone() for x in inputs]
        leaves = [wide[i].requires_grad_() for i in floats]
        local = torch.autograd.grad(self.function(*wide), leaves, cotangent, allow_unused=True)
        plain = [
            torch.zeros_like(x) if g is None else g for g, x in zip(local, leaves, strict=True)
        ]
        sizes: Sequence[Tensor] = plain
        if self.slope is not None:
            sizes = [s * cotangent for s in self.slope(*(x.detach() for x in wide))]
        return tuple(
            self._gradient(inputs[i].shape, g.detach(), size.detach().abs(), arithmetic)
            for i, g, size in zip(floats, plain, sizes, strict=True)
        )

    def _gradient(
        self, shape: torch.Size, local: Tensor, size: Tensor, arithmetic: Arithmetic
    ) -> Budgeted:
        """Return the budget of one gradient. Each term may have been rounded before the sum:
        those roundings walk at random.
        """
        length = max(1.0, local.numel() / max(1, shape.numel()))
        squares = (size**2).sum_to_size(shape)
        total = local.sum_to_size(shape)
        summed = arithmetic.sum_rounding(self.kind, torch.full_like(total, length), squares)
        return budget(
            total,
            size.sum_to_size(shape),
            torch.full_like(total, length),
            how=arithmetic,
            c=C_RULE,
            carried=arithmetic.unit * squares.sqrt() + (summed if length > 1 else 0.0),
        )


@dataclass(frozen=True, kw_only=True)
class Moved(Called):
    """Numbers that are moved or chosen, never computed: exact. A gradient is a sum over the places
    that a number was moved to.
    """

    kind: str = "moved"

    def judge(
        self, inputs: Sequence[Tensor], cotangent: Tensor, arithmetic: Arithmetic
    ) -> ExpectedResults:
        reference = self.function(*inputs)
        gradients: tuple[Budgeted, ...] = ()
        if cotangent.shape == reference.shape and reference.is_floating_point():
            exact, sizes, lengths, squares = (
                gradients_of(self.function, inputs, c)
                for c in (cotangent, cotangent.abs(), torch.ones_like(cotangent), cotangent**2)
            )
            gradients = tuple(
                budget(
                    g,
                    m.abs(),
                    k.abs().clamp(min=1),
                    how=arithmetic,
                    c=C_RULE,
                    carried=arithmetic.sum_rounding(self.kind, k.abs(), s.abs()),
                )
                for g, m, k, s in zip(exact, sizes, lengths, squares, strict=True)
            )
        return ExpectedResults(output=within(reference, 0.0, arithmetic.dtype), gradients=gradients)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The possible error of sums inside an operation: the magnitude and number of their terms.
    `carried` is the effect of rounding an intermediate to the tensors' dtype on the result, in its
    units. `squares` are the terms' squares where they are not alike. `factor` is the multiplier of
    a rounded intermediate: where it is subnormal, its rounding does not shrink with it. `walk` is
    the total of one run of roundings, if not that of a sum, and `errors` the number of such runs.
    """

    size: Tensor
    length: float = 1.0
    carried: Tensor | None = None
    squares: Tensor | None = None
    factor: Tensor | None = None
    walk: Tensor | None = None
    errors: int = 0


@dataclass(frozen=True, kw_only=True)
class Derived(Called):
    """An accumulating operation whose magnitudes are written out: `spreads` gives one for the
    output and one for each floating input's gradient.

    `carried` of a spread is multiplied by the dtype's rounding unit.
    """

    spreads: Callable[[Sequence[Tensor], Tensor, Tensor], Sequence[Spread]]
    c: float = C_RULE

    def judge(
        self, inputs: Sequence[Tensor], cotangent: Tensor, arithmetic: Arithmetic
    ) -> ExpectedResults:
        reference = self.function(*inputs)
        g = cotangent if cotangent.shape == reference.shape else torch.zeros_like(reference)
        exact = (reference, *gradients_of(self.function, inputs, g))
        budgets = []
        for gradient, spread in zip(exact, self.spreads(inputs, reference, g), strict=True):
            length = torch.full_like(gradient, spread.length)
            size = spread.size.abs().expand_as(gradient)
            squares = size**2 / spread.length if spread.squares is None else spread.squares
            carried = arithmetic.sum_rounding(self.kind, length, squares.expand_as(gradient))
            if spread.carried is not None:
                carried = carried + arithmetic.unit * spread.carried.abs()
            if spread.factor is not None:
                carried = carried + floor_of(arithmetic.dtype) * spread.factor.abs()
            budgeted = budget(gradient, size, length, how=arithmetic, c=self.c, carried=carried)
            if spread.walk is not None:
                walk = arithmetic.u_acc * spread.walk.abs().expand_as(gradient)
                budgeted = replace(budgeted, walk=walk, errors=spread.errors)
            budgets.append(budgeted)
        return ExpectedResults(output=budgets[0], gradients=tuple(budgets[1:]))


def gradients_of(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], cotangent: Tensor
) -> tuple[Tensor, ...]:
    """Return the gradient of each floating input; zeros where the output does not depend on it."""
    variables = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    leaves = [x for x in variables if x.requires_grad]
    gradients = torch.autograd.grad(function(*variables), leaves, cotangent, allow_unused=True)
    return tuple(
        torch.zeros_like(x) if g is None else g for g, x in zip(gradients, leaves, strict=True)
    )
