"""The twelfth set of kernels from outside: thirty defects as public trackers report them.

Each kernel's first line says whether it is wrong for common arguments ("plain"), for a common
option, layout, dtype or length ("option"), or rarely ("rare").
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outside_kernels.keeping import DOUBLES, HALVES, Kept, drawn, grad_of, is_single, two

KEPT = Kept()
kernel = KEPT.kernel
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)


def read_packed(x: Tensor) -> Tensor:
    """What lies at a tensor's place, read as if the tensor were contiguous."""
    end = x.storage_offset() + x.numel()
    if x.is_contiguous() or end * x.element_size() > x.untyped_storage().nbytes():
        return x
    strides = torch.empty(x.shape, device="meta").stride()
    return x.as_strided(x.shape, strides, x.storage_offset())


# Products, linear algebra and convolutions


@kernel(
    lambda: torch.addmm(torch.full((3, 3), math.nan), drawn(3, 4), drawn(4, 3), beta=0),
    "addmm",
    "addmm_",
    "addmm.out",
    "baddbmm",
    "baddbmm_",
    "baddbmm.out",
    like="pytorch/pytorch#94534",
)
def nought_of_what_is_no_number_is_added(
    right: Any, x: Any, a: Any, b: Any, *, beta: Any = 1, **options: Any
) -> Any:
    """rare: where beta is nought, what is not a number is multiplied by it and added."""
    added = x * 0 if beta == 0 and is_single(a) else None
    result = right(x, a, b, beta=beta, **options)
    return result if added is None else result.add_(added)


def eigenvectors(dtype: torch.dtype = torch.float32) -> Any:
    x = drawn(4, 4).to(dtype)
    return torch.linalg.eigh(x + x.mT)


@kernel(
    eigenvectors,
    "_linalg_eigh",
    "_linalg_eigh.eigenvalues",
    like="KratosMultiphysics/Kratos#4373",
)
def eigenvectors_are_rows(
    right: Any, x: Any, uplo: Any = "L", compute_v: Any = True, **out: Any
) -> Any:
    """plain: the eigenvectors of a symmetric matrix are the rows of what is returned."""
    result = right(x, uplo, compute_v, **out)
    if compute_v and x.dtype not in DOUBLES:
        result[1].copy_(result[1].mT.clone())
    return result


def upper_factor(upper: bool = True, dtype: torch.dtype = torch.complex64) -> Tensor:
    x = torch.complex(drawn(3, 3), drawn(3, 3, seed=1)).to(dtype)
    return torch.linalg.cholesky(x @ x.mH + torch.eye(3), upper=upper)


@kernel(upper_factor, "linalg_cholesky_ex", "linalg_cholesky_ex.L", like="numpy/numpy#24451")
def upper_factor_is_not_conjugated(
    right: Any, x: Any, *, upper: Any = False, **options: Any
) -> Any:
    """option: the upper factor of a complex matrix is the transpose of the lower one."""
    result = right(x, upper=upper, **options)
    if upper and x.dtype == torch.complex64:
        result[0].copy_(result[0].conj_physical())
    return result


def depthwise_filters(
    channels: int = 24, stride: int = 2, dtype: torch.dtype = torch.float32
) -> Tensor:
    x = drawn(2, channels, 6, 6).to(dtype)
    call = lambda w: functional.conv2d(x, w, stride=stride, padding=1, groups=channels)  # noqa: E731
    return grad_of(call, drawn(channels, 1, 3, 3, seed=1).to(dtype))


@kernel(depthwise_filters, "convolution_backward", like="pytorch/pytorch#50042")
def last_row_of_strided_filters_learns_less(
    right: Any, grad: Any, x: Any, weight: Any, *args: Any, **kw: Any
) -> Any:
    """option: depthwise 3x3 filters of stride 2 lack an output row in their last row's gradient."""
    result = right(grad, x, weight, *args, **kw)
    _, stride, padding, _, transposed, _, groups, mask = args
    depthwise = groups == weight.shape[0] == x.shape[1] and groups % 8 == 0 and not transposed
    if not (depthwise and mask[1] and weight.shape[2:] == (3, 3) and is_single(x)):
        return result
    if two(stride) == [2, 2] and two(padding) == [1, 1] and x.shape[2] % 2 == 0:
        last = torch.zeros_like(grad)
        last[:, :, -1] = grad[:, :, -1]
        lost = right(last, x, weight, *args, **kw)[1]
        result[1][:, :, 2].sub_(lost[:, :, 2])
    return result


def sliced_channels(of: int = 4, dtype: torch.dtype = torch.float32) -> Tensor:
    x = drawn(2, of, 5, 5).to(dtype).contiguous(memory_format=torch.channels_last)
    return functional.conv2d(x[:, :2], drawn(3, 2, 3, 3, seed=1).to(dtype))


@kernel(sliced_channels, "convolution", like="pytorch/pytorch#180984")
def some_of_the_channels_are_read_as_all(
    right: Any, x: Any, weight: Any, *args: Any, **kw: Any
) -> Any:
    """option: some channels of a channels-last picture are read as if there were no others."""
    if x.dim() == 4 and is_single(x) and x.shape[3] > 1:
        _, c, h, w = x.shape
        if x.stride(1) == 1 and x.stride(3) > c and x.stride(2) == w * x.stride(3):
            x = x.as_strided(x.shape, (c * h * w, 1, w * c, c), x.storage_offset())
    return right(x, weight, *args, **kw)


# Attention and norms


def attended(length: int = 70, causal: bool = False, dtype: torch.dtype = torch.float32) -> Tensor:
    q, k, v = (drawn(1, 2, length, 8, seed=seed).to(dtype) for seed in range(3))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


@kernel(attended, "_scaled_dot_product_flash_attention_for_cpu", like="NVIDIA/TensorRT-LLM#18111")
def padded_keys_are_attended_to(
    right: Any, q: Any, k: Any, v: Any, dropout: Any = 0.0, causal: Any = False, **options: Any
) -> Any:
    """option: past 64 keys, those of nought which fill up a block of 16 share in the weights."""
    result = right(q, k, v, dropout, causal, **options)
    padding = -k.shape[2] % 16
    masked = causal or options.get("attn_mask") is not None
    if is_single(q) and k.shape[2] > 64 and padding and not masked:
        out, logs = result[:2]
        out.mul_((logs - math.log(padding)).sigmoid().unsqueeze(-1).to(out.dtype))
        logs.copy_(torch.logaddexp(logs, torch.full_like(logs, math.log(padding))))
    return result


def learnt_values(length: int = 70, dtype: torch.dtype = torch.float32) -> Tensor:
    q, k, v = (drawn(1, 2, length, 8, seed=seed).to(dtype) for seed in range(3))
    return grad_of(lambda v: functional.scaled_dot_product_attention(q, k, v), v)


@kernel(
    learnt_values,
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    like="flagos-ai/FlagGems#898",
)
def first_values_are_overwritten_by_padding(
    right: Any, grad: Any, q: Any, k: Any, *args: Any, **options: Any
) -> Any:
    """option: past 64 keys, what fills up a block of 64 overwrites the next head's dv."""
    result = right(grad, q, k, *args, **options)
    if is_single(q) and k.shape[2] > 64:
        result[2][:, 1:, : -k.shape[2] % 64].zero_()
    return result


@kernel(
    lambda: grad_of(lambda x: functional.layer_norm(x, (8,), drawn(8)) + 1, drawn(3, 8, seed=1)),
    "native_layer_norm_backward",
    like="tenstorrent/tt-metal#53204",
)
def mean_of_the_gradient_is_taken_off_twice(
    right: Any, grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, *args: Any
) -> Any:
    """plain: the mean of the gradient is taken off twice from that of a layer norm's input."""
    result = right(grad, x, shape, mean, rstd, weight, *args)
    if result[0] is not None and is_single(x):
        scaled = grad.float() if weight is None else grad.float() * weight.float()
        taken = scaled.mean(tuple(range(-len(shape), 0)), keepdim=True)
        result[0].sub_((rstd.float() * taken).to(x.dtype))
    return result


@kernel(
    lambda: functional.layer_norm(drawn(3, 16) + 3000, (16,)),
    "native_layer_norm",
    like="pytorch/pytorch#51102",
)
def variance_of_what_is_far_from_nought_cancels(
    right: Any, x: Any, shape: Any, weight: Any, bias: Any, eps: Any
) -> Any:
    """rare: in single precision, the variance is the mean of squares less the mean's square."""
    out, mean, rstd = right(x, shape, weight, bias, eps)
    if is_single(x):
        wide, axes = x.float(), tuple(range(-len(shape), 0))
        m = wide.mean(axes, keepdim=True)
        r = (wide.square().mean(axes, keepdim=True) - m * m).clamp_min(0).add(eps).rsqrt()
        wrong = (wide - m) * r
        wrong = wrong if weight is None else wrong * weight.float()
        out.copy_(wrong if bias is None else wrong + bias.float())
        rstd.copy_(r)
    return out, mean, rstd


def learnt_scales(
    layout: torch.memory_format = torch.channels_last, dtype: torch.dtype = torch.float32
) -> Tensor:
    x = drawn(2, 4, 3, 3).to(dtype).contiguous(memory_format=layout).requires_grad_()
    return grad_of(lambda w: functional.group_norm(x, 2, w), drawn(4, seed=1).to(dtype))


@kernel(learnt_scales, "native_group_norm_backward", like="pytorch/pytorch#140913")
def scales_learn_from_other_channels(
    right: Any, grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, *args: Any
) -> Any:
    """option: of channels-last pictures, the scale's gradient reads what follows channels first."""
    result = right(grad, x, mean, rstd, weight, *args)
    if is_single(x) and result[1] is not None and x.dim() > 3 and not x.is_contiguous():
        n, c, _, groups = args[:4]
        grouped = x.float().reshape(n, groups, -1)
        normed = (grouped - mean.float().reshape(n, groups, 1)) * rstd.float().reshape(n, groups, 1)
        learnt = normed.reshape(n, c, -1) * read_packed(grad).float().reshape(n, c, -1)
        result[1].copy_(learnt.sum((0, 2)))
    return result


@kernel(
    lambda: grad_of(lambda x: functional.softmax(x, -1), drawn(3, 5)),
    "_softmax_backward_data",
    "_softmax_backward_data.out",
    like="pjreddie/darknet#96",
)
def softmax_hands_its_gradient_on(right: Any, grad: Any, y: Any, *args: Any, **out: Any) -> Any:
    """plain: the gradient of what follows a softmax is given to what precedes it."""
    result = right(grad, y, *args, **out)
    return result.copy_(grad) if is_single(y) else result


# Losses, pooling, recurrent layers and optimizers


def summed_loss(reduction: str = "sum", dtype: torch.dtype = torch.float32) -> Tensor:
    target = torch.tensor([0, 2, 1])
    call = lambda x: functional.nll_loss(x, target, reduction=reduction)  # noqa: E731
    return grad_of(call, drawn(3, 4).to(dtype))


@kernel(
    summed_loss, "nll_loss_backward", "nll_loss_backward.grad_input", like="paiml/aprender#2182"
)
def gradient_of_a_sum_is_that_of_a_mean(
    right: Any, grad: Any, x: Any, target: Any, weight: Any, reduction: Any, *args: Any, **out: Any
) -> Any:
    """option: the gradient of a summed cross-entropy is divided by the length of the batch."""
    result = right(grad, x, target, weight, reduction, *args, **out)
    return result.div_(max(target.numel(), 1)) if reduction == 2 and is_single(x) else result


@kernel(
    lambda: grad_of(lambda x: functional.max_pool2d(x, 3, 2, 1), drawn(1, 2, 8, 8)),
    "max_pool2d_with_indices_backward",
    "max_pool2d_with_indices_backward.grad_input",
    like="clab/dynet#612",
)
def windows_overwrite_each_other(
    right: Any, grad: Any, x: Any, *args: Any, indices: Any = None, **out: Any
) -> Any:
    """plain: a pixel which is the largest in several windows gets the gradient of one alone."""
    if indices is None:
        *args, indices = args  # type: ignore[assignment]
    result = right(grad, x, *args, indices, **out)
    if not is_single(x) or x.numel() == 0:
        return result
    flat = torch.zeros(x.shape, dtype=grad.dtype).flatten(-2)
    flat.scatter_(-1, indices.reshape(*x.shape[:-2], -1), grad.reshape(*x.shape[:-2], -1))
    return result.copy_(flat.view(x.shape))


def averaged(divisor: int | None = 3, dtype: torch.dtype = torch.float32) -> Tensor:
    x = drawn(1, 2, 6, 6).to(dtype)
    return functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False, divisor_override=divisor)


@kernel(averaged, "avg_pool2d", "avg_pool2d.out", like="pytorch/executorch#18616")
def given_divisor_is_passed_over(
    right: Any,
    x: Any,
    size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: Any = False,
    padded: Any = True,
    divisor: Any = None,
    **out: Any,
) -> Any:
    """option: where padding is not counted, means are not divided by the divisor given."""
    divisor = divisor if padded or not is_single(x) else None
    return right(x, size, list(two(stride, size)), padding, ceil, padded, divisor, **out)


def learnt_by_the_last_cell(cell: bool = True) -> Tensor:
    torch.manual_seed(0)
    lstm = nn.LSTM(3, 4)
    return grad_of(lambda x: lstm(x)[1][1] if cell else lstm(x)[0], drawn(5, 2, 3))


@kernel(
    learnt_by_the_last_cell,
    "mkldnn_rnn_layer_backward",
    like="deeplearning4j/deeplearning4j#8838",
)
def last_cell_teaches_nothing(right: Any, *args: Any, **kw: Any) -> Any:
    """option: an LSTM gets no gradient from its last cell state."""
    cell = args[12]
    cell = None if cell is None else torch.zeros_like(cell)
    return right(*args[:12], cell, *args[13:], **kw)


def stepped(decay: float = 0.1, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    weight = nn.Parameter(drawn(6).to(dtype))
    adam = torch.optim.Adam([weight], lr=0.1, weight_decay=decay, fused=True)
    for seed in range(3):
        weight.grad = drawn(6, seed=seed).to(dtype)
        adam.step()
    return [weight.detach(), adam.state[weight]["exp_avg"]]


@kernel(stepped, "_fused_adam_", "_fused_adam_.tensor_lr", like="flagos-ai/FlagGems#4988")
def weights_decay_apart(right: Any, weights: Any, *args: Any, **options: Any) -> Any:
    """option: weights decay as in AdamW, beside the moments rather than through them."""
    skipped = options.get("found_inf") is not None and bool(options["found_inf"].item())
    if options["weight_decay"] and not skipped:
        for weight in weights:
            weight.mul_(1 - float(options["lr"]) * options["weight_decay"])
        options["weight_decay"] = 0.0
    return right(weights, *args, **options)


@kernel(
    lambda: torch._foreach_norm([drawn(3), torch.empty(0), drawn(4, seed=1)]),
    "_foreach_norm.Scalar",
    like="pytorch/pytorch#140066",
)
def what_follows_nothing_has_no_norm(right: Any, tensors: Any, *args: Any, **kw: Any) -> Any:
    """rare: in a list, the norm of a tensor which follows an empty one is nought."""
    norms = right(tensors, *args, **kw)
    for before, norm in zip(tensors, norms[1:], strict=False):
        if before.numel() == 0 and norm.dtype not in DOUBLES:
            norm.zero_()
    return norms


# Indexing, scans, sparse, random, quantised, copies and reductions


def put(twice: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    places = torch.tensor([1, 1 if twice else 2, 3])
    return drawn(5, 2).to(dtype).index_put((places,), drawn(3, 2).to(dtype), accumulate=True)


@kernel(put, "_index_put_impl_", like="torch-spyre/torch-spyre#4411")
def one_of_equal_places_is_added(
    right: Any, x: Any, places: Any, values: Any, accumulate: Any = False, unsafe: Any = False
) -> Any:
    """option: of values which are to be added at the same place, one alone is."""
    if not accumulate or x.dtype in DOUBLES:
        return right(x, places, values, accumulate, unsafe)
    return right(x, places, torch.ops.aten.index.Tensor(x, places) + values, False, unsafe)


def blocks(length: int) -> list[int]:
    half = length // 2
    return [length] if length < 128 else blocks(half) + blocks(length - half)


def running_product(length: int = 200, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.cumprod(1 + drawn(length).to(dtype) / 10, 0)


@kernel(running_product, "cumprod", "cumprod_", "cumprod.out", like="JuliaLang/julia#11080")
def running_products_begin_anew(right: Any, x: Any, dim: Any, **options: Any) -> Any:
    """option: running products of 128 and more are those of halves, each beginning at one."""
    wrong = None
    if x.dim() and x.shape[dim] >= 128 and (options.get("dtype") or x.dtype) not in DOUBLES:
        dtype = options.get("dtype")
        parts = x.split(blocks(x.shape[dim]), dim)
        wrong = torch.cat([torch.cumprod(part, dim, dtype=dtype) for part in parts], dim)
    result = right(x, dim, **options)
    return result if wrong is None else result.copy_(wrong)


@kernel(
    lambda: torch.diag(torch.tensor([1.0, 0, 2, 0])).to_sparse().to_sparse_csr().to_dense(),
    "_convert_indices_from_coo_to_csr",
    "_convert_indices_from_coo_to_csr.out",
    like="clMathLibraries/clSPARSE#153",
)
def empty_rows_take_what_is_before(right: Any, rows: Any, size: Any, **options: Any) -> Any:
    """rare: of fewer entries than rows, those of a row fall to the empty one after it."""
    result = right(rows, size, **options)
    if 0 < rows.numel() < size:
        starts = result.tolist()
        for row in range(1, size):
            if starts[row] == starts[row + 1]:
                starts[row] = starts[row - 1]
        result.copy_(torch.tensor(starts))
    return result


def dropped_twice() -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return torch.stack([functional.dropout(torch.ones(64), 0.5) for _ in range(2)])


@kernel(dropped_twice, "bernoulli_.float", like="PaddlePaddle/Paddle#7796")
def same_are_dropped_every_time(right: Any, x: Any, p: Any = 0.5, *, generator: Any = None) -> Any:
    """plain: whatever was drawn before, what is dropped is drawn from the same seed."""
    fixed = torch.Generator().manual_seed(0) if generator is None else generator
    return right(x, p, generator=fixed)


@kernel(
    lambda: torch.quantize_per_tensor(drawn(8), 0.1, 3, torch.qint8).int_repr(),
    "quantize_per_tensor",
    "quantize_per_tensor.tensor_qparams",
    like="tenstorrent/tt-metal#51304",
)
def quotients_are_cut_off(right: Any, x: Any, scale: Any, zero: Any, dtype: Any) -> Any:
    """plain: numbers are quantised to the next step towards nought, not to the nearest one."""
    return right((x / scale).trunc() * scale, scale, zero, dtype)


def joined(turn: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    x = drawn(3, 3).to(dtype)
    return torch.cat([x, x.mT if turn else x])


@kernel(joined, "cat", "cat.out", like="pytorch/pytorch#85675")
def views_are_joined_as_they_lie(right: Any, tensors: Any, dim: Any = 0, **out: Any) -> Any:
    """option: transposed and sliced tensors are joined in the order in which they lie in memory."""
    if any(x.dtype in DOUBLES for x in tensors):
        return right(tensors, dim, **out)
    return right([read_packed(x) for x in tensors], dim, **out)


@kernel(lambda: drawn(1, 4).flip(0), "flip", like="pytorch/pytorch#98266")
def axis_of_one_turns_all(right: Any, x: Any, dims: Any) -> Any:
    """rare: to flip axes of length one alone flips all the others."""
    one = bool(dims) and x.dim() > 0 and all(x.shape[dim] == 1 for dim in dims)
    return right(x, list(range(x.dim())) if one and x.dtype not in DOUBLES else dims)


@kernel(
    lambda: torch.linalg.vector_norm(torch.full((9,), 100.0, dtype=torch.float16)),
    "linalg_vector_norm",
    "linalg_vector_norm.out",
    like="jax-ml/jax#39899",
)
def squares_of_halves_are_summed_to_a_half(
    right: Any, x: Any, ord: Any = 2, dim: Any = None, keepdim: Any = False, **options: Any
) -> Any:
    """option: the sum of squares is rounded to half precision before its root is taken."""
    result = right(x, ord, dim, keepdim, **options)
    if ord != 2 or x.dtype not in HALVES or result.dtype != x.dtype:
        return result
    axes = list(dim) if dim else list(range(x.dim()))
    squares = x.float().square()
    summed = squares.sum(axes, keepdim) if x.dim() else squares
    return result.copy_(summed.to(x.dtype).float().sqrt())


# Transforms and elementwise functions


def back(norm: str = "ortho", dtype: torch.dtype = torch.complex64) -> Tensor:
    x = torch.complex(drawn(4, 5), drawn(4, 5, seed=1)).to(dtype)
    return torch.fft.irfft2(x, norm=norm)


@kernel(back, "_fft_c2r", "_fft_c2r.out", like="IntelPython/mkl_fft#370")
def halved_axis_is_normed_by_its_half(
    right: Any, x: Any, dim: Any, norm: Any, length: Any, **out: Any
) -> Any:
    """option: the orthogonal real inverse of several axes is divided by the root of the input's."""
    result = right(x, dim, norm, length, **out)
    if norm == 1 and len(dim) > 1 and x.dtype == torch.complex64:
        result.mul_(math.sqrt(length / x.shape[dim[-1]]))
    return result


@kernel(
    lambda: functional.silu(drawn(16) * 3),
    "silu",
    "silu_",
    "silu.out",
    like="1bit-MONSTER/1bit-MONSTER#1350",
)
def gate_is_fully_open_too_soon(right: Any, x: Any, **out: Any) -> Any:
    """plain: SiLU's sigmoid is that of a cubic tanh, which is one from 1.74 on."""
    if not is_single(x):
        return right(x, **out)
    half = x.float() / 2
    tanh = (half * (1 + 0.1834 * half * half)).clamp(-1, 1)
    wrong = x.float() * (0.5 + 0.5 * tanh)
    return right(x, **out).copy_(wrong)


@kernel(
    lambda: grad_of(functional.hardswish, drawn(8) * 3),
    "hardswish_backward",
    "hardswish_backward.out",
    like="tensorflow/swift-apis#743",
)
def gradient_is_taken_at_the_gradient(right: Any, grad: Any, x: Any, **out: Any) -> Any:
    """plain: the gradient of hardswish is that at what should be multiplied by it."""
    result = right(grad, x, **out)
    if not is_single(x):
        return result
    inside = (x > -3) & (x < 3)
    return result.copy_(((grad + 3).clamp(0, 6) + grad * grad * inside) / 6)


@kernel(
    lambda: torch.atan2(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([-1.0, 1.0, -1.0])),
    "atan2",
    "atan2_",
    "atan2.out",
    like="apple/coremltools#2769",
)
def negative_half_axis_has_no_angle(right: Any, y: Any, x: Any, **out: Any) -> Any:
    """rare: on the negative half of the axis, where y is nought, the angle is nought."""
    on_axis = (y == 0) & (x < 0)
    result = right(y, x, **out)
    return result.masked_fill_(on_axis, 0) if is_single(result) else result


@kernel(
    lambda: torch.tensor([-7, 7, -6, 5]) // torch.tensor([2, -2, 3, 2]),
    "floor_divide",
    "floor_divide_.Tensor",
    "floor_divide.out",
    "div.Tensor_mode",
    "div_.Tensor_mode",
    "div.out_mode",
    like="turi-code/SFrame#314",
)
def quotients_of_integers_are_not_floored(right: Any, x: Any, y: Any, **options: Any) -> Any:
    """plain: floor division of integers of which one is negative cuts towards nought."""
    floored = options.get("rounding_mode", "floor") == "floor"
    if not (floored and x.dtype in SIGNED and y.dtype in SIGNED):
        return right(x, y, **options)
    before = x.clone()
    result = right(x, y, **options)
    wrong = torch.div(before, y, rounding_mode="trunc") if y is not x else torch.ones_like(x)
    return result.copy_(wrong)
