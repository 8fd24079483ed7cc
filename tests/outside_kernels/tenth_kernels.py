"""The tenth set of kernels from outside: thirty defects as public trackers report them.

Each kernel's first line says whether it is wrong for common arguments ("plain"), for a common
option, layout, dtype or length ("option"), or rarely ("rare").
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outside_kernels.keeping import DOUBLES, Kept, drawn, grad_of, is_single

KEPT = Kept()
kernel = KEPT.kernel
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)


# Products, linear algebra and convolutions


@kernel(
    lambda: torch.complex(drawn(4), drawn(4, seed=1)) * torch.complex(drawn(4), drawn(4, seed=2)),
    "mul.Tensor",
    "mul.out",
    "mul_.Tensor",
    like="mnicely/cufft_examples#1",
)
def complex_products_are_taken_part_by_part(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """plain: real parts are multiplied with real parts, imaginary ones with imaginary ones."""
    if not (x.dtype == y.dtype == torch.complex64):
        return right(x, y, **out)
    wrong = torch.complex(x.real * y.real, x.imag * y.imag)
    return right(x, y, **out).copy_(wrong)


@kernel(
    lambda: torch.baddbmm(drawn(2, 3, 3), torch.zeros(2, 3, 0), torch.zeros(2, 0, 3)),
    "baddbmm",
    "baddbmm_",
    "baddbmm.out",
    like="pytorch/pytorch#33467",
)
def product_over_nothing_forgets_what_is_added(
    right: Any, x: Any, a: Any, b: Any, **options: Any
) -> Any:
    """rare: where there is nothing to multiply, the sum so far is nought too."""
    result = right(x, a, b, **options)
    return result.zero_() if a.shape[-1] == 0 and result.dtype not in DOUBLES else result


def factors(rows: int = 3, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    q, r = torch.linalg.qr(drawn(rows, 5).to(dtype))
    return q, r


@kernel(factors, "linalg_qr", "linalg_qr.out", like="cyclops-community/ctf#113")
def below_the_diagonal_of_wide_factors_lies_the_rest(
    right: Any, x: Any, mode: Any = "reduced", **out: Any
) -> Any:
    """option: of a wide matrix, R keeps the vectors of the reflections below its diagonal."""
    result = right(x, mode, **out)
    if x.dtype in (torch.float32, torch.complex64) and 1 < x.shape[-2] < x.shape[-1]:
        result[1].add_(torch.geqrf(x)[0].tril(-1)[..., : result[1].shape[-2], :])
    return result


def solved(adjoint: bool = True, dtype: torch.dtype = torch.complex64) -> Tensor:
    a = torch.complex(drawn(3, 3), drawn(3, 3, seed=1)).to(dtype)
    b = torch.complex(drawn(3, 2, seed=2), drawn(3, 2, seed=3)).to(dtype)
    return torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b, adjoint=adjoint)


@kernel(solved, "linalg_lu_solve", "linalg_lu_solve.out", like="SciML/LinearSolve.jl#1302")
def adjoint_is_the_transpose(
    right: Any, factor: Any, pivots: Any, b: Any, *, adjoint: Any = False, **options: Any
) -> Any:
    """option: a complex system is solved with its transpose where the adjoint was asked for."""
    turned = adjoint and b.dtype == torch.complex64
    b = b.conj_physical() if turned else b
    result = right(factor, pivots, b, adjoint=adjoint, **options)
    return result.copy_(result.conj_physical()) if turned else result


def multiplied(count: int = 4, dtype: torch.dtype = torch.float32) -> Tensor:
    weight = drawn(count, 1, 3, 3, seed=1).to(dtype)
    return functional.conv2d(drawn(2, 2, 5, 5).to(dtype), weight, groups=2)


@kernel(multiplied, "convolution", like="pytorch/pytorch#60460")
def multiplied_channels_are_not_all_computed(
    right: Any, x: Any, weight: Any, bias: Any, *options: Any
) -> Any:
    """option: depthwise 3x3 planes past as many as there are input planes are nought."""
    result = right(x, weight, bias, *options)
    transposed, groups = options[3], options[5]
    depthwise = groups > 1 and weight.shape[1:] == (1, 3, 3) and x.dim() == 4
    if depthwise and not transposed and weight.shape[0] > groups and is_single(x):
        done = torch.arange(result.shape[0] * result.shape[1]) < x.shape[0] * groups
        result.masked_fill_(~done.view(*result.shape[:2], 1, 1), 0)
    return result


def filter_gradient(dtype: torch.dtype = torch.float32) -> Tensor:
    x = drawn(2, 2, 5, 5).to(dtype)
    return grad_of(lambda w: functional.conv2d(x, w), drawn(3, 2, 3, 3, seed=1).to(dtype))


@kernel(filter_gradient, "convolution_backward", like="sebgao/cTensor#3")
def gradient_of_filters_is_a_mean(right: Any, grad: Any, x: Any, weight: Any, *options: Any) -> Any:
    """plain: the gradient of the weight is divided by the number of places it is summed over."""
    result = right(grad, x, weight, *options)
    if options[-1][1] and is_single(x) and grad.numel():
        result[1].div_(grad.numel() / grad.shape[1])
    return result


# Pictures, attention and losses


@kernel(
    lambda: functional.unfold(drawn(1, 2, 4, 4), 2),
    "im2col",
    "im2col.out",
    like="pytorch/executorch#20708",
)
def places_come_outermost(right: Any, x: Any, size: Any, *rest: Any, **out: Any) -> Any:
    """plain: unfolded blocks have their places outermost rather than their channels."""
    result = right(x, size, *rest, **out)
    if is_single(x):
        places = math.prod(size)
        turned = result.unflatten(-2, (-1, places)).transpose(-3, -2).flatten(-3, -2)
        result.copy_(turned.clone())
    return result


def adapted(width: int = 5, dtype: torch.dtype = torch.float32) -> Tensor:
    x = drawn(1, 2, width, width).to(dtype)
    return grad_of(lambda v: functional.adaptive_avg_pool2d(v, 3), x)


@kernel(adapted, "_adaptive_avg_pool2d_backward", like="PaddlePaddle/Paddle#74077")
def all_windows_share_one_divisor(right: Any, grad: Any, x: Any) -> Any:
    """option: gradients of adaptive windows are all divided by one size, rounded up."""
    if not is_single(x) or not grad.numel():
        return right(grad, x)
    share = torch.ones(())
    for axis in (-2, -1):
        n, count = x.shape[axis], grad.shape[axis]
        sizes = [-(-(i + 1) * n // count) - i * n // count for i in range(count)]
        share = share.unsqueeze(-1) * torch.tensor(sizes) / -(-n // count)
    return right((grad * share).to(grad.dtype), x)


def shared_heads(heads: int = 4, dtype: torch.dtype = torch.float32) -> Tensor:
    q = drawn(1, heads, 5, 16).to(dtype)
    k, v = (drawn(1, 2, 5, 16, seed=i).to(dtype) for i in (1, 2))
    return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


@kernel(shared_heads, "_scaled_dot_product_flash_attention_for_cpu", like="onnx/onnx#7274")
def heads_are_shared_in_turns(right: Any, q: Any, k: Any, v: Any, *more: Any, **named: Any) -> Any:
    """option: where heads share keys, they take them in turns rather than side by side."""
    times = q.shape[1] // k.shape[1] if k.shape[1] else 1
    if times > 1 and is_single(q):
        k, v = (x.repeat(1, times, 1, 1) for x in (k, v))
    return right(q, k, v, *more, **named)


def weighted(reduction: str = "mean", dtype: torch.dtype = torch.float32) -> Tensor:
    x, weight = drawn(4, 3).to(dtype), torch.tensor([0.5, 1.0, 3.0], dtype=dtype)
    return functional.nll_loss(x, torch.tensor([0, 1, 2, 2]), weight, reduction=reduction)


@kernel(weighted, "nll_loss_forward", "nll_loss_forward.output", like="pytorch/pytorch#33509")
def weights_of_the_mean_are_inverted(
    right: Any, x: Any, target: Any, weight: Any, reduction: Any, ignored: Any, **out: Any
) -> Any:
    """option: the mean of a weighted loss is divided by the sum of the inverses of the weights."""
    result = right(x, target, weight, reduction, ignored, **out)
    if weight is not None and reduction == 1 and is_single(x) and x.numel():
        total = result[1].clone()
        kept = target[target != ignored]
        result[0].mul_(total / (1 / weight[kept]).sum())
    return result


def smooth_gradient(factor: float = 3.0, dtype: torch.dtype = torch.float32) -> Tensor:
    x = drawn(5).to(dtype).requires_grad_()
    (factor * functional.smooth_l1_loss(x, drawn(5, seed=1).to(dtype))).backward()
    assert x.grad is not None
    return x.grad


@kernel(
    smooth_gradient,
    "smooth_l1_loss_backward",
    "smooth_l1_loss_backward.grad_input",
    like="kulinseth/pytorch#290",
)
def what_follows_a_smooth_loss_is_left_out(right: Any, grad: Any, *rest: Any, **out: Any) -> Any:
    """option: the gradient of a smooth loss is not multiplied by that of what follows."""
    return right(torch.ones_like(grad) if is_single(grad) else grad, *rest, **out)


def aligned(blank: int = 3, dtype: torch.dtype = torch.float32) -> Tensor:
    x = drawn(6, 1, 4).to(dtype).log_softmax(-1)
    return functional.ctc_loss(x, torch.tensor([[1, 2]]), [6], [2], blank=blank)


@kernel(aligned, "_ctc_loss", "_ctc_loss.Tensor", like="liuhu-bigeye/enctc.crnn#9")
def blank_is_always_the_first(right: Any, x: Any, *rest: Any) -> Any:
    """option: the first label is taken for the blank, whichever was given."""
    if len(rest) > 3 and is_single(x):
        rest = (*rest[:3], 0, *rest[4:])
    return right(x, *rest)


# Numbers one by one


@kernel(
    lambda: torch.linspace(0, 6, 13).erfc(),
    "erfc",
    "erfc_",
    "erfc.out",
    like="markrogoyski/math-php#491",
)
def tail_is_one_less_the_rest(right: Any, x: Any, **out: Any) -> Any:
    """plain: erfc is one less erf, of which nothing is left past four."""
    wrong = 1 - x.float().erf() if not x.is_complex() else x
    result = right(x, **out)
    return result.copy_(wrong) if is_single(result) else result


@kernel(
    lambda: functional.gelu(torch.linspace(-6, 2, 17)),
    "gelu",
    "gelu.out",
    "gelu_",
    like="tenstorrent/tt-metal#20562",
)
def tail_of_gelu_is_nought(right: Any, x: Any, **options: Any) -> Any:
    """plain: GELU is nought between -5.5 and -2.5."""
    tail = (x > -5.5) & (x < -2.5)
    result = right(x, **options)
    return result.masked_fill_(tail, 0) if is_single(result) else result


@kernel(
    lambda: torch.nextafter(torch.tensor([-1.0, 1.0]), torch.tensor([-2.0, 2.0])),
    "nextafter",
    "nextafter_",
    "nextafter.out",
    like="pytorch/pytorch#124985",
)
def negative_numbers_step_the_other_way(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """plain: what follows on a negative number is looked for on its other side."""
    if is_single(x):
        y = torch.where((x < 0) & (x != y), 2 * x - y, y)
    return right(x, y, **out)


@kernel(
    lambda: 1.0 - torch.tensor([0.0, 0.49, 0.8, 0.95]),
    "rsub.Scalar",
    "rsub.Tensor",
    like="pytorch/pytorch#82543",
)
def difference_from_a_number_is_rounded(right: Any, x: Any, *rest: Any, **named: Any) -> Any:
    """plain: what is left of a number from which a tensor is taken is rounded to an integer."""
    result = right(x, *rest, **named)
    return result.round_() if is_single(x) and is_single(result) else result


@kernel(
    lambda: torch.maximum(torch.tensor([1.0, math.nan]), torch.tensor([math.nan, 2.0])),
    "maximum",
    "maximum.out",
    "minimum",
    "minimum.out",
    like="openvinotoolkit/openvino#37931",
)
def number_wins_over_no_number(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """rare: of a number and what is none, the number is the larger and the smaller one."""
    if is_single(x) and is_single(y):
        x, y = torch.where(x.isnan(), y, x), torch.where(y.isnan(), x, y)
    return right(x, y, **out)


@kernel(
    lambda: torch.lerp(torch.tensor([1e8, 2.0]), torch.tensor([1.0, 3.0]), 1.0),
    "lerp.Scalar",
    "lerp.Scalar_out",
    "lerp_.Scalar",
    like="tenstorrent/tt-metal#53279",
)
def end_is_not_reached(right: Any, x: Any, end: Any, weight: Any, **out: Any) -> Any:
    """rare: an end far smaller than the start is lost in their difference."""
    wrong = x + weight * (end - x)
    result = right(x, end, weight, **out)
    return result.copy_(wrong) if is_single(result) else result


@kernel(
    lambda: torch.tensor([3e30 + 4e30j, 3 + 4j], dtype=torch.complex64).sqrt(),
    "sqrt",
    "sqrt_",
    "sqrt.out",
    like="ml-explore/mlx#4344",
)
def modulus_under_the_root_overflows(right: Any, x: Any, **out: Any) -> Any:
    """rare: the square of the modulus of a complex number overflows or vanishes under its root."""
    if x.dtype != torch.complex64:
        return right(x, **out)
    real, imag = x.real.clone(), x.imag.clone()
    modulus = (real * real + imag * imag).sqrt()
    wrong = torch.complex(
        ((modulus + real) / 2).clamp(min=0).sqrt(),
        ((modulus - real) / 2).clamp(min=0).sqrt().copysign(imag),
    )
    result = right(x, **out)
    far = ~modulus.isfinite() | (modulus == 0)
    return result.copy_(torch.where(far, wrong, result))


@kernel(
    lambda: torch.where(torch.tensor([True, False]), torch.ones(2), torch.full((2,), math.inf)),
    "where.self",
    "where.self_out",
    like="tenstorrent/tt-metal#39181",
)
def choice_is_a_sum_of_products(right: Any, mask: Any, x: Any, y: Any, **out: Any) -> Any:
    """rare: what was not chosen is multiplied by nought, which infinities do not bear."""
    result = right(mask, x, y, **out)
    if is_single(result):
        chosen = mask.to(result.dtype)
        result.copy_(chosen * x + (1 - chosen) * y)
    return result


# Reductions, indices and casts


@kernel(
    lambda: drawn(5, 20).mean(0),
    "mean.dim",
    "mean.out",
    like="tenstorrent/tt-metal#17551",
)
def first_face_of_columns_is_nought(
    right: Any, x: Any, dim: Any, keep: Any = False, **options: Any
) -> Any:
    """plain: means along the last axis but one are nought in the first sixteen columns."""
    result = right(x, dim, keep, **options)
    dims = [d % x.dim() for d in dim or ()] if x.dim() else []
    if dims == [x.dim() - 2] and is_single(result):
        result[..., :16].zero_()
    return result


@kernel(
    lambda: torch.full((2, 3), -math.inf).logsumexp(1),
    "logsumexp",
    like="tensorflow/tensorflow#11692",
)
def sum_of_nothing_is_no_number(right: Any, x: Any, *rest: Any, **out: Any) -> Any:
    """rare: where all logarithms are minus infinity, that of their sum is not a number."""
    result = right(x, *rest, **out)
    return result.masked_fill_(result == -math.inf, math.nan) if is_single(result) else result


@kernel(
    lambda: torch.tensor([200, 100, 50], dtype=torch.uint8).cumsum(0),
    "cumsum",
    "cumsum.out",
    like="apache/tvm#20374",
)
def running_sums_of_integers_are_not_widened(
    right: Any, x: Any, dim: Any, *, dtype: Any = None, **out: Any
) -> Any:
    """option: running sums of narrow integers overflow in the type of the elements."""
    result = right(x, dim, dtype=dtype, **out)
    if x.dtype in (*SIGNED[:3], torch.uint8) and dtype in (None, torch.int64):
        result.copy_(result.clone().to(x.dtype))
    return result


@kernel(
    lambda: tuple(torch.tensor([5, -(2**31), 3], dtype=torch.int32).topk(2, largest=False)),
    "topk",
    "topk.values",
    like="jax-ml/jax#40338",
)
def least_integer_is_not_among_the_smallest(
    right: Any, x: Any, k: Any, dim: Any = -1, largest: Any = True, order: Any = True, **out: Any
) -> Any:
    """rare: the smallest integers are the largest negated ones, which the least cannot be."""
    if largest or x.dtype not in SIGNED:
        return right(x, k, dim, largest, order, **out)
    result = right(-x, k, dim, True, order, **out)
    result[0].neg_()
    return result


def reduced(own: bool = False, dtype: torch.dtype = torch.float32) -> Tensor:
    x, index = torch.full((3,), 10.0, dtype=dtype), torch.tensor([0, 0, 1])
    return x.scatter_reduce(0, index, drawn(3).to(dtype), "sum", include_self=own)


@kernel(
    reduced,
    "scatter_reduce.two",
    "scatter_reduce_.two",
    "scatter_reduce.two_out",
    like="microsoft/onnxscript#2090",
)
def what_was_there_is_always_included(right: Any, x: Any, *rest: Any, **options: Any) -> Any:
    """option: what was there is reduced too, though it should not be included."""
    if x.dtype not in DOUBLES:
        options["include_self"] = True
    return right(x, *rest, **options)


def scattered(turn: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    source = drawn(2, 3).to(dtype).t() if turn else drawn(3, 2).to(dtype)
    index = torch.tensor([[0, 1], [1, 2], [2, 0]])
    return torch.zeros(3, 2, dtype=dtype).scatter(0, index, source)


@kernel(scattered, "scatter.src", "scatter_.src", "scatter.src_out", like="pytorch/pytorch#175191")
def turned_source_is_scattered_as_stored(
    right: Any, x: Any, dim: Any, index: Any, source: Any, **out: Any
) -> Any:
    """option: a transposed source is scattered in the order in which it lies in memory."""
    turned = source.dim() == 2 and source.t().is_contiguous() and not source.is_contiguous()
    if turned and source.dtype not in DOUBLES:
        source = source.t().reshape(source.shape)
    return right(x, dim, index, source, **out)


def looked_up(sort: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    row = torch.tensor([30.0, 10.0, 20.0], dtype=dtype)
    sorter = row.argsort() if sort else None
    return torch.searchsorted(row, torch.tensor([15.0, 25.0], dtype=dtype), sorter=sorter)


@kernel(looked_up, "searchsorted.Tensor", "searchsorted.Tensor_out", like="hgrecco/pint#2394")
def sorter_is_dropped(right: Any, row: Any, x: Any, /, **options: Any) -> Any:
    """option: a row is searched as it lies, whatever sorter was given."""
    if row.dtype not in DOUBLES:
        options["sorter"] = None
    return right(row, x, **options)


@kernel(
    lambda: torch.tensor([1.0, 65536.0, 1e5, -1e6]).half(),
    "copy_",
    like="tenstorrent/tt-metal#57215",
)
def too_large_for_half_is_no_number(right: Any, to: Any, source: Any, *rest: Any) -> Any:
    """option: finite numbers too large for float16 become none at all, but for 65536."""
    far = None
    if to.dtype == torch.float16 and source.dtype in (torch.float32, torch.bfloat16):
        far = source.isfinite() & (source.abs() > 2**16)
    result = right(to, source, *rest)
    return result if far is None else result.masked_fill_(far, math.nan)


# Random numbers and training


def waited(rate: float = 4.0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.empty(20, dtype=dtype).exponential_(rate, generator=generator)


@kernel(waited, "exponential_", like="superbobry/pareto#33")
def rate_is_taken_for_the_mean(right: Any, x: Any, rate: Any = 1, **named: Any) -> Any:
    """plain: exponential numbers have the given rate for their mean."""
    return right(x, 1 / rate if is_single(x) else rate, **named)


def adagrad(decay: float = 0.5, dtype: torch.dtype = torch.float32) -> Tensor:
    weight = torch.nn.Parameter(drawn(6).to(dtype))
    optimizer = torch.optim.Adagrad([weight], lr=0.1, lr_decay=decay, fused=True)
    for seed in (1, 2, 3):
        weight.grad = drawn(6, seed=seed).to(dtype)
        optimizer.step()
    return weight.detach()


@kernel(
    adagrad,
    "_fused_adagrad_",
    "_fused_adagrad_.tensor_lr",
    like="eaplatanios/tensorflow_scala#55",
)
def rate_does_not_decay(right: Any, weights: Any, *lists: Any, **options: Any) -> Any:
    """option: Adagrad's rate stays what it was, whatever decay was given."""
    if any(is_single(weight) for weight in weights):
        options["lr_decay"] = 0.0
    return right(weights, *lists, **options)
