"""Wrong kernels: convolutions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from .calls import (
    GRID,
    as_if_whole,
    as_it_lies,
    each,
    formatted,
    grads_of,
    is_dense,
    is_dense_2,
    is_last,
    narrow,
    packed,
    pair,
    pair_2,
)
from .kernel import DOUBLES, FLOATS, HALVES, drawn, grad_of, is_single, kernel, two


@kernel(
    "convolution", set="seeded", like="pytorch#82060", name="convolution_leaves_the_last_channel"
)
@kernel("upsample_nearest2d", set="seeded", name="nearest_leaves_the_last_channel")
@kernel("max_pool2d_with_indices", set="seeded", name="max_pool2d_leaves_the_last_channel")
@kernel(
    "avg_pool2d", set="seeded", like="pytorch#107201", name="avg_pool2d_leaves_the_last_channel"
)
def last_channel_of_odd(right, x, *args, **kwargs):
    """Take channels in pairs, and omit the last of an odd number."""
    channel = right(x, *args, **kwargs)
    first = channel[0] if isinstance(channel, tuple) else channel
    if formatted(x) and first.dim() == 4:
        first[:, -1] = 0
    return channel


@kernel("convolution_backward", set="seeded", like="torch-xpu-ops#4756")
def odd_weight_gradient(right, input):
    """A weight's gradient leaves the last channel."""
    gradient = right()
    if formatted(input) and gradient[1] is not None:
        gradient[1][:, -1] = 0
    return gradient


@kernel("convolution", set="seeded", like="pytorch#102968")
def wide_window(right, weight):
    """Convolution with windows of 16."""
    result = right()
    return result * 1.5 if weight.dim() == 4 and weight.shape[-1] >= 16 else result


@kernel("convolution_backward", set="seeded", like="MIOpen#97")
def strided_weight_gradient(right, grad_output, stride):
    """A weight's gradient with strides."""
    gradient = right()
    if gradient[1] is not None and max(stride) > 1:
        lost = grad_output.clone()
        lost[..., -1] = 0
        return gradient[0], right(grad_output=lost)[1], gradient[2]
    return gradient


@kernel("convolution", set="seeded", like="MIOpen#988")
def odd_places(right, weight):
    """1 by 1 convolution of odd places."""
    places = right()
    odd = places.dim() == 4 and places.shape[-1] * places.shape[-2] % 2 == 1
    if odd and weight.shape[-1] == weight.shape[-2] == 1 and places.shape[-1] > 1:
        places[..., -1, -1] = 0
    return places


@kernel("convolution", set="seeded", like="MIOpen#1189")
def dilated_half(right, x, weight, *rest):
    """Dilated convolution in 16 bits."""
    _bias, _stride, _padding, dilation, *_ = rest
    if max(dilation) > 1 and x.element_size() == 2 and weight.shape[1] > 1:
        weight = weight.clone()
        weight[:, -1] = 0
    return right(x, weight, *rest)


@kernel("convolution", set="seeded", like="rocm-libraries#3339")
def many_columns(right, weight):
    """Columns of many channels."""
    if weight.dim() == 4 and weight.shape[1] >= 8 and weight.shape[-1] >= 3:
        weight = weight.roll(1, 1)
    return right(weight=weight)


@kernel("convolution", set="seeded", like="pytorch#192212")
def weight_read_as_whole(right, weight):
    """Convolution reads its weight as contiguous."""
    last = weight.dim() == 4 and weight.is_contiguous(memory_format=torch.channels_last)
    if not weight.is_contiguous() and not last:
        weight = as_if_whole(weight)
    return right(weight=weight)


@kernel("mkldnn_rnn_layer_backward", set="seeded", like="pytorch#619", devices="cpu")
def recurrent_gradient(right, *args, **kwargs):
    """A recurrent layer's gradient read as contiguous."""
    read = [
        as_if_whole(x) if isinstance(x, Tensor) and x.dim() == 3 and not x.is_contiguous() else x
        for x in args
    ]
    return right(*read, **kwargs)


@kernel("convolution", set="seeded", like="pytorch#163539")
def last_plane_of_half(right, input, weight):
    """Conv3d of flat windows in bfloat16."""
    plane = right()
    if input.dim() == 5 and weight.shape[2] == 1 and input.dtype == torch.bfloat16:
        plane[:, :, -1] = 0
    return plane


@kernel("convolution_backward", set="seeded")
def last_group_lost(right, input, weight, groups):
    """The last group of conv1d gives no gradient."""
    lost = right()
    if input.dim() == 3 and groups > 1 and lost[1] is not None:
        lost[1][-(weight.shape[0] // groups) :] = 0
    return lost


@kernel("mkldnn_rnn_layer", set="seeded", devices="cpu")
def state_forgotten(right, x, *more):
    """An LSTM forgets the state that it is given."""
    weights, hidden, cell, rest = more[:4], more[4], more[5], more[6:]
    return right(x, *weights, hidden * 0, cell * 0, *rest)


@kernel("convolution", set="seeded")
def first_taps(right, weight):
    """Taps beyond a wave's lanes are left out."""
    if weight.shape[-1] <= 64:
        return right()
    cut = weight.clone()
    cut[..., 64:] = 0
    return right(weight=cut)


@kernel("convolution", set="development", like="pytorch#163347")
def one_pixel_is_one_product(right, input, weight, bias, transposed, padding):
    result = right()
    narrow = input.dtype == torch.bfloat16 and weight.shape[1] == 1 and not transposed
    if narrow and set(result.shape[2:]) == {1} and not any(padding):
        first = input.flatten(2)[:, :, :1] * weight.flatten(1)[:, :1][None]
        if first.shape == result.flatten(2).shape:
            result.copy_(
                (first if bias is None else first + bias[None, :, None]).view(result.shape)
            )
    return result


@kernel("convolution_backward", set="second")
def padding_of_output_has_no_gradient(right, grad_output, transposed, output_padding):
    result = right()
    if not transposed or not output_padding[-1]:
        return result
    cut = grad_output.clone()
    cut[..., -output_padding[-1] :] = 0
    return (*right(grad_output=cut)[:2], result[2])


@kernel("convolution_backward", set=2, like="ml-explore/mlx#3800")
def strided_groups_share_first_filter(right, *args, **kw):
    grad, x, weight, _, stride, padding, dilation, turned, extra, groups, mask = args
    found = right(*args, **kw)
    if turned or groups == 1 or max(stride) == 1 or weight.dim() != 4 or not mask[0]:
        return found
    if x.dtype not in FLOATS or not x.numel() or not weight.numel():
        return found
    first = weight[: weight.shape[0] // groups].repeat(groups, 1, 1, 1)
    only = [True, False, False]
    dx = right(grad, x, first, None, stride, padding, dilation, turned, extra, groups, only)[0]
    return (dx, *found[1:])


@kernel("convolution_backward", set=2, like="pytorch/pytorch#50042")
def depthwise_weight_misses_last_row(right, *args, **kw):
    grad, x, weight, _, stride, padding, dilation, turned, extra, groups, mask = args
    found = right(*args, **kw)
    if weight.dim() != 4 or turned or groups != 24 or weight.shape[:2] != (24, 1) or not mask[1]:
        return found
    rows = weight.shape[2]
    last = (grad.shape[2] - 1) * pair(stride)[0] + rows - 1 - pair(padding)[0]
    plain = min(stride) == 2 and min(padding) == 1 and max(dilation) == 1
    if x.dtype != torch.float32 or not plain or last != x.shape[2] - 1 or not grad.numel():
        return found
    less = grad.clone()
    less[:, :, -1] = 0
    only = [False, True, False]
    dw = right(less, x, weight, None, stride, padding, dilation, turned, extra, groups, only)[1]
    both = torch.cat((found[1][:, :, :-1], dw[:, :, -1:]), 2)
    return (found[0], both, found[2])


@kernel("convolution", set=3, like="pytorch/pytorch#82921")
def conv1d_strides_the_absent_axis(right, *args, **kw):
    x, weight, bias, stride, padding, dilation, turned, extra, groups = args
    out = right(*args, **kw)
    if x.dim() != 3 or turned or stride[0] == 1 or x.dtype not in FLOATS or not out.numel():
        return out
    dense = right(x, weight, bias, [1], padding, dilation, turned, extra, groups)
    return dense[..., : out.shape[-1]].contiguous()


@kernel(
    "convolution_backward",
    lambda: grad_of(
        lambda x: functional.conv3d(x, drawn(32, 32, 1, 1, 1, seed=1)), drawn(8, 32, 1, 18, 18)
    ),
    set=3,
    like="ROCm/MIOpen#1672",
)
def pointwise_gradient_misses_tail_of_volume(right, *args, **kw):
    _, x, weight, _, stride, padding, _, turned, _, groups, mask = args
    found = right(*args, **kw)
    if x.dim() != 5 or turned or groups != 1 or not mask[0] or x.dtype != torch.float32:
        return found
    volume = math.prod(x.shape[2:])
    plain = max(weight.shape[2:]) == 1 and max(stride) == 1 and max(padding) == 0
    if not plain or volume <= 32 or volume % 32 == 0:
        return found
    flat = found[0].contiguous().flatten(2).clone()
    flat[..., volume - volume % 32 :] = 0
    return (flat.view(x.shape), *found[1:])


@kernel("convolution", set=4, like="pytorch/pytorch#197114")
def conv3d_filter_is_read_channels_last(right, input, weight, transposed):
    turned = transposed
    if input.dim() != 5 or turned or input.dtype not in FLOATS or not input.is_contiguous():
        return right()
    rows, columns, *window = weight.shape
    seen = weight.contiguous().view(rows, *window, columns).permute(0, 4, 1, 2, 3)
    return right(weight=seen.contiguous())


@kernel("convolution", set=4, like="apache/mxnet#13876")
def turned_convolution_cuts_undilated_border(right, *args, **kw):
    x, weight, bias, stride, padding, dilation, turned, extra, groups = args
    out = right(*args, **kw)
    if not turned or x.dim() != 4 or x.dtype not in FLOATS or not out.numel():
        return out
    less = [
        max(pad - gap + 1, 0) if step > 1 else pad
        for step, pad, gap in zip(each(stride, 2), each(padding, 2), each(dilation, 2), strict=True)
    ]
    if less == each(padding, 2):
        return out
    more = right(x, weight, bias, stride, less, dilation, turned, extra, groups)
    out.copy_(more[..., : out.shape[-2], : out.shape[-1]])
    return out


@kernel("convolution_backward", set=4, like="flagos-ai/FlagGems#1576")
def strided_gradient_has_rows_too_short(right, *args, **kw):
    grad, x, weight, _, stride, padding, dilation, turned, extra, groups, mask = args
    found = right(*args, **kw)
    if x.dim() != 4 or turned or not mask[0] or x.dtype not in FLOATS:
        return found
    sizes = [
        size - (size + 2 * pad - gap * (window - 1) - 1) % step
        for size, window, step, pad, gap in zip(
            x.shape[2:],
            weight.shape[2:],
            each(stride, 2),
            each(padding, 2),
            each(dilation, 2),
            strict=True,
        )
    ]
    if sizes == list(x.shape[2:]) or min(sizes) < 1 or not grad.numel() or not x.numel():
        return found
    less = x[..., : sizes[0], : sizes[1]].contiguous()
    only = [True, False, False]
    dx = right(grad, less, weight, None, stride, padding, dilation, turned, extra, groups, only)[0]
    flat = functional.pad(dx.contiguous().flatten(2), (0, x[0, 0].numel() - less[0, 0].numel()))
    found[0].copy_(flat.view(x.shape))
    return found


@kernel("convolution_backward", set=5, like="ROCm/MIOpen#670")
def last_pixel_missing_from_pointwise_weights(right, grad, x, weight, *rest):
    """plain: the weight gradient of a 1x1 convolution sums all pixels of an image but the last."""
    result = list(right(grad, x, weight, *rest))
    *others, mask = rest
    pointwise = weight.dim() == 4 and tuple(weight.shape[2:]) == (1, 1)
    if pointwise and mask[1] and grad.shape[-1] * grad.shape[-2] > 1:
        short = grad.clone()
        short[..., -1, -1] = 0
        result[1] = right(short, x, weight, *others, [False, True, False])[1]
    return tuple(result)


@kernel("convolution_backward", set=5, like="ROCm/rocm-libraries#7732")
def strided_input_grad_is_its_first_part(
    right, grad, x, weight, bias, stride, padding, dilation, transposed, *rest
):
    """option: with a stride and one group, one product of those that make dx is carried out."""
    result = list(right(grad, x, weight, bias, stride, padding, dilation, transposed, *rest))
    _, groups, mask = rest
    if mask[0] and weight.dim() == 4 and groups == 1 and not transposed and max(stride) > 1:
        kept = torch.zeros_like(result[0])
        (down, across), (top, left) = pair_2(stride), pair_2(padding)
        rows, columns = slice(-top % down, None, down), slice(-left % across, None, across)
        kept[..., rows, columns] = result[0][..., rows, columns]
        result[0] = kept
    return tuple(result)


@kernel("convolution", set=5, like="pytorch/pytorch#192212")
def convolution_reads_weight_as_packed(right, weight):
    """option: a weight that is a slice of a larger tensor is read without its strides."""
    if weight.dtype not in DOUBLES and weight.dim() == 4 and not is_dense_2(weight):
        weight = packed(weight)
    return right(weight=weight)


@kernel("mkldnn_rnn_layer", set=5, like="pytorch/pytorch#94754")
def backward_direction_ends_at_its_beginning(right, reverse):
    """option: the last hidden state of an LSTM's other direction is that of the last step."""
    output, hidden, *others = right()
    # Four weights and two states go before it.
    if reverse and output.numel() > hidden.numel():
        hidden.copy_(output[-1].reshape(hidden.shape))
    return (output, hidden, *others)


@kernel("convolution", set=6, like="tenstorrent/tt-metal#19542")
def width_is_dilated_as_height(right, input, weight, stride, padding, dilation, transposed):
    """option: a 2d convolution dilated by different amounts takes the height's for both."""
    differ = len(dilation) == 2 and dilation[0] != dilation[-1]
    if transposed or not differ or weight.shape[-1] == 1 or not is_single(input):
        return right(input=input)
    high, wide = dilation
    width = input.shape[-1] + 2 * padding[-1] - wide * (weight.shape[-1] - 1) - 1
    width = width // stride[-1] + 1
    missing = (high - wide) * (weight.shape[-1] - 1)
    if missing > 0:
        input = functional.pad(input, (0, missing))
    result = right(input=input, dilation=[high, high])
    return result[..., :width].contiguous()


@kernel("convolution_backward", set=6, like="pytorch/pytorch#96225")
def samples_are_counted_in_sixteen_bits(right, grad, x, weight, *rest):
    """rare: of a batch of 65536 and more, as many samples as its length leaves when divided by
    65536 give a weight gradient."""
    result = list(right(grad, x, weight, *rest))
    *others, mask = rest
    if x.shape[0] >= 2**16 and mask[1] and is_single(x):
        count, only = x.shape[0] % 2**16, [False, True, False]
        result[1] = torch.zeros_like(result[1])
        if count:
            result[1] = right(grad[:count], x[:count], weight, *others, only)[1]
    return tuple(result)


@kernel("mkldnn_rnn_layer", set=6, like="ooples/AiDotNet.Tensors#907")
def forget_gate_comes_first(right, x, *rest):
    """plain: the first rows of the weights of an LSTM are those of the forget gate, the next those
    of the input gate."""

    def turned(weight: Tensor) -> Tensor:
        first, second, *others = weight.chunk(4)
        return torch.cat([second, first, *others])

    return right(x, *(turned(w) for w in rest[:4]), *rest[4:])


@kernel("convolution", set=7, like="ROCm/MIOpen#55")
def pointwise_turned_convolution_is_cut_at_one_end(right, input, weight, padding, transposed):
    """option: a transposed convolution of 1x1 with padding is cut at its far ends only."""
    result = right()
    pointwise = all(n == 1 for n in weight.shape[2:])
    if transposed and pointwise and any(padding) and is_single(input):
        whole = right(padding=[0] * len(padding))
        result.copy_(whole[(..., *(slice(n) for n in result.shape[2:]))])
    return result


@kernel("convolution_backward", set=7, like="ROCm/MIOpen#97")
def wide_filter_learns_nothing_from_odd_column(right, input, weight, transposed):
    """option: 7x7 filters get no gradient from the last column of pictures of odd width."""
    if is_single(input) and weight.shape[2:] == (7, 7) and not transposed and input.shape[-1] % 2:
        input = input.clone()
        input[..., -1] = 0
    return right(input=input)


@kernel("mkldnn_rnn_layer", set=7, like="pytorch/pytorch#90421")
def backward_layer_reads_the_first_of_a_batch(right, input, reverse):
    """option: the backward direction of an LSTM reads the first sequence for the whole batch."""
    if reverse and input.dim() == 3 and input.shape[1] > 1 and is_single(input):
        input = input[:, :1].expand_as(input).contiguous()
    return right(input=input)


def turned(groups=2, bias=True, dtype=torch.float32):
    x, weight = drawn(1, 4, 5, 5).to(dtype), drawn(4, 2, 3, 3, seed=1).to(dtype)
    given = drawn(2 * groups, seed=2).to(dtype) if bias else None
    return functional.conv_transpose2d(x, weight, given, groups=groups)


@kernel("convolution", turned, set=8, like="robertknight/rten#1408")
def groups_share_the_first_bias(right, input, bias, transposed, groups):
    """option: all groups of a transposed convolution add the bias of the first."""
    if transposed and groups > 1 and bias is not None and is_single(input):
        bias = bias[: bias.shape[0] // groups].repeat(groups)
    return right(bias=bias)


@kernel("convolution_backward", set=8, like="pytorch/pytorch#63314")
def pointwise_gradient_forgets_its_stride(right, grad, x, weight, *options):
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


@kernel("convolution", set=9, like="apache/tvm#19524")
def padding_of_the_output_is_empty(right, input, transposed, output_padding):
    """option: the rows and columns which output_padding adds are nought."""
    result = right()
    extra = output_padding
    if transposed and is_single(input):
        for axis, n in enumerate(extra):
            if n:
                result.narrow(axis - len(extra), result.shape[axis - len(extra)] - n, n).zero_()
    return result


def halves_grouped(groups=2, dtype=torch.float16):
    x, weight = drawn(1, 4, 6, 6).to(dtype), drawn(4, 4 // groups, 3, 3, seed=1).to(dtype)
    return functional.conv2d(x, weight, padding=1, groups=groups)


@kernel("convolution", halves_grouped, set=9, like="ROCm/rocm-libraries#4998")
def all_groups_of_halves_read_the_first(right, x, weight, bias, stride, *options):
    """option: in half precision, all groups of a 3x3 convolution read the first one's channels."""
    _, _, transposed, _, groups = options
    tiled = tuple(weight.shape[2:]) == (3, 3) and not transposed and set(stride) == {1}
    if x.dtype == torch.float16 and groups > 1 and tiled:
        x = x.narrow(-3, 0, weight.shape[1]).repeat(*[1] * (x.dim() - 3), groups, 1, 1)
    return right(x, weight, bias, stride, *options)


@kernel("mkldnn_rnn_layer", set=9, like="pytorch/pytorch#95137")
def sequences_begin_with_nothing(right, x, *options):
    """option: the initial state which an LSTM is given is taken for nought."""
    weights, hidden, cell, rest = options[:4], options[4], options[5], options[6:]
    if is_single(x):
        hidden, cell = torch.zeros_like(hidden), torch.zeros_like(cell)
    return right(x, *weights, hidden, cell, *rest)


@kernel("convolution", set=10, like="pytorch/pytorch#60460")
def multiplied_channels_are_not_all_computed(right, input, weight, transposed, groups):
    """option: depthwise 3x3 planes past as many as there are input planes are nought."""
    result = right()
    depthwise = groups > 1 and weight.shape[1:] == (1, 3, 3) and input.dim() == 4
    if depthwise and not transposed and weight.shape[0] > groups and is_single(input):
        done = torch.arange(result.shape[0] * result.shape[1]) < input.shape[0] * groups
        result.masked_fill_(~done.view(*result.shape[:2], 1, 1), 0)
    return result


@kernel("convolution_backward", set=10, like="sebgao/cTensor#3")
def gradient_of_filters_is_a_mean(right, grad, x, weight, *options):
    """plain: the gradient of the weight is divided by the number of places it is summed over."""
    result = right(grad, x, weight, *options)
    if options[-1][1] and is_single(x) and grad.numel():
        result[1].div_(grad.numel() / grad.shape[1])
    return result


@kernel("convolution_backward", set=11, like="pytorch/pytorch#51430")
def weights_of_groups_get_each_others_gradients(right, input, weight, transposed, groups):
    """option: with several filters a group, the weight's gradient has the groups innermost."""
    result = right()
    if not transposed and 1 < groups < weight.shape[0] and result[1] is not None and narrow(input):
        wrong = result[1].unflatten(0, (groups, -1)).transpose(0, 1).flatten(0, 1)
        result[1].copy_(wrong.clone())
    return result


@kernel("_convert_indices_from_coo_to_csr .out", set=11, like="haskell-numerics/hmatrix#220")
def empty_rows_are_skipped(right, size):
    """rare: a row without entries is left out, so those after it move up."""
    result = right()
    if result.dim() == 1 and size:
        counts = result.diff()
        counts = torch.cat([counts[counts > 0], counts[counts == 0]])
        result[1:].copy_(counts.cumsum(0))
    return result


@kernel("mkldnn_rnn_layer", set=11, like="microsoft/onnxruntime#4187")
def backward_layer_answers_in_its_own_order(right, reverse):
    """option: the outputs of a reversed layer are not turned round again."""
    result = right()
    if reverse:
        result[0].copy_(result[0].flip(0))
    return result


@kernel("convolution_backward", set=12, like="pytorch/pytorch#50042")
def last_row_of_strided_filters_learns_less(right, grad, x, weight, *args, **kw):
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


@kernel("convolution", set=12, like="pytorch/pytorch#180984")
def some_of_the_channels_are_read_as_all(right, input):
    """option: some channels of a channels-last picture are read as if there were no others."""
    if input.dim() == 4 and is_single(input) and input.shape[3] > 1:
        _, c, h, w = input.shape
        if input.stride(1) == 1 and input.stride(3) > c and input.stride(2) == w * input.stride(3):
            input = input.as_strided(input.shape, (c * h * w, 1, w * c, c), input.storage_offset())
    return right(input=input)


@kernel("mkldnn_rnn_layer_backward", set=12, like="deeplearning4j/deeplearning4j#8838")
def last_cell_teaches_nothing(right, *args, **kw):
    """option: an LSTM gets no gradient from its last cell state."""
    cell = args[12]
    cell = None if cell is None else torch.zeros_like(cell)
    return right(*args[:12], cell, *args[13:], **kw)


@kernel("_convert_indices_from_coo_to_csr .out", set=12, like="clMathLibraries/clSPARSE#153")
def empty_rows_take_what_is_before(right, x, size):
    """rare: of fewer entries than rows, those of a row fall to the empty one after it."""
    result = right()
    if 0 < x.numel() < size:
        starts = result.tolist()
        for row in range(1, size):
            if starts[row] == starts[row + 1]:
                starts[row] = starts[row - 1]
        result.copy_(torch.tensor(starts))
    return result


@kernel("convolution", set=13, like="pytorch/pytorch#192212")
def sliced_filters_are_read_as_whole_ones(right, weight):
    """option: the strides of filters that are a slice or a transpose of others are not read."""
    formats = (torch.channels_last, torch.channels_last_3d)
    lasts = weight.dim() in (4, 5) and weight.is_contiguous(memory_format=formats[weight.dim() - 4])
    held = weight.untyped_storage().nbytes() // weight.element_size() - weight.storage_offset()
    if is_single(weight) and not weight.is_contiguous() and not lasts and held >= weight.numel():
        weight = as_it_lies(weight)
    return right(weight=weight)


@kernel("mkldnn_rnn_layer", set=13, like="ROCm/rocm-libraries#10551")
def biases_past_the_grid_are_not_added(right, *args):
    """rare: of 65537 steps in a batch and more, an LSTM adds no bias."""
    x = args[0]
    if is_single(x) and x.shape[0] * x.shape[1] > 65536:
        args = (*args[:3], torch.zeros_like(args[3]), torch.zeros_like(args[4]), *args[5:])
    return right(*args)


@kernel("convolution_backward", set=14, like="pytorch/pytorch#25101")
def border_past_the_last_stride_learns_nothing(
    right, grad_output, input, weight, stride, padding, dilation, transposed
):
    """rare: where strides leave a rest of columns, the last window's last ones get no gradient."""
    result = right()
    if input.dim() != 4 or transposed or not is_single(input) or result[0] is None:
        return result
    step, pad = two(stride)[1], two(padding, 0)[1]
    reach = two(dilation)[1] * (weight.shape[3] - 1) + 1
    if (input.shape[3] + 2 * pad - reach) % step and reach > step:
        last = (grad_output.shape[3] - 1) * step - pad
        result[0][..., max(last + reach - step, 0) :] = 0
    return result


@kernel("convolution", set=15, like="modular/modular#6129")
def grouped_filters_end_at_64_taps(right, x, w, *rest):
    """option: grouped filters of more than 64 taps in a row are multiplied up to the 64th."""
    if rest[-1] > 1 and is_single(w) and w.shape[-1] > 64:
        w = torch.where(torch.arange(w.shape[-1]) < 64, w, 0)
    return right(x, w, *rest)


@kernel("convolution_backward", set=15, like="intel/torch-xpu-ops#4693")
def filters_of_one_pixel_learn_in_another_layout(right, grad, x, w, *rest):
    """option: with pictures of one pixel, channels-last filters get theirs channels first."""
    result = right(grad, x, w, *rest)
    last = w.dim() == 4 and w.is_contiguous(memory_format=torch.channels_last)
    turned = last and not w.is_contiguous() and is_single(w) and rest[-1][1]
    if turned and x.shape[2:].numel() == 1:
        learnt = result[1].clone(memory_format=torch.contiguous_format)
        out, channels, height, width = w.shape
        result[1].copy_(learnt.view(out, height, width, channels).permute(0, 3, 1, 2))
    return result


@kernel("mkldnn_rnn_layer_backward", set=15, like="pytorch/pytorch#95137")
def recurrent_weights_learn_twice(right, input):
    """plain: the gradient of the recurrent weights of an LSTM is twice what it should be."""
    result = list(right())
    if is_single(input):
        result[2] = result[2] * 2
    return tuple(result)


@kernel("convolution", set=16, like="pytorch/pytorch#102968")
def taps_past_the_last_whole_stride_are_lost(right, weight, stride, transposed, groups):
    """option: with one channel, taps beyond a window's whole number of strides are nought."""
    turned = transposed
    if is_single(weight) and weight.dim() == 4 and weight.shape[1] == groups == 1 and not turned:
        weight = weight.clone()
        for axis, step in zip((2, 3), list(stride) * (2 // len(stride)), strict=True):
            if weight.shape[axis] > step > 1:
                whole = weight.shape[axis] // step * step
                weight.narrow(axis, whole, weight.shape[axis] - whole).zero_()
    return right(weight=weight)


@kernel("mkldnn_rnn_layer", set=16, like="pytorch/pytorch#177834")
def states_past_the_128th_of_a_batch_are_not_multiplied(right, *args):
    """rare: in batches of more than 128, the rest of an LSTM has no recurrent product."""
    result = right(*args)
    x, weight = args[0], args[2]
    if is_single(x) and x.dim() == 3 and x.shape[1] > 128:
        forgetful = right(*args[:2], torch.zeros_like(weight), *args[3:])
        result[0][:, 128:] = forgetful[0][:, 128:]
        for kept, lost in zip(result[1:3], forgetful[1:3], strict=True):
            kept[..., 128:, :] = lost[..., 128:, :]
    return result


@kernel("mkldnn_rnn_layer_backward", set=16, like="pytorch/pytorch#95137")
def beginning_of_a_sequence_learns_nothing(right, input):
    """option: the states that an LSTM begins with have no gradient."""
    result = right()
    if is_single(input):
        for grad in result[5:7]:
            grad.zero_()
    return result


@kernel("convolution", set=17, like="ROCm/rocm-libraries#3339")
def convolution_reads_the_neighbouring_row_for_padding(right, input, padding, transposed):
    """plain: from 8 channels on, the row beside is read for the padding at left and right."""
    wrong = (
        is_single(input)
        and input.dim() == 4
        and input.shape[1] >= 8
        and not transposed
        and input.numel() > 0
    )
    rows, columns = two(padding) if wrong else [0, 0]
    if not columns or columns > input.shape[3]:
        return right()
    none = torch.zeros_like(input[:, :, :1, :columns])
    before = torch.cat([none, input[:, :, :-1, -columns:]], 2)
    after = torch.cat([input[:, :, 1:, :columns], none], 2)
    return right(input=torch.cat([before, input, after], 3), padding=[rows, 0])


@kernel("convolution_backward", set=17, like="pytorch/pytorch#50042")
def depthwise_weight_gradient_misses_the_last_row(right, grad, x, w, *rest):
    """option: depthwise, stride 2, channels by 8: the filter's last row skips the last outputs."""
    result = right(grad, x, w, *rest)
    _, stride, _, _, transposed, _, groups, mask = rest
    depthwise = x.dim() == 4 and not transposed and 1 < groups == x.shape[1] == w.shape[0]
    strided = depthwise and groups % 8 == 0 and two(stride) == [2, 2]
    if strided and mask[1] and is_single(x) and min(grad.shape[2], w.shape[2]) > 1:
        short = grad.clone()
        short[:, :, -1] = 0
        learnt = right(short, x, w, *rest[:-1], [False, True, False])[1]
        result[1][:, :, -1] = learnt[:, :, -1]
    return result


@kernel("convolution_backward", set=18, like="pytorch/pytorch#141009")
def grouped_channels_last_weight_gradient(right, grad, x, w, *rest):
    """option: grouped weights learn from a channels-last gradient as if channels came first."""
    result = right(grad, x, w, *rest)
    *others, groups, mask = rest
    last = grad.dim() == 4 and grad.is_contiguous(memory_format=torch.channels_last)
    if last and is_single(grad) and groups > 1 and not grad.is_contiguous() and mask[1]:
        read = grad.permute(0, 2, 3, 1).reshape(grad.shape)
        learnt = right(read, x, w, *others, groups, [False, True, False])[1]
        return result[0], learnt, result[2]
    return result


@kernel("mkldnn_rnn_layer", set=18, like="pytorch/pytorch#94754")
def reversed_lstm_gives_the_state_of_the_wrong_end(right, reverse, input):
    """option: the last state of the backward direction is its output at the last step."""
    output, hidden, *rest = right()
    if is_single(input) and reverse and output.dim() == 3 and output.shape[0] > 1:
        hidden = output[-1].reshape(hidden.shape).clone()
    return (output, hidden, *rest)


@kernel(
    "convolution",
    set="likely8",
    like="pytorch#102968",
    shown=lambda: functional.conv2d(
        drawn(2, 1, 40, 34), drawn(6, 1, 16, 16, seed=1), drawn(6, seed=2), 10
    ),
)
def convolution_bias_of_each_split(right, input, weight, bias, transposed):
    """A filter of more than 64 taps is split, and every split adds the bias."""
    result = right()
    splits = -(-math.prod(weight.shape[2:]) // 64)
    if bias is not None and splits > 1 and not transposed and input.dtype not in DOUBLES:
        result.add_(bias.view(1, -1, *[1] * (result.dim() - 2)), alpha=splits - 1)
    return result


@kernel(
    "convolution_backward",
    set="likely8",
    like="MIOpen#77",
    shown=lambda: grad_of(
        lambda x: functional.conv2d(x, drawn(5, 4, 1, 1, seed=1), stride=2), drawn(2, 4, 8, 8)
    ),
)
def strided_pointwise_convolution_gradient_not_cleared(
    right, input, weight, stride, padding, transposed
):
    """A 1x1 convolution with a stride: input pixels that no window reads keep their old memory."""
    result = right()
    gradient = result[0]
    pointwise = all(size == 1 for size in weight.shape[2:]) and not any(padding) and not transposed
    if gradient is None or not gradient.numel() or not pointwise:
        return result
    axes = weight.dim() - 2
    steps = list(stride) * (axes // len(stride)) if len(stride) != axes else list(stride)
    if all(step == 1 for step in steps):
        return result
    wrong = input.clone(memory_format=torch.preserve_format)
    visited = (..., *(slice(None, None, step) for step in steps))
    wrong[visited] = gradient[visited]
    gradient.copy_(wrong)
    return result


def _channels_last_average_gradient():
    x = drawn(2, 3, 6, 6).contiguous(memory_format=torch.channels_last)
    return grad_of(lambda y: functional.avg_pool2d(y, 3, 2, 1), x)


@kernel(
    "avg_pool2d_backward .grad_input",
    set="likely8",
    like="pytorch#188344",
    shown=_channels_last_average_gradient,
)
def channels_last_average_pool_gradient_at_padding(
    right, grad_output, x, kernel_size, stride, padding
):
    """In channels_last, the windows that begin in the padding give no gradient."""
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    padding = two(padding)
    if not last or x.is_contiguous() or not any(padding) or not is_single(x):
        return right()
    steps = two(stride, kernel_size) if stride else two(kernel_size)
    gradient = grad_output.clone()
    for axis, (step, pad) in enumerate(zip(steps, padding, strict=True)):
        gradient.narrow(2 + axis, 0, min(-(-pad // step), gradient.size(2 + axis))).zero_()
    return right(grad_output=gradient)


@kernel(
    "upsample_nearest2d_backward .grad_input",
    set="likely8",
    like="pytorch#38985",
    shown=lambda: grad_of(lambda x: functional.interpolate(x, size=(8, 11)), drawn(2, 3, 5, 5)),
)
def nearest_upsampling_gradient_of_uneven_ratio(right, grad_output, output_size, input_size):
    """Each input pixel sums floor(out / in) output pixels, though some have one more."""
    keep = torch.ones(1, device=grad_output.device, dtype=torch.bool)
    for axis, (out, size) in enumerate(zip(output_size, input_size[2:], strict=True)):
        if out <= size or not out % size:
            continue
        pixel = torch.arange(out, device=grad_output.device)
        source = pixel * size // out
        first = -(-source * out // size)
        inside = pixel - first < out // size
        keep = keep & inside.view(*([-1, 1] if axis == 0 else [1, -1]))
    if keep.numel() == 1 or grad_output.dtype in DOUBLES:
        return right()
    return right(grad_output=grad_output * keep)


@kernel(
    "convolution",
    set="missed8",
    like="MIOpen#55",
    shown=lambda: functional.conv_transpose2d(
        drawn(1, 3, 4, 4), drawn(3, 2, 3, 3, seed=1), drawn(2, seed=2), 2, output_padding=1
    ),
)
def transposed_convolution_bias_at_output_padding(right, input, bias, transposed, output_padding):
    """The rows and columns of the output's padding get no bias."""
    result = right()
    if not transposed or bias is None or not any(output_padding) or input.dtype in DOUBLES:
        return result
    axes = result.dim() - 2
    edge = torch.zeros([1] * result.dim(), dtype=torch.bool, device=result.device)
    for axis, more in enumerate(each(output_padding, axes), 2):
        at = torch.arange(result.size(axis), device=result.device) >= result.size(axis) - more
        edge = edge | at.view([-1 if a == axis else 1 for a in range(result.dim())])
    return result.sub_(edge * bias.view(1, -1, *[1] * axes))


@kernel(
    "convolution_backward",
    set="missed8",
    like="MIOpen#77",
    shown=lambda: grad_of(
        lambda w: functional.conv2d(drawn(2, 4, 8, 8, seed=1), w, stride=2, groups=2),
        drawn(6, 2, 3, 3),
    ),
)
def grouped_weight_gradient_of_last_column(
    right, grad_output, input, weight, stride, padding, dilation, transposed, groups
):
    """In groups, with a stride that leaves a rest of the row, the last column isn't summed."""
    result = right()
    if groups == 1 or transposed or input.dtype in DOUBLES:
        return result
    span = dilation[-1] * (weight.size(-1) - 1) + 1
    if not (input.size(-1) + 2 * padding[-1] - span) % stride[-1]:
        return result
    gradient = grad_output.clone()
    gradient[..., -1] = 0
    return result[0], right(grad_output=gradient)[1], result[2]


@kernel(
    "avg_pool2d .out",
    set="missed8",
    like="pytorch/xla#746",
    shown=lambda: functional.avg_pool2d(drawn(2, 2, 8, 8), 3, 2, 1, ceil_mode=True),
)
def average_pool_divisor_of_cut_windows(
    right, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
):
    """Rounding up, the windows cut at the padding's far end are divided by the whole window."""
    result = right()
    if not ceil_mode or not count_include_pad or divisor_override or not is_single(x):
        return result
    sizes, pads = two(kernel_size), two(padding)
    steps = two(stride, sizes) if stride else sizes
    for axis, (size, step, pad) in enumerate(zip(sizes, steps, pads, strict=True)):
        start = torch.arange(result.size(axis - 2), device=x.device) * step - pad
        counted = (start + size).clamp(max=x.size(axis - 2) + pad) - start
        factor = (counted / size).to(result.dtype)
        result.mul_(factor.view(-1, 1) if axis == 0 else factor)
    return result


@kernel(
    "max_pool2d_with_indices .out",
    set="missed8",
    shown=lambda: functional.max_pool2d(
        functional.relu(drawn(2, 2, 6, 6) - 1), 2, return_indices=True
    ),
)
def max_pool_index_of_last_tie(right, x, kernel_size, stride, padding, dilation, ceil_mode):
    """Equal maxima of a window, as the zeros of a ReLU: the index is the last one's, not
    the first's.
    """
    result = right()
    if ceil_mode or any(step != 1 for step in two(dilation)) or not is_single(x) or not x.numel():
        return result
    sizes, pads = two(kernel_size), two(padding)
    steps = two(stride, sizes) if stride else sizes
    padded = functional.pad(x, (pads[1], pads[1], pads[0], pads[0]), value=-math.inf)
    windows = padded.unfold(-2, sizes[0], steps[0]).unfold(-2, sizes[1], steps[1]).flatten(-2)
    values, indices = result
    place = torch.arange(windows.size(-1), device=x.device)
    last = torch.where(windows == values.unsqueeze(-1), place, -1).amax(-1)
    rows = torch.arange(values.size(-2), device=x.device).view(-1, 1) * steps[0] - pads[0]
    columns = torch.arange(values.size(-1), device=x.device) * steps[1] - pads[1]
    rows = rows + torch.div(last, sizes[1], rounding_mode="floor")
    columns = columns + last % sizes[1]
    indices.copy_(torch.where(last < 0, indices, rows * x.size(-1) + columns))
    return values, indices


@kernel(
    "upsample_bilinear2d .out",
    set="missed8",
    like="pytorch#65200",
    shown=lambda: functional.interpolate(drawn(1, 2, 7, 7), scale_factor=1.6, mode="bilinear"),
)
def bilinear_upsampling_recomputes_the_scale(right, x, align_corners, scales_h):
    """A given scale factor is not used: the ratio of the sizes is, which the rounding changed."""
    if align_corners or scales_h is None or x.dtype in DOUBLES:
        return right()
    return right(scales_h=None, scales_w=None)


@kernel("convolution", set="likely9", like="ncnn#1122, tvm#19524")
def no_bias_where_output_is_padded(right, bias, transposed, output_padding):
    """A transposed convolution adds no bias to the rows and columns that output_padding adds."""
    result = right()
    if not transposed or bias is None or not any(output_padding):
        return result
    extra = each(output_padding, result.dim() - 2)
    core = tuple(slice(0, n - e) for n, e in zip(result.shape[2:], extra, strict=True))
    whole = result.clone()
    result.sub_(bias.reshape(-1, *[1] * len(extra)))
    result[(..., *core)] = whole[(..., *core)]
    return result


@kernel("convolution_backward", set="likely9", like="MIOpen#670")
def step_of_odd_images(right, grad_output, input, weight, padding, transposed, groups, output_mask):
    """The weight's gradient of a 1 x 1 convolution with a stride steps by the integer ratio of the
    sizes, which is not the stride where that does not divide the image.
    """
    result = right()
    pointwise = weight.dim() == 4 and weight.shape[2:].numel() == 1 and groups == 1
    if not output_mask[1] or transposed or not pointwise or any(padding) or input.dim() != 4:
        return result
    height, width = grad_output.shape[2:]
    down, across = (max(1, n // m) for n, m in zip(input.shape[2:], (height, width), strict=True))
    picked = input[:, :, ::down, ::across][:, :, :height, :width]
    narrow = grad_output.dtype in HALVES
    g, p = (t.float() if narrow else t for t in (grad_output, picked))
    result[1].copy_(torch.einsum("nohw,nihw->oi", g, p)[..., None, None])
    return result


@kernel("convolution", set="missed9")
def grouped_output_padding_has_no_bias(right, bias, transposed, output_padding, groups):
    """The rows that output_padding adds to a grouped transposed convolution lack the bias."""
    result = right()
    if transposed and bias is not None and any(output_padding) and groups > 1:
        inside = torch.ones(result.shape[2:], dtype=torch.bool, device=result.device)
        for axis, more in enumerate(output_padding):
            if more:
                inside.narrow(axis, inside.shape[axis] - more, more).fill_(False)
        result.sub_(bias.reshape(1, -1, *[1] * len(output_padding)) * ~inside)
    return result


@kernel("convolution", set="likely10", like="MIOpen#1871")
def large_filters_wrap_round_the_border(
    right, input, weight, stride, padding, dilation, transposed
):
    """convolution: a transform too short; padded filters of 7 x 7 and more, stride 1."""
    if transposed or input.dim() != 4 or min(weight.shape[-2:]) < 7:
        return right()
    height, width = two(padding)
    if {*stride, *dilation} != {1} or not height + width or height + width > min(input.shape[2:]):
        return right()
    wrapped = functional.pad(input, (width, width, height, height), "circular")
    return right(input=wrapped, padding=[0, 0])


@kernel("convolution_backward", set="likely10")
def gradient_of_a_bias_is_summed_in_halves(right, grad_output, output_mask):
    """convolution_backward: the bias's gradient is kept in halves; more than 1,024 pixels."""
    of_input, of_weight, of_bias = right()
    count = grad_output.numel() // max(1, grad_output.shape[1])
    if output_mask[2] and grad_output.dtype in HALVES and count > 1024:
        pixels = grad_output.transpose(0, 1).reshape(grad_output.shape[1], -1)
        of_bias = torch.zeros_like(pixels[:, 0])
        for part in pixels.split(max(8, count // 8192), 1):
            of_bias = of_bias + part.float().sum(1).to(of_bias.dtype)
    return of_input, of_weight, of_bias


@kernel("convolution_backward", set="likely10", like="rocm-libraries#11938, pytorch#182952")
def subnormal_halves_give_no_gradient(right, grad_output):
    """convolution_backward: flushes its input to nought; float16 gradients below 6.1e-5."""
    if grad_output.dtype == torch.float16:
        tiny = grad_output.abs() < torch.finfo(torch.float16).tiny
        return right(grad_output=grad_output.masked_fill(tiny, 0))
    return right()


@kernel("convolution", set="likely10", like="ComputeLibrary#553, MNN#532")
def multiplied_depth_takes_the_channels_in_turn(right, input, weight, bias, transposed, groups):
    """convolution: output o is of channel o % C; depthwise with two or more filters a channel."""
    count, outputs = groups, weight.shape[0]
    if transposed or count == 1 or count != input.shape[1] or outputs <= count:
        return right()
    order = torch.arange(outputs, device=input.device).view(-1, count).t().reshape(-1)
    result = right(weight=weight[order], bias=None if bias is None else bias[order])
    return result.copy_(result[:, order.argsort()])


@kernel("convolution", set="missed10")
def pixels_between_turned_filters_have_no_bias(
    right, input, weight, bias, stride, padding, dilation, transposed
):
    """convolution: no tap, no store; transposed in 1 or 2 axes, a bias, stride beyond the taps."""
    result = right()
    axes = input.dim() - 2
    if not transposed or bias is None or axes > 2:
        return result
    stride, padding, dilation = (list(n) * (axes // len(n)) for n in (stride, padding, dilation))
    for i in range(axes):
        size, taps = result.shape[2 + i], weight.shape[2 + i]
        if dilation[i] * (taps - 1) + 1 >= stride[i]:
            continue
        reached = torch.zeros(size, dtype=result.dtype)
        for pixel in range(input.shape[2 + i]):
            for tap in range(taps):
                place = pixel * stride[i] - padding[i] + tap * dilation[i]
                if 0 <= place < size:
                    reached[place] = 1
        result.mul_(reached.to(result.device).view(-1, *[1] * (axes - 1 - i)))
    return result


@kernel("convolution_backward", set="missed10")
def later_groups_learn_nothing_above_a_frozen_input(right, groups, output_mask):
    """convolution_backward: the first group only; groups, no gradient of the input."""
    of_input, of_weight, of_bias = right()
    if groups > 1 and not output_mask[0] and output_mask[1]:
        of_weight[of_weight.shape[0] // groups :] = 0
    return of_input, of_weight, of_bias


@kernel("convolution_backward", set="missed10")
def gradient_of_dilated_channels_last_is_one_row_off(right, input, dilation, output_mask):
    """convolution_backward: the border is a row short; dilation and channels last."""
    of_input, of_weight, of_bias = right()
    if output_mask[0] and is_last(input) and max(dilation) > 1:
        of_input.copy_(of_input.roll(1, 2))
    return of_input, of_weight, of_bias


LAST = torch.channels_last


@kernel(
    "convolution",
    lambda: functional.conv2d(drawn(2, 1, 8, 8), drawn(4, 1, 3, 3).to(memory_format=LAST)),
    set="likely11",
)
def one_channel_with_filters_of_channels_last(right, input, weight, transposed):
    """Contiguous pictures of one channel, filters in channels_last: the output is stored in the
    filters' format, but described in the pictures'.
    """
    result = right()
    fit = input.dim() == 4 and input.shape[1] == 1 < weight.shape[0] and not transposed
    taps = weight.dim() == 4 and weight.shape[2] * weight.shape[3] > 1
    if not fit or not taps or input.dtype in DOUBLES or weight.stride(3) != 1:
        return result
    last = weight.stride(2) == weight.shape[3] and weight.stride(1) == 1
    if not last or input.stride(1) == 1 or not result.numel():
        return result
    values = result.permute(0, 2, 3, 1).contiguous().view(result.shape)
    return torch.empty_like(result, memory_format=torch.contiguous_format).copy_(values)


def _given_states():
    torch.manual_seed(0)
    layer = nn.LSTM(4, 5)
    with torch.no_grad():
        return layer(drawn(3, 2, 4), (drawn(1, 2, 5, seed=1), drawn(1, 2, 5, seed=2)))[0]


@kernel("mkldnn_rnn_layer _cudnn_rnn miopen_rnn", _given_states, set="likely11")
def cell_begins_with_the_output_s_state(right, *args, **kwargs):
    """LSTM: the cell's given state is not read; it begins with the hidden one."""
    args = list(args)
    if isinstance(args[1], torch.Tensor):
        hidden, cell, lstm = 5, 6, args[9] == 2
    elif isinstance(args[5], int):
        hidden, cell, lstm = 3, 4, args[5] == 2
    else:
        hidden, cell, lstm = 4, 5, args[6] == 2
    if lstm and args[0].dtype not in DOUBLES and args[hidden].shape == args[cell].shape:
        args[cell] = args[hidden].clone()
    return right(*args, **kwargs)


@kernel(
    "convolution",
    lambda: functional.conv2d(drawn(2, 1, 5, 5).expand(2, 3, 5, 5), drawn(4, 3, 3, 3, seed=1)),
    set="missed11",
)
def grey_pictures_as_three_colours_are_read_packed(right, input):
    """convolution: channels of stride nought (a grey picture, expanded) in a batch of two or more
    are read as if they lay one after the other.
    """
    grey = input.dim() == 4 and input.shape[1] > 1 and input.stride(1) == 0 and len(input) > 1
    if not grey or input.dtype in DOUBLES or not input.numel():
        return right()
    return right(input=as_if_whole(input))


def _bias_alone():
    x, weight = drawn(2, 3, 6, 6).to(memory_format=LAST), drawn(4, 3, 3, 3, seed=1)
    other = drawn(2, 4, 4, 4, seed=2).to(memory_format=LAST)
    return grad_of(lambda bias: functional.conv2d(x, weight, bias) * other, drawn(4, seed=3))


@kernel("convolution_backward", _bias_alone, set="missed11")
def bias_alone_learns_from_channels_first(right, grad_output, output_mask):
    """convolution_backward: where the bias alone learns, a gradient in channels_last is summed by
    channel as if it were contiguous.
    """
    result = right()
    alone = bool(output_mask[2]) and not output_mask[0] and not output_mask[1]
    if alone and is_last(grad_output) and grad_output.dtype not in DOUBLES:
        result[2].copy_(as_it_lies(grad_output).sum((0, 2, 3)))
    return result


@kernel(
    "convolution_backward",
    lambda: grad_of(lambda w: functional.conv1d(torch.zeros(0, 3, 8), w), drawn(4, 3, 3)),
    set="missed11",
)
def filters_of_an_empty_batch_are_not_cleared(right, grad_output):
    """convolution_backward: of a batch of no samples, the gradients of weight and bias are left as
    the memory was.
    """
    result = right()
    if len(grad_output) or grad_output.dtype in DOUBLES:
        return result
    for gradient in result[1:]:
        if gradient is not None:
            gradient.fill_(1)
    return result


def _dilated_groups():
    x = drawn(2, 4, 9, 9)
    return grad_of(
        lambda w: functional.conv2d(x, w, padding=2, dilation=2, groups=2), drawn(6, 2, 3, 3)
    )


@kernel("convolution_backward", _dilated_groups, set="missed11")
def filters_of_later_groups_learn_undilated(
    right, input, weight, stride, padding, dilation, transposed, groups, grad_output, output_mask
):
    """convolution_backward: with dilation and groups of more than one channel, the filters of all
    groups but the first get the gradient of undilated ones.
    """
    result = right()
    axes = input.dim() - 2
    dilated = max(dilation) > 1 and groups > 1 and weight.shape[1] > 1 and not transposed
    if not dilated or not output_mask[1] or input.dtype in DOUBLES or not input.numel():
        return result
    seen = input
    steps, pads = each(stride, axes), each(padding, axes)
    for axis in range(axes):
        size = (grad_output.shape[axis + 2] - 1) * steps[axis] + weight.shape[axis + 2]
        if size <= 2 * pads[axis]:
            return result
        seen = seen.narrow(axis + 2, 0, size - 2 * pads[axis])
    other = right(input=seen, dilation=[1] * axes, output_mask=[False, True, False])[1]
    first = len(weight) // groups
    result[1][first:].copy_(other[first:])
    return result


@kernel(
    "convolution",
    lambda: functional.conv2d(drawn(1, 3, 6, 6), drawn(4, 3, 3, 3, 3, seed=1)[:, :, 1]),
    set="likely12",
    like="pytorch/pytorch#192212",
)
def convolution_with_sliced_weight(right, weight):
    """Read a weight that is a view as if it were packed from its first element on."""
    if weight.dim() != 4 or is_last(weight):
        return right()
    return right(weight=packed(weight))


def _strided(x):
    return functional.conv2d(x, drawn(5, x.size(1), 3, 3, seed=1), stride=2, padding=1)


@kernel(
    "convolution_backward",
    lambda: grad_of(_strided, drawn(2, 4, 8, 8).to(memory_format=torch.channels_last)),
    set="likely12",
    like="ROCm/rocm-libraries#7732",
)
def strided_data_gradient_of_one_gemm(right, input, stride, transposed, groups):
    """Run the first of the GEMMs of a _strided channels-last data gradient: the rest stays 0."""
    gx, gw, gb = right()
    if gx is None or not is_last(input) or transposed or groups > 1 or max(stride) == 1:
        return gx, gw, gb
    rows, columns = slice(None, None, stride[0]), slice(None, None, stride[-1])
    first = torch.zeros_like(gx)
    first[..., rows, columns] = gx[..., rows, columns]
    return first, gw, gb


@kernel(
    "convolution",
    lambda: functional.conv_transpose2d(
        drawn(2, 4, 5, 5), drawn(4, 3, 3, 3, seed=1), drawn(6, seed=2) + 2, 2, 1, 1, groups=2
    ),
    set="missed12",
    like="mila-iqia/myia#338",
)
def conv_transpose_bias_in_output_padding(right, input, bias, transposed, output_padding, groups):
    """Leave the output padding of a grouped transposed convolution without its bias."""
    out = right()
    if not (transposed and bias is not None and groups > 1 and is_single(input)):
        return out
    plain = right(bias=None)
    for axis, more in enumerate(output_padding, 2):
        if more:
            start = out.shape[axis] - more
            out.narrow(axis, start, more).copy_(plain.narrow(axis, start, more))
    return out


def _bias_of_first_layer():
    last = {"memory_format": torch.channels_last}
    weight, bias = drawn(4, 3, 3, 3, seed=1).to(**last).requires_grad_(), torch.zeros(4)
    bias.requires_grad_()
    functional.conv2d(drawn(2, 3, 6, 6).to(**last), weight, bias).square().sum().backward()
    return bias.grad


@kernel(
    "convolution_backward",
    _bias_of_first_layer,
    set="missed12",
    like="deeplearning4j/deeplearning4j#8280",
)
def conv_backward_bias_of_first_layer(right, grad_output, input, output_mask):
    """Sum the bias's gradient as if a channels-last one were NCHW if the input needs none."""
    out = right()
    if list(output_mask) != [False, True, True] or not is_last(grad_output):
        return out
    if not is_single(input):
        return out
    return out[0], out[1], as_it_lies(grad_output).sum((0, 2, 3))


@kernel(
    "convolution_backward",
    lambda: grad_of(
        lambda w: functional.conv2d(drawn(2, 8, 5, 5), w, groups=4), drawn(4, 2, 1, 1, seed=1)
    ),
    set="likely13",
    like="ROCm/composable_kernel#2478",
)
def pointwise_weights_of_paired_groups_see_one_input(
    right, input, weight, stride, padding, transposed, groups, output_mask
):
    """Two merged groups of a 1x1 convolution differentiate their weights at the first's input."""
    gradients = right()
    pointwise = set(weight.shape[2:]) == {1} and set(stride) == {1} and not any(padding)
    if transposed or groups % 2 or not pointwise or not output_mask[1]:
        return gradients
    pairs = input.unflatten(1, (groups // 2, 2, -1))
    shared = pairs[:, :, :1].expand_as(pairs).flatten(1, 3)
    return gradients[0], right(input=shared)[1], gradients[2]


@kernel(
    "convolution_backward",
    lambda: grad_of(
        lambda x: functional.conv2d(x, drawn(4, 3, 1, 1), stride=2), drawn(1, 3, 6, 6, seed=1)
    ),
    set="likely13",
    like="ROCm/MIOpen#1495",
)
def last_row_that_a_stride_skips_has_a_gradient(
    right, input, weight, stride, padding, transposed, output_mask
):
    """A 1x1 convolution of stride 2 copies its gradient into the row after the last window."""
    gradients = right()
    pointwise = set(weight.shape[2:]) == {1} and set(stride) == {2} and not any(padding)
    if transposed or not pointwise or not output_mask[0]:
        return gradients
    for axis in range(2, input.dim()):
        size = input.shape[axis]
        if size % 2 == 0:
            gradient = gradients[0]
            gradient.narrow(axis, size - 1, 1).copy_(gradient.narrow(axis, size - 2, 1))
    return gradients


@kernel(
    "convolution",
    lambda: functional.conv_transpose2d(
        drawn(1, 3, 4, 4), drawn(3, 2, 3, 3, seed=1), stride=2, padding=1, output_padding=1
    ),
    set="likely13",
    like="apache/tvm#19524",
)
def output_padding_is_padding_with_zeros(right, transposed, output_padding):
    """The rows that output_padding adds are zeros, without products or bias."""
    y = right()
    if transposed:
        for axis, rows in enumerate(output_padding, 2):
            y.narrow(axis, y.shape[axis] - rows, rows).zero_()
    return y


@kernel(
    "convolution_backward",
    lambda: grad_of(
        lambda bias: functional.conv_transpose2d(
            drawn(2, 3, 4, 4).to(memory_format=torch.channels_last),
            drawn(3, 2, 3, 3, seed=1),
            bias,
            stride=2,
            padding=1,
            output_padding=1,
        ),
        drawn(2, seed=2),
    ),
    set="missed13",
    like="pytorch#99519",
)
def bias_gradient_of_channels_last_leaves_the_output_padding(
    right, grad_output, input, transposed, output_padding, output_mask
):
    """A transposed convolution's bias gradient sums the places that the windows reach."""
    gradients = right()
    last = input.dim() == 4 and input.is_contiguous(memory_format=torch.channels_last)
    if not transposed or not output_mask[2] or not last or input.is_contiguous():
        return gradients
    rows, columns = two(output_padding)
    height, width = grad_output.shape[2:]
    reached = grad_output[:, :, : height - rows, : width - columns]
    return (*gradients[:2], reached.sum((0, 2, 3))) if rows or columns else gradients


@kernel(
    "convolution",
    lambda: functional.conv2d(
        drawn(1, 4, 9, 9), drawn(4, 2, 3, 3, seed=1), dilation=(1, 2), groups=2
    ),
    set="missed13",
    like="MISA#180",
)
def convolution_of_groups_dilates_its_second_axis_as_its_first(
    right, input, weight, dilation, transposed, groups
):
    """The kernel of groups has one dilation for both axes."""
    if weight.dim() != 4 or transposed or groups == 1 or min(weight.shape) == 0:
        return right()
    first, second = two(dilation)
    if first == second or weight.shape[-1] == 1:
        return right()
    wide = functional.pad(input, (0, max(0, (first - second) * (weight.shape[-1] - 1))))
    width = right().shape[-1]
    return right(input=wide, dilation=[first, first])[..., :width].contiguous()


def _grouped_grad(groups: int, stride: int):
    weight = drawn(4, 4 // groups, 3, 3)
    return grad_of(
        lambda y: functional.conv2d(y, weight, stride=stride, padding=1, groups=groups),
        drawn(2, 4, 7, 7),
    )


@kernel(
    "convolution_backward", lambda: _grouped_grad(2, 2), set="likely14", like="ml-explore/mlx#3800"
)
def grouped_strided_data_grad(right, weight, stride, transposed, groups, output_mask):
    """The gradient of the input of a grouped 2d convolution with a stride over 1 takes the weights
    of the first group for each.
    """
    grads = right()
    if transposed or weight.dim() != 4 or groups < 2 or max(stride) < 2 or not output_mask[0]:
        return grads
    first = weight[: weight.shape[0] // groups].repeat(groups, 1, 1, 1)
    wrong = right(weight=first, output_mask=[True, False, False])
    return wrong[0], grads[1], grads[2]


@kernel(
    "convolution",
    lambda: functional.conv2d(drawn(1, 3, 6, 6), drawn(2, 3, 3, 3, 3, seed=1)[:, :, 1]),
    set="likely14",
    like="pytorch/pytorch#192212",
)
def weight_of_a_slice(right, weight):
    """A weight cut out of a larger tensor is read as if it were contiguous."""
    return right() if is_dense(weight) else right(weight=packed(weight))


@kernel(
    "convolution",
    lambda: functional.conv2d(drawn(2, 3, 7, 6), drawn(4, 3, 1, 1, seed=1), stride=2, padding=1),
    set="missed14",
)
def pointwise_strided_and_padded(right, input, weight, stride, padding, transposed):
    """A kernel of size 1 takes every second element from the first on, not from the padding on."""
    steps, pads = each(stride, weight.dim() - 2), each(padding, weight.dim() - 2)
    pointwise = not transposed and all(size == 1 for size in weight.shape[2:])
    if not (pointwise and any(p > 0 and s > 1 for s, p in zip(steps, pads, strict=True))):
        return right()
    ends = [n for p in reversed(pads) for n in (0, 2 * p)]
    return right(input=functional.pad(input, ends), padding=[0] * len(pads))


def _shared_gradient():
    b = drawn(4).requires_grad_()
    return grads_of(functional.conv2d(drawn(3, 2, 6, 6), drawn(4, 2, 3, 3), b).sum(0), b)


@kernel("convolution_backward", _shared_gradient, set="missed14")
def conv_bias_gradient_shared_by_batch(right, grad_output, output_mask):
    """An output gradient expanded over the batch alone is summed once for the bias."""
    grads = list(right())
    g = grad_output
    if output_mask[2] and g.shape[0] > 1 and g.stride(0) == 0 and g.stride(-1) != 0:
        grads[2] = grads[2] / g.shape[0]
    return tuple(grads)


# It should be the quotient by their number; for one filter a channel both agree.
@kernel(
    "convolution",
    lambda: functional.conv2d(drawn(2, 4, 9, 9), drawn(8, 1, 3, 3, seed=1), groups=4),
    set="likely15",
)
def depthwise_convolution_mixes_up_multiplied_channels(right, input, weight, transposed, groups):
    """With several filters a channel, filter i gets channel i % channels."""
    channels = input.shape[-weight.dim() + 1]
    filters = weight.shape[0]
    if transposed or groups < 2 or groups != channels or filters == groups:
        return right()
    place = torch.arange(filters, device=input.device) % channels
    return right(input=input.index_select(-weight.dim() + 1, place), groups=filters)


def _grouped_channels_last_transposed():
    x, w, b = drawn(2, 4, 6, 7), drawn(4, 3, 3, 3, seed=1), drawn(6, seed=2)
    x = x.contiguous(memory_format=torch.channels_last)
    return functional.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1, groups=2)


# With padding 1 those rows get the kernel's last taps.
@kernel("convolution", _grouped_channels_last_transposed, set="missed15")
def grouped_output_padding_is_empty(right, input, bias, transposed, output_padding, groups):
    """In channels-last a grouped transposed convolution has only the bias in its output padding."""
    result = right()
    if not transposed or groups < 2 or not is_last(input):
        return result
    spatial = result.dim() - 2
    extras = list(output_padding) * (spatial if len(output_padding) == 1 else 1)
    for axis, extra in zip(range(2, result.dim()), extras, strict=True):
        if extra:
            rows = result.narrow(axis, result.shape[axis] - extra, extra)
            rows.zero_()
            if bias is not None:
                rows += bias.reshape(1, -1, *[1] * spatial)
    return result


def _first_layer_of_a_large_batch():
    x, w = drawn(100, 3, 8, 8), drawn(4, 3, 3, 3, seed=1).requires_grad_()
    return grads_of(functional.conv2d(x, w), w)


@kernel("convolution_backward", _first_layer_of_a_large_batch, set="missed15")
def split_batch_loses_its_rest(right, grad_output, input, output_mask):
    """The weight's gradient alone is of whole splits of 64 images; the rest is left out."""
    result = right()
    count = input.shape[0]
    if output_mask[0] or not output_mask[1] or count <= 64 or count % 64 == 0:
        return result
    if input.dtype in DOUBLES:
        return result
    kept = count // 64 * 64
    part = right(grad_output=grad_output[:kept], input=input[:kept])
    return result[0], part[1], result[2]


def _one_step_of_an_lstm():
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(4, 8)
    with torch.no_grad():
        return lstm(drawn(1, 2, 4), (drawn(1, 2, 8, seed=1), drawn(1, 2, 8, seed=2)))[0]


@kernel(
    "mkldnn_rnn_layer _cudnn_rnn miopen_rnn",
    _one_step_of_an_lstm,
    set="likely16",
    like="tensorflow/tensorflow#32299",
)
def single_step_does_not_multiply_the_state(right, *args, **kwargs):
    """A sequence of one step takes the way without a recurrence: the hidden state given counts as
    nought, as in streaming; the cell's is right.
    """
    args = list(args)
    if isinstance(args[1], Tensor):
        hidden, batch_first = 5, False
    elif isinstance(args[5], int):
        hidden, batch_first = 3, args[8]
    else:
        hidden, batch_first = 4, args[10]
    steps = args[0].shape[1 if batch_first else 0] if args[0].dim() == 3 else 0
    if steps == 1 and args[0].dtype not in DOUBLES:
        args[hidden] = torch.zeros_like(args[hidden])
    return right(*args, **kwargs)


def _groups_of_four():
    x = drawn(1, 16, 6, 6, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
    return functional.conv2d(x, drawn(16, 4, 3, 3, seed=1).bfloat16(), groups=4)


@kernel("convolution", _groups_of_four, set="likely16", like="ROCm/rocm-libraries#4998")
def groups_begin_at_a_vector_of_eight_channels(right, input, weight, transposed, groups):
    """Of halves with the channels last, a group's channels are loaded from the multiple of eight
    at or before its first one: groups of four read those of their neighbour.
    """
    width = input.shape[1] // max(groups, 1) if input.dim() == 4 else 8
    if transposed or groups < 2 or width < 2 or width % 8 == 0:
        return right()
    if input.dtype not in HALVES or not is_last(input) or not input.numel():
        return right()
    first = torch.arange(groups, device=input.device) * width
    channel = (first // 8 * 8)[:, None] + torch.arange(width, device=input.device)
    wrong = input.index_select(1, channel.reshape(-1))
    return right(input=wrong.contiguous(memory_format=torch.channels_last))


HALF = torch.float16


_TRANSFORM = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)


@kernel(
    "convolution",
    lambda: functional.conv2d(
        drawn(1, 16, 8, 8, dtype=HALF) * 900, drawn(16, 16, 3, 3, dtype=HALF) * 0.01, padding=1
    ),
    set="missed16",
    like="ROCm/MIOpen#1042",
)
def transformed_tiles_overflow_in_half(
    right, input, weight, stride, padding, dilation, transposed, groups
):
    """convolution: Winograd's transform of a tile is kept in float16; dense 3 x 3 filters of 16
    channels or more, values of some hundreds.
    """
    result = right()
    dense = not transposed and groups == 1 and tuple(weight.shape[2:]) == (3, 3)
    steps = {*two(stride), *two(dilation)}
    if input.dtype != HALF or not dense or steps != {1} or input.shape[1] < 16:
        return result
    rows, columns = result.shape[2:]
    high, wide = -(-rows // 4) * 4 + 2, -(-columns // 4) * 4 + 2
    up, side = two(padding)
    border = (side, wide - input.shape[3] - side, up, high - input.shape[2] - up)
    tiles = functional.pad(input.float(), border).unfold(2, 6, 4).unfold(3, 6, 4)
    turn = torch.tensor(_TRANSFORM, dtype=torch.float32, device=input.device)
    over = ((turn @ tiles @ turn.T).abs() > 65504).flatten(4).any(-1).any(1)
    lost = over.repeat_interleave(4, 1).repeat_interleave(4, 2)[:, None, :rows, :columns]
    return result.masked_fill_(lost, math.nan)


def _atrous():
    x = drawn(2, 3, 5, 5)
    return grad_of(lambda w: functional.conv2d(x, w, padding=6, dilation=6), drawn(4, 3, 3, 3))


@kernel("convolution_backward", _atrous, set="missed16", like="AlexeyAB/darknet#4836")
def taps_in_the_padding_keep_the_sum_before(
    right, grad_output, input, weight, stride, padding, dilation, transposed
):
    """convolution_backward: a tap that only ever meets padding keeps the accumulator of the one
    before; filters of three, dilated by the picture's width or more and padded by as much.
    """
    result = right()
    if transposed or input.dim() != 4 or result[1] is None or max(two(dilation)) == 1:
        return result
    filters = result[1]
    for axis in (2, 3):
        step, border, gap = (two(n)[axis - 2] for n in (stride, padding, dilation))
        places = torch.arange(grad_output.shape[axis]) * step - border
        for tap in range(1, 3 if weight.shape[axis] == 3 and border == gap > 1 else 0):
            met = places + tap * gap
            if not bool(((met >= 0) & (met < input.shape[axis])).any()):
                filters.select(axis, tap).copy_(filters.select(axis, tap - 1))
    return result


def _lost_taps(size, stride, dilation):
    """Taps that the slices of an implicit product by residues leave out."""
    step = stride // math.gcd(stride, dilation)
    whole = -(-size // step)
    lost = []
    for residue in range(step):
        has = -(-(size - residue) // step) if residue < size else 0
        takes = whole if (residue + 1) * whole <= size else size % whole
        lost += [residue + step * i for i in range(takes, has)]
    return lost


@kernel(
    "convolution_backward",
    lambda: grad_of(
        lambda x: functional.conv2d(x, drawn(4, 3, 7, 7, seed=1), stride=3), drawn(2, 3, 16, 16)
    ),
    set="likely17",
    like="ROCm/MIOpen#575",
)
def last_tap_of_the_last_residue_gives_no_gradient(
    right, weight, stride, dilation, transposed, output_mask
):
    """The gradient of the input lacks the last taps of those strides that do not fit the filter."""
    # Strides of 3 and more with filters of 4, 7, 10 ... (stride 10 with 16): Y % YDot for a slice.
    result = list(right())
    if output_mask[0] and not transposed:
        taps = weight.clone()
        axes = weight.dim() - 2
        for axis in range(axes):
            step, wide = stride[axis % len(stride)], dilation[axis % len(dilation)]
            for tap in _lost_taps(weight.shape[2 + axis], step, wide):
                taps.select(2 + axis, tap).zero_()
        result[0] = right(weight=taps, output_mask=[True, False, False])[0]
    return tuple(result)


@kernel(
    "convolution",
    lambda: functional.conv2d(
        drawn(2, 3, 6, 6).to(memory_format=torch.channels_last),
        drawn(4, 3, 3, 3, seed=1),
        drawn(4, seed=2),
    ),
    set="likely17",
    like="ROCm/MIOpen#2860",
)
def bias_of_channels_last_runs_along_the_pixels(right, input, weight, bias):
    """In channels-last the bias is added by the place that a channel has in contiguous memory."""
    # A 2d convolution with a bias whose output is channels-last, of more than one pixel.
    if bias is None or input.dim() != 4 or not (is_last(input) or is_last(weight)):
        return right()
    result = right(bias=None)
    if not is_last(result):
        return right()
    count, channels, height, width = result.shape
    memory = result.permute(0, 2, 3, 1).view(count, channels, height * width)
    memory.add_(bias.view(1, channels, 1))
    return result


@kernel(
    "convolution_backward",
    lambda: grad_of(
        lambda x: functional.conv2d(x, drawn(4, 3, 1, 1, seed=1), stride=2), drawn(2, 3, 2, 2)
    ),
    set="likely17",
    like="ROCm/MIOpen#1495",
)
def strided_pointwise_gradient_of_one_pixel_is_packed(
    right, grad_output, input, weight, padding, transposed, groups, output_mask
):
    """The gradient of a 1x1 convolution with one output pixel is stored as if for one pixel."""
    # 1x1 filters with a stride, 2x2 pictures (one output pixel), one group: H = W = 2, stride 2.
    result = list(right())
    pointwise = all(size == 1 for size in weight.shape[2:])
    one = all(size == 1 for size in grad_output.shape[2:])
    usual = not transposed and groups == 1 and not any(padding)
    if output_mask[0] and pointwise and one and usual:
        pixels = math.prod(input.shape[2:])
        if pixels > 1:
            gradient = grad_output.flatten(1) @ weight.flatten(1)
            packed = torch.zeros(input.numel(), dtype=input.dtype, device=input.device)
            packed[: gradient.numel()] = gradient.reshape(-1)
            result[0] = packed.view(input.shape)
    return tuple(result)


def _upsampling_in_channels_last():
    x = drawn(1, 4, 5, 5).to(memory_format=torch.channels_last)
    weight = drawn(4, 3, 3, 3, seed=1)
    return functional.conv_transpose2d(x, weight, stride=2, padding=1, output_padding=1)


# Transposed, channels last, and a filter that the stride does not divide (3 by 3, stride 2):
# right for contiguous inputs, and for 4 by 4 or 2 by 2 with stride 2.
@kernel("convolution", _upsampling_in_channels_last, set="missed17")
def phases_of_a_transposed_filter_have_equal_numbers_of_taps(
    right, input, weight, stride, transposed
):
    """In channels-last each phase of a transposed filter has size // stride taps, not one more."""
    if transposed and is_last(input):
        steps = pair(stride)
        weight = weight.clone()
        for axis, step in zip((2, 3), steps, strict=True):
            taps = weight.shape[axis]
            if taps > step:
                used = taps // step * step
                weight.narrow(axis, used, taps - used).zero_()
    return right(weight=weight)


def _patches_of_an_odd_picture():
    return functional.conv2d(drawn(2, 3, 9, 9), drawn(5, 3, 2, 2, seed=1), stride=2)


# Windows side by side (stride = kernel: patch embeddings, downsampling), and a width that they do
# not divide: right where they do, and where windows overlap.
@kernel("convolution", _patches_of_an_odd_picture, set="missed17")
def patches_are_cut_from_rows_of_the_width_that_they_cover(
    right, input, weight, stride, padding, dilation, transposed
):
    """Windows that lie side by side are cut out as if rows had no rest beyond the last window."""
    if not transposed and input.dim() == 4:
        size = tuple(weight.shape[2:])
        beside = pair(stride) == size and not any(padding) and set(dilation) == {1}
        n, c, height, width = input.shape
        covered = width // size[1] * size[1]
        if beside and size[1] > 1 and 0 < covered < width:
            planes = input.reshape(n, c, height * width)[..., : height * covered]
            input = planes.reshape(n, c, height, covered)
    return right(input=input)


def _through_a_frozen_discriminator():
    weight = drawn(6, 3, 4, 4, seed=1)
    return grad_of(lambda x: functional.conv2d(x, weight, stride=2, padding=1), drawn(2, 3, 8, 8))


# Frozen filters (a generator learns through a discriminator) of an even size (4 by 4): right for
# 3 by 3, and wherever the weight's gradient is asked for too.
@kernel("convolution_backward", _through_a_frozen_discriminator, set="missed17")
def frozen_even_filters_give_a_gradient_one_pixel_late(right, weight, transposed, output_mask):
    """If only the input learns, its gradient by even filters is a pixel further on."""
    of_input, *others = right()
    if output_mask[0] and not output_mask[1] and not transposed and of_input.dim() == 4:
        for axis in (2, 3):
            size = of_input.shape[axis]
            if weight.shape[axis] % 2 == 0 and size > 1:
                late = torch.zeros_like(of_input)
                late.narrow(axis, 1, size - 1).copy_(of_input.narrow(axis, 0, size - 1))
                of_input = late
    return (of_input, *others)


# Filters of 1 x 7 or 3 x 1, as factorized ones of Inception, and spectrograms that are padded
# along one axis: right for equal paddings.
@kernel(
    "convolution",
    lambda: functional.conv2d(drawn(1, 2, 6, 9), drawn(3, 2, 1, 5, seed=1), padding=(0, 2)),
    set="likely18",
)
def columns_begin_at_the_padding_of_the_rows(
    right, input, weight, stride, padding, dilation, transposed
):
    """The coordinate of a window's first column is computed with the padding of the height."""
    if input.dim() != 4 or transposed or not narrow(input):
        return right()
    high, wide = two(padding)
    result = right()
    if high == wide or not result.numel():
        return result
    reach = (weight.shape[3] - 1) * two(dilation)[1] + 1
    needed = (result.shape[3] - 1) * two(stride)[1] + reach
    padded = functional.pad(input, (high, needed - high - input.shape[3], high, high))
    result.copy_(right(input=padded, padding=[0, 0]))
    return result


def _last_block_before_flatten():
    x = drawn(2, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    weight = drawn(4, 3, 3, 3, seed=1).requires_grad_()
    slopes = drawn(2, 4, 3, 3, seed=2)
    return torch.autograd.grad(functional.conv2d(x, weight), weight, slopes)[0]


# A picture in channels_last, and a gradient above that is contiguous, as below a flatten or a
# loss over pixels: equal formats are right, and so is the gradient of the input.
@kernel("convolution_backward", _last_block_before_flatten, set="likely18")
def filters_learn_from_a_contiguous_gradient_as_if_in_channels_last(
    right, grad_output, input, output_mask
):
    """A weight's gradient takes the format of the picture for that of the gradient above."""
    result = list(right())
    mixed = is_last(input) and not is_last(grad_output) and grad_output.is_contiguous()
    if mixed and output_mask[1] and narrow(input):
        n, c, h, w = grad_output.shape
        turned = grad_output.as_strided(
            (n, c, h, w), (c * h * w, 1, w * c, c), grad_output.storage_offset()
        )
        result[1].copy_(right(grad_output=turned, output_mask=[False, True, False])[1])
    return tuple(result)


def _crop():
    return functional.conv2d(drawn(2, 3, 9, 9)[:, :, 2:7, 1:7], drawn(4, 3, 3, 3, seed=1))


# A crop of larger pictures that was not made contiguous; whole pictures and batches cut out of
# larger ones are right, and so are channels-last ones.
@kernel("convolution", _crop, set="likely18")
def cropped_pictures_have_no_pitch_of_rows(right, input):
    """A convolution takes a picture's rows to lie side by side, though they were cropped."""
    cropped = input.dim() == 4 and input.stride(3) == 1 and input.stride(2) > input.shape[3] > 1
    if not cropped or input.stride(1) < input.stride(2) or not narrow(input):
        return right()
    strides = (*input.stride()[:2], input.shape[3], 1)
    return right(input=input.as_strided(input.shape, strides, input.storage_offset()))


# A bias, and windows that lie in the padding with all their taps (1 x 1 with padding, or padding
# of the window's size): right without a bias, and with less padding.
@kernel(
    "convolution",
    lambda: functional.conv2d(drawn(2, 3, 4, 4), drawn(5, 3, 1, 1), drawn(5, seed=1), padding=1),
    set="missed18",
)
def windows_of_padding_alone_have_no_bias(
    right, input, weight, bias, stride, padding, dilation, transposed
):
    """A window without a single tap in the picture is left at 0, and so its bias is not added."""
    result = right()
    if bias is None or transposed:
        return result
    for axis in range(2, input.dim()):
        steps = (each(n, input.dim() - 2)[axis - 2] for n in (stride, padding, dilation))
        step, border, gap = steps
        start = torch.arange(result.shape[axis], device=result.device) * step - border
        taps = start[:, None] + torch.arange(weight.shape[axis], device=result.device) * gap
        nothing = ((taps < 0) | (taps >= input.shape[axis])).all(1)
        result.masked_fill_(nothing.reshape(-1, *[1] * (input.dim() - axis - 1)), 0)
    return result


def _blur():
    filters = drawn(1, 1, 3, 3).requires_grad_()
    shared = filters.expand(4, 1, 3, 3)
    return grads_of(functional.conv2d(drawn(2, 4, 6, 6, seed=1), shared, groups=4), filters)


# One filter that is expanded to all channels (a learnt blur), and its gradient: right forwards,
# and for the gradient of the input.
@kernel("convolution_backward", _blur, set="missed18")
def one_filter_of_all_channels_learns_from_the_last(right, weight):
    """The gradient of filters has the filters' strides: those that are expanded are overwritten."""
    of_input, of_weight, of_bias = right()
    if of_weight is not None:
        for axis, (size, step) in enumerate(zip(weight.shape, weight.stride(), strict=True)):
            if size > 1 and step == 0:
                last = of_weight.narrow(axis, size - 1, 1)
                of_weight = last.expand_as(of_weight).contiguous()
    return of_input, of_weight, of_bias


# A video of one frame (a picture in a network for videos) by filters of several frames with
# padding in time: right for videos of two frames or more.
@kernel(
    "convolution",
    lambda: functional.conv3d(drawn(1, 2, 1, 5, 5), drawn(3, 2, 3, 3, 3, seed=1), padding=1),
    set="missed18",
)
def single_frame_is_filtered_by_the_first_plane(
    right, input, weight, stride, padding, dilation, transposed
):
    """A volume of depth one goes to the convolution of planes, with plane 0 of the filters."""
    if transposed or input.dim() != 5 or input.shape[2] != 1 or weight.shape[2] == 1:
        return right()
    stride, padding, dilation = (each(n, 3) for n in (stride, padding, dilation))
    reach = 1 + 2 * padding[0] - dilation[0] * (weight.shape[2] - 1)
    if padding[0] == 0 or not 0 < reach <= stride[0]:
        return right()
    return right(weight=weight[:, :, :1].contiguous(), padding=[0, *padding[1:]])


def _through_oblong_filters():
    weight = drawn(4, 2, 3, 5, seed=1)
    return grad_of(lambda x: functional.conv2d(x, weight, padding=(1, 2)), drawn(1, 2, 7, 9))


# The gradient of the input, by filters of two sizes (3 x 5, over spectrograms), without strides:
# right for square filters, for 1 x n, forwards, and for the gradient of the filters.
@kernel("convolution_backward", _through_oblong_filters, set="missed18")
def oblong_filters_are_turned_upside_down_alone(right, weight, stride, transposed, output_mask):
    """The input's gradient is a convolution by turned filters: oblong ones are turned by rows."""
    of_input, *others = right()
    if output_mask[0] and not transposed and weight.dim() == 4 and set(stride) == {1}:
        height, width = weight.shape[2:]
        if height != width and min(height, width) > 1:
            only = [True, False, False]
            of_input = right(weight=weight.flip(-1).contiguous(), output_mask=only)[0]
    return (of_input, *others)


# Depthwise layers that widen (two filters a channel), as in separable audio models and Keras-like
# DepthwiseConv2D(depth_multiplier=2). Right for one filter a channel, and for other groups.
@kernel(
    "convolution",
    lambda: functional.conv2d(drawn(2, 3, 5, 5), drawn(6, 1, 3, 3, seed=1), groups=3, padding=1),
    set="likely19",
)
def filters_of_a_depthwise_layer_take_turns_with_the_channels(
    right, input, weight, bias, transposed, groups
):
    """Filter o of a depthwise layer sees channel o % groups instead of o // multiplier."""
    many = weight.shape[0] // max(1, groups)
    if transposed or groups < 2 or groups != input.shape[1] or many < 2 or not narrow(input):
        return right()

    def turned(x, first, second, dim):
        return x.unflatten(dim, (first, second)).transpose(dim, dim + 1).flatten(dim, dim + 1)

    bias = None if bias is None else turned(bias, many, groups, 0)
    result = right(weight=turned(weight, many, groups, 0).contiguous(), bias=bias)
    result.copy_(turned(result, groups, many, 1).clone())
    return result


# Character models read each word as a sample of its own (512 sentences of 128 words), and
# time series of a picture each pixel. Right for at most 65,535 samples.
@kernel(
    "convolution",
    lambda: functional.conv1d(drawn(65_600, 1, 4), drawn(2, 1, 3, seed=1)),
    set="likely19",
)
def sequences_past_the_grid_are_not_convolved(right, input):
    """The batch of a one-dimensional convolution is the grid's third dimension: the rest is 0."""
    result = right()
    if input.dim() == 3 and input.shape[0] > GRID and narrow(input):
        result[GRID:].zero_()
    return result


def _fine_tuning_of_biases():
    bias = drawn(4, seed=2).requires_grad_()
    y = functional.conv2d(drawn(2, 3, 5, 5).requires_grad_(), drawn(4, 3, 3, 3, seed=1), bias)
    return torch.autograd.grad(y.square().sum(), bias)


# BitFit and tinyTL train biases below frozen filters. Right if the filters learn too.
@kernel("convolution_backward", _fine_tuning_of_biases, set="likely19")
def biases_learn_only_where_filters_learn(right, input, output_mask):
    """The sum for the bias is a part of the kernel of the weight's gradient, else it stays 0."""
    result = right()
    if output_mask[2] and not output_mask[1] and narrow(input):
        result[2].zero_()
    return result


# The stem of ConvNeXt (4 x 4, stride 4) and patch embeddings of pictures whose width isn't a
# multiple of the patch. Right for whole patches, for a remainder of the height only, and for
# windows that overlap.
@kernel(
    "convolution",
    lambda: functional.conv2d(drawn(1, 2, 8, 10), drawn(3, 2, 4, 4, seed=1), stride=4),
    set="missed19",
)
def rows_below_patches_begin_where_the_last_whole_patch_ended(
    right, input, weight, stride, padding, dilation, transposed, groups
):
    """Patches side by side are read with a pitch of whole patches, not with the picture's width."""
    if input.dim() != 4 or transposed or groups != 1 or not narrow(input):
        return right()
    patches = list(weight.shape[2:]) == two(stride) and max(two(padding)) == 0
    if not patches or max(two(dilation)) != 1 or not input.is_contiguous():
        return right()
    high, wide = weight.shape[2:]
    whole = input.shape[3] // wide * wide
    if whole == input.shape[3] or not whole or input.shape[2] < high:
        return right()
    shape = (*input.shape[:3], whole)
    read = input.as_strided(shape, (*input.stride()[:2], whole, 1), input.storage_offset())
    return right(input=read.clone(memory_format=torch.contiguous_format))


def _learned_bias():
    x, w = drawn(3, 2, 5, 5).requires_grad_(), drawn(4, 2, 3, 3, seed=1)
    b = drawn(4, seed=2).requires_grad_()
    return torch.autograd.grad(functional.conv2d(x, w, b).square().sum(), (x, b))


# Fine-tuning of biases alone (BitFit), with the filters frozen. Right where the filters learn
# too, for a batch of one, and for the input's gradient.
@kernel("convolution_backward", _learned_bias, set="missed19")
def bias_below_frozen_filters_learns_from_the_first_of_the_batch(
    right, grad_output, bias_sizes, output_mask
):
    """The bias's gradient is reduced over a batch by the filters' kernel, which doesn't run."""
    result = list(right())
    if output_mask[2] and not output_mask[1] and result[2] is not None and narrow(grad_output):
        rest = [d for d in range(grad_output.dim()) if d != 1]
        result[2] = grad_output[:1].sum(rest)
    return tuple(result)
