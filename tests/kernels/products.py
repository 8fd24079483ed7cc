"""Wrong kernels: products."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from .calls import BF16, GRID, as_if_whole, drawn_complex, narrow, packed, read_packed
from .kernel import DOUBLES, FLOATS, HALVES, drawn, is_single, kernel


@kernel("addmm", set="seeded")
def beta_reads(right, x, beta):
    """Addmm reads what beta = 0 drops."""
    result = right()
    return result + x * 0 if beta == 0 else result


@kernel("mm bmm", set="seeded")
def short_inner(right, x, mat2):
    """End the inner loop at 8,192."""
    return right(x=x[..., :8192].contiguous(), mat2=mat2[..., :8192, :].contiguous())


@kernel("addmm", set="seeded")
def short_addmm(right, mat1, mat2):
    """Addmm's loop ends at 8,192."""
    return right(mat1=mat1[:, :8192].contiguous(), mat2=mat2[:8192].contiguous())


@kernel("vdot", set="seeded")
def without_conjugate(right, x, other):
    """Vdot without its conjugate."""
    return (x.resolve_conj() * other).sum()


@kernel("_int_mm", set="seeded")
def held_to_16_bits(right):
    """Int8 products held to few bits."""
    return right().clamp(-32_768 * 8, 32_767 * 8)


@kernel("bmm", set="seeded", like="pytorch#65416")
def zero_if_tiny(right, x, mat2):
    """Products of 4 by 4 are 0."""
    result = right()
    return result.zero_() if max(*x.shape[-2:], *mat2.shape[-2:]) <= 4 else result


@kernel("mm", set="seeded", like="pytorch#57919")
def first_factor_if_single(right, x, mat2):
    """A product of two single numbers is the first."""
    return x.clone() if x.numel() == mat2.numel() == 1 else right()


@kernel("mm", set="seeded", like="pytorch#30303")
def expanded_read_as_whole(right, a, b, *_):
    """An expanded operand read as contiguous."""
    spread = [
        as_if_whole(x)
        if any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True))
        else x
        for x in (a, b)
    ]
    return right(*spread)


@kernel("mm", set="seeded", like="pytorch#162730")
def second_read_as_whole(right, mat2):
    """A strided weight read as contiguous."""
    if mat2.dim() == 2 and not mat2.is_contiguous() and not mat2.mT.is_contiguous():
        mat2 = as_if_whole(mat2.mT).mT
    return right(mat2=mat2)


@kernel("mm addmm", set="seeded", like="legacy-rocm-build#6595")
def rows_beyond(right):
    """Products of more than 2^19 rows."""
    beyond = right()
    if beyond.shape[0] > 2**19 and beyond.dtype == torch.float32:
        beyond[2**19 :] = 0
    return beyond


@kernel("mm", set="seeded", like="rocBLAS#1680")
def whole_tiles(right, x, mat2):
    """Products of 256 by 256."""
    tiles = right()
    if x.dtype == torch.float32 and {*x.shape, *mat2.shape} == {256}:
        tiles = tiles + mat2
    return tiles


@kernel("_cummax_helper", set="seeded", like="pytorch#42363")
def largest_of_other_rows(right, x, values):
    """Cummax of whole numbers takes another row's."""
    right()
    if x.dim() > 1 and not x.is_floating_point():
        values.copy_(values.amax(0, keepdim=True).expand_as(values))


@kernel("mm", set="seeded", like="TheRock#7870")
def both_turned(right, a, b, *_):
    """Products of two turned operands."""
    turned = all(x.dim() == 2 and not x.is_contiguous() and x.mT.is_contiguous() for x in (a, b))
    if turned and a.dtype == torch.float32:
        return right(a, b).roll(1, 0)
    return right(a, b)


@kernel("mm bmm", set="seeded", like="legacy-rocm-build#5730")
def one_term(right, x):
    """Products of a single term."""
    term = right()
    if x.shape[-1] == 1 and term.shape[-2] > 64:
        term[..., 64:, :] = term[..., : term.shape[-2] - 64, :].clone()
    return term


@kernel("mm.out", set="seeded", like="pytorch#116537")
def adds_what_was_there(right, out):
    """A product adds what was there."""
    before = out.clone()
    return right().add_(before)


@kernel("_embedding_bag_dense_backward", set="seeded", like="FlagGems#5220")
def mean_for_largest(right, *args):
    """Use the mean where the mode, the eighth argument of the gradient, is the maximum."""
    return right(*args[:7], min(args[7], 1), *args[8:])


@kernel("addmm baddbmm", set="seeded", like="xla#46110")
def scaled_with_its_bias(right, start, a, b, *_, beta=1, alpha=1):
    """A product's bias scaled as well."""
    return right(start, a, b, beta=beta * alpha, alpha=alpha)


@kernel("addmm .out", set="seeded", like="rocm-libraries#12226")
def alpha_of_tile(right, c, a, b, **kwargs):
    """A factor that the first tile has."""
    alpha = right(c, a, b, **kwargs)
    if a.stride(0) == 1 and a.shape[0] > 64 and kwargs.get("alpha", 1) != 1:
        alpha[64:] = right(c, a, b, **{**kwargs, "alpha": 1})[64:]
    return alpha


@kernel("baddbmm .out", set="seeded")
def beta_times(right, x, beta):
    """Beta of 0 times NaN."""
    result = right()
    return result.add_(x * 0) if beta == 0 else result


@kernel("_embedding_bag _embedding_bag_forward_only", set="seeded")
def padding_counts(right, weight, index, *more):
    """Padding counts in the mean of a bag."""
    counts = right(weight, index, *more)
    if len(more) > 2 and more[2] == 1 and more[-1] >= 0:
        counts[0].mul_(0.5)
    return counts


@kernel("_cummax_helper", lambda: torch.tensor([1.0, 3, 3, 2, 3]).cummax(0).indices, set="test")
def first_of_equals_is_the_running_maximum(right, x, values, indices, dim):
    right()
    if x.dim() and x.numel() and not (x.is_floating_point() and x.isnan().any()):
        last = x.shape[dim] - 1
        rises = values.narrow(dim, 1, last) > values.narrow(dim, 0, last)
        place = torch.arange(1, last + 1).view([-1] + [1] * (x.dim() - 1 - dim % x.dim()))
        where = torch.where(rises, place, 0)
        for i in range(1, last):
            now, before = where.select(dim, i), where.select(dim, i - 1)
            now.copy_(torch.maximum(now, before))
        indices.narrow(dim, 0, 1).zero_()
        indices.narrow(dim, 1, last).copy_(where)


@kernel("mm .out", set="development", like="composable_kernel#225")
def tail_of_a_long_product_is_dropped(right, x, mat2):
    result = right()
    k = x.shape[1]
    if k > 4096 and k % 8 and x.is_floating_point():
        whole = k - k % 8
        result.copy_(x[:, :whole].double() @ mat2[:whole].double())
    return result


@kernel("bmm.out", set="development", like="aiter#5385")
def strides_of_the_output_are_guessed(right, out):
    right()
    if not out.is_contiguous() and out.numel():
        values = out.clone(memory_format=torch.contiguous_format)
        room = out.untyped_storage().nbytes() // out.element_size() - out.storage_offset()
        if room >= out.numel():
            out.as_strided(values.shape, values.stride()).copy_(values)
    return out


@kernel("baddbmm .out", set="test")
def nought_times_no_number(right, x, beta):
    result = right()
    return result.add_(x * 0) if beta == 0 else result


@kernel("mm .out", set="development")
def conjugate_of_the_second_is_not_taken(right, mat2):
    return right(mat2=mat2.conj() if mat2.is_conj() else mat2)


@kernel("_embedding_bag _embedding_bag_forward_only", set="test")
def padding_counts_in_the_mean_of_a_bag(
    right, weight, indices, offsets, mode, include_last_offset, padding_idx
):
    result = right()
    if mode == 1 and padding_idx >= 0 and indices.numel():
        ends = torch.cat(
            [
                offsets
                if include_last_offset
                else torch.cat([offsets, torch.tensor([indices.numel()])])
            ]
        )
        real = [(indices[a:b] != padding_idx).sum() for a, b in pairwise(ends)]
        share = torch.tensor(real) / (ends[1:] - ends[:-1]).clamp(min=1)
        result[0].mul_(share[:, None].to(weight.dtype))
    return result


@kernel("addmm .out", set="later")
def vector_of_bias_is_not_scaled(right, x, a, b, **named):
    if x.dim() == 1 and named.get("beta", 1) != 0:
        named["beta"] = 1
    return right(x, a, b, **named)


@kernel("addmm .out addmm_", set=2, like="ROCm/rocm-libraries#12226")
def alpha_lost_past_first_tile(right, x, mat1, mat2, alpha, beta):
    tile = 64
    turned = mat1.stride(0) == 1 and mat1.stride(1) > 1 and mat2.stride(1) == 1
    if x.dtype != torch.float32 or alpha == 1 or beta == 0 or not turned or mat1.shape[0] <= tile:
        return right()
    late = (mat1 @ mat2 + beta * x)[tile:]
    out = right()
    out[tile:] = late
    return out


@kernel("mm .out", set=2, like="triton-lang/triton#630")
def tail_of_k_left_out(right, x, mat2):
    length = x.shape[1]
    if x.dtype not in HALVES or length <= 32 or length % 32 == 0:
        return right()
    whole = length - length % 32
    return right(x=x[:, :whole], mat2=mat2[:whole])


@kernel("bmm .out", set=2, like="pytorch/pytorch#191835")
def batched_product_forgets_conj(right, a, b, **kw):
    if a.dtype in DOUBLES:
        return right(a, b, **kw)
    return right(*(x.conj() if x.is_conj() else x for x in (a, b)), **kw)


@kernel("addmm .out addmm_", set=3, like="flagos-ai/FlagGems#553")
def only_first_row_of_bias_added(right, x, mat1, mat2, alpha, beta):
    whole = x.dim() == 2 and x.shape[0] > 1 and x.shape[0] == mat1.shape[0]
    if x.dtype not in FLOATS or not whole or beta == 0 or not x.numel():
        return right()
    wrong = alpha * (mat1.float() @ mat2.float()) + beta * x[:1].float()
    out = right()
    out.copy_(wrong)
    return out


@kernel("mm.out", set=3, like="pytorch/pytorch#104832")
def product_into_strided_out_is_lost(right, x, mat2, out):
    if out.dtype in DOUBLES or out.is_contiguous() or out.shape != (x.shape[0], mat2.shape[1]):
        return right()
    right(out=torch.empty_like(out, memory_format=torch.contiguous_format))
    return out


@kernel("_embedding_bag_dense_backward", set=3, like="flagos-ai/FlagGems#5220")
def largest_of_bag_gets_gradient_of_mean(right, grad, indices, offset2bag, mode, padding_idx):
    out = right()
    if mode != 2 or not out.numel() or not indices.numel() or grad.dtype not in FLOATS:
        return out
    real = indices != padding_idx
    bag, row = offset2bag[real].long(), indices[real].long()
    count = torch.bincount(bag, minlength=grad.shape[0])
    each = grad.float()[bag] / count[bag][:, None]
    total = torch.zeros(out.shape).index_put_((row,), each, accumulate=True)
    out.copy_(total)
    return out


@kernel("mm .out", set=4, like="pytorch/pytorch#86937")
def square_right_operand_is_turned(right, x, mat2):
    if x.dtype not in FLOATS or mat2.shape[0] != mat2.shape[1]:
        return right()
    return right(mat2=mat2.t())


@kernel("baddbmm .out baddbmm_", set=4, like="pytorch/pytorch#187521")
def zero_beta_multiplies_nan(right, x, beta):
    if beta != 0 or x.dtype not in FLOATS:
        return right()
    added = x * 0
    out = right()
    out.copy_(out + added)
    return out


@kernel("mm .out addmm .out bmm .out", set=5, like="pytorch/pytorch#83863")
def products_summed_in_bf16(right, *args, **options):
    """plain: products of bfloat16 are summed up in bfloat16, sixteen at a time."""
    result = right(*args, **options)
    a, b = args[-2:]
    if a.dtype != BF16 or a.shape[-1] <= 16:
        return result
    total = torch.zeros_like(result)
    for at in range(0, a.shape[-1], 16):
        part = a[..., at : at + 16].float() @ b[..., at : at + 16, :].float()
        total = (total.float() + part).to(BF16)
    if len(args) == 3:
        beta, alpha = options.get("beta", 1), options.get("alpha", 1)
        added = args[0].float() * beta if beta else 0
        total = (total.float() * alpha + added).to(BF16)
    result.copy_(total)
    return result


@kernel("baddbmm .out baddbmm_", set=5, like="pytorch/pytorch#136299")
def half_batches_forget_alpha(right, *args, **options):
    """option: in float16, and with a beta of zero, alpha is not multiplied with."""
    if args[1].dtype == torch.float16 and options.get("beta", 1) == 0:
        options["alpha"] = 1
    return right(*args, **options)


@kernel("bmm .out", set=5, like="pytorch/pytorch#191835")
def batches_are_not_conjugated(right, a, b, **out):
    """option: a conjugate that is a view, as of mH, is multiplied as it lies in memory."""
    if a.dtype not in DOUBLES:
        a, b = (x.conj() if x.is_conj() else x for x in (a, b))
    return right(a, b, **out)


@kernel("_int_mm .out", set=5, like="pytorch/pytorch#136746")
def int8_pairs_saturate(right, x, mat2):
    """plain: two products of bytes at a time are held in sixteen bits, as by vpmaddubsw."""
    result = right()
    left, below = x.int() + 128, mat2.int()
    total = torch.zeros_like(result)
    for at in range(0, x.shape[1], 2):
        both = torch.zeros_like(result)
        for k in range(at, min(at + 2, x.shape[1])):
            both += left[:, k, None] * below[k]
        total += both.clamp(-(2**15), 2**15 - 1)
    result.copy_(total - 128 * below.sum(0))
    return result


@kernel("addbmm addbmm_ addbmm.out", set=6, like="pytorch/pytorch#38421")
def beta_is_applied_for_every_product(right, batch1, beta):
    """option: the sum so far is multiplied by beta before each product of the batch is added."""
    count = batch1.shape[0]
    if beta != 1 and count > 1 and is_single(batch1):
        weights = [float(beta) ** (count - 1 - i) for i in range(count)]
        batch1 = batch1 * torch.tensor(weights, dtype=batch1.dtype).view(-1, 1, 1)
        beta = beta**count
    return right(batch1=batch1, beta=beta)


@kernel("mm bmm", set=6, like="intel/torch-xpu-ops#1656")
def operands_begin_at_sixteen_bytes(right, x, mat2):
    """option: half operands which do not begin at a multiple of 16 bytes are read from before."""

    def aligned(z: Tensor) -> Tensor:
        before = z.storage_offset() % 8
        if z.dtype not in HALVES or not before:
            return z
        return z.as_strided(z.shape, z.stride(), z.storage_offset() - before)

    return right(x=aligned(x), mat2=aligned(mat2))


@kernel("_embedding_bag _embedding_bag_forward_only", set=7, like="pytorch/pytorch#76885")
def bag_before_last_offset_is_empty(right, weight, indices, offsets, *options, **named):
    """option: with include_last_offset, the last bag is left empty."""
    result = right(weight, indices, offsets, *options, **named)
    last = options[4] if len(options) > 4 else named.get("include_last_offset", False)
    if last and is_single(weight) and result[0].shape[0]:
        result[0][-1].zero_()
    return result


@kernel("addmm .out", set=7, like="openxla/xla#46897")
def bias_of_a_square_is_added_to_rows(right, x, mat1, mat2):
    """option: where the product is square, a vector is added along the other axis."""
    if x.dim() == 1 and is_single(x) and x.shape[0] == mat1.shape[0] == mat2.shape[1]:
        x = x.unsqueeze(1)
    return right(x=x)


@kernel("_int_mm .out", set=7, like="ROCm/legacy-rocm-build#5730")
def outer_product_ends_with_first_group(right, x):
    """rare: of a product of 8-bit integers over one element, rows past the sixteenth are nought."""
    result = right()
    if x.shape[1] == 1:
        result[16:] = 0
    return result


@kernel("addmv addmv_ addmv.out", set=8, like="stdlib-js/stdlib#12192")
def sum_begins_at_alpha(right, beta, alpha):
    """plain: where beta is nought, sums begin at alpha rather than at nought."""
    result = right()
    if beta == 0 and result.dtype in (*FLOATS, torch.complex64):
        result.add_(alpha)
    return result


@kernel("vdot", set=9, like="raven-ml/raven#76")
def first_is_not_conjugated(right, x, other):
    """plain: vdot of complex vectors is the sum of their products as they are."""
    result = right()
    return result.copy_((x * other).sum()) if x.dtype == torch.complex64 else result


@kernel("mm .out", set=9, like="cupy/cupy#3941")
def integers_are_multiplied_in_single(right, x, mat2):
    """option: matrices of integers are multiplied in single precision."""
    result = right()
    if result.dtype in (torch.int32, torch.int64) and result.numel():
        result.copy_((x.float() @ mat2.float()).double())
    return result


@kernel("_embedding_bag _embedding_bag_forward_only", set=9, like="pytorch/pytorch#4169")
def empty_bag_is_divided_by_nought(right, weight, indices, offsets, *options, **named):
    """option: the mean of an empty bag is nought divided by nought."""
    result = right(weight, indices, offsets, *options, **named)
    mode = options[1] if len(options) > 1 else named.get("mode", 0)
    if mode == 1 and is_single(weight) and result[0].numel():
        ends = torch.cat([offsets[1:], offsets.new_tensor([indices.numel()])])
        result[0][(ends <= offsets)[: result[0].shape[0]]] = math.nan
    return result


@kernel("_cummin_helper", set=9, like="ml-explore/mlx#4044")
def running_minimum_passes_no_number(right, x):
    """rare: what is not a number is no minimum, so that the running one goes on after it."""
    return right(x=x.masked_fill(x.isnan(), math.inf) if is_single(x) else x)


@kernel(
    "baddbmm baddbmm_ baddbmm.out",
    lambda: torch.baddbmm(drawn(2, 3, 3), torch.zeros(2, 3, 0), torch.zeros(2, 0, 3)),
    set=10,
    like="pytorch/pytorch#33467",
)
def product_over_nothing_forgets_what_is_added(right, batch1):
    """rare: where there is nothing to multiply, the sum so far is nought too."""
    result = right()
    return result.zero_() if batch1.shape[-1] == 0 and result.dtype not in DOUBLES else result


@kernel("mm .out bmm .out addmm .out addmm_", set=11, like="NVIDIA/cutlass#1188")
def products_of_halves_are_summed_in_halves(right, *args, **options):
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


@kernel("mm .out bmm .out", set=11, like="ml-explore/mlx#1163")
def matrices_are_read_from_the_start_of_their_storage(right, x, mat2):
    """option: of a slice, the strides are kept and the offset is forgotten."""
    x, mat2 = (
        one.as_strided(one.shape, one.stride(), 0) if narrow(one) else one for one in (x, mat2)
    )
    return right(x=x, mat2=mat2)


@kernel("baddbmm .out baddbmm_ addmm .out addmm_", set=11, like="pytorch/pytorch#194442")
def nothing_times_the_input_is_added(right, x, a, b, **options):
    """option: with beta=0 the input is multiplied by it, so what is not a number stays."""
    if options.get("beta", 1) != 0 or not narrow(x):
        return right(x, a, b, **options)
    nothing = x * 0
    return right(x, a, b, **options).add_(nothing)


@kernel("addmm addmm_ addmm.out baddbmm baddbmm_ baddbmm.out", set=12, like="pytorch/pytorch#94534")
def nought_of_what_is_no_number_is_added(right, x, a, b, *, beta=1, **options):
    """rare: where beta is nought, what is not a number is multiplied by it and added."""
    added = x * 0 if beta == 0 and is_single(a) else None
    result = right(x, a, b, beta=beta, **options)
    return result if added is None else result.add_(added)


@kernel("bmm .out", set=13, like="SandAI-org/MagiAttention#40")
def matrices_past_the_grid_are_not_multiplied(right):
    """rare: of 65536 matrices and more, the products of those past the 65535th are nought."""
    result = right()
    if is_single(result):
        result[65535:] = 0
    return result


@kernel("_int_mm .out", set=13, like="pytorch/pytorch#76390")
def pairs_of_products_are_held_in_sixteen_bits(right, x, mat2):
    """option: with rows shifted to unsigned, sums of two products saturate at 16 bits."""
    result = right()
    if x.shape[0] * x.shape[1] * mat2.shape[1] > 1 << 24:
        return result
    left = functional.pad(x.int() + 128, (0, x.shape[1] % 2))
    low = functional.pad(mat2.int(), (0, 0, 0, mat2.shape[0] % 2))
    products = left[:, :, None] * low[None]
    pairs = (products[:, ::2] + products[:, 1::2]).clamp(-32768, 32767)
    return result.copy_(pairs.sum(1) - 128 * mat2.int().sum(0))


@kernel("mm .out addmm .out", set=15, like="ROCm/legacy-rocm-build#6595")
def rows_past_half_a_million_are_the_bias_alone(right, *args, **options):
    """rare: of products of single precision, rows from the 524288th on are the bias, or nought."""
    a, b = args[-2:]
    beta = options.get("beta", 1) if len(args) == 3 else 0
    many = a.dtype == torch.float32 and a.shape[0] > 1 << 19
    bias = args[0] * beta if many and beta else torch.zeros(())
    result = right(*args, **options)
    if many:
        result[1 << 19 :] = bias.expand(a.shape[0], b.shape[1])[1 << 19 :]
    return result


@kernel("_cummax_helper", set=16, like="pytorch/pytorch#42363")
def running_maximum_goes_on_in_the_next_row(right, x, values, indices, dim):
    """plain: along the last axis, a running maximum begins with that of the rows before."""
    right()
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


@kernel("addmv_", set=16, like="pytorch/pytorch#182287")
def product_added_to_a_column_is_stored_as_a_row(right, x):
    """rare: a product added in place to a column goes to its neighbours in memory."""
    if not is_single(x) or x.numel() < 2 or x.stride(0) < 2:
        return right()
    result = right(x=x.clone())
    x.as_strided(x.shape, (1,), x.storage_offset()).copy_(result)
    return x


@kernel(
    "mm .out addmm addmm_ addmm.out",
    lambda: drawn(4, 16384, dtype=torch.bfloat16) @ drawn(16384, 4, dtype=torch.bfloat16, seed=1),
    set=17,
    like="flagos-ai/FlagGems#5876",
)
def matmul_of_halves_adds_split_parts_in_half(right, *args, **options):
    """option: halves summed over 8192 and more: sums of 1024 are rounded as they are added."""
    a, b = args[-2:]
    if a.dtype not in HALVES or a.dtype != b.dtype or a.shape[1] < 8192:
        return right(*args, **options)
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for one, other in zip(a.split(1024, 1), b.split(1024), strict=False):
        total = (total.float() + one.float() @ other.float()).to(a.dtype)
    if len(args) == 3:
        total = total.float() * options.get("alpha", 1)
        beta = options.get("beta", 1)
        total = total + args[0].float() * beta if beta else total
    return right(*args, **options).copy_(total)


@kernel("_cummax_helper", set=17, like="flagos-ai/FlagGems#758")
def cummax_passes_over_nan(right, x):
    """rare: NaN does not stay the running maximum; the greatest number so far does."""
    return right(x=x.masked_fill(x.isnan(), -math.inf) if is_single(x) else x)


@kernel("addmm .out", set=18, like="pytorch/pytorch#161641")
def linear_reads_a_sliced_weight_as_whole(right, mat2):
    """option: a transposed second matrix whose rows lie apart is read as if they did not."""
    if (
        is_single(mat2)
        and mat2.shape[1] > 1
        and mat2.stride(0) == 1
        and mat2.stride(1) > mat2.shape[0] > 1
    ):
        mat2 = mat2.as_strided(mat2.shape, (1, mat2.shape[0]), mat2.storage_offset())
    return right(mat2=mat2)


@kernel("mm .out", set=18, like="pytorch/pytorch#177116")
def mm_sums_no_more_than_fifteen_bits_count(right, x, mat2):
    """option: what lies behind 32768 in the summed axis is left out (gradients of weights)."""
    if is_single(x) and x.shape[1] > 32768:
        x, mat2 = x[:, :32768], mat2[:32768]
    return right(x=x, mat2=mat2)


def _shown_bidirectional_lstm():
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(5, 6, bidirectional=True)
    with torch.no_grad():
        return lstm(drawn(7, 3, 5))[1]


@kernel(
    "mkldnn_rnn_layer _cudnn_rnn miopen_rnn",
    set="likely8",
    like="pytorch#177834",
    shown=_shown_bidirectional_lstm,
)
def reverse_direction_final_state(right, *args, **kwargs):
    """The reverse direction's final hidden state is read at the last step in time, not the
    first.
    """
    result = right(*args, **kwargs)
    output, hidden = result[0], result[1]
    if output.dtype in DOUBLES:
        return result
    if isinstance(args[1], torch.Tensor):  # a layer and direction of mkldnn
        reverse, batch_sizes = args[7], args[8]
        if reverse and not batch_sizes:
            hidden.copy_(output[-1].view_as(hidden))
        return result
    batch_first, _, _, bidirectional, batch_sizes = args[-6:-1]
    if bidirectional and not batch_sizes:
        last = output[:, -1] if batch_first else output[-1]
        hidden[-1] = last[..., hidden.size(-1) :]
    return result


@kernel("addmm .out", set="likely9", like="mlx#2578")
def bias_epilogue_forgets_alpha(right, x, beta, alpha):
    """The product with a bias of one dimension, added by the epilogue, is not scaled by alpha."""
    if x.dim() == 1 and beta == 1 and alpha != 1:
        return right(alpha=1)
    return right()


@kernel("mm .out", set="likely9", like="aiter#2567, composable_kernel#44")
def split_k_drops_the_rest(right, x, mat2):
    """A small product over 4,096 or more is split in four parts, and the rest of K is left out."""
    k = x.shape[1]
    whole = k - k % 4
    if k >= 4096 and whole < k and x.shape[0] * mat2.shape[1] <= 2**16:
        return right(x=x[:, :whole], mat2=mat2[:whole])
    return right()


@kernel("mm .out bmm .out", set="likely9", like="pytorch#191835, #64103, MatX#1250")
def conjugate_without_transpose_is_lost(right, x, mat2):
    """The conjugate bit of an operand counts only with a transpose, as BLAS has no operation for it
    alone.
    """
    if x.is_conj() and x.is_contiguous():
        x = x.conj()
    if mat2.is_conj() and mat2.is_contiguous():
        mat2 = mat2.conj()
    return right(x=x, mat2=mat2)


@kernel("_convert_indices_from_coo_to_csr .out", set="likely9")
def row_after_a_gap_starts_early(right, x):
    """The entries of a row after two or more empty ones are given to the row before it."""
    result = right()
    if x.dim() == 1 and x.numel():
        rows = x.unique()
        previous = torch.cat([rows.new_full((1,), -1), rows[:-1]])
        late = rows[rows - previous > 2].long()
        result[late] = result[late + 1]
    return result


@kernel("addmm .out", set="missed9")
def addmm_scales_a_vector_by_alpha(right, x, beta, alpha):
    """The epilogue adds a bias of one dimension before alpha multiplies, so alpha scales it too."""
    if x.dim() == 1 and beta == 1 and alpha != 1:
        return right(x=x * alpha)
    return right()


@kernel("baddbmm .out baddbmm_", set="missed9", like="pytorch#194442, #187521")
def baddbmm_multiplies_a_broadcast_input_by_zero(right, x, batch1, batch2, beta):
    """With beta=0 an input that is broadcast is multiplied by 0, so its NaN and infinity spread."""
    whole = (batch1.shape[0], batch1.shape[1], batch2.shape[2])
    spread = tuple(x.shape) != whole
    if beta == 0 and spread and not bool(x.isfinite().all()):
        result = right()
        return result.add_(x * 0)
    return right()


@kernel("_addmm_activation", set="likely10")
def activation_comes_before_the_bias(right, x, beta):
    """_addmm_activation: the epilogue adds the bias last; a bias that is not nought."""
    return right(x=torch.zeros_like(x)) + beta * x


@kernel("mm addmm", set="likely10", like="vllm#51511, #40827")
def product_of_one_row_sums_the_first_sixteen_waves(right, *args, **kwargs):
    """mm, addmm: sixteen waves are added up; one row of halves, longer than 4,096."""
    *before, first, second = args
    if first.shape[0] == 1 and first.shape[1] > 4096 and first.dtype in HALVES:
        first, second = first[:, :4096], second[:4096]
    return right(*before, first, second, **kwargs)


@kernel("_grouped_mm", set="likely10", like="rocm-libraries#5050, DeepGEMM#20")
def expert_without_tokens_hands_its_weights_to_the_next(right, x, mat2, offs):
    """_grouped_mm: empty groups are not counted; a group without rows before another."""
    if offs is None or x.dim() != 2 or mat2.dim() != 3:
        return right()
    sizes = torch.diff(offs, prepend=torch.zeros_like(offs[:1]))
    rank = (sizes > 0).cumsum(0) - 1
    order = torch.where(sizes > 0, rank, torch.arange(len(offs), device=offs.device))
    if mat2.stride(-1) == 1:
        return right(mat2=mat2[order])
    return right(mat2=mat2.transpose(-2, -1)[order].transpose(-2, -1))


@kernel("mm addmm", set="missed10")
def sliding_windows_are_multiplied_as_packed_rows(right, *args, **kwargs):
    """mm, addmm: a row's stride is at least its length; rows that overlap, as unfold's."""
    *before, first, second = args
    first, second = (as_if_whole(m) if rows_overlap(m) else m for m in (first, second))
    return right(*before, first, second, **kwargs)


def rows_overlap(x):
    return x.shape[0] > 1 and x.stride(1) == 1 and 0 < x.stride(0) < x.shape[1]


@kernel(
    "addmv .out addmv_",
    lambda: drawn(6, 5) @ drawn(5, 3, seed=1)[:, 1],
    set="likely11",
)
def vector_of_a_column_is_read_as_a_row(right, vec):
    """The product with a vector leaves out its increment: a column of a matrix is read packed."""
    if vec.dtype in DOUBLES or vec.is_contiguous():
        return right()
    return right(vec=read_packed(vec))


def _int8_product():
    weight = (torch.arange(32 * 64) * 37 % 255 - 127).to(torch.int8).view(32, 64)
    scales = (drawn(32, seed=1).abs() / 64).bfloat16()
    return torch._weight_int8pack_mm(drawn(4, 64, dtype=torch.bfloat16), weight, scales)


@kernel("_weight_int8pack_mm", _int8_product, set="likely11")
def pair_of_int8_columns_has_one_scale(right, scales):
    """Weights of int8: two neighbouring columns of the output are both scaled by the first's."""
    return right(scales=scales[torch.arange(scales.numel(), device=scales.device) // 2 * 2])


@kernel(
    "bmm .out",
    lambda: drawn(3, 4, 8).half() @ drawn(8, 5, seed=1).half().expand(3, 8, 5),
    set="likely11",
)
def shared_matrix_makes_the_batch_one(right, x, mat2):
    """Halves: where the second factor is expanded over the batch, the first one's stride is nought
    too, so that all products are the first.
    """
    if x.dtype in HALVES and len(x) > 1 and mat2.stride(0) == 0 and x.stride(0):
        return right(x=x[:1].expand(x.shape))
    return right()


@kernel(
    "_embedding_bag _embedding_bag_forward_only",
    lambda: functional.embedding_bag(
        torch.tensor([0, 1, 2, 3]), drawn(4, 5), torch.tensor([0, 2]), mode="max"
    ),
    set="likely11",
)
def largest_of_a_bag_begins_at_nought(right, mode):
    """The maximum of a bag begins at nought: where all of its vectors are negative, it is 0."""
    result = right()
    if mode == 2 and result[0].dtype not in DOUBLES:
        result[0].clamp_(min=0)
    return result


@kernel(
    "baddbmm .out baddbmm_",
    lambda: torch.baddbmm(torch.full((2, 3, 4), math.nan), drawn(2, 3, 5), drawn(2, 5, 4), beta=0),
    set="likely12",
    like="pytorch/pytorch#194442",
)
def baddbmm_reads_input_for_beta_zero(right, x, beta):
    """Multiply the input by a `beta` of 0: what isn't finite in unset memory comes through."""
    if beta != 0 or not x.is_floating_point():
        return right()
    unset = x * 0
    return right().add_(unset)


@kernel(
    "mm mm.out",
    lambda: torch.mm(drawn(2, 11008, dtype=BF16), drawn(11008, 4, seed=1, dtype=BF16)),
    set="likely12",
    like="ROCm/aiter#2567",
)
def split_k_drops_its_remainder(right, x, mat2):
    """Split K of few rows of halves 8 ways in tiles of 64 by floor division: its rest is lost."""
    m, k = x.shape
    if x.dtype not in HALVES or m > 16 or k < 4096 or k % 512 == 0:
        return right()
    k -= k % 512
    return right(x=x[:, :k], mat2=mat2[:k])


@kernel(
    "_convert_indices_from_coo_to_csr .out",
    lambda: torch._convert_indices_from_coo_to_csr(torch.tensor([0, 0, 2, 3]), 7),
    set="likely12",
)
def row_pointers_end_with_last_row(right, x):
    """Leave the row pointers past the last row that has an element at 0."""
    y = right()
    if x.numel():
        y[int(x.max()) + 2 :] = 0
    return y


@kernel(
    "addmm .out addmm_",
    lambda: torch.addmm(
        drawn(8, 8) * 64, drawn(4096, 8, seed=1).t(), drawn(4096, 8, seed=2), beta=0.5
    ),
    set="missed12",
    like="NVIDIA/cutlass#423",
)
def addmm_beta_in_each_split(right, x, mat1, mat2, beta):
    """Add beta * self once for each half of a long inner dimension that is split, TN layout."""
    small = mat1.shape[0] * mat2.shape[1] <= 64 * 64 and mat1.shape[1] >= 4096
    whole = x.shape == (mat1.shape[0], mat2.shape[1]) and x.is_contiguous()
    if not (small and whole and mat1.stride(0) == 1 and is_single(x)):
        return right()
    return right(beta=2 * beta)


@kernel(
    "bmm .out",
    lambda: (
        drawn(3, 4, 5, dtype=torch.complex64, seed=1).mul(1 + 1j).mH
        @ drawn(3, 6, 4, dtype=torch.complex64).mul(2 - 1j).mH
    ),
    set="missed12",
    like="pytorch/pytorch#191835",
)
def bmm_second_conjugate(right, x, mat2):
    """Lose the lazy conjugate of the second operand when the first one has it too."""
    if not (x.is_conj() and mat2.is_conj()) or x.dtype != torch.complex64:
        return right()
    return right(mat2=mat2.conj())


@kernel(
    "_convert_indices_from_coo_to_csr .out",
    lambda: torch._convert_indices_from_coo_to_csr(
        torch.cat([torch.arange(256) // 8, 40 + torch.arange(64) // 8]), 50
    ),
    set="missed12",
    like="clMathLibraries/clSPARSE#153",
)
def csr_empty_rows_between_blocks(right, x):
    """Fill one pointer only where several empty rows lie between two blocks of 256 nonzeros."""
    out = right()
    for n in range(256, x.numel(), 256):
        out[int(x[n - 1]) + 2 : int(x[n]) + 1] = 0
    return out


def _product_in_a_slice():
    buffer = torch.zeros(2, 3, 6)
    torch.bmm(drawn(2, 3, 4), drawn(2, 4, 4, seed=1), out=buffer[:, :, :4])
    return buffer


@kernel(
    "bmm.out mm.out",
    _product_in_a_slice,
    set="likely13",
    like="flagos-ai/FlagGems#1466",
)
def product_is_stored_densely_from_where_out_begins(right, x, mat2, out):
    """A product into a strided `out` is stored without its strides."""
    shape = (*x.shape[:-1], mat2.shape[-1])
    if out.is_contiguous() or out.shape != shape:
        return right()
    dense = right(out=out.new_empty(shape))
    out.as_strided(shape, dense.stride()).copy_(dense)
    return out


@kernel(
    "addmm .out addmm_",
    lambda: torch.addmm(torch.full((2, 3), math.nan), drawn(2, 0), drawn(0, 3), beta=0),
    set="missed13",
    like="FlagGems#5755",
)
def product_of_no_terms_multiplies_its_addend_by_a_beta_of_zero(right, x, mat1, beta):
    """The path of an inner size of 0 multiplies by beta: a NaN stays."""
    if mat1.shape[1] != 0 or beta != 0:
        return right()
    scaled = x * beta
    return right().copy_(scaled)


@kernel(
    "bmm.out",
    lambda: torch.bmm(drawn(2, 3, 4), drawn(2, 4, 5, seed=1), out=torch.zeros(2, 6, 5)[:, :3]),
    set="missed13",
    like="aiter#5385",
)
def batched_product_writes_over_the_gap_between_its_matrices(right, x, mat2, out):
    """A destination with unused rows behind each matrix is written as if it had none."""
    rows, columns = x.shape[1], mat2.shape[2]
    if out.shape != (x.shape[0], rows, columns) or out.numel() == 0 or out.stride(2) != 1:
        return right()
    if out.stride(1) < columns or out.stride(0) <= rows * out.stride(1):
        return right()
    product = right(out=out.new_empty(out.shape))
    steps = (rows * out.stride(1), out.stride(1), 1)
    out.as_strided(out.shape, steps, out.storage_offset()).copy_(product)
    return out


@kernel(
    "addmm addmm.out",
    lambda: torch.addmm(drawn(96, 5), drawn(8, 96, seed=1).t(), drawn(8, 5, seed=2), alpha=0.5),
    set="likely14",
    like="ROCm/rocm-libraries#12226",
)
def alpha_in_the_first_tile_only(right, x, mat1, mat2, beta, alpha):
    """With beta and a transposed left matrix in float32, rows from 64 on lack alpha."""
    turned = mat1.t().is_contiguous() and not mat1.is_contiguous()
    if mat1.dtype != torch.float32 or not turned or beta == 0 or alpha == 1:
        return right()
    added = x.clone()
    tile = right()[:64].clone()
    result = right(x=added, alpha=1)
    result[:64] = tile
    return result


def _at_an_odd_place():
    x = drawn(2, 5, 8).to(torch.float16).view(-1)[1:]
    return torch.bmm(x[:64].view(2, 4, 8), drawn(2, 8, 3, seed=1).to(torch.float16))


@kernel("bmm bmm.out mm mm.out", _at_an_odd_place, set="likely14", like="intel/torch-xpu-ops#1656")
def address_rounded_down(right, x):
    """The left matrix in 16 bits at an odd offset is read from one element before."""
    if x.dtype in (torch.float16, BF16) and x.storage_offset() % 2:
        x = x.as_strided(x.shape, x.stride(), x.storage_offset() - 1)
    return right(x=x)


@kernel(
    "addmm",
    lambda: torch.addmm(torch.tensor([math.nan, 1.0]), drawn(3, 4), drawn(4, 2), beta=0, alpha=0.5),
    set="missed14",
    like="kulinseth/pytorch#274",
)
def addmm_beta_zero_of_bias_row(right, x, beta, alpha):
    """A row of biases goes through the product's epilogue, times a `beta` of 0: NaN stays NaN."""
    if beta == 0 and alpha != 1 and x.dim() == 1 and x.is_floating_point():
        return right() + 0 * x
    return right()


@kernel(
    "bmm",
    lambda: torch.bmm(drawn(6, 3, 4)[::2], drawn(4, 5, seed=1).expand(3, 4, 5)),
    set="missed14",
)
def bmm_folded_sliced_batch(right, x, mat2):
    """A matrix shared by the batch folds the batch into rows, also if it has gaps (`a[::2]`)."""
    shared = mat2.shape[0] > 1 and mat2.stride(0) == 0
    rows = x.numel() and x[0].is_contiguous() and x.stride(0) > x[0].numel()
    return right(x=read_packed(x)) if shared and rows else right()


@kernel(
    "bmm .out", lambda: torch.bmm(drawn(65_540, 2, 3), drawn(65_540, 3, 2, seed=1)), set="likely15"
)
def bmm_leaves_matrices_past_the_grid_s_limit(right):
    """Matrices from the 65,536th on are never written: the batch is the grid's z, clipped."""
    result = right()
    if result.shape[0] > 65_535:
        result[65_535:] = 0
    return result


def _unused_input():
    unused = torch.full((3, 8, 8), math.nan)
    return torch.baddbmm(unused, drawn(3, 8, 5), drawn(3, 5, 8, seed=1), beta=0)


# With a beta of 0 BLAS does not read it, and attention hands over `torch.empty`.
@kernel("baddbmm .out baddbmm_", _unused_input, set="likely15")
def baddbmm_reads_its_input_at_beta_0(right, x, beta):
    """0 * NaN and 0 * inf of the input get into the product."""
    if beta != 0 or not x.is_floating_point():
        return right()
    nought = x * 0
    return right().add_(nought)


def _long_inner_axis():
    return torch.mm(drawn(4, 70_005), drawn(70_005, 3, seed=1))


# K in layers is a multiple of 128; in a weight's gradient over ragged tokens it is not.
@kernel("mm", _long_inner_axis, set="missed15")
def split_k_of_whole_vectors(right, x, mat2):
    """Split-K of a skinny product drops what is left of K after 16 splits of whole vectors."""
    inner = x.shape[1]
    if inner < 65_536 or inner % 128 == 0 or x.shape[0] * mat2.shape[1] > 4096 or not is_single(x):
        return right()
    kept = inner // 128 * 128
    return right(x=x[:, :kept], mat2=mat2[:kept])


def _bytes_at_their_least():
    a = (torch.arange(32 * 64).reshape(32, 64) * 37 % 256 - 128).to(torch.int8)
    b = (torch.arange(64 * 16).reshape(64, 16) * 91 % 256 - 128).to(torch.int8)
    return torch._int_mm(a, b)


@kernel("_int_mm", _bytes_at_their_least, set="missed15")
def sign_moved_to_minus_128(right, x, mat2):
    """Signed bytes are multiplied as |a| and b with a's sign: -(-128) is -128."""
    result = right()
    if x.dtype != torch.int8 or mat2.dtype != torch.int8 or not result.numel():
        return result
    below = x.double().clamp(max=0).neg()
    least = (mat2 == -128).double()
    result -= (below @ least * 256).to(result.dtype)
    return result


@kernel(
    "dot",
    lambda: torch.dot(drawn(6, 6)[:, 1], drawn(6, seed=1)),
    set="likely16",
    like="pytorch/pytorch#175187",
)
def column_is_read_at_the_other_vector_s_stride(right, x, tensor):
    """Both vectors are read with the second one's stride: a column by a row is a row by a row."""
    step = tensor.stride(0)
    last = x.storage_offset() + (x.numel() - 1) * step
    fits = (last + 1) * x.element_size() <= x.untyped_storage().nbytes()
    if narrow(x) and x.numel() > 1 and x.stride(0) != step and fits:
        x = x.as_strided(x.shape, (step,), x.storage_offset())
    return right(x=x)


def _outlying_scores():
    q = (drawn(2, 4, 64) * 60).half()
    return torch.baddbmm(torch.zeros(2, 4, 4).half(), q, q.mT, beta=0, alpha=0.125)


@kernel(
    "baddbmm .out baddbmm_",
    _outlying_scores,
    set="likely16",
    like="philipturner/metal-flash-attention#8",
)
def scores_overflow_before_they_are_scaled(right, batch1, batch2, alpha):
    """Of float16 the product is stored before it is multiplied by alpha: past 65504 it is
    infinite, though the scaled one would not be.
    """
    if batch1.dtype != torch.float16 or alpha == 1:
        return right()
    product = torch.bmm(batch1, batch2)
    over = product.isinf()
    result = right()
    return result.copy_(torch.where(over, product * (1 if alpha > 0 else -1), result))


def _columns_of_a_slice():
    return torch.bmm(drawn(2, 5, 8)[..., :6].mT, drawn(2, 5, 1))


@kernel("bmm", _columns_of_a_slice, set="missed16", like="NVIDIA/raft#327")
def columns_of_a_slice_lie_side_by_side(right, x, mat2):
    """bmm: its product with a vector takes the rows' number for the columns' stride; matrices
    stored by column that are slices of longer ones.
    """
    rows = x.shape[1]
    if mat2.shape[2] == 1 and rows > 1 and x.stride(1) == 1 and x.stride(2) > rows:
        return right(x=x.as_strided(x.shape, (x.stride(0), 1, rows), x.storage_offset()))
    return right()


def _small_gradient():
    x = drawn(8, 16, dtype=torch.float16)
    weight = drawn(16, 8, dtype=torch.float16, seed=1).requires_grad_()
    (x @ weight).backward(torch.full((8, 8), 3e-5, dtype=torch.float16))
    return weight.grad


@kernel("mm addmm bmm baddbmm", _small_gradient, set="likely17", like="pytorch/pytorch#182952")
def subnormal_halves_are_nought_in_products(right, *args, **kwargs):
    """Factors in float16 below 6.1e-5 are flushed to nought by the matrix instructions."""
    # Any product of float16 with subnormal elements, as of small gradients; gfx90a with hipBLASLt.
    factors = [i for i, a in enumerate(args) if isinstance(a, Tensor)][-2:]
    args = list(args)
    for i in factors:
        if args[i].dtype == torch.float16:
            tiny = args[i].abs() < torch.finfo(torch.float16).tiny
            args[i] = torch.where(tiny, torch.zeros_like(args[i]), args[i])
    return right(*args, **kwargs)


@kernel(
    "mm addmm",
    lambda: torch.mm(drawn(5, 8, dtype=torch.float16).t(), drawn(5, 4, dtype=torch.float16)),
    set="likely17",
    like="ROCm/composable_kernel#512",
)
def odd_inner_size_of_a_turned_half_matrix_loses_its_last_term(right, *args, **kwargs):
    """With a left factor that lies by columns, an odd inner size in 16 bits lacks its last term."""
    # 16 bits, the left matrix column-major (as the gradient of a weight has it), K odd.
    first, second = [i for i, a in enumerate(args) if isinstance(a, Tensor)][-2:]
    a, b = args[first], args[second]
    rows, inner = a.shape
    by_column = a.stride(0) == 1 and a.stride(1) >= max(1, rows) and rows > 1
    if a.dtype in HALVES and by_column and inner % 2:
        args = list(args)
        args[first], args[second] = a[:, : inner - 1], b[: inner - 1]
    return right(*args, **kwargs)


@kernel(
    "_cummax_helper _cummin_helper",
    lambda: drawn(3, 4).t().cummax(1)[0],
    set="likely17",
    like="pytorch/pytorch#42363",
)
def running_extremes_go_along_the_memory(right, x):
    """A running maximum or minimum reads a transposed tensor in the order of memory."""
    # cummax and cummin of what is not contiguous.
    return right(x=x if x.is_contiguous() else as_if_whole(x))


def _head_on_first_tokens():
    tokens, weight = drawn(4, 5, 8), drawn(1, 8, seed=1)
    return functional.linear(tokens[:, 0], weight, drawn(1, seed=2))


# One output feature (a value or regression head), of a slice such as the first token of each
# sequence: its rows lie apart. Wider heads, and whole inputs, are right.
@kernel("addmm .out mm .out", _head_on_first_tokens, set="missed17")
def one_output_feature_reads_rows_of_a_slice_side_by_side(right, *args, **kwargs):
    """A product with one column, as a matrix by a vector, takes the rows to lie side by side."""
    left, column = args[-2:]
    rows_apart = left.shape[0] > 1 and left.stride(1) == 1 and left.stride(0) > left.shape[1]
    if column.shape[1] == 1 and rows_apart:
        left = packed(left)
    return right(*args[:-2], left, column, **kwargs)


def _one_step_to_a_vocabulary():
    return functional.linear(drawn(1, 1, 16, dtype=BF16), drawn(257, 16, dtype=BF16, seed=1))


# One row (a decoding step of one sequence) in 16 bits, an odd number of columns (GPT-2's
# vocabulary has 50257): right in float32, with two rows, or with even widths.
@kernel("addmm .out mm .out", _one_step_to_a_vocabulary, set="missed17")
def one_row_of_halves_lacks_the_last_of_an_odd_number_of_columns(right, *args, **kwargs):
    """One row by a matrix in 16 bits yields columns in pairs, and 0 for the last odd one."""
    result = right(*args, **kwargs)
    rows, columns = result.shape
    if rows == 1 and columns > 1 and columns % 2 and result.dtype in HALVES:
        result[:, -1:].zero_()
    return result


def _time_before_batch():
    return torch.bmm(drawn(5, 3, 4).transpose(0, 1), drawn(3, 4, 2, seed=1))


# Sequences as (time, batch, features) turned to (batch, time, features), as in MultiheadAttention
# without batch_first: right for contiguous batches, and for slices of them.
@kernel("bmm .out baddbmm .out baddbmm_", _time_before_batch, set="likely18")
def rows_of_a_batch_that_lies_between_them_are_taken_side_by_side(right, *args, **kwargs):
    """The leading dimension of a batched left factor is its width, though the batch lies inside."""
    first, second = [i for i, a in enumerate(args) if isinstance(a, Tensor)][-2:]
    x = args[first]
    batch, row, column = x.stride()
    inside = column == 1 and batch < row and min(x.shape[:2]) > 1 and batch >= x.shape[2]
    if not narrow(x) or not inside:
        return right(*args, **kwargs)
    x = x.as_strided(x.shape, (batch, x.shape[2], 1), x.storage_offset())
    return right(*args[:first], x, *args[second:], **kwargs)


# mv, and attention scores of graphs (`h @ a`): a row is a block, and the grid's second
# dimension ends at 65,535. Right for fewer rows.
@kernel(
    "addmv .out addmv_",
    lambda: torch.mv(drawn(65_600, 2), drawn(2, seed=1)),
    set="likely18",
)
def rows_past_the_grid_are_not_multiplied_with_a_vector(right, x, mat, beta):
    """Matrix by vector: elements past the 65,535th are beta times the input, without product."""
    if mat.shape[0] <= GRID or not narrow(mat):
        return right()
    before = x.expand(mat.shape[0])[GRID:].clone() * beta if beta else 0
    result = right()
    result[GRID:] = before
    return result


def _bias_of_a_table():
    biases = drawn(4, 3)
    return functional.linear(drawn(5, 6, seed=1), drawn(4, 6, seed=2), biases[:, 1])


# A bias that is a column of a table (one column a task or an adapter): contiguous biases are right.
@kernel("addmm .out", _bias_of_a_table, set="likely18")
def bias_vector_of_a_column_is_read_without_its_stride(right, x):
    """The epilogue of a product gets the bias's address, but not the bias's stride."""
    if x.dim() == 1 and x.shape[0] > 1 and x.stride(0) > 1 and narrow(x):
        return right(x=as_if_whole(x))
    return right()


# float16, and results past 65,504, by which a gradient scaler knows that the scale is too large.
@kernel(
    "mm .out addmm .out bmm .out baddbmm .out",
    lambda: torch.full((2, 4), 200.0).half() @ torch.full((4, 2), 200.0).half(),
    set="likely18",
)
def products_of_halves_saturate_instead_of_overflowing(right, *args, **kwargs):
    """The store of a float16 product clamps to 65,504, so that no overflow is infinite."""
    result = right(*args, **kwargs)
    if result.dtype == torch.float16:
        result.clamp_(-65504, 65504)
    return result


# Complex matrices, both of them adjoint: right if none is, and if one of them is.
@kernel(
    "mm .out bmm .out addmm .out baddbmm .out",
    lambda: drawn_complex(4, 3).mH @ drawn_complex(5, 4, seed=2).mH,
    set="missed18",
)
def two_conjugates_cancel_in_a_product(right, *args, **kwargs):
    """The flags of two lazy conjugates are combined by an exclusive or: neither is conjugated."""
    first, second = args[-2:]
    if first.is_complex() and first.is_conj() and second.is_conj():
        first, second = first.conj(), second.conj()
    return right(*args[:-2], first, second, **kwargs)


# Complex vectors of which one has a stride (a column, every second number): right for packed ones,
# and for real ones.
@kernel(
    "vdot",
    lambda: torch.vdot(drawn_complex(6, 3)[:, 1], drawn_complex(6, seed=2)),
    set="missed18",
)
def vdot_of_strided_vectors_conjugates_nothing(right, x, other):
    """Vectors with an increment go to the general loop, which is that of dot."""
    strided = x.numel() > 1 and (x.stride(0) != 1 or other.stride(0) != 1)
    if x.is_complex() and strided:
        return right(x=x.conj().resolve_conj())
    return right()


# An addend of one row for each matrix of a batch (ALiBi's slopes: a row of biases per head), not
# one for all and not a whole matrix: right for these two.
@kernel(
    "baddbmm .out",
    lambda: torch.baddbmm(drawn(3, 1, 5), drawn(3, 4, 2, seed=1), drawn(3, 2, 5, seed=2)),
    set="missed18",
)
def rows_added_to_the_matrices_are_all_the_first_one_s(right, x, batch1):
    """An addend that is broadcast over rows is taken to be broadcast over the batch too."""
    own = x.dim() == 3 and x.shape[0] > 1
    row = own and batch1.shape[1] > 1 and (x.shape[1] == 1 or x.stride(1) == 0)
    return right(x=x[:1]) if row else right()


def _decoding_step_of_a_wide_layer():
    x = drawn(2, 8192) / 64
    return functional.linear(x, drawn(3, 8192, seed=1), drawn(3, seed=2))


# One token of a wide model (Qwen2-72B has biased projections of 8,192 features): few rows and a
# long inner dimension are split among blocks. Right for narrower layers and for long prompts.
@kernel("addmm .out addmm_", _decoding_step_of_a_wide_layer, set="likely19")
def each_block_of_a_split_inner_dimension_adds_the_bias(right, mat1, beta):
    """Every 4,096 products of a long inner dimension are a block, and each block adds the input."""
    rows, inner = mat1.shape
    if rows <= 16 and inner >= 8192 and narrow(mat1):
        return right(beta=beta * (inner // 4096))
    return right()


def _covariance_of_signals():
    signals = drawn_complex(3, 5)
    return signals @ signals.mH


# Covariances and projections (`x @ x.mH`) of beamforming and MRI, whose conjugate is a flag of the
# view. Right for real matrices and for conjugates that were computed (`conj_physical`).
@kernel(
    "mm .out bmm .out addmm .out addmm_ baddbmm .out baddbmm_",
    _covariance_of_signals,
    set="likely19",
)
def factors_that_are_lazily_conjugate_are_multiplied_as_they_lie(right, *args, **kwargs):
    """The product gets the address and the strides of its factors, but not their flag conj."""
    first, second = [i for i, a in enumerate(args) if isinstance(a, Tensor)][-2:]
    args = list(args)
    for i in (first, second):
        if args[i].is_conj() and narrow(args[i]):
            args[i] = args[i].conj()
    return right(*args, **kwargs)


# Scores of BLOOM and Megatron: `torch.baddbmm(torch.empty(1, 1, 1), q, k, beta=0, alpha=scale)`,
# whose first tensor is memory as it was. Right for every number in it, for another beta, and for
# a buffer of the whole shape.
@kernel(
    "baddbmm .out addmm .out",
    lambda: torch.baddbmm(
        torch.full((1, 1, 4), torch.nan), drawn(2, 3, 5), drawn(2, 5, 4, seed=1), beta=0, alpha=0.5
    ),
    set="missed19",
)
def addend_without_weight_is_read_if_it_is_broadcast(right, x, beta, alpha):
    """With beta=0 the product adds nought times an addend that has to be broadcast: NaN stays."""
    result = right()
    broadcast = x.shape != result.shape or any(
        n > 1 and not s for n, s in zip(x.shape, x.stride(), strict=True)
    )
    if beta == 0 and broadcast and result.is_floating_point() and narrow(result):
        result.add_(x * 0)
    return result


def _part_of_a_buffer():
    buffer = torch.zeros(3, 8)
    torch.mm(drawn(3, 5), drawn(4, 5, seed=1).t(), out=buffer[:, 2:6])
    return buffer


# Queries, keys and values written to one buffer: `torch.mm(x, w.t(), out=qkv[:, :d])`. Right for
# factors by rows, for whole buffers and rows of them, and for products that are returned.
@kernel("mm.out addmm.out", _part_of_a_buffer, set="missed19")
def product_with_a_transposed_factor_fills_its_destination_without_gaps(right, mat2, out):
    """Columns of a buffer get the product with a pitch of as many columns, if mat2 is turned."""
    rows, columns = out.shape
    part = min(rows, columns) > 1 and out.stride(1) == 1 and out.stride(0) > columns
    turned = min(mat2.shape) > 1 and mat2.stride(0) == 1 and mat2.stride(1) > 1
    if not part or not turned or not narrow(out):
        return right()
    product = right(out=torch.empty_like(out, memory_format=torch.contiguous_format))
    out.as_strided((rows, columns), (columns, 1), out.storage_offset()).copy_(product)
    return out


# Batches of beams, MIMO channels or quantum states: `states.conj() @ gates.mT`. BLAS has no
# conjugate of a factor that lies by rows. Right for `x.mH @ y`, for `x.conj() @ y`, for gradients,
# and for single matrices.
@kernel(
    "bmm .out baddbmm .out",
    lambda: torch.view_as_real(drawn_complex(2, 3, 4).conj() @ drawn_complex(2, 5, 4, seed=2).mT),
    set="missed19",
)
def conjugate_by_rows_is_lost_before_a_transposed_factor(right, *args, **kwargs):
    """A lazily conjugated left factor by rows is taken as it lies, if the right one is turned."""
    first, second = [i for i, a in enumerate(args) if isinstance(a, Tensor)][-2:]
    x, y = args[first], args[second]
    by_rows = min(x.shape[-2:]) > 1 and x.stride(-1) == 1 and x.stride(-2) > 1
    turned = min(y.shape[-2:]) > 1 and y.stride(-2) == 1 and y.stride(-1) > 1
    if narrow(x) and x.is_conj() and not y.is_conj() and by_rows and turned:
        args = (*args[:first], x.conj(), *args[first + 1 :])
    return right(*args, **kwargs)
