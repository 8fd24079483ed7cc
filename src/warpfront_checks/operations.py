"""The operations blocks are made of, each with its error budget: how far a correct device may be
off, and why.

The rule for an element is `|device - reference| <= c * (u_acc*sqrt(K)*M + u_out*|reference| +
carried + floor)`.

* reference: the same inputs (the device's own, low-precision numbers) cast to float64 and computed
  on the CPU.
* u = eps/2. u_acc is float32's: all supported devices accumulate float16 and bfloat16 in float32.
* M, the magnitude: the same operation on absolute values. K: how many terms were added, which is
  the same operation on ones. Error analysis: N. Higham, "Accuracy and Stability of Numerical
  Algorithms", chapters 3-4; sqrt(K) in place of K is the statistical form, measured to be generous
  (docs/bounds.md).
* carried: what rounding an intermediate to the output's dtype inside a fused kernel does to the
  result (softmax weights in attention, statistics in normalisation).
* floor: half the smallest subnormal of the output's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Measured, not chosen: docs/bounds.md has it and how to repeat it.
C = 4.0
# r of the root mean square rule. In float32 the order of summation decides: cuDNN's weight
# gradients were up to 4.4 times as far off as the CPU's, both within their bounds.
R = {torch.float32: 8.0, torch.bfloat16: 3.0, torch.float16: 3.0}
R_SMALL = 8.0
SMALL_NUMEL = 500

U_ACC = torch.finfo(torch.float32).eps / 2

# Where the gradients of a kind are not summed in float32. EVERY: every addition rounds to the
# tensors' dtype; seen with torch 2.13.0+cpu, where a sum of 134 bfloat16 numbers gave 0 for 0.12.
# PARTIAL: partial sums do; seen with torch 2.11.0+cu130 on an H200 in the native kernel for
# contiguous tensors, whatever dtype the parameters have (for channels_last, and through cuDNN, the
# sums are float32's).
EVERY, PARTIAL, SAMPLES = "every", "partial", "samples"
# A GPU whose convolutions are torch's own, because cuDNN (MIOpen) is switched off: products of
# matrices, sample by sample. What a product gives is stored in the tensors' dtype before the next
# is added to it (ConvolutionMM2d.cu, `slow_conv2d_grad_weight`: one `gemm` a sample, beta = 1) or
# before its columns are added up (`slow_conv2d_backward`, then `col2im`).
NATIVE = "a GPU's own convolution"
# A CPU for which oneDNN computes nothing in bfloat16 (no AVX-512): the same products and columns.
# Seen with torch 2.13.0+cpu on an EPYC with AVX2.
NATIVE_CPU = "a CPU's own convolution"
HALF = (torch.float16, torch.bfloat16)
SUMS_ROUNDED = {
    ("cpu", "convolution", torch.float16): EVERY,
    **{(NATIVE, "convolution", dtype): SAMPLES for dtype in HALF},
    (NATIVE_CPU, "convolution", torch.bfloat16): SAMPLES,
    **{("cpu", "layer norm", dtype): EVERY for dtype in HALF},
    **{("cuda", "batch norm", dtype): PARTIAL for dtype in HALF},
}


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """The dtype of the tensors, and the device type that computes."""

    dtype: torch.dtype
    device: str

    @property
    def unit(self) -> float:
        return rounding_unit(self.dtype)

    @property
    def u_acc(self) -> float:
        """The rounding of a sum's steps: float32's, and float64's own."""
        return min(float(U_ACC), self.unit)

    def sum_rounding(
        self, kind: str, length: Tensor, squares: Tensor, samples: float = 1.0
    ) -> Tensor:
        """Return the error of rounded sums of `length` terms, whose squares add up to
        `squares`. Partial sums walk at random, so they are about as large as the root of that.
        `samples` is their number if each sample's sum is stored.
        """
        devices = (convolved_by(self.device), self.device)
        rounded = [SUMS_ROUNDED.get((device, kind, self.dtype), "") for device in devices]
        if not any(rounded):
            return torch.zeros_like(squares)
        way = next(filter(None, rounded))
        parts = torch.full_like(length, samples if way == SAMPLES else 1.0)
        steps = length if way == EVERY else parts
        return self.unit * (steps * squares).sqrt()


@dataclass(frozen=True, kw_only=True)
class Budgeted:
    """A reference in float64 and the largest error allowed for each of its elements."""

    reference: Tensor
    bound: Tensor


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation that one function computes, on any device and dtype. `judge` works in float64 on
    the CPU: it returns the exact output and the gradient of each input, with their bounds.
    """

    kind: str
    function: Callable[..., Tensor]

    def __call__(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)

    def judge(
        self, inputs: Sequence[Tensor], cotangent: Tensor, arithmetic: Arithmetic
    ) -> tuple[Budgeted, ...]:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Multilinear(Operation):
    """Sums of products, linear in each input: linear layers and convolutions.

    Their gradients are sums of products as well, so M and K of every gradient come from
    differentiating the operation on absolute values and on ones.
    """

    def judge(
        self, inputs: Sequence[Tensor], cotangent: Tensor, arithmetic: Arithmetic
    ) -> tuple[Budgeted, ...]:
        exact = differentiate(self, inputs, cotangent)
        magnitudes = differentiate(self, [x.abs() for x in inputs], cotangent.abs())
        counted = differentiate(
            self, [torch.ones_like(x) for x in inputs], torch.ones_like(cotangent)
        )
        lengths = [length.clamp(min=1.0) for length in counted]
        squares = differentiate(self, [x**2 for x in inputs], cotangent**2)
        samples = _stored_sums(inputs)
        carried = [
            arithmetic.sum_rounding(self.kind, length, square, samples)
            for length, square in zip(lengths, squares, strict=True)
        ]
        # The bias may be added to a product that was already rounded.
        carried[0] = torch.zeros_like(exact[0])
        if len(inputs) > 2:
            carried[0] = arithmetic.unit * self.function(*inputs[:2]).abs()
        if "convolution" in self.kind:
            # Winograd's and Fourier's transforms mix a whole tile: what is off by a rounding
            # anywhere in it may be so where the terms of one place are few, or zero.
            carried = [
                extra + arithmetic.u_acc * (size.amax() if size.numel() else 0.0)
                for extra, size in zip(carried, magnitudes, strict=True)
            ]
        parts = zip(exact, magnitudes, lengths, carried, strict=True)
        return tuple(
            budget(reference, magnitude, length, arithmetic=arithmetic, carried=extra)
            for reference, magnitude, length, extra in parts
        )


@dataclass(frozen=True, kw_only=True)
class Pointwise(Operation):
    """x times a smooth step from 0 to 1: GELU (erf form), SiLU.

    The step may be computed as a difference (1 + erf), so the error scales with |x|, not with |y|.
    The derivative is the step plus x times its slope, of magnitude at most 1 + |x|. Not ReLU: near
    its kink a rounding decides about a whole gradient, and two correct devices differ by far more
    than a rounding.
    """

    kind: str = "pointwise"

    def judge(
        self, inputs: Sequence[Tensor], cotangent: Tensor, arithmetic: Arithmetic
    ) -> tuple[Budgeted, ...]:
        (x,) = inputs
        output, gradient = differentiate(self, inputs, cotangent)
        roundings = torch.full_like(x, 4.0)  # erf, add, halve, multiply
        size = cotangent.abs() * (1 + x.abs())
        return (
            budget(output, x.abs(), roundings, arithmetic=arithmetic),
            budget(gradient, size, roundings, arithmetic=arithmetic),
        )


@dataclass(frozen=True, kw_only=True)
class Norm(Operation):
    """Normalisation with weight and bias, statistics over `over`, parameters along `along`.

    Kernels may keep mean and reciprocal deviation in the tensor's own dtype. That rounding moves
    all numbers of one statistic together (added with their signs), and those of different
    statistics independently (root of the sum of squares).
    """

    over: tuple[int, ...]
    along: tuple[int, ...]
    eps: float = 1e-5

    def judge(
        self, inputs: Sequence[Tensor], cotangent: Tensor, arithmetic: Arithmetic
    ) -> tuple[Budgeted, ...]:
        parts = _NormParts.of(self, inputs, cotangent)
        output, dx, *of_parameters = differentiate(self, inputs, cotangent)
        shift = arithmetic.unit * (parts.hat.abs() + parts.lean)
        weight, bias = (self.spread(parameter, parts.hat).abs() for parameter in inputs[1:])
        factors = (parts.hat, torch.ones_like(parts.hat))
        count, carried = parts.count, self._dx_carried(parts, dx, arithmetic)
        return (
            budget(
                output,
                parts.center * weight + bias,
                count,
                arithmetic=arithmetic,
                carried=shift * weight,
            ),
            budget(dx, parts.dx_size, count, arithmetic=arithmetic, carried=carried),
            *(
                self._summed(gradient, parts.cotangent, factor, parts, arithmetic)
                for gradient, factor in zip(of_parameters, factors, strict=True)
            ),
        )

    def spread(self, parameter: Tensor, like: Tensor) -> Tensor:
        """Return a parameter in the shape that multiplies an input."""
        sizes = [like.shape[axis] if axis in self.along else 1 for axis in range(like.dim())]
        return parameter.reshape(sizes)

    def _dx_carried(self, parts: _NormParts, dx: Tensor, arithmetic: Arithmetic) -> Tensor:
        """dx = rstd*(g - mean(g) - hat*mean(g*hat)): rounded statistics, and where sums are
        rounded, the means.
        """
        g_mean, projected = (
            t.mean(self.over, keepdim=True).abs() for t in (parts.g, parts.g * parts.hat)
        )
        hat = parts.hat.abs()
        statistics = (hat + parts.lean) * projected + hat * (projected + parts.lean * g_mean)
        squares = torch.stack([parts.g**2, (parts.g * parts.hat) ** 2]).sum(
            [axis + 1 for axis in self.over], keepdim=True
        )
        sums = arithmetic.sum_rounding(self.kind, parts.count[None], squares) / parts.count
        return (
            parts.rstd * (arithmetic.unit * statistics + sums[0] + hat * sums[1])
            + arithmetic.unit * dx.abs()
        )

    def _summed(
        self, exact: Tensor, g: Tensor, factor: Tensor, parts: _NormParts, arithmetic: Arithmetic
    ) -> Budgeted:
        """Return the budget of a parameter's gradient: the sum of g*factor over everything but
        the parameter's axes.
        """
        axes = tuple(axis for axis in range(g.dim()) if axis not in self.along)
        together = tuple(axis for axis in axes if axis in self.over)
        terms = g * factor
        length = torch.full_like(exact, g.numel() / exact.numel())
        squares = (terms**2).sum(axes).reshape(exact.shape)
        moved = torch.stack([terms, g * parts.lean])
        for axis in together:
            moved = moved.sum(axis + 1, keepdim=True)
        statistics = arithmetic.unit * (moved**2).sum(0).sum(axes).reshape(exact.shape).sqrt()
        size = (
            (g.abs() * (parts.center if factor is parts.hat else factor))
            .sum(axes)
            .reshape(exact.shape)
        )
        carried = arithmetic.sum_rounding(self.kind, length, squares)
        if factor is parts.hat:
            carried = carried + statistics
        return budget(exact, size, length, arithmetic=arithmetic, carried=carried)


@dataclass(frozen=True, kw_only=True)
class _NormParts:
    """Normalisation taken apart, float64. `lean` is |mean|*rstd; `center` the magnitude behind
    `hat`, which inherits what the mean is off by; `dx_size` the magnitude of the input's gradient.
    """

    hat: Tensor
    rstd: Tensor
    lean: Tensor
    center: Tensor
    g: Tensor
    cotangent: Tensor
    dx_size: Tensor
    count: Tensor

    @classmethod
    def of(cls, norm: Norm, inputs: Sequence[Tensor], cotangent: Tensor) -> _NormParts:
        x = inputs[0]
        mean = x.mean(norm.over, keepdim=True)
        rstd = (((x - mean) ** 2).mean(norm.over, keepdim=True) + norm.eps).rsqrt()
        hat = (x - mean) * rstd
        center = hat.abs() + x.abs().mean(norm.over, keepdim=True) * rstd
        g = cotangent * norm.spread(inputs[1], x)
        g_mean = g.abs().mean(norm.over, keepdim=True)
        g_hat_mean = (g * hat).abs().mean(norm.over, keepdim=True)
        return cls(
            hat=hat,
            rstd=rstd,
            lean=mean.abs() * rstd,
            center=center,
            g=g,
            cotangent=cotangent,
            dx_size=rstd * (g.abs() + g_mean + center * g_hat_mean),
            count=torch.full_like(x, x.numel() / mean.numel()),
        )


@dataclass(frozen=True, kw_only=True)
class Attention(Operation):
    """Scaled dot-product attention over (batch, length, heads*width) inputs; split
    into heads inside.

    Fused kernels round the softmax weights P and the score gradients dS to the inputs' dtype before
    the next product, and read the output back, rounded, for the row sums of the backward pass. The
    roundings of single entries are independent, so they are carried as root sums of squares;
    backward formulas: T. Dao et al., "FlashAttention", algorithm 4.
    """

    heads: int
    kind: str = "attention"
    function: Callable[..., Tensor] = functional.scaled_dot_product_attention

    def __call__(self, *inputs: Tensor) -> Tensor:
        return self._join(self.function(*map(self._split, inputs)))

    def judge(
        self, inputs: Sequence[Tensor], cotangent: Tensor, arithmetic: Arithmetic
    ) -> tuple[Budgeted, ...]:
        split = [self._split(x) for x in inputs]
        budgets = attention_budgets(split, self._split(cotangent), arithmetic)
        return tuple(
            Budgeted(reference=self._join(each.reference), bound=self._join(each.bound))
            for each in budgets
        )

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _join(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(-2)


def _batch_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.batch_norm(x, None, None, weight, bias, training=True)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight, bias)


def layer_norm(dim: int) -> Norm:
    """Over the last of so many axes."""
    return Norm(kind="layer norm", function=_layer_norm, over=(dim - 1,), along=(dim - 1,))


def convolution(**options: Any) -> Multilinear:
    """Return a convolution of images; options are those of `conv2d`."""
    return Multilinear(kind="convolution", function=partial(functional.conv2d, **options))


LINEAR = Multilinear(kind="linear", function=functional.linear)
BATCH_NORM = Norm(kind="batch norm", function=_batch_norm, over=(0, 2, 3), along=(1,))


def _stored_sums(inputs: Sequence[Tensor]) -> float:
    """Return the number of partial sums that a convolution may store: one a sample, or one a
    position of the kernel.
    """
    if len(inputs) < 2 or inputs[1].dim() < 3:
        return 1.0
    return float(max(inputs[0].shape[0], inputs[1].shape[2:].numel()))


def convolved_by(device: str) -> str:
    """Whose convolutions a device has in 16 bits, where no library does them."""
    if device == "cuda":
        return device if torch.backends.cudnn.enabled else NATIVE
    return NATIVE_CPU if device == "cpu" and not onednn_has_bfloat16() else device


def onednn_has_bfloat16() -> bool:
    """Return torch's own answer; a torch without that query is taken to have it."""
    asks = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return bool(torch.backends.mkldnn.enabled) and (asks is None or bool(asks()))


def differentiate(
    operation: Callable[..., Tensor], inputs: Sequence[Tensor], cotangent: Tensor
) -> tuple[Tensor, ...]:
    """Return the operation's output and the gradient of each input for a cotangent, detached."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    output = operation(*leaves)
    return (output.detach(), *torch.autograd.grad(output, leaves, cotangent))


def budget(
    reference: Tensor,
    magnitude: Tensor,
    length: Tensor,
    *,
    arithmetic: Arithmetic,
    carried: Tensor | None = None,
) -> Budgeted:
    """The module's rule for every element of `reference`, stored in `dtype` on the device."""
    summed = arithmetic.u_acc * length.sqrt() * magnitude
    bound = summed + arithmetic.unit * reference.abs() + floor_of(arithmetic.dtype)
    if carried is not None:
        # A kernel may round what the CPU's does not, or the CPU's was lucky.
        bound = bound + carried
    return Budgeted(reference=reference, bound=C * bound)


def rounding_unit(dtype: torch.dtype) -> float:
    """Return half the distance from 1 to the next number of the dtype."""
    return float(torch.finfo(dtype).eps) / 2


def floor_of(dtype: torch.dtype) -> float:
    """Return half the smallest subnormal: the error of rounding a number too small to be normal."""
    info = torch.finfo(dtype)
    return float(info.smallest_normal) * float(info.eps) / 2


def attention_budgets(
    inputs: Sequence[Tensor], g: Tensor, arithmetic: Arithmetic, allowed: Tensor | None = None
) -> tuple[Budgeted, ...]:
    """Return the output's budget and that of the gradient of each input, (batch, heads, length,
    width). What is not allowed has no weight.
    """
    q, k, v = inputs
    unit, u_acc, width = arithmetic.unit, arithmetic.u_acc, q.shape[-1]
    scale, length = width**-0.5, k.shape[-2]
    scores = q @ k.mT * scale
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    p = torch.softmax(scores, dim=-1)
    y = p @ v
    # Scores in float32: what they are off by changes P by P times that, and the row's sum likewise.
    off = u_acc * (math.sqrt(width) * (q.abs() @ k.abs().mT) * scale + math.sqrt(length))
    p_off = p * (off + (p * off).sum(-1, keepdim=True))
    row_size = (g * y).abs().sum(-1, keepdim=True)
    row_off = unit * (g * y).square().sum(-1, keepdim=True).sqrt()
    row_off = row_off + u_acc * math.sqrt(width) * row_size
    slope = g @ v.mT - (g * y).sum(-1, keepdim=True)
    slope_off = u_acc * math.sqrt(width) * (g.abs() @ v.abs().mT) + row_off
    ds, ds_off = p * slope, p * slope_off + p_off * slope.abs()
    # Each is a product of two matrices, of which the first is off by what is in the middle.
    products = (
        (p, p_off, v, 1.0),
        (ds, ds_off, k, scale),
        (ds.mT, ds_off.mT, q, scale),
        (p.mT, p_off.mT, g, 1.0),
    )
    return tuple(
        budget(
            factor * (lhs @ rhs),
            factor * (lhs.abs() @ rhs.abs()),
            torch.tensor(float(length), dtype=torch.float64),
            arithmetic=arithmetic,
            carried=factor * (left_off @ rhs.abs() + unit * (lhs.square() @ rhs.square()).sqrt()),
        )
        for lhs, left_off, rhs, factor in products
    )
