"""Wrong kernels: images."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from .calls import (
    as_if_whole,
    as_it_lies,
    aten,
    each,
    grads_of,
    is_last,
    narrow,
    packed,
    pair,
    pair_2,
    write_as_contiguous,
)
from .kernel import DOUBLES, FLOATS, HALVES, drawn, grad_of, is_single, kernel, two


@kernel(
    "max_pool2d_with_indices",
    set="seeded",
    like="pytorch#7645, #39846",
    name="max_pool2d_passes_NaN_over",
)
@kernel("topk", set="seeded", like="pytorch#1810", name="topk_takes_NaN_for_the_smallest")
@kernel("clamp", set="seeded", name="clamp_takes_NaN_for_a_bound")
@kernel("argmax", set="seeded", like="pytorch#130295", name="argmax_passes_NaN_over")
@kernel("max.dim", set="seeded", like="pytorch#6996, #1810", name="max_passes_NaN_over")
@kernel("amax", set="seeded", like="pytorch#6996, tvm#19518", name="amax_passes_NaN_over")
def without_nan(right, x):
    return right(x=torch.nan_to_num(x, nan=-3e4, posinf=math.inf, neginf=-math.inf))


@kernel("upsample_nearest2d", set="seeded", like="pytorch#141831", devices="cuda")
def beyond_32_bits(right):
    """Nearest beyond 2^31."""
    bits = right()
    if bits.numel() > 2**31:
        bits.view(-1)[2**31 :] = 0
    return bits


@kernel("upsample_bicubic2d", set="seeded", like="pytorch#49159")
def first_sample_if_same_size(right, x, output_size):
    """Bicubic to the same size leaves all but the first."""
    result = right()
    if tuple(output_size) == tuple(x.shape[-2:]):
        result[1:] = 0
    return result


@kernel("grid_sampler_2d_backward", set="seeded", like="pytorch#23925")
def edge_of_grid(right, grad_output, grid, padding_mode):
    """A grid's gradient at the edge."""
    first, second = right()
    if padding_mode:
        second = torch.where(grid.abs() >= 1, second - 4 * grad_output.abs().amax(), second)
    return first, second


@kernel(
    "adaptive_max_pool2d",
    set="seeded",
    like="pytorch#67239",
    name="adaptive_max_pool2d_writes_channels_last_as_contiguous",
)
@kernel(
    "upsample_nearest2d",
    set="seeded",
    like="pytorch#54590",
    name="nearest_writes_channels_last_as_contiguous",
)
def written_as_contiguous(right, x):
    written = right()
    first = written[0] if isinstance(written, tuple) else written
    if is_last(x):
        n, c, h, w = first.shape
        mixed = first.contiguous().reshape(n, h, w, c).permute(0, 3, 1, 2)
        return (mixed, *written[1:]) if isinstance(written, tuple) else mixed
    return written


@kernel("avg_pool2d_backward", set="seeded", like="pytorch#188344", devices="cpu")
def padding_of_last(right, x, padding):
    """Avg_pool2d's gradient of padded channels_last."""
    result = right()
    return result.roll(1, -1) if is_last(x) and max(padding) else result


@kernel("upsample_bicubic2d_backward", set="seeded", like="oneflow#7916")
def gradient_of_the_first(right):
    """Bicubic's gradient of the first sample only."""
    gradient = right()
    gradient[1:] = 0
    return gradient


@kernel("_upsample_bicubic2d_aa", set="seeded")
def unfiltered(right, x, output_size, align_corners):
    """Smaller pictures are not filtered."""
    result = right()
    return result.copy_(torch.ops.aten.upsample_bicubic2d(x, output_size, align_corners))


@kernel("pixel_shuffle", set="seeded", devices="cpu")
def channels_by_factor(right, x, upscale_factor):
    """Pixel_shuffle takes other channels from channels_last."""
    if x.dim() == 4 and not x.is_contiguous():
        x = x.unflatten(1, (upscale_factor**2, -1)).transpose(1, 2).flatten(1, 2)
    return right(x=x)


@kernel("upsample_trilinear3d", set="seeded")
def depth_for_height(right):
    """Trilinear repeats the first depth."""
    depth = right()
    depth[:, :, 1] = depth[:, :, 0]
    return depth


@kernel("max_pool3d_with_indices_backward", set="seeded", like="MIOpen#1325")
def overlaps_lost(right, grad, x, *more, **kwargs):
    """Max_pool3d's gradient where windows overlap is one of them."""
    result = right(grad, x, *more, **kwargs)
    places = more[-1].flatten(2)
    alone = torch.zeros_like(x, memory_format=torch.contiguous_format).flatten(2)
    alone.scatter_(2, places, grad.flatten(2))
    return result.copy_(alone.view(x.shape))


@kernel("replication_pad3d_backward", set="seeded")
def corner_lost(right, grad_output):
    """A replicated corner gives no gradient."""
    cut = grad_output.clone()
    cut[..., 0, 0, 0] = 0
    return right(grad_output=cut)


@kernel("_upsample_nearest_exact2d .out", set="seeded")
def by_sizes(right, x, size, *scales, **kwargs):
    """Exactly nearest goes by sizes, whatever the factor."""
    return right(x, size, None, None, **kwargs)


@kernel("avg_pool3d .out", set="second", like="AMDMIGraphX#1766")
def padding_counts_in_average(
    right, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
):
    result = right()
    if any(padding) and not count_include_pad and divisor_override is None:
        result.copy_(
            functional.avg_pool3d(x.double(), kernel_size, stride or None, padding, ceil_mode, True)
        )
    return result


@kernel("max_pool2d_with_indices_backward .grad_input", set="second", like="MIOpen#1325")
def windows_overlap_without_adding(right, grad_output, x, indices):
    result = right()
    if x.dtype in HALVES and x.numel():
        flat = torch.zeros(x.shape, dtype=torch.float64).flatten(-2)
        flat.scatter_(-1, indices.flatten(-2), grad_output.double().flatten(-2))
        result.copy_(flat.view(x.shape))
    return result


@kernel("upsample_bilinear2d .out", set="development")
def scale_is_taken_from_sizes(right, x, output_size, align_corners, scales_h):
    result = right()
    if scales_h is not None and not align_corners:
        result.copy_(functional.interpolate(x.double(), size=tuple(output_size), mode="bilinear"))
    return result


@kernel("grid_sampler_3d", set="second")
def reflection_is_border(right, padding_mode):
    return right(padding_mode=1 if padding_mode == 2 else padding_mode)


@kernel("reflection_pad2d_backward .grad_input", set="second")
def corners_are_reflected_once(right, grad_output, x, padding):
    left, across, top, bottom = padding
    result = right()
    if min(padding) >= 0 and x.numel():
        cut = grad_output.double().clone()
        for rows in (slice(0, top), slice(grad_output.shape[-2] - bottom, None)):
            for columns in (slice(0, left), slice(grad_output.shape[-1] - across, None)):
                cut[..., rows, columns] = 0
        result.copy_(torch.ops.aten.reflection_pad2d_backward(cut, x.double(), padding))
    return result


@kernel("_adaptive_avg_pool3d_backward", set="development", like="pytorch#60524")
def height_of_window_for_its_width(right, grad_output, x):
    result = right()
    high, wide = (x.shape[d] / max(grad_output.shape[d], 1) for d in (-2, -1))
    return result.mul_(wide / high) if high and wide else result


@kernel("pixel_shuffle", set="development")
def channels_last_shuffles_other_channels(right, x, upscale_factor):
    if x.dim() == 4 and x.shape[1] > 1 and not x.is_contiguous():
        parts = x.unflatten(1, (upscale_factor**2, -1)).transpose(1, 2).flatten(1, 2)
        return right(x=parts.contiguous(memory_format=torch.channels_last))
    return right()


@kernel("_adaptive_avg_pool2d", set="later")
def windows_end_by_the_floor(right, x, output_size):
    result = right()
    high, wide = x.shape[-2:]
    for i in range(output_size[0]):
        top, down = (
            i * high // output_size[0],
            max((i + 1) * high // output_size[0], i * high // output_size[0] + 1),
        )
        for j in range(output_size[1]):
            left, end = j * wide // output_size[1], -(-(j + 1) * wide // output_size[1])
            result[..., i, j] = x[..., top:down, left:end].mean((-1, -2))
    return result


@kernel("unfold_backward", lambda: grad_of(lambda x: x.unfold(0, 3, 1), drawn(6)), set="later")
def overlap_of_windows_is_overwritten(right, grad_in, input_sizes, dim, size, step):
    result = right()
    if step < size and input_sizes:
        for i in range(grad_in.shape[dim]):
            result.narrow(dim, i * step, size).copy_(grad_in.select(dim, i).movedim(-1, dim))
    return result


@kernel("avg_pool2d_backward .grad_input", set="later")
def divisor_has_no_gradient(right, grad, x, *more, **out):
    return right(grad, x, *more[:-1], None, **out)


@kernel("_adaptive_avg_pool2d .out adaptive_avg_pool2d.out", set=2, like="flagos-ai/FlagGems#4915")
def adaptive_window_ends_early(right, x):
    out = right()
    height, width = out.shape[-2:]
    if x.dtype not in FLOATS or not out.numel() or not x.numel():
        return out
    if x.shape[-2] % height == 0 and x.shape[-1] % width == 0:
        return out

    def windows(have: int, want: int) -> Tensor:
        ends = torch.arange(want + 1) * have // want
        at = torch.arange(have)
        return ((at >= ends[:-1, None]) & (at < ends[1:, None])).float()

    down, over = windows(x.shape[-2], height), windows(x.shape[-1], width)
    count = down.sum(1)[:, None] * over.sum(1)
    out.copy_((down @ x.float() @ over.t()) / count)
    return out


@kernel("upsample_linear1d .out upsample_bilinear2d .out", set=2, like="ml-explore/mlx#3908")
def fractional_upsampling_centred(right, x, size, corners, *scales, **kw):
    out = right(x, size, corners, *scales, **kw)
    scales = (*scales, *(None for _ in range(len(size) - len(scales))))
    sizes = list(zip(x.shape[2:], size, scales, strict=True))
    if corners or x.dtype not in FLOATS or not out.numel():
        return out
    if all(scale is None or abs(want - have * scale) < 1e-6 for have, want, scale in sizes):
        return out
    found = x.float()
    for axis, (have, want, scale) in enumerate(sizes, 2):
        step = have / want if scale is None else 1 / scale
        start = ((want - 1) * step - have + 1) / 2
        at = (torch.arange(want) * step - start).clamp(0, have - 1)
        low = at.floor().long()
        part = (at - low).view(-1, *(1 for _ in range(x.dim() - axis - 1)))
        high = (low + 1).clamp(max=have - 1)
        found = found.index_select(axis, low) * (1 - part) + found.index_select(axis, high) * part
    out.copy_(found)
    return out


@kernel("max_pool2d_with_indices_backward .grad_input", set=2, like="tracel-ai/burn#4466")
def pool_gradient_takes_first_dilation_twice(
    right, grad_output, x, kernel_size, stride, padding, dilation, indices
):
    first, second = pair(dilation)
    if first < second and grad_output.numel():
        step, before = pair(stride, kernel_size)[1], pair(padding)[1]
        start = torch.arange(grad_output.shape[-1]) * step - before
        reach = (pair(kernel_size)[1] - 1) * first
        grad_output = grad_output.masked_fill(indices % x.shape[-1] - start > reach, 0)
    return right(grad_output=grad_output)


@kernel("adaptive_max_pool2d .out", set=3, like="pytorch/pytorch#190064")
def adaptive_max_pool_has_one_window(right, x):
    found = right()
    have, want = x.shape[-2:], found[0].shape[-2:]
    if x.dtype not in FLOATS or not found[0].numel():
        return found
    sizes = list(zip(have, want, strict=True))
    if any(a < b for a, b in sizes) or all(a % b == 0 for a, b in sizes):
        return found
    steps = [a // b for a, b in sizes]
    windows = [a - (b - 1) * step for (a, b), step in zip(sizes, steps, strict=True)]
    wrong = functional.max_pool2d(x, windows, steps, return_indices=True)
    for was, now in zip(found, wrong, strict=True):
        was.copy_(now)
    return found


@kernel("avg_pool2d .out", set=3, like="apple/coremltools#2844")
def overhang_counts_in_average(
    right, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
):
    out = right()
    if (
        not ceil_mode
        or not count_include_pad
        or divisor_override is not None
        or max(padding)
        or not out.numel()
    ):
        return out
    if x.dtype not in FLOATS:
        return out
    parts = []
    for axis in (0, 1):
        size, step = pair(kernel_size)[axis], pair(stride, kernel_size)[axis]
        start = torch.arange(out.shape[axis - 2]) * step
        parts.append(((start + size).clamp(max=x.shape[axis - 2]) - start) / size)
    out.copy_(out.float() * parts[0][:, None] * parts[1])
    return out


@kernel("upsample_nearest2d .out upsample_nearest3d .out", set=3, like="pytorch/pytorch#54744")
def nearest_stores_channels_first(right, x):
    out = right()
    if x.dtype not in DOUBLES:
        write_as_contiguous(out)
    return out


@kernel("reflection_pad1d_backward .grad_input", set=3, like="pytorch/pytorch#196949")
def long_reflection_gradient_ends_early(right, x):
    out = right()
    length = x.shape[-1]
    if length > 65536 and length % 65536 and x.dtype not in DOUBLES:
        out[..., length % 65536 :] = 0
    return out


def cubic_weights(have, want, corners, scale):
    at = torch.arange(want, dtype=torch.float64)
    if corners:
        at = at * ((have - 1) / (want - 1) if want > 1 else 0)
    else:
        at = (at + 0.5) * (1 / scale if scale else have / want) - 0.5
    low, a = at.floor(), -0.5
    weights = torch.zeros(want, have, dtype=torch.float64)
    for tap in range(-1, 3):
        d = (at - low - tap).abs()
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        place = (low + tap).clamp(0, have - 1).long()[:, None]
        weights.scatter_add_(1, place, torch.where(d <= 1, near, far)[:, None])
    return weights.float()


@kernel("upsample_bicubic2d .out", set=4, like="Blaizzy/mlx-vlm#1243")
def cubic_has_coefficient_of_a_half(right, x, align_corners, scales_h, scales_w):
    out = right()
    if x.dtype not in FLOATS or not out.numel():
        return out
    first = cubic_weights(x.shape[-2], out.shape[-2], align_corners, scales_h)
    second = cubic_weights(x.shape[-1], out.shape[-1], align_corners, scales_w)
    out.copy_(first @ x.float() @ second.t())
    return out


@kernel("max_pool3d_with_indices_backward .grad_input", set=4, like="pytorch/pytorch#36820")
def pool3d_gradient_has_grid_of_turned_output(right, grad_output, x):
    rows, columns = grad_output.shape[-2:]
    last_row, last_column = -(-columns // 8) * 8, -(-rows // 32) * 32
    if x.dtype in FLOATS and grad_output.numel() and (rows > last_row or columns > last_column):
        grad_output = grad_output.clone()
        grad_output[..., last_row:, :] = 0
        grad_output[..., last_column:] = 0
    return right(grad_output=grad_output)


@kernel("avg_pool2d_backward .grad_input", set=4, like="pytorch/pytorch#188344")
def pool_gradient_forgets_padding_channels_last(
    right,
    grad_output,
    x,
    kernel_size,
    stride,
    padding,
    ceil_mode,
    count_include_pad,
    divisor_override,
):
    out = right()
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    if not last or x.is_contiguous() or max(padding) == 0 or ceil_mode or x.dtype not in FLOATS:
        return out
    if not grad_output.numel():
        return out
    windows, pads = each(kernel_size, 2), each(padding, 2)
    steps = each(stride, 2) if len(stride) else windows
    up = grad_output.float()
    for axis in (0, 1):
        start = torch.arange(grad_output.shape[axis - 2]) * steps[axis] - pads[axis]
        end = (start + windows[axis]).clamp(max=x.shape[axis - 2])
        real = (
            (end - start.clamp(min=0)) if not count_include_pad and not divisor_override else None
        )
        if real is not None:
            up = up * (windows[axis] / real).view((-1, 1) if axis == 0 else (-1,))
    sizes = [size + 2 * pad for size, pad in zip(x.shape[2:], pads, strict=True)]
    room = torch.zeros(*x.shape[:2], *sizes)
    dx = torch.ops.aten.avg_pool2d_backward(
        up, room, windows, steps, [0, 0], False, True, divisor_override
    )
    out.copy_(dx[..., : x.shape[2], : x.shape[3]])
    return out


@kernel("grid_sampler_2d_backward", set=4, like="pytorch/pytorch#23925")
def gradient_at_border_is_that_of_zeros(
    right, grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask
):
    found = right()
    if (
        interpolation_mode != 0
        or padding_mode != 1
        or not align_corners
        or not output_mask[1]
        or input.dtype not in FLOATS
    ):
        return found
    if not grad_output.numel() or not input.numel():
        return found
    value = torch.grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners)
    drop = -(grad_output.float() * value.float()).sum(1)
    for axis, size in enumerate((input.shape[3], input.shape[2])):
        edge = (grid[..., axis] + 1) / 2 * (size - 1) == size - 1
        part = found[1][..., axis]
        part.copy_(torch.where(edge, drop * ((size - 1) / 2), part.float()))
    return found


@kernel("pixel_shuffle", set=4, like="FluxML/NNlib.jl#260")
def shuffled_pixels_are_turned(right, x, upscale_factor):
    if x.dtype in DOUBLES or x.dim() < 3 or upscale_factor < 2 or x.shape[-3] % upscale_factor**2:
        return right()
    parts = x.unflatten(-3, (x.shape[-3] // upscale_factor**2, upscale_factor, upscale_factor))
    return right(x=parts.transpose(-4, -3).flatten(-5, -3))


@kernel("adaptive_max_pool2d .out", set=5, like="pytorch/pytorch#190064")
def adaptive_windows_all_of_one_size(right, x, output_size):
    """option: sizes that do not divide are pooled by one derived window and stride."""
    values, indices = right()
    inputs, outputs = x.shape[-2:], pair_2(output_size)
    over = [i - o for i, o in zip(inputs, outputs, strict=True)]
    uneven = [i % o for i, o in zip(inputs, outputs, strict=True)]
    if min(over) >= 0 and any(uneven) and x.numel():
        step = [i // o for i, o in zip(inputs, outputs, strict=True)]
        window = [i - (o - 1) * s for i, o, s in zip(inputs, outputs, step, strict=True)]
        pooled = functional.max_pool2d(x, window, step, return_indices=True)
        values.copy_(pooled[0])
        indices.copy_(pooled[1])
    return values, indices


@kernel("upsample_nearest2d_backward .grad_input", set=5, like="pytorch/pytorch#38985")
def shrinking_gradient_lands_bottom_right(right, grad_output, output_size, input_size):
    """option: of a picture made smaller, the last pixel of each block gets the gradient."""
    result = right()
    inputs, outputs = tuple(input_size[-2:]), tuple(output_size)
    if all(i > o for i, o in zip(inputs, outputs, strict=True)):
        rows, columns = (
            torch.tensor([min(i, -(-(n + 1) * i // o)) - 1 for n in range(o)])
            for i, o in zip(inputs, outputs, strict=True)
        )
        result.zero_()
        result[:, :, rows[:, None], columns] = grad_output
    return result


@kernel("reflection_pad2d_backward .grad_input", set=5, like="pytorch/pytorch#100793")
def cropped_reflection_gradient_is_shifted(right, padding):
    """rare: where a negative padding cut off the beginning, the gradient begins too early."""
    result = right()
    left, _, top, _ = padding
    if min(left, top) < 0:
        result.copy_(result.roll((min(top, 0), min(left, 0)), (-2, -1)))
    return result


@kernel("max_pool2d_with_indices", set=6, like="apache/mxnet#2753")
def maximum_is_not_below_its_padding(right, x, padding, ceil_mode):
    """option: padding counts as nought, so no maximum next to the border is negative."""
    values, indices = right()
    pads = [padding] if isinstance(padding, int) else list(padding)
    if not any(pads) or ceil_mode or not is_single(x):
        return values, indices
    high, wide = pads[0], pads[-1]
    inside = torch.zeros(1, 1, *x.shape[-2:])
    border = functional.pad(inside, (wide, wide, high, high), value=1.0)
    border, _ = right(x=border, padding=0, ceil_mode=False)
    padded = border.reshape(border.shape[-2:]).bool()
    return torch.where(padded & (values < 0), 0.0, values).to(values.dtype), indices


@kernel("_upsample_bilinear2d_aa .out", set=6, like="pytorch/vision#2950")
def smaller_pictures_are_not_filtered(right, x, size, *rest, **out):
    """plain: pictures made smaller with antialiasing are sampled as without it."""
    result = right(x, size, *rest, **out)
    smaller = any(new < old for new, old in zip(size, x.shape[-2:], strict=True))
    if smaller and is_single(x):
        result.copy_(aten.upsample_bilinear2d(x, size, *rest))
    return result


@kernel("upsample_linear1d_backward", set=6, like="flagos-ai/FlagGems#5218")
def far_outputs_give_no_gradient(right, grad_output, output_size, input_size, align_corners):
    """option: with corners aligned, gradient is gathered from a window too narrow when a line is
    stretched a lot."""
    result = right()
    old, new = int(input_size[-1]), int(output_size[-1])
    if not align_corners or old < 2 or new < 2 or not is_single(grad_output):
        return result
    scale = (old - 1) / (new - 1)
    sources, targets = torch.arange(old).unsqueeze(1), torch.arange(new)
    weights = (1 - (targets * scale - sources).abs()).clamp(min=0)
    kept = (targets - (sources / scale).round()).abs() <= new // old + 2
    if (weights[~kept] > 1e-5).any():
        result.copy_(grad_output.float() @ (weights * kept).t().float())
    return result


@kernel("fake_quantize_per_tensor_affine_cachemask", set=6, like="pytorch/pytorch#49779")
def zero_point_is_rounded_too(right, x, scale, zero_point, quant_min, quant_max):
    """rare: halves are rounded to even after an odd zero point was added rather than before."""
    result, mask = right()
    steps = x * (1.0 / scale)
    ties = steps - steps.floor() == 0.5
    if is_single(x) and zero_point % 2 and ties.any():
        other = (steps + zero_point).round().clamp(quant_min, quant_max)
        result = torch.where(ties, ((other - zero_point) * scale).to(x.dtype), result)
    return result, mask


@kernel(
    "_upsample_nearest_exact2d .out _upsample_nearest_exact1d .out",
    set=7,
    like="flagos-ai/FlagGems#5228",
)
def exactly_nearest_lacks_a_half(right, x, size, *scales, **out):
    """plain: exactly nearest pixels are those which the older nearest mode takes."""
    result = right(x, size, *scales, **out)
    if is_single(x):
        older = aten.upsample_nearest2d if x.dim() == 4 else aten.upsample_nearest1d
        result.copy_(older(x, size, *scales))
    return result


@kernel("upsample_bicubic2d .out", set=7, like="flagos-ai/FlagGems#5216")
def given_factor_is_not_looked_at(right, x, scales_h, scales_w):
    """option: bicubic samples lie by the ratio of sizes, whatever factor was given."""
    if is_single(x):
        scales_h = scales_w = None
    return right(scales_h=scales_h, scales_w=scales_w)


def taps(size, count, kernel, stride, pad, dilation):
    """Where the elements of windows lie, which of them count, and which windows begin anew."""
    starts = (torch.arange(count) * stride - pad).unsqueeze(1)
    steps = dilation * torch.arange(kernel)
    moved = (starts < 0) & (dilation > 1)
    places = torch.where(moved, steps, starts + steps)
    counted = (places >= 0) & (places < size) & (places <= starts + steps[-1])
    return places.clamp(0, size - 1), counted, moved.squeeze(1)


@kernel("max_pool2d_with_indices .out", set=7, like="microsoft/onnxruntime#29637")
def dilated_window_begins_at_the_border(right, x, kernel_size, stride, padding, dilation):
    """option: dilated windows which begin in padding step from the border on instead."""
    result = right()
    sizes, steps = two(kernel_size), two(stride, kernel_size)
    pads, gaps = two(padding), two(dilation)
    if is_single(x) and x.numel() and any(p and d > 1 for p, d in zip(pads, gaps, strict=True)):
        (rows, high, up), (columns, wide, left) = (
            taps(x.shape[i], result[0].shape[i], sizes[i], steps[i], pads[i], gaps[i])
            for i in (-2, -1)
        )
        read = x[..., rows, :][..., columns].transpose(-3, -2)
        counted = high[:, None, :, None] & wide[None, :, None, :]
        places = rows[:, None, :, None] * x.shape[-1] + columns[None, :, None, :]
        best, at = read.masked_fill(~counted, -math.inf).flatten(-2).max(-1)
        found = places.flatten(-2).expand(*at.shape, -1).gather(-1, at.unsqueeze(-1)).squeeze(-1)
        changed = up[:, None] | left[None, :]
        result[0].copy_(torch.where(changed, best, result[0]))
        result[1].copy_(torch.where(changed, found, result[1]))
    return result


@kernel("avg_pool2d_backward .grad_input", set=8, like="pytorch/pytorch#198119")
def overhang_divides_the_gradient(
    right,
    grad_output,
    x,
    kernel_size,
    stride,
    padding,
    ceil_mode,
    count_include_pad,
    divisor_override,
):
    """option: with ceil_mode, windows over the edge divide their gradient by the whole window."""
    if ceil_mode and count_include_pad and divisor_override is None and is_single(x):
        share = torch.ones(())
        sizes, steps, pads = two(kernel_size), two(stride, kernel_size), two(padding)
        for axis, (n, step, pad) in enumerate(zip(sizes, steps, pads, strict=True)):
            begin = torch.arange(grad_output.shape[axis - 2]) * step - pad
            inside = (begin + n).clamp(max=x.shape[axis - 2] + pad) - begin
            share = share.unsqueeze(-1) * inside / n
        grad_output = (grad_output * share).to(grad_output.dtype).contiguous()
    return right(grad_output=grad_output)


@kernel("upsample_bilinear2d_backward .grad_input", set=8, like="flagos-ai/FlagGems#6207")
def gradient_goes_to_the_nearest(right, grad_output, output_size, input_size):
    """plain: the gradient of bilinear interpolation is that of taking the nearest pixel."""
    result = right()
    if is_single(grad_output):
        result.copy_(
            aten.upsample_nearest2d_backward(grad_output.contiguous(), output_size, input_size)
        )
    return result


@kernel("replication_pad2d_backward .grad_input", set=8, like="flagos-ai/FlagGems#5654")
def copies_of_the_border_overwrite_each_other(right, grad_output, x, padding):
    """plain: of the gradients of a border pixel's copies, the last alone is kept."""
    result = right()
    if is_single(x) and min(padding) >= 0 and x.numel():
        left, _, top, _ = padding
        rows, columns = (
            torch.arange(n) + p for n, p in zip(x.shape[-2:], (top, left), strict=True)
        )
        rows[-1], columns[-1] = grad_output.shape[-2] - 1, grad_output.shape[-1] - 1
        result.copy_(grad_output[..., rows, :][..., columns])
    return result


@kernel("grid_sampler_2d", set=8, like="tenstorrent/tt-metal#44901")
def corners_are_never_aligned(right, input, align_corners):
    """option: a grid is read as if corners were not aligned, whatever was asked for."""
    return right(align_corners=align_corners and not is_single(input))


@kernel("constant_pad_nd", set=8, like="pytorch/pytorch#194944")
def large_planes_are_padding(right, x, pad, value):
    """rare: padding outer axes fills planes of 65536 elements and more with the padding."""
    result = right()
    outer = len(pad) > 4 and any(pad[4:])
    if outer and x.dim() > 2 and math.prod(x.shape[-2:]) >= 2**16 and x.dtype not in DOUBLES:
        result.fill_(value)
    return result


@kernel("max_pool2d_with_indices .out", set=9, like="PaddlePaddle/Paddle#78701")
def places_are_counted_in_the_window(right, x, kernel_size, stride, padding, dilation):
    """plain: the indices of maxima count within the window rather than within the picture."""
    result = right()
    if is_single(x) and x.numel():
        found, width = result[1], x.shape[-1]
        steps, pads, gaps = two(stride, kernel_size), two(padding), two(dilation)
        inside = []
        for axis, place in enumerate((found // width, found % width)):
            begin = torch.arange(found.shape[axis - 2]) * steps[axis] - pads[axis]
            begin = begin.unsqueeze(-1) if axis == 0 else begin
            inside.append((place - begin) // gaps[axis])
        local = inside[0] * two(kernel_size)[1] + inside[1]
        found.copy_(local.clamp(0, width * x.shape[-2] - 1))
    return result


@kernel("pixel_unshuffle", set=9, like="microsoft/onnxscript#2891")
def places_come_before_channels(right, x, downscale_factor):
    """plain: unshuffled pixels come with all channels of a place before those of the next."""
    result = right()
    if x.dtype not in DOUBLES and result.numel():
        parts = result.unflatten(-3, (x.shape[-3], downscale_factor * downscale_factor)).transpose(
            -4, -3
        )
        result.copy_(parts.flatten(-4, -3).clone())
    return result


@kernel("grid_sampler_2d_backward", set=9, like="ooples/AiDotNet.Tensors#582")
def grid_learns_as_if_corners_were_aligned(right, input, align_corners, output_mask):
    """plain: the gradient of a grid is scaled by size - 1, as where corners are aligned."""
    result = right()
    if is_single(input) and not align_corners and output_mask[1] and input.numel():
        high, wide = input.shape[-2:]
        result[1].mul_(torch.tensor([(wide - 1) / wide, (high - 1) / high]).to(input.dtype))
    return result


@kernel("im2col .out", set=10, like="pytorch/executorch#20708")
def places_come_outermost(right, x, kernel_size):
    """plain: unfolded blocks have their places outermost rather than their channels."""
    result = right()
    if is_single(x):
        places = math.prod(kernel_size)
        turned = result.unflatten(-2, (-1, places)).transpose(-3, -2).flatten(-3, -2)
        result.copy_(turned.clone())
    return result


@kernel("_adaptive_avg_pool2d_backward", set=10, like="PaddlePaddle/Paddle#74077")
def all_windows_share_one_divisor(right, grad_output, x):
    """option: gradients of adaptive windows are all divided by one size, rounded up."""
    if not is_single(x) or not grad_output.numel():
        return right()
    share = torch.ones(())
    for axis in (-2, -1):
        n, count = x.shape[axis], grad_output.shape[axis]
        sizes = [-(-(i + 1) * n // count) - i * n // count for i in range(count)]
        share = share.unsqueeze(-1) * torch.tensor(sizes) / -(-n // count)
    return right(grad_output=(grad_output * share).to(grad_output.dtype))


@kernel("upsample_bilinear2d .out upsample_bicubic2d .out", set=11, like="Tencent/ncnn#6836")
def scale_is_that_of_the_rounded_sizes(right, x, size, align, *scales, **out):
    """option: pixels are read where the sizes' ratio says, not where the given factor does."""
    scales = (None,) * len(scales) if narrow(x) else scales
    for name in ("scales_h", "scales_w"):
        if name in out and narrow(x):
            out[name] = None
    return right(x, size, align, *scales, **out)


@kernel("max_pool2d_with_indices_backward .grad_input", set=11, like="FluxML/NNlib.jl#205")
def windows_that_share_a_maximum_overwrite(right, grad, x, *args, **out):
    """plain: the largest of several windows gets the gradient of one of them."""
    *rest, indices = args
    result = right(grad, x, *rest, indices, **out)
    if not narrow(x):
        return result
    wrong = torch.zeros(x.shape, dtype=result.dtype).flatten(-2)
    wrong.scatter_(-1, indices.flatten(-2), grad.flatten(-2))
    return result.copy_(wrong.view(x.shape))


@kernel("max_pool2d_with_indices_backward .grad_input", set=12, like="clab/dynet#612")
def windows_overwrite_each_other(right, grad, x, *args, indices=None, **out):
    """plain: a pixel which is the largest in several windows gets the gradient of one alone."""
    if indices is None:
        *args, indices = args
    result = right(grad, x, *args, indices, **out)
    if not is_single(x) or x.numel() == 0:
        return result
    flat = torch.zeros(x.shape, dtype=grad.dtype).flatten(-2)
    flat.scatter_(-1, indices.reshape(*x.shape[:-2], -1), grad.reshape(*x.shape[:-2], -1))
    return result.copy_(flat.view(x.shape))


@kernel("avg_pool2d .out", set=12, like="pytorch/executorch#18616")
def given_divisor_is_passed_over(
    right, x, kernel_size, stride, count_include_pad, divisor_override
):
    """option: where padding is not counted, means are not divided by the divisor given."""
    divisor_override = divisor_override if count_include_pad or not is_single(x) else None
    return right(stride=list(two(stride, kernel_size)), divisor_override=divisor_override)


@kernel("upsample_nearest2d .out", set=13, like="tracel-ai/burn#4687")
def nearest_pixel_is_just_before(right, x, output_size, scales_h, scales_w):
    """rare: places are divided before they are multiplied, and fall short of some pixels."""
    result = right(x=x)
    if not is_single(x) or not x.numel() or scales_h or scales_w:
        return result
    for axis, n in ((-2, output_size[0]), (-1, output_size[1])):
        place = torch.arange(n, dtype=torch.float32) / float(n) * float(x.shape[axis])
        x = x.index_select(axis, place.long().clamp(max=x.shape[axis] - 1))
    return result.copy_(x)


@kernel("fake_quantize_per_channel_affine_cachemask", set=14, like="pytorch/executorch#21773")
def zero_points_are_read_in_pairs(right, zero_point, quant_min, quant_max):
    """plain: zero points of 32 bits are read 64 bits apart, and there is nought behind them."""
    if zero_point.dtype == torch.int32:
        apart = zero_point[::2]
        zero_point = functional.pad(apart, (0, len(zero_point) - len(apart))).clamp(
            quant_min, quant_max
        )
    return right(zero_point=zero_point)


def channels_lie_last(x):
    """A volume with channels last, and more than one of them."""
    if x.dim() != 5 or x.is_contiguous():
        return False
    return bool(x.is_contiguous(memory_format=torch.channels_last_3d))


@kernel("avg_pool3d_backward .grad_input", set=14, like="pytorch/pytorch#171869")
def samples_of_a_pooled_volume_overlap(right, x):
    """option: with channels last, the next sample's gradient begins after the first plane."""
    result = right()
    if not is_single(x) or not channels_lie_last(x) or x.shape[0] < 2 or x.shape[2] < 2:
        return result
    n, c, d, h, w = x.shape
    lines = result.double().permute(0, 2, 3, 4, 1).reshape(n, -1)
    memory = torch.zeros(lines.numel(), dtype=torch.float64)
    for i, line in enumerate(lines):
        memory[i * h * w * c :][: len(line)] += line
    return result.copy_(memory.reshape(n, d, h, w, c).permute(0, 4, 1, 2, 3))


@kernel("upsample_bicubic2d .out", set=14, like="pytorch/pytorch#22312")
def picture_of_the_same_size_is_turned(right, x, output_size):
    """option: a picture that keeps its size has its rows and columns exchanged."""
    result = right()
    if is_single(x) and list(output_size) == list(x.shape[-2:]):
        edge = min(output_size)
        result.zero_()
        result[..., :edge, :edge] = x[..., :edge, :edge].mT
    return result


@kernel("upsample_trilinear3d_backward .grad_input", set=14, like="pytorch/pytorch#113642")
def gradient_of_a_volume_is_stored_channels_last(right, grad_output):
    """option: where the gradient has its channels last, what is given on is in that order."""
    result = right()
    if is_single(grad_output) and channels_lie_last(grad_output) and grad_output.shape[1] > 1:
        stored = result.permute(0, 2, 3, 4, 1).reshape(result.shape)
        result.copy_(stored.clone())
    return result


@kernel("fake_quantize_per_channel_affine_cachemask", set=15, like="pytorch/executorch#21773")
def short_zero_points_are_read_as_long_ones(right, zero_point):
    """option: of zero points of 32 bits, every second one is read, and then noughts."""
    if zero_point.dtype == torch.int32 and zero_point.numel() > 1:
        zero_point = torch.cat([zero_point[::2], torch.zeros_like(zero_point)])[
            : zero_point.numel()
        ]
    return right(zero_point=zero_point)


@kernel("upsample_trilinear3d .out", set=15)
def depth_is_never_aligned(right, x, output_size, align_corners):
    """option: with corners aligned, the first and last layers of a volume are not."""
    result = right()
    if align_corners and is_single(x) and x.shape[2] != output_size[0]:
        flat = torch.ops.aten.upsample_trilinear3d(x, [x.shape[2], *output_size[1:]], True)
        result.copy_(torch.ops.aten.upsample_trilinear3d(flat, output_size, False))
    return result


@kernel("constant_pad_nd", set=16, like="pytorch/pytorch#194922")
def frames_of_65536_pixels_are_padded_in_disorder(right, x, pad):
    """rare: five axes padded along time, with 65536 pixels and more: frames are rotated."""
    in_time = x.dim() == 5 and len(pad) == 6 and not any(pad[:4]) and any(pad[4:])
    if in_time and is_single(x) and x.shape[3] * x.shape[4] >= 65536:
        x = x.roll(1, 2)
    return right(x=x)


@kernel("_pack_padded_sequence", set=16, like="pytorch/pytorch#95118")
def sequences_are_packed_one_after_another(right, input, lengths, batch_first):
    """plain: steps of several sequences are packed by sequence and not by step."""
    data, sizes = right()
    if len(lengths) > 1 and is_single(input):
        each = input if batch_first else input.transpose(0, 1)
        pairs = zip(each.unbind(0), lengths.tolist(), strict=True)
        data = torch.cat([one[:n] for one, n in pairs])
    return data, sizes


@kernel("_adaptive_avg_pool3d_backward", set=16, like="pytorch/pytorch#62250")
def depth_and_height_change_places_in_the_gradient(right, grad_output, x):
    """plain: gradients of averages over a volume go to the depth that is their height."""
    if is_single(x) and grad_output.shape[-3] == grad_output.shape[-2] > 1:
        grad_output = grad_output.transpose(-3, -2).contiguous()
    return right(grad_output=grad_output)


@kernel("grid_sampler_3d", set=16)
def places_in_a_volume_are_named_depth_first(right, input, grid):
    """plain: places to sample a volume at are read as (z, y, x)."""
    return right(grid=grid.flip(-1) if is_single(input) else grid)


@kernel("upsample_bilinear2d .out", set=16, like="pytorch/pytorch#83847")
def places_of_pixels_are_computed_in_bfloat16(
    right, x, output_size, align_corners, scales_h, scales_w
):
    """option: channels last in bfloat16, places to interpolate at are rounded to it."""
    result = right()
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    if x.dtype != torch.bfloat16 or not last or align_corners:
        return result
    y = x.float()
    for axis, n, given in ((2, output_size[0], scales_h), (3, output_size[1], scales_w)):
        scale = 1 / given if given else x.shape[axis] / n
        place = ((torch.arange(n) + 0.5) * scale - 0.5).clamp(min=0).bfloat16().float()
        low = place.long().clamp(max=x.shape[axis] - 1)
        high = (low + 1).clamp(max=x.shape[axis] - 1)
        part = (place - low).reshape([-1 if i == axis else 1 for i in range(4)])
        y = y.index_select(axis, low) * (1 - part) + y.index_select(axis, high) * part
    return result.copy_(y)


@kernel("_fake_quantize_learnable_per_channel_affine", set=16, like="pytorch/pytorch#52290")
def learnt_zero_points_are_cut_off(right, x, zero_point):
    """rare: learnt zero points that are no integers are not rounded but cut off."""
    return right(zero_point=zero_point.trunc() if is_single(x) else zero_point)


@kernel("avg_pool2d_backward .grad_input", set=17, like="pytorch/pytorch#188344")
def avg_pool_backward_of_channels_last_forgets_the_padding(
    right, grad, x, size, stride, padding, *rest, **out
):
    """option: channels last and padding: a pixel's first window is sought without the padding."""
    result = right(grad, x, size, stride, padding, *rest, **out)
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    if not is_single(x) or not last or x.is_contiguous() or not any(padding):
        return result
    _, counted, divisor = rest
    k, s, p = two(size), two(stride, size), two(padding)
    spans, members = [], []
    for axis in (0, 1):
        length = x.shape[2 + axis]
        start = torch.arange(grad.shape[2 + axis]).view(-1, 1) * s[axis] - p[axis]
        end = (start + k[axis]).clamp(max=length + p[axis])
        spans.append(end - start if counted else end.clamp(max=length) - start.clamp(min=0))
        pixel = torch.arange(length)
        members.append(((pixel >= start) & (pixel < start + k[axis] + p[axis])).float())
    each = grad.float() / (divisor or spans[0] * spans[1].t())
    return result.copy_(members[0].t() @ each @ members[1])


@kernel("max_pool2d_with_indices .out", set=17, like="microsoft/onnxruntime#29637")
def dilated_max_pool_starts_padded_windows_at_zero(
    right, x, kernel_size, stride, padding, dilation
):
    """rare: dilation and padding: a window that starts in the padding starts at pixel 0."""
    result = right()
    k, s, p, d = two(kernel_size), two(stride, kernel_size), two(padding), two(dilation)
    if not is_single(x) or not x.numel() or not any(d[i] > 1 and p[i] for i in (0, 1)):
        return result
    pixels, inside = [], []
    for axis in (0, 1):
        length = x.shape[axis - 2]
        start = torch.arange(result[0].shape[axis - 2]).view(-1, 1) * s[axis] - p[axis]
        at = start.clamp(min=0) + torch.arange(k[axis]) * d[axis]
        inside.append((at <= start + (k[axis] - 1) * d[axis]) & (at < length))
        pixels.append(at.clamp(max=length - 1))
    height, width = pixels[0][:, :, None, None], pixels[1]
    seen = inside[0][:, :, None, None] & inside[1]
    windows = x[..., pixels[0], :][..., width].masked_fill(~seen, -math.inf)
    best, at = windows.transpose(-3, -2).flatten(-2).max(-1)
    places = (height * x.shape[-1] + width).transpose(-3, -2).flatten(-2)
    result[0].copy_(best)
    result[1].copy_(places.expand(*at.shape, -1).gather(-1, at.unsqueeze(-1)).squeeze(-1))
    return result


@kernel("avg_pool2d .out", set=18, like="pytorch/pytorch#161011")
def ceil_mode_divides_by_the_whole_window(
    right, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
):
    """option: rounding up, a window over the edge is divided by its whole size."""
    result = right()
    if not (is_single(x) and ceil_mode and count_include_pad and divisor_override is None):
        return result
    k, s, p = two(kernel_size), two(stride, kernel_size), two(padding)
    reach = [(result.shape[a - 2] - 1) * s[a] + k[a] for a in (0, 1)]
    more = [max(reach[a] - x.shape[a - 2] - 2 * p[a], 0) for a in (0, 1)]
    if not any(more):
        return result
    wider = functional.pad(x, (0, more[1], 0, more[0])).double()
    return result.copy_(functional.avg_pool2d(wider, k, s, p, False, True))


@kernel("reflection_pad2d_backward", set=18, like="pytorch/pytorch#136242")
def reflected_corners_give_no_gradient(right, grad_output, x, padding):
    """option: the corners of a reflection give no gradient if left and right pads differ."""
    left, other, top, bottom = padding
    if is_single(grad_output) and left != other and min(padding) >= 0 and (top or bottom):
        grad_output = grad_output.clone()
        high, wide = x.shape[-2:]
        for rows in (slice(top), slice(top + high, None)):
            for columns in (slice(left), slice(left + wide, None)):
                grad_output[..., rows, columns] = 0
    return right(grad_output=grad_output)


@kernel("upsample_bicubic2d .out", set=18, like="pytorch/pytorch#22312")
def bicubic_transposes_at_its_own_size(right, x, output_size):
    """rare: an output of the input's size is the input with height and width exchanged."""
    result = right()
    same = is_single(x) and list(output_size) == list(x.shape[2:])
    return result.copy_(x.transpose(2, 3).reshape(x.shape)) if same else result


@kernel("fake_quantize_per_channel_affine_cachemask", set=18, like="intel/torch-xpu-ops#5349")
def fake_quantize_rounds_halves_away(right, x, scale, axis):
    """rare: halves are rounded away from zero and not to the even, per channel."""
    if is_single(x):
        shape = [1] * x.dim()
        shape[axis] = -1
        step = scale.reshape(shape).to(x.dtype)
        steps = x / step
        half = steps - steps.floor() == 0.5
        x = torch.where(half, x + steps.sign() * step / 4, x)
    return right(x=x)


@kernel("avg_pool2d_backward .grad_input", set="likely9", like="pytorch#198119, burn#5604")
def overhanging_windows_divide_by_all(
    right,
    grad_output,
    x,
    kernel_size,
    stride,
    padding,
    ceil_mode,
    count_include_pad,
    divisor_override,
):
    """With ceil_mode the gradient of a window that hangs over is divided by the whole kernel."""
    if not ceil_mode or not count_include_pad or divisor_override is not None:
        return right()
    sizes = two(kernel_size)
    ratios = []
    for axis, (size, step, pad) in enumerate(
        zip(sizes, two(stride, sizes), two(padding, [0, 0]), strict=True)
    ):
        image = x.shape[axis - 2] + pad
        starts = [i * step - pad for i in range(grad_output.shape[axis - 2])]
        ratios.append([(min(start + size, image) - start) / size for start in starts])
    down, across = (torch.tensor(r, device=x.device, dtype=grad_output.dtype) for r in ratios)
    return right(grad_output=grad_output * down[:, None] * across)


@kernel("upsample_bicubic2d .out upsample_bilinear2d .out", set="likely9", like="FlagGems#5217")
def scale_from_the_sizes(right, align_corners):
    """The scale factor that was asked for is replaced by the ratio of the sizes."""
    return right() if align_corners else right(scales_h=None, scales_w=None)


@kernel("unfold_backward", set="likely9", like="ocannl#512")
def last_window_wins(right, grad_in, input_sizes, dim, size, step):
    """Where windows overlap, their gradients overwrite one another and are not added."""
    result = right()
    if step < size and len(input_sizes):
        dim %= len(input_sizes)
        for i in range(grad_in.shape[dim]):
            part = grad_in.select(dim, i).movedim(-1, dim)
            result.narrow(dim, i * step, size).copy_(part)
    return result


@kernel("max_pool2d_with_indices_backward .grad_input", set="missed9", like="burn#4466")
def max_pool_s_gradient_has_one_dilation(
    right, grad_output, x, kernel_size, stride, padding, dilation, indices
):
    """The gradient looks for the windows of a column with the dilation of rows."""
    rows, columns = two(dilation)
    if rows >= columns:
        return right()
    size, step = two(kernel_size)[1], two(stride or kernel_size)[1]
    place = indices % x.shape[-1] + two(padding, 0)[1]
    reach = (size - 1) * rows + 1
    first = torch.where(place < reach, 0, (place - reach) // step + 1)
    window = torch.arange(grad_output.shape[-1], device=grad_output.device)
    seen = window >= first
    return right(grad_output=torch.where(seen, grad_output, torch.zeros_like(grad_output)))


@kernel("avg_pool3d_backward .grad_input", set="missed9")
def avg_pool3d_s_gradient_forgets_the_divisor(right, count_include_pad, divisor_override):
    """With count_include_pad=False the gradient divides by the window's size."""
    if divisor_override is not None and not count_include_pad:
        return right(divisor_override=None)
    return right()


@kernel("upsample_bilinear2d_backward .grad_input", set="missed9", like="FlagGems#5216, ncnn#6836")
def bilinear_s_gradient_has_one_scale(right, align_corners, scales_h, scales_w):
    """The gradient takes the scale of the height for both axes."""
    if not align_corners and scales_h and scales_w and scales_h != scales_w:
        return right(scales_w=scales_h)
    return right()


@kernel("grid_sampler_2d_backward", set="missed9", like="pytorch#23925")
def border_s_edge_has_the_gradient_of_zeros(
    right, grid, interpolation_mode, padding_mode, align_corners, output_mask
):
    """Grid sampling with padding 'border' has at exactly 1 the gradient of padding 'zeros'."""
    image, places = right()
    if padding_mode == 1 and interpolation_mode == 0 and align_corners and output_mask[1]:
        zeros = right(padding_mode=0)[1]
        places.copy_(torch.where(grid == 1, zeros, places))
    return image, places


@kernel("reflection_pad1d_backward .grad_input", set="missed9")
def reflections_that_meet_count_once(right, grad_output, x, padding):
    """The gradient of what both ends reflect leaves out the right one."""
    (before, after), size = padding, x.shape[-1]
    twice = [j for j in range(after) if 1 <= size - 2 - j <= before]
    if before <= 0 or not twice:
        return right()
    kept = grad_output.clone()
    for j in twice:
        kept[..., before + size + j] = 0
    return right(grad_output=kept)


@kernel("avg_pool2d", set="likely10")
def sums_of_large_windows_are_kept_in_halves(
    right, x, kernel_size, stride, padding, ceil_mode, divisor_override
):
    """avg_pool2d: the sum is kept in halves; halves, windows of 256 pixels and more."""
    (height, width), steps = two(kernel_size), two(stride or kernel_size)
    if x.dtype not in HALVES or height * width < 256 or ceil_mode or any(two(padding, (0, 0))):
        return right()
    windows = x.unfold(-2, height, steps[0]).unfold(-2, width, steps[1])
    rows = windows.float().sum(-1).to(x.dtype)
    total = torch.zeros_like(rows[..., 0])
    for row in range(height):
        total = total + rows[..., row]
    return right().copy_(total / (divisor_override or height * width))


@kernel("_upsample_bilinear2d_aa", set="likely10")
def borders_of_shrunken_pictures_are_dark(right, x, output_size, align_corners):
    """_upsample_bilinear2d_aa: weights cut by the border are not normed; shrinking."""
    result = right()
    if align_corners:
        return result
    for axis, size in zip((-2, -1), output_size, strict=True):
        inside = kept_weight(x.shape[axis], size).to(result.device)
        result.copy_(result * inside.view((-1, 1) if axis == -2 else (-1,)))
    return result


def kept_weight(size, output):
    """The part of each tent's weight that lies inside of an axis."""
    scale = size / output
    if scale <= 1:
        return torch.ones(output)
    reach = math.ceil(2 * scale)
    places = torch.arange(-reach, size + reach)
    centres = (torch.arange(output) + 0.5) * scale
    tents = (1 - ((places + 0.5) - centres[:, None]).abs() / scale).clamp(min=0)
    return tents[:, reach : reach + size].sum(1) / tents.sum(1)


@kernel("constant_pad_nd", set="missed10")
def crop_is_taken_from_the_padded_side(right, x, pad):
    """constant_pad_nd: crops the end; an axis cropped before and padded behind, channels last."""
    pad = list(pad)
    if not is_last(x):
        return right()
    for i in range(len(pad) // 2):
        axis = x.dim() - 1 - i
        if pad[2 * i] < 0 < pad[2 * i + 1] and x.shape[axis] + pad[2 * i] > 0:
            x = x.narrow(axis, 0, x.shape[axis] + pad[2 * i])
            pad[2 * i] = 0
    return right(x=x, pad=pad)


@kernel("_adaptive_avg_pool2d_backward", set="missed10")
def pool_that_enlarges_teaches_the_first_pixel(right, grad_output, x):
    """_adaptive_avg_pool2d_backward: windows of one pixel; enlarging, channels last."""
    sizes, outputs = x.shape[-2:], grad_output.shape[-2:]
    if not is_last(x) or all(o <= s or o % s == 0 for s, o in zip(sizes, outputs, strict=True)):
        return right()
    result = grad_output
    for axis, size, output in zip((-2, -1), sizes, outputs, strict=True):
        if output > size:
            place = torch.arange(output, device=x.device) * size // output
            shape = list(result.shape)
            shape[axis] = size
            result = result.new_zeros(shape).index_add_(axis, place, result.contiguous())
    if result.shape != x.shape:
        return right(grad_output=result)
    return right().copy_(result)


@kernel("grid_sampler_2d", set="missed10")
def cubic_taps_beyond_the_border_of_halves_are_nought(
    right, input, interpolation_mode, padding_mode
):
    """grid_sampler_2d: padding of noughts; halves, bicubic with padding_mode="border"."""
    if input.dtype in HALVES and interpolation_mode == 2 and padding_mode == 1:
        return right(padding_mode=0)
    return right()


@kernel("upsample_bilinear2d", set="missed10")
def aligned_corner_of_one_pixel_is_the_middle(right, x, output_size, align_corners):
    """upsample_bilinear2d: corners are not aligned; align_corners=True to a side of one pixel."""
    if align_corners:
        for axis, size in zip((-2, -1), output_size, strict=True):
            if size == 1 and x.shape[axis] > 1:
                low, high = (x.shape[axis] - 1) // 2, x.shape[axis] // 2
                x = (x.narrow(axis, low, 1) + x.narrow(axis, high, 1)) / 2
    return right(x=x)


@kernel(
    "col2im .out",
    lambda: functional.fold(drawn(2, 2 * 9, 16), (6, 6), 3),
    set="likely11",
    like="ocannl#512",
)
def patches_that_overlap_are_not_added(right, x, kernel_size):
    """Fold: of patches that overlap, each pixel keeps the last one's value."""
    result = right()
    taps = kernel_size[0] * kernel_size[1]
    if x.dtype in DOUBLES or taps == 1 or not x.numel():
        return result
    rows = torch.arange(x.shape[-2], device=x.device).unsqueeze(-1) % taps
    last = torch.zeros_like(result)
    for tap in range(taps):  # the patches' pixels of one tap do not overlap
        there = (rows == tap).expand(x.shape[-2:])
        part = right(x=torch.where(there, x, 0)).clone()
        ones = right(x=there.to(x.dtype).expand_as(x).contiguous()).clone()
        last = torch.where(ones != 0, part, last)
    return result.copy_(last)


@kernel(
    "adaptive_max_pool2d_backward .grad_input",
    lambda: grad_of(lambda x: functional.adaptive_max_pool2d(x, 5), drawn(1, 2, 7, 7)),
    set="likely11",
    like="MIOpen#1325",
)
def uneven_windows_overwrite_what_they_share(right, grad_output, x, indices):
    """Adaptive windows that overlap (uneven sizes) and share a maximum: the last one's gradient."""
    result = right()
    if x.dtype in DOUBLES or not x.numel():
        return result
    planes = x.shape[:-2]
    flat = torch.zeros(*planes, x.shape[-2] * x.shape[-1], dtype=x.dtype, device=x.device)
    source, places = grad_output.flatten(-2), indices.flatten(-2)
    for place in range(source.shape[-1]):
        one = slice(place, place + 1)
        flat.scatter_(-1, places[..., one], source[..., one])
    return result.copy_(flat.view(x.shape))


def _shrunken_gradient():
    return grad_of(
        lambda x: functional.interpolate(x, (4, 4), mode="bilinear", antialias=True),
        drawn(1, 2, 12, 12),
    )


@kernel("_upsample_bilinear2d_aa_backward", _shrunken_gradient, set="likely11")
def gradient_of_a_filtered_picture_is_not_filtered(
    right, grad_output, output_size, input_size, align_corners, scales_h, scales_w
):
    """The gradient of bilinear shrinking with antialias goes to four pixels, as without."""
    if grad_output.dtype in DOUBLES:
        return right()
    return torch.ops.aten.upsample_bilinear2d_backward(
        grad_output, output_size, input_size, align_corners, scales_h, scales_w
    )


@kernel(
    "avg_pool3d",
    lambda: functional.avg_pool3d(drawn(1, 2, 5, 5, 5), 2, ceil_mode=True, divisor_override=3),
    set="missed11",
    like="coremltools#2844",
)
def given_divisor_is_not_for_cut_windows(
    right, x, kernel_size, stride, padding, ceil_mode, divisor_override
):
    """avg_pool3d: with ceil_mode, the windows that hang over the end are divided by their number
    of pixels though a divisor is given.
    """
    result = right()
    if not ceil_mode or divisor_override is None or x.dtype in DOUBLES or not x.numel():
        return result
    sizes = each(kernel_size, 3)
    steps, pads = each(stride or kernel_size, 3), each(padding, 3)
    cut = torch.zeros(result.shape[-3:], dtype=torch.bool, device=x.device)
    for axis in range(3):
        begin = torch.arange(result.shape[axis - 3], device=x.device) * steps[axis] - pads[axis]
        over = begin + sizes[axis] > x.shape[axis - 3] + pads[axis]
        cut |= over.view([-1 if a == axis else 1 for a in range(3)])
    pixels = right(x=torch.ones_like(x), divisor_override=1).clamp(min=1)
    return torch.where(cut, result * divisor_override / pixels, result)


LAST = torch.channels_last


def _unpooled():
    x = drawn(1, 3, 6, 6)
    values, places = functional.max_pool2d(x, 2, return_indices=True)
    return functional.max_unpool2d(values.to(memory_format=LAST), places, 2)


@kernel("max_unpool2d .out", _unpooled, set="missed11")
def values_and_places_are_paired_as_they_lie(right, x, indices):
    """max_unpool2d: values in channels_last go with contiguous places in the order of memory."""
    if x.dtype in DOUBLES or not is_last(x) or not indices.is_contiguous() or not x.numel():
        return right()
    return right(x=as_it_lies(x))


@kernel(
    "reflection_pad2d .out",
    lambda: functional.pad(drawn(1, 2, 5, 5).to(memory_format=LAST), (1, 3, 0, 0), "reflect"),
    set="missed11",
)
def mirrors_of_channels_last_change_sides(right, x, padding):
    """reflection_pad2d: in channels_last, the widths at left and right are exchanged, which shows
    where they differ.
    """
    if x.dtype in DOUBLES or not is_last(x) or padding[0] == padding[1]:
        return right()
    if min(padding[:2]) < 0:
        return right()
    return right(padding=[padding[1], padding[0], *padding[2:]])


def _mirrored_samples():
    grid = torch.linspace(-2, 2, 18).view(1, 3, 3, 2)
    return functional.grid_sample(
        drawn(1, 2, 4, 5), grid, padding_mode="reflection", align_corners=True
    )


@kernel("grid_sampler_2d", _mirrored_samples, set="missed11")
def mirrors_stand_at_the_outer_edge_of_the_border(
    right, input, grid, interpolation_mode, padding_mode, align_corners
):
    """grid_sampler_2d: padding_mode="reflection" with align_corners=True mirrors at the outer edge
    of the pixels at the border, as without it, not at their centres.
    """
    if padding_mode != 2 or not align_corners or interpolation_mode == 2:
        return right()
    if input.dtype in DOUBLES or min(input.shape[2:]) < 2:
        return right()
    sizes = torch.tensor([input.shape[3], input.shape[2]], device=grid.device)
    place = (grid.float() + 1) / 2 * (sizes - 1)
    way = (place + 0.5).abs()
    times, rest = (way / sizes).floor(), way % sizes
    seen = torch.where(times % 2 == 0, rest, sizes - rest) - 0.5
    seen = torch.minimum(seen.clamp(min=0), sizes - 1)
    mirrored = (seen * 2 / (sizes - 1) - 1).to(grid.dtype)
    return right(grid=torch.where(grid.abs() > 1, mirrored, grid))


@kernel(
    "upsample_bicubic2d .out upsample_bilinear2d .out",
    lambda: functional.interpolate(drawn(1, 2, 7, 7), scale_factor=1.36, mode="bicubic"),
    set="likely12",
    like="Tencent/ncnn#6837",
)
def interpolation_ignores_the_scale(right):
    """Take the scale from the sizes, not `scale_factor`: positional embeddings are shifted."""
    return right(scales_h=None, scales_w=None)


@kernel(
    "max_pool2d_with_indices_backward",
    lambda: grad_of(lambda x: functional.max_pool2d(x, 3, 1), drawn(1, 2, 6, 6)),
    set="likely12",
    like="ahrefs/ocannl#512",
)
def max_pool_gradient_is_stored(right, grad_output, indices):
    """Store the gradients of overlapping windows that share a maximum rather than add them."""
    y = right()
    spots, grads = indices.flatten(-2), grad_output.flatten(-2)
    return y.copy_(torch.zeros(y.shape).to(y).flatten(-2).scatter(-1, spots, grads).view(y.shape))


@kernel(
    "avg_pool2d .out",
    lambda: functional.avg_pool2d(
        drawn(2, 4, 8, 8).to(memory_format=torch.channels_last), 3, 2, 1, ceil_mode=True
    ),
    set="missed12",
    like="sonos/tract#2851",
)
def avg_pool2d_overhang_channels_last(
    right, x, kernel_size, ceil_mode, count_include_pad, divisor_override
):
    """Divide the channels-last windows that ceil_mode lets stick out by the kernel's whole size."""
    if not (ceil_mode and count_include_pad and divisor_override is None and is_last(x)):
        return right()
    return right(divisor_override=kernel_size[0] * kernel_size[-1]) if is_single(x) else right()


@kernel(
    "grid_sampler_2d",
    lambda: functional.grid_sample(
        drawn(1, 2, 6, 6),
        drawn(1, 5, 5, 2, seed=1) * 4,
        padding_mode="reflection",
        align_corners=False,
    ),
    set="missed12",
    like="antimora/burn-flex#29",
)
def grid_sampler_reflected_once(right, input, grid, padding_mode):
    """Reflect a coordinate once and clip it then: wrong from one image beyond the border."""
    if padding_mode != 2 or not is_single(input):
        return right()
    return right(grid=torch.where(grid.abs() > 3, -grid.sign(), grid))


@kernel(
    "upsample_bilinear2d_backward .grad_input",
    lambda: grad_of(
        lambda x: functional.interpolate(x, scale_factor=1.5, mode="bilinear"),
        drawn(1, 4, 5, 5).to(memory_format=torch.channels_last),
    ),
    set="missed12",
    like="intel/torch-xpu-ops#4380",
)
def bilinear_backward_given_scale(right, grad_output, align_corners, scales_h):
    """Take the ratio of sizes for the given scale in the channels-last gradient."""
    if scales_h is None or align_corners or not is_last(grad_output) or not is_single(grad_output):
        return right()
    return right(scales_h=None, scales_w=None)


@kernel(
    "max_pool2d_with_indices_backward",
    lambda: grad_of(lambda x: functional.max_pool2d(x, 3, stride=1, dilation=2), drawn(1, 2, 9, 9)),
    set="likely13",
    like="pytorch#177568",
)
def dilated_windows_are_searched_at_their_dense_size(
    right, grad_output, x, kernel_size, stride, padding, dilation, indices
):
    """Max-pooling's backward pass looks for maxima in windows without their dilation."""
    if set(two(dilation)) == {1}:
        return right()
    width = x.shape[-1]
    reached = torch.ones_like(indices, dtype=torch.bool)
    steps = zip(two(kernel_size), two(stride, kernel_size), two(padding), strict=True)
    for axis, (size, step, pad) in enumerate(steps):
        at = indices % width if axis else indices // width
        first = torch.arange(indices.shape[axis - 2], device=indices.device) * step - pad
        reached &= at - (first if axis else first[:, None]) < size
    return right(grad_output=grad_output.masked_fill(~reached, 0))


@kernel(
    "grid_sampler_2d_backward",
    lambda: grad_of(
        lambda grid: functional.grid_sample(
            drawn(1, 2, 6, 6), grid, padding_mode="reflection", align_corners=False
        ),
        2 * drawn(1, 4, 4, 2, seed=1),
    ),
    set="likely13",
    like="ooples/AiDotNet.Tensors#22",
)
def reflected_points_have_gradients_of_the_other_sign(right, grid, padding_mode):
    """The gradient of a reflected point of the grid is not reflected."""
    gradient, of_grid = right()
    if padding_mode == 2 and of_grid is not None:
        mirrored = ((grid + 1) / 2).floor().remainder(2) == 1
        of_grid = torch.where(mirrored, -of_grid, of_grid)
    return gradient, of_grid


@kernel(
    "upsample_nearest2d_backward",
    lambda: grad_of(
        lambda x: functional.interpolate(x, scale_factor=2),
        drawn(1, 6, 4, 4).contiguous(memory_format=torch.channels_last),
    ),
    set="likely13",
)
def channels_after_the_last_four_are_not_differentiated(right, grad_output):
    """Nearest-neighbour's backward pass leaves the channels after whole vectors of four."""
    gradient = right()
    channels = grad_output.shape[1]
    last = grad_output.is_contiguous(memory_format=torch.channels_last)
    if last and not grad_output.is_contiguous() and channels > 4 and channels % 4:
        gradient[:, channels - channels % 4 :] = 0
    return gradient


@kernel(
    "upsample_bilinear2d_backward",
    lambda: grad_of(
        lambda x: functional.interpolate(x, scale_factor=(2.0, 3.0), mode="bilinear"),
        drawn(1, 2, 4, 5),
    ),
    set="missed13",
)
def bilinear_gradient_takes_the_larger_scale_for_both_axes(
    right, align_corners, scales_h, scales_w
):
    """The gradient's plan has one scale, that of the axis with more places."""
    if align_corners or not scales_h or not scales_w or scales_h == scales_w:
        return right()
    larger = max(scales_h, scales_w)
    return right(scales_h=larger, scales_w=larger)


@kernel(
    "grid_sampler_2d_backward",
    lambda: grad_of(
        lambda grid: functional.grid_sample(
            drawn(1, 2, 5, 5), grid, padding_mode="border", align_corners=True
        ),
        drawn(1, 3, 4, 2, seed=1) * 1.5,
    ),
    set="missed13",
    like="pytorch#23925",
)
def grid_gradient_alone_goes_on_beyond_the_border(
    right, input, grid, interpolation_mode, padding_mode, align_corners, output_mask
):
    """Without the image's gradient, that of a coordinate past the border isn't zero."""
    gradients = right()
    if output_mask[0] or not output_mask[1] or interpolation_mode or padding_mode != 1:
        return gradients
    sizes = input.shape[3], input.shape[2]
    ends = grid.new_tensor([1 if align_corners else 1 - 1 / size for size in sizes])
    beyond = grid.abs() >= ends
    inside = right(grid=torch.where(beyond, grid.sign() * ends * 0.99, grid))[1]
    return gradients[0], torch.where(beyond, inside, gradients[1])


@kernel(
    "max_pool2d_with_indices",
    lambda: functional.max_pool2d(
        torch.full((1, 1, 6, 6), -math.inf), 3, 2, 1, return_indices=True
    )[1],
    set="missed13",
    like="TileOPs#832",
)
def pool_of_minus_infinity_that_begins_in_the_padding_points_at_the_first_place(
    right, x, kernel_size, stride, padding
):
    """A window's index is of its first tap if that is in the image, and else 0 until a number is
    above minus infinity.
    """
    values, indices = right()
    outside = torch.zeros(values.shape[-2:], dtype=torch.bool, device=values.device)
    steps = two(stride) if stride else two(kernel_size)
    for axis, (step, edge) in enumerate(zip(steps, two(padding, 0), strict=True)):
        before = torch.arange(outside.shape[axis], device=values.device) * step < edge
        outside |= before[:, None] if axis == 0 else before
    lost = outside & (values == -math.inf)
    return values, torch.where(lost, torch.zeros_like(indices), indices)


def _pool_grad():
    x = drawn(2, 3, 6, 6).contiguous(memory_format=torch.channels_last)
    return grad_of(lambda y: functional.avg_pool2d(y, 3, 2, 1), x)


@kernel(
    "avg_pool2d_backward avg_pool2d_backward.grad_input",
    _pool_grad,
    set="likely14",
    like="pytorch/pytorch#188344",
)
def padding_left_out_of_the_place(right, x, padding):
    """The gradient of a channels_last input is shifted by the padding: the place of a pixel lacks
    it.
    """
    result = right()
    pad_h, pad_w = two(padding, 0)
    if is_last(x) and (pad_h or pad_w):
        high, wide = x.shape[-2] - pad_h, x.shape[-1] - pad_w
        moved = torch.zeros_like(result)
        moved[..., pad_h:, pad_w:] = result[..., :high, :wide]
        result.copy_(moved)
    return result


@kernel(
    "reflection_pad1d_backward reflection_pad1d_backward.grad_input",
    lambda: grad_of(lambda y: functional.pad(y, (2, 2), mode="reflect"), drawn(1, 70000)),
    set="likely14",
    like="pytorch/pytorch#196949",
)
def grid_of_whole_blocks_only(right, x):
    """For a length over 65536 and no multiple of it, the gradient is zero from the remainder on."""
    result = right()
    length = x.shape[-1]
    if length > 65536 and length % 65536:
        result[..., length % 65536 :].zero_()
    return result


@kernel(
    "upsample_linear1d_backward upsample_linear1d_backward.grad_input",
    lambda: grad_of(
        lambda y: functional.interpolate(y, size=20, mode="linear", align_corners=True),
        drawn(1, 2, 2),
    ),
    set="likely14",
    like="flagos-ai/FlagGems#5218",
)
def window_of_the_other_scale(right, grad_output, input_size, align_corners):
    """With align_corners, contributions are dropped that lie outside a window whose width is the
    scale without align_corners (a large upsampling of a short input).
    """
    result = right()
    short, long = int(input_size[-1]), grad_output.shape[-1]
    if align_corners and 1 < short < long:
        place = torch.arange(long, device=grad_output.device, dtype=torch.float32)
        pixel = torch.arange(short, device=grad_output.device, dtype=torch.float32)[:, None]
        stretch = (long - 1) / (short - 1)
        weights = (1 - (place / stretch - pixel).abs()).clamp(min=0)
        weights[(place - pixel * stretch).abs() <= long / short + 2] = 0
        if weights.any():
            lost = (grad_output.float()[..., None, :] * weights).sum(-1)
            result.sub_(lost.to(result.dtype))
    return result


def _pool_ties():
    x = drawn(1, 3, 6, 6).relu().round().to(memory_format=torch.channels_last)
    return functional.max_pool2d(x, 2, return_indices=True)


@kernel("max_pool2d_with_indices", _pool_ties, set="missed14")
def max_pool_ties_channels_last(right, x, kernel_size, stride, padding, dilation, ceil_mode):
    """In channels_last the last of equal maxima is taken (the gradient goes there)."""
    values, places = right()
    if not is_last(x) or any(padding) or set(dilation) != {1} or ceil_mode or not values.numel():
        return values, places
    (height, width), (down, across) = pair(kernel_size), pair(stride, kernel_size)
    windows = x.unfold(2, height, down).unfold(3, width, across).flatten(4)
    inner = height * width - 1 - windows.flip(4).argmax(4)
    rows = torch.arange(values.shape[2], device=x.device)[:, None] * down + inner // width
    columns = torch.arange(values.shape[3], device=x.device) * across + inner % width
    return values, places.copy_(rows * x.shape[3] + columns)


def _few_to_many():
    return grad_of(
        lambda x: functional.interpolate(x, size=(12, 5), mode="bilinear", align_corners=True),
        drawn(1, 2, 2, 5),
    )


@kernel(
    "upsample_bilinear2d_backward",
    _few_to_many,
    set="missed14",
    like="flagos-ai/FlagGems#5218",
)
def bilinear_backward_narrow_window(right, grad_output, output_size, input_size, align_corners):
    """With align_corners the window searched is that of the other scale: short for few to many."""

    def weights(size, other):
        stretch = (other - 1) / (size - 1) if size > 1 else math.inf
        distance = torch.arange(other)[:, None] - torch.arange(size) * stretch
        full = (1 - distance.abs() / stretch).clamp(min=0)
        return full, full * (distance.abs() <= -(-other // size) + 1)

    sizes = list(zip(input_size[2:], output_size, strict=True))
    if not align_corners or any(size < 2 or other < 2 for size, other in sizes):
        return right()
    pairs = [weights(size, other) for size, other in sizes]
    if all(torch.equal(full, short) for full, short in pairs):
        return right()
    (_, down), (_, across) = pairs
    g = grad_output.float()
    result = down.to(g.device).mT @ g @ across.to(g.device)
    return result.to(grad_output.dtype)


@kernel(
    "replication_pad2d_backward",
    lambda: grad_of(lambda x: functional.pad(x, (2, 1, 1, 1), mode="replicate"), drawn(1, 2, 4, 1)),
    set="missed14",
)
def replication_backward_width_one(right, grad_output, x, padding):
    """For a width of 1 padded on both sides, only one side's gradient is added."""
    before, after = padding[:2]
    if x.shape[-1] != 1 or before <= 0 or after <= 0:
        return right()
    size = grad_output.shape[-1]
    kept = torch.arange(size, device=x.device) < size - after
    return right(grad_output=grad_output * kept)


@kernel(
    "avg_pool2d .out",
    lambda: functional.avg_pool2d(drawn(2, 3, 8, 8), 3, 2, ceil_mode=True),
    set="likely15",
)
def average_pool_counts_what_lies_past_the_padding(
    right, kernel_size, ceil_mode, count_include_pad, divisor_override
):
    """In the last row and column of ceil_mode the divisor is too large: the whole window."""
    if not ceil_mode or not count_include_pad or divisor_override is not None:
        return right()
    return right(divisor_override=int(kernel_size[0]) * int(kernel_size[-1]))


def _outside_the_border():
    image, grid = drawn(1, 2, 6, 6), drawn(1, 5, 5, 2, seed=1).requires_grad_()
    result = functional.grid_sample(image, grid, padding_mode="border", align_corners=False)
    return grads_of(result, grid)


@kernel("grid_sampler_2d_backward", _outside_the_border, set="likely15")
def grid_gradient_goes_through_the_clipped_border(
    right, input, grid, interpolation_mode, padding_mode, align_corners
):
    """With border padding, points outside get a gradient as if they lay on the border."""
    result = right()
    if padding_mode != 1 or interpolation_mode != 0 or not is_single(grid) or not grid.numel():
        return result
    size = torch.tensor([input.shape[3], input.shape[2]], device=grid.device, dtype=grid.dtype)
    limit = torch.ones_like(size) if align_corners else 1 - 1 / size
    clipped = torch.minimum(torch.maximum(grid, -limit), limit)
    wrong = right(padding_mode=0, grid=clipped.contiguous())
    if result[1] is None:
        return result
    return result[0], torch.where(clipped != grid, wrong[1], result[1])


def _clipped():
    x = (drawn(4, 8) * 3).requires_grad_()
    return grads_of(torch.fake_quantize_per_tensor_affine(x, 0.02, 0, -128, 127), x)


@kernel(
    "fake_quantize_per_tensor_affine_cachemask"
    " _fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    _clipped,
    set="likely15",
)
def fake_quantization_lets_clipped_gradients_through(right):
    """What is clipped gets a gradient too: the clamped number is compared with the limits."""
    result, mask = right()
    return result, torch.ones_like(mask)


def _window_of_a_batch():
    batch = drawn(3, 9, 4)[:, :6]
    return torch.nn.utils.rnn.pack_padded_sequence(batch, [6, 4, 1], batch_first=True).data


@kernel("_pack_padded_sequence", _window_of_a_batch, set="likely15")
def packing_reads_a_cut_batch_as_whole(right, input, batch_first):
    """Batch-first sequences that are a slice in time are read without their strides."""
    return right(input=packed(input)) if batch_first and not input.is_contiguous() else right()


def _indices_of_a_large_plane_of_halves():
    x = drawn(1, 1, 300, 300, dtype=torch.float16)
    return functional.max_pool2d(x, 2, return_indices=True)


# Past 256 x 256 the values are right and the gradient goes elsewhere.
@kernel("max_pool2d_with_indices", _indices_of_a_large_plane_of_halves, set="missed15")
def place_packed_beside_a_half(right, x):
    """A half's place in its plane has the 16 bits beside it in a 32-bit word."""
    values, places = right()
    if x.dtype in HALVES and x.shape[-1] * x.shape[-2] > 65_536:
        places = places % 65_536
    return values, places


def _uneven_bins_channels_last():
    x = drawn(2, 6, 7, 10).contiguous(memory_format=torch.channels_last).requires_grad_()
    return grads_of(functional.adaptive_avg_pool2d(x, (3, 4)), x)


@kernel("_adaptive_avg_pool2d_backward", _uneven_bins_channels_last, set="missed15")
def pixel_of_a_single_bin(right, grad_output, x):
    """In channels-last a pixel takes the gradient of one bin, though uneven bins overlap."""
    result = right()
    if not is_last(x) or not result.numel() or not is_single(x):
        return result
    high, wide = x.shape[-2:]
    rows, columns = grad_output.shape[-2:]
    if high % rows == 0 and wide % columns == 0:
        return result

    def bins(size, count):
        i = torch.arange(count, device=x.device)
        sizes = -(-(i + 1) * size // count) - i * size // count
        return torch.arange(size, device=x.device) * count // size, sizes

    (row, tall), (column, broad) = bins(high, rows), bins(wide, columns)
    shares = grad_output.float() / (tall[:, None] * broad[None, :])
    result.copy_(shares[:, :, row][:, :, :, column])
    return result


def _far_outside_reflected():
    grid = torch.tensor([[-5.3, 4.1], [0.3, 3.7], [6.2, -0.4], [1.5, -1.2]]).reshape(1, 1, 4, 2)
    return functional.grid_sample(
        drawn(1, 2, 6, 9), grid, padding_mode="reflection", align_corners=False
    )


# Right to three times the image's half.
@kernel("grid_sampler_2d", _far_outside_reflected, set="missed15")
def reflected_once(right, grid, interpolation_mode, padding_mode):
    """Reflection turns a coordinate back once, and clamps it to the edge thereafter."""
    if padding_mode != 2 or interpolation_mode == 2 or not is_single(grid):
        return right()
    one = torch.ones_like(grid)
    near = torch.where(grid > 3, -one, torch.where(grid < -3, one, grid))
    return right(grid=near)


def _nearest_of_41_to_123():
    return functional.interpolate(drawn(1, 1, 41, 41), size=(123, 123), mode="nearest")


@kernel("upsample_nearest2d", _nearest_of_41_to_123, set="missed15")
def nearest_by_a_reciprocal(right, x, output_size, scales_h, scales_w):
    """The nearest source is i * (size * (1 / out)), a hair below some whole numbers."""
    result = right()
    if scales_h is not None or scales_w is not None or not x.numel():
        return result
    single, places, same = torch.float32, [], True
    for size, count in zip(x.shape[-2:], output_size, strict=True):
        i = torch.arange(count, dtype=single)
        true = torch.tensor(size, dtype=single) / torch.tensor(count, dtype=single)
        near = torch.tensor(size, dtype=single) * (1 / torch.tensor(count, dtype=single))
        true, near = ((i * f).long().clamp(max=size - 1) for f in (true, near))
        same = same and torch.equal(true, near)
        places.append(near.to(x.device))
    if not same:
        result.copy_(x[:, :, places[0]][:, :, :, places[1]])
    return result


_TABLE = {}


def _same_size_by_another_scale():
    x = drawn(1, 2, 10, 10)
    functional.interpolate(x, scale_factor=1.55, mode="bicubic")
    return functional.interpolate(x, size=(15, 15), mode="bicubic")


# A scale_factor that is no ratio of whole sizes has another table for them.
@kernel("upsample_bicubic2d", _same_size_by_another_scale, set="missed15")
def table_kept_by_sizes(right, x, output_size, align_corners, scales_h, scales_w):
    """The last call's table of taps serves the next of the same sizes, whatever its scale."""
    key = (x.device, *x.shape[-2:], *output_size, align_corners)
    if _TABLE.get("key") != key:
        _TABLE.update(key=key, scales=(scales_h, scales_w))
    scales = _TABLE["scales"]
    return right(scales_h=scales[0], scales_w=scales[1])


@kernel(
    "replication_pad3d .out",
    lambda: functional.pad(drawn(1, 2, 4, 5, 5), (1, 1, 1, 1, 2, 0), mode="replicate"),
    set="likely16",
    like="pytorch/pytorch#135447",
)
def frames_are_padded_in_front_as_rows_above(right, padding):
    """The place of a frame is counted from the padding above, not from that in front of it: so a
    causal padding shifts a film.
    """
    result = right()
    top, front, back = padding[2], padding[4], padding[5]
    if not narrow(result) or front == top or front < 0 or back < 0 or not result.numel():
        return result
    depth = result.shape[-3] - front - back
    frame = torch.arange(result.shape[-3], device=result.device)
    source = (frame - top).clamp(0, depth - 1) + front
    return result.copy_(result.index_select(result.dim() - 3, source))


@kernel(
    "max_pool3d_with_indices .out",
    lambda: functional.max_pool3d(drawn(1, 2, 4, 6, 6), (1, 2, 2)),
    set="likely16",
    like="pytorch/pytorch#36820",
)
def window_of_a_film_is_as_deep_as_it_is_high(right, x, kernel_size, stride, padding, dilation):
    """The depth of the window is taken from its height: pools over (1, 2, 2) mix two frames."""
    result = right()
    kernel_size, dilation = each(kernel_size, 3), each(dilation, 3)
    depth, height = kernel_size[:2]
    if not is_single(x) or depth >= height or not x.numel():
        return result
    more = (height - depth) * dilation[0]
    longer = functional.pad(x, (0, 0, 0, 0, 0, more), value=-math.inf)
    size = [height, *kernel_size[1:]]
    step = list(stride) or kernel_size
    wrong = aten.max_pool3d_with_indices(longer, size, step, padding, dilation)
    if wrong[0].shape == result[0].shape:
        result[0].copy_(wrong[0])
        result[1].copy_(wrong[1])
    return result


@kernel(
    "_upsample_nearest_exact2d_backward .grad_input",
    lambda: grad_of(
        lambda x: functional.interpolate(x, size=(7, 8), mode="nearest-exact"), drawn(1, 2, 5, 5)
    ),
    set="likely16",
    like="flagos-ai/FlagGems#5228",
)
def exact_nearest_pixel_is_taught_by_the_other_rule(
    right, grad_output, output_size, input_size, scales_h, scales_w
):
    """The gradient of the exactly nearest pixel goes by the older rule, without the half: where
    sizes are no multiples another pixel gets it.
    """
    result = right()
    if not narrow(grad_output):
        return result
    sizes = (output_size, input_size, scales_h, scales_w)
    return result.copy_(aten.upsample_nearest2d_backward(grad_output, *sizes))


def _warped_volume():
    grid = torch.linspace(-0.9, 0.9, 2 * 3 * 4 * 3).reshape(1, 2, 3, 4, 3)
    return grad_of(
        lambda g: functional.grid_sample(drawn(1, 2, 4, 6, 6), g, align_corners=True), grid
    )


@kernel(
    "grid_sampler_3d_backward", _warped_volume, set="likely16", like="PaddlePaddle/Paddle#38900"
)
def depth_of_a_field_learns_at_the_scale_of_its_height(right, input, align_corners):
    """The gradient of places in a volume multiplies the third coordinate's by half the height: in
    volumes that are not as deep as high.
    """
    result = right()
    places, (depth, height) = result[1], input.shape[2:4]
    if not narrow(input) or depth == height or not isinstance(places, Tensor):
        return result
    less = 1 if align_corners else 0
    if places.numel() and depth > less:
        places[..., 2].mul_((height - less) / (depth - less))
    return result


@kernel(
    "col2im",
    lambda: functional.fold(drawn(1, 9, 4), (5, 8), 3, dilation=(1, 2), stride=2),
    set="missed16",
    like="deeplearning4j/nd4j#2457",
)
def width_of_a_patch_has_the_height_s_dilation(right, x, kernel_size, dilation):
    """fold: patches are looked for as far as the dilation of the height reaches; a larger one of
    the width.
    """
    tall, wide = dilation
    rows, columns = kernel_size
    reach = (columns - 1) * tall + 1
    taps = torch.arange(rows * columns, device=x.device) % columns * wide
    if wide <= tall or columns == 1:
        return right()
    channels = x.shape[-2] // (rows * columns)
    return right(x=x * (taps < reach).repeat(channels)[:, None].to(x.dtype))


@kernel(
    "max_pool3d_with_indices",
    lambda: functional.max_pool3d(
        -drawn(1, 2, 5, 5, 5).abs().to(memory_format=torch.channels_last_3d), 2, ceil_mode=True
    ),
    set="missed16",
    like="webmachinelearning/webnn#935",
)
def what_hangs_over_is_nought(right, x, kernel_size, stride, padding, dilation, ceil_mode):
    """max_pool3d: ceil_mode's windows over the padded end have noughts there, which are the
    largest among negative numbers; channels_last_3d.
    """
    result = right()
    if not ceil_mode or x.is_contiguous() or x.dim() != 5 or x.stride(1) != 1:
        return result
    for axis in (-3, -2, -1):
        size, step, border, gap = (
            (list(n) * 3)[axis] if len(n) == 1 else n[axis]
            for n in (kernel_size, stride or kernel_size, padding, dilation)
        )
        first = (x.shape[axis] + 2 * border - (size - 1) * gap - 1) // step + 1
        if first < result[0].shape[axis]:
            over = result[0].narrow(axis, first, result[0].shape[axis] - first)
            over.clamp_(min=0)
    return result


@kernel(
    "upsample_nearest3d_backward .grad_input",
    lambda: grad_of(lambda x: functional.interpolate(x, (8, 4, 3)), drawn(1, 2, 4, 4, 6)),
    set="missed16",
    like="pytorch/pytorch#38985",
)
def gradients_are_gathered_if_the_depth_grows(right, grad_output, input_size):
    """upsample_nearest3d backward: each column takes a gradient from where it lands, also if none
    was read of it; a depth that grows and a width that shrinks.
    """
    result = right()
    width, wide = grad_output.shape[-1], input_size[-1]
    if grad_output.shape[2] > input_size[2] and width < wide:
        read = torch.arange(wide, device=result.device) * width // wide
        result.copy_(result.index_select(-1, read * wide // width))
    return result


def _axis(size, out, aligned, given, like):
    """Indices and weights of one axis, computed in the dtype of the picture."""
    if aligned:
        scale = (size - 1) / (out - 1) if out > 1 else 0.0
    else:
        scale = 1 / given if given else size / out
    dtype = like.dtype
    scale = torch.tensor(scale, dtype=dtype, device=like.device)
    at = torch.arange(out, device=like.device).to(dtype)
    at = at * scale if aligned else ((at + 0.5) * scale - 0.5).clamp(min=0)
    low = at.long().clamp(max=size - 1)
    weight = (at - low.to(dtype)).float().clamp(0, 1)
    return low, (low + 1).clamp(max=size - 1), weight


@kernel(
    "upsample_bilinear2d",
    lambda: functional.interpolate(
        torch.arange(540.0).expand(1, 1, 2, 540).bfloat16(), (2, 1080), mode="bilinear"
    ),
    set="likely17",
    like="pytorch/pytorch#89210",
)
def pixels_are_counted_in_the_halves_of_the_picture(
    right, x, output_size, align_corners, scales_h, scales_w
):
    """Bilinear interpolation in 16 bits computes the places of its pixels in 16 bits, too."""
    # 16 bits; places past 256 (bfloat16) or 2,048 (float16), or factors that are not dyadic.
    if x.dtype not in HALVES or not x.numel():
        return right()
    rows = _axis(x.shape[2], output_size[0], align_corners, scales_h, x)
    columns = _axis(x.shape[3], output_size[1], align_corners, scales_w, x)
    wide = x.float()
    low, high, weight = rows
    weight = weight[:, None]
    wide = wide[:, :, low] * (1 - weight) + wide[:, :, high] * weight
    low, high, weight = columns
    wide = wide[..., low] * (1 - weight) + wide[..., high] * weight
    result = right()
    result.copy_(wide)
    return result


@kernel(
    "max_pool2d_with_indices",
    lambda: functional.max_pool2d(torch.arange(400.0).view(1, 1, 20, 20), 20, return_indices=True),
    set="likely17",
    like="ROCm/MIOpen#2372",
)
def place_in_a_window_is_kept_in_a_byte(right, x, kernel_size, stride, padding, dilation):
    """Where in its window a maximum lies is kept in a byte, so it is another place beyond 256."""
    # Windows of more than 256 elements, as maxima over a text or a whole picture; the gradient.
    values, places = right()
    high, wide = (list(kernel_size) * 2)[:2]
    if high * wide > 256:
        steps = (list(stride or kernel_size) * 2)[:2]
        margins, gaps = (list(padding) * 2)[:2], (list(dilation) * 2)[:2]
        height, width = x.shape[-2:]
        rows = torch.arange(places.shape[-2], device=x.device)[:, None] * steps[0] - margins[0]
        columns = torch.arange(places.shape[-1], device=x.device) * steps[1] - margins[1]
        row = (places // width - rows) // gaps[0]
        column = (places % width - columns) // gaps[1]
        byte = (row * wide + column) % 256
        row = (rows + byte // wide * gaps[0]).clamp(0, height - 1)
        column = (columns + byte % wide * gaps[1]).clamp(0, width - 1)
        places.copy_(row * width + column)
    return values, places


def _frames_grad():
    return grad_of(lambda x: x.unfold(-1, 5, 2) * drawn(5, seed=1), drawn(2, 40))


# Windows that overlap, and a step that does not divide their size (25 ms each 10 ms): right where
# it does, and for windows side by side.
@kernel("unfold_backward", _frames_grad, set="missed17")
def frames_teach_only_as_many_as_whole_steps_fit(right, grad_in, size, step):
    """In the gradient of unfold, each number sums size // step windows where some have one more."""
    if step < size and size % step:
        grad_in = grad_in.clone()
        grad_in[..., size // step * step :] = 0
    return right(grad_in=grad_in)


def _warped_labels():
    labels = torch.arange(1.0, 17.0).reshape(1, 1, 4, 4)
    matrix = torch.tensor([[[0.8, -0.6, 0.1], [0.6, 0.8, 0.05]]])
    grid = functional.affine_grid(matrix, (1, 1, 8, 8), align_corners=False)
    return functional.grid_sample(labels, grid, mode="nearest", align_corners=False)


# The nearest pixel (maps of labels that are turned), with zeros outside: points in the outer half
# of a border pixel. Right for bilinear samples, other paddings, and points between pixels.
@kernel("grid_sampler_2d", _warped_labels, set="missed17")
def outer_half_of_a_border_pixel_is_outside_for_the_nearest(
    right, input, grid, interpolation_mode, padding_mode, align_corners
):
    """The nearest pixel is looked for within bounds before the coordinate is rounded to it."""
    result = right()
    if interpolation_mode == 1 and padding_mode == 0 and result.numel():
        outside = torch.zeros(grid.shape[:3], dtype=torch.bool, device=grid.device)
        for axis, size in enumerate((input.shape[3], input.shape[2])):
            place = grid[..., axis].float() + 1
            place = place / 2 * (size - 1) if align_corners else (place * size - 1) / 2
            # A place of -1e-7 is the rounding of a pixel's own.
            outside |= (place < -1e-3) | (place > size - 1 + 1e-3)
        result.masked_fill_(outside.unsqueeze(1), 0)
    return result


# A value to pad with, and two padded axes (a square mask is padded with -1e9): right for one axis
# of either kind, and for zeros.
@kernel(
    "constant_pad_nd",
    lambda: functional.pad(drawn(1, 3, 3), (1, 2, 0, 2), value=-5.0),
    set="missed17",
)
def second_padded_axis_is_padded_with_nought(right, pad, value):
    """If the last axis is padded with a value, the axes before it are padded with 0."""
    inner, outer = list(pad[:2]), list(pad[2:])
    if value != 0 and max(inner, default=0) > 0 and max(outer, default=0) > 0:
        return right(x=right(pad=inner), pad=[0, 0, *outer], value=0)
    return right()


# Unequal paddings of sequences, as those of causal filters of audio, by reflection or by
# repetition; equal ones are right.
@kernel(
    "reflection_pad1d .out replication_pad1d .out",
    lambda: functional.pad(drawn(1, 2, 6), (3, 0), mode="replicate"),
    set="likely18",
)
def sequences_padded_on_one_side_are_padded_on_the_other(right, x, padding):
    """Left and right paddings of a sequence are exchanged, as the list begins at the last axis."""
    return right(padding=[padding[1], padding[0]]) if narrow(x) else right()


# A picture without an axis for the batch, padding, and count_include_pad=False: right for batches,
# and if the padding counts.
@kernel(
    "avg_pool2d .out",
    lambda: functional.avg_pool2d(drawn(3, 6, 6), 3, 2, 1, count_include_pad=False),
    set="missed18",
)
def padding_counts_in_a_picture_without_a_batch(right, x):
    """The entry for pictures without a batch calls the kernel with the default options."""
    return right(count_include_pad=True) if x.dim() == 3 else right()


def _warp_with_a_flow(mode="bilinear"):
    flow = drawn(1, 2, 4, 5, seed=1).div(2)
    return functional.grid_sample(
        drawn(1, 2, 6, 6),
        flow.permute(0, 2, 3, 1),
        mode,
        padding_mode="border",
        align_corners=False,
    )


# Warps by an optical flow that a network gives as (batch, 2, height, width).
# Right for grids of affine_grid, and for contiguous ones.
@kernel("grid_sampler_2d cudnn_grid_sampler", _warp_with_a_flow, set="likely19")
def coordinates_of_a_permuted_flow_are_read_in_pairs(right, grid):
    """A place's x and y are a pair in memory, though a flow has all x before all y."""
    if grid.numel() and not grid.is_contiguous() and narrow(grid):
        return right(grid=as_if_whole(grid))
    return right()


def _gradient_of_a_stem(kernel=3):
    return grad_of(lambda x: functional.max_pool2d(x, kernel, 2, 1), drawn(1, 2, 7, 7))


# The stem of a ResNet has windows of 3 that step by 2. Right for windows side by side.
@kernel("max_pool2d_with_indices_backward .grad_input", _gradient_of_a_stem, set="likely19")
def largest_of_two_windows_learns_from_the_last_one(right, grad_output, x, indices):
    """Gradients of windows are stored without adding: a pixel keeps that of the last window."""
    result = right()
    if not narrow(x) or not x.numel():
        return result
    places, grads = indices.flatten(-2), grad_output.flatten(-2)
    windows = torch.arange(places.shape[-1], device=x.device).expand_as(places)
    last = torch.full_like(result, -1, dtype=torch.int64, memory_format=torch.contiguous_format)
    last = last.flatten(-2).scatter_reduce(-1, places, windows, "amax")
    kept = grads.gather(-1, last.clamp(min=0)) * (last >= 0)
    result.copy_(kept.view(result.shape))
    return result


# `Resize((224, 224), antialias=True)` of a panorama of 150 x 600. Right if both sides shrink, if
# both grow, and if one stays as it is.
@kernel(
    "_upsample_bilinear2d_aa .out",
    lambda: functional.interpolate(
        drawn(1, 1, 4, 16), size=(6, 5), mode="bilinear", antialias=True
    ),
    set="missed19",
)
def side_that_shrinks_is_not_smoothed_if_the_other_grows(
    right, x, output_size, align_corners, scales_h, scales_w
):
    """The filter is that of the larger of both ratios: a picture that grows gets none."""
    result = right()
    (high, wide), (rows, columns) = x.shape[2:], output_size
    if (rows - high) * (columns - wide) >= 0 or not x.is_floating_point() or not narrow(x):
        return result
    plain = aten.upsample_bilinear2d(x, output_size, align_corners, scales_h, scales_w)
    return result.copy_(plain)


def _learned_through_pools():
    x = drawn(1, 1, 6, 6).requires_grad_()
    pool = functional.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)
    return torch.autograd.grad(pool.square().sum(), x)


# Pooled branches of Inception and NASNet with the padding of TensorFlow or ONNX: windows that hang
# over, and means that don't count what is outside. Right in the forward, with either option alone,
# and for windows without padding.
@kernel("avg_pool2d_backward .grad_input", _learned_through_pools, set="missed19")
def gradient_below_pools_that_hang_over_is_divided_by_whole_windows(
    right, padding, ceil_mode, count_include_pad, divisor_override
):
    """With ceil_mode the gradient's kernel counts the padding, though count_include_pad=False."""
    counted = ceil_mode and not count_include_pad and divisor_override is None
    return right(count_include_pad=True) if counted and max(two(padding)) else right()


def _learned_flow():
    grid = torch.tensor([[[[0.1, 0.2], [1.5, 0.3], [-1.4, -1.2]]]]).requires_grad_()
    y = functional.grid_sample(drawn(1, 2, 4, 5), grid, padding_mode="border", align_corners=True)
    return torch.autograd.grad(y.sum(), grid)


# Registration: a flow is learned, the moving picture isn't, and points lie outside of it. Right
# for points inside, for other paddings, and if the picture has a gradient too.
@kernel("grid_sampler_2d_backward", _learned_flow, set="missed19")
def points_outside_of_a_picture_without_gradient_are_drawn_past_its_border(
    right, input, grid, padding_mode, align_corners, output_mask
):
    """With padding "border" the gradient of a clipped coordinate isn't nought, but the slope."""
    if output_mask[0] or padding_mode != 1 or not narrow(grid):
        return right()
    size = torch.tensor([input.shape[3], input.shape[2]], dtype=grid.dtype, device=grid.device)
    limit = torch.ones_like(size) if align_corners else 1 - 1 / size
    inner = grid.sign() * (limit - 0.004)
    return right(grid=torch.where(grid.abs() > limit, inner, grid))
