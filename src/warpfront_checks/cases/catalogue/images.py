"""Pools, resizing, padding and sampling of images, lines and volumes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from warpfront_checks.cases.catalogue.record import Fields, Make, each, moved, rounded, steps
from warpfront_checks.cases.operation import Operation

CASES = 58
SHAPE = {1: "b c x", 2: "b c y x", 3: "b c z y x"}
DIMS: Fields = {str(dims): {"shapes": shape} for dims, shape in SHAPE.items()}
# Of a batch, and of one alone.
ALONE: Fields = {dims: {"shapes": f"{x['shapes']} | {x['shapes'][2:]}"} for dims, x in DIMS.items()}
SIZED: Mapping[str, Any] = {"b": 2, "c": 3, "y": 8, "x": 9, "z": 6}
# An adaptive pool's results may have 125 numbers for each of an argument.
ADAPTED = 100_000
# Windows of which the largest are alone.
_largest: Make = partial(
    moved, values=("distinct",), halves="cpu", roundings=2.0, cases=CASES, **SIZED
)
_mean: Make = partial(
    rounded,
    values=("quarters", "normal", "equal"),
    walk=0.0,
    half_roundings=8.0,
    cases=CASES,
    **SIZED,
)
POOLS = (
    *each(
        ALONE,
        _largest,
        "F.max_pool$d(a, {kernel}, {stride}, {padding}, {dilation}, ceil_mode={ceil})",
        least_size=6,
        values=("distinct", "non-finite"),
    ),
    *each(
        DIMS,
        _largest,
        "F.max_pool$d(a, 2, {stride}, return_indices=True)[1]",
        name="max_pool$d's indices",
        backward=False,
        # Of equal numbers the first.
        values=("distinct", "small"),
    ),
    *each(
        DIMS,
        _largest,
        "F.max_unpool$d(*F.max_pool$d(a, 2, return_indices=True), 2, output_size=a.shape[2:])",
    ),
    *each(DIMS, _largest, "F.adaptive_max_pool$d(a, {size})", work=ADAPTED),
    _mean(
        "F.avg_pool1d(a, {kernel}, {stride}, {padding}, {ceil}, {counted})", SHAPE[1], least_size=2
    ),
    *each(
        {dims: ALONE[dims] for dims in "23"},
        _mean,
        "F.avg_pool$d(a, {kernel}, {stride}, {padding}, {ceil}, {counted}, {divisor})",
        least_size=3,
    ),
    *each(DIMS, _mean, "F.adaptive_avg_pool$d(a, {size})", work=ADAPTED, walk=1 / 16),
    _mean(
        "F.lp_pool2d(a, {p}, {kernel}, ceil_mode={ceil})",
        SHAPE[2],
        p=(1, 2),
        fit="{x}.abs() + 0.5",
        least_size=3,
    ),
)
# In 16 bits gradients are rounded at each addition. Sizes are primes, and the factor is the golden
# ratio: no place lies between two pixels but for the rounding of its coordinate.
_resized = partial(
    _mean,
    cancels=False,
    halves="cpu",
    roundings=128.0,
    walk=4.0,
    work=20_000,
    cases=38,
    b=(2, 67),
    c=(3, 67),
)
SHRUNK = 0.6180339887498949
_nearest: Make = partial(
    moved,
    **{**SIZED, "y": (7, 1023), "x": (9, 1023), "z": (5, 1023)},
    values=("small", "few"),
    # Results may have a thousand numbers for each of an argument.
    work=20_000,
)
RESIZED = (
    *(
        _resized(
            f"F.interpolate(a, size={size}, mode={mode!r}, align_corners={{corners}})",
            SHAPE[dims],
            name=f"resized, {mode}",
            long=(1, 2, 41, 97),
            wide=(3, 31),
        )
        for mode, dims, size in (
            ("linear", 1, "({long},)"),
            ("bilinear", 2, "({wide}, {long})"),
            ("bicubic", 2, "({wide}, {long})"),
            ("trilinear", 3, "({wide}, 5, {long})"),
        )
    ),
    *each(
        {
            mode: {"shapes": SHAPE[dims], "factor": steps(dims, 2.0, SHRUNK, 1 + SHRUNK)}
            for mode, dims in {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}.items()
        },
        _resized,
        "F.interpolate(a, scale_factor={factor}, mode='$', recompute_scale_factor={recomputed})",
        name="resized by a factor, $",
        recomputed=(None, True),
        # The pixel of a place is found in float32 (2.13).
        doubles=False,
        least_size=2,
    ),
    *each(
        "bilinear bicubic",
        _resized,
        "F.interpolate(a, size=({wide}, {long}),"
        " mode='$', antialias=True, align_corners={corners})",
        SHAPE[2],
        name="resized smoothly, $",
        long=(2, 41, 97),
        wide=(3, 31),
    ),
    *(
        _nearest(
            f"F.interpolate(a, scale_factor={{factor}}, mode={mode!r})",
            SHAPE[dims],
            name=f"resized, {mode}, {dims} axes",
            factor=steps(dims, 2.0, 1 + SHRUNK, SHRUNK),
            ulps=2.0,
        )
        for mode in ("nearest", "nearest-exact")
        for dims in (1, 2, 3)
    ),
    # On the border of two pixels rounding of the scale decides. Borders are multiples of a common
    # factor; "nearest-exact" has them in the middle of an even number of pixels.
    *(
        _nearest(
            f"F.interpolate(a, size=({out or '{tall} * {y}, {wide} * {x}'}), mode={mode!r})",
            SHAPE[2],
            name=f"resized to a {'size' if out else 'multiple'}, {mode}",
            domain=domain if out else "",
            **options,
            ulps=2.0,
        )
        for mode, domain in (
            ("nearest", "math.gcd(y, wide) == math.gcd(x, long) == 1"),
            ("nearest-exact", "y % 2 == x % 2 == 1"),
        )
        for out, options in (
            ("{wide}, {long}", {"wide": (3, 7, 31), "long": (1, 11, 41)}),
            ("", {"tall": (1, 2), "wide": (1, 2, 3)}),
        )
    ),
    *each(
        "bilinear bicubic",
        _resized,
        "F.interpolate(a, size=({tall} * {y}, {tall} * {x}), mode='$', align_corners={corners})",
        SHAPE[2],
        name="resized to a multiple, $",
        tall=(1, 2),
    ),
    _resized(
        "F.interpolate(a, size=({wide}, {long}), mode='area')",
        SHAPE[2],
        name="resized, area",
        long=(2, 5),
        wide=(3, 4),
    ),
)
_still: Make = partial(moved, **SIZED)
PADDED = (
    *(
        _still(
            f"F.pad(a, ({{left}}, {{right}}{', 1, {bottom}' * (dims > 1)}"
            f"{', {bottom}, 1' * (dims > 2)}), mode={mode!r})",
            SHAPE[dims],
            name=f"padded, {mode}, {dims} axes",
            left=(1, 2, -1),
            right=(2, -1),
            bottom=(1, -1),
            values=("small", "few"),
            ulps=2.0,
            least_size=3,
        )
        for mode in ("reflect", "replicate", "circular")
        for dims in (1, 2, 3)
    ),
    _still(
        "F.pad(a, {pads}, mode='constant', value=7.0)",
        SHAPE[2],
        name="padded and cut",
        pads=((1, 2, 0, 1), (-1, 2, 1, -2), (2, -1, -2, 0)),
        least_size=4,
    ),
    _still("F.pixel_shuffle(a.flatten(1, 2), 2)", "b c 4 y x"),
    _still(
        "F.pixel_unshuffle(a.repeat(1, 1, 2, 2), 2)", SHAPE[2], ulps=2.0, values=("small", "few")
    ),
    _still(
        "F.channel_shuffle(a.flatten(1, 2), {g})", "b g c y x", g=2, backward=False, strided=False
    ),
)
_looked = partial(
    rounded,
    cancels=False,
    least=8.0,
    # The gradient of a pixel adds up what all places give it.
    walk=1 / 64,
    halves="cpu",
    # Rounded to bfloat16 a place is off by 3 / 1024 of the pixels: it stays between the same two.
    half_size=31,
    b=2,
    c=3,
    y=(6, 259),
    x=(7, 259),
    z=(5, 67),
)
# Places between 0.15 and 0.4 of the way to the next pixel, of each image: at a pixel the gradient
# of the grid jumps, and halfway the nearest one changes. Quarters make the floor exact.
# Or an image's own edge, where its corners are aligned: no rounding moves it.
_PLACED = (
    "(lambda g, n, c: g + (torch.where({{edge}} & (c == 1) & g.abs().ge(1), g.sign(),"
    " (2 * ((g * n / 2).floor() + 0.15 + (g * 4 % 4) / 12) + 1 - c) / (n - c).clamp(min=1) - 1)"
    " - g).detach())(b, torch.tensor({n}, device=b.device), int({{corners}}))"
)
SAMPLED = (
    *(
        _looked(
            f"F.grid_sample(a, {_PLACED.format(n=n).replace('<', '{').replace('>', '}')},"
            f" {mode!r}, {{padding}}, {{corners}})",
            shapes,
            name=f"grid_sample{of}, {mode}",
            padding=("zeros", "border", "reflection")[: 2 if mode == "nearest" else 3],
            corners=(False, True),
            backward=mode != "nearest",
            values=("quarters",),
            # A bicubic gradient moves with its place, which is rounded at up to 259 pixels.
            roundings=1024.0 if mode == "bicubic" else 256.0,
        )
        for of, shapes, n, modes in (
            ("", "b c y x, b p q 2", "[<x>, <y>]", ("bilinear", "bicubic", "nearest")),
            (" of volumes", "b c z y x, b p q r 3", "[<x>, <y>, <z>]", ("bilinear", "nearest")),
        )
        for mode in modes
    ),
    rounded(
        "F.affine_grid(a, ({n}, 1, {tall}, {wide}), {corners})",
        "n 2 3",
        corners=(False, True),
        tall=(1, 3, 67),
        wide=(5, 33),
        domain="n * tall * wide < 400_000",
    ),
)
IMAGES: tuple[Operation, ...] = (*POOLS, *RESIZED, *PADDED, *SAMPLED)
