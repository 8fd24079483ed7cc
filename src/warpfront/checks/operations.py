"""The operations blocks are made of, each with its error budget: how far a correct device may be off, and why.

The rule for an element is `|device - reference| <= c * (u_acc*sqrt(K)*M + u_out*|reference| + carried + floor)`.

* reference: the same inputs (the device's own, low-precision numbers) cast to float64 and computed on the CPU.
* u = eps/2. u_acc is float32's: all supported devices accumulate float16 and bfloat16 in float32.
* M, the magnitude: the same operation on absolute values. K: how many terms were added, which is the same
  operation on ones. Error analysis: N. Higham, "Accuracy and Stability of Numerical Algorithms", chapters 3-4;
  sqrt(K) in place of K is the statistical form, measured to be generous (docs/verification.md).
* carried: what rounding an intermediate to the output's dtype inside a fused kernel does to the result
  (softmax weights in attention, statistics in normalisation).
* floor: half the smallest subnormal of the output's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

# c per class of operation, and r of the RMS rule. Measured, not chosen: on one H100 (torch 2.11.0+cu130, TF32
# off, 10 seeds, float32/bfloat16/float16) single operations needed at most 1.21 and an RMS ratio of at most
# 1.97. docs/verification.md has the table and how to repeat it.
C = {
    "exact": 0.0,
    "linear": 4.0,
    "convolution": 4.0,
    "pointwise": 4.0,
    "norm": 4.0,
    "attention": 4.0,
}
R = 3.0
R_SMALL = 8.0
SMALL_NUMEL = 500

U_ACC = torch.finfo(torch.float32).eps / 2

# Where the gradients of a kind are summed in the tensors' own dtype, not in float32: observed with torch
# 2.13.0+cpu (a sum of 134 bfloat16 numbers gave 0 where 0.12 was right). Only ever on the CPU.
SUMS_ROUNDED = {
    ("cpu", "convolution", torch.float16),
    ("cpu", "norm", torch.float16),
    ("cpu", "norm", torch.bfloat16),
}


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """The dtype of the tensors, and the device type that computes."""

    dtype: torch.dtype
    device: str

    @property
    def unit(self) -> float:
        return rounding_unit(self.dtype)

    def rounds_sums(self, kind: str) -> bool:
        """Whether gradients of this kind are known to be summed in `dtype` there."""
        return (self.device, kind, self.dtype) in SUMS_ROUNDED


@dataclass(frozen=True, kw_only=True)
class Budgeted:
    """A reference in float64 and the largest error allowed for each of its elements."""

    reference: Tensor
    bound: Tensor


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What an operation should have given: its output, and the gradient of each input."""

    output: Budgeted
    gradients: tuple[Budgeted, ...]


class Operation(Protocol):
    """Computes on any device and dtype; `judge` works in float64 on the CPU."""

    kind: str

    def __call__(self, *inputs: Tensor) -> Tensor: ...

    def judge(self, inputs: Sequence[Tensor], cotangent: Tensor, how: Arithmetic) -> Judgement: ...


@dataclass(frozen=True, kw_only=True)
class Multilinear:
    """Sums of products, linear in each input: linear layers and convolutions.

    Their gradients are sums of products as well, so M and K of every gradient come from differentiating the
    operation on absolute values and on ones.
    """

    kind: str
    function: Callable[..., Tensor]

    def __call__(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)

    def judge(self, inputs: Sequence[Tensor], cotangent: Tensor, how: Arithmetic) -> Judgement:
        c = C[self.kind]
        exact = differentiate(self, inputs, cotangent)
        magnitudes = differentiate(self, [x.abs() for x in inputs], cotangent.abs())
        lengths = differentiate(
            self, [torch.ones_like(x) for x in inputs], torch.ones_like(cotangent)
        )
        carried = [torch.zeros_like(x) for x in exact]
        if how.rounds_sums(self.kind):
            squares = differentiate(self, [x**2 for x in inputs], cotangent**2)
            carried[1:] = [
                how.unit * (n * square).sqrt() for n, square in zip(lengths[1:], squares[1:])
            ]
        budgets = [
            budget(reference, magnitude, length, how=how, c=c, carried=extra)
            for reference, magnitude, length, extra in zip(exact, magnitudes, lengths, carried)
        ]
        return Judgement(output=budgets[0], gradients=tuple(budgets[1:]))


@dataclass(frozen=True, kw_only=True)
class Relu:
    """Exact in every dtype, backward included: it only selects."""

    kind: str = "exact"

    def __call__(self, *inputs: Tensor) -> Tensor:
        return functional.relu(inputs[0])

    def judge(self, inputs: Sequence[Tensor], cotangent: Tensor, how: Arithmetic) -> Judgement:  # noqa: ARG002
        budgets = [
            Budgeted(reference=exact, bound=torch.zeros_like(exact))
            for exact in differentiate(self, inputs, cotangent)
        ]
        return Judgement(output=budgets[0], gradients=tuple(budgets[1:]))


@dataclass(frozen=True, kw_only=True)
class Gelu:
    """x * Phi(x), the erf form. 1 + erf cancels for negative x, so the error scales with |x|, not with |y|.

    Derivative: Phi(x) + x*phi(x), of magnitude at most 1 + |x|.
    """

    kind: str = "pointwise"

    def __call__(self, *inputs: Tensor) -> Tensor:
        return functional.gelu(inputs[0])

    def judge(self, inputs: Sequence[Tensor], cotangent: Tensor, how: Arithmetic) -> Judgement:
        (x,) = inputs
        output, gradient = differentiate(self, inputs, cotangent)
        roundings, c = torch.full_like(x, 4.0), C[self.kind]  # erf, add, halve, multiply
        return Judgement(
            output=budget(output, x.abs(), roundings, how=how, c=c),
            gradients=(budget(gradient, cotangent.abs() * (1 + x.abs()), roundings, how=how, c=c),),
        )


@dataclass(frozen=True, kw_only=True)
class Norm:
    """Batch or layer normalisation with weight and bias, statistics over `over`, parameters along `along`.

    Kernels may keep mean and reciprocal deviation in the tensor's own dtype; that rounding moves whole groups
    together, so it is carried as `u_out * (|normalised| + |mean|*rstd)`, linearly.
    """

    function: Callable[..., Tensor]
    over: tuple[int, ...]
    along: tuple[int, ...]
    eps: float = 1e-5
    kind: str = "norm"

    def __call__(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)

    def judge(self, inputs: Sequence[Tensor], cotangent: Tensor, how: Arithmetic) -> Judgement:
        x, weight, bias = inputs
        unit, c = how.unit, C[self.kind]
        exact = differentiate(self, inputs, cotangent)
        mean = x.mean(self.over, keepdim=True)
        rstd = (x.var(self.over, keepdim=True, unbiased=False) + self.eps).rsqrt()
        w, b = (self._spread(p, x) for p in (weight, bias))
        count = torch.full_like(x, x.numel() / mean.numel())
        hat = ((x - mean) * rstd).abs()
        # The mean of K numbers is off by u_acc*sqrt(K)*mean|x|, which every normalised value inherits.
        center = hat + x.abs().mean(self.over, keepdim=True) * rstd
        shift = unit * (hat + mean.abs() * rstd)
        g = (cotangent * w).abs()
        g_mean, g_hat_mean = (t.mean(self.over, keepdim=True) for t in (g, g * hat))
        projected = (cotangent * w * (x - mean) * rstd).mean(self.over, keepdim=True).abs()
        dx_size = rstd * (g + g_mean + center * g_hat_mean)
        dx_carried = rstd * (shift * projected + hat * (g * shift).mean(self.over, keepdim=True))
        return Judgement(
            output=budget(
                exact[0], center * w.abs() + b.abs(), count, how=how, c=c, carried=shift * w.abs()
            ),
            gradients=(
                budget(
                    exact[1],
                    dx_size,
                    count,
                    how=how,
                    c=c,
                    carried=dx_carried + unit * exact[1].abs(),
                ),
                self._summed(exact[2], cotangent.abs() * center, cotangent.abs() * shift, how),
                self._summed(exact[3], cotangent.abs(), torch.zeros_like(x), how),
            ),
        )

    def _summed(self, exact: Tensor, terms: Tensor, carried: Tensor, how: Arithmetic) -> Budgeted:
        """The budget of a parameter's gradient: a sum of `terms` over everything but the parameter's axes."""
        axes = tuple(axis for axis in range(terms.dim()) if axis not in self.along)
        length = torch.full_like(exact, terms.numel() / exact.numel())
        magnitude, shift = (
            terms.sum(axes).reshape(exact.shape),
            carried.sum(axes).reshape(exact.shape),
        )
        if how.rounds_sums(self.kind):
            shift = shift + how.unit * (length * (terms**2).sum(axes).reshape(exact.shape)).sqrt()
        return budget(exact, magnitude, length, how=how, c=C[self.kind], carried=shift)

    def _spread(self, parameter: Tensor, x: Tensor) -> Tensor:
        return parameter.reshape(
            [x.shape[axis] if axis in self.along else 1 for axis in range(x.dim())]
        )


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Scaled dot-product attention over (batch, length, heads*width) inputs; split into heads inside.

    Fused kernels round the softmax weights P and the score gradients dS to the inputs' dtype before the next
    product, and read the output back, rounded, for the row sums of the backward pass. The roundings of single
    entries are independent, so they are carried as root sums of squares; backward formulas: T. Dao et al.,
    "FlashAttention", algorithm 4.
    """

    heads: int
    kind: str = "attention"

    def __call__(self, *inputs: Tensor) -> Tensor:
        q, k, v = (self._split(x) for x in inputs)
        return self._join(functional.scaled_dot_product_attention(q, k, v))

    def judge(self, inputs: Sequence[Tensor], cotangent: Tensor, how: Arithmetic) -> Judgement:
        exact = differentiate(self, inputs, cotangent)
        q, k, v, g, y = (self._split(x) for x in (*inputs, cotangent, exact[0]))
        unit, scale, width, length = how.unit, q.shape[-1] ** -0.5, q.shape[-1], k.shape[-2]
        p = torch.softmax(q @ k.mT * scale, dim=-1)
        # Scores in float32: what they are off by changes P by P times that, and the row's sum likewise.
        scores = U_ACC * (math.sqrt(width) * (q.abs() @ k.abs().mT) * scale + math.sqrt(length))
        p_off = p * (scores + (p * scores).sum(-1, keepdim=True))
        row = (g * y).sum(-1, keepdim=True)
        row_size = (g * y).abs().sum(-1, keepdim=True)
        row_off = unit * _root_sum(g * y, -1) + U_ACC * math.sqrt(width) * row_size
        slope = g @ v.mT - row
        slope_off = U_ACC * math.sqrt(width) * (g.abs() @ v.abs().mT) + row_off
        ds = p * slope
        ds_off = p * slope_off + p_off * slope.abs()
        carried = (
            p_off @ v.abs() + unit * _root(p**2 @ v**2),
            scale * (ds_off @ k.abs() + unit * _root(ds**2 @ k**2)),
            scale * (ds_off.mT @ q.abs() + unit * _root((ds**2).mT @ q**2)),
            p_off.mT @ g.abs() + unit * _root((p**2).mT @ g**2),
        )
        sizes = (
            p @ v.abs(),
            scale * (ds.abs() @ k.abs()),
            scale * (ds.abs().mT @ q.abs()),
            p.mT @ g.abs(),
        )
        budgets = [
            budget(
                reference,
                self._join(size),
                torch.full_like(reference, length),
                how=how,
                c=C[self.kind],
                carried=self._join(extra),
            )
            for reference, size, extra in zip(exact, sizes, carried)
        ]
        return Judgement(output=budgets[0], gradients=tuple(budgets[1:]))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _join(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(-2)


def differentiate(
    operation: Callable[..., Tensor], inputs: Sequence[Tensor], cotangent: Tensor
) -> tuple[Tensor, ...]:
    """The operation's output and the gradient of each input for a cotangent, detached."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    output = operation(*leaves)
    return (output.detach(), *torch.autograd.grad(output, leaves, cotangent))


def budget(
    reference: Tensor,
    magnitude: Tensor,
    length: Tensor,
    *,
    how: Arithmetic,
    c: float,
    carried: Tensor | None = None,
) -> Budgeted:
    """The module's rule for every element of `reference`, stored in `dtype` on the device."""
    bound = U_ACC * length.sqrt() * magnitude + how.unit * reference.abs() + floor_of(how.dtype)
    if carried is not None:
        bound = bound + carried
    return Budgeted(reference=reference, bound=c * bound)


def rounding_unit(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next number of the dtype."""
    return float(torch.finfo(dtype).eps) / 2


def floor_of(dtype: torch.dtype) -> float:
    """Half the smallest subnormal: the absolute error of rounding a number too small to be normal."""
    info = torch.finfo(dtype)
    return float(info.smallest_normal) * float(info.eps) / 2


def _root(squares: Tensor) -> Tensor:
    return squares.sqrt()


def _root_sum(terms: Tensor, axis: int) -> Tensor:
    return (terms**2).sum(axis, keepdim=True).sqrt()
