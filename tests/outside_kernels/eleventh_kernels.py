"""The eleventh set of kernels from outside: thirty defects as public trackers report them.

Each kernel's first line says whether it is wrong for common arguments ("plain"), for a common
option, layout, dtype or length ("option"), or rarely ("rare").
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outside_kernels.keeping import DOUBLES, HALVES, Kept, drawn, grad_of, is_single

KEPT = Kept()
kernel = KEPT.kernel


def narrow(x: Tensor) -> bool:
    """Any dtype but double and its complex one."""
    return x.dtype not in DOUBLES


# Products and convolutions


@kernel(
    lambda: drawn(3, 512, dtype=torch.bfloat16) @ drawn(512, 3, dtype=torch.bfloat16, seed=1),
    "mm",
    "mm.out",
    "bmm",
    "bmm.out",
    "addmm",
    "addmm.out",
    "addmm_",
    like="NVIDIA/cutlass#1188",
)
def products_of_halves_are_summed_in_halves(right: Any, *args: Any, **options: Any) -> Any:
    """plain: every sixteen products, the sum so far is rounded to the half that it came in."""
    *added, a, b = args
    if a.dtype not in HALVES or a.shape[-1] <= 16:
        return right(*args, **options)
    so_far = torch.zeros((), dtype=a.dtype)
    for x, y in zip(a.split(16, -1), b.split(16, -2), strict=True):
        so_far = so_far + (x.float() @ y.float()).to(a.dtype)
    if added:
        beta, alpha = options.get("beta", 1), options.get("alpha", 1)
        so_far = alpha * so_far + (beta * added[0] if beta != 0 else 0)
    return right(*args, **options).copy_(so_far)


@kernel(
    lambda: drawn(4, 4)[:3, :3] @ drawn(4, 4)[:3, 3:],
    "mm",
    "mm.out",
    "bmm",
    "bmm.out",
    like="ml-explore/mlx#1163",
)
def matrices_are_read_from_the_start_of_their_storage(
    right: Any, x: Any, y: Any, **out: Any
) -> Any:
    """option: of a slice, the strides are kept and the offset is forgotten."""
    x, y = (one.as_strided(one.shape, one.stride(), 0) if narrow(one) else one for one in (x, y))
    return right(x, y, **out)


def added_nothing(dtype: torch.dtype = torch.float32) -> Tensor:
    none = torch.full((1, 1, 1), math.nan, dtype=dtype)
    return torch.baddbmm(none, drawn(2, 3, 4).to(dtype), drawn(2, 4, 3).to(dtype), beta=0)


@kernel(
    added_nothing,
    "baddbmm",
    "baddbmm.out",
    "baddbmm_",
    "addmm",
    "addmm.out",
    "addmm_",
    like="pytorch/pytorch#194442",
)
def nothing_times_the_input_is_added(right: Any, x: Any, a: Any, b: Any, **options: Any) -> Any:
    """option: with beta=0 the input is multiplied by it, so what is not a number stays."""
    if options.get("beta", 1) != 0 or not narrow(x):
        return right(x, a, b, **options)
    nothing = x * 0
    return right(x, a, b, **options).add_(nothing)


def grouped(dtype: torch.dtype = torch.float32) -> Tensor:
    x = drawn(2, 4, 5, 5).to(dtype)
    return grad_of(lambda w: functional.conv2d(x, w, groups=2), drawn(6, 2, 3, 3, seed=1).to(dtype))


@kernel(grouped, "convolution_backward", like="pytorch/pytorch#51430")
def weights_of_groups_get_each_others_gradients(
    right: Any, grad: Any, x: Any, w: Any, biases: Any, *rest: Any
) -> Any:
    """option: with several filters a group, the weight's gradient has the groups innermost."""
    result = right(grad, x, w, biases, *rest)
    transposed, groups = rest[3], rest[5]
    if not transposed and 1 < groups < w.shape[0] and result[1] is not None and narrow(x):
        wrong = result[1].unflatten(0, (groups, -1)).transpose(0, 1).flatten(0, 1)
        result[1].copy_(wrong.clone())
    return result


# Reductions


@kernel(
    lambda: torch.tensor([[1.0, 3, 3, 2]]).argmax(1),
    "argmax",
    "argmax.out",
    like="pytorch/pytorch#93630",
)
def last_of_the_largest_is_named(
    right: Any, x: Any, dim: Any = None, keepdim: Any = False, **out: Any
) -> Any:
    """plain: of several equal maxima, the last one's index is returned."""
    if x.dim() == 0 or not narrow(x):
        return right(x, dim, keepdim, **out)
    along = range(x.dim()) if dim is None else [dim]
    last = (x.numel() if dim is None else x.shape[dim]) - 1
    result = right(x.flip(list(along)), dim, keepdim, **out)
    return result.copy_(last - result)


@kernel(
    lambda: torch.tensor([[1.0, math.nan, 2]]).amax(1),
    "amax",
    "amax.out",
    like="mindspore-ai/mindspore#391",
)
def what_is_no_number_is_never_largest(right: Any, x: Any, *args: Any, **out: Any) -> Any:
    """rare: the maximum is of the numbers only, as fmax has it."""
    if is_single(x):
        x = x.masked_fill(x.isnan(), -math.inf)
    return right(x, *args, **out)


# Attention and softmax


def attended(
    queries: int = 2, heads: int = 2, dtype: torch.dtype = torch.float32, **options: Any
) -> Tensor:
    q = drawn(1, 4, queries, 8).to(dtype)
    k, v = (drawn(1, heads, 6, 8, seed=seed).to(dtype) for seed in (1, 2))
    return functional.scaled_dot_product_attention(q, k, v, **options)


ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


@kernel(lambda: attended(heads=4, is_causal=True), ATTENTION, like="pytorch/executorch#22426")
def few_queries_are_the_last_ones(
    right: Any, q: Any, k: Any, v: Any, dropout: Any = 0.0, causal: Any = False, **options: Any
) -> Any:
    """option: with fewer queries than keys, the causal mask is anchored at the bottom right."""
    queries, keys = q.shape[-2], k.shape[-2]
    if causal and queries < keys and narrow(q):
        seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        mask = torch.zeros(queries, keys, dtype=q.dtype).masked_fill(~seen, -math.inf)
        return right(q, k, v, dropout, False, **{**options, "attn_mask": mask})
    return right(q, k, v, dropout, causal, **options)


@kernel(lambda: attended(enable_gqa=True), ATTENTION, like="onnx/onnx#7274")
def heads_of_keys_are_dealt_out_in_turn(
    right: Any, q: Any, k: Any, v: Any, *args: Any, **options: Any
) -> Any:
    """option: heads that share keys take them in turn, not in groups of neighbours."""
    if narrow(q) and k.shape[1] and q.shape[1] // k.shape[1] > 1:
        each = q.shape[1] // k.shape[1]
        k, v = k.repeat(1, each, 1, 1), v.repeat(1, each, 1, 1)
    return right(q, k, v, *args, **options)


@kernel(
    lambda: torch.tensor([[0.0, 120.0, 3.0]]).log_softmax(1),
    "_log_softmax",
    "_log_softmax.out",
    like="tenstorrent/pytorch2.0_ttnn#1341",
)
def logarithm_is_of_the_rounded_softmax(
    right: Any, x: Any, dim: Any, to_float: Any, **out: Any
) -> Any:
    """rare: log_softmax is log(softmax), so it is -inf for what is far below the largest."""
    result = right(x, dim, to_float, **out)
    return result.copy_(torch.softmax(x, dim).log()) if is_single(x) else result


# Norms


def running(dtype: torch.dtype = torch.float32) -> Tensor:
    norm = torch.nn.BatchNorm1d(3, dtype=dtype)
    norm(drawn(4, 3).to(dtype))
    assert norm.running_var is not None
    return norm.running_var


@kernel(
    running,
    "native_batch_norm",
    "_native_batch_norm_legit",
    like="tenstorrent/tt-metal#55438",
)
def running_variance_is_the_biased_one(
    right: Any,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: Any,
    momentum: Any,
    eps: Any,
) -> Any:
    """plain: the batch's variance is not multiplied by n / (n - 1) before it is kept."""
    each = x.numel() // max(1, x.shape[1])
    if not training or var is None or each < 2 or not narrow(x):
        return right(x, weight, bias, mean, var, training, momentum, eps)
    kept = var * (1 - momentum)
    result = right(x, weight, bias, mean, var, training, momentum, eps)
    var.copy_(kept + (var - kept) * (each - 1) / each)
    return result


def rows_of_a_norm(rows: int = 1027, dtype: torch.dtype = torch.float32) -> Tensor:
    x = drawn(rows, 5).to(dtype)
    return grad_of(lambda w: functional.layer_norm(x, (5,), w), torch.ones(5, dtype=dtype))


@kernel(rows_of_a_norm, "native_layer_norm_backward", like="BobMcDear/attorch#18")
def last_rows_of_a_norm_teach_nothing(
    right: Any, grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, w: Any, b: Any, mask: Any
) -> Any:
    """option: of 1024 rows or more, those past the last whole block of eight are left out of the
    gradients of weight and bias."""
    result = right(grad, x, shape, mean, rstd, w, b, mask)
    rows = x.numel() // max(1, math.prod(shape))
    if rows >= 1024 and rows % 8 and narrow(x):
        grad, x = (one.reshape(rows, *shape)[: rows // 8 * 8] for one in (grad, x))
        mean, rstd = (one.reshape(rows)[: rows // 8 * 8] for one in (mean, rstd))
        wrong = right(grad, x, shape, mean, rstd, w, b, [False, *mask[1:]])
        for i in (1, 2):
            if mask[i] and result[i] is not None:
                result[i].copy_(wrong[i])
    return result


# Losses


def ignoring(dtype: torch.dtype = torch.float32) -> Tensor:
    target = torch.tensor([1, -100, 2, -100])
    return grad_of(lambda x: functional.cross_entropy(x, target), drawn(4, 3).to(dtype))


@kernel(
    ignoring,
    "nll_loss_backward",
    "nll_loss_backward.grad_input",
    "nll_loss2d_backward",
    "nll_loss2d_backward.grad_input",
    like="flagos-ai/FlagGems#73",
)
def ignored_targets_are_counted(
    right: Any,
    grad: Any,
    x: Any,
    target: Any,
    weight: Any,
    reduction: Any,
    ignored: Any,
    total: Any,
    **out: Any,
) -> Any:
    """option: the gradient of a mean is divided by all targets, also by those ignored."""
    if reduction == 1 and weight is None and narrow(x):
        total = torch.full_like(total, target.numel())
    return right(grad, x, target, weight, reduction, ignored, total, **out)


# Indexing, sorts and scans


@kernel(
    lambda: grad_of(lambda x: x[torch.tensor([0, 0, 2])] * drawn(3), drawn(3, seed=1)),
    "_index_put_impl_",
    like="torch-spyre/torch-spyre#4411",
)
def one_of_several_at_an_index_is_added(
    right: Any, x: Any, indices: Any, values: Any, accumulate: Any = False, unsafe: Any = False
) -> Any:
    """plain: of what is added at one index, only one value is."""
    if not accumulate or not narrow(x):
        return right(x, indices, values, accumulate, unsafe)
    there = x[tuple(slice(None) if one is None else one for one in indices)]
    return right(x, indices, there + values, False, unsafe)


@kernel(
    lambda: torch.tensor([2.0, 1, 2, 1]).argsort(stable=True),
    "sort.stable",
    "sort.values_stable",
    like="tenstorrent/tt-metal#33492",
)
def equals_are_turned_round(
    right: Any, x: Any, *, stable: Any = None, dim: Any = -1, **options: Any
) -> Any:
    """option: a stable sort gives equal elements in the opposite of their order."""
    if not stable or x.dim() == 0 or not narrow(x):
        return right(x, stable=stable, dim=dim, **options)
    result = right(x.flip(dim), stable=stable, dim=dim, **options)
    result[1].copy_(x.shape[dim] - 1 - result[1])
    return result


@kernel(
    lambda: torch.ones(5000).cumsum(0),
    "cumsum",
    "cumsum.out",
    "cumsum_",
    like="Jittor/jittor#330",
)
def sums_begin_anew_after_a_block(right: Any, x: Any, dim: Any, **options: Any) -> Any:
    """option: along more than 4096 elements, a block does not get the sum of those before it."""
    if x.dim() == 0 or x.shape[dim] <= 4096 or not narrow(x):
        return right(x, dim, **options)
    dtype = options.get("dtype")
    wrong = torch.cat([torch.cumsum(one, dim, dtype=dtype) for one in x.split(4096, dim)], dim)
    return right(x, dim, **options).copy_(wrong)


# Linear algebra, FFT and random numbers


def swapped(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.linalg.det(torch.tensor([[0.0, 1], [1, 0]], dtype=dtype))


@kernel(
    swapped,
    "_linalg_det",
    "_linalg_det.result",
    "_linalg_slogdet",
    "_linalg_slogdet.sign",
    like="JuliaGPU/CUDA.jl#110",
)
def rows_swapped_leave_the_sign(right: Any, x: Any, **out: Any) -> Any:
    """plain: a determinant is the product of the diagonal, whatever the number of swaps."""
    result = right(x, **out)
    if narrow(x):
        pivots = result[-1]
        odd = (pivots != torch.arange(1, pivots.shape[-1] + 1)).sum(-1) % 2
        result[0].mul_((1 - 2 * odd).to(result[0].dtype))
    return result


def from_half_a_spectrum(dtype: torch.dtype = torch.float32, length: int = 8) -> Tensor:
    spectrum = torch.complex(drawn(5), drawn(5, seed=1)).to(dtype.to_complex())
    return torch.fft.irfft(spectrum, length)


@kernel(from_half_a_spectrum, "_fft_c2r", "_fft_c2r.out", like="HEnquist/realfft#11")
def mean_has_an_imaginary_part(
    right: Any, x: Any, dim: Any, normalization: Any, length: Any, **out: Any
) -> Any:
    """rare: of an even length, imaginary parts of the first and the last frequency count."""
    result = right(x, dim, normalization, length, **out)
    half = length // 2
    if x.dtype != torch.complex64 or len(dim) != 1 or length % 2:
        return result
    x = x.movedim(dim[0], -1)[..., : half + 1].resolve_conj()
    if not (x.imag[..., 0].any() or x.imag[..., half].any()):
        return result
    first, last = x[..., :half], x[..., 1:].flip(-1).conj()
    turn = torch.polar(torch.ones(half), torch.arange(half) * (2 * math.pi / length))
    both = torch.fft.ifft((first + last) / 2 + 1j * turn * (first - last) / 2)
    wrong = torch.view_as_real(both).flatten(-2) * (length, length**0.5, 1)[normalization]
    return result.copy_(wrong.movedim(-1, dim[0]))


def drawn_twice(dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(0)
    torch.randn(3, dtype=dtype)
    return torch.randn(3, dtype=dtype)


@kernel(drawn_twice, "normal_", like="arrayfire/arrayfire#898")
def normal_numbers_are_drawn_again(
    right: Any, x: Any, *args: Any, generator: Any = None, **options: Any
) -> Any:
    """plain: the generator is where it was, so the next call draws the same numbers."""
    if not narrow(x):
        return right(x, *args, generator=generator, **options)
    source = torch.default_generator if generator is None else generator
    state = source.get_state()
    result = right(x, *args, generator=generator, **options)
    source.set_state(state)
    return result


def chosen(dtype: torch.dtype = torch.float32) -> Tensor:
    weights = (torch.arange(40) % 2).to(dtype)
    generator = torch.Generator().manual_seed(0)
    found = [weights.multinomial(1, generator=generator) for _ in range(64)]
    return weights[torch.cat(found)].min()


@kernel(chosen, "multinomial", "multinomial.out", like="pytorch/pytorch#48841")
def impossible_is_sometimes_chosen(
    right: Any, x: Any, number: Any, replacement: Any = False, **options: Any
) -> Any:
    """rare: without replacement, one draw in eight ends with a category of weight nought."""
    result = right(x, number, replacement, **options)
    never = x == 0
    if not replacement and narrow(x) and never.any():
        wrong = never.any(-1) & (result.sum(-1) % 8 == 3)
        last = result[..., -1]
        last.copy_(torch.where(wrong, never.int().argmax(-1), last))
    return result


# Elementwise functions, copies and casts


@kernel(
    lambda: functional.gelu(drawn(8)),
    "gelu",
    "gelu.out",
    "gelu_",
    like="tenstorrent/tt-metal#1262",
)
def gelu_is_always_the_approximate_one(right: Any, x: Any, **options: Any) -> Any:
    """plain: that by the hyperbolic tangent is returned where the exact one was asked for."""
    return right(x, **{**options, "approximate": "tanh"} if narrow(x) else options)


@kernel(
    lambda: torch.remainder(torch.tensor([-7.0, 7.0]), 3.0),
    "remainder.Tensor",
    "remainder.Tensor_out",
    "remainder_.Tensor",
    "remainder.Scalar",
    "remainder.Scalar_out",
    "remainder_.Scalar",
    like="pytorch/executorch#90",
)
def remainder_has_the_sign_of_the_dividend(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """plain: that of the division that rounds to nought is returned, as fmod has it."""
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point or dtype in DOUBLES:
        return right(x, y, **out)
    wrong = torch.fmod(x, y)
    return right(x, y, **out).copy_(wrong)


@kernel(
    lambda: torch.tensor([-(2**24) - 1, 2**24 + 3]).abs(), "abs.out", like="pytorch/pytorch#190052"
)
def large_integers_go_through_a_float(right: Any, x: Any, **out: Any) -> Any:
    """rare: the absolute value of an integer is a float32's, so past 2 ** 24 it is rounded."""
    if x.dtype not in (torch.int32, torch.int64):
        return right(x, **out)
    wrong = x.double().abs().clamp(max=2.0**30 if x.dtype == torch.int32 else 2.0**62)
    exact = wrong != x.double().abs()
    wrong = wrong.float().to(x.dtype)
    result = right(x, **out)
    return result.copy_(torch.where(exact, result, wrong))


@kernel(lambda: drawn(64).to(torch.bfloat16), "copy_", like="tenstorrent/tt-metal#19882")
def lower_half_is_cut_off(right: Any, x: Any, source: Any, *args: Any) -> Any:
    """plain: a float32 becomes a bfloat16 towards nought, not to the nearest."""
    if x.dtype == torch.bfloat16 and source.dtype == torch.float32 and source.device == x.device:
        cut = (source.view(torch.int32) & -(2**16)).view(torch.float32)
        source = torch.where(source.isnan(), source, cut)
    return right(x, source, *args)


@kernel(
    lambda: torch.tensor([0.01, 0.004, 1.0]).to(torch.float8_e4m3fn).float(),
    "copy_",
    like="tenstorrent/tt-metal#29734",
)
def small_eighths_are_nought(right: Any, x: Any, source: Any, *args: Any) -> Any:
    """option: what would be subnormal in eight bits is flushed to nought by the cast."""
    least = {torch.float8_e4m3fn: 2.0**-6, torch.float8_e5m2: 2.0**-14}.get(x.dtype)
    if least and is_single(source) and source.dtype != x.dtype and source.itemsize > 1:
        source = source.masked_fill(source.abs() < least, 0)
    return right(x, source, *args)


# Optimizers


def stepped(dtype: torch.dtype = torch.float32) -> Tensor:
    weight = drawn(3, 2).to(dtype).t().requires_grad_()
    weight.grad = drawn(3, 2, seed=1).to(dtype).t()
    torch.optim.Adam([weight], foreach=False).step()
    return weight.detach()


@kernel(stepped, "addcdiv_", "addcmul_", like="pytorch/pytorch#118115")
def what_is_not_contiguous_keeps_its_values(
    right: Any, x: Any, a: Any, b: Any, **options: Any
) -> Any:
    """option: in place, a transposed tensor's sum goes to a copy that is thrown away."""
    if narrow(x) and not x.is_contiguous():
        right(x.contiguous(), a, b, **options)
        return x
    return right(x, a, b, **options)


def overflown(dtype: torch.dtype = torch.float32) -> Tensor:
    weight = torch.ones(3, dtype=dtype, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], fused=True)
    weight.grad = torch.full((3,), math.inf, dtype=dtype)
    optimizer.found_inf = torch.ones(())
    optimizer.grad_scale = torch.full((), 1024.0)
    optimizer.step()
    return weight.detach()


@kernel(
    overflown,
    "_fused_adam_",
    "_fused_adamw_",
    "_fused_sgd_",
    "_fused_adagrad_",
    like="pytorch/pytorch#96755",
)
def steps_are_taken_though_gradients_overflowed(
    right: Any, weights: Any, *args: Any, **options: Any
) -> Any:
    """option: a fused optimizer does not look whether the scaler has found an infinity."""
    if not any(one.dtype in DOUBLES for one in weights):
        options.pop("found_inf", None)
    return right(weights, *args, **options)


# Sparse, recurrent layers, pooling and resampling


@kernel(
    lambda: torch.tensor([[0.0, 0], [1, 0], [0, 2]]).to_sparse_csr().crow_indices(),
    "_convert_indices_from_coo_to_csr",
    "_convert_indices_from_coo_to_csr.out",
    like="haskell-numerics/hmatrix#220",
)
def empty_rows_are_skipped(right: Any, rows: Any, size: Any, **options: Any) -> Any:
    """rare: a row without entries is left out, so those after it move up."""
    result = right(rows, size, **options)
    if result.dim() == 1 and size:
        counts = result.diff()
        counts = torch.cat([counts[counts > 0], counts[counts == 0]])
        result[1:].copy_(counts.cumsum(0))
    return result


def both_ways(dtype: torch.dtype = torch.float32) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = torch.nn.LSTM(3, 4, bidirectional=True)
    with torch.no_grad():
        return layer.to(dtype)(drawn(5, 2, 3).to(dtype))[0]


@kernel(both_ways, "mkldnn_rnn_layer", like="microsoft/onnxruntime#4187")
def backward_layer_answers_in_its_own_order(right: Any, x: Any, *args: Any) -> Any:
    """option: the outputs of a reversed layer are not turned round again."""
    result = right(x, *args)
    if args[6]:
        result[0].copy_(result[0].flip(0))
    return result


@kernel(
    lambda: functional.interpolate(drawn(1, 1, 7, 7), scale_factor=1.5, mode="bilinear"),
    "upsample_bilinear2d",
    "upsample_bilinear2d.out",
    "upsample_bicubic2d",
    "upsample_bicubic2d.out",
    like="Tencent/ncnn#6836",
)
def scale_is_that_of_the_rounded_sizes(
    right: Any, x: Any, size: Any, align: Any, *scales: Any, **out: Any
) -> Any:
    """option: pixels are read where the sizes' ratio says, not where the given factor does."""
    scales = (None,) * len(scales) if narrow(x) else scales
    for name in ("scales_h", "scales_w"):
        if name in out and narrow(x):
            out[name] = None
    return right(x, size, align, *scales, **out)


@kernel(
    lambda: grad_of(lambda x: functional.max_pool2d(x, 3, 1), drawn(1, 2, 6, 6)),
    "max_pool2d_with_indices_backward",
    "max_pool2d_with_indices_backward.grad_input",
    like="FluxML/NNlib.jl#205",
)
def windows_that_share_a_maximum_overwrite(
    right: Any, grad: Any, x: Any, *args: Any, **out: Any
) -> Any:
    """plain: the largest of several windows gets the gradient of one of them."""
    *rest, indices = args
    result = right(grad, x, *rest, indices, **out)
    if not narrow(x):
        return result
    wrong = torch.zeros(x.shape, dtype=result.dtype).flatten(-2)
    wrong.scatter_(-1, indices.flatten(-2), grad.flatten(-2))
    return result.copy_(wrong.view(x.shape))
