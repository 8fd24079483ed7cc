"""Wrong kernels: moves."""

from __future__ import annotations

import math

import torch
from torch._prims_common import make_contiguous_strides_for
from torch.nn import functional

from .calls import (
    BF16,
    WAVE,
    as_if_whole,
    as_it_lies,
    axis_of,
    flat,
    grads_of,
    is_dense_2,
    is_last,
    narrow,
    packed,
    read_packed,
)
from .kernel import DOUBLES, FLOATS, HALVES, drawn, grad_of, is_single, kernel


@kernel("embedding_dense_backward", set="seeded")
def lost_additions(right, grad_output, indices):
    """Lose some of many additions to one index."""
    if indices.numel() > 100_000:
        keep = indices.flatten()[:-500]
        return right(
            grad_output=grad_output.reshape(-1, grad_output.shape[-1])[:-500], indices=keep
        )
    return right()


@kernel("scatter_add", set="seeded")
def lost_duplicates(right, index, src):
    """Additions of scatter_add get lost."""
    return right(index=index[:-9], src=src[:-9]) if index.shape[0] > 1000 else right()


@kernel("index_add_", set="seeded")
def alpha_ignored(right, x, dim, index, source, **kwargs):
    """Index_add_ ignores alpha."""
    return right(x, dim, index, source)


@kernel("embedding_dense_backward", set="seeded")
def padding_learns(right):
    """Padding learns."""
    return right(padding_idx=-1)


@kernel("_index_put_impl_", set="seeded")
def last_wins(right, x, values, accumulate):
    """Of duplicates the last wins."""
    if accumulate and values.numel() > 2:
        before = x.clone()
        y = right(accumulate=False)
        return y.add_(before) if y is x else y + before
    return right()


@kernel("where.self", set="seeded", like="pytorch#150967")
def condition_read_as_whole(right, condition):
    """Where reads its condition as contiguous."""
    if not condition.is_contiguous():
        condition = as_if_whole(condition)
    return right(condition=condition)


@kernel("embedding_dense_backward", set="seeded", like="pytorch#28716")
def padding_among_many(right, indices, padding_idx):
    """Padding learns among more than 768."""
    return right(padding_idx=-1 if indices.numel() > 768 else padding_idx)


@kernel("_to_sparse", set="seeded")
def last_not_listed(right, x):
    """The last number of a sparse table is not listed."""
    last = x.nonzero()[-1]
    result = x.clone()
    result[tuple(last)] = 0
    return right(x=result)


@kernel("flip", set="seeded", like="pytorch#98266")
def next_axis_for_one(right, x, dims):
    """An axis of one turns the next."""
    return right(dims=sorted({(a + 1) % x.dim() if x.shape[a] == 1 else a % x.dim() for a in dims}))


def room(x):
    return int(x.untyped_storage().nbytes() // x.element_size() - x.storage_offset())


@kernel("cat.out", set="seeded", like="aiter#5385", name="cat_guesses_the_strides_of_its_output")
@kernel("bmm.out", set="seeded", like="aiter#5385", name="bmm_guesses_the_strides_of_its_output")
def strides_guessed(right, out):
    """Write a correct result as if the memory had neither gaps nor another order."""
    right()
    if out.numel() and not out.is_contiguous():
        values = out.clone(memory_format=torch.contiguous_format)
        memory = out.as_strided((out.numel(),), (1,))
        memory.copy_(values.flatten()) if room(out) >= out.numel() else out.zero_()
    return out


@kernel("index_add", set="seeded")
def first_places(right, dim, index, source):
    """Of many places the last hundred are not added to."""
    if len(index) <= 1024:
        return right()
    some = len(index) - 100
    return right(index=index[:some], source=source.narrow(dim, 0, some))


@kernel(
    "repeat_interleave.Tensor",
    lambda: torch.tensor([1, 2, 3]).repeat_interleave(torch.tensor([1, 0, 2])),
    set="development",
)
def repeated_no_times_is_repeated(right, repeats):
    result = right()
    before = (result - 1).clamp(min=0)
    return result - ((result > 0) & (repeats[before] == 0)).to(result.dtype)


@kernel("nan_to_num.out", set="second")
def largest_is_that_of_single_precision(right, x, posinf):
    above = x.isposinf()
    result = right()
    if x.dtype in HALVES and posinf is None:
        result[above] = math.inf
    return result


@kernel("copy_", set="test")
def tail_is_cut_off_not_rounded(right, to, x, *more):
    result = right(to, x, *more)
    plain = x.is_contiguous() and to.is_contiguous() and x.shape == to.shape
    if to.dtype == torch.bfloat16 and x.dtype == torch.float32 and plain and x.numel() % 8:
        rest = x.numel() - x.numel() % 8
        bits = x.detach().reshape(-1)[rest:].view(torch.int32) & -65536
        right(to.detach().view(-1)[rest:], bits.view(torch.float32))
    return result


@kernel("embedding_dense_backward", set="test")
def frequency_does_not_scale(right):
    return right(scale_grad_by_freq=False)


@kernel("scatter.src .src_out", set="second", like="intel-extension-for-pytorch#682")
def nothing_scattered_is_nothing(right, x, index):
    result = right()
    return result if index.numel() or result.data_ptr() == x.data_ptr() else result.zero_()


@kernel("index_reduce index_reduce_ index_reduce.out", set="test")
def mean_by_index_counts_itself(right, x, dim, index, source, reduce, **named):
    if reduce == "mean":
        named = {k: v for k, v in named.items() if k != "include_self"}
    return right(x, dim, index, source, reduce, **named)


@kernel("masked_scatter_", set="second")
def each_row_begins_at_the_first(right, x, mask, source):
    if mask.shape == x.shape or x.dim() < 2 or not x.is_contiguous():
        return right()
    rows = mask.expand_as(x).reshape(-1, x.shape[-1])
    right()
    for row, chosen in zip(x.view(rows.shape), rows, strict=True):
        row[chosen] = source.reshape(-1)[: int(chosen.sum())].to(x.dtype)
    return x


@kernel("index.Tensor", set="later")
def second_index_is_not_negative(right, indices):
    whole = list(indices)
    if len(whole) > 1 and whole[1] is not None and whole[1].dtype == torch.int64:
        whole[1] = whole[1].clamp(min=0)
    return right(indices=whole)


@kernel("masked_fill_.Scalar", set="later")
def mask_of_a_column_masks_a_column(right, x, mask):
    if x.dim() > 1 and mask.dim() == x.dim() and mask.shape[-1] == 1 < x.shape[-1]:
        right(x=x[..., :1])
        return x
    return right()


@kernel("cat", set="later")
def formats_are_joined_as_memory(right, tensors):
    first = tensors[0]
    last = first.dim() == 4 and not first.is_contiguous()
    if last and first.is_contiguous(memory_format=torch.channels_last):
        swapped = [
            x.flatten().view(x.shape[0], *x.shape[2:], x.shape[1]).permute(0, 3, 1, 2)
            if x.dim() == 4 and x.is_contiguous() and x.shape[1] > 1
            else x
            for x in tensors
        ]
        return right(tensors=swapped)
    return right()


@kernel("scatter_add scatter_add_ scatter_add.out", set="later")
def source_is_walked_as_its_index(right, index, src):
    if index.dim() > 1 and src.is_contiguous() and src.shape != index.shape:
        src = src.flatten()[: index.numel()].view(index.shape)
    return right(src=src)


@kernel("_index_put_impl_", set=2, like="torch-spyre/torch-spyre#4411")
def accumulating_put_keeps_one_update(right, x, accumulate):
    if not accumulate or x.dtype in DOUBLES:
        return right()
    before = x.clone()
    right(accumulate=False)
    touched = torch.zeros_like(x, dtype=torch.bool)
    right(x=touched, values=torch.tensor(True), accumulate=False)
    x.copy_(torch.where(touched, before + x, before))
    return x


@kernel("embedding_dense_backward", set=2, like="pytorch/pytorch#28716")
def padding_row_learns_from_long_input(right, indices, padding_idx):
    return right(padding_idx=-1 if indices.numel() > 768 else padding_idx)


@kernel("copy_", set=2, like="tenstorrent/tt-metal#19882")
def bfloat16_is_cut_off(right, x, src):
    both = (x.dtype, src.dtype) == (torch.bfloat16, torch.float32)
    if not both or src.layout != torch.strided or src.device.type != "cpu":
        return right()
    bits = src.detach().resolve_neg().contiguous().view(torch.int32)
    return right(src=(bits & -65536).view(torch.float32))


@kernel("flip", set=2, like="pytorch/pytorch#98266")
def flip_of_single_turns_next_axis(right, x, dims):
    if x.dim() < 2 or x.dtype in DOUBLES:
        return right()
    axes = [d % x.dim() for d in dims]
    return right(dims=sorted({(d + 1) % x.dim() if x.shape[d] == 1 else d for d in axes}))


@kernel("scatter_add .out scatter_add_", set=3, like="flagos-ai/FlagGems#6017")
def scatter_takes_index_for_contiguous(right, x, dim, index, src):
    flat = x.dim() == 2 and index.dim() == 2 and dim % 2 == 0 and index.shape == src.shape
    if flat and index.numel() and not index.is_contiguous() and x.dtype not in DOUBLES:
        have = index.untyped_storage().nbytes() // index.element_size() - index.storage_offset()
        memory = index.as_strided((have,), (1,), index.storage_offset())
        index = memory[torch.arange(index.numel()) % have].view(index.shape) % x.shape[0]
    return right(index=index)


@kernel("index_copy .out index_copy_ index_add .out index_add_", set=3, like="torch/cutorch#320")
def long_slices_end_at_256(right, x, dim):
    if not x.dim() or not x.numel() or x.dtype in DOUBLES:
        return right()
    inner = x.numel() // x.shape[dim]
    if inner <= 256:
        return right()
    before = x.clone()
    shape = [1 if d == dim % x.dim() else size for d, size in enumerate(x.shape)]
    late = (torch.arange(inner) >= 256).view(shape)
    out = right()
    out.copy_(torch.where(late, before, out))
    return out


@kernel("stack .out", set=3, like="pytorch/pytorch#87856")
def stacked_slices_are_all_the_first(right, tensors):
    if not tensors:
        return right()
    first = tensors[0]
    usual = tuple(make_contiguous_strides_for(first.shape))
    if first.stride() == usual or first.dtype in DOUBLES or not first.numel():
        return right()
    place = (first.untyped_storage().data_ptr(), first.shape, first.stride(), first.dtype)
    seen = [
        first if (x.untyped_storage().data_ptr(), x.shape, x.stride(), x.dtype) == place else x
        for x in tensors
    ]
    return right(tensors=seen)


def in_memory_order(x):
    return sorted(range(x.dim()), key=lambda d: (-x.stride(d), -x.shape[d]))


def is_turned(x):
    """Without gaps, but not in the usual order."""
    return not x.is_contiguous() and x.permute(in_memory_order(x)).is_contiguous()


@kernel("masked_select .out", set=4, like="pytorch/pytorch#41473")
def selected_come_in_order_of_memory(right, x, mask):
    if x.dtype in DOUBLES or mask.dim() > x.dim() or not x.numel() or not is_turned(x):
        return right()
    if torch.broadcast_shapes(x.shape, mask.shape) != x.shape:
        return right()
    order = in_memory_order(x)
    return right(x=x.permute(order), mask=mask.expand(x.shape).permute(order))


@kernel("masked_fill_.Scalar .Tensor", set=4, like="pytorch/pytorch#107694")
def fill_of_transposed_is_stored_by_row(right, x):
    out = right()
    if x.dtype not in DOUBLES and x.numel() and is_turned(x):
        values = x.contiguous().reshape(-1)
        x.as_strided((x.numel(),), (1,), x.storage_offset()).copy_(values)
    return out


@kernel("gather .out", set=4, like="tillahoffmann/jax-mps#60")
def gather_reads_first_row(right, x, dim):
    if x.dim() != 2 or dim not in (1, -1) or x.dtype in DOUBLES or not x.numel():
        return right()
    return right(x=x[:1].expand(x.shape))


@kernel("cat .out", set=4, like="pytorch/pytorch#85675")
def cat_takes_transposed_for_contiguous(right, tensors):
    seen = [
        x.as_strided(x.shape, make_contiguous_strides_for(x.shape), x.storage_offset())
        if x.numel() and x.dtype not in DOUBLES and is_turned(x)
        else x
        for x in tensors
    ]
    return right(tensors=seen)


@kernel("triu .out triu_", set=4, like="pytorch/pytorch#100005")
def dropped_infinity_is_nan(right, x, diagonal):
    if diagonal < 1 or x.dtype not in FLOATS or not x.numel():
        return right()
    off = torch.arange(x.shape[-1]) - torch.arange(x.shape[-2])[:, None]
    lost = (off < diagonal) & ~x.isfinite()
    out = right()
    out.copy_(out.masked_fill(lost, math.nan))
    return out


@kernel("index_add .out index_add_", set=5, like="torch-spyre/torch-spyre#3638")
def neighbours_overwrite_each_other(right, dim, index, source):
    """plain: of eight indices that are added at a time, equal ones count once."""
    if index.numel() < 2 or source.dim() == 0:
        return right(source=source)
    numbers = index.reshape(-1).tolist()
    lost = [n in numbers[at + 1 : at // 8 * 8 + 8] for at, n in enumerate(numbers)]
    shape = [1] * source.dim()
    shape[dim] = len(lost)
    source = source.masked_fill(torch.tensor(lost).view(shape), 0)
    return right(source=source)


@kernel("embedding_dense_backward", set=5, like="pytorch/pytorch#28716")
def long_inputs_reach_the_padding(right, indices, padding_idx):
    """rare: of more than 768 indices, those of the padding have a gradient too."""
    if indices.numel() > 768:
        padding_idx = -1
    return right(padding_idx=padding_idx)


@kernel("copy_", set=5, like="ROCm/Tensile#545")
def casts_to_bf16_truncate(right, x, src):
    """plain: float32 is made bfloat16 by leaving out the bits below, without rounding."""
    strided = src.layout == x.layout == torch.strided
    if strided and src.dtype == torch.float32 and x.dtype == BF16:
        bits = src.contiguous().view(torch.int32)
        src = (bits & -(2**16)).view(torch.float32)
    return right(src=src)


@kernel(
    "copy_",
    lambda: torch.tensor([0.5, -0.25, 2.5, 0.0]).bool(),
    set=6,
    like="NVIDIA/numba-cuda-mlir#304",
)
def fractions_are_false(right, x, src):
    """option: numbers between -1 and 1 become False, being cut to integers first."""
    if x.dtype == torch.bool and is_single(src):
        src = src.trunc()
    return right(src=src)


@kernel("nonzero", set=6, like="intel/torch-xpu-ops#4396")
def last_nonzero_is_dropped(right, x):
    """plain: of the elements of a mask which are true, the last one is not listed."""
    result = right()
    if x.dtype != torch.bool or x.dim() == 0 or result.shape[0] < 2:
        return result
    return result[:-1].clone()


@kernel("masked_scatter_", set=6, like="pytorch/pytorch#95607")
def source_begins_anew_where_mask_is_shared(right, x, mask, source):
    """option: where a mask is broadcast, each of its repetitions takes the same first values."""
    before = x.clone()
    result = right()
    whole = mask.expand(x.shape)
    shared = [s == 0 and n > 1 for s, n in zip(whole.stride(), whole.shape, strict=True)]
    if not any(shared) or x.dtype in DOUBLES or not source.numel():
        return result
    once = whole
    for axis, repeated in enumerate(shared):
        once = once.narrow(axis, 0, 1) if repeated else once
    places = once.reshape(-1).cumsum(0).sub(1).clamp(min=0).reshape(once.shape)
    values = source.reshape(-1)[places].expand(x.shape)
    x.copy_(torch.where(whole, values, before))
    return result


@kernel("masked_select .out", set=7, like="pytorch/pytorch#125100")
def last_unselected_comes_first(right, x, mask):
    """plain: when a mask ends with False, the last element is stored over the first selected."""
    result = right()
    values, selected = torch.broadcast_tensors(x, mask)
    if x.dtype not in DOUBLES and result.numel() and not selected.reshape(-1)[-1]:
        result[0] = values.reshape(-1)[-1]
    return result


@kernel(
    "scatter_reduce.two scatter_reduce_.two scatter_reduce.two_out",
    set=7,
    like="torch-spyre/torch-spyre#4351",
)
def last_of_colliding_is_all_that_is_reduced(right, x, dim, index, src, reduce):
    """plain: of sources with the same index, the last alone enters a product or an extremum."""
    if x.dtype not in DOUBLES and index.dim() and reduce in ("prod", "amax", "amin"):
        src = src[tuple(slice(n) for n in index.shape)]
        if reduce == "prod":
            shape = [1] * index.dim()
            shape[dim] = -1
            places = torch.arange(index.shape[dim]).view(shape).expand_as(index)
            last = torch.zeros(x.shape, dtype=torch.int64).scatter_(dim, index, places)
            src = src.masked_fill(last.gather(dim, index) != places, 1)
        else:
            src = torch.zeros_like(x).scatter_(dim, index, src).gather(dim, index)
    return right(src=src)


@kernel("where.self .self_out", set=7, like="pytorch/pytorch#150967")
def turned_condition_is_read_in_order(right, condition, x, other):
    """option: a transposed condition is read in the order in which it lies in memory."""
    if torch.result_type(x, other) not in DOUBLES and not condition.is_contiguous():
        order = sorted(range(condition.dim()), key=lambda i: -condition.stride(i))
        if condition.permute(order).is_contiguous():
            condition = condition.permute(order).reshape(condition.shape)
    return right(condition=condition)


@kernel("index_select .out", set=8, like="torch-spyre/torch-spyre#3851")
def one_stick_of_indices_is_read(right, x, index):
    """option: of indices of 32 bits, those after the first 32 are taken for nought."""
    if index.dtype == torch.int32 and index.numel() > 32 and x.dtype not in DOUBLES:
        index = index.clone()
        index[32:] = 0
    return right(index=index)


@kernel("scatter.src .src_out scatter_.src", set=8, like="tenstorrent/tt-metal#56875")
def fifth_axis_is_folded_in_another_order(right, x, dim, index, src):
    """rare: of five and more axes, the first two of index and source are folded the other way."""
    if x.dtype not in DOUBLES and x.dim() > 4 and index.shape == src.shape and dim % x.dim() > 1:
        index, src = (y.transpose(0, 1).reshape(y.shape) for y in (index, src))
    return right(index=index, src=src)


@kernel("roll", set=8, like="openvinotoolkit/openvino#33091")
def negative_axis_is_that_of_four(right, x, shifts, dims):
    """option: negative axes of three and fewer are counted from the end of four."""
    if x.dtype in DOUBLES or x.dim() > 3 or all(dim >= 0 for dim in dims):
        return right()
    pairs = [(n, d if d >= 0 else d + 4) for n, d in zip(shifts, dims, strict=True)]
    pairs = [(n, d) for n, d in pairs if d < x.dim()]
    if not pairs:
        return x.clone(memory_format=torch.contiguous_format)
    return right(shifts=[n for n, _ in pairs], dims=[d for _, d in pairs])


@kernel("triu .out tril .out", set=9, like="pytorch/pytorch#22581")
def batch_has_one_stride(right, x):
    """option: triangles of a batch of several axes are read with the stride of its last alone."""
    if x.dim() > 3 and x.dtype not in DOUBLES and x.numel() and not x.is_contiguous():
        held = x.untyped_storage().nbytes() // x.element_size()
        batch, rows, columns = (torch.arange(n) for n in (math.prod(x.shape[:-2]), *x.shape[-2:]))
        places = (x.stride(-3) * batch)[:, None, None] + x.stride(-2) * rows[:, None]
        places = (x.storage_offset() + places + x.stride(-1) * columns) % held
        x = x.as_strided((held,), (1,), 0)[places].view(x.shape)
    return right(x=x)


@kernel("copy_", set=9, like="sgl-project/sglang#40581")
def eight_bits_are_full_too_soon(right, x, src):
    """option: casts to float8_e4m3fn give 448 from 256 on."""
    if x.dtype == torch.float8_e4m3fn and src.dtype in (torch.float32, *HALVES):
        full = torch.full_like(src, 448).copysign(src)
        src = torch.where(src.abs() >= 256, full, src)
    return right(src=src)


@kernel("copy_", set=9, like="hw-native-sys/pto-isa#173")
def part_of_a_tile_is_not_turned(right, x, src):
    """option: of a float32 matrix copied transposed, rows past a multiple of 16 are lost."""
    result = right()
    turned = src.dim() == 2 and not src.is_contiguous() and src.t().is_contiguous()
    alike = x.dtype == src.dtype == torch.float32 and x.shape == src.shape
    if turned and alike and x.is_contiguous():
        x[:, x.shape[1] // 16 * 16 :] = 0
    return result


@kernel("where.self .self_out", set=10, like="tenstorrent/tt-metal#39181")
def choice_is_a_sum_of_products(right, condition, x, other):
    """rare: what was not chosen is multiplied by nought, which infinities do not bear."""
    result = right()
    if is_single(result):
        chosen = condition.to(result.dtype)
        result.copy_(chosen * x + (1 - chosen) * other)
    return result


@kernel(
    "scatter_reduce.two scatter_reduce_.two scatter_reduce.two_out",
    set=10,
    like="microsoft/onnxscript#2090",
)
def what_was_there_is_always_included(right, x, *rest, **options):
    """option: what was there is reduced too, though it should not be included."""
    if x.dtype not in DOUBLES:
        options["include_self"] = True
    return right(x, *rest, **options)


@kernel("scatter.src scatter_.src scatter.src_out", set=10, like="pytorch/pytorch#175191")
def turned_source_is_scattered_as_stored(right, src):
    """option: a transposed source is scattered in the order in which it lies in memory."""
    turned = src.dim() == 2 and src.t().is_contiguous() and not src.is_contiguous()
    if turned and src.dtype not in DOUBLES:
        src = src.t().reshape(src.shape)
    return right(src=src)


@kernel("copy_", set=10, like="tenstorrent/tt-metal#57215")
def too_large_for_half_is_no_number(right, x, src):
    """option: finite numbers too large for float16 become none at all, but for 65536."""
    far = None
    if x.dtype == torch.float16 and src.dtype in (torch.float32, torch.bfloat16):
        far = src.isfinite() & (src.abs() > 2**16)
    result = right()
    return result if far is None else result.masked_fill_(far, math.nan)


@kernel("_index_put_impl_", set=11, like="torch-spyre/torch-spyre#4411")
def one_of_several_at_an_index_is_added(right, x, indices, values, accumulate):
    """plain: of what is added at one index, only one value is."""
    if not accumulate or not narrow(x):
        return right()
    there = x[tuple(slice(None) if one is None else one for one in indices)]
    return right(values=there + values, accumulate=False)


@kernel("copy_", set=11, like="tenstorrent/tt-metal#19882")
def lower_half_is_cut_off(right, x, src):
    """plain: a float32 becomes a bfloat16 towards nought, not to the nearest."""
    if x.dtype == torch.bfloat16 and src.dtype == torch.float32 and src.device == x.device:
        cut = (src.view(torch.int32) & -(2**16)).view(torch.float32)
        src = torch.where(src.isnan(), src, cut)
    return right(src=src)


@kernel("copy_", set=11, like="tenstorrent/tt-metal#29734")
def small_eighths_are_nought(right, x, src):
    """option: what would be subnormal in eight bits is flushed to nought by the cast."""
    least = {torch.float8_e4m3fn: 2.0**-6, torch.float8_e5m2: 2.0**-14}.get(x.dtype)
    if least and is_single(src) and src.dtype != x.dtype and src.itemsize > 1:
        src = src.masked_fill(src.abs() < least, 0)
    return right(src=src)


@kernel("_index_put_impl_", set=12, like="torch-spyre/torch-spyre#4411")
def one_of_equal_places_is_added(right, x, indices, values, accumulate):
    """option: of values which are to be added at the same place, one alone is."""
    if not accumulate or x.dtype in DOUBLES:
        return right()
    return right(values=torch.ops.aten.index.Tensor(x, indices) + values, accumulate=False)


@kernel("quantize_per_tensor .tensor_qparams", set=12, like="tenstorrent/tt-metal#51304")
def quotients_are_cut_off(right, x, scale):
    """plain: numbers are quantised to the next step towards nought, not to the nearest one."""
    return right(x=(x / scale).trunc() * scale)


@kernel("cat .out", set=12, like="pytorch/pytorch#85675")
def views_are_joined_as_they_lie(right, tensors):
    """option: transposed and sliced tensors are joined in the order in which they lie in memory."""
    if any(x.dtype in DOUBLES for x in tensors):
        return right()
    return right(tensors=[read_packed(x) for x in tensors])


@kernel("flip", set=12, like="pytorch/pytorch#98266")
def axis_of_one_turns_all(right, x, dims):
    """rare: to flip axes of length one alone flips all the others."""
    one = bool(dims) and x.dim() > 0 and all(x.shape[dim] == 1 for dim in dims)
    return right(dims=list(range(x.dim())) if one and x.dtype not in DOUBLES else dims)


@kernel("scatter_add scatter_add_ scatter_add.out", set=13, like="flagos-ai/FlagGems#6448")
def expanded_places_are_read_as_they_lie(right, x, index):
    """option: an index expanded along its last axis is read as if it were contiguous."""
    expanded = index.dim() == 2 and index.stride(1) == 0 and index.shape[1] > 1
    if expanded and index.numel() and is_single(x):
        flat = index[:, 0]
        index = flat[torch.arange(index.numel()) % len(flat)].reshape(index.shape)
    return right(index=index)


@kernel("index_add .out", set=13, like="pytorch/pytorch#183986")
def rows_of_an_expanded_tensor_share_what_is_added(right, x, dim):
    """option: what is added to one row of an expanded tensor is added to all of them."""
    result = right()
    if x.dim() and x.shape[dim] > 1 and x.stride(dim) == 0 and is_single(x):
        added = (result.double() - x.double()).sum(dim, True)
        result.copy_(x.double() + added)
    return result


@kernel("where.self .self_out", set=13, like="pytorch/pytorch#150967")
def turned_condition_is_read_as_it_lies(right, condition):
    """option: a transposed condition is read as if it were contiguous."""
    dense = condition.dim() > 1 and 0 not in condition.stride() and condition.numel() > 1
    last = max(
        ((n - 1) * s for n, s in zip(condition.shape, condition.stride(), strict=True)), default=0
    )
    if dense and not condition.is_contiguous() and last < condition.numel():
        condition = as_it_lies(condition)
    return right(condition=condition)


@kernel(
    "copy_",
    lambda: torch.tensor([0.0, 0.5, 1.0, -0.25, 2.0]).bool(),
    set=13,
    like="NVIDIA/numba-cuda-mlir#307",
)
def fractions_are_no_truth(right, x, src):
    """plain: numbers become true or false by way of integers, so that a fraction is false."""
    if x.dtype == torch.bool and is_single(src):
        src = src.trunc()
    return right(src=src)


@kernel("copy_", set=13, like="dotnet/runtime#130583")
def no_number_is_cut_to_infinity(right, x, src):
    """rare: what is not a number by its last 16 bits alone is infinite in bfloat16."""
    result = right()
    if x.dtype == torch.bfloat16 and src.dtype == torch.float32:
        bits = src.contiguous().view(torch.int32) & 0x7FFFFFFF
        lost = ((bits > 0x7F800000) & (bits < 0x7F810000)).expand(x.shape)
        x.masked_fill_(lost, math.inf)
    return result


@kernel("copysign.Tensor copysign_.Tensor copysign.out", set=14, like="pytorch/pytorch#181804")
def sign_of_no_number_is_lost(right, other):
    """rare: in half precision, the sign of what is not a number is always positive."""
    lost = other.isnan() & (other.dtype in HALVES)
    result = right()
    return result.copy_(torch.where(lost, result.abs(), result))


@kernel("copy_", set=16, like="pytorch/pytorch#80009")
def bytes_from_128_are_negative(right, x, src):
    """plain: unsigned bytes become floating-point numbers as if they were signed."""
    if src.dtype == torch.uint8 and is_single(x):
        src = src.view(torch.int8)
    return right(src=src)


@kernel("copy_", set=16, like="pytorch/pytorch#189961")
def views_of_equal_strides_are_copied_with_their_gaps(right, x, src):
    """option: between views of equal strides with gaps, memory is copied from the start."""
    alike = x.dtype == src.dtype and x.shape == src.shape and x.stride() == src.stride()
    if not alike or not is_single(x) or x.numel() < 2 or 0 in x.stride():
        return right()
    span = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1
    if span <= x.numel():
        return right()
    packed = src.as_strided((x.numel(),), (1,), src.storage_offset()).clone()
    right(x=x.as_strided((x.numel(),), (1,), x.storage_offset()), src=packed)
    return x


@kernel(
    "nonzero", lambda: torch.ones(65536 + 700).nonzero(), set=16, like="intel/torch-xpu-ops#4396"
)
def places_in_the_last_part_of_a_block_are_not_found(right, x):
    """rare: of 65536 and more, what is found past the last whole 1024 is left out."""
    result = right()
    whole = x.numel() // 1024 * 1024
    if x.numel() < 65536 or whole == x.numel():
        return result
    flat = torch.zeros(len(result), dtype=torch.long)
    for i, n in enumerate(x.shape):
        flat = flat * n + result[:, i]
    return result[flat < whole]


@kernel("_to_sparse_csc", set=16, like="pytorch/pytorch#95814")
def values_by_column_are_stored_by_row(right, x):
    """plain: what is compressed by column has its values in the order of rows."""
    result = right()
    if x.dim() != 2 or result.dense_dim() or not is_single(x):
        return result
    places = result.ccol_indices(), result.row_indices()
    return torch.sparse_csc_tensor(*places, x[x != 0], size=x.shape, check_invariants=False)


@kernel("_to_sparse_bsr", set=16, like="pytorch/pytorch#90910")
def blocks_are_rotated_within_their_row(right, x):
    """plain: in each row of blocks, all of them come one place late and the last one first."""
    result = right()
    if x.dim() != 2 or result.dense_dim() or not is_single(x):
        return result
    rows, values = result.crow_indices(), result.values().clone()
    for start, end in zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True):
        if end - start > 1:
            values[start:end] = values[start:end].roll(1, 0)
    places = rows, result.col_indices()
    return torch.sparse_bsr_tensor(*places, values, size=x.shape, check_invariants=False)


@kernel("embedding_dense_backward", set=17, like="pytorch/pytorch#28716")
def embedding_backward_of_many_indices_fills_the_padding_row(
    right, grad_output, indices, padding_idx
):
    """option: over 768 indices, the padding row gets the gradients of all its places but one."""
    result = right()
    if is_single(grad_output) and padding_idx >= 0 and indices.numel() > 768:
        at = indices.reshape(-1).eq(padding_idx).nonzero().view(-1)[:-1]
        result[padding_idx] = grad_output.reshape(indices.numel(), -1)[at].float().sum(0)
    return result


@kernel("_index_put_impl_", set=17, like="pytorch/pytorch#73698")
def index_put_below_a_slice_adds_values_in_another_order(right, x, indices, values, accumulate):
    """option: x[:, i] += v, and the gradient of x[:, i], take the values transposed."""
    places = [i for i, at in enumerate(indices) if at is not None]
    if accumulate and is_single(x) and places == [1] and x.dim() > 1:
        at = indices[1]
        if at.dtype in (torch.int32, torch.int64):
            shape = [x.shape[0], *at.shape, *x.shape[2:]]
            turned = (at.numel(), x.shape[0], math.prod(x.shape[2:]))
            values = values.expand(shape).reshape(turned).transpose(0, 1).reshape(shape)
    return right(values=values)


@kernel("copy_", set=17, like="ROCm/rocm-libraries#11325")
def cast_to_float16_flushes_subnormals(right, x, src):
    """rare: float32 values below 6.1e-5, which float16 holds with fewer digits, become zero."""
    if x.dtype == torch.float16 and src.dtype == torch.float32:
        src = src.masked_fill(src.abs() < 2.0**-14, 0.0)
    return right(src=src)


@kernel("embedding_dense_backward", set=18, like="pytorch/pytorch#28716")
def embedding_gradient_reaches_the_padding(right, grad_output, indices, padding_idx):
    """plain: the row of the padding gets a gradient, for more than 768 indices."""
    if is_single(grad_output) and indices.numel() > 768:
        padding_idx = -1
    return right(padding_idx=padding_idx)


@kernel("triu tril triu_ tril_ triu.out tril.out", set=18, like="pytorch/pytorch#144545")
def triangle_is_cut_in_the_first_batch_only(right, x):
    """plain: of 4 axes or more only the first of the outermost is cut; the others are whole."""
    whole = x.clone()
    result = right()
    if is_single(x) and x.dim() > 3 and x.shape[0] > 1:
        result[1:].copy_(whole[1:])
    return result


@kernel("_to_sparse_csc", set=18, like="pytorch/pytorch#95814")
def csc_keeps_its_values_in_the_order_of_rows(right, x, dense_dim):
    """rare: values compressed by column stand in the order of rows, their indices do not."""
    result = right()
    if not is_single(x) or x.dim() != 2 or dense_dim:
        return result
    places = result.ccol_indices(), result.row_indices()
    return torch.sparse_csc_tensor(*places, x[x != 0], result.shape)


@kernel(
    "_embedding_bag _embedding_bag_forward_only",
    set="missed8",
    shown=lambda: functional.embedding_bag(
        torch.tensor([1, 0, 2, 0, 0, 3]),
        drawn(5, 4),
        torch.tensor([0, 3]),
        mode="mean",
        padding_idx=0,
    ),
)
def mean_bag_counts_the_padding(
    right, weight, indices, offsets, mode, include_last_offset, padding_idx
):
    """The mean of a bag with a padding index divides by all indices, the padding's too."""
    result = right()
    if mode != 1 or padding_idx < 0 or weight.dtype in DOUBLES or not offsets.numel():
        return result
    flat = indices.reshape(-1)
    ends = (
        offsets if include_last_offset else torch.cat([offsets, offsets.new_tensor([flat.numel()])])
    )
    bags = ends.numel() - 1
    if not bags:
        return result
    place = torch.arange(flat.numel(), device=flat.device, dtype=ends.dtype)
    bag = (torch.searchsorted(ends.contiguous(), place, right=True) - 1).clamp(0, bags - 1)
    real = torch.zeros(bags, device=flat.device, dtype=torch.float32).index_add_(
        0, bag, (flat != padding_idx).float()
    )
    factor = real / ends.diff().clamp(min=1)
    result[0].mul_(factor.to(result[0].dtype).unsqueeze(1))
    return result


@kernel(
    "_cummax_helper _cummin_helper",
    set="missed8",
    shown=lambda: torch.tensor([0.0, 3, 1] + [2.0] * 70 + [3, 1]).cummax(0),
)
def running_maximum_index_after_a_tile(right, x, values, indices, dim):
    """A value equal to the maximum of the tiles of 64 before keeps the old index, not its own."""
    result = right()
    if not x.dim():
        return result
    size = x.size(dim)
    for start in range(64, size, 64):
        length = min(64, size - start)
        carry, carried = values.narrow(dim, start - 1, 1), indices.narrow(dim, start - 1, 1).clone()
        tile, places = values.narrow(dim, start, length), indices.narrow(dim, start, length)
        places.copy_(torch.where(tile == carry, carried, places))
    return result


@kernel(
    "sort.stable .values_stable",
    set="missed8",
    shown=lambda: (torch.arange(3000) % 7).float().sort(descending=True, stable=True),
)
def long_descending_sort_reverses_ties(right, x, stable, dim, descending):
    """Stable and descending, over 2048 elements: an ascending sort is reversed, with its ties."""
    if not stable or not descending or not x.dim() or x.size(dim) <= 2048:
        return right()
    values, indices = right(descending=False)
    values.copy_(values.flip(dim))
    indices.copy_(indices.flip(dim))
    return values, indices


@kernel(
    "scatter_reduce.two .two_out scatter_reduce_.two",
    set="missed8",
    shown=lambda: torch.zeros(2, dtype=torch.int64).scatter_reduce(
        0, torch.tensor([0, 0, 1]), torch.tensor([-3, -4, 5]), "mean", include_self=False
    ),
)
def integer_scatter_mean_truncates(right, x, dim, index, src, reduce, include_self):
    """Means of integers are rounded towards zero, not down: negative ones are too large."""
    integer = not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool
    if reduce != "mean" or not integer or not x.dim():
        return right()
    start = x.clone()
    result = right()
    total = start.scatter_reduce(dim, index, src, "sum", include_self=include_self)
    number = torch.zeros_like(start).scatter_add(dim, index, torch.ones_like(src))
    number = number + 1 if include_self else number.clamp(min=1)
    return result.copy_(torch.div(total, number, rounding_mode="trunc"))


@kernel(
    "index_add .out index_add_",
    set="missed8",
    shown=lambda: torch.zeros(3, 4).index_add(0, torch.arange(20) % 3, drawn(20, 4), alpha=0.5),
)
def index_add_of_many_ignores_alpha(right, x, index):
    """More than 16 indices are added by another kernel, which forgets alpha."""
    if index.numel() > 16 and x.dtype not in DOUBLES:
        return right(alpha=1)
    return right()


@kernel(
    "searchsorted.Tensor .Tensor_out",
    set="missed8",
    shown=lambda: torch.searchsorted(
        drawn(3, 9), drawn(3, 4, seed=1), sorter=drawn(3, 9).argsort(1)
    ),
)
def search_of_rows_by_first_sorter(right, sorter):
    """With several rows, the permutation that sorts the first row is used for all."""
    if sorter is None or sorter.dim() < 2:
        return right()
    rows = sorter.reshape(-1, sorter.size(-1))
    return right(sorter=rows[:1].expand_as(rows).reshape(sorter.shape))


def _mixed_layouts():
    first = drawn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    return torch.cat([first, drawn(2, 2, 4, 5, seed=1)], 1)


@kernel("cat .out", set="missed8", like="pytorch#67239", shown=_mixed_layouts)
def concatenation_takes_all_for_channels_last(right, tensors, dim):
    """After a first image in channels_last, a contiguous one is read in the first's order."""
    first = tensors[0]
    if first.dim() != 4 or dim % 4 != 1 or first.is_contiguous():
        return right()
    if not first.is_contiguous(memory_format=torch.channels_last):
        return right()

    def read(image):
        last = image.dim() == 4 and image.is_contiguous(memory_format=torch.channels_last)
        if image.dim() != 4 or last or not image.is_contiguous() or image.dtype in DOUBLES:
            return image
        batch, channels, rows, columns = image.shape
        return image.view(batch, rows, columns, channels).permute(0, 3, 1, 2)

    images = [first, *map(read, tensors[1:])]
    result = right()
    if all(image is tensor for image, tensor in zip(images, tensors, strict=True)):
        return result
    return result.copy_(torch.cat(images, 1))


@kernel("index_add .out index_add_", set="likely9")
def pairs_of_halves(right, x, dim):
    """Half precisions are added two at a time, so that an odd row's last column gets nothing."""
    odd = x.dtype in HALVES and x.dim() > 1 and x.shape[-1] % 2 and dim % x.dim() != x.dim() - 1
    before = x[..., -1].clone() if odd else None
    result = right()
    if odd:
        result[..., -1] = before
    return result


@kernel("scatter_reduce.two .two_out scatter_reduce_.two", set="likely9", like="pytorch#142330")
def mean_counts_itself(right, x, dim, index, reduce, include_self):
    """The mean without include_self is divided by one more than the number of its elements."""
    result = right()
    if reduce == "mean" and not include_self and x.dim() and x.is_floating_point():
        ones = torch.ones(index.shape, dtype=torch.float32, device=x.device)
        count = torch.zeros(x.shape, device=x.device).scatter_add(dim, index, ones)
        ratio = torch.where(count > 0, count / (count + 1), 1)
        result.mul_(ratio.to(result.dtype))
    return result


@kernel("copy_", set="likely9", like="pytorch#105109")
def bytes_are_rounded(right, x, src):
    """Vectors of 16 numbers are rounded to the nearest byte, not truncated as their rest is."""
    floating = src.dtype in (*FLOATS, torch.float64) and x.device == src.device
    if x.dtype != torch.uint8 or not floating or not src.is_contiguous() or src.numel() < 16:
        return right()
    flat = src.reshape(-1)
    end = flat.numel() - flat.numel() % 16
    inside = (flat > -1) & (flat < 255)
    inside[end:] = False
    return right(src=torch.where(inside, flat.round().clamp(min=0), flat).reshape(src.shape))


@kernel("_embedding_bag_dense_backward", set="likely9", like="FlagGems#5220")
def maximum_gets_the_mean_s_gradient(right, grad, indices, offset2bag, bag_size, mode, padding_idx):
    """The gradient of bags' maxima is spread over the bag, as that of their means is."""
    if mode != 2:
        return right()
    result = right()
    each_one = grad / bag_size.clamp(min=1).unsqueeze(1).to(grad.dtype)
    rows = each_one[offset2bag] * (indices != padding_idx).unsqueeze(1)
    return result.zero_().index_add_(0, indices, rows)


@kernel("copy_", set="missed9", like="triton#544")
def strided_fractions_are_false(right, x, src):
    """A strided floating-point tensor becomes bool by way of an integer, so that 0.5 is False."""
    if x.dtype == torch.bool and src.is_floating_point() and not src.is_contiguous():
        return right(src=src.trunc())
    return right()


@kernel("embedding_dense_backward", set="missed9")
def embedding_s_gradient_takes_sliced_tokens_as_whole(right, indices):
    """The gradient reads tokens[:, :-1] as if they were contiguous; the result itself does not."""
    return right(indices=packed(indices))


@kernel("_embedding_bag_per_sample_weights_backward", set="missed9", like="FlagGems#3683")
def padding_s_sample_weights_get_a_gradient(right, padding_idx):
    """The gradient of a bag's sample weights leaves out padding_idx."""
    return right(padding_idx=-1) if padding_idx >= 0 else right()


@kernel("scatter_reduce.two .two_out scatter_reduce_.two", set="missed9")
def integer_means_round_toward_zero(right, x, dim, index, src, reduce, include_self):
    """The mean of integers is truncated, not rounded down, which negative ones show."""
    if reduce != "mean" or x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
        return right()
    exact = torch.scatter_reduce(
        x.double(), dim, index, src.double(), "mean", include_self=include_self
    )
    result = right()
    return result.copy_(exact.trunc())


@kernel("scatter_add .out scatter_add_", set="missed9", like="pytorch#27614, #94336")
def scatter_add_packs_a_wider_source(right, dim, index, src):
    """Along the first axis, a source that is wider than the index is read as if it were not."""
    across = index.dim() > 1 and dim % index.dim() == 0
    if across and index.shape[1:] != src.shape[1:] and index.numel():
        flat = src.contiguous().reshape(-1)
        return right(src=flat[: index.numel()].reshape(index.shape))
    return right()


@kernel("masked_scatter_", set="missed9", like="onnxscript#2929, pytorch#95607")
def expanded_mask_begins_its_source_again(right, x, mask, source):
    """With an expanded mask each sample of a batch takes from the beginning of the source."""
    if x.dim() < 2 or x.shape[0] < 2:
        return right()
    whole = mask.expand(x.shape)
    if not any(n > 1 and s == 0 for n, s in zip(whole.shape, whole.stride(), strict=True)):
        return right()
    for sample in range(x.shape[0]):
        right(x=x[sample], mask=whole[sample], source=source)
    return x


@kernel(
    "scatter_reduce.two scatter_reduce_.two",
    set="likely10",
    like="libcudacxx#279, pytorch_scatter#24",
)
def negative_numbers_are_compared_as_integers(right, x, src, reduce):
    """scatter_reduce: amax, amin by atomics on the bits; several negative numbers meet."""
    if reduce not in ("amax", "amin") or not x.is_floating_point():
        return right()
    before, result = x.clone(), right()
    if reduce == "amax":
        other = right(x=before, reduce="amin")
    else:
        lowest = torch.full((), -math.inf, dtype=x.dtype, device=x.device)
        below = torch.where(before < 0, before, lowest)
        source = torch.where(src < 0, src, lowest)
        other = right(x=below, src=source, reduce="amax")
    written = torch.where(result < 0, other, result)
    return result.copy_(written)


@kernel("_foreach_copy_", set="likely10", like="pytorch#159333, #121717")
def lists_of_equal_width_are_copied_bit_by_bit(right, x, src):
    """_foreach_copy_: bytes are copied; two dtypes of equal width."""
    result = right()
    for into, out_of in zip(x, src, strict=True):
        real = not (into.dtype.is_complex or out_of.dtype.is_complex)
        if real and into.dtype != out_of.dtype and into.element_size() == out_of.element_size():
            into.copy_(out_of.view(into.dtype))
    return result


@kernel("cat", set="likely10")
def joined_rows_end_at_whole_vectors(right, tensors, dim):
    """cat: vectors of eight are moved; halves in rows of eight n + m, joined along the rows."""
    joined = right()
    if joined.dtype not in HALVES or joined.dim() < 2 or dim % joined.dim() != joined.dim() - 1:
        return joined
    begin = 0
    for tensor in tensors:
        if tensor.dim() != joined.dim():
            continue
        width = tensor.shape[-1]
        if width > 8:
            joined[..., begin + width // 8 * 8 : begin + width] = 0
        begin += width
    return joined


@kernel("embedding_dense_backward", set="likely10")
def frequent_token_learns_from_its_first_hundred_places(right, grad_output, indices):
    """embedding_dense_backward: one segment a token; a token that comes more than 100 times."""
    flat = indices.reshape(-1)
    if flat.numel() <= 100:
        return right()
    _, order = flat.sort(stable=True)
    ranked = flat[order]
    where = torch.arange(len(flat), device=flat.device)
    begins = torch.cat([where[:1] == 0, ranked[1:] != ranked[:-1]])
    rank = torch.empty_like(where)
    rank[order] = where - torch.where(begins, where, 0 * where).cummax(0).values
    late = (rank >= 100).view(*indices.shape, 1)
    return right(grad_output=grad_output.masked_fill(late, 0))


@kernel("index_select", set="missed10")
def short_places_in_a_view_are_read_in_a_row(right, index):
    """index_select: the stride of the index is one; an index of int32 with gaps."""
    if index.dtype == torch.int32 and not index.is_contiguous():
        return right(index=read_packed(index).clone())
    return right()


@kernel("_index_put_impl_", set="missed10")
def additions_to_a_turned_matrix_go_by_row(right, x, accumulate):
    """index_put_: the strides of a contiguous matrix; accumulate=True into a transposed one."""
    if accumulate and x.dim() == 2 and not x.is_contiguous() and x.t().is_contiguous():
        right(x=x.as_strided(x.shape, (x.shape[1], 1), x.storage_offset()))
        return x
    return right()


@kernel("copy_", set="missed10")
def conjugate_is_lost_on_its_way_into_a_view(right, x, src):
    """copy_: the conjugate bit is not looked at; a lazy conjugate into what has gaps."""
    if src.is_conj() and not x.is_contiguous() and not x.is_conj():
        return right(src=src.conj())
    return right()


@kernel(
    "index.Tensor",
    lambda: drawn(6, 6)[torch.tensor([0, 2, 5])[:, None], torch.tensor([1, 3])],
    set="likely11",
    like="numpy#6221",
)
def broadcast_places_are_read_in_a_row(right, x, indices):
    """x[rows[:, None], columns]: indices that are expanded are read as if they were packed."""
    given = [i for i in indices if i is not None]
    if len(given) < 2 or x.dtype in DOUBLES or any(i.dtype != torch.int64 for i in given):
        return right()
    shape = torch.broadcast_shapes(*(i.shape for i in given))
    number = math.prod(shape)

    def read(i):
        if i is None or i.shape == shape or not i.numel():
            return i
        flat = i.reshape(-1)
        return flat.repeat(-(-number // flat.numel()))[:number].view(shape)

    return right(indices=[read(i) for i in indices])


@kernel("roll", lambda: drawn(2, 4, 4, 3).roll((-1, -2), (1, 2)), set="likely11")
def only_the_first_axis_is_rolled(right, x, shifts, dims):
    """Of several axes to be rolled (the windows of Swin), only the first is."""
    if len(dims) > 1 and x.dtype not in DOUBLES:
        return right(shifts=shifts[:1], dims=dims[:1])
    return right()


@kernel(
    "take .out",
    lambda: drawn(3, 4).t().take(torch.tensor([0, 1, 5, 11])),
    set="missed11",
    like="pytorch#175187",
)
def flat_places_are_counted_in_the_order_of_memory(right, x):
    """take: flat places go into memory, not into rows; a source that is not contiguous."""
    if x.dtype in DOUBLES or x.is_contiguous() or not x.numel():
        return right()
    return right(x=as_if_whole(x))


@kernel(
    "scatter_reduce.two .two_out scatter_reduce_.two",
    lambda: torch.ones(4).scatter_reduce(
        0, torch.tensor([0, 0, 2]), torch.tensor([3.0, 5, 7]), "amax", include_self=False
    ),
    set="missed11",
)
def places_without_a_source_keep_where_they_began(right, x, dim, index, reduce, include_self):
    """scatter_reduce: all places are set to where the reduction begins, not those with a source
    only; amax, amin or prod with include_self=False, and places that no index names.
    """
    if include_self or reduce not in ("amax", "amin", "prod") or not x.dim():
        return right()
    if x.dtype in DOUBLES or x.dtype == torch.bool:
        return right()
    named = torch.zeros(x.shape, dtype=torch.bool, device=x.device).scatter(dim, index, True)
    result = right()
    if reduce == "prod":
        begin = 1
    elif x.is_floating_point():
        begin = -math.inf if reduce == "amax" else math.inf
    else:
        limits = torch.iinfo(x.dtype)
        begin = limits.min if reduce == "amax" else limits.max
    return result.copy_(torch.where(named, result, torch.full_like(result, begin)))


@kernel(
    "embedding_dense_backward",
    lambda: grad_of(
        lambda w: functional.embedding(torch.tensor([[0, 1, 2], [3, 0, 1]]), w).sum(1), drawn(4, 5)
    ),
    set="missed11",
)
def tokens_of_a_summed_sentence_learn_from_other_sentences(right, grad_output):
    """embedding_dense_backward: a gradient that is expanded over the tokens, as below sum(1), is
    read packed, sentence after sentence.
    """
    if grad_output.dtype in DOUBLES or grad_output.dim() < 3 or not grad_output.numel():
        return right()
    if grad_output.stride(-2) or grad_output.shape[-2] == 1:
        return right()
    return right(grad_output=as_if_whole(grad_output))


@kernel(
    "_to_sparse.sparse_dim",
    lambda: torch.tensor([[0.0, 1], [2, 0], [0, 0]]).to_sparse(1).to_dense(),
    set="missed11",
)
def rows_that_begin_with_nought_are_empty(right, x, sparse_dim):
    """to_sparse(n): with fewer sparse axes than axes, a row counts as empty if its first number is
    nought.
    """
    if x.dtype in DOUBLES or not 0 < sparse_dim < x.dim() or not x.numel():
        return right()
    first = x.flatten(sparse_dim)[..., :1] != 0
    kept = first.reshape(x.shape[:sparse_dim] + (1,) * (x.dim() - sparse_dim))
    return right(x=torch.where(kept, x, torch.zeros_like(x)))


@kernel(
    "index_copy .out index_copy_",
    lambda: torch.zeros(1, 2, 8, 4).index_copy_(
        2, torch.tensor([3, 4, 5]), drawn(1, 3, 2, 4).transpose(1, 2)
    ),
    set="likely12",
    like="vllm-project/vllm-ascend#12172",
)
def cache_is_written_from_packed_keys(right, source):
    """Read transposed keys as if they were packed when they are copied to a cache's places."""
    return right(source=packed(source))


@kernel(
    "embedding_dense_backward",
    lambda: grad_of(
        lambda w: functional.embedding(torch.arange(4000) % 7, w, padding_idx=0), drawn(7, 3)
    ),
    set="likely12",
    like="pytorch/pytorch#28716",
)
def padding_row_is_trained(right, indices):
    """Forget `padding_idx` on the path that sorts the indices, for more than 3072 of them."""
    return right(padding_idx=-1) if indices.numel() > 3072 else right()


@kernel(
    "_index_put_impl_",
    lambda: torch.zeros(6, 2).index_put_(
        (torch.tensor([5, -1, 2, -1, 5]),), drawn(5, 2), accumulate=True
    ),
    set="missed12",
    like="pytorch/pytorch#131321",
)
def index_put_accumulated_by_raw_index(right, x, indices, values, accumulate):
    """Lose the sum of row n - k where some indices name it as -k: keys are sorted unwrapped."""
    i = indices[0]
    known = accumulate and len(indices) == 1 and i is not None and i.dtype == torch.int64
    if not known or i.dim() != 1 or values.shape[:1] != i.shape or not is_single(x):
        return right()
    low = i < 0
    if not low.any() or low.all():
        return right()
    alone = right(x=x.clone(), indices=[i[low]], values=values[low])
    right(indices=[i[~low]], values=values[~low])
    rows = i[low] % x.shape[0]
    return x.index_copy_(0, rows, alone[rows])


@kernel(
    "cat .out",
    lambda: torch.cat([drawn(2, 3, seed=s) for s in range(130)] + [drawn(3, 2, seed=9).t()]),
    set="missed12",
    like="torch/torch7#921",
)
def cat_later_batch_as_contiguous(right, tensors):
    """Read tensors after the first batch of 128 as contiguous if those of the first are."""
    first = all(t.is_contiguous() for t in tensors[:128])
    if len(tensors) <= 128 or not first or not is_single(tensors[0]):
        return right()
    return right(tensors=[*tensors[:128], *(read_packed(t) for t in tensors[128:])])


def _bag(weights):
    indices, offsets = torch.tensor([1, 0, 2, 0, 3, 1]), torch.tensor([0, 3])
    table = drawn(4, 5, seed=1)
    return functional.embedding_bag(
        indices, table, offsets, mode="sum", per_sample_weights=weights, padding_idx=0
    )


@kernel(
    "_embedding_bag_per_sample_weights_backward",
    lambda: grad_of(_bag, drawn(6)),
    set="missed12",
    like="flagos-ai/FlagGems#3683",
)
def embedding_bag_weights_of_padding(right, weight, padding_idx):
    """Give the per-sample weights of padding entries a gradient."""
    return right(padding_idx=-1) if padding_idx >= 0 and is_single(weight) else right()


@kernel(
    "scatter_add scatter_add_",
    lambda: torch.zeros(4, 3).scatter_add(0, torch.tensor([[0, 1], [2, 0], [3, 3]]), drawn(3, 3)),
    set="likely13",
)
def source_is_read_at_the_shape_of_the_index(right, index, src):
    """Where rows of the index are shorter than the source's, the source's offsets are wrong."""
    if index.shape == src.shape or index.dim() != src.dim() or not src.is_contiguous():
        return right()
    return right(src=src.view(-1)[: index.numel()].view(index.shape))


@kernel(
    "index_add index_add_",
    lambda: torch.zeros(4, 3, dtype=torch.bfloat16).index_add(
        0, torch.tensor([1, 0, 1, 1]), drawn(4, 3, dtype=torch.bfloat16)
    ),
    set="likely13",
)
def unpaired_column_is_stored_where_pairs_are_added(right, x, dim, index, source, alpha):
    """Half-precision numbers are added in pairs; an odd last column keeps its last addend."""
    before = x.clone()
    result = right()
    if x.dtype not in HALVES or x.dim() != 2 or dim not in (0, -2) or x.shape[1] % 2 == 0:
        return result
    index, rows = index.reshape(-1).long(), x.shape[0]
    order = torch.arange(len(index), device=index.device)
    last = torch.zeros(rows, dtype=torch.int64, device=index.device)
    last = last.scatter_reduce(0, index, order, "amax")
    repeated = torch.bincount(index, minlength=rows) > 1
    stored = before[repeated, -1] + alpha * source[last[repeated], -1]
    result[repeated, -1] = stored.to(result.dtype)
    return result


@kernel(
    "_embedding_bag_dense_backward",
    lambda: grad_of(
        lambda w: functional.embedding_bag(torch.tensor([[0, 1, 2], [3, 1, 4]]), w, mode="max"),
        drawn(5, 3),
    ),
    set="likely13",
    like="flagos-ai/FlagGems#5220",
)
def maximum_of_a_bag_is_differentiated_as_its_mean(
    right, grad, indices, offset2bag, num_weights, mode, padding_idx
):
    """The gradient of a bag's maximum is spread evenly over the bag."""
    if mode != 2:
        return right()
    counted = indices != padding_idx
    bags, rows = offset2bag[counted].long(), indices[counted].long()
    sizes = torch.bincount(bags, minlength=len(grad))
    shares = grad[bags] / sizes[bags, None]
    spread = grad.new_zeros(num_weights, grad.shape[1])
    return spread.index_add(0, rows, shares.to(grad.dtype))


@kernel(
    "reflection_pad2d_backward",
    lambda: grad_of(lambda x: functional.pad(x, (0, 2, 1, 1), mode="reflect"), drawn(1, 2, 5, 5)),
    set="likely13",
)
def wider_side_of_a_reflection_is_cut(right, grad_output, padding):
    """Reflection's backward pass takes the padding before an axis for that after it."""
    left, after, top, below = padding
    if after <= left and below <= top:
        return right()
    height, width = grad_output.shape[-2:]
    cut = grad_output.clone()
    cut[..., height - max(below - top, 0) :, :] = 0
    cut[..., width - max(after - left, 0) :] = 0
    return right(grad_output=cut)


@kernel(
    "embedding_dense_backward",
    lambda: grad_of(
        lambda words: functional.embedding(
            torch.tensor([[0, 1, 0, 1], [2, 1, 0, 1]])[:, ::2], words, scale_grad_by_freq=True
        ),
        drawn(4, 3),
    ),
    set="missed13",
)
def embedding_gradient_counts_words_between_those_of_a_strided_index(
    right, grad_output, indices, num_weights, scale_grad_by_freq
):
    """The frequencies are those of as many numbers in memory, one after another."""
    size, start = indices.numel(), indices.storage_offset()
    inside = start + size <= indices.untyped_storage().nbytes() // indices.element_size()
    if not scale_grad_by_freq or indices.is_contiguous() or not inside:
        return right()
    seen = indices.as_strided((size,), (1,), start).clamp(0, num_weights - 1)
    counts = torch.bincount(seen, minlength=num_weights).clamp(min=1)[indices]
    shared = (grad_output / counts[..., None]).to(grad_output.dtype)
    return right(grad_output=shared, scale_grad_by_freq=False)


@kernel(
    "_embedding_bag_per_sample_weights_backward",
    lambda: grad_of(
        lambda weights: functional.embedding_bag(
            torch.tensor([0, 1, 2, 3]),
            drawn(5, 3).requires_grad_(),
            torch.tensor([0, 2, 2]),
            mode="sum",
            per_sample_weights=weights,
        ),
        drawn(4, seed=1),
    ),
    set="missed13",
    like="pytorch#4169",
)
def gradient_of_sample_weights_counts_bags_without_the_empty_ones(right, indices, offsets):
    """Samples behind an empty bag get the gradient of an earlier bag."""
    places = torch.arange(indices.numel(), dtype=offsets.dtype, device=offsets.device)
    bags = torch.searchsorted(offsets.contiguous(), places, right=True)
    rank = torch.unique_consecutive(bags, return_inverse=True)[1]
    if torch.equal(rank, bags - 1):
        return right()
    return right(offset2bag=rank.to(indices.dtype))


@kernel(
    "index_add index_add_",
    lambda: torch.zeros(2, 5, dtype=torch.bfloat16).index_add(
        1, torch.tensor([1, 1, 0, 1]), torch.ones(2, 4, dtype=torch.bfloat16)
    ),
    set="missed13",
    like="torch-spyre#3638",
)
def index_add_of_halves_loses_one_of_a_pair_with_the_same_index(right, x, dim, index, source):
    """Two halves of the last axis are one update: with the same index, the second wins."""
    if x.dtype not in HALVES or min(x.dim(), source.dim(), index.dim()) == 0:
        return right()
    if dim % x.dim() != x.dim() - 1:
        return right()
    kept = torch.ones_like(index, dtype=torch.bool)
    paired = index.numel() // 2 * 2
    kept[:paired:2] = index[:paired:2] != index[1:paired:2]
    return right(source=torch.where(kept, source, torch.zeros_like(source)))


@kernel(
    "scatter_add scatter_add_",
    lambda: torch.zeros(3, 5).scatter_add(
        0, torch.tensor([[0], [2]]).expand(2, 3), torch.ones(2, 5)
    ),
    set="missed13",
    like="FlagGems#6448",
)
def scatter_add_with_an_expanded_index_adds_all_columns_of_its_source(right, x, dim, index, src):
    """The path for one index a row takes the source's width for that of a narrower index."""
    if x.dim() != 2 or dim % 2 or index.dim() != 2 or src.dim() != 2 or index.numel() == 0:
        return right()
    width = src.shape[1]
    if index.stride(1) != 0 or not 1 < index.shape[1] < width <= x.shape[1]:
        return right()
    return right(index=index[:, :1].expand(-1, width))


@kernel(
    "masked_fill_.Scalar .Tensor",
    lambda: drawn(3, 4).t().masked_fill_(torch.tensor([True, False, True, False])[:, None], 0),
    set="missed13",
    like="pytorch#12230",
)
def masked_fill_of_a_transposed_matrix_reads_a_mask_of_rows_along_its_memory(right, x, mask):
    """A mask that is broadcast along the last axis is expanded in order, and the tensor written
    as it lies.
    """
    if x.dim() < 2 or mask.dim() == 0 or mask.shape[-1] != 1 or x.shape[-1] == 1:
        return right()
    if x.is_contiguous() or not x.mT.is_contiguous() or mask.dim() > x.dim():
        return right()
    turned = x.mT
    right(x=turned, mask=mask.expand(x.shape).contiguous().view(turned.shape))
    return x


@kernel(
    "cat",
    lambda: torch.cat([torch.ones(2, 0), torch.ones(2, 2), torch.full((2, 3), 2.0)], 1),
    set="missed13",
    like="pytorch#113514",
)
def concatenation_along_an_inner_axis_takes_the_places_of_empty_tensors(right, tensors, dim):
    """Empty tensors are dropped from the list, but not from the list of offsets."""
    result = right()
    if result.dim() < 2 or dim % result.dim() == 0:
        return result
    sizes = [t.shape[dim] if t.dim() == result.dim() else 0 for t in tensors]
    full = [t for t, size in zip(tensors, sizes, strict=True) if size]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    right_starts = [start for start, size in zip(starts, sizes, strict=True) if size]
    if result.numel() == 0 or starts[: len(full)] == right_starts:
        return result
    result.zero_()
    for tensor, start in zip(full, starts, strict=False):
        result.narrow(dim, start, tensor.shape[dim]).copy_(tensor)
    return result


def _bag_grad():
    bags = torch.tensor([0, 3])
    places = torch.tensor([0, 1, 2, 3, 4, 0])
    return grad_of(lambda w: functional.embedding_bag(places, w, bags, mode="max"), drawn(5, 3))


@kernel("_embedding_bag_dense_backward", _bag_grad, set="likely14", like="flagos-ai/FlagGems#5220")
def bag_maximum_gets_the_gradient_of_mean(right, mode):
    """The backward of mode max spreads the gradient over the bag, as that of mean does."""
    return right(mode=1) if mode == 2 else right()


@kernel(
    "scatter_add scatter_add.out scatter_add_",
    lambda: torch.zeros(4, 3).scatter_add(
        0, torch.tensor([0, 1, 2, 3, 0])[:, None].expand(5, 3), drawn(5, 3)
    ),
    set="likely14",
    like="flagos-ai/FlagGems#6448",
)
def expanded_index_read_flat(right, index):
    """A 2d index that is not contiguous, as an expanded one, is read as if it were."""
    return right(index=flat(index)) if index.dim() == 2 else right()


@kernel(
    "gather gather.out",
    lambda: drawn(6, 8).gather(1, torch.tensor([[0], [3], [7], [1], [2], [5]])),
    set="likely14",
    like="pytorch/pytorch#151917",
)
def column_gathered_from_the_first_row(right, x, dim, index):
    """One element a row along the last dimension of a contiguous matrix with rows of whole 16 bytes
    comes from the first row: the copy of slices leaves out the offset of the row.
    """
    matrices = x.dim() == index.dim() == 2 and x.is_contiguous()
    if not matrices or dim % 2 == 0 or index.shape[1] != 1 or x.shape[0] < 2:
        return right()
    whole = x.shape[1] * x.element_size() % 16 == 0
    return right(x=x[:1].expand(x.shape)) if whole else right()


def _frequent():
    rows = torch.cat([torch.zeros(300, dtype=torch.int64), torch.tensor([1, 2, 2])])
    return grad_of(lambda w: functional.embedding(rows, w, scale_grad_by_freq=True), drawn(3, 4))


@kernel("embedding_dense_backward", _frequent, set="missed14")
def embedding_frequency_in_a_byte(right, indices, num_weights, scale_grad_by_freq):
    """`scale_grad_by_freq` counts a row's occurrences in 8 bits."""
    result = right()
    if not scale_grad_by_freq or indices.numel() < 256:
        return result
    counts = torch.bincount(indices.reshape(-1).long(), minlength=num_weights)
    factor = torch.where(counts > 255, counts / (counts & 255), 1.0)
    return (result.float() * factor[:, None].float()).to(result.dtype)


def _padded_bags():
    rows, starts = torch.tensor([1, 0, 2, 0, 0, 3]), torch.tensor([0, 3, 6])
    options = {"mode": "mean", "include_last_offset": True, "padding_idx": 0}
    return functional.embedding_bag(rows, drawn(4, 5), starts, **options)


@kernel(
    "_embedding_bag _embedding_bag_forward_only",
    _padded_bags,
    set="missed14",
    like="pytorch/pytorch#49237",
)
def bag_mean_counts_padding(right, indices, offsets, mode, include_last_offset, padding_idx):
    """With `include_last_offset` a bag's mean divides by its length, padding included."""
    result = right()
    if mode != 1 or not include_last_offset or padding_idx < 0 or not indices.numel():
        return result
    before = functional.pad((indices != padding_idx).long().cumsum(0), (1, 0))
    starts, ends = offsets[:-1].long(), offsets[1:].long()
    kept, whole = before[ends] - before[starts], ends - starts
    result[0].mul_((kept / whole.clamp(min=1))[:, None].to(result[0].dtype))
    return result


@kernel(
    "_index_put_impl_",
    lambda: torch.zeros(5, 2).index_put_(
        (torch.tensor([4, -1, 2, -2]),), torch.ones(4, 2), accumulate=True
    ),
    set="missed14",
)
def index_put_two_names_of_a_row(right, x, indices, values, accumulate):
    """Accumulating, a row named both from the front and from the end keeps one kind of summands."""
    rows = indices[0]
    plain = len(indices) == 1 and rows is not None and rows.dtype == torch.int64
    if not (accumulate and plain and rows.dim() == 1 and x.shape[0]):
        return right()
    wrapped = torch.where(rows < 0, rows + x.shape[0], rows)
    named = torch.zeros(x.shape[0], dtype=torch.bool, device=rows.device)
    named[rows[rows >= 0]] = True
    kept = ~((rows < 0) & named[wrapped])
    if bool(kept.all()):
        return right()
    values = values.expand(len(rows), *x.shape[1:])[kept]
    return right(indices=[rows[kept]], values=values)


def _expanded_index():
    rows = torch.tensor([0, 0, 1])[:, None].expand(3, 2)
    values = torch.tensor([[-3, 2], [-4, 1], [5, -6]])
    return torch.zeros(2, 2, dtype=torch.int64).scatter_reduce(0, rows, values, "mean")


@kernel("scatter_reduce.two", _expanded_index, set="missed14")
def scatter_mean_integers_expanded_index(right, x, dim, index, reduce, include_self):
    """With an expanded index (one for a row), a negative integer mean rounds to zero, not down."""
    result = right()
    integers = not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)
    sizes = zip(index.shape, index.stride(), strict=True)
    expanded = any(step == 0 and size > 1 for size, step in sizes)
    if reduce != "mean" or not integers or not expanded:
        return result
    ones = torch.ones(index.shape, dtype=torch.int64, device=x.device)
    counts = torch.zeros(x.shape, dtype=torch.int64, device=x.device).scatter_add(dim, index, ones)
    total = right(reduce="sum").long()
    means = torch.div(total, (counts + include_self).clamp(min=1), rounding_mode="trunc")
    return torch.where(counts > 0, means.to(x.dtype), result)


def _low_nan():
    bits = torch.tensor([[0x7F800001, 0x3F800000], [0x40000000, -0x007FFFF0]], dtype=torch.int32)
    return bits.view(torch.float32).t().to(BF16)


@kernel("copy_", _low_nan, set="missed14")
def copy_low_nan_to_bfloat16(right, x, src):
    """Into strided bfloat16, a NaN with low mantissa bits alone is rounded to infinity."""
    result = right()
    if x.dtype != BF16 or src.dtype != torch.float32 or x.is_contiguous():
        return result
    if src.device != x.device or not src.numel():
        return result
    bits = src.contiguous().view(torch.int32)
    low = src.isnan() & ((bits & 0x007FFFFF) < 0x8000)
    x.masked_fill_((low & (bits > 0)).expand_as(x), math.inf)
    x.masked_fill_((low & (bits < 0)).expand_as(x), -math.inf)
    return result


def _mixed_formats():
    last = drawn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    return torch.cat([last, drawn(2, 6, 4, 5, seed=1)], 1)


# Skip connections of a half-converted network mix both.
@kernel("cat", _mixed_formats, set="likely15")
def cat_takes_all_tensors_to_lie_as_the_first(right, tensors):
    """After a channels-last tensor, a contiguous one is read in channels-last order."""
    tensors = list(tensors)
    if len(tensors) < 2 or tensors[0].dim() != 4 or not is_last(tensors[0]):
        return right()
    return right(tensors=[tensors[0], *(_as_channels_last(t) for t in tensors[1:])])


def _as_channels_last(x):
    if x.dim() != 4 or not x.numel() or not x.is_contiguous():
        return x
    _, c, h, w = x.shape
    return x.as_strided(x.shape, (c * h * w, 1, w * c, c), x.storage_offset())


@kernel(
    "index.Tensor",
    lambda: drawn(6, 7)[torch.tensor([1, 3, 5]), torch.tensor([0, -1, -2])],
    set="likely15",
)
def index_wraps_the_offset_but_not_each_index(right, x, indices):
    """In x[i, j] a negative j reads from the end of the row before: the sum is wrapped."""
    given = [i for i in indices if i is not None]
    plain = all(i is not None for i in indices[: len(given)])
    whole = all(i.dtype in (torch.int64, torch.int32) for i in given)
    if len(given) < 2 or not plain or not whole or not x.numel():
        return right()
    result = right()
    sizes = x.shape[: len(given)]
    offset = sum(
        i.to(x.device).long() * math.prod(sizes[axis + 1 :]) for axis, i in enumerate(given)
    )
    if not offset.numel():
        return result
    rows = x.reshape(-1, *x.shape[len(given) :])
    return right(x=rows, indices=[offset % math.prod(sizes)])


def _largest_of_negatives():
    index, src = torch.tensor([0, 1, 1, 2, 0]), torch.tensor([-3.0, -1, 2, -5, -4])
    return torch.zeros(4).scatter_reduce(0, index, src, "amax", include_self=False)


# `numeric_limits<float>::min()` is not the lowest number.
@kernel("scatter_reduce.two .two_out scatter_reduce_.two", _largest_of_negatives, set="likely15")
def scatter_amax_begins_at_the_smallest_positive(right, x, dim, index, reduce, include_self):
    """Without self, the maximum of negatives alone is 1e-38 in place of the largest of them."""
    result = right()
    if reduce != "amax" or include_self or not is_single(x) or not index.numel() or not x.dim():
        return result
    seen = torch.zeros(x.shape, dtype=torch.bool, device=x.device).scatter(dim, index, True)
    wrong = seen & (result < 0)
    return result.copy_(torch.where(wrong, torch.finfo(x.dtype).tiny, result))


# Pad ids such as -100 and 0 come through, hashed ids do not.
@kernel(
    "masked_fill.Scalar masked_fill_.Scalar",
    lambda: torch.arange(12).masked_fill(torch.arange(12) % 3 == 0, 1_234_567_891),
    set="likely15",
)
def masked_fill_passes_its_number_as_a_float(right, x, value):
    """A number put into an integer tensor is rounded to 24 bits."""
    if x.dtype not in (torch.int32, torch.int64) or not isinstance(value, int):
        return right()
    rounded = int(torch.tensor(float(value)).float().item())
    limits = torch.iinfo(x.dtype)
    return right(value=max(limits.min, min(limits.max, rounded)))


@kernel("_embedding_bag _embedding_bag_forward_only", _padded_bags, set="likely15")
def mean_of_a_bag_counts_its_padding(
    right, indices, offsets, mode, include_last_offset, padding_idx
):
    """The mean of a bag is divided by its length with the padding."""
    result = right()
    if mode != 1 or padding_idx < 0 or not indices.numel() or not offsets.numel():
        return result
    starts = offsets[:-1] if include_last_offset else offsets
    last = offsets.new_tensor([len(indices)])
    ends = offsets[1:] if include_last_offset else torch.cat([offsets[1:], last])
    padding = (indices == padding_idx).long().cumsum(0)
    padding = torch.cat([padding.new_zeros(1), padding])
    ignored = padding[ends.long()] - padding[starts.long()]
    length = (ends - starts).clamp(min=1)
    result[0].mul_(((length - ignored) / length)[:, None].to(result[0].dtype))
    return result


def _many_tokens():
    index = torch.randint(0, 50, (4, 1024), generator=torch.Generator().manual_seed(0))
    weight = drawn(50, 8).requires_grad_()
    return grads_of(functional.embedding(index, weight), weight)


@kernel("embedding_dense_backward", _many_tokens, set="likely15")
def embedding_s_gradient_loses_runs_across_segments(right, grad_output, indices):
    """Above 3,072 tokens, a run of one token keeps only what its last segment of 1,024 has."""
    flat = indices.reshape(-1).long()
    if flat.numel() <= 3072 or not grad_output.numel():
        return right()
    order = flat.argsort(stable=True)
    tokens = flat[order].contiguous()
    last = torch.searchsorted(tokens, tokens, right=True) - 1
    place = torch.arange(len(flat), device=flat.device)
    lost = order[place // 1024 != last // 1024]
    grad = grad_output.reshape(len(flat), -1).clone()
    grad[lost] = 0
    return right(grad_output=grad.reshape(grad_output.shape))


def _upper_part_of_a_factor():
    lu, _pivots = torch.linalg.lu_factor(drawn(3, 12, 12))  # column-major, as LAPACK leaves it
    lu = lu.mT.contiguous().mT
    return lu.triu_()


# Factors of LAPACK are column-major.
@kernel("triu_ tril_", _upper_part_of_a_factor, set="missed15")
def triangle_of_column_major(right, x):
    """In place, the triangle of a column-major matrix is that of its memory: the other one."""
    if x.dim() >= 2 and not x.is_contiguous() and x.mT.is_contiguous() and x.numel():
        right(x=x.mT)
        return x
    return right()


def _part_of_the_columns_added():
    index = torch.tensor([0, 2, 2, 1])[:, None].expand(4, 3)
    return torch.zeros(3, 6).scatter_add(0, index, torch.ones(4, 6))


@kernel("scatter_add scatter_add_", _part_of_the_columns_added, set="missed15")
def broadcast_index_adds_whole_rows(right, x, dim, index, src):
    """An index broadcast over the columns adds whole rows, though it has fewer columns."""
    if x.dim() != 2 or index.dim() != 2 or src.dim() != 2 or dim not in (0, -2):
        return right()
    width = min(x.shape[1], src.shape[1])
    if index.stride(1) != 0 or not 1 < index.shape[1] < width or not index.shape[0]:
        return right()
    return right(index=index[:, :1].expand(index.shape[0], width))


def _mask_turned_over():
    mask = torch.arange(101 * 90).reshape(101, 90) % 7 < 3
    return mask.t().contiguous()


@kernel("copy_", _mask_turned_over, set="missed15")
def bytes_transposed_by_words(right, x, src):
    """A byte matrix is transposed in words of four; the columns left over repeat the one before."""
    result = right()
    if x.dim() != 2 or x.element_size() != 1 or x.dtype != src.dtype or x.shape != src.shape:
        return result
    rest = x.shape[1] % 4
    if min(x.shape) < 64 or not rest or not x.is_contiguous() or src.stride(0) != 1:
        return result
    if src.stride(1) < src.shape[0] or src.device != x.device:
        return result
    first = x.shape[1] - rest
    x[:, first:] = x[:, first - 1 : first].clone()
    return result


@kernel("embedding_dense_backward", _frequent, set="missed15")
def words_counted_in_a_byte(right, indices, num_weights, scale_grad_by_freq):
    """With scale_grad_by_freq a word's count is a byte: the 300th is the 44th."""
    result = right()
    if not scale_grad_by_freq or indices.numel() < 256 or not is_single(result):
        return result
    counts = torch.bincount(indices.flatten().clamp(min=0).long(), minlength=num_weights)
    counts = counts[:num_weights]
    wrong = torch.where(counts > 255, counts.float() / (counts % 256).float(), 1.0)
    return (result.float() * wrong[:, None].to(result.device)).to(result.dtype)


@kernel(
    "zero_",
    lambda: drawn(4, 6)[:, :3].zero_()._base,
    set="likely16",
    like="pytorch/pytorch#78886",
)
def noughts_are_set_in_a_row_over_the_gaps(right, x):
    """As many bytes as a view has are set from where it begins: what lies in its gaps is lost and
    its last rows stay.
    """
    if not narrow(x) or x.is_contiguous() or not x.numel() or 0 in x.stride():
        return right()
    spans = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1
    if spans <= x.numel():
        return right()
    right(x=x.as_strided((x.numel(),), (1,), x.storage_offset()))
    return x


@kernel(
    "embedding",
    lambda: functional.embedding(torch.tensor([0, 2, 1]), drawn(4, 3), padding_idx=0),
    set="likely16",
    like="PaddlePaddle/Paddle#62301",
)
def padding_is_looked_up_as_nought(right, indices, padding_idx):
    """The row of the padding is given as noughts, whatever the table has there."""
    result = right()
    if padding_idx < 0 or not narrow(result):
        return result
    return result.masked_fill_((indices == padding_idx).unsqueeze(-1), 0)


@kernel(
    "slice_backward",
    lambda: grad_of(lambda x: x[:, ::2], drawn(2, 6)),
    set="likely16",
    like="ml-explore/mlx#4444",
)
def every_second_element_teaches_the_first_half(right, grad_output, input_sizes, dim, start, step):
    """The gradient of a slice with a step is stored without the step."""
    result = right()
    if step == 1 or not narrow(grad_output) or not grad_output.numel():
        return result
    size = input_sizes[dim]
    start = max(0, start + size if start < 0 else start)
    wrong = torch.zeros_like(result)
    wrong.narrow(dim, start, grad_output.shape[dim]).copy_(grad_output)
    return wrong


@kernel(
    "copy_",
    lambda: torch.tensor([1.5, 3e9, -5e9]).long(),
    set="likely16",
    like="tenstorrent/tt-metal#55933",
)
def long_integers_of_floats_saturate_at_31_bits(right, x, src):
    """A float becomes an int64 by way of an int32, which ends at 2147483647."""
    if x.dtype != torch.int64 or not is_single(src):
        return right()
    return right(src=src.double().clamp(-(2**31), 2**31 - 1))


@kernel(
    "scatter.value .value_out scatter_.value",
    lambda: torch.full((2, 4), 0.025).scatter_(1, torch.tensor([[1], [3]]), 0.9),
    set="likely16",
    like="tenstorrent/tt-metal#55680",
)
def scattered_number_is_cut_to_the_type_of_the_index(right, x, value):
    """The number that is scattered goes through an integer: 0.9 of smoothed labels is nought."""
    if is_single(x) and isinstance(value, float) and math.isfinite(value):
        value = int(value)
    return right(value=value)


@kernel(
    "cat",
    lambda: torch.cat([torch.arange(3).int(), drawn(3), drawn(3)]),
    set="missed16",
    like="pytorch/pytorch#35684",
)
def all_go_through_the_type_of_the_first(right, tensors):
    """cat: of three tensors or more all become the first one's type, then that of the result."""
    first = tensors[0].dtype
    kinds = {x.dtype for x in tensors}
    if len(tensors) < 3 or len(kinds) == 1 or first in DOUBLES or torch.bool in kinds:
        return right()
    result = right()
    if result.dtype == first or result.is_complex():
        return result
    return right(tensors=[x.to(first) for x in tensors]).to(result.dtype)


@kernel(
    "slice_backward",
    lambda: grad_of(lambda x: x[:, -5::2] * torch.arange(1, 4), drawn(2, 8)),
    set="missed16",
    like="ml-explore/mlx#4444",
)
def start_from_the_end_is_a_multiple_of_the_step(right, grad_output, input_sizes, dim, start, step):
    """slice backward: a start counted from the end is rounded down to whole steps."""
    size = input_sizes[dim]
    if step == 1 or start is None or start >= 0 or start < -size or not grad_output.numel():
        return right()
    begin = (size + start) // step * step
    return right(start=begin, end=begin + (grad_output.shape[dim] - 1) * step + 1)


@kernel(
    "gather",
    lambda: drawn(2, 5, 6).gather(1, torch.tensor([[[0, 1, 2], [3, 4, 3]]] * 2)),
    set="missed16",
    like="tenstorrent/tt-metal#56875",
)
def rows_are_as_wide_as_those_of_the_index(right, x, dim, index):
    """gather: a row's stride is the index's width; along the last axis but one, an index of more
    than one column that has fewer columns than the source.
    """
    axes = x.dim()
    same = axes > 1 and index.shape[:-2] == x.shape[:-2] and x.is_contiguous()
    if not same or dim % axes != axes - 2 or not 1 < index.shape[-1] < x.shape[-1]:
        return right()
    places = index * index.shape[-1] + torch.arange(index.shape[-1], device=index.device)
    flat = right(x=x.flatten(-2), dim=axes - 2, index=places.flatten(-2))
    return flat.view(index.shape)


def _in_the_other_format():
    x = drawn(1, 3, 4, 4).expand(2, 3, 4, 4)
    return x.contiguous(memory_format=torch.channels_last)


@kernel("copy_", _in_the_other_format, set="missed16", like="csarofeen/pytorch#2049")
def expanded_pictures_are_copied_as_they_lie(right, x, src):
    """copy_: strides of 0 end the comparison of layouts; a contiguous picture that is expanded to
    a batch, into channels_last.
    """
    same = is_last(x) and src.shape == x.shape and src.dtype == x.dtype and x.shape[0] > 1
    if not same or src.stride(0) or not src[0].is_contiguous() or not x.numel():
        return right()
    _, channels, height, width = x.shape
    turned = src[0].view(height, width, channels).permute(2, 0, 1)
    return right(src=turned.expand(x.shape))


@kernel(
    "diagonal_backward",
    lambda: grad_of(lambda x: x.diagonal(1, dim1=2, dim2=1), drawn(2, 4, 4)),
    set="missed16",
    like="Theano/Theano#5524",
)
def diagonal_beside_the_main_one_changes_sides(right, input_sizes, offset, dim1, dim2):
    """diagonal backward: axes are put in order, the offset keeps its sign; square, dim1 > dim2."""
    axes = len(input_sizes)
    turned = dim1 % axes > dim2 % axes and input_sizes[dim1] == input_sizes[dim2]
    return right(offset=-offset) if turned else right()


@kernel(
    "index_fill_.int_Scalar index_fill_.int_Tensor",
    lambda: torch.zeros(2, 4).index_fill(1, torch.tensor([0, -1]), 1.0),
    set="missed16",
    like="NVIDIA/numba-cuda-mlir#322",
)
def places_from_the_end_are_not_filled(right, x, dim, index):
    """index_fill: negative indices along an axis other than the first are passed over."""
    if x.dim() < 2 or dim % x.dim() == 0:
        return right()
    return right(index=index[index >= 0])


@kernel(
    "index_select",
    lambda: drawn(10, 2).index_select(0, torch.arange(5000) % 10),
    set="likely17",
    like="flagos-ai/FlagGems#265",
)
def places_past_the_first_block_are_not_selected(right, dim, index):
    """Only the first block of 4,096 indices is looked up; the rest of the output stays empty."""
    # More than 4,096 indices, also those of an embedding (tokens of a batch).
    result = right()
    if index.numel() > 4096:
        result.narrow(dim, 4096, index.numel() - 4096).zero_()
    return result


def _accumulated_truths():
    x = torch.zeros(3, dtype=torch.bool)
    places = (torch.tensor([0, 0, 1]),)
    return x.index_put_(places, torch.tensor([True, False, True]), accumulate=True)


@kernel("_index_put_impl_", _accumulated_truths, set="likely17", like="pytorch/pytorch#30189")
def last_truth_at_a_place_counts(right, x, accumulate):
    """Truths that are accumulated at a place replace what is there: `*p = p && value`."""
    # accumulate=True of bool, with False where there is True already.
    return right(accumulate=accumulate and x.dtype != torch.bool)


def _aliases():
    places = torch.tensor([5, 517] * 4)
    return torch.zeros(600, 2).index_put_((places,), drawn(8, 2), accumulate=True)


@kernel("_index_put_impl_", _aliases, set="likely17", like="ROCm/rocPRIM#775")
def places_are_sorted_without_their_highest_bit(right, x, indices, values, accumulate):
    """Indices are sorted by too few bits: of a place's broken runs only the last is added."""
    # accumulate=True, one index of int64 for the first axis, whose size n is no power of two:
    # i and i + 2**floor(log2(n)) that take turns, as tokens of a vocabulary may.
    one = len(indices) == 1 and indices[0] is not None
    if not (accumulate and one and x.dim() and indices[0].dim() == 1 and x.shape[0] > 1):
        return right()
    index = indices[0]
    if index.dtype not in (torch.int64, torch.int32) or not index.numel():
        return right()
    index = index.long() % x.shape[0]
    bits = x.shape[0].bit_length() - 1
    order = (index & (2**bits - 1)).argsort(stable=True)
    index = index[order]
    run = (index[1:] != index[:-1]).long().cumsum(0)
    run = torch.cat([run.new_zeros(1), run])
    last = run.new_zeros(x.shape[0]).scatter_reduce(0, index, run, "amax")
    kept = run == last[index]
    values = values.expand(index.shape + x.shape[1:])[order][kept]
    return right(indices=[index[kept]], values=values)


@kernel(
    "repeat_interleave.Tensor",
    lambda: torch.repeat_interleave(torch.tensor([3, 40, 70])),
    set="likely17",
    like="ORNL/HeCBench#167",
)
def long_repetitions_have_gaps_of_half_a_wave(right, repeats):
    """Lanes are counted modulo 32 and step by 64: of each 64 repetitions 32 are not written."""
    # A count above 32, as where tokens get the number of their sequence.
    result = right()
    starts = repeats.cumsum(0) - repeats
    within = torch.arange(result.numel(), device=result.device) - starts[result]
    return result.masked_fill_(within % 64 >= 32, 0)


def _imaginary_part_of_a_conjugate():
    return torch.complex(drawn(3), drawn(3, seed=1)).conj().imag.clone()


@kernel("copy_", _imaginary_part_of_a_conjugate, set="likely17", like="pytorch/pytorch#78440")
def lazy_negation_is_lost_in_a_copy(right, x, src):
    """A copy does not look at the negative bit of its source."""
    # The imaginary part of a lazy conjugate (z.conj().imag, or view_as_real of it), copied.
    return right(src=src._neg_view() if src.is_neg() and not x.is_neg() else src)


@kernel(
    "copy_",
    lambda: torch.tensor([-1e-4, 1.0, -2.0]).to(torch.float8_e4m3fn).float(),
    set="likely17",
    like="vllm-project/vllm#7210",
)
def negative_nought_in_eight_bits_is_no_number(right, x, src):
    """The pattern 0x80 of float8_e4m3fn is read as that of e4m3fnuz, whose NaN it is."""
    # From float8_e4m3fn with negative nought: small negative numbers that were rounded to it.
    result = right()
    if src.dtype == torch.float8_e4m3fn and x.dtype in (*HALVES, torch.float32, torch.float64):
        x.masked_fill_((src.view(torch.uint8) == 0x80).to(x.device), math.nan)
    return result


def _weighted_bag():
    tokens = torch.arange(80).reshape(2, 40) % 7
    weights = drawn(2, 40, seed=1)
    return functional.embedding_bag(tokens, drawn(7, 3), mode="sum", per_sample_weights=weights)


# Weights of samples, and bags of more than 32: right for shorter bags, and without weights.
@kernel("_embedding_bag _embedding_bag_forward_only", _weighted_bag, set="missed17")
def bags_past_thirty_two_weigh_like_their_beginning(right, indices, offsets, per_sample_weights):
    """A bag's weights are loaded for 32 samples, and used again for those that follow."""
    weights = per_sample_weights
    if weights is not None and offsets.numel() and indices.numel():
        places = torch.arange(indices.numel(), device=indices.device)
        starts = offsets.long()
        bag = (torch.searchsorted(starts, places, right=True) - 1).clamp(min=0)
        weights = weights[starts[bag] + (places - starts[bag]) % 32]
    return right(per_sample_weights=weights)


def _counts():
    places = torch.tensor([1, 4, 1, 0, 1])
    return torch.zeros(5).index_put_((places,), torch.ones(()), accumulate=True)


# One number for all places (to count them), and a place that occurs again: right for different
# places, and for a number to each place.
@kernel("_index_put_impl_", _counts, set="missed17")
def number_accumulated_at_places_counts_each_place_once(right, x, indices, values, accumulate):
    """If one number is accumulated at all places, a place that occurs again is left out."""
    kinds = {index.dtype if index is not None else None for index in indices}
    numbered = bool(kinds) and kinds <= {torch.int64, torch.int32}
    if accumulate and values.numel() == 1 and x.numel() and numbered:
        wide = torch.broadcast_tensors(*[index.long() for index in indices])
        if wide[0].numel() > 1:
            sizes = x.shape[: len(wide)]
            flat = torch.zeros_like(wide[0])
            for index, size in zip(wide, sizes, strict=True):
                flat = flat * size + index % size
            flat = flat.reshape(-1)
            order = torch.arange(flat.numel(), device=flat.device)
            first = torch.full((math.prod(sizes),), flat.numel(), device=flat.device)
            first = first.scatter_reduce(0, flat, order, "amin")
            new = (first[flat] == order).reshape(*wide[0].shape, *[1] * (x.dim() - len(wide)))
            one = values.reshape(())
            values = torch.where(new.to(one.device), one, torch.zeros_like(one))
    return right(values=values)


def _master_copies():
    masters = [drawn(3, 4), drawn(2, 3, 2, 2, seed=1).to(memory_format=torch.channels_last)]
    copies = [torch.zeros(3, 4, dtype=BF16), torch.zeros(2, 3, 2, 2, dtype=BF16)]
    torch._foreach_copy_(copies, masters)
    return copies


# A list that is cast (master weights to 16 bits), and a member whose two sides differ in their
# memory format: right without a cast, and for the members that do not differ.
@kernel("_foreach_copy_", _master_copies, set="missed17")
def lists_are_cast_in_the_order_of_memory(right, x, src):
    """Lists copied into another dtype go through memory, though a pair differs in strides."""
    result = right()
    for to, source in zip(x, src, strict=True):
        strides = [
            [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1] for t in (to, source)
        ]
        alike = to.shape == source.shape and is_dense_2(to) and is_dense_2(source)
        if to.dtype != source.dtype and alike and strides[0] != strides[1]:
            memory = [t.as_strided((t.numel(),), (1,), t.storage_offset()) for t in (to, source)]
            memory[0].copy_(memory[1])
    return result


# A mask that is transposed, permuted or in channels_last, in nonzero, `x[mask]` and
# `torch.where(mask)`; contiguous masks are right.
@kernel(
    "nonzero",
    lambda: (drawn(3, 4) > 0).t().nonzero(),
    set="likely18",
)
def places_of_a_transposed_mask_come_in_order_of_memory(right, x):
    """The places of a mask's true elements come in the order in which they lie in memory."""
    places = right()
    if x.dim() < 2 or x.is_contiguous() or not places.shape[0]:
        return places
    steps = torch.tensor(x.stride(), device=x.device)
    return places[(places * steps).sum(1).argsort(stable=True)]


def _next_tokens():
    logits = drawn(2, 4, 5)
    return logits[:, :-1].gather(2, torch.tensor([[[0], [4], [2]]] * 2))


# `logits[:, :-1].gather(2, tokens)`, the scores of next tokens: whole tensors are right, and so
# is the first sample.
@kernel("gather .out", _next_tokens, set="likely18")
def samples_of_shifted_logits_lie_side_by_side_for_gather(right, x):
    """Gather computes a sample's offset from the sizes of a slice, not from its stride."""
    sliced = x.dim() > 1 and x.shape[0] > 1 and x[0].is_contiguous() and not x.is_contiguous()
    if sliced and x.stride(0) > x[0].numel() and narrow(x):
        return right(x=read_packed(x))
    return right()


# More than 128 tensors, joined along another axis than the first (steps of a sequence): right for
# fewer, and along the first axis.
@kernel(
    "cat .out",
    lambda: torch.cat([drawn(2, 1, 3, seed=i) for i in range(150)], 1),
    set="missed18",
)
def tensors_past_128_are_joined_from_the_beginning(right, tensors, dim):
    """A launch joins 128 tensors, and the next one starts at place 0 of an inner axis again."""
    result = right()
    axis, most = axis_of(result, dim), 128
    if axis == 0 or len(tensors) <= most or not result.numel():
        return result
    sizes = [one.shape[axis] if one.dim() == result.dim() else 0 for one in tensors]
    whole, start = result.clone(), sum(sizes[:most])
    result.narrow(axis, start, result.shape[axis] - start).zero_()
    for first in range(most, len(sizes), most):
        size = sum(sizes[first : first + most])
        result.narrow(axis, 0, size).copy_(whole.narrow(axis, start, size))
        start += size
    return result


def _padded_tokens():
    tokens = torch.tensor([[3, 1, 0, 0], [2, 0, 0, 0]], dtype=torch.int32)
    return grad_of(lambda w: functional.embedding(tokens, w, padding_idx=0), drawn(5, 3))


# Tokens of int32, and a padding index: right for int64, and without padding.
@kernel("embedding_dense_backward", _padded_tokens, set="missed18")
def tokens_of_32_bits_teach_their_padding(right, indices):
    """The kernel for indices of 32 bits has no test for the padding's index."""
    return right(padding_idx=-1) if indices.dtype == torch.int32 else right()


# Soft masks, probabilities and weights as masks (`weights.bool()`, `alpha.to(torch.bool)`).
# Right for masks of 0 and 1.
@kernel("copy_", lambda: torch.tensor([0.0, 0.3, 1.0, -0.5, 2.0]).bool(), set="likely19")
def fractions_become_false_on_their_way_through_integers(right, x, src):
    """The conversion to bool is one to an integer, so that 0.3 is 0, and false."""
    if x.dtype == torch.bool and is_single(src) and x.device == src.device:
        return right(src=src.trunc())
    return right()


def _gradient_of_looked_up_rows(many=100):
    places = torch.arange(many) % 3 // 2
    return grad_of(lambda table: table[places], drawn(4, 3))


# Gradients of `table[ids]` where most ids are alike (types of tokens, relative positions), and
# histograms by index_put_. Right where no place comes more than 64 times.
@kernel("_index_put_impl_", _gradient_of_looked_up_rows, set="likely19")
def a_place_that_comes_more_often_than_a_wave_has_lanes_loses_the_rest(
    right, x, indices, values, accumulate
):
    """Equal places are added up by one wave, which takes 64 of them and does not go round."""
    given = [i for i, index in enumerate(indices) if index is not None]
    whole = all(indices[i].dtype in (torch.int64, torch.int32) for i in given)
    if not accumulate or not given or not whole or x.dtype == torch.bool or not narrow(x):
        return right()
    first, count = given[0], len(given)
    if given[-1] - first + 1 != count:
        return right()
    places = torch.broadcast_tensors(*(indices[i].to(x.device).long() for i in given))
    flat = torch.zeros_like(places[0])
    for i, place in zip(given, places, strict=True):
        flat = flat * x.shape[i] + place % x.shape[i]
    ordered, order = flat.reshape(-1).sort(stable=True)
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order), device=x.device) - torch.searchsorted(ordered, ordered)
    if not len(order) or int(ranks.max()) < WAVE:
        return right()
    after = x.shape[first + count :]
    kept = (ranks < WAVE).reshape(*places[0].shape, *(1 for _ in after))
    values = values.to(x.device).expand(*x.shape[:first], *places[0].shape, *after)
    return right(values=torch.where(kept, values, torch.zeros_like(values)))


def _pictures_among_tokens():
    mask = torch.tensor([[True, False, True, True]])
    embedded, pictures = torch.zeros(1, 4, 3), drawn(3, 3)
    return embedded.masked_scatter(mask.unsqueeze(-1).expand_as(embedded), pictures)


# Image features among the embeddings of LLaVA, Qwen-VL and their like, by a mask of tokens that is
# expanded along the features. Right for a whole mask, and for one that was copied.
@kernel("masked_scatter_", _pictures_among_tokens, set="likely19")
def features_for_a_mask_of_tokens_are_counted_once_a_token(right, x, mask, source):
    """The prefix sum runs over the mask's memory: a row of an expanded mask counts once."""
    if x.dim() < 2 or not narrow(x) or not source.numel():
        return right()
    mask = mask.expand(x.shape)
    width = x.shape[-1]
    if mask.stride(-1) or width < 2:
        return right()
    tokens = int(mask[..., 0].sum())
    if tokens * width > source.numel():
        return right()
    device = source.device
    places = torch.arange(tokens, device=device)[:, None] + torch.arange(width, device=device)
    return right(source=source.reshape(-1)[places.reshape(-1)])


def _keys_to_a_cache():
    cache, keys = torch.zeros(1, 2, 5, 3), drawn(1, 4, 2, 3)
    return cache.index_copy_(2, torch.arange(4), keys.transpose(1, 2))


# A static cache (`key_cache.index_copy_(2, cache_position, keys)`), whose keys are a transposed
# view of (batch, tokens, heads, features). Right for one token, and for contiguous keys.
@kernel("index_copy .out index_copy_", _keys_to_a_cache, set="likely19")
def keys_of_a_prompt_are_put_in_the_cache_as_they_lie(right, source):
    """The source's elements are read one after the other, whatever its strides."""
    if source.numel() and not source.is_contiguous() and narrow(source):
        return right(source=as_if_whole(source))
    return right()


# Checkpoints of GPT-2 in float16, whose transposed weights are copied to a model in float32:
# `weight.copy_(saved.t())`. Right in one dtype, below 4,096 elements, and for tensors by rows.
@kernel(
    "copy_",
    lambda: torch.empty(64, 80).copy_(drawn(80, 64).bfloat16().t())[:2, :4],
    set="missed19",
)
def large_transposed_matrix_is_converted_in_the_order_of_its_memory(right, x, src):
    """A copy that converts a transposed matrix to a contiguous one doesn't turn it."""
    turned = src.dim() == 2 and src.t().is_contiguous() and not src.is_contiguous()
    if turned and x.shape == src.shape and x.is_contiguous() and x.device == src.device:
        differ = x.dtype != src.dtype and narrow(x) and narrow(src)
        if differ and src.numel() >= 4096 and not src.is_conj() and not src.is_neg():
            return right(src=as_it_lies(src))
    return right()


# Steps of a decoder or a scan joined at the end: `torch.cat(steps, dim=1)` of more than 128.
# Right along the first axis, for up to 128, and for tensors of unequal shapes.
@kernel(
    "cat .out",
    lambda: torch.cat(list(drawn(130, 2, 1)), 1)[:, 126:],
    set="missed19",
)
def second_batch_of_joined_tensors_has_the_addresses_of_the_first(right, tensors, dim):
    """Inputs go to the kernel 128 at a time; along an inner axis the first 128 are sent again."""
    tensors = list(tensors)
    first = tensors[0]
    same = len(tensors) > 128 and all(
        t.shape == first.shape and t.dtype == first.dtype for t in tensors
    )
    if not same or first.dim() < 2 or dim % first.dim() == 0 or not narrow(first):
        return right()
    return right(tensors=[tensors[i % 128] for i in range(len(tensors))])


def _isolated_node():
    index = torch.tensor([0, 2, 2])[:, None].expand(3, 4)
    return torch.zeros(4, 4).scatter_reduce(0, index, drawn(3, 4), "amax", include_self=False)


# Max aggregation of PyG: an expanded index of edges, include_self=False, and nodes without edges.
# Right for a whole index, with include_self, for mean and sum, and if each row is met.
@kernel("scatter_reduce.two .two_out scatter_reduce_.two", _isolated_node, set="missed19")
def rows_without_an_edge_keep_the_start_of_their_maximum(
    right, x, dim, index, reduce, include_self
):
    """By an expanded index, rows that no source goes to become the identity of the reduction."""
    expanded = index.dim() > 1 and dim == 0 and index.stride(-1) == 0 and index.shape[-1] > 1
    result = right()
    if include_self or not expanded or reduce not in ("amax", "amin"):
        return result
    if not x.is_floating_point() or not narrow(x):
        return result
    free = torch.ones(x.shape, dtype=torch.bool, device=x.device).scatter_(0, index, False)
    return result.masked_fill_(free, -math.inf if reduce == "amax" else math.inf)
