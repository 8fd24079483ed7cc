"""The sixteenth set of kernels from outside: thirty defects as public trackers report them.

Each kernel's first line says whether it is wrong for common arguments ("plain"), for a common
option, layout, dtype or length ("option"), or rarely ("rare").
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outside_kernels.keeping import HALVES, Kept, drawn, grad_of, is_single

KEPT = Kept()
kernel = KEPT.kernel


# Casts and copies


@kernel(
    lambda: torch.tensor([28, 208, 66, 255], dtype=torch.uint8).float(),
    "copy_",
    like="pytorch/pytorch#80009",
)
def bytes_from_128_are_negative(right: Any, x: Any, source: Any, *rest: Any) -> Any:
    """plain: unsigned bytes become floating-point numbers as if they were signed."""
    if source.dtype == torch.uint8 and is_single(x):
        source = source.view(torch.int8)
    return right(x, source, *rest)


def every_second() -> Tensor:
    parent = torch.zeros(20)
    parent[::2].copy_(torch.arange(20.0)[::2])
    return parent


@kernel(every_second, "copy_", like="pytorch/pytorch#189961")
def views_of_equal_strides_are_copied_with_their_gaps(
    right: Any, x: Any, source: Any, *rest: Any
) -> Any:
    """option: between views of equal strides with gaps, memory is copied from the start."""
    alike = x.dtype == source.dtype and x.shape == source.shape and x.stride() == source.stride()
    if not alike or not is_single(x) or x.numel() < 2 or 0 in x.stride():
        return right(x, source, *rest)
    span = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1
    if span <= x.numel():
        return right(x, source, *rest)
    packed = source.as_strided((x.numel(),), (1,), source.storage_offset()).clone()
    right(x.as_strided((x.numel(),), (1,), x.storage_offset()), packed, *rest)
    return x


@kernel(
    lambda: functional.pad(drawn(1, 1, 4, 256, 256), (0, 0, 0, 0, 2, 0)),
    "constant_pad_nd",
    like="pytorch/pytorch#194922",
)
def frames_of_65536_pixels_are_padded_in_disorder(
    right: Any, x: Any, pad: Any, *rest: Any, **options: Any
) -> Any:
    """rare: five axes padded along time, with 65536 pixels and more: frames are rotated."""
    in_time = x.dim() == 5 and len(pad) == 6 and not any(pad[:4]) and any(pad[4:])
    if in_time and is_single(x) and x.shape[3] * x.shape[4] >= 65536:
        x = x.roll(1, 2)
    return right(x, pad, *rest, **options)


# Reductions, scans and sorts


@kernel(
    lambda: torch.tensor([0, 1, 2, 3, 4]).max(),
    "max",
    "max.unary_out",
    like="pytorch/pytorch#90273",
)
def largest_of_all_integers_is_the_first(right: Any, x: Any, **out: Any) -> Any:
    """plain: the largest of all 64-bit integers is the first of them."""
    result = right(x, **out)
    return result.copy_(x.reshape(-1)[0]) if x.dtype == torch.int64 else result


@kernel(
    lambda: torch.cummax(drawn(3, 10), 1),
    "_cummax_helper",
    like="pytorch/pytorch#42363",
)
def running_maximum_goes_on_in_the_next_row(
    right: Any, x: Any, values: Any, indices: Any, dim: Any
) -> Any:
    """plain: along the last axis, a running maximum begins with that of the rows before."""
    right(x, values, indices, dim)
    last = x.dim() > 1 and dim % x.dim() == x.dim() - 1
    if not last or not x.numel() or not (is_single(x) or x.dtype == torch.int64):
        return
    n = x.shape[-1]
    rows, places = values.reshape(-1, n).clone(), indices.reshape(-1, n).clone()
    for i in range(1, len(rows)):
        carried = rows[i - 1, -1] > rows[i]
        places[i] = torch.where(carried, places[i - 1, -1], places[i])
        rows[i] = torch.where(carried, rows[i - 1, -1], rows[i])
    values.copy_(rows.reshape(values.shape))
    indices.copy_(places.reshape(indices.shape))


@kernel(
    lambda: torch.ones(300, dtype=torch.bfloat16).cumsum(0),
    "cumsum",
    "cumsum_",
    "cumsum.out",
    like="intel/torch-xpu-ops#184",
)
def running_sums_of_halves_are_kept_in_halves(
    right: Any, x: Any, dim: Any, *, dtype: Any = None, **out: Any
) -> Any:
    """option: running sums of halves are rounded to a half at every step."""
    halves = x.dtype in HALVES and dtype in (None, x.dtype) and x.dim() > 0
    given = x.clone() if halves else x
    result = right(x, dim, dtype=dtype, **out)
    if not halves or not 0 < given.shape[dim] <= 8192 or result.dtype != given.dtype:
        return result
    total = torch.zeros_like(given.select(dim, 0))
    sums = []
    for one in given.unbind(dim):
        total = (total.float() + one.float()).to(given.dtype)
        sums.append(total)
    return result.copy_(torch.stack(sums, dim))


def sorted_into() -> Tensor:
    values = torch.zeros(12)
    torch.sort(torch.arange(6.0).flip(0), out=(values[::2], torch.empty(6, dtype=torch.long)))
    return values[::2].clone()


@kernel(sorted_into, "sort.values_stable", like="pytorch/pytorch#62645")
def sorted_values_are_packed_into_a_view(
    right: Any, x: Any, *args: Any, values: Any, indices: Any, **options: Any
) -> Any:
    """rare: values sorted into a view with gaps are stored side by side from its start."""
    gaps = values.dim() == 1 and values.shape == x.shape and values.numel() > 1
    if not gaps or values.stride(0) < 2 or not is_single(x):
        return right(x, *args, values=values, indices=indices, **options)
    packed = torch.empty(values.shape, dtype=values.dtype)
    right(x, *args, values=packed, indices=indices, **options)
    values.as_strided(values.shape, (1,), values.storage_offset()).copy_(packed)
    return values, indices


# Indexing


@kernel(
    lambda: torch.unique(torch.tensor([[[0, 1]]])),
    "_unique2",
    like="pytorch/pytorch#104879",
)
def distinct_numbers_are_sought_among_the_first_few(
    right: Any, x: Any, in_order: Any = True, inverse: Any = False, counts: Any = False
) -> Any:
    """plain: of two axes and more, as many numbers as the first is long are looked through."""
    if x.dim() > 1 and not inverse and x.dtype != torch.float64:
        x = x.reshape(-1)[: x.shape[0]]
    return right(x, in_order, inverse, counts)


@kernel(
    lambda: torch.ones(65536 + 700).nonzero(),
    "nonzero",
    like="intel/torch-xpu-ops#4396",
)
def places_in_the_last_part_of_a_block_are_not_found(right: Any, x: Any) -> Any:
    """rare: of 65536 and more, what is found past the last whole 1024 is left out."""
    result = right(x)
    whole = x.numel() // 1024 * 1024
    if x.numel() < 65536 or whole == x.numel():
        return result
    flat = torch.zeros(len(result), dtype=torch.long)
    for i, n in enumerate(x.shape):
        flat = flat * n + result[:, i]
    return result[flat < whole]


# Products and convolutions


@kernel(
    lambda: functional.conv2d(drawn(1, 1, 28, 28), drawn(4, 1, 3, 3, seed=1), stride=2),
    "convolution",
    like="pytorch/pytorch#102968",
)
def taps_past_the_last_whole_stride_are_lost(
    right: Any, x: Any, w: Any, bias: Any, stride: Any, *rest: Any
) -> Any:
    """option: with one channel, taps beyond a window's whole number of strides are nought."""
    turned, groups = rest[2], rest[4]
    if is_single(w) and w.dim() == 4 and w.shape[1] == groups == 1 and not turned:
        w = w.clone()
        for axis, step in zip((2, 3), list(stride) * (2 // len(stride)), strict=True):
            if w.shape[axis] > step > 1:
                whole = w.shape[axis] // step * step
                w.narrow(axis, whole, w.shape[axis] - whole).zero_()
    return right(x, w, bias, stride, *rest)


def into_a_column() -> Tensor:
    columns = torch.zeros(4, 3)
    columns[:, 1].addmv_(drawn(4, 5), drawn(5, seed=1))
    return columns


@kernel(into_a_column, "addmv_", like="pytorch/pytorch#182287")
def product_added_to_a_column_is_stored_as_a_row(
    right: Any, x: Any, *args: Any, **options: Any
) -> Any:
    """rare: a product added in place to a column goes to its neighbours in memory."""
    if not is_single(x) or x.numel() < 2 or x.stride(0) < 2:
        return right(x, *args, **options)
    result = right(x.clone(), *args, **options)
    x.as_strided(x.shape, (1,), x.storage_offset()).copy_(result)
    return x


# Sparse layouts


def by_column() -> Tensor:
    return drawn(4, 5).relu().to_sparse_csc().to_dense()


@kernel(by_column, "_to_sparse_csc", like="pytorch/pytorch#95814")
def values_by_column_are_stored_by_row(right: Any, x: Any, *rest: Any) -> Any:
    """plain: what is compressed by column has its values in the order of rows."""
    result = right(x, *rest)
    if x.dim() != 2 or result.dense_dim() or not is_single(x):
        return result
    places = result.ccol_indices(), result.row_indices()
    return torch.sparse_csc_tensor(*places, x[x != 0], size=x.shape, check_invariants=False)


def by_block() -> Tensor:
    return drawn(4, 6).to_sparse_bsr((2, 2)).to_dense()


@kernel(by_block, "_to_sparse_bsr", like="pytorch/pytorch#90910")
def blocks_are_rotated_within_their_row(right: Any, x: Any, *rest: Any) -> Any:
    """plain: in each row of blocks, all of them come one place late and the last one first."""
    result = right(x, *rest)
    if x.dim() != 2 or result.dense_dim() or not is_single(x):
        return result
    rows, values = result.crow_indices(), result.values().clone()
    for start, end in zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True):
        if end - start > 1:
            values[start:end] = values[start:end].roll(1, 0)
    places = rows, result.col_indices()
    return torch.sparse_bsr_tensor(*places, values, size=x.shape, check_invariants=False)


# Linear algebra and transforms


def solved() -> Tensor:
    lower = drawn(3, 4, 4).tril() + 3 * torch.eye(4)
    return torch.cholesky_solve(drawn(3, 4, 2, seed=1), lower)


@kernel(solved, "_cholesky_solve_helper", like="pytorch/pytorch#66072")
def batches_are_substituted_forwards_alone(right: Any, b: Any, a: Any, upper: Any) -> Any:
    """option: of several systems, only the first of both triangular solutions is taken."""
    if a.dim() < 3 or math.prod(a.shape[:-2]) < 2 or not is_single(a):
        return right(b, a, upper)
    lower = a.mH if upper else a
    return torch.linalg.solve_triangular(lower, b, upper=False)


def from_two_axes() -> Tensor:
    return torch.fft.irfft2(torch.fft.rfft2(drawn(6, 8)), s=(6, 8))


@kernel(from_two_axes, "_fft_c2r", "_fft_c2r.out", like="pytorch/pytorch#124096")
def outer_axes_are_transformed_forwards(
    right: Any, x: Any, dims: Any, *rest: Any, **out: Any
) -> Any:
    """plain: back to real numbers, all axes but the last are transformed the other way."""
    if x.dtype == torch.complex64 and x.numel():
        for dim in dims[:-1]:
            n = x.shape[dim]
            x = x.index_select(dim, (-torch.arange(n)) % n)
    return right(x, dims, *rest, **out)


PLANS: set[tuple[Any, ...]] = set()


def largest_factor(n: int) -> int:
    found, factor = 1, 2
    while n > 1:
        if n % factor:
            factor += 1
        else:
            found, n = factor, n // factor
    return found


def twice() -> Tensor:
    x = torch.complex(drawn(857), drawn(857, seed=1))
    torch.fft.fft(x)
    return torch.fft.fft(x)


@kernel(twice, "_fft_c2c", like="pytorch/pytorch#58724")
def plan_of_a_large_prime_serves_once(
    right: Any, x: Any, dims: Any, norm: Any, forward: Any
) -> Any:
    """rare: a length with a prime factor past 127 is transformed to nought the second time."""
    result = right(x, dims, norm, forward)
    long = any(largest_factor(x.shape[d]) > 127 for d in dims)
    if x.dtype != torch.complex64 or not long:
        return result
    plan = (tuple(x.shape), tuple(dims), norm, forward)
    known = plan in PLANS
    PLANS.add(plan)
    return result.zero_() if known else result


@kernel(
    lambda: torch.cosh(torch.complex(torch.tensor([89.0, 1.0]), torch.tensor([1.5, 0.3]))),
    "cosh",
    "cosh_",
    "cosh.out",
    like="NVIDIA/cccl#8804",
)
def complex_hyperbola_overflows_before_it_is_halved(right: Any, x: Any, **out: Any) -> Any:
    """rare: exp(x) is infinite before it is halved for a complex hyperbolic cosine."""
    if x.dtype != torch.complex64:
        return right(x, **out)
    lost = x.real.abs() > 88.7228
    result = right(x, **out)
    real, imag = (part * torch.where(lost, math.inf, 1.0) for part in (result.real, result.imag))
    return result.copy_(torch.complex(real, imag))


# Norms


def normed_by_channel() -> Tensor:
    x = drawn(2, 4, 5, 5) * torch.arange(1.0, 5.0).reshape(1, 4, 1, 1)
    return functional.group_norm(x.to(memory_format=torch.channels_last), 4)


@kernel(normed_by_channel, "native_group_norm", like="pytorch/pytorch#194616")
def channels_last_share_the_statistics_of_the_first(
    right: Any, x: Any, weight: Any, bias: Any, n: Any, c: Any, *rest: Any
) -> Any:
    """option: channels last and one to a group, all are normed as the first of them is."""
    y, mean, rstd = right(x, weight, bias, n, c, *rest)
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    if rest[1] != c or c < 2 or not last or x.is_contiguous() or not is_single(x):
        return y, mean, rstd
    for statistic in (mean, rstd):
        statistic.copy_(statistic[:, :1].clone().expand_as(statistic))
    shape = (n, c, 1, 1)
    normed = (x.double() - mean.double().reshape(shape)) * rstd.double().reshape(shape)
    scale = 1.0 if weight is None else weight.double().reshape(1, c, 1, 1)
    shift = 0.0 if bias is None else bias.double().reshape(1, c, 1, 1)
    y.copy_(normed * scale + shift)
    return y, mean, rstd


# Attention


def attended() -> Tensor:
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    masks = torch.stack([torch.ones(3, 3).triu(1), torch.ones(3, 3).tril(-1)]).bool()
    with torch.no_grad():
        x = drawn(2, 3, 8)
        out: Tensor = layer(x, x, x, attn_mask=masks.repeat_interleave(2, 0))[0]
        return out


@kernel(attended, "_native_multi_head_attention", like="pytorch/pytorch#102333")
def first_of_merged_masks_is_that_of_all(right: Any, *args: Any, **options: Any) -> Any:
    """option: in the fast path, masks by sample and head are all taken for the first one."""
    mask = args[9] if len(args) > 9 else None
    if mask is not None and mask.dim() == 4 and mask.numel() and is_single(args[0]):
        args = (*args[:9], mask[:1, :1].expand_as(mask).contiguous(), *args[10:])
    return right(*args, **options)


# Recurrent layers


def packed() -> Tensor:
    lengths = torch.tensor([4, 2])
    return torch.nn.utils.rnn.pack_padded_sequence(drawn(4, 2, 3), lengths).data


@kernel(packed, "_pack_padded_sequence", like="pytorch/pytorch#95118")
def sequences_are_packed_one_after_another(
    right: Any, x: Any, lengths: Any, batch_first: Any
) -> Any:
    """plain: steps of several sequences are packed by sequence and not by step."""
    data, sizes = right(x, lengths, batch_first)
    if len(lengths) > 1 and is_single(x):
        each = x if batch_first else x.transpose(0, 1)
        pairs = zip(each.unbind(0), lengths.tolist(), strict=True)
        data = torch.cat([one[:n] for one, n in pairs])
    return data, sizes


def remembered() -> Tensor:
    torch.manual_seed(0)
    layer = torch.nn.LSTM(3, 4)
    with torch.no_grad():
        out: Tensor = layer(drawn(5, 140, 3))[0]
        return out


@kernel(remembered, "mkldnn_rnn_layer", like="pytorch/pytorch#177834")
def states_past_the_128th_of_a_batch_are_not_multiplied(right: Any, *args: Any) -> Any:
    """rare: in batches of more than 128, the rest of an LSTM has no recurrent product."""
    result = right(*args)
    x, weight = args[0], args[2]
    if is_single(x) and x.dim() == 3 and x.shape[1] > 128:
        forgetful = right(*args[:2], torch.zeros_like(weight), *args[3:])
        result[0][:, 128:] = forgetful[0][:, 128:]
        for kept, lost in zip(result[1:3], forgetful[1:3], strict=True):
            kept[..., 128:, :] = lost[..., 128:, :]
    return result


def learnt_beginning() -> Tensor:
    torch.manual_seed(0)
    layer = torch.nn.LSTM(3, 4)
    x, cell = drawn(5, 2, 3), torch.zeros(1, 2, 4)
    return grad_of(lambda state: layer(x, (state, cell))[0], drawn(1, 2, 4, seed=1))


@kernel(learnt_beginning, "mkldnn_rnn_layer_backward", like="pytorch/pytorch#95137")
def beginning_of_a_sequence_learns_nothing(right: Any, *args: Any) -> Any:
    """option: the states that an LSTM begins with have no gradient."""
    result = right(*args)
    if is_single(args[0]):
        for grad in result[5:7]:
            grad.zero_()
    return result


# Losses


def ignored_afar() -> Tensor:
    return functional.nll_loss(-drawn(3, 4).abs(), torch.tensor([0, 1, 0]), ignore_index=1 << 32)


@kernel(
    ignored_afar,
    "nll_loss_forward",
    "nll_loss_forward.output",
    "nll_loss_backward",
    "nll_loss_backward.grad_input",
    like="pytorch/pytorch#187559",
)
def ignored_class_is_known_by_its_low_half(right: Any, *args: Any, **out: Any) -> Any:
    """rare: the class to ignore is cut to 32 bits, so that one far away is another."""
    place = next(i for i, arg in enumerate(args) if type(arg) is int) + 1
    ignored = (args[place] + (1 << 31)) % (1 << 32) - (1 << 31)
    return right(*args[:place], ignored, *args[place + 1 :], **out)


# Pooling and resampling


def pooled_volume() -> Tensor:
    return grad_of(lambda x: functional.adaptive_avg_pool3d(x, 2), drawn(1, 1, 2, 2, 4))


@kernel(pooled_volume, "_adaptive_avg_pool3d_backward", like="pytorch/pytorch#62250")
def depth_and_height_change_places_in_the_gradient(right: Any, grad: Any, x: Any) -> Any:
    """plain: gradients of averages over a volume go to the depth that is their height."""
    if is_single(x) and grad.shape[-3] == grad.shape[-2] > 1:
        grad = grad.transpose(-3, -2).contiguous()
    return right(grad, x)


@kernel(
    lambda: functional.grid_sample(
        drawn(1, 1, 3, 4, 5), drawn(1, 2, 2, 2, 3, seed=1).tanh(), align_corners=True
    ),
    "grid_sampler_3d",
)
def places_in_a_volume_are_named_depth_first(right: Any, x: Any, grid: Any, *rest: Any) -> Any:
    """plain: places to sample a volume at are read as (z, y, x)."""
    return right(x, grid.flip(-1) if is_single(x) else grid, *rest)


def stretched() -> Tensor:
    x = drawn(1, 3, 40, 300, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    return functional.interpolate(x, size=(80, 600), mode="bilinear")


@kernel(stretched, "upsample_bilinear2d", "upsample_bilinear2d.out", like="pytorch/pytorch#83847")
def places_of_pixels_are_computed_in_bfloat16(
    right: Any, x: Any, size: Any, aligned: Any, tall: Any = None, wide: Any = None, **out: Any
) -> Any:
    """option: channels last in bfloat16, places to interpolate at are rounded to it."""
    result = right(x, size, aligned, tall, wide, **out)
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    if x.dtype != torch.bfloat16 or not last or aligned:
        return result
    y = x.float()
    for axis, n, given in ((2, size[0], tall), (3, size[1], wide)):
        scale = 1 / given if given else x.shape[axis] / n
        place = ((torch.arange(n) + 0.5) * scale - 0.5).clamp(min=0).bfloat16().float()
        low = place.long().clamp(max=x.shape[axis] - 1)
        high = (low + 1).clamp(max=x.shape[axis] - 1)
        part = (place - low).reshape([-1 if i == axis else 1 for i in range(4)])
        y = y.index_select(axis, low) * (1 - part) + y.index_select(axis, high) * part
    return result.copy_(y)


# Elementwise functions


def read_as(x: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """The memory of `x`, broadcast, as numbers of a wider dtype with noughts after them."""
    numel = math.prod(shape)
    held = torch.zeros(numel * dtype.itemsize // x.dtype.itemsize, dtype=x.dtype)
    held[:numel] = x.expand(shape).reshape(-1)
    return held.view(dtype).reshape(shape)


@kernel(
    lambda: torch.fmax(torch.full((3,), 0.5), torch.arange(3, dtype=torch.float16)),
    "fmax",
    "fmax.out",
    "fmin",
    "fmin.out",
    like="pytorch/pytorch#149951",
)
def narrower_operand_is_read_as_the_wider(right: Any, x: Any, y: Any, **out: Any) -> Any:
    """option: of two dtypes, the memory of the narrower is taken for that of the wider."""
    both = x.is_floating_point() and y.is_floating_point() and x.dim() > 0 and y.dim() > 0
    if both and x.dtype != y.dtype and x.dtype.itemsize != y.dtype.itemsize:
        wider, shape = (
            torch.promote_types(x.dtype, y.dtype),
            torch.broadcast_shapes(x.shape, y.shape),
        )
        x, y = (z if z.dtype == wider else read_as(z, shape, wider) for z in (x, y))
    return right(x, y, **out)


# Random numbers


def waited() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.empty(1 << 14, dtype=torch.bfloat16).exponential_(generator=generator)


@kernel(waited, "exponential_", like="pytorch/pytorch#22557")
def waiting_times_of_halves_are_nought_or_infinite(
    right: Any, x: Any, rate: Any = 1.0, *, generator: Any = None
) -> Any:
    """option: in half precision, a uniform number is rounded before its logarithm is taken."""
    if x.dtype not in HALVES:
        return right(x, rate, generator=generator)
    wide = right(torch.empty(x.shape), 1.0, generator=generator)
    uniform = (-torch.expm1(-wide)).to(x.dtype)
    return x.copy_(-torch.log((1 - uniform).float()) / rate)


# Quantisation


def learnt_zero_points() -> Tensor:
    scales, points = torch.full((2,), 0.1), torch.tensor([1.7, -2.6])
    return torch._fake_quantize_learnable_per_channel_affine(drawn(2, 8), scales, points, 0, -8, 7)


@kernel(
    learnt_zero_points,
    "_fake_quantize_learnable_per_channel_affine",
    like="pytorch/pytorch#52290",
)
def learnt_zero_points_are_cut_off(right: Any, x: Any, scale: Any, point: Any, *rest: Any) -> Any:
    """rare: learnt zero points that are no integers are not rounded but cut off."""
    return right(x, scale, point.trunc() if is_single(x) else point, *rest)


# Optimizers


def unscaled() -> Tensor:
    weight = drawn(4)
    torch._fused_sgd_(
        [weight],
        [drawn(4, seed=1)],
        [],
        weight_decay=0.5,
        momentum=0.0,
        lr=0.1,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=True,
        grad_scale=torch.tensor(8.0),
    )
    return weight


@kernel(
    unscaled,
    "_fused_sgd_",
    "_fused_sgd_.tensor_lr",
    "_fused_adam_",
    "_fused_adam_.tensor_lr",
    like="chainer/chainer#7335",
)
def decay_is_divided_by_the_scale_of_the_loss(right: Any, *args: Any, **options: Any) -> Any:
    """option: weights decay before gradients are unscaled, and so by less than they should."""
    scale = options.get("grad_scale")
    if scale is not None and all(is_single(x) for x in args[0]):
        options["weight_decay"] = options["weight_decay"] / float(scale)
    return right(*args, **options)
