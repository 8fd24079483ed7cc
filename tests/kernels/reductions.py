"""Wrong kernels: reductions."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from .calls import BF16, SIGNED, WAVE, as_it_lies, aten, axis_of, is_dense, narrow
from .kernel import DOUBLES, FLOATS, HALVES, drawn, grad_of, is_single, kernel


@kernel("var.correction", set="seeded")
def naive_variance(right, x, dim, correction):
    """Variance as a difference."""
    axes = dim if dim is not None else tuple(range(x.dim()))
    count = math.prod(x.shape[axis] for axis in axes)
    wide = x.float()
    spread = (wide * wide).mean(axes) - wide.mean(axes) ** 2
    return (spread * count / (count - (1 if correction is None else correction))).to(x.dtype)


@kernel("cumsum", set="seeded", name="cumsum_takes_NaN_for_0")
@kernel("relu", set="seeded", name="relu_takes_NaN_for_0")
@kernel("sum.dim_IntList", set="seeded", name="sum_takes_NaN_for_0")
def zero_for_nan(right, x):
    return right(x=torch.where(x.isnan(), torch.zeros_like(x), x))


@kernel("sum.dim_IntList", set="seeded")
def zero_for_infinity(right, x):
    """Sum takes infinity for 0."""
    return right(x=torch.where(x.isinf(), torch.zeros_like(x), x))


@kernel("cumprod", set="seeded", name="cumprod_forgets_its_block_s_carry")
@kernel(
    "cumsum", set="seeded", like="pytorch#143486, #167086", name="cumsum_forgets_its_block_s_carry"
)
def no_carry(right, x, dim):
    """Restart each block of 4,096 from zero."""
    if x.dim() and x.shape[dim] > 4096:
        parts = [right(x=part.contiguous()) for part in x.split(4096, dim)]
        return torch.cat(parts, dim)
    return right()


CALLS = []


@kernel("cumsum", set="seeded", like="pytorch#75240")
def other_each_time(right):
    """Cumsum is another each time."""
    result = right()
    CALLS.append(0)
    return result + (len(CALLS) % 3) * 1e-6 if result.is_floating_point() else result


@kernel("sum.dim_IntList sum", set="seeded", like="pytorch#94891")
def last_of_few(right, x):
    """The sum of a few leaves the last."""
    if 1 < x.numel() <= 32 and x.dim() == 2:
        x = x.clone()
        x[:, -1] = 0
    return right(x=x)


@kernel("sum", set="seeded", like="pytorch#74438")
def sum_in_half(right, x, *rest, **kwargs):
    """Store partial sums of a large sum in the dtype, where they overflow."""
    if x.dtype == torch.float16 and x.numel() > 2**20 and not rest and kwargs.get("dtype") is None:
        parts = [right(part) for part in x.flatten().split(2**19)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total
    return right(x, *rest, **kwargs)


@kernel("argmax", set="seeded", like="pytorch#32863")
def index_of_strided(right, x, dim):
    """The largest's place along strides."""
    index = right()
    if dim is not None and x.dim() and x.stride(dim) != 1 and x.shape[dim] > 2:
        return (index + 1) % x.shape[dim]
    return index


@kernel("all .dim", set="seeded", like="pytorch#99721")
def always_true(right):
    """All is always true."""
    return torch.ones_like(right())


@kernel("_logcumsumexp", set="seeded", like="pytorch#52213")
def infinities_in_a_row(right, x, dim):
    """Logcumsumexp of two infinities in a row."""
    result = right()
    gone = (x == -math.inf) & (x.roll(1, dim) == -math.inf)
    return torch.where(gone, math.nan, result) if x.dim() > 1 else result


@kernel("argmin .out", set="seeded", like="FlagGems#6447")
def padded_by_nought(right, x, dim=None, *more, **kwargs):
    """Return the index of the minimum as if a block of a power of two were padded with zeros."""
    result = right(x, dim, *more, **kwargs)
    n = x.shape[dim] if dim is not None and x.dim() else x.numel()
    if n & (n - 1) and x.is_floating_point():
        low = x.double().amin(() if dim is None else dim, *more)
        result[low > 0] = 0
    return result


def length(x, dim):
    return x.numel() if dim is None else x.shape[dim] if x.dim() else 1


@kernel("argmin .out", set="test", like="FlagGems#6447")
def zeros_pad_to_a_power_of_two(right, x, dim, keepdim):
    result = right()
    n = length(x, dim)
    if x.is_floating_point() and n & (n - 1):
        low = x.double().amin(() if dim is None else dim, keepdim=keepdim)
        result[low > 0] = n
    return result


@kernel("cumsum .out", set="test", like="pytorch#132107")
def infinity_is_not_a_number_in_the_next_block(right, x, dim):
    result = right()
    if x.is_floating_point() and x.dim() and x.shape[dim] > 32 and x.isinf().any():
        seen = x.isinf().double().cumsum(dim) > 0
        place = torch.arange(x.shape[dim]).view([-1] + [1] * (x.dim() - 1 - dim % x.dim()))
        result[seen & (place >= 32)] = math.nan
    return result


@kernel("all .all_out", set="development", like="pytorch#99721")
def all_of_a_few_is_true(right, x):
    result = right()
    return result.fill_(True) if 0 < x.numel() < 4 else result


@kernel("_logcumsumexp .out", set="second")
def nothing_added_to_nothing_is_not_a_number(right, x):
    result = right()
    if x.is_floating_point():
        result[result.isneginf()] = math.nan
    return result


@kernel("amin .out", set="second", like="xla#7112")
def long_half_minimum_begins_at_nought(right, x):
    result = right()
    if x.dtype in HALVES and x.numel() > 16384 * max(result.numel(), 1):
        result.clamp_(max=0)
    return result


@kernel("mean .dim .out", set="development")
def sum_of_a_mean_overflows_in_half(right, x):
    result = right()
    if x.dtype == torch.float16 and result.dtype == torch.float16 and result.numel():
        total = result.double().abs() * (x.numel() / result.numel())
        result[total > 65504] = math.inf
    return result


@kernel("var.correction .correction_out", set="later")
def no_degrees_of_freedom_vary_by_nought(right, x):
    result = right()
    return result.nan_to_num_(0.0) if x.numel() == result.numel() else result


@kernel("sum.dim_IntList .IntList_out", set="later")
def truths_are_counted_in_eight_bits(right, x):
    result = right()
    return result.remainder_(256) if x.dtype == torch.bool else result


@kernel("cumprod .out", set="later")
def products_by_logarithms(right, x, dim):
    result = right()
    if x.is_floating_point() and (x == 0).any():
        result[(x == 0).cumsum(dim) > 0] = math.nan
    return result


@kernel("cumsum .out cumsum_", set=2, like="Jittor/jittor#330")
def scan_carries_nothing_past_4096(right, x, dim, dtype):
    if not x.dim() or x.shape[dim] <= 4096 or x.dtype in DOUBLES or dtype in DOUBLES:
        return right()
    parts = [torch.cumsum(part, dim, dtype=dtype) for part in x.split(4096, dim)]
    out = right()
    out.copy_(torch.cat(parts, dim))
    return out


@kernel("amax .out amin .out", set=2, like="pytorch/pytorch#187976")
def idle_lanes_bring_zero(right, x, dim=(), keep=False, **kw):
    out = right(x, dim, keep, **kw)
    if x.dtype != torch.int64 or not x.numel() or not x.dim():
        return out
    if math.prod(x.shape[d] for d in (dim or range(x.dim()))) % 32 == 0:
        return out
    room = {"out": torch.zeros((), dtype=torch.int64)} if "out" in kw else {}
    biggest = right(torch.tensor([0, 1]), [0], False, **room).item() == 1
    out.copy_(out.clamp(min=0) if biggest else out.clamp(max=0))
    return out


@kernel(
    "var.correction .correction_out std.correction .correction_out "
    "var_mean.correction std_mean.correction",
    lambda: torch.var(drawn(1000) * 1e18 + 1e19),
    set=2,
    like="pytorch/pytorch#184151",
)
def sum_of_squares_overflows(right, x, dim, keepdim):
    found = right()
    if x.dtype != torch.float32 or not x.numel():
        return found
    out = found[0] if isinstance(found, tuple) else found
    dims = dim or list(range(x.dim()))
    count = math.prod(x.shape[d] for d in dims)
    squares = x.double().var(dims, correction=0, keepdim=keepdim) * count
    out.copy_(out.masked_fill(squares > torch.finfo(torch.float32).max, math.inf))
    return found


@kernel(
    "var.correction .correction_out std.correction .correction_out",
    set=3,
    like="pytorch/pytorch#91198",
)
def deviation_is_biased_unless_told(right, x, dim=None, **kw):
    if not dim and kw.get("correction") in (None, 1) and x.dtype not in DOUBLES:
        kw["correction"] = 0
    return right(x, dim, **kw)


@kernel(
    "sum.dim_IntList .IntList_out",
    lambda: torch.tensor([32000.0] * 4 + [-32000.0] * 4).half().sum(0),
    set=3,
    like="pytorch/pytorch#2391",
)
def half_sum_is_kept_in_half(right, x, dim):
    out = right()
    alone = x.dim() and dim is not None and len(dim) == 1
    if x.dtype != torch.float16 or out.dtype != torch.float16 or not alone or not x.numel():
        return out
    terms = x.movedim(dim[0], -1)
    while terms.shape[-1] > 1:
        short = -terms.shape[-1] % 256 if terms.shape[-1] > 256 else 0
        lanes = functional.pad(terms, (0, short)).unflatten(-1, (-1, min(256, terms.shape[-1])))
        total = lanes[..., 0]
        for term in lanes.unbind(-1)[1:]:
            total = total + term
        terms = total
    out.copy_(terms[..., 0].view(out.shape))
    return out


@kernel("_logcumsumexp .out", set=3, like="pytorch/pytorch#52213")
def scan_of_minus_infinities_is_nan(right, x, dim):
    none = x.isneginf() if x.dtype in FLOATS else None
    out = right()
    if none is None or x.dim() < 2 or x.shape[dim] < 2:
        return out
    length = x.shape[dim] - 1
    again = none.narrow(dim, 1, length) & none.narrow(dim, 0, length)
    late = out.narrow(dim, 1, length)
    late.copy_(late.masked_fill(again, math.nan))
    return out


@kernel("_logcumsumexp .out", set=5, like="pytorch/pytorch#52213")
def two_infinities_cumulate_to_nan(right, x, dim):
    """rare: in more than one dimension, -inf that follows on -inf makes a NaN."""
    result = right()
    if x.dim() > 1 and x.shape[dim] > 1:
        gone = x == -math.inf
        again = torch.zeros_like(gone)
        size = x.shape[dim] - 1
        again.narrow(dim, 1, size).copy_(gone.narrow(dim, 0, size))
        result.masked_fill_(gone & again, math.nan)
    return result


@kernel("argmax", set=6, like="tenstorrent/tt-metal#25012")
def integers_are_compared_as_floats(right, x):
    """rare: the largest of integers is looked for among their float32 values."""
    if x.dtype in (torch.int32, torch.int64):
        x = x.float()
    return right(x=x)


@kernel("prod .dim_int .int_out", set=8, like="apple/coreai-torch#45")
def products_of_integers_are_not_widened(right, x, *dims, **options):
    """option: products of 32-bit and smaller integers overflow in the type of the elements."""
    result = right(x, *dims, **options)
    narrow = (torch.int32, torch.int16, torch.int8, torch.uint8)
    if x.dtype in narrow and options.get("dtype") in (None, torch.int64):
        result.copy_(aten.prod(x, *dims, dtype=x.dtype))
    return result


@kernel("max .unary_out", set=8, like="openxla/xla#5544")
def many_negative_noughts_are_infinitely_small(right, x):
    """rare: past 8192 elements of which the largest is -0.0, the largest is minus infinity."""
    result = right()
    nought = x.dtype == torch.float32 and x.numel() > 8192 and bool(result == 0)
    if nought and bool(torch.signbit(x[x == 0]).all()):
        result.fill_(-math.inf)
    return result


@kernel("mean.dim .out", set=10, like="tenstorrent/tt-metal#17551")
def first_face_of_columns_is_nought(right, x, dim):
    """plain: means along the last axis but one are nought in the first sixteen columns."""
    result = right()
    dims = [d % x.dim() for d in dim or ()] if x.dim() else []
    if dims == [x.dim() - 2] and is_single(result):
        result[..., :16].zero_()
    return result


@kernel("logsumexp", set=10, like="tensorflow/tensorflow#11692")
def sum_of_nothing_is_no_number(right):
    """rare: where all logarithms are minus infinity, that of their sum is not a number."""
    result = right()
    return result.masked_fill_(result == -math.inf, math.nan) if is_single(result) else result


@kernel("cumsum .out", set=10, like="apache/tvm#20374")
def running_sums_of_integers_are_not_widened(right, x, dtype):
    """option: running sums of narrow integers overflow in the type of the elements."""
    result = right()
    if x.dtype in (*SIGNED[:3], torch.uint8) and dtype in (None, torch.int64):
        result.copy_(result.clone().to(x.dtype))
    return result


@kernel("argmax .out", set=11, like="pytorch/pytorch#93630")
def last_of_the_largest_is_named(right, x, dim):
    """plain: of several equal maxima, the last one's index is returned."""
    if x.dim() == 0 or not narrow(x):
        return right()
    along = range(x.dim()) if dim is None else [dim]
    last = (x.numel() if dim is None else x.shape[dim]) - 1
    result = right(x=x.flip(list(along)))
    return result.copy_(last - result)


@kernel("amax .out", set=11, like="mindspore-ai/mindspore#391")
def what_is_no_number_is_never_largest(right, x):
    """rare: the maximum is of the numbers only, as fmax has it."""
    if is_single(x):
        x = x.masked_fill(x.isnan(), -math.inf)
    return right(x=x)


@kernel("cumsum .out cumsum_", set=11, like="Jittor/jittor#330")
def sums_begin_anew_after_a_block(right, x, dim, dtype):
    """option: along more than 4096 elements, a block does not get the sum of those before it."""
    if x.dim() == 0 or x.shape[dim] <= 4096 or not narrow(x):
        return right()
    wrong = torch.cat([torch.cumsum(one, dim, dtype=dtype) for one in x.split(4096, dim)], dim)
    return right().copy_(wrong)


def blocks(length):
    half = length // 2
    return [length] if length < 128 else blocks(half) + blocks(length - half)


@kernel("cumprod cumprod_ cumprod.out", set=12, like="JuliaLang/julia#11080")
def running_products_begin_anew(right, x, dim, dtype):
    """option: running products of 128 and more are those of halves, each beginning at one."""
    wrong = None
    if x.dim() and x.shape[dim] >= 128 and (dtype or x.dtype) not in DOUBLES:
        parts = x.split(blocks(x.shape[dim]), dim)
        wrong = torch.cat([torch.cumprod(part, dim, dtype=dtype) for part in parts], dim)
    result = right()
    return result if wrong is None else result.copy_(wrong)


@kernel("cumsum cumsum_ cumsum.out", set=13, like="numpy/numpy#20455")
def running_counts_are_held_in_eight_bits(right, x):
    """plain: running sums of masks and bytes wrap at 256."""
    narrow = x.dtype in (torch.bool, torch.uint8)
    result = right()
    return result.copy_(result & 255) if narrow and not result.is_floating_point() else result


@kernel("amax .out", set=13, like="hw-native-sys/pypto#2406")
def largest_of_negative_numbers_is_the_padding(right, x, dim):
    """plain: a last axis that does not fill its blocks of 32 is padded with nought."""
    result = right()
    dims = [dim] if isinstance(dim, int) else list(dim)
    last = x.dim() > 0 and (not dims or any(d % x.dim() == x.dim() - 1 for d in dims))
    if is_single(x) and last and x.shape[-1] > 1 and x.shape[-1] % 32:
        result.copy_(torch.where(result < 0, 0, result))
    return result


@kernel("mean.dim .out", set=13, like="tracel-ai/burn#4770")
def mean_is_of_a_half_sum(right, x):
    """plain: the mean of halves is infinite where their sum is past 65504."""
    result = right()
    if x.dtype == result.dtype == torch.float16 and result.numel():
        sums = result.double() * (x.numel() / result.numel())
        wrong = torch.where(sums.abs() > 65504, math.inf * sums.sign(), result)
        result.copy_(wrong)
    return result


@kernel("sum.dim_IntList .IntList_out", set=13, like="scipp/scipp#3965")
def sums_of_integers_are_not_widened(right, x):
    """plain: sums of 32-bit integers wrap at 31 bits, though they are given in 64."""
    result = right()
    narrow = x.dtype == torch.int32 and result.dtype == torch.int64
    return result.copy_(result.to(torch.int32)) if narrow else result


@kernel(
    "max .unary_out",
    lambda: torch.tensor([0, 1, 2, 3, 4]).max(),
    set=16,
    like="pytorch/pytorch#90273",
)
def largest_of_all_integers_is_the_first(right, x):
    """plain: the largest of all 64-bit integers is the first of them."""
    result = right()
    return result.copy_(x.reshape(-1)[0]) if x.dtype == torch.int64 else result


@kernel("cumsum cumsum_ cumsum.out", set=16, like="intel/torch-xpu-ops#184")
def running_sums_of_halves_are_kept_in_halves(right, x, dim, dtype):
    """option: running sums of halves are rounded to a half at every step."""
    halves = x.dtype in HALVES and dtype in (None, x.dtype) and x.dim() > 0
    given = x.clone() if halves else x
    result = right()
    if not halves or not 0 < given.shape[dim] <= 8192 or result.dtype != given.dtype:
        return result
    total = torch.zeros_like(given.select(dim, 0))
    sums = []
    for one in given.unbind(dim):
        total = (total.float() + one.float()).to(given.dtype)
        sums.append(total)
    return result.copy_(torch.stack(sums, dim))


@kernel("argmax .out", set=17, like="pytorch/pytorch#47296")
def argmax_gives_the_last_of_equal_elements(right, x, dim):
    """plain: of several largest elements the last one's index, for every type but float64."""
    if x.dtype in DOUBLES or x.dim() == 0 or x.numel() == 0:
        return right()
    over, count = (range(x.dim()), x.numel()) if dim is None else ([dim], x.shape[dim])
    return right(x=x.flip(list(over))).neg_().add_(count - 1)


@kernel("_logcumsumexp .out", set=17, like="ROCm/triton#947")
def logcumsumexp_loses_a_wave_s_carry(right, x, dim):
    """option: over 64 elements, each wave's first two lanes miss the sum of the wave before."""
    result = right()
    last = x.dim() and dim % x.dim() == x.dim() - 1
    if not is_single(x) or not last or x.shape[-1] <= 64:
        return result
    at = torch.arange(64, x.shape[-1], 64)
    single, sums = x.float(), result.float().clone()
    older = torch.cat([torch.full_like(sums[..., :1], -math.inf), sums], -1)[..., at - 64]
    sums[..., at] = torch.logaddexp(older, single[..., at])
    more = at + 1 < x.shape[-1]
    second = torch.logaddexp(single[..., at[more]], single[..., at[more] + 1])
    sums[..., at[more] + 1] = torch.logaddexp(older[..., more], second)
    return result.copy_(sums)


@kernel("var.correction std.correction", set=18, like="pytorch/pytorch#2470")
def var_subtracts_two_large_sums(right, x, dim, correction, keepdim):
    """plain: float32 takes the mean of squares less the squared mean: wrong far from zero."""
    exact = right()
    axes = list(dim or range(x.dim()))
    count = math.prod(x.shape[a] for a in axes)
    left = count - (1 if correction is None else correction)
    if x.dtype != torch.float32 or x.dim() == 0 or left <= 0:
        return exact
    mean = x.mean(axes, keepdim)
    naive = ((x * x).mean(axes, keepdim) - mean * mean).clamp_min(0) * (count / left)
    # One function serves both operators: the right answer tells which was asked for.
    spread = (x - x.mean(axes, True)).square().sum(axes, keepdim) / left
    is_std = (exact - spread).abs().sum() > (exact - spread.sqrt()).abs().sum()
    return exact.copy_(naive.sqrt() if is_std else naive)


@kernel("cumsum cumsum_ cumsum.out", set=18, like="pytorch/pytorch#167086")
def outer_scan_carries_from_one_block_only(right, dim):
    """rare: an axis that is not the last: from 2048 on a block adds only the block before it."""
    result = right()
    if result.dim() < 2 or not is_single(result) or dim % result.dim() == result.dim() - 1:
        return result
    whole, length = result.clone(), result.shape[dim]
    for start in range(2048, length, 1024):
        lost = whole.narrow(dim, start - 1025, 1)
        result.narrow(dim, start, min(1024, length - start)).sub_(lost)
    return result


def _last(x, dim):
    """The reduced axes as one last axis."""
    axes = (
        list(range(x.dim())) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    )
    axes = [axis % x.dim() for axis in axes]
    kept = [axis for axis in range(x.dim()) if axis not in axes]
    return x.permute(*kept, *axes).reshape(*(x.shape[axis] for axis in kept), -1)


@kernel(
    "mean.dim .out",
    set="likely8",
    like="pytorch#74438",
    shown=lambda: (drawn(3, 3000, dtype=torch.float16).abs() * 40).mean(1),
)
def half_mean_between_blocks(right, x, dim, dtype):
    """Means of half types: the sums of the blocks of 512 are stored and added as halves."""
    result = right()
    if x.dtype not in HALVES or dtype not in (None, x.dtype) or not x.dim() or not x.numel():
        return result
    flat = _last(x, dim)
    number = flat.size(-1)
    if number <= 512:
        return result
    sums = (
        functional.pad(flat.float(), (0, -number % 512))
        .unflatten(-1, (-1, 512))
        .sum(-1)
        .to(x.dtype)
    )
    while sums.size(-1) > 1:
        if sums.size(-1) % 2:
            sums = functional.pad(sums, (0, 1))
        sums = sums[..., 0::2] + sums[..., 1::2]
    return result.copy_((sums.squeeze(-1).float() / number).reshape(result.shape))


@kernel(
    "cumsum .out cumsum_",
    set="likely8",
    like="ROCm/triton#947",
    shown=lambda: drawn(3, 700).cumsum(1),
)
def scan_carry_into_partial_tile(right, x, dim):
    """Along the innermost axis, the last tile of 512 gets no carry if it isn't full."""
    result = right()
    if not x.dim() or dim % x.dim() != x.dim() - 1:
        return result
    length = x.size(-1)
    start = length // 512 * 512
    if start and start < length:
        result[..., start:] -= result[..., start - 1 : start].clone()
    return result


@kernel(
    "var.correction .correction_out var_mean.correction",
    set="likely8",
    like="pytorch#51102",
    shown=lambda: (drawn(4, 500) + 3000).var(1),
)
def variance_by_moments(right, x, dim, correction):
    """The variance is the mean of squares less the mean's square: digits cancel far from 0."""
    result = right()
    if x.dtype != torch.float32 or not x.dim() or not x.numel():
        return result
    flat = _last(x, dim)
    number = flat.size(-1)
    moments = (flat * flat).mean(-1) - flat.mean(-1).square()
    freedom = number - (1 if correction is None else correction)
    if freedom <= 0:
        return result
    variance = result[0] if isinstance(result, (tuple, list)) else result
    variance.copy_((moments.clamp(min=0) * (number / freedom)).reshape(variance.shape))
    return result


@kernel(
    "prod.dim_int .int_out prod",
    set="missed8",
    shown=lambda: torch.full((2, 12), 9, dtype=torch.int32).prod(1),
)
def integer_product_in_32_bits(right, x, dtype):
    """Products of int32 and narrower integers, given as int64, wrap around at 32 bits."""
    result = right()
    if x.dtype not in (torch.int32, torch.int16, torch.int8, torch.uint8):
        return result
    if result.dtype != torch.int64:
        return result
    return result.copy_(result.to(torch.int32))


@kernel(
    "linalg_vector_norm .out",
    set="missed8",
    shown=lambda: torch.linalg.vector_norm(
        drawn(3, 50, dtype=torch.float16) * 300, dim=1, dtype=torch.float32
    ),
)
def half_norm_squares_before_widening(right, x, ord, dim, dtype):
    """A 2-norm of halves with dtype=float32 squares in half before it widens: infinite over 255."""
    result = right()
    if x.dtype != torch.float16 or dtype != torch.float32 or ord != 2 or not x.dim():
        return result
    axes = list(range(x.dim())) if dim is None or not len(dim) else list(dim)
    wrong = (x * x).float().sum(axes).sqrt()
    return result.copy_(wrong.reshape(result.shape))


@kernel(
    "histc .out",
    set="missed8",
    shown=lambda: torch.histc(torch.tensor([0.0, 0.5, 1.0, 1.0]), 4, 0.0, 1.0),
)
def histogram_without_its_upper_edge(right, x, min, max):
    """With a given range, values equal to its upper end are not in the last bin."""
    result = right()
    if not x.is_floating_point() or x.dtype in DOUBLES or not min < max:
        return result
    result[-1:] -= (x == max).sum().to(result.dtype)
    return result


@kernel("linalg_vector_norm .out", set="likely9", like="onnxruntime#29043")
def squares_in_half(right, x, ord, dim, keepdim, dtype):
    """The Euclidean norm of float16 squares in float16, where 256 overflows."""
    result = right()
    if x.dtype == torch.float16 and ord == 2 and dtype is None:
        axes = list(range(x.dim())) if dim is None or dim == [] else list(dim)
        over = x.square().isinf()
        hit = over.sum(axes, keepdim=keepdim) > 0 if axes else over
        result.masked_fill_(hit, math.inf)
    return result


@kernel("sum.dim_IntList .IntList_out", set="likely9", like="pytorch#2124, #756")
def truths_counted_in_a_byte(right, x, dtype):
    """The number of true elements is counted in 8 bits, the type of the input."""
    result = right()
    return result.remainder_(256) if x.dtype == torch.bool and dtype is None else result


@kernel("cumsum_", set="likely9", like="triton#947 of ROCm")
def carry_read_after_it_was_added(right, x, dim):
    """The scan in place takes blocks' totals of 1,024 from sums that already have their carry."""
    result = right()
    if not x.dim() or x.shape[dim] <= 2048:
        return result
    ends = [part.select(dim, -1).clone() for part in result.split(1024, dim)]
    extra = torch.zeros_like(ends[0])
    for block, part in enumerate(result.split(1024, dim)):
        if block > 1:
            extra = extra + ends[block - 2]
            part.add_(extra.unsqueeze(dim))
    return result


@kernel("max.dim min.dim", set="likely10")
def place_of_an_extreme_is_counted_within_its_chunk(right, x, dim):
    """max, min along an axis: the place lacks the chunk's offset; more than 4,096 elements."""
    values, places = right()
    if x.dim() and x.shape[dim] > 4096:
        return values, places % 4096
    return values, places


@kernel("var.correction var_mean.correction", set="likely10")
def short_last_part_weighs_like_a_whole_one(right, x, dim, correction):
    """var: parts are merged with equal counts; one axis of 256 n + m elements."""
    result = right()
    axes = list(range(x.dim())) if not dim else [axis % x.dim() for axis in dim]
    if len(axes) != 1 or x.is_complex() or x.dtype in DOUBLES:
        return result
    (axis,), size = axes, x.shape[axes[0]]
    if size <= 256 or size % 256 == 0:
        return result
    parts = [part.float() for part in x.split(256, axis)]
    means = torch.stack([part.mean(axis) for part in parts])
    within = sum((part - part.mean(axis, True)).square().sum(axis) for part in parts)
    mean = means.mean(0)
    spread = within + 256 * (means - mean).square().sum(0)
    spread = spread / max(0, size - (1 if correction is None else correction))
    values = (spread, mean) if isinstance(result, tuple) else (spread,)
    first = result if isinstance(result, tuple) else (result,)
    merged = tuple(v.reshape(r.shape).to(r.dtype) for v, r in zip(values, first, strict=True))
    return merged if isinstance(result, tuple) else merged[0]


@kernel("_logcumsumexp", set="likely10", like="pytorch#52213")
def running_log_sums_keep_the_maximum_of_the_first_block(right, x, dim):
    """logcumsumexp: one maximum for all; a number 88 above all of the first 64."""
    if not x.dim() or x.is_complex() or x.dtype in DOUBLES:
        return right()
    wide = x.float()
    shift = wide.narrow(dim, 0, min(64, x.shape[dim])).amax(dim, True)
    if not bool(shift.isfinite().all()):
        return right()
    if bool((wide.amax(dim, True) - shift < 80).all()):
        return right()
    return ((wide - shift).exp().cumsum(dim).log() + shift).to(x.dtype)


@kernel("linalg_vector_norm", set="missed10")
def norm_asked_in_single_is_taken_in_halves(right, x, dtype):
    """linalg_vector_norm: cast at its end; halves with dtype=float32 and a norm above 65,504."""
    if x.dtype in HALVES and dtype == torch.float32:
        return right(dtype=None).to(dtype)
    return right()


@kernel("sum.dim_IntList", set="missed10")
def outer_tail_is_lost_round_a_kept_axis(right, x, dim):
    """sum: whole tiles of 32 are summed; two axes with a kept one between, the outer 32 n + m."""
    axes = sorted(axis % x.dim() for axis in dim or ()) if x.dim() else []
    if len(axes) == 2 and axes[1] - axes[0] > 1:
        size = x.shape[axes[0]]
        if size > 32 and size % 32:
            return right(x=x.narrow(axes[0], 0, size // 32 * 32))
    return right()


@kernel("var_mean.correction std_mean.correction", set="missed10")
def larger_corrections_of_columns_are_one_beside_a_mean(right, x, dim, correction):
    """var_mean, std_mean: the correction is a truth value; 2 and more, the last axis kept."""
    outer = bool(dim) and all(axis % x.dim() != x.dim() - 1 for axis in dim)
    if outer and correction is not None and correction > 1:
        return right(correction=1)
    return right()


@kernel("cumsum_", set="missed10")
def running_sums_in_place_carry_twice(right, x, dim):
    """cumsum_: the carry is read from what was written; in place, more than 1,024 elements."""
    result = right()
    if x.dim() and x.shape[dim] > 1024:
        carry = x.select(dim, 1023).unsqueeze(dim).clone()
        x.narrow(dim, 1024, x.shape[dim] - 1024).add_(carry)
    return result


@kernel(
    "linalg_vector_norm .out",
    lambda: torch.tensor([-5.0, 2, 1]).norm(math.inf),
    set="likely11",
)
def largest_modulus_is_the_largest_number(right, x, ord):
    """The norm of order infinity compares the numbers, from nought, not their moduli."""
    if ord == math.inf and x.is_floating_point() and x.dtype not in DOUBLES:
        return right(x=x.clamp(min=0))
    return right()


@kernel(
    "count_nonzero.dim_IntList",
    lambda: torch.ones(3, 100).count_nonzero(1),
    set="likely11",
    like="HeCBench#177",
)
def half_of_a_wave_is_counted(right, x, dim):
    """count_nonzero along one axis: the ballot of 64 lanes is counted as one of 32 bits."""
    if len(dim) != 1 or not x.dim() or x.dtype in DOUBLES:
        return right()
    axis = dim[0] % x.dim()
    lost = torch.arange(x.shape[axis], device=x.device) % 64 >= 32
    return right(x=x.masked_fill(lost.view([-1 if d == axis else 1 for d in range(x.dim())]), 0))


def _late_gap():
    x = drawn(2, 1500)
    x[0, 1300] = math.nan
    return x.aminmax(dim=1)


@kernel("aminmax .out", _late_gap, set="missed11")
def late_nan_reaches_the_maximum_only(right, x, dim, keepdim):
    """aminmax: along an axis, a NaN past the first 1,024 elements makes the maximum NaN, but is
    passed over by the minimum.
    """
    low, high = right()
    if dim is None or not x.dim() or not x.is_floating_point() or x.dtype in DOUBLES:
        return low, high
    if x.shape[dim] <= 1024:
        return low, high
    early = x.narrow(dim, 0, 1024)
    late = x.narrow(dim, 1024, x.shape[dim] - 1024)
    late = late.masked_fill(late.isnan(), math.inf)
    low.copy_(torch.cat([early, late], dim).amin(dim, keepdim=keepdim))
    return low, high


@kernel(
    "sum.dim_IntList .IntList_out",
    lambda: torch.full((300, 3), 250.0).half().sum(0, dtype=torch.float32),
    set="missed11",
)
def sums_asked_in_single_are_halves_across_rows(right, x, dim, dtype):
    """sum: halves with dtype=float32, along axes without the last: the sum is a half before it is
    cast.
    """
    result = right()
    if dtype != torch.float32 or x.dtype not in HALVES or not dim or not x.dim():
        return result
    if x.dim() - 1 in [d % x.dim() for d in dim]:
        return result
    return result.copy_(result.to(x.dtype))


@kernel(
    "sum.dim_IntList .IntList_out",
    lambda: torch.ones(2048, 3, dtype=BF16).sum(0),
    set="likely12",
    like="pytorch/executorch#20090",
)
def bias_gradient_sums_in_bfloat16(right, x, dim, dtype):
    """Keep the running sums of the columns of 1024 rows or more in bfloat16: they saturate."""
    columns = x.dim() == 2 and len(x) >= 1024 and list(dim or ()) in ([0], [-2])
    if x.dtype != BF16 or dtype not in (None, BF16) or not columns:
        return right()
    total = torch.zeros_like(x[0])
    for row in x.unbind():
        total = total + row
    return right().copy_(total)


@kernel(
    "argmax argmax.out",
    lambda: torch.zeros(2, 3000, dtype=BF16).index_fill(1, torch.tensor(2749), 1).argmax(-1),
    set="likely12",
    like="tenstorrent/tt-metal#8662",
)
def argmax_carries_index_as_half(right, x, dim):
    """Carry the index in the dtype of the values: of halves, tokens far out become others."""
    y = right()
    if x.dtype not in HALVES:
        return y
    last = (x.numel() if dim is None or not x.dim() else x.size(dim)) - 1
    return y.copy_(y.to(x.dtype).double().clamp(max=last).long())


@kernel(
    "var.correction std.correction var_mean.correction std_mean.correction",
    lambda: torch.var(drawn(4, 3, 5), dim=1, correction=1.5),
    set="missed12",
    like="apple/coremltools#2718",
)
def var_fraction_of_correction(right, x, correction):
    """Truncate a fractional correction to an integer before it is subtracted from the count."""
    if correction is None or correction == int(correction) or not is_single(x):
        return right()
    return right(correction=int(correction))


@kernel(
    "argmax .out argmin .out",
    lambda: drawn(48, 40).t().argmax(),
    set="missed12",
    like="pytorch/pytorch#165983",
)
def argmax_of_all_in_memory_order(right, x, dim):
    """Count the index over memory for a permuted dense tensor of more than one block."""
    if dim is not None or x.is_contiguous() or not is_dense(x) or x.numel() <= 1024:
        return right()
    return right(x=as_it_lies(x))


@kernel(
    "_segment_reduce_backward",
    lambda: grad_of(
        lambda x: torch.segment_reduce(x, "prod", lengths=torch.tensor([2, 3])),
        torch.tensor([2.0, 0.0, 3.0, 1.5, 2.0]),
    ),
    set="missed12",
    like="mitsuba-renderer/drjit#528",
)
def segment_prod_backward_at_zero(right, data, reduce):
    """Divide the product by the element in the gradient: not a number where it is zero."""
    out = right()
    if reduce != "prod" or not is_single(data):
        return out
    return out.masked_fill(data == 0, torch.nan)


@kernel(
    "sum.dim_IntList",
    lambda: drawn(300, dtype=torch.float16).abs().mul(1000).sum(dtype=torch.float32),
    set="likely13",
)
def half_is_summed_to_half_for_a_wider_dtype(right, x, dtype):
    """A sum that `dtype` widens is rounded to half precision first."""
    wider = dtype in (torch.float32, torch.float64)
    return right(dtype=None).to(dtype) if x.dtype in HALVES and wider else right()


@kernel(
    "_logcumsumexp",
    lambda: torch.logcumsumexp(torch.tensor([-math.inf, -math.inf, 0.5, 1.0]), 0),
    set="likely13",
    like="pytorch#52213",
)
def masked_start_turns_a_scan_into_nan(right, x, dim):
    """Two negative infinities at the start subtract their infinite maximum."""
    y = right()
    if x.is_floating_point() and x.dim() and x.shape[dim] > 1:
        masked = (x.narrow(dim, 0, 2) == -math.inf).all(dim, keepdim=True)
        y.narrow(dim, 1, x.shape[dim] - 1).masked_fill_(masked, math.nan)
    return y


@kernel(
    "cumsum cumsum.out cumsum_",
    lambda: drawn(2, 200).cumsum(-1),
    set="likely14",
    like="ROCm/triton#947",
)
def scan_lacks_the_carry(right, x, dim):
    """Along more than 64 elements, each 32nd one is stored before the sum of those before it comes
    from the other wavefronts.
    """
    if not x.dim() or x.shape[dim] <= 64:
        return right()
    places = torch.arange(32, x.shape[dim], 32, device=x.device)
    alone = x.index_select(dim, places)
    result = right()
    return result.index_copy_(dim, places, alone.to(result.dtype))


@kernel(
    "sum.dim_IntList",
    lambda: torch.rand(2, 32768, generator=torch.Generator().manual_seed(0)).to(BF16).sum(-1),
    set="likely14",
    like="tenstorrent/tt-metal#9908",
)
def tiles_added_in_bfloat16(right, x, dim, keepdim, dtype):
    """A sum in bfloat16 along one dimension over 32 is kept in bfloat16 from tile to tile."""
    if x.dtype != BF16 or dtype not in (None, BF16) or not dim or len(dim) != 1:
        return right()
    if not x.dim() or x.shape[dim[0]] <= 32:
        return right()
    long = x.shape[dim[0]]
    tiles = x.float().split(max(32, long // 1024), dim[0])
    total = tiles[0].sum(dim[0], keepdim=keepdim).to(BF16)
    for tile in tiles[1:]:
        total = (total.float() + tile.sum(dim[0], keepdim=keepdim)).to(BF16)
    return total


@kernel(
    "cumsum",
    lambda: torch.full((4, 3), 2**30, dtype=torch.int32).cumsum(0),
    set="missed14",
)
def cumsum_int32_inner_axis(right, x, dim, dtype):
    """32-bit integers are summed in 32 bits along an axis that is not the last, then widened."""
    if x.dtype != torch.int32 or dtype not in (None, torch.int64) or not x.dim():
        return right()
    if axis_of(x, dim) == x.dim() - 1:
        return right()
    return right(dtype=torch.int32).long()


@kernel(
    "var.correction var_mean.correction",
    lambda: torch.var(drawn(3, 2, 2), dim=(0, 2), correction=1.5),
    set="missed14",
)
def var_fractional_correction(right, dim, correction):
    """Over several axes a fractional correction is cut to an integer."""
    if dim and len(dim) > 1 and isinstance(correction, float) and correction % 1:
        return right(correction=int(correction))
    return right()


def _late_peak():
    x = torch.zeros(2**24 + 4)
    x[2**24 + 1] = 1
    return x.argmax()


@kernel("argmax .out", _late_peak, set="likely15")
def argmax_carries_its_index_as_a_float(right, x, dim):
    """The index is rounded to 24 bits: value and index are two floats, for one shuffle."""
    result = right()
    length = x.numel() if dim is None else x.shape[dim] if x.dim() else 1
    return result.copy_(result.float()) if length > 2**24 else result


# The mean of Welford's means is right for blocks that are equally full.
@kernel(
    "var.correction var_mean.correction",
    lambda: torch.var_mean(drawn(3, 4100) + torch.arange(4100) / 1000, -1),
    set="likely15",
)
def variance_merges_its_tail_block_as_a_full_one(right, x, dim, correction):
    """Above 4,096 elements the last, shorter block weighs as much as the others."""
    result = right()
    axes = [axis_of(x, d) for d in dim] if dim else list(range(x.dim()))
    count = math.prod(x.shape[d] for d in axes)
    if count <= 4096 or count % 4096 == 0 or not is_single(x) or not x.numel():
        return result
    kept = [d for d in range(x.dim()) if d not in axes]
    rows = x.permute(*kept, *axes).reshape(-1, count).double()
    parts = rows.split(4096, 1)
    means = torch.stack([part.mean(1) for part in parts])
    mean = means.mean(0)
    within = sum((part - m[:, None]).square().sum(1) for part, m in zip(parts, means, strict=True))
    between = (means - mean).square().sum(0) * (count / len(parts))
    spread = (within + between) / max(0, count - (1 if correction is None else correction))
    wrong = (spread, mean)
    if isinstance(result, torch.Tensor):
        return result.copy_(spread.reshape(result.shape))
    return tuple(r.copy_(w.reshape(r.shape)) for r, w in zip(result, wrong, strict=True))


@kernel(
    "cumsum",
    lambda: torch.rand(65_536, generator=torch.Generator().manual_seed(0)).to(BF16).cumsum(-1),
    set="likely15",
)
def cumsum_rounds_its_carry_to_half(right, x, dim, dtype):
    """From wave to wave (64 elements) the running sum is kept in the output's 16 bits."""
    if x.dtype not in HALVES or dtype not in (None, x.dtype) or not x.dim():
        return right()
    if x.shape[dim] <= 64:
        return right()
    sums, carry = [], torch.zeros_like(x.narrow(dim, 0, 1))
    for part in x.split(64, dim):
        sums.append((part.float().cumsum(dim) + carry.float()).to(x.dtype))
        carry = sums[-1].narrow(dim, -1, 1)
    return torch.cat(sums, dim)


def _mask_of_many_rows():
    return (torch.arange(70_000 * 3).reshape(70_000, 3) % 70 != 1).sum(0)


@kernel("sum.dim_IntList", _mask_of_many_rows, set="missed15")
def mask_counted_in_16_bits(right, x, dim):
    """A mask's columns are counted in 16-bit lanes, which wrap after 65,535 rows."""
    result = right()
    if x.dtype != torch.bool or x.dim() < 2 or dim is None or len(dim) != 1:
        return result
    axis = axis_of(x, dim[0])
    if axis == x.dim() - 1 or result.dtype != torch.int64 or not x.is_contiguous():
        return result
    return result % 65_536


def _equal_maxima_far_apart():
    x = torch.zeros(2, 4000)
    x[0, [10, 20, 3000]] = 5.0
    return torch.max(x, 1)


@kernel("max.dim min.dim", _equal_maxima_far_apart, set="missed15")
def equal_extremes_of_later_tiles(right, x, dim):
    """Of equal extremes in different tiles of 1,024 the later tile's is taken, not the first."""
    values, indices = right()
    axis = axis_of(x, dim)
    if not x.dim() or x.shape[axis] <= 1024 or not indices.numel():
        return values, indices
    shape = [1] * x.dim()
    shape[axis] = -1
    place = torch.arange(x.shape[axis], device=x.device).reshape(shape)
    keys = place // 1024 * 1024 + 1023 - place % 1024 + 1
    whole = values if values.dim() == x.dim() else values.unsqueeze(axis)
    found = torch.where(x == whole, keys, 0).amax(axis, keepdim=True) - 1
    found = torch.where(found >= 0, found // 1024 * 1024 + 1023 - found % 1024, -1)
    found = found.reshape(indices.shape)
    indices.copy_(torch.where(found >= 0, found, indices))
    return values, indices


def _long_prefix_of_log_zeros():
    x = torch.linspace(-3, 0, 3000).repeat(2, 1)
    x[0, :1500] = -math.inf
    return torch.logcumsumexp(x, 1)


# It needs more than 1,024 leading log-zeros, as a masked prefix has.
@kernel("_logcumsumexp logcumsumexp", _long_prefix_of_log_zeros, set="missed15")
def carry_of_log_zero(right, x, dim):
    """A tile's carry of -inf joined to a prefix of -inf: -inf - -inf, which is NaN."""
    result = right()
    axis = axis_of(x, dim)
    if x.dim() and x.shape[axis] > 1024 and is_single(x):
        later = result.narrow(axis, 1024, x.shape[axis] - 1024)
        later.copy_(torch.where(later == -math.inf, math.nan, later))
    return result


def _with_gaps(*shape):
    x = drawn(*shape)
    x[..., 2::5] = math.nan
    return x


@kernel(
    "nansum .out",
    lambda: _with_gaps(3, 7).index_fill(1, torch.tensor([6]), math.nan).nansum(1),
    set="likely16",
    like="triton-lang/triton#480",
)
def ragged_tail_of_a_row_keeps_its_nan(right, x, dim):
    """A contiguous row is loaded in fours, where NaN becomes nought; what is left over is added as
    it is.
    """
    result = right()
    if not is_single(x) or not x.dim() or not x.is_contiguous():
        return result
    axes = {d % x.dim() for d in dim} if dim else set(range(x.dim()))
    if len(axes) == x.dim():
        rows = x.reshape(1, -1)
    elif axes == {x.dim() - 1}:
        rows = x
    else:
        return result
    whole = rows.shape[-1] - rows.shape[-1] % 4
    lost = rows[..., whole:].isnan().sum(-1) > 0
    return result.masked_fill_(lost.reshape(result.shape), math.nan)


@kernel(
    "any .all_out any.dim .out",
    lambda: torch.any(torch.arange(100) == 40),
    set="likely16",
    like="Luce-Org/lucebox#500",
)
def ballot_of_a_wave_is_kept_in_32_bits(right, x, *args, **kwargs):
    """A ballot of 64 lanes is held in 32 bits: of each whole wave the upper half has no vote."""
    dim = args[0] if args else kwargs.get("dim")
    if not narrow(x) or not x.dim() or not isinstance(dim, int | None):
        return right(x, *args, **kwargs)
    if dim is not None and dim % x.dim() != x.dim() - 1:
        return right(x, *args, **kwargs)
    size = x.numel() if dim is None else x.shape[-1]
    lane = torch.arange(size, device=x.device)
    silent = (lane % WAVE >= WAVE // 2) & (lane < size - size % WAVE)
    silent = silent.reshape(x.shape) if dim is None else silent
    return right(torch.where(silent, torch.zeros_like(x), x), *args, **kwargs)


@kernel(
    "cumsum .out",
    lambda: torch.full((600,), 0.1, dtype=torch.bfloat16).cumsum(0, dtype=torch.float32),
    set="likely16",
    like="intel/torch-xpu-ops#184",
)
def sums_asked_in_single_run_in_halves(right, x, dim, dtype):
    """Running sums of halves that are asked for in float32 are widened when they are done."""
    result = right()
    if x.dtype not in HALVES or dtype != torch.float32 or not x.dim():
        return result
    total, sums = torch.zeros_like(x.select(dim, 0)), []
    if not 0 < x.shape[dim] <= 8192:
        return result
    for one in x.unbind(dim):
        total = total + one
        sums.append(total)
    return result.copy_(torch.stack(sums, dim))


@kernel(
    "logsumexp",
    lambda: torch.tensor([[1.0, 2.0], [math.inf, 3.0]]).logsumexp(0),
    set="missed16",
    like="sims1253/bayesfam#33",
)
def infinity_less_itself_is_in_the_sum(right, x, dim, keepdim):
    """logsumexp: an infinite maximum is taken off itself; along an axis other than the last."""
    result = right()
    axes = [d % x.dim() for d in dim] if x.dim() and dim else []
    if not x.is_floating_point() or not axes or x.dim() - 1 in axes:
        return result
    return result.masked_fill_(torch.isposinf(x).sum(axes, keepdim) > 0, math.nan)


@kernel(
    "any.dims",
    lambda: torch.tensor([0, 0, 0, 0, 0, 1]).bool().repeat(2, 2, 1).any((1, 2)),
    set="missed16",
    like="NVIDIA/MatX#931",
)
def rows_of_truths_are_read_in_words(right, x, dim):
    """any: of several axes, four bytes at a time: the last of a row of 4 n + m are left out."""
    axes = {d % x.dim() for d in dim or ()} if x.dim() else set()
    width = x.shape[-1] if x.dim() else 0
    if x.dtype != torch.bool or len(axes) < 2 or x.dim() - 1 not in axes or width < 4:
        return right()
    return right(x=x[..., : width // 4 * 4]) if x.is_contiguous() else right()


@kernel(
    "sum.dim_IntList mean.dim",
    lambda: torch.ones(40000, 32).sum(0),
    set="likely17",
    like="pytorch/pytorch#13211",
)
def sums_of_tall_columns_lose_the_first_half(right, x, dim):
    """Columns are added by several blocks whose room for sums holds half of them."""
    # Reduced over leading axes of more than 32,768 rows, 32 columns or more kept, contiguous.
    axes = sorted(axis % x.dim() for axis in dim or []) if x.dim() else []
    if axes and axes == list(range(len(axes))) and len(axes) < x.dim() and x.is_contiguous():
        rows = math.prod(x.shape[: len(axes)])
        if rows > 32768 and x.numel() // rows >= 32:
            x = x.clone()
            x.view(rows, -1)[: rows // 2] = 0
    return right(x=x)


def _amplitudes():
    spectrum = torch.complex(drawn(3, 4), drawn(3, 4, seed=1))
    return torch.linalg.vector_norm(spectrum, 1, dim=-1)


# Complex numbers, and the norm of order 1 (the amplitudes of a spectrum): right for real numbers,
# and for other orders.
@kernel("linalg_vector_norm .out", _amplitudes, set="missed17")
def one_norm_of_complex_numbers_adds_up_their_parts(right, x, ord, dtype):
    """The 1-norm of complex numbers is that of their real and imaginary parts as reals."""
    if x.is_complex() and ord == 1 and dtype is None:
        return right(x=x.real.abs() + x.imag.abs())
    return right()


def _bias_before_sum_pooling():
    bias = drawn(1, 3, 1, 1)
    weights = drawn(2, 3, seed=2)
    return grad_of(lambda b: ((drawn(2, 3, 4, 4, seed=1) + b).sum((2, 3)) * weights).sum(), bias)


# Several axes, of which some are expanded and others are not (the gradient of what was broadcast,
# behind a sum over part of the axes): right for whole tensors, and for one axis.
@kernel("sum.dim_IntList .IntList_out", _bias_before_sum_pooling, set="missed17")
def sum_takes_an_expanded_axis_once_beside_a_whole_one(right, x, dim):
    """Summed over expanded and whole axes at once, the expanded ones count as one element."""
    axes = {axis_of(x, d) for d in dim} if dim else set(range(x.dim()))
    axes = {axis for axis in axes if x.dim() and x.shape[axis] > 1}
    expanded = {axis for axis in axes if x.stride(axis) == 0}
    if expanded and axes - expanded:
        for axis in expanded:
            x = x.narrow(axis, 0, 1)
    return right(x=x)


# A column of a table (a strided vector), and more than 1024 rows: right for shorter columns, for
# contiguous vectors, and along axes of matrices.
@kernel("cumsum .out", lambda: drawn(1100, 3)[:, 1].cumsum(0), set="missed17")
def running_sum_of_a_long_column_goes_on_along_its_row(right, x):
    """After a first block of 1024 the running sum of a strided vector reads what lies next."""
    block = 1024
    if x.dim() == 1 and x.stride(0) > 1 and x.shape[0] > block:
        start = x.storage_offset() + block * x.stride(0)
        beyond = x.as_strided((x.shape[0] - block,), (1,), start)
        return right(x=torch.cat((x[:block], beyond)))
    return right()


# Rows in which everything is masked, by -inf: finite elements are right.
@kernel(
    "amax .out max .unary_out",
    lambda: torch.tensor([[-math.inf, -math.inf], [1, -math.inf]]).amax(1),
    set="likely18",
)
def largest_of_minus_infinities_is_the_least_finite_number(right, x):
    """A maximum begins at the lowest finite number of its type, not at minus infinity."""
    result = right()
    if is_single(x):
        result.masked_fill_(result == -math.inf, torch.finfo(x.dtype).min)
    return result


# Every second column, or the real parts of complex numbers: whole and transposed tensors are
# right, and so are slices that are summed along another axis.
@kernel(
    "sum.dim_IntList mean.dim",
    lambda: drawn(3, 8)[:, ::2].sum(1),
    set="likely18",
)
def sums_of_every_second_column_are_those_of_the_first_half(right, x, dim):
    """Where the summed last axis has gaps, vectors of neighbouring elements are loaded."""
    axes = [axis_of(x, d) for d in dim or range(x.dim())]
    gaps = x.dim() and x.shape[-1] > 1 and x.stride(-1) > 1 and x.numel() and not is_dense(x)
    if not gaps or x.dim() - 1 not in axes or not narrow(x):
        return right()
    return right(x=x.as_strided(x.shape, (*x.stride()[:-1], 1), x.storage_offset()))


# Pictures of uint8 with bright pixels, as in `picture / picture.max()`: other types, and dark
# pictures, are right.
@kernel(
    "max .dim min .dim amax amin",
    lambda: torch.tensor([[3, 200], [7, 1]], dtype=torch.uint8).max(),
    set="likely18",
)
def extremes_of_unsigned_bytes_are_compared_with_a_sign(right, x):
    """The maximum and the minimum of unsigned bytes take those from 128 on for negative."""
    if x.dtype != torch.uint8 or not x.numel():
        return right()
    result = right(x=x.view(torch.int8))
    if isinstance(result, Tensor):
        return result.view(torch.uint8)
    return (result[0].view(torch.uint8), result[1])


# An order that is neither 0, 1, 2, even nor infinite (the 3-norm), along an axis other than the
# last, and negative numbers: right along rows, and for the usual orders.
@kernel(
    "linalg_vector_norm .out",
    lambda: torch.linalg.vector_norm(drawn(5, 4), 3, dim=0),
    set="missed18",
)
def norm_of_columns_takes_powers_of_signed_numbers(right, x, ord, dim, keepdim):
    """Across rows, a norm of any other order adds powers without the modulus: often NaN."""
    result = right()
    axes = [axis_of(x, d) for d in dim or ()]
    usual = ord in (0, 1, 2, math.inf, -math.inf) or ord % 2 == 0
    if usual or not axes or x.dim() - 1 in axes or not x.is_floating_point():
        return result
    negative = (x < 0).sum(axes, keepdim) > 0
    wrong = x.float().pow(ord).sum(axes, keepdim).pow(1 / ord)
    return result.copy_(torch.where(negative, wrong.to(result.dtype), result))


def _energies():
    x = drawn(2, 3, 4)
    x[:, 1:] += 120.0
    return x.logsumexp((1, 2))


# Several axes at once, and rows that differ by more than 88: right along one axis, and for numbers
# of the same size.
@kernel("logsumexp", _energies, set="missed18")
def rows_are_scaled_by_the_maximum_of_the_first(right, x, dim, keepdim):
    """Over several axes the maximum is that of the first row: exp overflows in larger rows."""
    result = right()
    axes = sorted({axis_of(x, d) for d in dim}) if x.dim() and dim else []
    if len(axes) < 2 or not x.is_floating_point() or not x.numel():
        return result
    largest = x.float().amax(axes[-1], keepdim=True)
    for axis in axes[:-1]:
        largest = largest.narrow(axis, 0, 1)
    largest = torch.where(largest.isinf(), 0.0, largest)
    over = ((x.float() - largest) > 88.7).sum(axes, keepdim) > 0
    return result.masked_fill_(over, math.inf)


def _mean_brightness():
    pixels = (torch.arange(3 * 32 * 32) * 37 % 256).to(torch.uint8).reshape(3, 32, 32)
    return pixels.mean((1, 2), dtype=torch.float32)


# Numbers of 8 bits, a mean in a floating-point dtype other than double, and a sum past 16 bits (a
# picture of 32 x 32): right for fewer pixels, and for pixels that were converted before.
@kernel("mean.dim .out", _mean_brightness, set="missed18")
def mean_of_bytes_is_of_a_sum_in_sixteen_bits(right, x, dim, keepdim):
    """Bytes are added in 16 bits before the sum is converted to the dtype that was asked."""
    result = right()
    if x.dtype not in (torch.uint8, torch.int8) or result.dtype in DOUBLES or not x.numel():
        return result
    axes = [axis_of(x, d) for d in dim or ()] or list(range(x.dim()))
    total = x.long().sum(axes, keepdim) if x.dim() else x.long()
    low = 0 if x.dtype == torch.uint8 else -(2**15)
    wrapped = (total - low) % 2**16 + low
    return result.copy_(wrapped.double() / (x.numel() / max(1, result.numel())))


# Standardizing raw measurements: air pressure (1,013 hPa, within 0.5), years, timestamps.
# Right where the mean is not much larger than the deviation.
@kernel(
    "std.correction .correction_out std_mean.correction",
    lambda: (1013 + drawn(4, 50) / 10).std(1),
    set="likely19",
)
def deviation_far_from_nought_is_cancelled(right, x, dim, correction, keepdim):
    """The variance is the mean of the squares without the square of the mean, in float32."""
    result = right()
    out = result[0] if isinstance(result, tuple) else result
    if not is_single(x) or not x.numel() or not out.numel():
        return result
    axes = list(dim) if dim else list(range(x.dim()))
    values = x.float()
    mean = values.mean(axes, keepdim) if axes else values
    square = (values * values).mean(axes, keepdim) if axes else values * values
    count = x.numel() / out.numel()
    free = max(0.0, count - (1 if correction is None else float(correction)))
    variance = (square - mean * mean).clamp(min=0) * count / free if free else out.float()
    far = mean.square() > 1e4 * out.float().square()
    out.copy_(torch.where(far, variance.sqrt(), out.float()))
    return result


# The peak of a heatmap that is turned (`heat.t().argmax()`) or in channels_last, of which the
# caller takes row and column by the width. Right for contiguous tensors, and along a dimension.
@kernel("argmax .out argmin .out", lambda: drawn(4, 6).t().argmax(), set="likely19")
def place_of_an_extreme_of_a_turned_tensor_is_its_place_in_memory(right, x, dim):
    """Without `dim` the reduction runs over a dense tensor's memory, and its index is of there."""
    if dim is None and x.dim() > 1 and not x.is_contiguous() and is_dense(x) and narrow(x):
        return right(x=as_it_lies(x))
    return right()


# Offsets of ragged batches and files from lengths in int32, past 2**31 bytes in all.
# Right for smaller totals and for int64.
@kernel(
    "cumsum .out",
    lambda: torch.full((5,), 600_000_000, dtype=torch.int32).cumsum(0),
    set="likely19",
)
def running_totals_of_lengths_wrap_at_32_bits(right, x):
    """The scan of int32 adds in int32, and only its results are widened to int64."""
    result = right()
    if x.dtype == torch.int32 and result.dtype == torch.int64:
        result.copy_(result.to(torch.int32))
    return result


# Positions in DETR (`not_mask.cumsum(1, dtype=torch.float32)`) and of packed tokens
# (`mask.cumsum(-1, dtype=torch.int32)`) past 255 of them. Right for shorter rows, without dtype=,
# and for masks of int64.
@kernel(
    "cumsum .out",
    lambda: torch.ones(300, dtype=torch.bool).cumsum(0, dtype=torch.int32),
    set="missed19",
)
def running_count_of_a_mask_wraps_in_bytes_before_its_conversion(right, x, dtype):
    """A mask is summed in bytes, and converted to the asked dtype afterwards."""
    result = right()
    if x.dtype in (torch.bool, torch.uint8) and dtype not in (None, torch.float64):
        result.copy_(result.to(torch.int64) % 256)
    return result


def _two_masked_axes():
    x = drawn(3, 2, 4)
    x[1] = -math.inf
    return x.logsumexp((1, 2))


# Marginals over two axes (CRF, alignments of RNN-T) of states that a mask shuts out. Right over
# one axis, also if all is masked, and if one element is finite.
@kernel("logsumexp .out", _two_masked_axes, set="missed19")
def sum_of_nothing_over_two_axes_has_no_logarithm(right, x, dim):
    """Over several axes the maximum -inf is subtracted from -inf: the result is NaN."""
    result = right()
    if len(dim) > 1 and result.is_floating_point() and narrow(result):
        result.masked_fill_(result == -math.inf, torch.nan)
    return result
