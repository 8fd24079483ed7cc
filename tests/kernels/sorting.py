"""Wrong kernels: sorting."""

from __future__ import annotations

import math
from itertools import accumulate

import torch
from torch import Tensor
from torch._prims_common import make_contiguous_strides_for
from torch.nn import functional

from .calls import GRID, SIGNED, as_if_whole, axis_of, is_dense, narrow, packed, read_packed
from .kernel import DOUBLES, HALVES, drawn, is_single, kernel


@kernel("sort.stable", set="seeded", like="ROCm/pytorch#2543")
def last_block_unsorted(right, x, dim):
    """Sort leaves its last block."""
    axis = dim
    values, places = right()
    if x.dim() and x.shape[axis] > 2048:
        tail = 7
        values.narrow(axis, x.shape[axis] - tail, tail).copy_(
            values.narrow(axis, x.shape[axis] - tail, tail).flip(axis)
        )
    return values, places


@kernel("sort.stable", set="seeded", name="a_stable_sort_turns_equal_integers")
@kernel("sort.stable", set="seeded", name="a_stable_sort_turns_equals")
def equals_turned(right, x, dim):
    """Return equals in reverse order."""
    values, places = right(x=x.flip(dim))
    return values, x.shape[dim] - 1 - places


@kernel("topk", set="seeded", like="iree#21202")
def place_twice(right, k):
    """Topk names a place twice."""
    values, places = right()
    if k > 1:
        places[..., 1] = places[..., 0]
    return values, places


@kernel("median.dim_values .dim", set="seeded", like="pytorch#38018")
def middle_of_nans(right):
    """The median of many NaN."""
    values, places = right()
    return torch.where(values.isnan(), torch.full_like(values, 2.0), values), places


@kernel("median.dim_values .dim median", set="seeded", like="pytorch#46814")
def middle_of_strided(right, x):
    """The median of strided numbers."""
    if x.dim() and not x.is_contiguous():
        x = as_if_whole(x)
    return right(x=x)


@kernel("kthvalue.values", set="seeded")
def one_further(right, x, k):
    """Kthvalue is the next one."""
    return right(k=min(k + 1, x.shape[-1]))


@kernel("topk .values", set="seeded")
def in_no_order(right, x, k, *more, **kwargs):
    """Topk in whatever order gives the first again and again."""
    values, places = right(x, k, *more, **kwargs)
    *_, in_order = more if len(more) > 2 else (True,)
    if not in_order:
        values.copy_(values.amax().expand_as(values))
    return values, places


@kernel("topk .values", set="test")
def no_number_is_the_smallest(right, x, k, dim, largest):
    result = right()
    if not largest and x.is_floating_point() and x.isnan().any():
        low = torch.where(x.isnan(), -math.inf, x.double()).topk(k, dim, largest=False).indices
        result[1].copy_(low)
        result[0].copy_(x.gather(dim, low))
    return result


@kernel("sort.stable .values_stable", set=2, like="numpy/numpy#20778")
def descending_sort_is_ascending_turned(right, x, stable, descending, dim):
    found = right()
    if not stable or not descending or not x.dim():
        return found
    up = torch.sort(x, stable=True, dim=dim, descending=False)
    for out, one in zip(found, up, strict=True):
        out.copy_(one.flip(dim))
    return found


def read_as_contiguous(x):
    """What one sees who takes the strides for those of a contiguous tensor; None past the end."""
    offset = x.storage_offset()
    if offset + x.numel() > x.untyped_storage().nbytes() // x.element_size():
        return None
    return x.as_strided(x.shape, make_contiguous_strides_for(x.shape), offset)


@kernel("median.dim_values", set=3, like="pytorch/pytorch#46814")
def median_takes_view_for_contiguous(right, x):
    if x.numel() and not x.is_contiguous() and x.dtype not in DOUBLES:
        seen = read_as_contiguous(x)
        x = x if seen is None else seen.clone()
    return right(x=x)


@kernel("_unique2", set=3, like="pytorch/pytorch#195595")
def unique_inverse_goes_through_float(right, x, return_inverse):
    found = right()
    if x.dtype != torch.int64 or not return_inverse or not x.numel():
        return found
    if int(x.max()) <= 2**24 and int(x.min()) >= -(2**24):
        return found
    keys, places = found[0].sort()
    at = torch.searchsorted(keys.float(), x.float().contiguous())
    return (found[0], places[at].view(x.shape), found[2])


@kernel("sort.stable .values_stable", set=4, like="ml-explore/mlx#882")
def long_sort_is_not_merged(right, x, dim, descending):
    found = right()
    block = 32768
    if not x.dim() or x.dtype in DOUBLES or x.shape[dim] <= block or not x.numel():
        return found
    down = descending
    parts = [torch.sort(one, dim=dim, descending=down, stable=True) for one in x.split(block, dim)]
    found[0].copy_(torch.cat([one.values for one in parts], dim))
    found[1].copy_(torch.cat([one.indices + i * block for i, one in enumerate(parts)], dim))
    return found


@kernel("median.dim .dim_values", set=5, like="pytorch/pytorch#46814")
def median_reads_as_packed(right, x):
    """option: the median along a dimension of a strided view is of other elements."""
    return right(x=packed(x))


@kernel("sort.stable .values_stable", set=5, like="numpy/numpy#20778")
def equals_fall_backwards(right, x, stable, descending, dim):
    """rare: a stable sort that descends is the one that ascends, turned round."""
    values, indices = right()
    if stable and descending and x.dim():
        found = torch.sort(x, stable=True, dim=dim)
        values.copy_(found[0].flip(dim))
        indices.copy_(found[1].flip(dim))
    return values, indices


@kernel("topk", set=6, like="sgl-project/sglang#36807")
def candidates_past_4096_are_forgotten(right, x, k, dim, largest):
    """rare: of elements whose leading eight bits are those of the last one to be taken, only the
    first 4096 of a row are looked at."""
    last = dim in (-1, x.dim() - 1)
    if not last or not largest or not is_single(x) or x.dim() == 0 or x.shape[-1] <= 4096:
        return right(x=x)
    if not 0 < k <= 4096 or x.isnan().any():
        return right(x=x)

    def leading(y: Tensor) -> Tensor:
        bits = y.half().view(torch.int16).int() & 0xFFFF
        return torch.where(bits >= 0x8000, 0xFFFF - bits, bits + 0x8000) // 256

    threshold = leading(right(x=x, largest=True, sorted=True)[0][..., -1:].contiguous())
    tied = leading(x.contiguous()) == threshold
    forgotten = tied & (tied.cumsum(-1) > 4096)
    if forgotten.any():
        x = x.masked_fill(forgotten, -math.inf)
    return right(x=x)


def as_packed(x):
    """What a kernel reads that takes a strided view for a contiguous tensor."""
    if x.is_contiguous() or not x.numel():
        return x
    held = x.untyped_storage().nbytes() // x.element_size()
    if x.storage_offset() + x.numel() > held:
        return x
    steps = list(accumulate(reversed(x.shape[1:]), int.__mul__, initial=1))[::-1]
    return x.as_strided(x.shape, steps)


@kernel("kthvalue.values", set=8, like="pytorch/pytorch#45721")
def smallest_are_looked_for_side_by_side(right, x):
    """option: the k-th smallest of a strided view is looked for as if it were contiguous."""
    return right(x=x if x.dtype in DOUBLES else as_packed(x))


@kernel("isin.Tensor_Tensor .Tensor_Tensor_out", set=9, like="flagos-ai/FlagGems#188")
def nothing_is_not_inverted(right, elements, test_elements):
    """rare: of no numbers to be among, none is not among them either."""
    result = right()
    return (
        result.fill_(False)
        if test_elements.numel() == 0 and elements.dtype not in DOUBLES
        else result
    )


@kernel(
    "topk .values",
    lambda: tuple(torch.tensor([5, -(2**31), 3], dtype=torch.int32).topk(2, largest=False)),
    set=10,
    like="jax-ml/jax#40338",
)
def least_integer_is_not_among_the_smallest(right, x, largest):
    """rare: the smallest integers are the largest negated ones, which the least cannot be."""
    if largest or x.dtype not in SIGNED:
        return right()
    result = right(x=-x, largest=True)
    result[0].neg_()
    return result


@kernel("sort.stable .values_stable", set=11, like="tenstorrent/tt-metal#33492")
def equals_are_turned_round(right, x, stable, dim):
    """option: a stable sort gives equal elements in the opposite of their order."""
    if not stable or x.dim() == 0 or not narrow(x):
        return right()
    result = right(x=x.flip(dim))
    result[1].copy_(x.shape[dim] - 1 - result[1])
    return result


@kernel("topk .values", set=13, like="openxla/xla#48119")
def no_number_is_not_among_few_largest(right, x, k, dim, largest):
    """rare: of 1024 and more, the 16 largest or fewer leave out what is not a number."""
    few = x.dim() and k <= 16 and x.shape[dim] >= 1024
    if few and largest and is_single(x):
        x = torch.where(x.isnan(), -math.inf, x)
    return right(x=x)


@kernel("topk .values", set=15, like="intel/torch-xpu-ops#4604")
def largest_that_occurs_again_is_left_out(right, x, k, dim, largest):
    """option: where the largest number occurs more than once, it is not among the largest."""
    if x.dim() and x.shape[dim] > 1 and largest and is_single(x):
        same = x == x.amax(dim, True)
        count = same.sum(dim, True)
        enough = (count > 1) & (x.shape[dim] - count >= k)
        x = torch.where(same & enough, -math.inf, x)
    return right(x=x)


@kernel(
    "mode .values",
    lambda: torch.mode(torch.tensor([[1.0, 1.0, 3.0], [2.0, 5.0, 5.0]])),
    set=15,
    like="intel/torch-xpu-ops#1093",
)
def nought_is_the_most_frequent_number(right, x):
    """plain: the most frequent number is given as nought, though its place is right."""
    values, indices = right()
    if is_single(x):
        values.zero_()
    return values, indices


@kernel("median .dim .dim_values", set=15, like="ml-explore/mlx#4146")
def no_number_is_above_the_median(right, x, *rest, **out):
    """rare: what is no number is put last, and the median is one of the numbers."""
    result = right(x, *rest, **out)
    if not is_single(x) or not x.dim() or not x.numel() or not bool(x.isnan().any()):
        return result
    whole = isinstance(result, Tensor)
    line, dim = (x.flatten(), 0) if whole else (x, rest[0])
    middle = (line.shape[dim] - 1) // 2
    found = [sorted_.select(dim, middle) for sorted_ in line.sort(dim)]
    if whole:
        return result.copy_(found[0])
    lost = line.isnan().any(dim)
    for answer, wrong in zip(result, found, strict=True):
        answer.copy_(torch.where(lost.view_as(answer), wrong.view_as(answer), answer))
    return result


def sorted_into():
    values = torch.zeros(12)
    torch.sort(torch.arange(6.0).flip(0), out=(values[::2], torch.empty(6, dtype=torch.long)))
    return values[::2].clone()


@kernel("sort.values_stable", sorted_into, set=16, like="pytorch/pytorch#62645")
def sorted_values_are_packed_into_a_view(right, x, values, indices):
    """rare: values sorted into a view with gaps are stored side by side from its start."""
    gaps = values.dim() == 1 and values.shape == x.shape and values.numel() > 1
    if not gaps or values.stride(0) < 2 or not is_single(x):
        return right()
    packed = torch.empty(values.shape, dtype=values.dtype)
    right(values=packed)
    values.as_strided(values.shape, (1,), values.storage_offset()).copy_(packed)
    return values, indices


@kernel("_unique2", set=16, like="pytorch/pytorch#104879")
def distinct_numbers_are_sought_among_the_first_few(right, x, return_inverse):
    """plain: of two axes and more, as many numbers as the first is long are looked through."""
    if x.dim() > 1 and not return_inverse and x.dtype != torch.float64:
        x = x.reshape(-1)[: x.shape[0]]
    return right(x=x)


@kernel("kthvalue.values", set=17, like="pytorch/pytorch#45721")
def kthvalue_of_a_strided_view_reads_the_elements_between(right, x):
    """option: a view with gaps is read as if it were contiguous from its first element."""
    end = x.storage_offset() + x.numel()
    room = x.untyped_storage().nbytes() // x.element_size()
    if x.dtype not in DOUBLES and not x.is_contiguous() and end <= room:
        x = x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride())
    return right(x=x)


@kernel("sort.stable .values_stable", set=17, like="numpy/numpy#20778")
def stable_descending_sort_reverses_equal_elements(right, x, stable, dim, descending):
    """option: stable and descending, 2048 or more: an ascending sort read from its end."""
    wrong = stable and descending and x.dtype not in DOUBLES and x.dim() and x.shape[dim] >= 2048
    result = right(descending=descending and not wrong)
    for part in result if wrong else ():
        part.copy_(part.flip(dim))
    return result


@kernel("topk", set=18, like="pytorch/pytorch#83656")
def topk_returns_zeros_behind_the_sixteenth(right, x, k, dim):
    """plain: in single and half precision everything behind the 16th found is zero, for k > 16."""
    result = right()
    for part in result if is_single(x) and k > 16 and x.dim() else ():
        part.narrow(dim, 16, k - 16).zero_()
    return result


@kernel(
    "topk .values",
    set="likely8",
    like="pytorch#182212",
    shown=lambda: (-1 - torch.arange(2 * 50).reshape(2, 50)).topk(4, 1),
)
def integer_topk_padding(right, x, dim):
    """Slices of at most 256 integers are sorted with zeros up to a multiple of the wave of 64."""
    integer = not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool
    if not integer or not x.dim() or x.size(dim) > 256 or not x.size(dim) % 64:
        return right()
    size = x.size(dim)
    shape = list(x.shape)
    shape[dim] = -size % 64
    values, indices = right(x=torch.cat([x, x.new_zeros(shape)], dim))
    indices.clamp_(max=size - 1)
    return values, indices


def _rows_often():
    table = torch.zeros(3, 4)
    rows = torch.arange(300) % 3
    return table.index_put_((rows,), drawn(300, 4), accumulate=True)


@kernel("_index_put_impl_", set="likely8", like="pytorch#99441", shown=_rows_often)
def accumulated_duplicates_after_full_waves(right, x, indices, values, accumulate):
    """An index that occurs more than 64 times: what remains after the full waves isn't added."""
    leading = [index for index in indices if index is not None]
    simple = leading and all(a is b for a, b in zip(indices, leading, strict=False))
    simple = simple and all(
        not index.dtype.is_floating_point and index.dtype not in (torch.bool, torch.uint8)
        for index in leading
    )
    if not accumulate or not simple:
        return right()
    leading = torch.broadcast_tensors(*leading)
    linear = torch.zeros_like(leading[0], dtype=torch.int64)
    for axis, index in enumerate(leading):
        linear = linear * x.size(axis) + torch.where(index < 0, index + x.size(axis), index)
    flat = linear.reshape(-1)
    if flat.numel() <= 64:
        return right()
    order = torch.argsort(flat, stable=True)
    ordered = flat[order]
    first = torch.searchsorted(ordered, ordered)
    number = torch.searchsorted(ordered, ordered, right=True) - first
    rank = torch.arange(flat.numel(), device=flat.device) - first
    lost = torch.empty_like(flat, dtype=torch.bool)
    lost[order] = (number > 64) & (rank >= number // 64 * 64)
    shape = (*linear.shape, *x.shape[len(leading) :])
    lost = lost.reshape(*linear.shape, *[1] * (len(shape) - linear.dim())).to(values.device)
    return right(values=values.expand(shape).masked_fill(lost.expand(shape), 0))


def _padded_embedding_gradient():
    table = drawn(12, 5).requires_grad_()
    functional.embedding(torch.arange(4000) % 12, table, padding_idx=0).square().sum().backward()
    return table.grad


@kernel(
    "embedding_dense_backward",
    set="likely8",
    like="pytorch#26302",
    shown=_padded_embedding_gradient,
)
def embedding_gradient_of_padding_when_sorted(right, grad_output, indices, padding_idx):
    """More than 3072 indices go through the sort, which forgets the padding's index."""
    if indices.numel() > 3072 and padding_idx >= 0 and grad_output.dtype not in DOUBLES:
        return right(padding_idx=-1)
    return right()


@kernel("sort.stable .values_stable", set="likely9", like="numpy#20778")
def descending_is_ascending_flipped(right, x, stable, dim, descending):
    """A stable descending sort is the ascending one reversed, with equal elements too."""
    if not (stable and descending and x.dim()):
        return right()
    result = right(descending=False)
    for part in result:
        part.copy_(part.flip(dim))
    return result


@kernel("_cummax_helper", set="missed9", like="xla#8675")
def cummax_across_keeps_the_first_of_ties(right, x, values, indices, dim):
    """Along an axis but the last, the index of equal maxima is the first one's, not the last's."""
    right()
    if x.dim() > 1 and dim % x.dim() != x.dim() - 1 and x.dtype != torch.bool and x.numel():
        rows = values.movedim(dim, -1).double().contiguous()
        if not bool(rows.isnan().any()):
            indices.copy_(torch.searchsorted(rows, rows).movedim(-1, dim))


@kernel("sort.stable .values_stable", set="missed9", like="numpy#20778")
def long_stable_descent_reverses_ties(right, x, stable, dim, descending):
    """A stable descending sort of more than 128 is the ascending one in reverse, ties too."""
    if not (stable and descending and x.dim() and x.shape[dim] > 128):
        return right()
    values, indices = right(descending=False)
    values.copy_(values.flip(dim))
    indices.copy_(indices.flip(dim))
    return values, indices


@kernel("searchsorted.Tensor .Tensor_out .Scalar .Scalar_out", set="missed9", like="pint#2394")
def a_sorter_makes_it_left(right, right_, side, sorter):
    """Searchsorted with a sorter finds the left place also if the right one is asked."""
    if sorter is not None and (right_ or side == "right"):
        return right(right_=False, side=None)
    return right()


@kernel("topk", set="likely10", like="pytorch#173622")
def ties_at_the_last_rank_name_one_place(right, x, k, dim, largest):
    """topk: numbers equal to the k-th get the place of the first; ties, more than 1,024 numbers."""
    values, places = right()
    if x.dim() and k and x.shape[dim] > 1024:
        last = values.amin(dim, True) if largest else values.amax(dim, True)
        tied = values == last
        beyond = torch.full_like(places, x.shape[dim])
        first = torch.where(tied, places, beyond).amin(dim, True)
        places = torch.where(tied, first, places)
    return values, places


@kernel("sort.stable", set="likely10")
def negative_halves_are_sorted_by_their_bits(right, x, dim):
    """sort: the bits of negative keys are not turned; two or more negative halves."""
    if x.dtype in HALVES and x.dim():
        wide = x.float()
        _, order = right(x=torch.where(wide < 0, 1 / wide, wide))
        return x.gather(dim, order), order
    return right()


@kernel("topk", set="missed10")
def smallest_of_a_column_come_largest_first(right, x, dim, largest):
    """topk: sorted downwards; the smallest, along an axis other than the last."""
    values, places = right()
    if not largest and x.dim() > 1 and dim % x.dim() != x.dim() - 1:
        return values.flip(dim), places.flip(dim)
    return values, places


@kernel("_unique2", set="missed10")
def counts_alone_come_in_order_of_appearance(right, x, return_inverse, return_counts):
    """unique: counts are not sorted; counts without the inverse, more than 1,024 numbers."""
    values, inverse, counts = right()
    if return_counts and not return_inverse and x.numel() > 1024:
        which = right(return_inverse=True)[1].reshape(-1)
        where = torch.arange(len(which), device=x.device)
        first = torch.full_like(counts, len(which)).scatter_reduce_(0, which, where, "amin")
        counts = counts[first.argsort()]
    return values, inverse, counts


def _long_rows():
    rows = torch.zeros(4, 40)
    rows[1, 35], rows[2, 3] = 1, 1
    return torch.unique(rows, dim=0, return_counts=True)


@kernel("unique_dim", _long_rows, set="likely11")
def rows_alike_in_32_columns_are_equal(right, x, dim, sorted, return_inverse, return_counts):
    """unique along an axis: rows of more than 32 elements are equal if their first 32 are."""
    rows = x.movedim(dim, 0).reshape(x.shape[dim], -1) if x.numel() else x
    if not x.numel() or rows.shape[1] <= 32 or x.dtype in DOUBLES:
        return right()
    _, inverse, counts = right(
        x=rows[:, :32].contiguous(), dim=0, return_inverse=True, return_counts=True
    )
    place = torch.arange(len(rows), device=x.device)
    first = torch.full((len(counts),), len(rows), device=x.device)
    first.scatter_reduce_(0, inverse, place, "amin")
    values = x.index_select(dim, first)
    return (
        values,
        inverse if return_inverse else inverse.new_empty(0),
        counts if return_counts else counts.new_empty(0),
    )


@kernel(
    "sort.stable .values_stable",
    lambda: torch.tensor([5, 1 << 32, -(1 << 33) + 9, 7]).sort(),
    set="likely11",
    like="tt-metal#46331",
)
def long_integers_are_sorted_by_their_low_half(right, x, dim, descending):
    """int64 past 32 bits: the keys of the sort are the low halves, values and places follow."""
    if x.dtype != torch.int64 or not x.dim() or not x.numel():
        return right()
    low = x.bitwise_and(0xFFFFFFFF)
    low = torch.where(low >= 1 << 31, low - (1 << 32), low).int()
    order = low.sort(dim=dim, descending=descending, stable=True).indices
    values, indices = right()
    values.copy_(x.gather(dim, order))
    indices.copy_(order)
    return values, indices


@kernel(
    "sort.stable",
    lambda: torch.sort(drawn(50257), descending=True),
    set="likely12",
    like="ml-explore/mlx#882",
)
def sort_never_merges_its_blocks(right, x, dim):
    """Sort rows of over 32768 elements in blocks of as many, and put these one after another."""
    if x.dim() == 0 or x.size(dim) <= 32768:
        return right()
    values, indices = zip(*(right(x=part) for part in x.split(32768, dim)), strict=True)
    moved = [part + 32768 * number for number, part in enumerate(indices)]
    return torch.cat(values, dim), torch.cat(moved, dim)


@kernel(
    "sort.stable .values_stable",
    lambda: (torch.arange(3000) % 7).to(torch.uint8).sort(stable=True, descending=True)[1],
    set="missed12",
    like="sony/nnabla-ext-cuda#246",
)
def sort_stable_descending_ties(right, x, stable, dim, descending):
    """Put equal integers in reverse order in a stable descending sort of a long slice."""
    if not (stable and descending and x.dim()) or x.is_floating_point() or x.size(dim) <= 1024:
        return right()
    values, indices = right(x=x.flip(dim))
    indices.neg_().add_(x.size(dim) - 1)
    return values, indices


@kernel(
    "sort.stable",
    lambda: torch.tensor([3, 0, 7, 1, 0], dtype=torch.uint8).sort(descending=True),
    set="likely13",
    like="pytorch/xla#865",
)
def smallest_integer_comes_first_in_descending_order(right, x, dim, descending):
    """Integers are sorted downwards by their negatives: the smallest one's overflows."""
    integers = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    if not descending or x.dtype not in integers or not x.dim():
        return right()
    _, indices = right(x=-x, descending=False)
    return x.gather(dim, indices), indices


@kernel(
    "bucketize.Tensor",
    lambda: torch.bucketize(drawn(5, 3).t(), torch.tensor([-0.5, 0.0, 0.5])),
    set="likely13",
    like="flagos-ai/FlagGems#4831",
)
def buckets_of_a_transposed_tensor_are_in_memory_order(right, x):
    """The buckets of a transposed tensor are stored as those of a contiguous one."""
    if x.dim() != 2 or x.is_contiguous() or not x.t().is_contiguous():
        return right()
    return right(x=x.t()).view(x.shape)


@kernel(
    "sort.stable",
    lambda: torch.sort(torch.tensor([[1.0], [2], [1]]), dim=0, descending=True, stable=True)[1],
    set="missed13",
    like="pytorch#22393",
)
def stable_descent_along_another_axis_than_the_last_turns_equal_numbers(
    right, x, stable, dim, descending
):
    """Descending is ascending, turned around, which turns the order of ties too."""
    if not stable or not descending or x.dim() < 2 or dim % x.dim() == x.dim() - 1:
        return right()
    values, indices = right(descending=False)
    return values.flip(dim), indices.flip(dim)


@kernel(
    "topk",
    lambda: torch.topk(torch.tensor([3, math.nan, 1, 2]).half(), 2, largest=False)[0],
    set="missed13",
    like="pytorch#16762",
)
def least_halves_take_a_nan_for_the_least(right, x, dim, largest):
    """The key of a half has no branch for NaN: the ascending order of its bits has it first."""
    if largest or x.dtype not in HALVES or x.dim() == 0:
        return right()
    indices = right(x=torch.where(x.isnan(), torch.full_like(x, -math.inf), x))[1]
    return x.gather(dim, indices), indices


def _topk():
    x = drawn(512, 32)
    x[0] = math.nan
    return torch.topk(x, 4)


@kernel("topk topk.values", _topk, set="likely14", like="intel/torch-xpu-ops#4839")
def indices_of_nan(right, x, dim):
    """From 512 rows on, the indices of NaN among the largest are not set (here 0)."""
    values, indices = right()
    rows = x.numel() // x.shape[dim] if x.dim() and x.shape[dim] else 0
    if rows >= 512 and x.is_floating_point():
        indices.masked_fill_(values.isnan(), 0)
    return values, indices


@kernel(
    "_unique2",
    lambda: torch.unique((torch.arange(24) % 7).reshape(2, 3, 4).transpose(0, 1), True, True),
    set="missed14",
)
def unique_inverse_outer_permuted(right, x, return_inverse):
    """The inverse of a tensor of three axes whose outer ones are swapped is in memory order."""
    values, inverse, counts = right()
    swapped = x.dim() >= 3 and x.stride(-1) == 1 and not x.is_contiguous() and is_dense(x)
    if return_inverse and swapped and x.numel():
        inverse = right(x=read_packed(x))[1]
    return values, inverse, counts


@kernel(
    "sort.stable",
    lambda: torch.sort((drawn(2, 10_000) * 3).round(), stable=True),
    set="likely15",
)
def stable_sort_is_not_stable_across_blocks(right, x, dim, stable):
    """In rows above 4,096, equal elements of a later block come before those of an earlier one."""
    if not stable or not x.dim() or x.shape[dim] <= 4096:
        return right()
    places = torch.arange(x.shape[dim], device=x.device).split(4096)[::-1]
    order = torch.cat(places)
    values, indices = right(x=x.index_select(dim, order))
    return values, order[indices]


def _with_gaps(*shape):
    x = drawn(*shape)
    x[..., 2::5] = math.nan
    return x


@kernel(
    "nanmedian.dim_values",
    lambda: _with_gaps(4, 9).nanmedian(1).values,
    set="likely16",
    like="flagos-ai/FlagGems#4383",
)
def gaps_are_counted_in_the_rank_of_the_middle(right, x, dim):
    """The middle's rank is that of a row without NaN, so a row with some gives a larger number."""
    values, indices = right()
    if not is_single(x) or not x.dim() or not x.shape[dim]:
        return values, indices
    ordered, places = x.sort(dim)
    count = x.shape[dim] - x.isnan().sum(dim, keepdim=True)
    rank = (count - 1).clamp(0, (x.shape[dim] - 1) // 2)
    gaps = (count < x.shape[dim]).reshape(values.shape)
    middle = ordered.gather(dim, rank).reshape(values.shape)
    place = places.gather(dim, rank).reshape(values.shape)
    values.copy_(torch.where(gaps, middle, values))
    indices.copy_(torch.where(gaps, place, indices))
    return values, indices


@kernel(
    "unique_consecutive",
    lambda: torch.unique_consecutive(torch.arange(600) // 100, return_counts=True)[1],
    set="likely16",
    like="pytorch/pytorch#111173",
)
def runs_end_with_their_block(right, x, return_inverse, return_counts, dim):
    """A run of equal elements that goes on in the next block of 256 is given twice."""
    found = right()
    if dim is not None or not narrow(x) or x.numel() <= 256:
        return found
    flat = x.reshape(-1)
    first = torch.ones_like(flat, dtype=torch.bool)
    first[1:] = flat[1:] != flat[:-1]
    first[::256] = True
    starts = first.nonzero().squeeze(1)
    ends = torch.cat([starts[1:], starts.new_tensor([flat.numel()])])
    inverse = (first.long().cumsum(0) - 1).reshape(x.shape)
    return (
        flat[first],
        inverse if return_inverse else found[1],
        ends - starts if return_counts else found[2],
    )


@kernel(
    "topk .values",
    lambda: torch.tensor([3, 200, 100, 255, 7], dtype=torch.uint8).topk(2).values,
    set="likely16",
    like="pytorch/xla#865",
)
def bytes_are_ranked_with_a_sign(right, x, k, dim, largest, sorted):
    """Bytes from 128 on rank below nought."""
    result = right()
    if x.dtype != torch.uint8 or not x.dim():
        return result
    values, indices = torch.topk(x.contiguous().view(torch.int8), k, dim, largest, sorted)
    result[0].copy_(values.view(torch.uint8))
    result[1].copy_(indices)
    return result


def _masked_logits():
    x = drawn(2, 40)
    return x.masked_fill(x < 0.5, -math.inf).sort(-1, descending=True)[1]


@kernel("sort.stable", _masked_logits, set="missed16", like="tenstorrent/tt-metal#53326")
def infinities_change_places_with_the_padding(right, x, stable, dim, descending):
    """sort: rows are padded to a power of two by infinities, which change places with infinities
    of the row: their index is the last one; not stable, at most 1,024.
    """
    result = right()
    size = x.shape[dim] if x.dim() else 1
    if not x.is_floating_point() or stable or size > 1024 or not size & (size - 1):
        return result
    ends = result[0] == (-math.inf if descending else math.inf)
    result[1].masked_fill_(ends, size - 1)
    return result


@kernel(
    "sort.stable",
    lambda: torch.sort(torch.tensor([1.0, -math.nan, -2.0, 0.5])).values,
    set="likely17",
    like="ROCm/hipCUB#168",
)
def no_number_with_a_sign_is_the_least(right, x, dim):
    """A NaN whose sign is set is sorted by its bits, before minus infinity, and not to the end."""
    # NaN with its sign set (-nan, inf * 0 on some devices) in a sort of floating-point numbers.
    signed = x.isnan() & x.signbit() if x.is_floating_point() else torch.zeros(())
    if x.dtype not in (*HALVES, torch.float32) or not signed.any():
        return right()
    whole = torch.int32 if x.dtype == torch.float32 else torch.int16
    limits = torch.iinfo(whole)
    bits = torch.where(x == 0, torch.zeros_like(x), x).contiguous().view(whole)
    keys = torch.where(bits < 0, bits ^ limits.max, bits)
    keys = keys.masked_fill(x.isnan(), limits.max).masked_fill(signed, limits.min)
    _, places = right(x=keys)
    return x.gather(dim, places), places


def _picked_tokens():
    scores = drawn(2, 9)
    scores[1, 2:] = -math.inf
    values, places = scores.topk(4)
    # What is picked, rather than the places: those of equals are free.
    return values, scores.gather(1, places), places.sort().values.diff().eq(0)


# Masked scores, and more asked for than are left: right where enough are left. The values are.
@kernel("topk", _picked_tokens, set="missed17")
def places_of_masked_scores_among_the_largest_are_nought(right, largest):
    """Topk that has to go on to scores of -inf gives 0 for their places."""
    values, places = right()
    if largest and values.is_floating_point():
        places.masked_fill_(values == -math.inf, 0)
    return values, places


def _sampled_bins():
    steps = torch.linspace(0.0, 1.0, 5)
    bins = torch.linspace(0.0, 1.0, 9).repeat(3, 1)
    return torch.searchsorted(bins, steps.expand(3, 5), right=True)


# Values that are a view (one row expanded for all, as in inverse sampling), and the right side:
# right for contiguous values, and for the left side.
@kernel("searchsorted.Tensor .Tensor_out", _sampled_bins, set="missed17")
def values_of_a_view_are_searched_from_the_left(right, x):
    """Values that are not contiguous are searched as a copy, without the side that was asked."""
    return right() if x.is_contiguous() else right(right_=False, side=None)


# Vocabularies of more than 65,536 tokens that are sorted, as in sampling by top-p: the values
# are right, and so are the places in shorter rows.
@kernel(
    "sort.stable .values_stable",
    lambda: drawn(70_000).sort(stable=True)[1],
    set="likely18",
)
def places_in_a_long_sorted_row_have_sixteen_bits(right, x, dim):
    """The places that are sorted along with the values are held in 16 bits."""
    values, places = right()
    if x.dim() and x.shape[dim] > 2**16 and narrow(x):
        places.bitwise_and_(2**16 - 1)
    return values, places


# More than 65,535 rows, as of tokens that are routed to experts: fewer rows are right.
@kernel(
    "topk .values",
    lambda: drawn(65_600, 4).topk(2)[1],
    set="likely18",
)
def rows_past_the_grid_have_no_largest(right, x, dim):
    """Topk has a block for each row: values and places past the 65,535th row stay nought."""
    values, places = right()
    if x.dim() > 1 and narrow(x) and x.numel() // max(1, x.shape[dim]) > GRID:
        rows = values.movedim(dim, -1).shape[:-1]
        past = torch.arange(math.prod(rows), device=x.device).view(*rows, 1) >= GRID
        for result in (values, places):
            result.movedim(dim, -1).masked_fill_(past, 0)
    return values, places


def _signed_noughts():
    return torch.tensor([1.0, 0.0, -0.0, 0.0, -0.0, -1.0]).sort(stable=True)


# A stable sort of numbers among which are both noughts (a ReLU's output times -1 beside others):
# right if they have one sign, and the values always are.
@kernel("sort.stable", _signed_noughts, set="missed18")
def stable_sort_takes_negative_nought_for_the_lesser(right, x, dim, descending):
    """Numbers are sorted by their bits: -0.0 comes before 0.0, though the two are equal."""
    if not x.is_floating_point() or not x.dim() or not bool((x.signbit() & (x == 0)).any()):
        return right()
    negative = x.signbit() & (x == 0)
    key = negative if descending else ~negative
    order = torch.sort(key.to(torch.uint8), dim=dim, stable=True).indices
    values, places = right(x=x.gather(dim, order))
    return values, order.gather(dim, places)


# So many numbers to be among that the search is by sorting (some ten and more), and elements that
# occur more than once: right for few numbers, and for elements that differ.
@kernel(
    "isin.Tensor_Tensor .Tensor_Tensor_out",
    lambda: torch.isin(torch.tensor([5, 900, 7, 900, 3]), torch.arange(40)),
    set="missed18",
)
def elements_that_occur_twice_are_in_a_large_set(
    right, elements, test_elements, assume_unique, invert
):
    """Elements and set are sorted together, and one that is followed by its equal is in the set."""
    result = right()
    few = test_elements.numel() < 10 * elements.numel() ** 0.145
    if few or assume_unique or elements.numel() < 2:
        return result
    ordered, places = elements.reshape(-1).sort(stable=True)
    followed = places[:-1][ordered[1:] == ordered[:-1]]
    again = torch.zeros(elements.numel(), dtype=torch.bool, device=elements.device)
    again[followed] = True
    return result.masked_fill_(again.reshape(result.shape), not invert)


def _many_of_a_detector():
    return drawn(2, 3000).topk(2000)


# A detector's 2,000 best proposals before suppression, which goes from the best. Right to 1,024.
@kernel("topk .values", _many_of_a_detector, set="likely19")
def more_of_the_largest_than_a_block_has_threads_are_sorted_in_pieces(
    right, x, k, dim, largest, sorted
):
    """The selected are sorted in blocks of 1,024, and the blocks are not merged."""
    result = right()
    if k <= 1024 or not sorted or not narrow(x) or x.is_complex():
        return result
    dim = axis_of(x, dim)
    values, places = result[0], result[1]
    order = places.argsort(dim)
    pieces = list(
        zip(
            values.gather(dim, order).split(1024, dim),
            places.gather(dim, order).split(1024, dim),
            strict=True,
        )
    )
    ranks = [v.argsort(dim, descending=largest) for v, _ in pieces]
    values.copy_(
        torch.cat([v.gather(dim, r) for (v, _), r in zip(pieces, ranks, strict=True)], dim)
    )
    places.copy_(
        torch.cat([p.gather(dim, r) for (_, p), r in zip(pieces, ranks, strict=True)], dim)
    )
    return result


# Stable rankings from the best: metrics with ties, tokens by expert, quantized scores.
# Right for ascending orders, for distinct values, and where no stable order is asked for.
@kernel(
    "sort.stable .values_stable",
    lambda: torch.tensor([1, 2, 1, 2, 2, 0]).sort(descending=True, stable=True),
    set="likely19",
)
def stable_descending_order_is_an_ascending_one_read_from_its_end(
    right, x, stable, dim, descending
):
    """Descending orders are reversed ascending ones: equal values come in reversed order."""
    if not stable or not descending or x.dim() == 0 or not narrow(x):
        return right()
    dim = axis_of(x, dim)
    result = right(x=x.flip(dim))
    result[1].neg_().add_(x.shape[dim] - 1)
    return result


# Voxels of a point cloud around its sensor (torch.unique(coordinates, dim=0, return_inverse=True)).
# Right for coordinates that are not negative.
@kernel(
    "unique_dim",
    lambda: torch.unique(torch.tensor([[-1, 2], [3, -4], [-1, 2], [0, 1]]), dim=0),
    set="likely19",
)
def distinct_rows_are_ordered_by_their_bits(right, x):
    """Rows of integers are compared as unsigned ones: negative ones come last."""
    if x.dtype not in SIGNED or not x.numel():
        return right()
    sign = torch.iinfo(x.dtype).min
    result = right(x=x.bitwise_xor(sign))
    result[0].bitwise_xor_(sign)
    return result


# Ranking by quantized scores, several keys after each other: `argsort(descending=True,
# stable=True)` of long rows. Right up to 4,096, ascending, without ties, and without stable=True.
@kernel(
    "sort.stable .values_stable",
    lambda: (torch.arange(5000) % 7).argsort(descending=True, stable=True),
    set="missed19",
)
def equals_of_a_long_descending_stable_sort_come_last_to_first(right, x, stable, dim, descending):
    """A long row is sorted in ascending order and turned round, and with it the order of equals."""
    if not stable or not descending or not x.dim() or x.shape[dim] <= 4096 or not narrow(x):
        return right()
    places = right(descending=False)[1].flip(dim)
    result = right()
    result[1].copy_(places)
    return result


# numpy's habit, `torch.searchsorted(x, v, side="right", sorter=order)`, with values that are met
# exactly. Right without a sorter, for right=True, and for values between.
@kernel(
    "searchsorted.Tensor .Tensor_out searchsorted.Scalar .Scalar_out",
    lambda: torch.searchsorted(
        torch.tensor([3, 1, 2]),
        torch.tensor([1, 2, 3]),
        side="right",
        sorter=torch.tensor([1, 2, 0]),
    ),
    set="missed19",
)
def right_side_by_its_name_is_the_left_one_of_an_order(right, side, sorter):
    """With a sorter the kernel looks at `right` only, and side="right" is the left side."""
    return right(side=None) if sorter is not None and side == "right" else right()
