"""Images of one, two and three axes in every operation that treats their channels separately.
Each runs from every memory order, forward and backward, against float64 on the CPU.

One and three axes have here the checks that `layouts` has of two, with sides of three lengths.
Operations that move channels receive them in their format, no two of them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.edge_cases.answers import (
    USUAL,
    Answer,
    CaseContext,
    Hazard,
    HazardClass,
    array,
    rows,
)
from warpfront_checks.edge_cases.layouts import PADDED_LAST, PICTURES, both_ways

Call = Callable[..., Tensor]
LINE, PICTURE, VOLUME = (9,), (6, 5), (4, 6, 5)
# As many places on each axis as there are channels.
SQUARE = (12, 12)


def _resized(mode: str, **kwargs: Any) -> Call:
    return lambda x: functional.interpolate(x, mode=mode, **kwargs)


def _padded(pads: tuple[int, ...], mode: str) -> Call:
    return lambda x: functional.pad(x, pads, mode=mode)


LINES: Mapping[str, Call] = {
    "avg_pool1d": lambda x: functional.avg_pool1d(x, 3, 2, 1),
    "avg_pool1d, padding not counted": lambda x: functional.avg_pool1d(
        x, 3, 2, 1, count_include_pad=False
    ),
    "adaptive_avg_pool1d": lambda x: functional.adaptive_avg_pool1d(x, 4),
    "linear": _resized("linear", size=14),
    "linear by 1.7": _resized("linear", scale_factor=1.7),
    "nearest": _resized("nearest", size=4),
    "nearest, exactly": _resized("nearest-exact", size=14),
    "reflected": _padded((2, 3), "reflect"),
    "replicated": _padded((2, 3), "replicate"),
    "circular": _padded((2, 3), "circular"),
}
PICTURED: Mapping[str, Call] = {
    "pixel_shuffle": lambda x: functional.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: functional.pixel_unshuffle(x[..., :4], 2),
    "bilinear by 1.7": _resized("bilinear", scale_factor=1.7),
    "bicubic by 1.7": _resized("bicubic", scale_factor=1.7),
    "nearest by 1.7": _resized("nearest", scale_factor=1.7),
    "replicated": _padded((2, 1, 0, 3), "replicate"),
    "circular": _padded((2, 1, 0, 3), "circular"),
    "adaptive_avg_pool2d": lambda x: functional.adaptive_avg_pool2d(x, (4, 2)),
    "avg_pool2d, rounded up": lambda x: functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "avg_pool2d, divided by 5": lambda x: functional.avg_pool2d(x, (2, 3), divisor_override=5),
    "joined formats": lambda x: torch.cat([x, x.contiguous()], 1),
    "prelu": lambda x: functional.prelu(x, torch.arange(12, device=x.device, dtype=x.dtype) / 4),
    "glu of channels": lambda x: functional.glu(x / 8, 1),
    "softmax of channels": lambda x: (x / 4).softmax(1),
    "log_softmax of channels": lambda x: (x / 4).log_softmax(1),
    "amax of channels": lambda x: x.amax(1),
    "var of channels": lambda x: x.var(1),
    "fold": lambda x: functional.fold(x.flatten(2), (7, 6), (2, 2)),
    "local_response_norm": lambda x: functional.local_response_norm(x, 3),
    "normalize": lambda x: functional.normalize(x + 0.25, dim=1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "rot90": lambda x: x.rot90(1, (2, 3)),
    "index_select": lambda x: x.index_select(1, torch.tensor([5, 0, 5], device=x.device)),
}
VOLUMES_OF: Mapping[str, Call] = {
    "avg_pool3d": lambda x: functional.avg_pool3d(x, 3, 2, 1),
    "avg_pool3d, padding not counted": lambda x: functional.avg_pool3d(
        x, 3, 2, 1, count_include_pad=False
    ),
    "avg_pool3d, rounded up": lambda x: functional.avg_pool3d(x, (2, 3, 2), 2, ceil_mode=True),
    "adaptive_avg_pool3d": lambda x: functional.adaptive_avg_pool3d(x, (2, 4, 3)),
    "adaptive_avg_pool3d, whole windows": lambda x: functional.adaptive_avg_pool3d(x, (2, 2, 5)),
    "trilinear": _resized("trilinear", size=(7, 5, 8)),
    "trilinear by 1.7": _resized("trilinear", scale_factor=1.7),
    "trilinear, corners aligned": _resized("trilinear", size=(7, 5, 8), align_corners=True),
    "nearest": _resized("nearest", size=(7, 5, 8)),
    "nearest by 1.7": _resized("nearest", scale_factor=1.7),
    "nearest, exactly": _resized("nearest-exact", size=(7, 5, 8)),
    "area": _resized("area", size=(3, 5, 2)),
    "padded": _padded((1, 2, 0, 3, 2, 1), "constant"),
    "reflected": _padded((1, 2, 0, 3, 2, 1), "reflect"),
    "replicated": _padded((1, 2, 0, 3, 2, 1), "replicate"),
    "circular": _padded((1, 2, 0, 3, 2, 1), "circular"),
    "flip": lambda x: x.flip((2, 4)),
    "mean of places": lambda x: x.mean((2, 3, 4)),
    "sum of channels": lambda x: x.sum(1),
}


# Accelerators shuffle channels of images whose pixels are one row of memory, and refuse others.
IN_ROWS = ("contiguous", "channels_last", "shifted", "spread")


def _of(
    axes: tuple[int, ...], call: Call, ground: CaseContext, forms: Sequence[str] = tuple(PICTURES)
) -> Iterator[Answer]:
    """Compare a call on images of these axes in each format. Shares of neighbours are rounded,
    and in 16 bits so are intermediates.
    """
    if ground.quick and (ground.half or axes == LINE):
        return
    x = ground.whole(2, 12, *axes, most=8)
    for form in ("channels_last",) if ground.quick else forms:
        most = 8 if ground.half else 64
        yield from both_ways(call, ground, [x], [form], f", {form}", ulps=2, roundings=most)


def _shuffled(x: Tensor) -> Tensor:
    return functional.channel_shuffle(x, 4)


LARGEST: Mapping[str, tuple[tuple[int, ...], Call]] = {
    "max_pool1d": (LINE, partial(functional.max_pool1d, kernel_size=3, stride=2, padding=1)),
    "adaptive_max_pool1d": (LINE, partial(functional.adaptive_max_pool1d, output_size=4)),
    "max_pool2d, overlapping": (PICTURE, partial(functional.max_pool2d, kernel_size=3, stride=1)),
    "max_pool3d": (VOLUME, partial(functional.max_pool3d, kernel_size=2)),
    "max_pool3d, overlapping": (
        VOLUME,
        partial(functional.max_pool3d, kernel_size=3, stride=2, padding=1),
    ),
    "max_pool3d, dilated": (
        VOLUME,
        partial(functional.max_pool3d, kernel_size=2, stride=1, dilation=2),
    ),
    "adaptive_max_pool3d": (VOLUME, partial(functional.adaptive_max_pool3d, output_size=(2, 4, 3))),
}


def _largest(name: str, ground: CaseContext) -> Iterator[Answer]:
    """Check distinct numbers, so that each gradient has one destination."""
    if ground.quick and ground.half:
        return
    axes, call = LARGEST[name]
    count = torch.Size(axes).numel()
    orders = [torch.randperm(count, generator=ground.generator) for _ in range(6)]
    x = torch.stack(orders).reshape(2, 3, *axes).double()
    for form in ("channels_last",) if ground.quick else PICTURES:
        yield from both_ways(call, ground, [x], [form], f", {form}", roundings=8)


CONVOLUTIONS: Mapping[str, tuple[tuple[int, ...], tuple[int, ...], Call]] = {
    "conv1d": (LINE, (5, 6, 3), partial(functional.conv1d, stride=2, padding=1)),
    "conv1d, dilated": (LINE, (5, 6, 3), partial(functional.conv1d, dilation=3, padding=2)),
    "conv1d of groups": (LINE, (9, 2, 4), partial(functional.conv1d, groups=3)),
    "conv1d, depthwise": (LINE, (6, 1, 4), partial(functional.conv1d, groups=6, padding=3)),
    "conv_transpose1d": (
        LINE,
        (6, 5, 3),
        partial(functional.conv_transpose1d, stride=2, padding=1, output_padding=1),
    ),
    "conv_transpose2d of groups": (
        PICTURE,
        (6, 2, 3, 2),
        partial(functional.conv_transpose2d, stride=3, padding=1, output_padding=2, groups=2),
    ),
    "conv_transpose2d, dilated": (
        PICTURE,
        (6, 5, 3, 2),
        partial(functional.conv_transpose2d, stride=2, dilation=2, output_padding=1),
    ),
    "conv2d, long strides": (
        PICTURE,
        (5, 6, 2, 3),
        partial(functional.conv2d, stride=(3, 2), dilation=(2, 1), padding=(1, 2)),
    ),
    "conv2d to one place": (PICTURE, (5, 6, 6, 5), functional.conv2d),
    "conv3d": (VOLUME, (5, 6, 3, 2, 3), partial(functional.conv3d, stride=2, padding=1)),
    "conv3d, dilated": (VOLUME, (5, 6, 2, 3, 2), partial(functional.conv3d, dilation=(1, 2, 3))),
    "conv3d of groups": (VOLUME, (9, 2, 3, 1, 2), partial(functional.conv3d, groups=3)),
    "conv3d, depthwise": (VOLUME, (6, 1, 2, 3, 2), partial(functional.conv3d, groups=6)),
    "conv_transpose3d": (
        VOLUME,
        (6, 4, 2, 3, 2),
        partial(functional.conv_transpose3d, stride=2, padding=1, output_padding=1),
    ),
}


def _convolution(name: str, ground: CaseContext) -> Iterator[Answer]:
    """Check convolutions by the bound of two axes: a fault in integers is at least 1."""
    if ground.quick and (ground.half or "groups" not in name):
        return
    axes, kernel, call = CONVOLUTIONS[name]
    x, weight = ground.whole(2, 6, *axes, most=2), ground.whole(*kernel, most=2)
    for form in ("channels_last",) if ground.quick else PICTURES:
        off = {"roundings": 2.0} if ground.half else {"slack": 0.01}
        yield from both_ways(call, ground, [x, weight], [form], f", {form}", ulps=1, **off)


NORMS: Mapping[str, Call] = {
    "batch_norm": lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
    "group_norm": lambda x, w, b: functional.group_norm(x, 3, w, b),
    "instance_norm": lambda x, w, b: functional.instance_norm(x, weight=w, bias=b),
}


def _norm(axes: tuple[int, ...], name: str, ground: CaseContext) -> Iterator[Answer]:
    if ground.quick:
        return
    x, weight, bias = ground.whole(3, 6, *axes), ground.whole(6) + 5, ground.whole(6)
    for form in PICTURES:
        tolerance = {"ulps": 2.0, "roundings": 24.0 if ground.half else 64.0, "size": 1.0}
        yield from both_ways(
            NORMS[name], ground, [x, weight, bias], [form], f", {form}", **tolerance
        )


# Inside, on the faces, edges and corners, and beyond them: depth, height and width differ.
PLACES = torch.tensor(
    [[-1, -1, -1], [1, 1, 1], [0.25, -0.875, 0.0625], [-1.25, 1.75, 0.5], [0.375, -1, 2.25]]
)


def _looked_at(mode: str, padding: str, corners: bool, ground: CaseContext) -> Iterator[Answer]:
    if ground.quick and mode != "bilinear":
        return
    x, grid = ground.whole(2, 3, *VOLUME), PLACES.double().expand(2, 1, 1, -1, -1)
    call = partial(functional.grid_sample, mode=mode, padding_mode=padding, align_corners=corners)
    for form in ("channels_last",) if ground.quick else PICTURES:
        yield from both_ways(call, ground, [x, grid], [form], f", {form}", roundings=128, size=1)


LOOKS = {
    f"looks into {padding}, {mode}{', corners aligned' * corners}": partial(
        _looked_at, mode, padding, corners
    )
    for padding in ("zeros", "border", "reflection")
    for mode in ("bilinear", "nearest")
    for corners in (False, True)
}
# Of a line, channels_last and swapped are one order of memory.
PADDED_LINES = replace(PADDED_LAST, label=r"^gradient .*, (channels_last|swapped)$")
PADDED_MEANS = {
    "avg_pool1d, one axis": PADDED_LINES,
    "avg_pool1d, padding not counted, one axis": PADDED_LINES,
    **{
        f"avg_pool2d, rounded up, {of}": replace(PADDED_LAST, label="^gradient .*, channels_last$")
        for of in ("two axes", "square")
    },
}


def _known(row: Hazard) -> Hazard:
    return replace(row, known=(PADDED_MEANS[row.name],)) if row.name in PADDED_MEANS else row


def _doubled(ground: CaseContext) -> Iterator[Answer]:
    """Double every length up to 130: a kernel that divides first falls short for some."""
    for mode in ("nearest", "nearest-exact"):
        for size in range(1, 131):
            x = ground.whole(1, 2, size, 2)
            actual = functional.interpolate(ground.send(x), size=(2 * size, 4), mode=mode)
            yield Answer(f"{mode} of {size}", actual, array(x).repeat(2, -2).repeat(2, -1))


VOLUMES = HazardClass(
    name="axes",
    asks="are pictures of one, two and three axes right from every order of memory",
    hazards=(
        *map(
            _known,
            rows(
                {
                    **{f"{n}, one axis": partial(_of, LINE, c) for n, c in LINES.items()},
                    **{f"{n}, two axes": partial(_of, PICTURE, c) for n, c in PICTURED.items()},
                    **{
                        f"{n}, square": partial(
                            _of, SQUARE, c, forms=("contiguous", "channels_last")
                        )
                        for n, c in PICTURED.items()
                        if n != "fold"
                    },
                },
                USUAL,
            ),
        ),
        *rows(
            {"channel_shuffle, two axes": partial(_of, PICTURE, _shuffled, forms=IN_ROWS)}, USUAL
        ),
        *rows({f"{n}, three axes": partial(_of, VOLUME, c) for n, c in VOLUMES_OF.items()}, USUAL),
        *rows({name: partial(_largest, name) for name in LARGEST}, USUAL),
        *rows({name: partial(_convolution, name) for name in CONVOLUTIONS}, USUAL),
        *rows({f"{n}, one axis": partial(_norm, LINE, n) for n in NORMS}, USUAL),
        *rows({f"{n}, three axes": partial(_norm, VOLUME, n) for n in NORMS}, USUAL),
        *rows(LOOKS),
        *rows({"places twice": _doubled}),
    ),
)
