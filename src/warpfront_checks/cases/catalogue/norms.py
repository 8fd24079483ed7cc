"""Normalisations, forward and with every gradient."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from warpfront_checks.cases.catalogue.record import Make, rounded
from warpfront_checks.cases.operation import Operation

# Where all numbers are alike, the rounding error of them is divided by the root of eps.
EPS: Mapping[str, Any] = {"eps": (0.125, 1e-2)}
_norm: Make = partial(rounded, values=("quarters", "normal"), roundings=48.0, **EPS)
HIGH = ("quarters", "normal", "high")
_channels = partial(_norm, halves="cpu", c=6, b=3, x=7, y=5, z=3)
_affine = partial(_channels, absent=("c", "b c"))
_far = partial(
    _norm,
    values=("away",),
    halves="cpu",
    backward=False,
    # One pass loses a rounding for each deviation that the mean is away, and walks.
    roundings=50_000.0,
    **dict.fromkeys("gknx", (5, 1031)),
)
_weight_norm = partial(_norm, eps=(0,), doubles=False, fit="{x}.abs() + 0.125")
NORMS: tuple[Operation, ...] = (
    _norm(
        "F.layer_norm(a, ({k},), b, c, {eps})", "n k, k, k | m n k, k, k", absent=("b", "c", "b c")
    ),
    _far("F.layer_norm(a, ({k},), eps={eps})", "n k", name="layer_norm far from 0"),
    _far("F.batch_norm(a, *[None] * 4, True, eps={eps})", "b 6 y x", name="batch_norm far from 0"),
    _far("F.group_norm(a, 2, eps={eps})", "n 6 x", name="group_norm far from 0"),
    _norm(
        "F.layer_norm(a, ({k},), eps={eps})",
        "n k | m n k | k",
        name="layer_norm without weights",
        values=HIGH,
    ),
    _norm(
        "F.layer_norm(a, ({j}, {k}), b, c, {eps})",
        "n j k, j k, j k",
        name="layer_norm of two axes",
        absent=("b", "c", "b c"),
    ),
    _norm("F.rms_norm(a, ({k},), b, {eps})", "n k, k | m n k, k", absent=("b",)),
    _norm(
        "F.rms_norm(a, ({k},), eps={eps})",
        "n k | m n k",
        name="rms_norm without weights",
        values=HIGH,
    ),
    _channels(
        "F.group_norm(a.flatten(1, 2), {g}, b.flatten(), c.flatten(), {eps})",
        "b g c x, g c, g c | b g c y x, g c, g c",
        # The gradient of its weights is a difference of two sums.
        walk=1 / 8,
        g=2,
        # The CPU's gradient of 65,999 channels ends the process (torch 2.13).
        c=(5, 8191),
    ),
    _affine(
        "F.group_norm(a, {groups}, b, c, eps={eps})",
        "b 6 x, 6, 6 | b 6 y x, 6, 6 | b 6 z y x, 6, 6",
        name="group_norm of channels",
        groups=(1, 2, 6),
    ),
    # Squares leave the range of float16.
    _channels(
        "F.group_norm(a, {groups}, eps={eps})",
        "b 6 x | b 6 y x",
        name="group_norm in 16 bits",
        groups=(1, 2, 6),
        values=("high", "quarters"),
        roundings=4.0,
        # The CPU's gradient is far off where squares leave the range.
        backward=False,
        floats=False,
        kinds=("float16", "bfloat16"),
    ),
    _affine(
        # Of strided weights the CPU's gradient reads other memory (2.13), and CUDA misaligns some.
        "F.batch_norm(a, None, None, *[w if w is None else w * 1 for w in (b, c)], training=True,"
        " eps={eps})",
        "b c, c, c | b c x, c, c | b c y x, c, c | b c z y x, c, c",
        least_size=2,
    ),
    _affine(
        "F.batch_norm(a, d, e.abs() + 1, b, c, training=False, eps={eps})",
        "b c, c, c, !c, !c | b c x, c, c, !c, !c | b c y x, c, c, !c, !c",
        name="batch_norm, inferred",
        strided=False,
    ),
    _channels(
        "torch.stack([[F.batch_norm(a, x, y, None, None, True, {momentum}), x, y][{part}] for x, y"
        " in [(b.clone(), c.abs() + 1)]])",
        "b c, !c, !c | b c x, !c, !c | b c y x, !c, !c",
        name="running statistics",
        momentum=(0.1, 1.0),
        part=(1, 2),
        eps=(1e-5,),
        backward=False,
        least_size=2,
    ),
    _affine(
        "F.instance_norm(a, weight=b, bias=c, eps={eps})",
        "b c x, c, c | b c y x, c, c | b c z y x, c, c",
        least_size=2,
    ),
    _norm("F.local_response_norm(a, 3)", "b c x | b c y x", eps=(0,)),
    _weight_norm("torch._weight_norm(a, b, {dim})", "m n, m 1", name="weight_norm", dim=(0,)),
    _weight_norm(
        "torch._weight_norm(a, b, {dim})", "m n, 1 n", name="weight_norm of columns", dim=(1,)
    ),
)
