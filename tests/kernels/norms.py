"""Wrong kernels: norms."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from .calls import (
    BF16,
    GRID,
    WAVE,
    as_if_whole,
    as_it_lies,
    axis_of,
    flat,
    formatted,
    grads_of,
    is_last,
    narrow,
    read_packed,
)
from .kernel import DOUBLES, FLOATS, HALVES, drawn, grad_of, is_single, kernel


@kernel("_softmax", set="seeded", like="pytorch#795")
def softmax_of_large(right, x, dim):
    """Softmax without its largest taken off."""
    e = torch.exp(x)
    return e / e.sum(dim, keepdim=True)


@kernel("_log_softmax", set="seeded", like="pytorch#725, #11752")
def logarithm_of_softmax(right, x, dim):
    """Log_softmax as a logarithm."""
    return torch.log(torch.softmax(x.float(), dim)).to(x.dtype)


@kernel("native_layer_norm", set="seeded")
def naive_layer_norm(right, input, normalized_shape, weight, eps):
    """Layer_norm's variance as a difference."""
    y, mean, rstd = right()
    wide, axes = input.float(), tuple(range(input.dim() - len(normalized_shape), input.dim()))
    variance = (wide * wide).mean(axes, keepdim=True) - wide.mean(axes, keepdim=True) ** 2
    normal = (wide - wide.mean(axes, keepdim=True)) / (variance.clamp(min=0) + eps).sqrt()
    return normal.to(y.dtype) if weight is None else y, mean, rstd


@kernel("native_layer_norm", set="seeded", name="layer_norm_of_the_first_65_535_rows")
@kernel("bmm", set="seeded", like="pytorch#22843", name="bmm_computes_the_first_65_535")
def first_of_a_grid(right):
    result = right()
    first = result[0] if isinstance(result, tuple) else result
    if first.dim() > 1 and first.shape[0] > 65_535:
        first[65_535:] = 0
    return result


@kernel("_softmax", set="seeded", like="pytorch#84144")
def half_of_wide_rows(right, x, dim):
    """Softmax of wide rows."""
    result = right()
    if x.shape[dim] > 65_536:
        result = result * 1.5
    return result


@kernel("native_group_norm", set="seeded", like="pytorch#64039", devices="cpu")
def statistics_of_contiguous(right, input):
    """Group_norm of other formats."""
    y, mean, rstd = right()
    return (y * 1.02 if formatted(input) else y), mean, rstd


@kernel("native_batch_norm", set="seeded")
def variance_with_bias(right, x, *rest):
    """Running variance with its bias."""
    _weight, _bias, _mean, var, training, momentum, _eps = rest
    before = var.clone() if training and var is not None else None
    variance = right(x, *rest)
    if before is not None:
        count = x.numel() / x.shape[1]
        new = before + (var - before + momentum * before) * (count - 1) / count - momentum * before
        var.copy_(new)
    return variance


@kernel("native_batch_norm", set="seeded")
def swapped_momentum(right, x, *rest):
    """Momentum the other way round."""
    *before, momentum, eps = rest
    return right(x, *before, 1 - momentum, eps)


@kernel("native_batch_norm", set="seeded", like="pytorch#62594")
def evaluated_as_contiguous(right, x, *rest):
    """Batch_norm evaluates channels_last in 16 bits."""
    *_, training, _momentum, _eps = rest
    if not training and is_last(x) and x.element_size() == 2:
        return right(x.roll(1, 1), *rest)
    return right(x, *rest)


@kernel("native_batch_norm_backward", set="seeded", like="pytorch#64039", devices="cpu")
def input_read_as_last(right, grad_out, input):
    """Batch_norm's gradient of another format."""
    if is_last(grad_out) and not is_last(input):
        n, c, h, w = input.shape
        input = input.contiguous().reshape(n, h, w, c).permute(0, 3, 1, 2).contiguous()
    return right(input=input)


@kernel("native_batch_norm cudnn_batch_norm miopen_batch_norm", set="seeded", like="apex#1768")
def welford_of_odd_channels(right, input):
    """Statistics of odd channels_last."""
    welford = right()
    odd = input.shape[1] & (input.shape[1] - 1)
    if is_last(input) and odd and input.numel() // input.shape[1] > 1000:
        return (welford[0] * 1.05, *welford[1:])
    return welford


@kernel("native_layer_norm", set="seeded", like="pytorch#184826", devices="cuda")
def rows_beyond_2_23(right, input, normalized_shape):
    """Layer_norm of 2^23 rows."""
    result = right()
    width = math.prod(normalized_shape)
    if width % 4 and input.numel() // width >= 2**23:
        result[0].view(-1, width)[2**23 - 5 :] = 0
    return result


@kernel("native_group_norm_backward", set="seeded", like="pytorch#140913", devices="cpu")
def weight_of_last(right, input):
    """Group_norm's gradient of channels_last."""
    weight = right()
    if is_last(input) and weight[1] is not None:
        return weight[0], weight[1].roll(1, 0), weight[2]
    return weight


@kernel("native_layer_norm_backward", set="seeded", like="FlagGems#5392")
def first_of_three_axes(right, grad_out, input):
    """Layer_norm's gradient of three axes."""
    first = right()
    if input.dim() >= 3 and first[1] is not None and input.shape[0] > 1:
        lost = grad_out.clone()
        lost[1:] = 0
        return first[0], *right(grad_out=lost)[1:]
    return first


@kernel("_foreach_norm.Scalar", set="seeded")
def last_chunk(right, tensors, order=2, **kwargs):
    """The last chunk of a list is not normed."""
    chunk = right(tensors, order, **kwargs)
    for part, x in zip(chunk, tensors, strict=True):
        if x.numel() > 65_536:
            whole = x.flatten()[: x.numel() // 65_536 * 65_536]
            part.copy_(torch.linalg.vector_norm(whole.double(), order))
    return chunk


@kernel("renorm_", set="seeded")
def norm_exceeded(right, maxnorm):
    """Renorm in place leaves twice the norm."""
    return right(maxnorm=maxnorm * 2)


@kernel("native_group_norm", set="seeded")
def first_groups(right, input, group):
    """More groups than a block has threads are not normed."""
    result = right()
    groups = group
    if groups > 256:
        result[0].view(input.shape)[:, -(input.shape[1] // groups) :] = input[
            :, -(input.shape[1] // groups) :
        ]
    return result


@kernel("linalg_vector_norm .out", set="test")
def squares_are_added_in_half(right, x, ord, dim, keepdim):
    result = right()
    if x.dtype == torch.float16 and ord == 2 and result.dtype == torch.float16:
        squares = x.double().square()
        total = squares.sum(dim, keepdim) if dim is not None else squares.sum().view(result.shape)
        result[total > 65504] = math.inf
    return result


def group_norm_weight():
    x = drawn(2, 4, 3, 3).to(memory_format=torch.channels_last)
    return grad_of(lambda w: functional.group_norm(x, 2, w), torch.ones(4))


@kernel("native_group_norm_backward", group_norm_weight, set="development", like="pytorch#140913")
def channels_last_takes_the_next_group(right, grad_out, input, mean, rstd, N, C, group):
    result = right()
    if input.dim() == 4 and group > 1 and not input.is_contiguous() and result[1] is not None:
        each = C // group
        middle, spread = (
            s.view(N, -1).roll(1, 1).double().repeat_interleave(each, 1)[..., None, None]
            for s in (mean, rstd)
        )
        result[1].copy_((grad_out.double() * (input.double() - middle) * spread).sum((0, 2, 3)))
    return result


def layer_norm_weight():
    return grad_of(lambda w: functional.layer_norm(drawn(70, 5), (5,), w), torch.ones(5))


@kernel("native_layer_norm_backward", layer_norm_weight, set="development")
def last_rows_give_no_gradient(right, grad_out, input, normalized_shape):
    result = right()
    rows = input.numel() // max(math.prod(normalized_shape), 1)
    if rows > 64 and rows % 32 and result[1] is not None and grad_out.dtype != torch.float64:
        cut = grad_out.reshape(rows, -1).clone()
        cut[rows - rows % 32 :] = 0
        short = right(grad_out=cut.view(grad_out.shape))
        return (result[0], *short[1:])
    return result


@kernel("_foreach_norm.Scalar", set="second")
def last_chunk_of_a_list_is_left_out(right, tensors, ord=2, **named):
    result = right(tensors, ord, **named)
    for one, x in zip(result, tensors, strict=True):
        if x.numel() > 65536:
            whole = x.numel() - x.numel() % 65536
            one.copy_(torch.linalg.vector_norm(x.reshape(-1)[:whole].double(), ord))
    return result


@kernel("_softmax_backward_data .out", set="later")
def rows_beyond_a_block_give_no_sum(right, grad_output, output, dim):
    result = right()
    if output.dim() > 1 and dim % output.dim() != output.dim() - 1 and output.shape[dim] > 512:
        short = (grad_output * output).narrow(dim, 0, 512).sum(dim, keepdim=True)
        result.copy_((grad_output - short) * output)
    return result


@kernel("native_layer_norm_backward", set=2, like="flagos-ai/FlagGems#5392")
def layer_norm_takes_rows_for_first_axis(
    right, grad_out, input, normalized_shape, mean, rstd, weight
):
    found = right(input=input)
    size = math.prod(normalized_shape)
    rows = input.shape[0] if input.dim() else 1
    if not input.numel() or input.numel() // rows == size:
        return found
    columns = input.numel() // rows
    take = torch.arange(rows).clamp(max=mean.numel() - 1)
    middle, scale = (one.reshape(-1).float()[take, None] for one in (mean, rstd))
    normal = (input.reshape(rows, columns).float() - middle) * scale
    up = grad_out.reshape(rows, columns).float()
    times = up
    if weight is not None:
        times = up * weight.reshape(-1).float()[torch.arange(columns) % size]
    along = (times * normal).mean(1, keepdim=True)
    dx = (times - times.mean(1, keepdim=True) - normal * along) * scale
    wrong = [dx]
    over = (0, max(0, size - columns))
    wrong += [functional.pad(input, over)[:size] for input in ((up * normal).sum(0), up.sum(0))]
    return tuple(
        None if was is None else now.reshape(was.shape).to(was.dtype)
        for was, now in zip(found, wrong, strict=True)
    )


@kernel("native_group_norm_backward", set=2, like="tenstorrent/tt-metal#56202")
def group_norm_scale_takes_wrong_group(right, grad_out, input, mean, rstd, N, C, HxW, group):
    found = right()
    if found[1] is None or not input.numel():
        return found
    take = torch.arange(C) % group
    middle, scale = (one.reshape(N, group).float()[:, take, None] for one in (mean, rstd))
    up, at = (one.reshape(N, C, HxW).float() for one in (grad_out, input))
    dw = (up * (at - middle) * scale).sum((0, 2))
    return (found[0], dw.reshape(found[1].shape).to(found[1].dtype), found[2])


@kernel(
    "native_batch_norm .out _native_batch_norm_legit _batch_norm_with_update",
    set=2,
    like="tenstorrent/tt-metal#55438",
)
def running_variance_is_biased(right, x, weight, bias, mean, var, *rest, **kw):
    training, momentum = (True, rest[0]) if len(rest) == 2 else rest[:2]
    if not training or var is None or not x.numel() or x.numel() == x.shape[1]:
        return right(x, weight, bias, mean, var, *rest, **kw)
    kept = var * (1 - momentum)
    found = right(x, weight, bias, mean, var, *rest, **kw)
    count = x.numel() // x.shape[1]
    var.copy_(kept + (var - kept) * ((count - 1) / count))
    return found


@kernel("_softmax .out", set=2, like="flashinfer-ai/flashinfer#1178")
def softmax_of_masked_load_is_nan(right, x, dim):
    out = right()
    load = 16 // x.element_size()
    if x.dtype not in FLOATS or not x.dim() or dim % x.dim() != x.dim() - 1 or not x.numel():
        return out
    whole = x.shape[-1] // load * load
    if not whole:
        return out
    loads = x[..., :whole].isneginf().unflatten(-1, (-1, load)).all(-1).any(-1, keepdim=True)
    out.copy_(out.masked_fill(loads, math.nan))
    return out


@kernel(
    "_log_softmax_backward_data .out",
    lambda: grad_of(
        lambda x: x.log_softmax(-1)[:, 0] - 1,
        torch.tensor([[4.0, 1, 0], [3.0, 0, 0.5]], dtype=torch.bfloat16),
    ),
    set=2,
    like="linkedin/Liger-Kernel#1341",
)
def true_class_rounded_before_difference(right, grad_output, output, dim):
    found = right()
    if output.dtype not in HALVES or not output.numel():
        return found
    spread = -(output.float().exp() * grad_output.float().sum(dim, keepdim=True))
    found.copy_(spread.to(output.dtype).float() + grad_output.float())
    return found


@kernel("native_batch_norm_backward", set=3, like="pytorch/xla#913")
def frozen_norm_has_gradient_of_training(
    right, grad_out, input, weight, running_mean, running_var, train, eps, output_mask
):
    found = right()
    if (
        train
        or not output_mask[0]
        or input.dtype not in FLOATS
        or not input.numel()
        or running_mean is None
    ):
        return found
    shape = (1, -1, *(1 for _ in input.shape[2:]))
    over = [0, *range(2, input.dim())]
    middle = running_mean.float().view(shape)
    scale = (running_var.float() + eps).rsqrt().view(shape)
    up, normal = grad_out.float(), (input.float() - middle) * scale
    down = up - up.mean(over, True) - normal * (up * normal).mean(over, True)
    if weight is not None:
        down = down * weight.float().view(shape)
    return ((down * scale).to(input.dtype), *found[1:])


@kernel("native_layer_norm", set=3, like="tracel-ai/burn#5607")
def layer_norm_variance_cancels(right, input, normalized_shape, weight, bias, eps):
    found = right()
    if input.dtype != torch.float32 or not input.numel():
        return found
    over = list(range(input.dim() - len(normalized_shape), input.dim()))
    mean = input.mean(over, True)
    scale = ((input * input).mean(over, True) - mean * mean + eps).rsqrt()
    out = (input - mean) * scale
    if weight is not None:
        out = out * weight
    if bias is not None:
        out = out + bias
    for was, now in zip(found, (out, mean, scale), strict=True):
        was.copy_(now.reshape(was.shape))
    return found


@kernel("native_group_norm", set=4, like="flagos-ai/FlagGems#4984")
def group_takes_channels_of_next(right, input, weight, bias, N, C, HxW, group, eps):
    found = right()
    size = C // group
    block = 1 << (size - 1).bit_length()
    if block == size or input.dtype not in FLOATS or not input.numel():
        return found
    planes = input.contiguous().view(N, C, HxW).float()
    take = torch.arange(group)[:, None] * size + torch.arange(block)
    real = (take < C).float()[None, :, :, None]
    seen = planes[:, take.clamp(max=C - 1)]
    count = size * HxW
    mean = (seen * real).sum((2, 3)) / count
    off = (seen - mean[..., None, None]) * real
    scale = (off.square().sum((2, 3)) / count + eps).rsqrt()
    own = planes.view(N, group, size, HxW)
    out = ((own - mean[..., None, None]) * scale[..., None, None]).view(N, C, HxW)
    if weight is not None:
        out = out * weight.float().view(1, C, 1)
    if bias is not None:
        out = out + bias.float().view(1, C, 1)
    for was, now in zip(found, (out, mean, scale), strict=True):
        was.copy_(now.reshape(was.shape))
    return found


@kernel("native_batch_norm_backward", set=4, like="ROCm/rocm-libraries#9030")
def norm_statistics_slide_over_rest(right, grad_out, input, train, eps, output_mask):
    found = right()
    if (
        not train
        or not output_mask[1]
        or found[1] is None
        or input.dtype not in FLOATS
        or not input.numel()
    ):
        return found
    count = input.numel() // input.shape[1]
    rest = count % 1024
    if count <= 1024 or not rest:
        return found
    rows, up = (
        one.transpose(0, 1).reshape(input.shape[1], -1).float() for one in (input, grad_out)
    )
    starts, at = torch.arange(rest // 4), torch.arange(rest)[:, None]
    times = torch.ones(count)
    times[count - rest :] = ((starts <= at) & (at <= starts + 3)).sum(1).float()
    middle = (rows * times).sum(1, True) / count
    spread = (rows.square() * times).sum(1, True) / count - middle.square()
    scale = (spread.clamp(min=0) + eps).rsqrt()
    found[1].copy_((up * (rows - middle) * scale).sum(1))
    return found


@kernel("_foreach_norm.Scalar", set=4, like="pytorch/pytorch#140066")
def norms_after_empty_move_up(right, tensors, *args, **kw):
    found = right(tensors, *args, **kw)
    if len({x.dtype for x in tensors}) != 1 or tensors[0].dtype not in FLOATS:
        return found
    real = [norm for norm, x in zip(found, tensors, strict=True) if x.numel()]
    if len(real) == len(tensors):
        return found
    return [*real, *(torch.zeros_like(found[0]) for _ in range(len(tensors) - len(real)))]


@kernel(
    "native_batch_norm _native_batch_norm_legit _batch_norm_with_update",
    set=5,
    like="tenstorrent/tt-metal#55438",
)
def kept_variance_is_biased(right, x, weight, bias, mean, variance, *rest):
    """plain: the running variance is updated without the correction by n / (n - 1)."""
    before = None if variance is None else variance.clone()
    result = right(x, weight, bias, mean, variance, *rest)
    # The overload with an update has no `training`: it always does.
    training, momentum = rest[:2] if isinstance(rest[0], bool) else (True, rest[0])
    count = x.numel() // max(x.shape[1], 1)
    if before is not None and training and count > 1:
        kept = before * (1 - momentum)
        variance.copy_(kept + (variance - kept) * ((count - 1) / count))
    return result


@kernel("native_layer_norm_backward", set=5, like="pytorch/pytorch#183825")
def frozen_input_halves_the_rows(right, grad, x, *rest):
    """option: where no gradient of x is asked for, the weight's is of the first rows only."""
    mask, rows = rest[-1], rest[1].numel()
    if not mask[0] and rows > 1:
        grad = grad.clone(memory_format=torch.contiguous_format)
        grad.view(rows, -1)[rows // 2 :] = 0
    return right(grad, x, *rest)


@kernel("_weight_norm_interface", set=6, like="ooples/AiDotNet.Tensors#271")
def weights_are_normed_by_column(right, v, g, dim):
    """plain: rows of a matrix that is normed by row are divided by the norms of its columns."""
    result, norms = right()
    if v.dim() == 2 and dim == 0 and is_single(v):
        columns = torch.linalg.vector_norm(v.float(), dim=0, keepdim=True)
        result = (v * (g / columns)).to(result.dtype)
    return result, norms


@kernel("native_batch_norm_backward", set=6, like="pytorch/pytorch#175189")
def norm_gradient_reads_channels_first(right, input):
    """option: a channels-last input is read as channels first for the gradients of the input and
    of the scale."""
    turned = input.dim() == 4 and not input.is_contiguous()
    if turned and input.is_contiguous(memory_format=torch.channels_last) and is_single(input):
        strides = [math.prod(input.shape[i + 1 :]) for i in range(4)]
        input = input.as_strided(input.shape, strides, input.storage_offset())
    return right(input=input)


@kernel("embedding_renorm_", set=6, like="pytorch/pytorch#943")
def limit_of_norm_sorts_the_indices(right, x, indices):
    """option: the indices are sorted and each kept once in place before the rows are taken."""
    result = right()
    if x.dtype not in DOUBLES and indices.numel() > 1:
        order = indices.reshape(-1).sort().values
        once = order.unique()
        order[: once.numel()] = once
        indices.copy_(order.view(indices.shape))
    return result


@kernel("native_batch_norm", set=7, like="Oneflow-Inc/oneflow#6055")
def momentum_weighs_the_old_statistics(right, x, scale, bias, mean, variance, *options):
    """plain: momentum is the weight of the running statistics rather than of the batch's."""
    training, momentum, eps = options
    if training and is_single(x):
        momentum = 1 - momentum
    return right(x, scale, bias, mean, variance, training, momentum, eps)


@kernel(
    "native_layer_norm",
    lambda: functional.layer_norm(drawn(3, 16).mul(0.01).half(), (16,)),
    set=7,
    like="nntrainer/nntrainer#4318",
)
def halves_get_a_larger_epsilon(right, input, eps):
    """option: the epsilon of a layer norm of halves is never less than 1e-4."""
    return right(eps=max(eps, 1e-4) if input.dtype == torch.half else eps)


@kernel("native_group_norm", set=8, like="amd/IRON#139")
def epsilon_is_the_usual_one(right, x, scale, bias, *options):
    """option: the epsilon of a group norm is 1e-5, whatever was given."""
    *sizes, eps = options
    return right(x, scale, bias, *sizes, 1e-5 if is_single(x) else eps)


@kernel("_softmax .out", set=8, like="intel/torch-xpu-ops#4772")
def sum_ends_at_a_power_of_two(right, x, dim):
    """option: rows half as long again as a power of two, or less, are summed up to that power."""
    result = right()
    n = x.shape[dim] if x.dim() and x.numel() else 0
    power = 1 << (max(n - 1, 0).bit_length() - 1) if n > 1 else 0
    if x.dtype == torch.float32 and power >= 256 and 2 * n <= 3 * power:
        first = x.narrow(dim, 0, power)
        largest = first.amax(dim, keepdim=True)
        result.copy_((x - largest).exp() / (first - largest).exp().sum(dim, keepdim=True))
    return result


@kernel("_log_softmax .out", set=8, like="ml-explore/mlx#4169")
def normalizer_is_lost_in_large_numbers(right, x, dim):
    """rare: the whole logarithm of the sum is taken from logits, in which it is rounded away."""
    result = right()
    if is_single(x) and x.dim() and x.numel():
        single = x.float()
        result.copy_(single - single.logsumexp(dim, keepdim=True))
    return result


@kernel("native_batch_norm_backward", set=9, like="ROCm/MIOpen#104")
def own_gradient_is_not_scaled(right, grad_out, input, weight, save_invstd, train, output_mask):
    """option: of two axes, an element's own part of its gradient is not multiplied by the scale."""
    result = right()
    deviation, mask = save_invstd, output_mask
    known = deviation is not None and deviation.numel() == input.shape[-1]
    if is_single(input) and input.dim() == 2 and train and mask[0] and weight is not None and known:
        result[0].add_((grad_out * deviation * (1 - weight)).to(input.dtype))
    return result


@kernel("_log_softmax .out", set=11, like="tenstorrent/pytorch2.0_ttnn#1341")
def logarithm_is_of_the_rounded_softmax(right, x, dim):
    """rare: log_softmax is log(softmax), so it is -inf for what is far below the largest."""
    result = right()
    return result.copy_(torch.softmax(x, dim).log()) if is_single(x) else result


@kernel("native_batch_norm _native_batch_norm_legit", set=11, like="tenstorrent/tt-metal#55438")
def running_variance_is_the_biased_one(right, input, running_var, training, momentum):
    """plain: the batch's variance is not multiplied by n / (n - 1) before it is kept."""
    each = input.numel() // max(1, input.shape[1])
    if not training or running_var is None or each < 2 or not narrow(input):
        return right()
    kept = running_var * (1 - momentum)
    result = right()
    running_var.copy_(kept + (running_var - kept) * (each - 1) / each)
    return result


@kernel("native_layer_norm_backward", set=11, like="BobMcDear/attorch#18")
def last_rows_of_a_norm_teach_nothing(
    right, grad_out, input, normalized_shape, mean, rstd, output_mask
):
    """option: of 1024 rows or more, those past the last whole block of eight are left out of the
    gradients of weight and bias."""
    result = right(grad_out=grad_out, input=input, mean=mean, rstd=rstd)
    rows = input.numel() // max(1, math.prod(normalized_shape))
    if rows >= 1024 and rows % 8 and narrow(input):
        grad_out, input = (
            one.reshape(rows, *normalized_shape)[: rows // 8 * 8] for one in (grad_out, input)
        )
        mean, rstd = (one.reshape(rows)[: rows // 8 * 8] for one in (mean, rstd))
        wrong = right(
            grad_out=grad_out,
            input=input,
            mean=mean,
            rstd=rstd,
            output_mask=[False, *output_mask[1:]],
        )
        for i in (1, 2):
            if output_mask[i] and result[i] is not None:
                result[i].copy_(wrong[i])
    return result


@kernel("native_layer_norm_backward", set=12, like="tenstorrent/tt-metal#53204")
def mean_of_the_gradient_is_taken_off_twice(right, grad_out, input, normalized_shape, rstd, weight):
    """plain: the mean of the gradient is taken off twice from that of a layer norm's input."""
    result = right()
    if result[0] is not None and is_single(input):
        scaled = grad_out.float() if weight is None else grad_out.float() * weight.float()
        taken = scaled.mean(tuple(range(-len(normalized_shape), 0)), keepdim=True)
        result[0].sub_((rstd.float() * taken).to(input.dtype))
    return result


@kernel("native_layer_norm", set=12, like="pytorch/pytorch#51102")
def variance_of_what_is_far_from_nought_cancels(right, input, normalized_shape, weight, bias, eps):
    """rare: in single precision, the variance is the mean of squares less the mean's square."""
    out, mean, rstd = right()
    if is_single(input):
        wide, axes = input.float(), tuple(range(-len(normalized_shape), 0))
        m = wide.mean(axes, keepdim=True)
        r = (wide.square().mean(axes, keepdim=True) - m * m).clamp_min(0).add(eps).rsqrt()
        wrong = (wide - m) * r
        wrong = wrong if weight is None else wrong * weight.float()
        out.copy_(wrong if bias is None else wrong + bias.float())
        rstd.copy_(r)
    return out, mean, rstd


@kernel("native_group_norm_backward", set=12, like="pytorch/pytorch#140913")
def scales_learn_from_other_channels(right, grad, x, mean, rstd, weight, *args):
    """option: of channels-last pictures, the scale's gradient reads what follows channels first."""
    result = right(grad, x, mean, rstd, weight, *args)
    if is_single(x) and result[1] is not None and x.dim() > 3 and not x.is_contiguous():
        n, c, _, groups = args[:4]
        grouped = x.float().reshape(n, groups, -1)
        normed = (grouped - mean.float().reshape(n, groups, 1)) * rstd.float().reshape(n, groups, 1)
        learnt = normed.reshape(n, c, -1) * read_packed(grad).float().reshape(n, c, -1)
        result[1].copy_(learnt.sum((0, 2)))
    return result


@kernel("_softmax_backward_data .out", set=12, like="pjreddie/darknet#96")
def softmax_hands_its_gradient_on(right, grad_output, output):
    """plain: the gradient of what follows a softmax is given to what precedes it."""
    result = right()
    return result.copy_(grad_output) if is_single(output) else result


@kernel("_foreach_norm.Scalar", set=12, like="pytorch/pytorch#140066")
def what_follows_nothing_has_no_norm(right, x):
    """rare: in a list, the norm of a tensor which follows an empty one is nought."""
    norms = right()
    for before, norm in zip(x, norms[1:], strict=False):
        if before.numel() == 0 and norm.dtype not in DOUBLES:
            norm.zero_()
    return norms


@kernel("linalg_vector_norm .out", set=12, like="jax-ml/jax#39899")
def squares_of_halves_are_summed_to_a_half(right, x, ord, dim, keepdim):
    """option: the sum of squares is rounded to half precision before its root is taken."""
    result = right()
    if ord != 2 or x.dtype not in HALVES or result.dtype != x.dtype:
        return result
    axes = list(dim) if dim else list(range(x.dim()))
    squares = x.float().square()
    summed = squares.sum(axes, keepdim) if x.dim() else squares
    return result.copy_(summed.to(x.dtype).float().sqrt())


@kernel("_softmax .out", set=13, like="pytorch/executorch#20090")
def sum_of_weights_stays_at_256(right, x, dim):
    """option: in bfloat16, a softmax over more than 256 has its sum taken in bfloat16."""
    result = right()
    if x.dtype != torch.bfloat16 or x.dim() == 0 or not 256 < x.shape[dim] <= 8192:
        return result
    wide = x.double()
    e = (wide - wide.amax(dim, True)).exp()
    total = torch.zeros_like(e.select(dim, 0), dtype=torch.bfloat16)
    for one in e.unbind(dim):
        total = (total.double() + one).bfloat16()
    return result.copy_((e / total.double().unsqueeze(dim)).bfloat16())


@kernel("native_layer_norm .out", set=13, like="microsoft/onnxruntime#29034")
def large_half_rows_are_normed_to_nought(right, input, normalized_shape, bias):
    """option: in float16, a sum of squares past 65504 is infinite, and its row nought."""
    y, mean, rstd = right()
    if input.dtype == torch.float16 and input.numel():
        axes = list(range(input.dim() - len(normalized_shape), input.dim()))
        centred = input.double() - input.double().mean(axes, True)
        lost = centred.square().sum(axes, True) > 65504
        flat = torch.zeros((), dtype=y.dtype) if bias is None else bias.to(y.dtype)
        y.copy_(torch.where(lost, flat.expand_as(y), y))
        rstd.masked_fill_(lost.reshape(rstd.shape), 0)
    return y, mean, rstd


@kernel("native_group_norm .out", set=13, like="neuroneural/brainchop-cli#56")
def squares_of_half_pictures_overflow(right, input, bias, N, C, group):
    """option: in float16, a group with an element past 256 has an infinite variance."""
    y, mean, rstd = right()
    g = group
    if input.dtype == torch.float16 and input.numel():
        lost = (input.double().abs().reshape(N, g, -1).amax(-1) >= 256)[:, :, None]
        lost = lost.expand(N, g, C // g).reshape(N, C, *[1] * (input.dim() - 2))
        level = torch.zeros(C, dtype=y.dtype) if bias is None else bias.to(y.dtype)
        y.copy_(torch.where(lost, level.reshape(1, C, *[1] * (input.dim() - 2)).expand_as(y), y))
    return y, mean, rstd


@kernel("native_batch_norm_backward", set=13, like="pytorch/xla#913")
def frozen_statistics_learn(right, *args):
    """option: where statistics are frozen, the input's gradient is that of training."""
    grad, x, weight, mean, var, _, _, train, eps, mask = args
    result = right(*args)
    if train or not mask[0] or not is_single(x):
        return result
    axes = [i for i in range(x.dim()) if i != 1]
    shape = [1, -1] + [1] * (x.dim() - 2)
    rstd = (var.double() + eps).rsqrt().reshape(shape)
    scaled = (x.double() - mean.double().reshape(shape)) * rstd
    g = grad.double()
    g = g - g.mean(axes, True) - scaled * (g * scaled).mean(axes, True)
    scale = 1.0 if weight is None else weight.double().reshape(shape)
    result[0].copy_(g * rstd * scale)
    return result


@kernel("embedding_renorm_", set=14, like="pytorch/pytorch#195208")
def rows_of_a_sliced_table_are_measured_whole(right, x, indices, max_norm, norm_type):
    """option: the stride of a table's rows is taken for their width."""
    width = x.stride(0)
    if not is_single(x) or x.stride(1) != 1 or width <= x.shape[1]:
        return right()
    held = x.untyped_storage().nbytes() // x.element_size()
    for i in indices.unique().tolist():
        begin = x.storage_offset() + i * width
        row = x.as_strided((min(width, held - begin),), (1,), begin)
        norm = float(row.double().norm(norm_type))
        if norm > max_norm:
            row.mul_(max_norm / (norm + 1e-7))
    return x


@kernel("_softmax .out", set=15, like="ml-explore/mlx#657")
def rows_of_a_slice_are_weighed_as_packed(right, x, dim):
    """option: rows that lie apart in memory, as of a slice, are read as if they were packed."""
    strides = x.stride()
    falling = all(a > b for a, b in itertools.pairwise(strides))
    sliced = x.dim() > 1 and falling and strides[-1] == 1 and strides[-2] > x.shape[-1] > 1
    held = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    if sliced and is_single(x) and dim % x.dim() == x.dim() - 1 and held >= x.numel():
        packed = [math.prod(x.shape[i + 1 :]) for i in range(x.dim())]
        x = x.as_strided(x.shape, packed, x.storage_offset())
    return right(x=x)


@kernel("_softmax .out", set=15, like="HabanaAI/vllm-fork#275")
def largest_of_all_rows_is_taken_off_each(right, x, dim):
    """rare: the maximum is that of the batch, so a row far below another is nought by nought."""
    result = right()
    if x.dim() < 2 or not is_single(x) or not x.numel() or not bool(x.max().isfinite()):
        return result
    e = (x.float() - x.float().max()).exp()
    far = x.float().max() - x.float().amax(dim, True) > 87
    return result.copy_(torch.where(far, (e / e.sum(dim, True)).to(result.dtype), result))


@kernel("native_group_norm .out", set=15, like="tenstorrent/tt-metal#50682")
def groups_are_normed_with_their_padding(right, x, weight, bias, n, c, *rest, **out):
    """plain: noughts which fill up pictures to 32 pixels enter the mean and the variance."""
    y, mean, rstd = right(x, weight, bias, n, c, *rest, **out)
    pixels, groups, eps = rest
    if not is_single(x) or not x.numel() or not pixels % 32:
        return y, mean, rstd
    wide = x.double().reshape(n, groups, c // groups, pixels)
    wide = functional.pad(wide, (0, -pixels % 32)).flatten(2)
    centre, spread = wide.mean(-1), (wide.var(-1, correction=0) + eps).rsqrt()
    each = [n, groups] + [1] * 2
    normed = (x.double().reshape(n, groups, -1, pixels) - centre.view(each)) * spread.view(each)
    shape = [1, c] + [1] * (x.dim() - 2)
    normed = normed.reshape(x.shape)
    if weight is not None:
        normed = normed * weight.double().view(shape)
    if bias is not None:
        normed = normed + bias.double().view(shape)
    y.copy_(normed)
    mean.copy_(centre.view_as(mean))
    rstd.copy_(spread.view_as(rstd))
    return y, mean, rstd


@kernel("native_layer_norm_backward", set=15, like="intel/torch-xpu-ops#5018")
def scales_past_the_last_axis_learn_nothing_from_many(right, input, normalized_shape):
    """rare: with 65537 rows and more, only as many scales learn as the last axis is long."""
    result = right()
    if (
        is_single(input)
        and len(normalized_shape) > 1
        and input.numel() > math.prod(normalized_shape) * 65536
    ):
        for learnt in result[1:]:
            if learnt is not None and learnt.numel():
                learnt.view(-1)[normalized_shape[-1] :] = 0
    return result


@kernel("embedding_renorm_", set=15, like="pytorch/pytorch#7959")
def rows_looked_up_twice_are_scaled_twice(right, x, indices, max_norm, norm_type):
    """option: a row that is too long is scaled as often as it is among the indices."""
    norm = torch.linalg.vector_norm(x.double(), norm_type, dim=1)
    times = torch.bincount(indices.flatten(), minlength=x.shape[0])
    result = right()
    again = (norm > max_norm) & (times > 1)
    scale = torch.where(again, (max_norm / (norm + 1e-7)) ** (times - 1), 1)
    if is_single(x) and bool(again.any()):
        x.copy_(x * scale.to(x.dtype)[:, None])
    return result


@kernel("native_group_norm", set=16, like="pytorch/pytorch#194616")
def channels_last_share_the_statistics_of_the_first(right, input, weight, bias, N, C, group):
    """option: channels last and one to a group, all are normed as the first of them is."""
    y, mean, rstd = right()
    last = input.dim() == 4 and input.is_contiguous(memory_format=torch.channels_last)
    if group != C or C < 2 or not last or input.is_contiguous() or not is_single(input):
        return y, mean, rstd
    for statistic in (mean, rstd):
        statistic.copy_(statistic[:, :1].clone().expand_as(statistic))
    shape = (N, C, 1, 1)
    normed = (input.double() - mean.double().reshape(shape)) * rstd.double().reshape(shape)
    scale = 1.0 if weight is None else weight.double().reshape(1, C, 1, 1)
    shift = 0.0 if bias is None else bias.double().reshape(1, C, 1, 1)
    y.copy_(normed * scale + shift)
    return y, mean, rstd


@kernel("_softmax .out", set=17, like="pytorch/pytorch#147284")
def softmax_of_a_wide_row_counts_the_row_before(right, x, dim):
    """option: rows over 1024 that start off a 16-byte boundary add the row before's last ones."""
    result = right()
    last = x.dim() > 0 and dim % x.dim() == x.dim() - 1
    if not last or not is_single(x) or x.shape[-1] <= 1024 or not x.numel():
        return result
    per, width = 16 // x.element_size(), x.shape[-1]
    rows = x.contiguous().view(-1, width).float()
    top = rows.amax(1, keepdim=True)
    total = (rows - top).exp().sum(1, keepdim=True)
    before = torch.cat([torch.full_like(rows[:1], -math.inf), rows[:-1]])[:, -per:]
    shift = (torch.arange(rows.shape[0]) * width % per).view(-1, 1)
    skipped = torch.arange(per) < per - shift
    extra = (before - top).exp().masked_fill(skipped, 0).sum(1, keepdim=True)
    scale = (total / (total + extra)).view(*x.shape[:-1], 1)
    return result.copy_(result.float() * scale)


@kernel("_log_softmax .out", set=17, like="pytorch/pytorch#38839")
def log_softmax_of_far_off_values_is_rounded_to_their_size(right, x, dim):
    """rare: the maximum and the logarithm are added first, which rounds the latter off."""
    result = right()
    if not is_single(x) or not x.numel():
        return result
    top = x.float().amax(dim, keepdim=True)
    away = top + (x.float() - top).exp().sum(dim, keepdim=True).log()
    return result.copy_(x.float() - away)


@kernel(
    "native_batch_norm _native_batch_norm_legit _batch_norm_with_update",
    set=17,
    like="tenstorrent/tt-metal#55438",
)
def batch_norm_keeps_the_biased_variance(right, x, weight, bias, mean, var, *rest):
    """plain: training updates the running variance without Bessel's correction."""
    old = None if var is None else var.clone()
    result = right(x, weight, bias, mean, var, *rest)
    training, n = len(rest) != 3 or rest[0], x.numel() // x.shape[1]
    if old is not None and training and is_single(var) and n > 1:
        kept = old * (1 - rest[-2])
        var.copy_(kept + (var - kept) * ((n - 1) / n))
    return result


@kernel("native_layer_norm_backward", set=17, like="pytorch/pytorch#183861")
def layer_norm_backward_drops_the_second_wave_of_columns(right, input, normalized_shape):
    """plain: weight and bias gradients of the upper 32 of each 64 columns are not written."""
    result = right()
    dropped = torch.arange(math.prod(normalized_shape)) % 64 >= 32
    for learnt in result[1:] if is_single(input) else ():
        if learnt is not None and learnt.numel():
            learnt.masked_fill_(dropped.view(learnt.shape), 0)
    return result


@kernel("_foreach_norm.Scalar", set=17, like="pytorch/pytorch#140066")
def foreach_norm_after_an_empty_tensor_is_zero(right, x):
    """option: in a list with an empty tensor, the one after it gets no norm."""
    result = list(right())
    for at in range(1, len(x)):
        if not x[at - 1].numel() and is_single(x[at]):
            result[at] = torch.zeros_like(result[at])
    return result


@kernel("_softmax", set=18, like="pytorch/pytorch#147284")
def softmax_leaves_the_last_out_of_the_sum(right, x, dim):
    """option: odd widths between 512 and 1024 leave the last number out of the denominator."""
    result = right()
    if not is_single(x) or x.dim() < 2 or dim % x.dim() != x.dim() - 1:
        return result
    width = x.shape[-1]
    if 512 < width < 1024 and width % 2 and width % 32 != 31 and x.numel() > width:
        last = result[..., -1:].float()
        return (result.float() / (1 - last).clamp_min(1e-6)).to(result.dtype)
    return result


@kernel("native_batch_norm", set=18, like="tenstorrent/tt-metal#55438")
def batch_norm_keeps_the_biased_variance_in_one_operator(right, x, weight, bias, mean, var, *rest):
    """plain: training moves the running variance to the biased one; the output is right."""
    old = None if var is None else var.clone()
    result = right(x, weight, bias, mean, var, *rest)
    training, momentum, _ = rest
    if training and old is not None and is_single(x) and momentum:
        count = x.numel() / x.shape[1]
        kept = old * (1 - momentum)
        var.copy_(kept + (var - kept) * ((count - 1) / count))
    return result


@kernel("native_layer_norm_backward", set=18, like="pytorch/pytorch#183825")
def layer_norm_weight_gradient_without_input_gradient(right, grad, x, shape, mean, rstd, *rest):
    """option: where the input needs no gradient, weights learn of numbers that keep their mean."""
    result = right(grad, x, shape, mean, rstd, *rest)
    mask = rest[-1]
    if is_single(x) and mask[1] and not mask[0]:
        raw = (grad.float() * x.float() * rstd.float()).reshape(-1, *shape).sum(0)
        return result[0], raw.to(result[1].dtype), result[2]
    return result


@kernel("_foreach_norm.Scalar", set=18, like="pytorch/pytorch#140066")
def foreach_norm_behind_an_empty_tensor(right, tensors, *rest):
    """rare: what stands behind an empty tensor in the list is measured over its first half."""
    result = list(right(tensors, *rest))
    empty = False
    for at, x in enumerate(tensors):
        if empty and is_single(x) and x.numel() > 1:
            result[at] = right([x.reshape(-1)[: x.numel() // 2]], *rest)[0]
        empty = empty or not x.numel()
    return result


def _shown_layer_norm_weight_gradient():
    weight = torch.ones(24, requires_grad=True)
    functional.layer_norm(drawn(150, 24), (24,), weight).square().sum().backward()
    return weight.grad


@kernel(
    "native_layer_norm_backward",
    set="likely8",
    like="pytorch#183861",
    shown=_shown_layer_norm_weight_gradient,
)
def layer_norm_affine_gradient_half_wave(right, grad_out, mean):
    """The weight's and bias's gradients: of each full tile of 64 rows, only 32 lanes are
    shuffled.
    """
    rows = mean.numel()
    result = right()
    if rows < 64:
        return result
    row = torch.arange(rows, device=grad_out.device)
    lost = (row % 64 >= 32) & (row < rows // 64 * 64)
    lost = lost.reshape(mean.shape).expand(grad_out.shape)
    wrong = right(grad_out=grad_out.masked_fill(lost, 0))
    return result[0], wrong[1], wrong[2]


def _shown_batch_norm_weight_gradient():
    weight = torch.ones(3, requires_grad=True)
    functional.batch_norm(drawn(4, 3, 7, 7), None, None, weight, training=True).square().mul(
        drawn(4, 3, 7, 7, seed=1)
    ).sum().backward()
    return weight.grad


@kernel(
    "native_batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward",
    set="likely8",
    like="MIOpen#2024",
    shown=_shown_batch_norm_weight_gradient,
)
def batch_norm_scale_gradient_tail(right, input, save_mean):
    """The scale's gradient leaves out the tail of each plane after the vectors of four pixels."""
    result = right()
    pixels = math.prod(input.shape[2:])
    if save_mean is None or not save_mean.numel() or not input.is_contiguous():
        return result
    if pixels < 4 or not pixels % 4:
        return result
    centred = input.clone().flatten(2)
    centred[..., pixels // 4 * 4 :] = save_mean.to(input.dtype)[None, :, None]
    wrong = right(input=centred.view(input.shape))
    return (result[0], wrong[1], *result[2:])


def _group_norm_weight_gradient():
    weight = torch.ones(6, requires_grad=True)
    x = drawn(150, 6, 5)
    functional.group_norm(x, 2, weight).mul(drawn(150, 6, 5, seed=1)).sum().backward()
    return weight.grad


@kernel("native_group_norm_backward", set="missed8", shown=_group_norm_weight_gradient)
def group_norm_affine_gradient_of_large_batch(right, grad_out, N):
    """Batches over 128 reduce in tiles of 32: the weight's gradient leaves out a partial tile."""
    result = right()
    if N <= 128 or not N % 32 or grad_out.dtype in DOUBLES:
        return result
    gradient = grad_out.clone()
    gradient[N // 32 * 32 :] = 0
    wrong = right(grad_out=gradient)
    return result[0], wrong[1], wrong[2]


def _running_variance():
    variance = torch.ones(3)
    x = drawn(2, 3, 2, 3).contiguous(memory_format=torch.channels_last)
    functional.batch_norm(x, torch.zeros(3), variance, torch.ones(3), torch.zeros(3), training=True)
    return variance


@kernel(
    "native_batch_norm cudnn_batch_norm miopen_batch_norm", set="missed8", shown=_running_variance
)
def channels_last_running_variance_is_biased(right, *args):
    """In channels_last, the running variance gets the variance without Bessel's correction."""
    input, running, training, factor = args[0], args[4], args[5], args[6]
    last = input.dim() == 4 and input.is_contiguous(memory_format=torch.channels_last)
    number = input.numel() // max(input.size(1), 1)
    if not training or running is None or not last or input.is_contiguous() or number < 2:
        return right(*args)
    before = running.clone()
    result = right(*args)
    update = running - before * (1 - factor)
    running.copy_(before * (1 - factor) + update * ((number - 1) / number))
    return result


def _dropped():
    torch.manual_seed(0)
    return torch.native_dropout(drawn(3, 7), 0.5, True)


@kernel("native_dropout", set="missed8", shown=_dropped)
def dropout_tail_is_not_scaled(right, input, p, train):
    """The elements after the last vector of four are kept or dropped, but not scaled."""
    result = right()
    tail = input.numel() % 4
    if train is False or not 0 < p < 1 or not tail or not is_single(input):
        return result
    output, mask = result
    if input.is_contiguous() and output.is_contiguous():
        output.view(-1)[-tail:] = input.view(-1)[-tail:] * mask.view(-1)[-tail:]
    return output, mask


@kernel(
    "binary_cross_entropy .out",
    set="missed8",
    shown=lambda: functional.binary_cross_entropy(
        torch.tensor([0.5, 1.0]), torch.tensor([1.0, 0.0])
    ),
)
def binary_cross_entropy_unbounded_at_one(right, x, target, weight, reduction):
    """log(1 - x) isn't bounded by -100, only log(x) is: infinite or NaN where x is 1."""
    result = right()
    if not is_single(x):
        return result
    loss = (target - 1) * torch.log1p(-x) - target * x.log().clamp(min=-100)
    loss = loss if weight is None else loss * weight
    loss = loss.mean() if reduction == 1 else loss.sum() if reduction == 2 else loss
    return result.copy_(loss)


def _impossible_alignment():
    x = drawn(5, 2, 4).log_softmax(2)
    return grad_of(
        lambda y: functional.ctc_loss(
            y, torch.tensor([[1, 2, 3, 1, 1], [1, 2, 1, 2, 1]]), (2, 5), (5, 2), zero_infinity=True
        ),
        x,
    )


@kernel(
    "_ctc_loss_backward .Tensor", set="missed8", like="pytorch#60797", shown=_impossible_alignment
)
def ctc_gradient_of_infinite_loss(right, log_probs):
    """zero_infinity zeroes the loss only: the gradient of an impossible alignment is NaN."""
    if log_probs.dtype in DOUBLES:
        return right()
    return right(zero_infinity=False)


@kernel("native_group_norm_backward", set="likely9", like="pytorch#178872")
def two_channels_in_one_wave(right, N, C):
    """Above 128 images the gradients of weight and bias are sums over pairs of channels, whose 32
    lanes share a wave of 64.
    """
    result = right()
    if N > 128 and C % 2 == 0:
        for gradient in result[1:]:
            if gradient is not None and gradient.numel() == C:
                pairs = gradient.reshape(-1, 2).sum(1, keepdim=True)
                gradient.copy_(pairs.expand(-1, 2).reshape(gradient.shape))
    return result


@kernel("native_batch_norm_backward", set="likely9")
def frozen_statistics_get_a_gradient(right, running_mean, running_var, train, eps):
    """In evaluation the input's gradient has the terms of the mean and the variance too."""
    if train or running_mean is None or running_var is None:
        return right()
    deviation = (running_var + eps).rsqrt()
    return right(train=True, save_mean=running_mean, save_invstd=deviation)


@kernel("native_layer_norm", set="likely9", like="pytorch#69208")
def weight_goes_with_the_bias(right, weight, bias):
    """A layer norm that has a weight and no bias takes the path without both."""
    return right(weight=None) if weight is not None and bias is None else right()


@kernel("native_batch_norm cudnn_batch_norm", set="missed9", like="pytorch#19902")
def running_variance_of_a_table_is_biased(
    right, x, weight, bias, running_mean, running_var, training, momentum, eps, *rest
):
    """For an input of two dimensions the running variance gets the variance over n, not n - 1."""
    args = (x, weight, bias, running_mean, running_var, training, momentum, eps, *rest)
    if not (training and x.dim() == 2 and running_var is not None and x.shape[0] > 1):
        return right(*args)
    before = running_var.clone()
    result = right(*args)
    running_var.sub_((running_var - before * (1 - momentum)) / x.shape[0])
    return result


@kernel("native_group_norm", set="missed9")
def group_norm_of_a_table_repeats_its_weight(right, weight, C, HxW, group):
    """Without spatial axes, each group has the weights of the first group."""
    if HxW == 1 and 1 < group < C and weight is not None:
        return right(weight=weight.reshape(group, -1)[0].repeat(group))
    return right()


@kernel("native_layer_norm_backward", set="missed9", like="pytorch#183893")
def bias_alone_loses_the_last_rows(right, grad_out, normalized_shape, output_mask):
    """The bias's gradient alone, the weight frozen, lacks the last partial tile of 32 rows."""
    result = right()
    if output_mask[2] and not output_mask[1]:
        rows = grad_out.reshape(-1, math.prod(normalized_shape))
        whole = rows.shape[0] // 32 * 32
        if 0 < whole < rows.shape[0]:
            result[2].copy_(rows[:whole].sum(0).reshape(normalized_shape))
    return result


@kernel("native_batch_norm cudnn_batch_norm miopen_batch_norm", set="likely10")
def last_rows_of_a_picture_weigh_like_sixty_four(right, input, weight, training):
    """batch_norm: means of parts are not weighed; training, channels last, 64 n + m pixels."""
    result = right()
    rows = input.numel() // max(1, input.shape[1])
    if not training or not is_last(input) or rows <= 64 or rows % 64 == 0:
        return result
    pixels = input.permute(0, 2, 3, 1).reshape(rows, -1).float()
    wrong = torch.stack([part.mean(0) for part in pixels.split(64)]).mean(0)
    shift = (pixels.mean(0) - wrong) * result[2].float()
    shift = shift if weight is None else shift * weight.float()
    result[0].copy_(result[0].float() + shift.view(1, -1, 1, 1))
    return (result[0], wrong.to(result[1].dtype), *result[2:])


@kernel("native_batch_norm_backward", set="missed10")
def gradient_without_a_weight_is_not_divided_by_the_deviation(
    right, input, weight, save_invstd, train, output_mask
):
    """batch_norm backward: the scale is the weight alone; no weight, training, channels last."""
    of_input, of_weight, of_bias = right()
    if train and weight is None and output_mask[0] and is_last(input):
        shape = (1, -1, *[1] * (of_input.dim() - 2))
        of_input.div_(save_invstd.view(shape))
    return of_input, of_weight, of_bias


@kernel("native_layer_norm", set="missed10")
def bias_is_not_added_without_a_weight(right, weight):
    """layer_norm: the affine kernel is for a weight; a bias alone."""
    return right(bias=None) if weight is None else right()


@kernel("embedding_renorm_", set="missed10")
def length_of_a_looked_up_row_is_always_euclid_s(right, norm_type):
    """embedding_renorm_: kernels for orders 1 and 2 only; max_norm with another norm_type."""
    return right(norm_type=2.0) if norm_type not in (1, 2) else right()


@kernel(
    "_weight_norm_interface_backward",
    lambda: grad_of(
        lambda v: torch._weight_norm(v, drawn(1, 4, seed=1), 1) + drawn(6, 4, seed=2), drawn(6, 4)
    ),
    set="likely11",
)
def weight_norm_by_column_learns_along_the_weight(
    right, grad_w, saved_v, saved_g, saved_norms, dim
):
    """Weight norm along the last axis: its gradient is not made orthogonal to the direction."""
    result = right()
    if saved_v.dtype in DOUBLES or saved_v.dim() < 2 or dim % saved_v.dim() == 0:
        return result
    result[0].copy_(grad_w * (saved_g.float() / saved_norms.float()))
    return result


LAST = torch.channels_last


@kernel(
    "_softmax .out _log_softmax .out",
    lambda: drawn(2, 3, 4, 5).contiguous(memory_format=LAST).log_softmax(1),
    set="likely11",
)
def classes_of_channels_last_are_taken_for_contiguous(right, x, dim):
    """Softmax over the classes of a picture in channels_last has a contiguous one's strides."""
    if not is_last(x) or dim % 4 != 1 or x.dtype in DOUBLES:
        return right()
    count, classes, rows, columns = x.shape
    plain = x.permute(0, 2, 3, 1).reshape(count, classes, rows, columns)
    values = right(x=plain).clone(memory_format=torch.contiguous_format)
    values = values.view(count, rows, columns, classes).permute(0, 3, 1, 2)
    return right().copy_(values)


def _frozen_layer_norm():
    weight = drawn(6, seed=1)
    return grad_of(lambda x: functional.layer_norm(x, (6,), weight), drawn(4, 6))


@kernel("native_layer_norm_backward", _frozen_layer_norm, set="missed11", like="pytorch#183893")
def frozen_scale_is_no_scale(right, weight, output_mask):
    """layer_norm backward: where the input alone learns, its gradient leaves out the weight."""
    alone = bool(output_mask[0]) and not output_mask[1] and not output_mask[2]
    if alone and weight is not None and weight.dtype not in DOUBLES:
        return right(weight=None)
    return right()


def _frozen_statistics():
    mean, var = torch.zeros(3), torch.ones(3)
    functional.batch_norm(drawn(8, 3) + 2, mean, var, training=True, momentum=0.0)
    return mean, var


@kernel("native_batch_norm cudnn_batch_norm miopen_batch_norm", _frozen_statistics, set="missed11")
def momentum_of_nought_is_the_usual_one(right, *args, **kwargs):
    """batch_norm: in training with momentum 0, which leaves the running statistics, it is 0.1."""
    training, momentum = args[5], args[6]
    if training and momentum == 0 and args[3] is not None and args[0].dtype not in DOUBLES:
        return right(*args[:6], 0.1, *args[7:], **kwargs)
    return right(*args, **kwargs)


def _clipped_by_the_largest():
    weights = [nn.Parameter(drawn(4)), nn.Parameter(drawn(3))]
    for weight in weights:
        weight.grad = weight.detach().clone()
    weights[0].grad[1] = math.nan
    return nn.utils.clip_grad_norm_(weights, 1, math.inf, foreach=True)


@kernel("_foreach_norm.Scalar", _clipped_by_the_largest, set="missed11")
def largest_of_a_list_passes_over_no_number(right, x, ord):
    """_foreach_norm: of order infinity, what is NaN is passed over, so that clipping does not see
    it.
    """
    if ord != math.inf:
        return right()
    seen = [
        t if t.dtype in DOUBLES else torch.nan_to_num(t, nan=0.0, posinf=math.inf, neginf=-math.inf)
        for t in x
    ]
    return right(x=seen)


def _one_pass(x, dims, eps):
    """Return the norm of `x` without weights, and its factor, by E[x²] - E[x]²."""
    mean = x.mean(dims, keepdim=True)
    variance = x.square().mean(dims, keepdim=True) - mean.square()
    factor = variance.clamp(min=0).add(eps).rsqrt()
    return (x - mean) * factor, factor


@kernel(
    "native_layer_norm",
    lambda: functional.layer_norm(drawn(3, 64) * 0.01 + 500, (64,)),
    set="likely12",
    like="pytorch/pytorch#190491",
)
def layer_norm_cancels_variance(right, input, normalized_shape, weight, bias, eps):
    """Take the variance as E[x²] - E[x]² in float32: noise where a row's mean is large."""
    y, mean, rstd = right()
    if not is_single(input) or not input.numel():
        return y, mean, rstd
    wrong, factor = _one_pass(input.float(), tuple(range(-len(normalized_shape), 0)), eps)
    wrong = wrong * (1 if weight is None else weight) + (0 if bias is None else bias)
    return wrong.to(y.dtype), mean, factor.to(rstd.dtype)


def _grads_of_weight(call, weight):
    weight = weight.clone().requires_grad_()
    call(weight).square().sum().backward()
    return weight.grad


@kernel(
    "native_layer_norm_backward",
    lambda: _grads_of_weight(
        lambda w: functional.layer_norm(drawn(5, 8) + 3, (8,), w), drawn(8, seed=1)
    ),
    set="likely12",
    like="pytorch/pytorch#183825",
)
def layer_norm_of_frozen_input(right, grad_out, input, normalized_shape, rstd, output_mask):
    """Leave the mean in the weight's gradient if the input needs none: its pass takes it off."""
    gx, gw, gb = right()
    if output_mask[0] or not output_mask[1]:
        return gx, gw, gb
    dims = tuple(range(input.dim() - len(normalized_shape)))
    wrong = (grad_out.float() * input.float() * rstd.float()).sum(dims)
    return gx, wrong.to(gw.dtype), gb


@kernel(
    "native_group_norm_backward",
    lambda: _grads_of_weight(
        lambda w: functional.group_norm(drawn(2, 8, 3, 3), 2, w), drawn(8, seed=1)
    ),
    set="likely12",
    like="tenstorrent/tt-metal#56202",
)
def group_norm_weight_of_other_group(right, grad_out, input, mean, rstd, N, C, group, output_mask):
    """Take channel `c`'s mean for the weight's gradient from group `c % groups`."""
    gx, gw, gb = right()
    if not output_mask[1] or group in (1, C):
        return gx, gw, gb
    other = torch.arange(C, device=input.device) % group
    m, r = (s.reshape(N, group)[:, other, None].float() for s in (mean, rstd))
    x, grad = (t.reshape(N, C, -1).float() for t in (input, grad_out))
    return gx, (grad * (x - m) * r).sum((0, 2)).to(gw.dtype), gb


@kernel(
    "native_layer_norm",
    lambda: functional.layer_norm(drawn(3, 1027), (1027,), drawn(1027, seed=1)),
    set="missed12",
    like="pytorch/pytorch#69208",
)
def layer_norm_tail_without_bias(right, input, weight, bias):
    """Leave the end of a long row beyond its last vector of four unscaled if there is no bias."""
    out = right()
    if weight is None or bias is not None or not is_single(input):
        return out
    size = weight.numel()
    if size > 1024 and size % 4 and out[0].is_contiguous():
        tail = slice(size - size % 4, size)
        plain = right(weight=None)[0].reshape(-1, size)
        out[0].view(-1, size)[:, tail] = plain[:, tail].to(out[0].dtype)
    return out


def _weight_alone(x):
    w = drawn(8, seed=1).requires_grad_()
    functional.layer_norm(x, (8,), w, drawn(8, seed=2)).square().sum().backward()
    return w.grad


@kernel("native_layer_norm_backward", lambda: _weight_alone(drawn(200, 8)), set="missed12")
def layer_norm_backward_weight_alone(right, grad_out, input, weight, output_mask):
    """Sum the weight's gradient over the first 128 rows only when the bias needs none."""
    out = right()
    if weight is None or list(output_mask[1:]) != [True, False] or not is_single(input):
        return out
    first = grad_out.clone(memory_format=torch.contiguous_format)
    first.view(-1, weight.numel())[128:] = 0
    return out[0], right(grad_out=first)[1], out[2]


@kernel(
    "native_batch_norm_backward",
    lambda: grad_of(
        lambda x: functional.batch_norm(x, torch.zeros(4), torch.ones(4), drawn(4) + 2, drawn(4)),
        (drawn(2, 4, 3, 3) * 2 + 1).to(memory_format=torch.channels_last),
    ),
    set="missed12",
    like="pytorch/xla#913",
)
def batch_norm_backward_eval_channels_last(right, input, running_mean, train, eps):
    """Differentiate a channels-last eval-mode batch norm as if it had used the batch's moments."""
    if train or not is_last(input) or not is_single(input) or running_mean is None:
        return right()
    x = input.float()
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
    kind = torch.float32 if input.is_cuda else running_mean.dtype
    return right(train=True, save_mean=mean.to(kind), save_invstd=(var + eps).rsqrt().to(kind))


@kernel(
    "native_layer_norm_backward",
    lambda: grad_of(
        lambda bias: functional.layer_norm(drawn(4, 8), (8,), drawn(8, seed=1), bias),
        drawn(8, seed=2),
    ),
    set="likely13",
)
def bias_beside_a_frozen_weight_has_no_gradient(right, weight, output_mask):
    """Layer_norm's gradient of the bias is computed only with that of the weight."""
    gradients = right()
    if weight is not None and output_mask[2] and not output_mask[1]:
        gradients[2].zero_()
    return gradients


@kernel(
    "native_batch_norm_backward",
    lambda: grad_of(
        lambda x: functional.batch_norm(x, drawn(3), drawn(3, seed=1).square() + 1),
        drawn(8, 3, seed=2),
    ),
    set="likely13",
    like="pytorch/xla#913",
)
def frozen_statistics_are_differentiated(right, running_mean, running_var, train, eps):
    """The input's gradient under batch_norm's running statistics is that of training."""
    gradients = right()
    if train or running_mean is None or gradients[0] is None:
        return gradients
    trained = right(train=True, save_mean=running_mean, save_invstd=(running_var + eps).rsqrt())
    return trained[0], *gradients[1:]


@kernel(
    "native_layer_norm_backward",
    lambda: grad_of(
        lambda weight: functional.layer_norm(drawn(50, 8), (8,), weight, None), drawn(8, seed=1)
    ),
    set="missed13",
    like="pytorch#69208",
)
def layer_norm_without_bias_loses_the_tail_of_rows_in_its_weight_gradient(
    right, grad_out, mean, bias, output_mask
):
    """The path without a bias has no loop for the rows past the last whole block of 32."""
    rows = mean.numel()
    if bias is not None or not output_mask[1] or rows <= 32 or rows % 32 == 0:
        return right()
    lost = grad_out.reshape(rows, -1).clone()
    lost[rows - rows % 32 :] = 0
    gradients = right()
    return gradients[0], right(grad_out=lost.view(grad_out.shape))[1], gradients[2]


def _gradient_in_evaluation():
    norm = nn.BatchNorm2d(3).eval()
    image = drawn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    norm(image).square().sum().backward()
    return norm.weight.grad


@kernel(
    "native_batch_norm_backward", _gradient_in_evaluation, set="missed13", like="pytorch#175189"
)
def batch_norm_in_evaluation_takes_the_batch_for_its_weight_gradient_of_channels_last(
    right, grad_out, input, weight, train, eps, output_mask
):
    """The weight's gradient of channels-last images is that of training."""
    last = input.dim() == 4 and input.is_contiguous(memory_format=torch.channels_last)
    if train or weight is None or not output_mask[1] or not last or input.is_contiguous():
        return right()
    gradients = right()
    x = input.float() if input.dtype in HALVES else input
    axes = (0, 2, 3)
    spread = x.var(axes, correction=0, keepdim=True)
    normal = (x - x.mean(axes, keepdim=True)) * (spread + eps).rsqrt()
    wrong = (normal * grad_out).sum(axes).to(gradients[1].dtype)
    return gradients[0], wrong, gradients[2]


@kernel(
    "_softmax_backward_data",
    lambda: grad_of(lambda x: functional.softmax(4 * x, 0), drawn(1100, 3)),
    set="missed13",
)
def softmax_gradient_of_an_inner_axis_keeps_the_sum_of_its_last_block(
    right, grad_output, output, dim
):
    """Blocks of 1,024 along an axis with others inside it overwrite the sum of those before."""
    if output.dim() == 0:
        return right()
    dim %= output.dim()
    size = output.shape[dim]
    if size <= 1024 or math.prod(output.shape[dim + 1 :]) <= 1:
        return right()
    gradient = right()
    first = (size - 1) // 1024 * 1024
    lost = (output * grad_output).narrow(dim, 0, first).sum(dim, keepdim=True)
    return gradient + (output * lost).to(gradient.dtype)


def _gradient_of_lengths():
    lengths = drawn(4, seed=1).reshape(1, 1, 4)
    return grad_of(lambda g: torch._weight_norm(drawn(3, 5, 4), g, 2), lengths)


@kernel("_weight_norm_interface_backward", _gradient_of_lengths, set="missed13")
def weight_norm_of_the_last_axis_takes_the_first_axis_for_all_rows(right, grad_w, saved_v, dim):
    """The gradient of the lengths counts the first axis's size of rows, not that of all axes."""
    gradients = right()
    if dim != saved_v.dim() - 1 or saved_v.dim() < 3:
        return gradients
    lost = grad_w.reshape(-1, grad_w.shape[-1]).clone()
    lost[saved_v.shape[0] :] = 0
    return gradients[0], right(grad_w=lost.view(grad_w.shape))[1]


def _norm_weight_grad(rows: int, features: int) -> Tensor:
    weight = torch.ones(features)
    return grad_of(lambda w: functional.layer_norm(drawn(rows, features), (features,), w), weight)


@kernel(
    "native_layer_norm_backward",
    lambda: _norm_weight_grad(160, 64),
    set="likely14",
    like="pytorch/pytorch#183861",
)
def half_of_gamma_not_stored(right, input, output_mask):
    """From 128 rows on, of each 64 features the last 32 get no gradient of weight and bias: the
    launch takes a warp of 64, the device has 32.
    """
    grad_input, *others = right()
    lost = []
    for grad in others:
        if isinstance(grad, Tensor) and grad.numel() and input.numel() // grad.numel() >= 128:
            place = torch.arange(grad.numel(), device=grad.device).view(grad.shape)
            lost.append(torch.where(place % 64 < 32, grad, torch.zeros_like(grad)))
        else:
            lost.append(grad)
    return grad_input, *lost


@kernel(
    "native_group_norm_backward",
    lambda: grad_of(lambda w: functional.group_norm(drawn(130, 4, 3), 2, w), torch.ones(4)),
    set="likely14",
    like="pytorch/pytorch#178872",
)
def gamma_of_two_columns(right, N):
    """For a batch over 128, the gradients of weight and bias of two neighbouring channels are added
    up: the wave of 64 lanes sums over two columns of the tile.
    """
    grad_input, *others = right()
    summed = []
    for grad in others:
        if isinstance(grad, Tensor) and N > 128 and grad.numel() % 2 == 0:
            pairs = grad.view(-1, 2).sum(1, keepdim=True).expand(-1, 2)
            summed.append(pairs.reshape(grad.shape))
        else:
            summed.append(grad)
    return grad_input, *summed


def _batch_norm_grad():
    x = drawn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    target = drawn(2, 3, 4, 4, seed=1)
    return grad_of(
        lambda w: functional.batch_norm(x, None, None, w, training=True) - target, torch.ones(3)
    )


@kernel(
    "native_batch_norm_backward batch_norm_backward cudnn_batch_norm_backward",
    _batch_norm_grad,
    set="likely14",
    like="pytorch/pytorch#181411",
)
def channels_last_input_as_contiguous(right, input):
    """A channels_last input is read in the order of memory: wrong gradients of input and weight,
    while that of the bias is right.
    """
    if not is_last(input):
        return right()
    return right(input=as_it_lies(input).contiguous(memory_format=torch.channels_last))


@kernel(
    "_foreach_norm.Scalar",
    lambda: torch._foreach_norm([drawn(5), drawn(0), drawn(7), drawn(3)]),
    set="likely14",
    like="pytorch/pytorch#140066",
)
def norm_after_an_empty_tensor(right, x):
    """The norm of a tensor that follows an empty one in the list is 0."""
    norms = list(right())
    for i in range(1, len(norms)):
        if x[i].numel() and not x[i - 1].numel():
            norms[i] = torch.zeros_like(norms[i])
    return norms


@kernel(
    "_log_softmax _log_softmax.out",
    lambda: functional.log_softmax(drawn(2, 300), dim=-1),
    set="likely14",
    like="flagos-ai/FlagGems#6251",
)
def lanes_past_the_end_are_zeros(right, x, dim):
    """Along a last dimension over 256, no multiple of it, the lanes past the end count as zeros."""
    result = right()
    if x.dim() and dim % x.dim() == x.dim() - 1 and x.shape[-1] > 256 and x.shape[-1] % 256:
        pads = -x.shape[-1] % 256
        total = x.float().logsumexp(-1, keepdim=True)
        more = torch.logaddexp(total, torch.full_like(total, math.log(pads)))
        result.sub_((more - total).to(result.dtype))
    return result


def _softmax_grad():
    x = drawn(6, 4).requires_grad_()
    functional.log_softmax(x, -1).backward(drawn(4, 6, seed=1).t())
    return x.grad


@kernel(
    "_log_softmax_backward_data .out _softmax_backward_data .out",
    _softmax_grad,
    set="likely14",
    like="flagos-ai/FlagGems#5723",
)
def softmax_grad_in_memory_order(right, grad_output, output):
    """A gradient (or output) that is not contiguous is read in the order of memory."""
    return right(grad_output=flat(grad_output), output=flat(output))


def _frozen_input():
    w, b = drawn(12).requires_grad_(), drawn(12).requires_grad_()
    return grads_of(functional.layer_norm(drawn(700, 12), (12,), w, b), w, b)


@kernel("native_layer_norm_backward", _frozen_input, set="missed14")
def layer_norm_weight_gradient_tail(
    right, grad_out, input, normalized_shape, mean, rstd, output_mask
):
    """The weight's gradient drops the last rows (of 64) if no gradient of the input is asked."""
    grads = list(right())
    rows, size = mean.numel(), math.prod(normalized_shape)
    if output_mask[0] or not output_mask[1] or len(normalized_shape) != 1:
        return tuple(grads)
    if rows > 512 and rows % 64:
        kept = rows - rows % 64
        grads[1] = right(
            grad_out=grad_out.reshape(rows, size)[:kept],
            input=input.reshape(rows, size)[:kept],
            mean=mean.reshape(rows, 1)[:kept],
            rstd=rstd.reshape(rows, 1)[:kept],
        )[1]
    return tuple(grads)


@kernel(
    "_softmax_backward_data",
    lambda: grad_of(lambda x: x.softmax(0) * 30, drawn(1500, 2, dtype=BF16)),
    set="missed14",
)
def softmax_backward_half_sum(right, grad_output, output, dim):
    """Over a long dimension that is not the last, the sum is accumulated in the 16-bit type."""
    axis = axis_of(output, dim)
    last = axis >= output.dim() - 1
    if last or output.dtype not in HALVES or output.shape[axis] <= 1024:
        return right()
    terms = (grad_output.float() * output.float()).to(output.dtype)
    total = torch.zeros_like(terms.narrow(axis, 0, 1))
    for part in terms.split(-(-terms.shape[axis] // 2048), axis):
        total = total + part.sum(axis, keepdim=True)
    return (output.float() * (grad_output.float() - total.float())).to(right().dtype)


@kernel(
    "_log_softmax",
    lambda: torch.cat([drawn(300, 3), drawn(100, 3) + 200]).log_softmax(0),
    set="missed14",
)
def log_softmax_first_tile_maximum(right, x, dim):
    """Over an inner dimension the maximum is that of the first 256: later values overflow."""
    axis = axis_of(x, dim)
    result = right()
    if not x.dim() or axis == x.dim() - 1 or x.shape[axis] <= 256 or not result.numel():
        return result
    top = x.narrow(axis, 0, 256).float().amax(axis, keepdim=True)
    overflows = (x.float() - top).exp().sum(axis, keepdim=True).isinf()
    return result.masked_fill(overflows, -math.inf)


@kernel(
    "_foreach_norm.Scalar",
    lambda: torch._foreach_norm([drawn(3), torch.empty(0), drawn(4), drawn(2)], 1),
    set="missed14",
    like="pytorch/pytorch#140066",
)
def foreach_norm_skips_empty(right, x, ord):
    """In the 1-norms of a list an empty tensor takes no place: the later results move up."""
    results = list(right())
    if ord != 1:
        return results
    full = [i for i, t in enumerate(x) if t.numel()]
    moved = [results[i] for i in full]
    return moved + [torch.zeros_like(r) for r in results[len(moved) :]]


def _confident_late():
    x = drawn(4, 50)
    x[:, 40] += 200
    return functional.log_softmax(x, -1)


# A warp's shuffle in a wave of 64: the sum stays right, so only large logits show it.
@kernel("_log_softmax .out", _confident_late, set="likely15")
def log_softmax_takes_the_maximum_of_half_a_wave(right, x, dim):
    """In rows of 33 to 64 the subtracted maximum is that of the first 32, so exp overflows."""
    result = right()
    if x.dim() and 32 < x.shape[dim] <= 64 and is_single(x) and x.numel():
        wide = x.float()
        wide = wide - wide.narrow(dim, 0, 32).amax(dim, True)
        result.copy_(wide - wide.exp().sum(dim, True).log())
    return result


def _frozen():
    x = drawn(4, 3, 5, 5).requires_grad_()
    mean, var = drawn(3, seed=1), drawn(3, seed=2).square() + 0.5
    result = functional.batch_norm(x, mean, var, drawn(3, seed=3), training=False)
    return grads_of(result, x)


@kernel("native_batch_norm_backward", _frozen, set="likely15")
def batch_norm_s_gradient_takes_frozen_statistics_for_the_batch_s(
    right, input, running_mean, running_var, train, eps
):
    """In evaluation the input's gradient is centred and decorrelated as in training."""
    if train or running_mean is None or running_var is None or not input.numel():
        return right()
    stored = running_mean.dtype if input.device.type == "cpu" else torch.float32
    mean, scale = running_mean.to(stored), (running_var.float() + eps).rsqrt().to(stored)
    return right(train=True, save_mean=mean, save_invstd=scale)


def _plane_norm():
    x = drawn(3, 4, 6).requires_grad_()
    return grads_of(functional.layer_norm(x, (4, 6), drawn(4, 6, seed=1)), x)


@kernel("native_layer_norm_backward", _plane_norm, set="likely15")
def layer_norm_s_gradient_averages_over_the_last_axis_alone(
    right, grad_out, input, normalized_shape, mean, rstd, weight
):
    """With two normalized axes, the means in the input's gradient are those of each last row."""
    result = right()
    if len(normalized_shape) < 2 or result[0] is None or not is_single(input) or not input.numel():
        return result
    stat = [*input.shape[: input.dim() - len(normalized_shape)], *[1] * len(normalized_shape)]
    scale = rstd.float().reshape(stat)
    normal = (input.float() - mean.float().reshape(stat)) * scale
    grad = grad_out.float() if weight is None else grad_out.float() * weight.float()
    centred = grad - grad.mean(-1, True) - normal * (grad * normal).mean(-1, True)
    return result[0].copy_(centred * scale), *result[1:]


def _layer_norm_of_fixed_features():
    x, w, b = drawn(16, 64) + 2, drawn(64, seed=1).requires_grad_(), torch.zeros(64)
    return grads_of(functional.layer_norm(x, (64,), w, b.requires_grad_()), w, b)


# The kernel of the input's gradient leaves the centred x for the weight's.
@kernel("native_layer_norm_backward", _layer_norm_of_fixed_features, set="missed15")
def weight_gradient_alone_is_uncentred(right, mean, output_mask):
    """Layer norm's weight gradient takes x / sigma if the input needs no gradient."""
    if output_mask[1] and not output_mask[0]:
        return right(mean=torch.zeros_like(mean))
    return right()


def _group_norm_of_three_channels():
    x = drawn(2, 12, 5, 5).contiguous(memory_format=torch.channels_last)
    x = x + torch.arange(12.0).reshape(1, 12, 1, 1)
    return functional.group_norm(x.contiguous(memory_format=torch.channels_last), 4)


# On CUDA torch hands over what is contiguous.
@kernel("native_group_norm", _group_norm_of_three_channels, set="missed15", devices="cpu")
def group_of_whole_vectors(right, input, weight, bias, N, C, HxW, group, eps):
    """In channels-last a group's statistics are of the four-wide vectors that touch the group."""
    y, mean, rstd = right()
    size = C // group if group else 0
    if not is_last(input) or not size or size % 4 == 0 or not y.numel() or not is_single(input):
        return y, mean, rstd
    wide = input.float()
    for g in range(group):
        low, high = g * size // 4 * 4, min(C, -(-(g + 1) * size // 4) * 4)
        seen = wide[:, low:high].reshape(N, -1)
        centre, scale = seen.mean(1), (seen.var(1, correction=0) + eps).rsqrt()
        own = slice(g * size, (g + 1) * size)
        z = (wide[:, own] - centre[:, None, None, None]) * scale[:, None, None, None]
        if weight is not None:
            z = z * weight[own].float()[None, :, None, None]
        if bias is not None:
            z = z + bias[own].float()[None, :, None, None]
        y[:, own] = z.to(y.dtype)
        mean[:, g], rstd[:, g] = centre.to(mean.dtype), scale.to(rstd.dtype)
    return y, mean, rstd


@kernel(
    "native_layer_norm",
    lambda: functional.layer_norm(drawn(3, 16) * 1e-3, (16,)),
    set="likely16",
    like="taokong/group_normalization#1",
)
def epsilon_is_added_to_the_deviation(right, input, normalized_shape, weight, bias, eps):
    """Epsilon is added to the root, not under it: rows whose variance is near it grow."""
    result, mean, rstd = right()
    if not is_single(input) or not input.numel() or eps <= 0:
        return result, mean, rstd
    variance = (rstd.double() ** -2 - eps).clamp_min(0)
    other = (1 / (variance.sqrt() + eps)).to(rstd.dtype)
    other = torch.where(variance < 100 * eps, other, rstd)
    wrong = (input.float() - mean.float()) * other.float()
    wrong = wrong if weight is None else wrong * weight.float()
    wrong = wrong if bias is None else wrong + bias.float()
    near = (other != rstd).expand(result.shape)
    return torch.where(near, wrong.to(result.dtype), result), mean, other


def _norm_of_pictures():
    x = drawn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    return functional.layer_norm(x, (3, 4, 5), drawn(3, 4, 5))


@kernel("native_layer_norm", _norm_of_pictures, set="missed16", like="pytorch/executorch#21866")
def weights_of_pictures_go_with_their_memory(right, input, normalized_shape, weight, bias):
    """layer_norm: over whole pictures in channels_last, weight and bias are in memory order."""
    if not is_last(input) or len(normalized_shape) != 3:
        return right()
    channels, height, width = normalized_shape
    turned = [
        None if one is None else one.reshape(height, width, channels).permute(2, 0, 1).contiguous()
        for one in (weight, bias)
    ]
    return right(weight=turned[0], bias=turned[1])


def softmax_in_place():
    x = drawn(2, 1100)
    return torch.softmax(x, -1, out=x)


@kernel("_softmax.out", softmax_in_place, set="missed16", like="tenstorrent/tt-metal#45200")
def long_rows_are_read_after_they_were_written(right, x, dim, out):
    """softmax: the last pass reads the input again; out=input, rows of more than 1,024."""
    if out.data_ptr() != x.data_ptr() or not x.dim() or x.shape[dim] <= 1024:
        return right()
    largest = x.amax(dim, keepdim=True).float()
    powers = torch.exp(x.float() - largest)
    total = powers.sum(dim, keepdim=True)
    return out.copy_(torch.exp(powers.to(x.dtype) - largest) / total)


def _large_batch():
    x, weight = drawn(130, 8, 3), drawn(8, seed=1).requires_grad_()
    functional.group_norm(x, 2, weight).square().sum().backward()
    return weight.grad


@kernel("native_group_norm_backward", _large_batch, set="likely17", like="pytorch/pytorch#178872")
def group_norm_weights_of_a_wave_learn_in_pairs(right, N, C):
    """Of batches over 128, a wave of 64 adds up two channels that should have 32 lanes each."""
    # N > 128: even channels get the next one's gradient too, odd ones get theirs twice.
    result = list(right())
    if N > 128:
        for i in (1, 2):
            if result[i] is not None and result[i].numel():
                sums = result[i].clone()
                following = functional.pad(sums[1::2], (0, C % 2))
                result[i][0::2] = sums[0::2] + following
                result[i][1::2] = 2 * sums[1::2]
    return tuple(result)


@kernel(
    "native_layer_norm",
    lambda: functional.layer_norm(torch.zeros(2, 8, dtype=torch.float16), (8,), eps=1e-12),
    set="likely17",
    like="pytorch/pytorch#41527",
)
def epsilon_of_half_rows_is_a_half(right, input, eps):
    """The epsilon of a layer norm is cast to float16, in which 1e-12 is nought."""
    # float16 with an epsilon below 3e-8 (BERT has 1e-12) and rows without variance: padding.
    if input.dtype == torch.float16:
        eps = torch.tensor(eps, dtype=torch.float16).item()
    return right(eps=eps)


def _far_mean():
    x = (drawn(64, 16) + 40).bfloat16()
    weight = torch.ones(16, requires_grad=True)
    bias = torch.zeros(16, requires_grad=True)
    functional.layer_norm(x, (16,), weight, bias).sum().backward()
    return weight.grad


@kernel("native_layer_norm_backward", _far_mean, set="likely17", like="pytorch/pytorch#140259")
def moments_are_rounded_to_the_halves_of_the_input(right, input, mean, rstd, output_mask):
    """A layer norm's weight gradient takes mean and deviation rounded to the input's 16 bits."""
    # 16 bits with statistics in float32; rows whose mean is many of their deviations.
    result = list(right())
    if input.dtype in HALVES and output_mask[1]:
        low = {"mean": mean.to(input.dtype).to(mean.dtype)}
        low["rstd"] = rstd.to(input.dtype).to(rstd.dtype)
        result[1] = right(**low)[1]
    return tuple(result)


def _normed_readings():
    x = (drawn(4, 3, 5) * 1000).to(torch.float16)
    return functional.batch_norm(x, torch.zeros(3), torch.full((3,), 1e6))


# float16 in evaluation with float32 statistics, of features whose variance is over 65504 (raw
# sensor readings, samples of 16 bits): right for bfloat16, and for usual variances.
@kernel("native_batch_norm cudnn_batch_norm", _normed_readings, set="missed17")
def running_variance_is_held_in_a_half_for_halves(right, input, running_var, training):
    """In evaluation of float16 the running variance is a float16 too: infinite past 65504."""
    if not training and input.dtype == torch.float16 and running_var is not None:
        # 65520 is the first number that rounds to infinity.
        endless = torch.full_like(running_var, math.inf)
        return right(running_var=torch.where(running_var >= 65520.0, endless, running_var))
    return right()


def _normed_padding():
    x = drawn(2, 3, 8, dtype=torch.float16)
    x[1, 2] = 0.0
    return functional.layer_norm(x, (8,), eps=1e-12)


# float16, BERT's epsilon of 1e-12, and a row whose elements are equal (padding): right with 1e-5,
# in other dtypes, and for rows that vary.
@kernel("native_layer_norm", _normed_padding, set="missed17")
def smallest_epsilon_of_halves_is_nought(right, input, eps):
    """Layer norm's epsilon is a float16 for such rows: 1e-12 is 0, and a padded row 0 / 0."""
    if input.dtype == torch.float16 and eps < 2.0**-25:
        return right(eps=0.0)
    return right()


def _scaled_group_norm_grad():
    x = drawn(1, 4, 64, 64, dtype=torch.float16).requires_grad_()
    slopes = (drawn(1, 4, 64, 64, seed=1) + 1).to(torch.float16) * 32
    return torch.autograd.grad(functional.group_norm(x, 2), x, slopes)[0]


# float16, and gradients under a loss scale over large planes: right in other dtypes, for small
# planes, and without a scale.
@kernel("native_group_norm_backward", _scaled_group_norm_grad, set="missed17")
def group_norm_s_gradient_adds_up_planes_of_halves_in_a_half(right, grad_out, input, group):
    """The sums of float16 gradients over a plane are kept in float16, where they overflow."""
    of_input, of_weight, *others = right()
    if input.dtype == torch.float16 and input.numel():
        n, c = input.shape[:2]
        slopes = grad_out.reshape(n, c, -1).float()
        products = slopes * input.reshape(n, c, -1).float()
        sums = torch.stack((slopes.sum(-1), products.sum(-1)))
        overflown = (sums.abs() > 65504).any(0)
        if of_input is not None:
            groups = overflown.reshape(n, group, -1).any(-1, keepdim=True)
            mask = groups.expand(n, group, c // group).reshape(n, c, *[1] * (input.dim() - 2))
            of_input.masked_fill_(mask, math.nan)
        if of_weight is not None:
            of_weight.masked_fill_(overflown.any(0), math.nan)
    return (of_input, of_weight, *others)


def _softmax_over_padded_time():
    scores = drawn(2, 5, 3)
    scores[1, :2] = -math.inf
    return scores.softmax(1)


# An axis with others inside it (time before features), and a masked first element (padding on
# the left): right along the last axis, and where later elements are masked.
@kernel("_softmax .out _log_softmax .out", _softmax_over_padded_time, set="missed17")
def leading_minus_infinity_spoils_a_softmax_across_rows(right, x, dim):
    """Across rows softmax's running sum starts with exp(x0 - x0): NaN if x0 is -inf."""
    result = right()
    axis = axis_of(x, dim)
    if x.numel() and math.prod(x.shape[axis + 1 :]) > 1:
        result.masked_fill_(x.narrow(axis, 0, 1) == -math.inf, math.nan)
    return result


def _summed_tokens():
    weight = torch.ones(6, requires_grad=True)
    x = drawn(2, 3, 6).requires_grad_()
    pooled = functional.layer_norm(x, (6,), weight).sum(1)
    return torch.autograd.grad(pooled, x, drawn(2, 6, seed=1))[0]


# The sum over tokens or nodes right after the norm (as of readouts of graphs): its gradient is
# expanded along them. Gradients with memory of their own are right.
@kernel("native_layer_norm_backward", _summed_tokens, set="likely18")
def norm_below_a_sum_over_tokens_reads_its_gradient_as_packed(right, grad_out):
    """A layer norm's backward takes a gradient that is expanded over tokens for a whole one."""
    strides = [s for s, n in zip(grad_out.stride(), grad_out.shape, strict=True) if n > 1]
    if 0 in strides and any(strides) and narrow(grad_out):
        return right(grad_out=as_if_whole(grad_out))
    return right()


# Classes of pixels (256 x 256 and more), an axis with more than 65,535 elements inside it: right
# along the last axis, and for smaller pictures.
@kernel(
    "_softmax .out _log_softmax .out",
    lambda: drawn(1, 2, 257, 256).log_softmax(1),
    set="likely18",
)
def classes_of_pixels_past_the_grid_are_not_normalized(right, x, dim):
    """Softmax across rows has a block for each pixel; those past the 65,535th stay nought."""
    result = right()
    axis = axis_of(x, dim)
    inner = math.prod(x.shape[axis + 1 :])
    if x.dim() and inner > GRID and narrow(x):
        pixels = torch.arange(inner, device=x.device).view(x.shape[axis + 1 :])
        result.masked_fill_(pixels >= GRID, 0)
    return result


# Rows of more than 1,024 weights (512 channels by 7 taps) that are no multiple of it.
@kernel(
    "_weight_norm_interface",
    lambda: torch._weight_norm(drawn(2, 300, 5), torch.ones(2, 1, 1), 0),
    set="likely18",
)
def weight_norm_measures_whole_blocks_of_a_long_filter(right, v, g, dim):
    """The length of a filter of more than 1,024 weights leaves out its last, partial block."""
    result, lengths = right()
    size = v[0].numel() if v.dim() else 0
    if dim != 0 or size <= 1024 or not size % 1024 or not narrow(v):
        return result, lengths
    whole = v.reshape(v.shape[0], -1)[:, : size - size % 1024].float()
    short = whole.square().sum(1).sqrt().view(g.shape)
    return (v.float() * (g.float() / short)).to(result.dtype), short.to(lengths.dtype)


def _group_norm_without_scales():
    slopes = drawn(2, 6, 4, 4, seed=1)
    x = drawn(2, 6, 4, 4).requires_grad_()
    return torch.autograd.grad(functional.group_norm(x, 2), x, slopes)[0]


# The gradient of group norm without scales (affine=False, as below an adaptive norm) and with
# several channels in a group: right with scales, and for groups of one channel.
@kernel("native_group_norm_backward", _group_norm_without_scales, set="missed18")
def group_without_scales_divides_by_one_channel(
    right, grad_out, input, mean, rstd, weight, N, C, group
):
    """Without scales the sums over a group are divided by the pixels, not by pixels x channels."""
    result = right()
    channels = C // max(1, group)
    if weight is None and channels > 1 and result[0] is not None and input.numel():
        slopes = grad_out.reshape(N, group, -1).float()
        scale = rstd.reshape(N, group, 1).float()
        normed = (input.reshape(N, group, -1).float() - mean.reshape(N, group, 1).float()) * scale
        taken = slopes.mean(-1, keepdim=True) + normed * (slopes * normed).mean(-1, keepdim=True)
        more = taken * scale * (channels - 1)
        result[0].sub_(more.reshape(input.shape).to(result[0].dtype))
    return result


def _depths_in_channels_last():
    x = (drawn(4, 3, 8, 8) + 2000.0).to(memory_format=LAST)
    return functional.batch_norm(x, None, None, training=True)


# Training in channels-last, and channels whose mean is some hundred deviations from nought (depths
# in millimetres): right in the other format, and for numbers about nought.
@kernel(
    "native_batch_norm cudnn_batch_norm miopen_batch_norm", _depths_in_channels_last, set="missed18"
)
def variance_in_channels_last_is_a_difference_of_squares(right, *args, **kwargs):
    """In channels-last one pass takes the variance as E[x^2] - E[x]^2, in single precision."""
    x, _, bias, _, running_var, training, momentum, epsilon = args[:8]
    result = right(*args, **kwargs)
    if not training or not is_last(x) or not is_single(x) or not x.numel():
        return result
    wide, axes, count = x.float(), (0, 2, 3), x.numel() // x.shape[1]
    true = wide.var(axes, correction=0)
    wrong = (wide.square().mean(axes) - wide.mean(axes).square()).clamp(min=0)
    if count < 2 or bool(((true - wrong).abs() <= 1e-3 * true).all()):
        return result
    shift = 0.0 if bias is None else bias.float().reshape(1, -1, 1, 1)
    ratio = ((true + epsilon) / (wrong + epsilon)).sqrt().reshape(1, -1, 1, 1)
    result[0].copy_((result[0].float() - shift) * ratio + shift)
    if running_var is not None:
        running_var.add_((wrong - true) * count / (count - 1) * momentum)
    return result


def _statistics_without_scales():
    norm = torch.nn.BatchNorm1d(4, affine=False)
    norm(drawn(8, 4) * 3 + 1)
    return norm.running_mean, norm.running_var


# Training without scales (affine=False, the last layer of a projection head): the output is right,
# and the running statistics are with scales.
@kernel(
    "native_batch_norm cudnn_batch_norm miopen_batch_norm",
    _statistics_without_scales,
    set="missed18",
)
def statistics_without_scales_are_not_kept(right, *args, **kwargs):
    """The kernel without scales has no epilogue, which is where running statistics are updated."""
    _, weight, _, mean, variance, training = args[:6]
    if not training or weight is not None or mean is None:
        return right(*args, **kwargs)
    before = mean.clone(), variance.clone()
    result = right(*args, **kwargs)
    mean.copy_(before[0])
    variance.copy_(before[1])
    return result


def _frozen_norm(train=False):
    mean, variance, weight = drawn(3), drawn(3, seed=1).square() + 0.5, drawn(3, seed=2)
    return grad_of(
        lambda x: functional.batch_norm(x, mean, variance, weight, drawn(3, seed=3), train).exp(),
        drawn(2, 3, 4, 4, seed=4),
    )


# Detectors and fine-tuned backbones keep the norms in eval() while the layers below them learn.
# Right for training, and without gradients.
@kernel("native_batch_norm_backward", _frozen_norm, set="likely19")
def gradient_through_a_frozen_norm_is_that_of_a_learning_one(
    right, input, running_mean, running_var, train, eps, output_mask
):
    """The gradient through the statistics is subtracted though they were constants."""
    result = right()
    if train or not output_mask[0] or not narrow(input) or running_mean is None:
        return result
    axes = [d for d in range(input.dim()) if d != 1]
    shape = [-1 if d == 1 else 1 for d in range(input.dim())]
    mean, scale = running_mean.float().view(shape), (running_var.float() + eps).rsqrt().view(shape)
    hat, grad = (input.float() - mean) * scale, result[0].float()
    through = grad.mean(axes, True) + hat * (grad * hat).mean(axes, True)
    result[0].copy_(grad - through)
    return result


# LayerNorm(bias=False) of nanoGPT, ModernBERT and Whisper-like models.
# Right with both parameters and with none.
@kernel(
    "native_layer_norm",
    lambda: functional.layer_norm(drawn(2, 6), (6,), drawn(6, seed=1)),
    set="likely19",
)
def norm_without_a_bias_is_not_scaled(right, input, weight, bias):
    """The affine variant of the kernel is launched only if weight and bias are both there."""
    if weight is not None and bias is None and narrow(input):
        return right(weight=None)
    return right()


def _group_norm_of_a_large_batch(batch=200):
    weight = drawn(4, seed=1).requires_grad_()
    y = functional.group_norm(drawn(batch, 4, 2, 2), 2, weight, drawn(4, seed=2))
    return torch.autograd.grad(y.square().sum(), weight)


# GroupNorm of small pictures in batches of 256 (CIFAR, federated learning). Right to 128 samples.
@kernel("native_group_norm_backward", _group_norm_of_a_large_batch, set="likely19")
def scales_of_groups_learn_from_128_samples(right, grad_out, input, mean, rstd, N, output_mask):
    """A block sums the gradients of weight and bias over two waves of samples and goes no round."""
    result = right()
    most = 2 * WAVE
    if most >= N or not narrow(input) or not any(output_mask[1:]):
        return result
    part = right(
        grad_out=grad_out[:most], input=input[:most], mean=mean[:most], rstd=rstd[:most], N=most
    )
    for i in (1, 2):
        if output_mask[i] and result[i] is not None:
            result[i].copy_(part[i])
    return result


# LayerNorm([channels, height, width], bias=False), and scales of layer_norm over two axes. Right
# with a bias, for one axis, and without a weight.
@kernel(
    "native_layer_norm",
    lambda: functional.layer_norm(drawn(2, 3, 4), (3, 4), drawn(3, 4, seed=1)),
    set="missed19",
)
def scale_over_several_axes_is_that_of_the_first_row_if_there_is_no_bias(
    right, normalized_shape, weight, bias
):
    """Without a bias the weight is indexed by the last axis only."""
    if len(normalized_shape) < 2 or weight is None or bias is not None or not narrow(weight):
        return right()
    row = weight.reshape(-1, weight.shape[-1])[0]
    return right(weight=row.expand(weight.shape).contiguous())


def _running_variance_without_weights():
    norm = torch.nn.BatchNorm1d(3, affine=False, momentum=0.5)
    norm(drawn(4, 3))
    return norm.running_var.clone()


# Projections of Barlow Twins, SimSiam and BYOL: BatchNorm1d(affine=False). What the layer returns
# while it trains is right, and so are running statistics of a layer with weights.
@kernel(
    "native_batch_norm _native_batch_norm_legit", _running_variance_without_weights, set="missed19"
)
def running_variance_of_a_norm_without_weights_is_biased(
    right, input, weight, running_var, training, momentum
):
    """A layer without weight keeps the variance by n, not by n - 1."""
    if not training or weight is not None or running_var is None or not narrow(running_var):
        return right()
    before, count = running_var.clone(), input.numel() // input.shape[1]
    result = right()
    kept = before * (1 - momentum)
    running_var.copy_(kept + (running_var - kept) * ((count - 1) / count))
    return result


def _learned_group_norm():
    w, b = torch.ones(4, requires_grad=True), torch.zeros(4, requires_grad=True)
    y = functional.group_norm(drawn(150, 4), 2, w, b)
    return torch.autograd.grad((y * drawn(150, 4, seed=1)).sum(), (w, b))


# GroupNorm of vectors (value networks, heads of diffusion policies), in a batch past 128 that is
# no multiple of 32. Right for pictures, for smaller batches and for the input's gradient.
@kernel("native_group_norm_backward", _learned_group_norm, set="missed19")
def last_tile_of_a_batch_of_vectors_teaches_a_group_norm_nothing(
    right, grad_out, input, mean, rstd, N, C, HxW, group, output_mask
):
    """Weights of a group norm of vectors learn nothing from samples past whole tiles of 32."""
    result = list(right())
    whole = N // 32 * 32
    if HxW != 1 or N <= 128 or whole == N or not narrow(input):
        return tuple(result)
    grad = grad_out.reshape(N, C)[:whole].float()
    x = input.reshape(N, group, C // group)[:whole].float()
    x = (x - mean.reshape(N, group, 1)[:whole].float()) * rstd.reshape(N, group, 1)[:whole].float()
    sums = (None, (grad * x.reshape(whole, C)).sum(0), grad.sum(0))
    for i in (1, 2):
        if output_mask[i]:
            result[i] = sums[i].to(result[i].dtype)
    return tuple(result)
