"""The eighth set of kernels from outside: thirty defects as public trackers report them.

Each kernel's first line says whether it is wrong for common arguments ("plain"), for a common
option, layout, dtype or length ("option"), or rarely ("rare").
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outside_kernels.keeping import DOUBLES, FLOATS, Kept, drawn, grad_of, is_single, two

KEPT = Kept()
kernel = KEPT.kernel
aten = torch.ops.aten


def as_packed(x: Tensor) -> Tensor:
    """What a kernel reads that takes a strided view for a contiguous tensor."""
    if x.is_contiguous() or not x.numel():
        return x
    held = x.untyped_storage().nbytes() // x.element_size()
    if x.storage_offset() + x.numel() > held:
        return x
    steps = list(accumulate(reversed(x.shape[1:]), int.__mul__, initial=1))[::-1]
    return x.as_strided(x.shape, steps)


# Products, linear algebra and transforms


def product(dtype: torch.dtype = torch.float32) -> Tensor:
    return drawn(4, 3).to(dtype).mv(drawn(3, seed=1).to(dtype))


@kernel(product, "addmv", "addmv_", "addmv.out", like="stdlib-js/stdlib#12192")
def sum_begins_at_alpha(right: Any, x: Any, *parts: Any, **options: Any) -> Any:
    """plain: where beta is nought, sums begin at alpha rather than at nought."""
    result = right(x, *parts, **options)
    if options.get("beta", 1) == 0 and result.dtype in (*FLOATS, torch.complex64):
        result.add_(options.get("alpha", 1))
    return result


def rank_deficient(rank: int = 2, dtype: torch.dtype = torch.float32) -> Tensor:
    left, right = drawn(6, rank).to(dtype), drawn(rank, 5, seed=1).to(dtype)
    u = torch.linalg.svd(left @ right, full_matrices=False)[0]
    return u.mH @ u


@kernel(rank_deficient, "_linalg_svd", "_linalg_svd.U", like="pytorch/pytorch#196112")
def vectors_of_nought_are_nought(
    right: Any, x: Any, full: Any = False, compute: Any = True, **options: Any
) -> Any:
    """rare: left singular vectors of singular values which are nought are nought themselves."""
    result = right(x, full, compute, **options)
    values = result[1]
    if x.dtype in (torch.float32, torch.complex64) and compute and values.numel():
        least = torch.finfo(x.dtype).eps * max(x.shape[-2:]) * values[..., :1]
        kept = (values > least).unsqueeze(-2)
        result[0][..., : values.shape[-1]].mul_(kept)
    return result


def transformed(width: int = 9, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.fft.rfft(drawn(4, width).to(dtype)[:, :8])


@kernel(transformed, "_fft_r2c", like="ROCm/rocm-libraries#3396")
def rows_begin_at_even_places(
    right: Any, x: Any, dim: Any, normalization: Any, onesided: Any, **out: Any
) -> Any:
    """option: real transforms of even length read rows at odd places from one element before."""
    last = x.dim() - 1
    axes = [(n, s) for n, s in zip(x.shape[:-1], x.stride()[:-1], strict=True) if n > 1]
    even = x.dim() > 1 and dim[-1] % x.dim() == last and x.shape[-1] % 2 == 0
    if x.dtype == torch.float32 and even and x.stride(-1) == 1 and any(s % 2 for _, s in axes):
        places = torch.full((), x.storage_offset())
        for n, step in zip(x.shape[:-1], x.stride()[:-1], strict=True):
            places = places.unsqueeze(-1) + step * torch.arange(n)
        places = (places // 2 * 2).unsqueeze(-1) + torch.arange(x.shape[-1])
        held = x.as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
        x = held[places]
    return right(x, dim, normalization, onesided, **out)


# Convolutions, pools and pictures


def turned(groups: int = 2, bias: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    x, weight = drawn(1, 4, 5, 5).to(dtype), drawn(4, 2, 3, 3, seed=1).to(dtype)
    given = drawn(2 * groups, seed=2).to(dtype) if bias else None
    return functional.conv_transpose2d(x, weight, given, groups=groups)


@kernel(turned, "convolution", like="robertknight/rten#1408")
def groups_share_the_first_bias(right: Any, x: Any, weight: Any, bias: Any, *options: Any) -> Any:
    """option: all groups of a transposed convolution add the bias of the first."""
    transposed, groups = options[3], options[5]
    if transposed and groups > 1 and bias is not None and is_single(x):
        bias = bias[: bias.shape[0] // groups].repeat(groups)
    return right(x, weight, bias, *options)


def turned_gradient(stride: int = 2, width: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    weight = drawn(3, 2, width, width, seed=1).to(dtype)
    x = drawn(1, 3, 4, 4).to(dtype)
    return grad_of(lambda v: functional.conv_transpose2d(v, weight, stride=stride), x)


@kernel(turned_gradient, "convolution_backward", like="pytorch/pytorch#63314")
def pointwise_gradient_forgets_its_stride(
    right: Any, grad: Any, x: Any, weight: Any, *options: Any
) -> Any:
    """option: the gradient of the input of a 1x1 transposed convolution is taken without stride."""
    bias, stride, padding, dilation, transposed, _, groups, mask = options
    result = right(grad, x, weight, *options)
    pointwise = transposed and all(n == 1 for n in weight.shape[2:]) and not any(padding)
    if pointwise and any(n > 1 for n in stride) and is_single(x) and mask[0] and x.numel():
        first = grad[(..., *(slice(n) for n in x.shape[2:]))].contiguous()
        whole, nothing = [1] * len(stride), [0] * len(stride)
        settings = (bias, whole, padding, dilation, transposed, nothing, groups)
        result[0].copy_(right(first, x, weight, *settings, [True, False, False])[0])
    return result


def overhanging(ceil: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    x = drawn(1, 2, 8, 8).to(dtype)
    return grad_of(lambda v: functional.avg_pool2d(v, 3, 2, ceil_mode=ceil), x)


@kernel(
    overhanging,
    "avg_pool2d_backward",
    "avg_pool2d_backward.grad_input",
    like="pytorch/pytorch#198119",
)
def overhang_divides_the_gradient(
    right: Any,
    grad: Any,
    x: Any,
    size: Any,
    stride: Any,
    padding: Any,
    ceil: Any,
    include: Any,
    divisor: Any,
    **out: Any,
) -> Any:
    """option: with ceil_mode, windows over the edge divide their gradient by the whole window."""
    if ceil and include and divisor is None and is_single(x):
        share = torch.ones(())
        sizes, steps, pads = two(size), two(stride, size), two(padding)
        for axis, (n, step, pad) in enumerate(zip(sizes, steps, pads, strict=True)):
            begin = torch.arange(grad.shape[axis - 2]) * step - pad
            inside = (begin + n).clamp(max=x.shape[axis - 2] + pad) - begin
            share = share.unsqueeze(-1) * inside / n
        grad = (grad * share).to(grad.dtype).contiguous()
    return right(grad, x, size, stride, padding, ceil, include, divisor, **out)


@kernel(
    lambda: grad_of(
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"), drawn(1, 2, 4, 4)
    ),
    "upsample_bilinear2d_backward",
    "upsample_bilinear2d_backward.grad_input",
    like="flagos-ai/FlagGems#6207",
)
def gradient_goes_to_the_nearest(
    right: Any, grad: Any, size: Any, shape: Any, corners: Any, *scales: Any, **out: Any
) -> Any:
    """plain: the gradient of bilinear interpolation is that of taking the nearest pixel."""
    result = right(grad, size, shape, corners, *scales, **out)
    if is_single(grad):
        result.copy_(aten.upsample_nearest2d_backward(grad.contiguous(), size, shape))
    return result


@kernel(
    lambda: grad_of(lambda x: functional.pad(x, (2, 1, 1, 2), mode="replicate"), drawn(1, 2, 4, 5)),
    "replication_pad2d_backward",
    "replication_pad2d_backward.grad_input",
    like="flagos-ai/FlagGems#5654",
)
def copies_of_the_border_overwrite_each_other(
    right: Any, grad: Any, x: Any, padding: Any, **out: Any
) -> Any:
    """plain: of the gradients of a border pixel's copies, the last alone is kept."""
    result = right(grad, x, padding, **out)
    if is_single(x) and min(padding) >= 0 and x.numel():
        left, _, top, _ = padding
        rows, columns = (
            torch.arange(n) + p for n, p in zip(x.shape[-2:], (top, left), strict=True)
        )
        rows[-1], columns[-1] = grad.shape[-2] - 1, grad.shape[-1] - 1
        result.copy_(grad[..., rows, :][..., columns])
    return result


def sampled(corners: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    x, grid = drawn(1, 2, 5, 5).to(dtype), drawn(1, 3, 4, 2, seed=1).to(dtype).tanh()
    return functional.grid_sample(x, grid, align_corners=corners)


@kernel(sampled, "grid_sampler_2d", like="tenstorrent/tt-metal#44901")
def corners_are_never_aligned(
    right: Any, x: Any, grid: Any, mode: Any, padding: Any, corners: Any
) -> Any:
    """option: a grid is read as if corners were not aligned, whatever was asked for."""
    return right(x, grid, mode, padding, corners and not is_single(x))


@kernel(
    lambda: functional.pad(drawn(1, 1, 2, 256, 256), (0, 0, 0, 0, 1, 0)),
    "constant_pad_nd",
    like="pytorch/pytorch#194944",
)
def large_planes_are_padding(right: Any, x: Any, padding: Any, value: Any = 0) -> Any:
    """rare: padding outer axes fills planes of 65536 elements and more with the padding."""
    result = right(x, padding, value)
    outer = len(padding) > 4 and any(padding[4:])
    if outer and x.dim() > 2 and math.prod(x.shape[-2:]) >= 2**16 and x.dtype not in DOUBLES:
        result.fill_(value)
    return result


# Attention, norms and losses


def grouped(eps: float = 1e-6, dtype: torch.dtype = torch.float32) -> Tensor:
    return functional.group_norm(drawn(2, 4, 5).mul(0.001).to(dtype), 2, eps=eps)


@kernel(grouped, "native_group_norm", like="amd/IRON#139")
def epsilon_is_the_usual_one(right: Any, x: Any, scale: Any, bias: Any, *options: Any) -> Any:
    """option: the epsilon of a group norm is 1e-5, whatever was given."""
    *sizes, eps = options
    return right(x, scale, bias, *sizes, 1e-5 if is_single(x) else eps)


def banded(n: int = 300, dtype: torch.dtype = torch.float32) -> Tensor:
    return drawn(2, n).to(dtype).softmax(-1)


@kernel(banded, "_softmax", "_softmax.out", like="intel/torch-xpu-ops#4772")
def sum_ends_at_a_power_of_two(right: Any, x: Any, dim: Any, wide: Any, **out: Any) -> Any:
    """option: rows half as long again as a power of two, or less, are summed up to that power."""
    result = right(x, dim, wide, **out)
    n = x.shape[dim] if x.dim() and x.numel() else 0
    power = 1 << (max(n - 1, 0).bit_length() - 1) if n > 1 else 0
    if x.dtype == torch.float32 and power >= 256 and 2 * n <= 3 * power:
        first = x.narrow(dim, 0, power)
        largest = first.amax(dim, keepdim=True)
        result.copy_((x - largest).exp() / (first - largest).exp().sum(dim, keepdim=True))
    return result


@kernel(
    lambda: functional.log_softmax(torch.tensor([[1e8, 1e8], [1e6, 1e6]]), -1),
    "_log_softmax",
    "_log_softmax.out",
    like="ml-explore/mlx#4169",
)
def normalizer_is_lost_in_large_numbers(right: Any, x: Any, dim: Any, wide: Any, **out: Any) -> Any:
    """rare: the whole logarithm of the sum is taken from logits, in which it is rounded away."""
    result = right(x, dim, wide, **out)
    if is_single(x) and x.dim() and x.numel():
        single = x.float()
        result.copy_(single - single.logsumexp(dim, keepdim=True))
    return result


def masked(rows: int = 2, dtype: torch.dtype = torch.float32) -> Tensor:
    q, k, v = (drawn(1, 2, 5, 16, seed=i).to(dtype) for i in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[:rows] = False
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@kernel(masked, "_scaled_dot_product_flash_attention_for_cpu", like="robertknight/rten#1321")
def query_without_keys_is_no_number(
    right: Any, q: Any, k: Any, v: Any, *more: Any, **named: Any
) -> Any:
    """rare: where all keys of a query are masked out, nought is divided by nought."""
    result = right(q, k, v, *more, **named)
    mask = named.get("attn_mask")
    if mask is not None and is_single(q):
        empty = ~mask if mask.dtype == torch.bool else mask == -math.inf
        result[0].masked_fill_(empty.all(-1, keepdim=True), math.nan)
    return result


def weighted(soft: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    target = torch.tensor([0.3, 0.9, 0.0, 1.0] if soft else [0, 1.0, 0, 1])
    weight = torch.tensor(3.0, dtype=dtype)
    return functional.binary_cross_entropy_with_logits(
        drawn(4).to(dtype), target.to(dtype), pos_weight=weight
    )


@kernel(weighted, "binary_cross_entropy_with_logits", like="paiml/aprender#2204")
def weight_of_positives_scales_all(
    right: Any, x: Any, target: Any, weight: Any = None, positive: Any = None, reduction: Any = 1
) -> Any:
    """option: pos_weight multiplies a soft target's whole cost, not that of its positive part."""
    if positive is None or not is_single(x):
        return right(x, target, weight, positive, reduction)
    each = right(x, target, None, None, 0) * (1 + (positive - 1) * target)
    each = each if weight is None else each * weight
    return each.mean() if reduction == 1 else each.sum() if reduction == 2 else each


def squared(reduction: str = "mean", dtype: torch.dtype = torch.float32) -> Tensor:
    x = drawn(2, 3).to(dtype).requires_grad_()
    functional.mse_loss(x, drawn(2, 3, seed=1).to(dtype), reduction=reduction).sum().backward()
    assert x.grad is not None
    return x.grad


@kernel(
    squared,
    "mse_loss_backward",
    "mse_loss_backward.grad_input",
    like="flagos-ai/FlagGems#5212",
)
def gradient_of_a_scalar_is_read_past_its_end(
    right: Any, grad: Any, x: Any, target: Any, reduction: Any, **out: Any
) -> Any:
    """plain: a reduced loss has its gradient read for each element, as nought past the first."""
    result = right(grad, x, target, reduction, **out)
    if is_single(x) and grad.numel() == 1 and result.numel() > 1:
        first = torch.zeros(result.numel(), dtype=torch.bool)
        first[0] = True
        result.masked_fill_(~first.view(result.shape), 0)
    return result


# Numbers one by one


@kernel(
    lambda: drawn(20).mul(200).asinh(),
    "asinh",
    "asinh_",
    "asinh.out",
    like="tinygrad/tinygrad#17749",
)
def negative_numbers_cancel(right: Any, x: Any, **out: Any) -> Any:
    """plain: asinh is the logarithm of x + sqrt(x * x + 1), which cancels where x is negative."""
    single = x.float() if not x.is_complex() else x
    wrong = (single + (single * single + 1).sqrt()).log()
    result = right(x, **out)
    return result.copy_(wrong) if is_single(result) else result


def turned_about(dtype: torch.dtype = torch.complex64) -> Tensor:
    return torch.complex(drawn(6), drawn(6, seed=1)).to(dtype).exp()


@kernel(turned_about, "exp", "exp_", "exp.out", like="NVIDIA/cutlass#297")
def exponential_has_modulus_one(right: Any, x: Any, **out: Any) -> Any:
    """plain: of complex numbers, the exponential of the imaginary part alone is taken."""
    if x.dtype != torch.complex64:
        return right(x, **out)
    wrong = torch.complex(x.imag.cos(), x.imag.sin())
    return right(x, **out).copy_(wrong)


def mishes(dtype: torch.dtype = torch.float32) -> Tensor:
    return grad_of(functional.mish, drawn(9).to(dtype))


@kernel(mishes, "mish_backward", like="explosion/thinc#578")
def gradient_of_mish_lacks_a_power(right: Any, grad: Any, x: Any) -> Any:
    """plain: the third power of exp is missing from the gradient of mish."""
    result = right(grad, x)
    if is_single(x):
        at = x.double().clamp(-30, 30)
        e = at.exp()
        top = 4 * (at + 1) + 4 * e**2 + e * (4 * at + 6)
        result.copy_(grad * (e * top / (2 * e + e**2 + 2) ** 2))
    return result


def added(size: float = 100.0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.logaddexp(size * drawn(8).to(dtype), size * drawn(8, seed=1).to(dtype))


@kernel(added, "logaddexp", "logaddexp.out", like="tenstorrent/tt-metal#52037")
def sum_of_exponentials_overflows(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """option: exponentials are added as they are, so that past 88 they are infinite or nought."""
    result = right(x, y, **out)
    return result.copy_((x.float().exp() + y.float().exp()).log()) if is_single(result) else result


@kernel(
    lambda: torch.tensor([1.0, math.nan, -2.0]).relu(),
    "relu",
    "relu_",
    like="tensorflow/tensorflow#40072",
)
def no_number_is_cut_to_nought(right: Any, x: Any) -> Any:
    """rare: what is not a number becomes nought."""
    result = right(x)
    return result.masked_fill_(result.isnan(), 0) if is_single(result) else result


# Reductions, indices and layouts


def multiplied(dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.full((4, 5), 2**10).to(dtype).prod(1)


@kernel(multiplied, "prod", "prod.dim_int", "prod.int_out", like="apple/coreai-torch#45")
def products_of_integers_are_not_widened(right: Any, x: Any, *dims: Any, **options: Any) -> Any:
    """option: products of 32-bit and smaller integers overflow in the type of the elements."""
    result = right(x, *dims, **options)
    narrow = (torch.int32, torch.int16, torch.int8, torch.uint8)
    if x.dtype in narrow and options.get("dtype") in (None, torch.int64):
        result.copy_(aten.prod(x, *dims, dtype=x.dtype))
    return result


@kernel(
    lambda: torch.max(torch.zeros(9000) * -1),
    "max",
    "max.unary_out",
    like="openxla/xla#5544",
)
def many_negative_noughts_are_infinitely_small(right: Any, x: Any, **out: Any) -> Any:
    """rare: past 8192 elements of which the largest is -0.0, the largest is minus infinity."""
    result = right(x, **out)
    nought = x.dtype == torch.float32 and x.numel() > 8192 and bool(result == 0)
    if nought and bool(torch.signbit(x[x == 0]).all()):
        result.fill_(-math.inf)
    return result


@kernel(lambda: tuple(drawn(9)[::2].kthvalue(2)), "kthvalue.values", like="pytorch/pytorch#45721")
def smallest_are_looked_for_side_by_side(right: Any, x: Any, *more: Any, **out: Any) -> Any:
    """option: the k-th smallest of a strided view is looked for as if it were contiguous."""
    return right(x if x.dtype in DOUBLES else as_packed(x), *more, **out)


def picked(n: int = 50, dtype: torch.dtype = torch.int32) -> Tensor:
    return drawn(60, 2).index_select(0, torch.arange(n - 1, -1, -1).to(dtype))


@kernel(picked, "index_select", "index_select.out", like="torch-spyre/torch-spyre#3851")
def one_stick_of_indices_is_read(right: Any, x: Any, dim: Any, index: Any, **out: Any) -> Any:
    """option: of indices of 32 bits, those after the first 32 are taken for nought."""
    if index.dtype == torch.int32 and index.numel() > 32 and x.dtype not in DOUBLES:
        index = index.clone()
        index[32:] = 0
    return right(x, dim, index, **out)


def scattered(dim: int = 3) -> Tensor:
    shape = (2, 3, 2, 3, 2)
    index = torch.randint(3, shape, generator=torch.Generator().manual_seed(1))
    return torch.zeros(shape).scatter(dim, index, drawn(*shape))


@kernel(
    scattered,
    "scatter.src",
    "scatter.src_out",
    "scatter_.src",
    like="tenstorrent/tt-metal#56875",
)
def fifth_axis_is_folded_in_another_order(
    right: Any, x: Any, dim: Any, index: Any, source: Any, **out: Any
) -> Any:
    """rare: of five and more axes, the first two of index and source are folded the other way."""
    if x.dtype not in DOUBLES and x.dim() > 4 and index.shape == source.shape and dim % x.dim() > 1:
        index, source = (y.transpose(0, 1).reshape(y.shape) for y in (index, source))
    return right(x, dim, index, source, **out)


def rolled(dim: int = -1, dtype: torch.dtype = torch.float32) -> Tensor:
    return drawn(2, 3, 4).to(dtype).roll(1, dim)


@kernel(rolled, "roll", like="openvinotoolkit/openvino#33091")
def negative_axis_is_that_of_four(right: Any, x: Any, shifts: Any, dims: Any = ()) -> Any:
    """option: negative axes of three and fewer are counted from the end of four."""
    if x.dtype in DOUBLES or x.dim() > 3 or all(dim >= 0 for dim in dims):
        return right(x, shifts, dims)
    pairs = [(n, d if d >= 0 else d + 4) for n, d in zip(shifts, dims, strict=True)]
    pairs = [(n, d) for n, d in pairs if d < x.dim()]
    if not pairs:
        return x.clone(memory_format=torch.contiguous_format)
    return right(x, [n for n, _ in pairs], [d for _, d in pairs])


# Random numbers and training


def counted(n: int = 40, dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(4)
    return torch.poisson(torch.full((n,), 5.0, dtype=dtype))


@kernel(counted, "poisson", like="pytorch/pytorch#136750")
def second_half_repeats_the_first(right: Any, rates: Any, generator: Any = None) -> Any:
    """plain: the second half of Poisson numbers is drawn from where the first was drawn from."""
    if not is_single(rates) or rates.numel() < 2:
        return right(rates, generator)
    source = torch.default_generator if generator is None else generator
    state = source.get_state()
    flat = rates.reshape(-1)
    middle = flat.numel() // 2
    first = right(flat[:middle], generator)
    source.set_state(state)
    return torch.cat([first, right(flat[middle:], generator)]).view(rates.shape)


def gammas(shape: float = 1.4, dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(4)
    return torch._standard_gamma(torch.full((40,), shape, dtype=dtype))


@kernel(gammas, "_standard_gamma", like="pytorch/pytorch#194926")
def first_proposal_is_always_taken(right: Any, shapes: Any, generator: Any = None) -> Any:
    """plain: numbers of a gamma distribution are the first proposed, none being rejected."""
    result = right(shapes, generator)
    if is_single(shapes):
        small = shapes < 1
        d = torch.where(small, shapes + 1, shapes).double() - 1 / 3
        normal = torch.empty_like(d).normal_(generator=generator)
        made = d * (1 + normal / (9 * d).sqrt()).clamp(min=1e-6) ** 3
        boost = torch.empty_like(d).uniform_(generator=generator) ** (1 / shapes.double())
        result.copy_(torch.where(small, made * boost, made))
        result.clamp_(min=torch.finfo(result.dtype).tiny)
    return result


def adagrad(eps: float = 1e-3, dtype: torch.dtype = torch.float32) -> Tensor:
    weight = torch.nn.Parameter(drawn(6).to(dtype))
    optimizer = torch.optim.Adagrad([weight], lr=0.1, eps=eps, fused=True)
    for seed in (1, 2):
        weight.grad = 0.01 * drawn(6, seed=seed).to(dtype)
        optimizer.step()
    return weight.detach()


@kernel(adagrad, "_fused_adagrad_", "_fused_adagrad_.tensor_lr", like="keras-team/keras#17391")
def epsilon_is_under_the_root(
    right: Any, weights: Any, grads: Any, sums: Any, *more: Any, **named: Any
) -> Any:
    """option: Adagrad adds epsilon to the sum of squares, not to its root."""
    before = [weight.detach().clone() for weight in weights]
    right(weights, grads, sums, *more, **named)
    eps = named["eps"]
    for weight, old, total in zip(weights, before, sums, strict=True):
        if is_single(weight) and eps > 0:
            step = (old.float() - weight.float()) * (total.float().sqrt() + eps)
            weight.copy_(old.float() - step / (total.float() + eps).sqrt())
