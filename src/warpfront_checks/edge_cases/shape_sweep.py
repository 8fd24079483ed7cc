"""Products and convolutions of all kinds of shapes: by them a kernel is chosen."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.cases.known import KnownDefect
from warpfront_checks.edge_cases.answers import USUAL, Answer, CaseContext, HazardClass, array, rows
from warpfront_checks.edge_cases.lone_axes import LONE_AXES

# Single numbers, vectors, around warps, wavefronts and tiles, and whole tiles.
EDGES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 256, 257, 512)
QUICK_EDGES = (1, 2, 4, 33, 64, 128, 256)
# The rest of the shapes are drawn: other ones for each seed.
DRAWN = 16
# More than a grid of blocks of rows covers, by any of its dimensions.
TALL = 2**19 + 70
Numbers = Any


def _shapes(ground: CaseContext) -> Iterator[tuple[int, int, int]]:
    """Return the numbers of rows, terms and columns."""
    for edge in QUICK_EDGES:
        yield edge, edge, edge
        yield edge, 33, 5
        yield 5, edge, 33
        yield 33, 5, edge
    yield from ((70, 1, 5), (257, 1, 129), (5, 1, 300))
    for _ in range(DRAWN):
        choices = ground.index(len(EDGES), 3).tolist()
        yield EDGES[choices[0]], EDGES[choices[1]], EDGES[choices[2]]


def _turned(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT


def _products(ground: CaseContext) -> Iterator[Answer]:
    """Check products of integers, which are exact: plain and transposed, with a
    bias and without.
    """
    for m, k, n in _shapes(ground):
        a, b, c = ground.whole(m, k, most=2), ground.whole(k, n, most=2), ground.whole(n)
        expected = array(a @ b)
        x, y, bias = ground.send(a), ground.send(b), ground.send(c)
        where = f"{m} by {k} by {n}"
        forms: tuple[Callable[[Tensor], Tensor], ...] = (torch.clone, _turned)
        for form, other in itertools.product(forms, forms):
            label = f"{form.__name__} and {other.__name__}, {where}".replace("_turned", "turned")
            yield Answer(f"mm, {label}", form(x) @ other(y), expected, ulps=1)
            actual = torch.addmm(bias, form(x), other(y), beta=-1, alpha=2)
            yield Answer(f"addmm, {label}", actual, 2 * expected - array(c), ulps=2)
        yield Answer(
            f"linear, {where}", functional.linear(x, y.mT, bias), expected + array(c), ulps=1
        )
        pair = torch.stack([x, x + 1]), torch.stack([y, y])
        more = np.stack([expected, expected + array(b).sum(0)])
        yield Answer(f"bmm, {where}", torch.bmm(*pair), more, ulps=1)
        actual = torch.baddbmm(bias.expand(2, m, n), *pair, beta=1, alpha=2)
        yield Answer(f"baddbmm, {where}", actual, array(c) + 2 * more, ulps=2)
        yield Answer(f"mv, {where}", torch.mv(x, y[:, 0]), expected[:, 0], ulps=1)
        destination = ground.send(torch.full((m, n), 9.0))
        torch.mm(x, y, out=destination)
        yield Answer(f"mm over what was there, {where}", destination, expected, ulps=1)
        rest = torch.outer(x[:, 0], y[0])
        yield Answer(f"outer, {where}", rest, np.outer(array(a)[:, 0], array(b)[0]), ulps=1)


def _repeated(ground: CaseContext) -> Iterator[Answer]:
    """Check operands that repeat one row or column, and their gradients."""
    for m, k, n in ((33, 65, 17), (2, 2, 2), (64, 64, 64)):
        row, column, b = ground.whole(1, k), ground.whole(k, 1), ground.whole(k, n)
        x, y = ground.send(row).expand(m, k), ground.send(column).expand(k, n)
        ones = ground.whole(m, k)
        yield Answer(f"one row, {m}", x @ ground.send(b), array(row.expand(m, k) @ b), ulps=1)
        expected = array(ones @ column.expand(k, n))
        yield Answer(f"one column, {m}", ground.send(ones) @ y, expected, ulps=1)
        leaf, grad_output = (
            ground.send(row).expand(m, k).clone().requires_grad_(),
            ground.whole(1, n),
        )
        (leaf @ ground.send(b)).backward(ground.send(grad_output).expand(m, n))
        expected = array(grad_output.expand(m, n) @ b.mT)
        yield Answer(f"gradient, {m}", leaf.grad, expected, ulps=1)


def _reductions(ground: CaseContext) -> Iterator[Answer]:
    """Reduce one number, a few, a row and a column."""
    for m, n in [(1, n) for n in EDGES] + [(n, 1) for n in EDGES] + [(4, 8), (2, 3), (70, 70)]:
        x = ground.whole(m, n, most=1)
        on_device, a, where = ground.send(x), array(x), f"{m} by {n}"
        for axis in (0, 1):
            yield Answer(f"sum along {axis}, {where}", on_device.sum(axis), a.sum(axis))
            yield Answer(f"mean along {axis}, {where}", on_device.mean(axis), a.mean(axis), ulps=2)
            yield Answer(f"amax along {axis}, {where}", on_device.amax(axis), a.max(axis))
            yield Answer(f"prod along {axis}, {where}", on_device.prod(axis), a.prod(axis))
            yield Answer(f"any along {axis}, {where}", (on_device > 0).any(axis), (a > 0).any(axis))
            yield Answer(
                f"all along {axis}, {where}", (on_device > -1).all(axis), (a > -1).all(axis)
            )
            yield Answer(f"cumsum along {axis}, {where}", on_device.cumsum(axis), a.cumsum(axis))
            yield Answer(
                f"sort along {axis}, {where}", on_device.sort(axis).values, np.sort(a, axis)
            )
        yield Answer(f"sum, {where}", on_device.sum(), a.sum())
        yield Answer(f"mean, {where}", on_device.mean(), a.mean(), ulps=2)
        yield Answer(f"max, {where}", on_device.max(), a.max())
        yield Answer(f"all, {where}", (on_device > -1).all(), (a > -1).all())
        yield Answer(f"any, {where}", (on_device > 0).any(), (a > 0).any())


# More right sides than a launch takes are solved in parts, and those of the batch are mixed up.
SIDES_IN_PARTS = KnownDefect(
    thread="pytorch#187717", label="^sides of triangles$", device="cuda", before=None
)


def _tall(ground: CaseContext) -> Iterator[Answer]:
    a, b = ground.whole(TALL, 5, most=2), ground.whole(5, 3, most=2)
    expected = array(a @ b)
    x, y = ground.send(a), ground.send(b)
    yield Answer("mm", x @ y, expected, ulps=1)
    actual = functional.linear(x, y.mT, ground.send(torch.ones(3)))
    yield Answer("linear", actual, expected + 1, ulps=1)
    yield Answer("wide", (y.mT @ x.mT).mT, expected, ulps=1)
    yield Answer("sums", x.sum(1), array(a.sum(1)), ulps=1)
    if ground.half:
        return
    sides = ground.whole(2, 2, TALL)
    lower = torch.tensor([[[1.0, 0.0], [3.0, 2.0]], [[2.0, 0.0], [-1.0, 4.0]]]).double()
    actual = torch.linalg.solve_triangular(ground.send(lower), ground.send(sides), upper=False)
    yield Answer("sides of triangles", actual, array(lower.inverse() @ sides), ulps=4)


@dataclass(frozen=True, kw_only=True)
class Window:
    """A convolution: places, channels in and out, and torch's own arguments."""

    places: tuple[int, ...]
    kernel: tuple[int, ...]
    channels: tuple[int, int] = (3, 5)
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    count: int = 2
    turned: bool = False


def _windows() -> Iterator[Window]:
    for size in (1, 2, 3, 4, 5, 7, 11, 16):
        for stride in (1, 2, 10):
            yield Window(places=(33, 35), kernel=(size, size), stride=stride)
    for channels in ((1, 1), (1, 32), (4, 4), (8, 16), (16, 32), (32, 32), (33, 17), (64, 96)):
        yield Window(places=(16, 16), kernel=(3, 3), channels=channels, padding=1)
        yield Window(places=(9, 9), kernel=(1, 1), channels=channels)
        yield Window(places=(14, 15), kernel=(3, 3), channels=channels, padding=1, stride=2)
    for dilation in (2, 3):
        yield Window(places=(17, 19), kernel=(3, 3), channels=(7, 4), dilation=dilation, padding=2)
    for alone, stride in itertools.product((1, 16, 24, 33), (1, 2)):
        yield Window(
            places=(6, 7),
            kernel=(3, 3),
            channels=(alone, alone),
            groups=alone,
            stride=stride,
            padding=1,
        )
    for groups in (2, 8):
        yield Window(places=(9, 8), kernel=(3, 3), channels=(8, 16), groups=groups)
    yield Window(places=(65,), kernel=(5,), channels=(4, 6), padding=2)
    yield Window(places=(64,), kernel=(3,), channels=(4, 6), stride=3, dilation=2)
    for kernel in ((1, 3, 3), (3, 1, 1), (3, 3, 3)):
        yield Window(places=(6, 9, 7), kernel=kernel, channels=(3, 4))
        yield Window(places=(7, 8, 9), kernel=kernel, channels=(16, 16), stride=2, padding=1)
    for stride in (1, 2, 3):
        yield Window(places=(7, 9), kernel=(3, 3), stride=stride, turned=True)
        yield Window(places=(5, 6, 4), kernel=(2, 3, 1), stride=stride, turned=True)
    yield Window(places=(2, 2), kernel=(3, 3), count=70, padding=1)


def _pixels_and_taps() -> Iterator[Window]:
    """Return windows of images that are one pixel wide, and filters longer than a
    wavefront has lanes.
    """
    for places in ((1, 1), (1, 7), (7, 1)):
        yield Window(places=places, kernel=(3, 3), padding=1)
    for groups in (1, 2):
        yield Window(places=(150,), kernel=(71,), channels=(4, 6), groups=groups)
        yield Window(places=(2, 80), kernel=(1, 67), channels=(4, 6), groups=groups)


def _named(pool: Window) -> str:
    prefix = "transposed " if pool.turned else ""
    form = f"stride {pool.stride}, padding {pool.padding}, dilation {pool.dilation}"
    return f"{prefix}{pool.channels} {pool.kernel} over {pool.places}, {form}, groups {pool.groups}"


_TURNS = 3


def _convolved(ground: CaseContext) -> Iterator[Answer]:
    """Check forward and both gradients, in both formats, by sums over windows in float64."""
    formats = (torch.contiguous_format, torch.channels_last)
    turn = itertools.islice(_windows(), ground.seed % _TURNS, None, _TURNS)
    for window in itertools.chain(turn, _pixels_and_taps()):
        inside = window.channels[1] if window.turned else window.channels[0]
        first, last = window.channels[0] // window.groups, window.channels[1]
        x = ground.whole(window.count, inside, *window.places, most=2)
        w = ground.whole(last, first, *window.kernel, most=2)
        size = np.prod(window.kernel) * max(window.channels)
        expected, grad_output, slopes = _summed(window, x, w, ground)
        for form in formats if len(window.places) == 2 else formats[:1]:
            leaves = [
                ground.send(t).contiguous(memory_format=form).requires_grad_() for t in (x, w)
            ]
            actual = _call(window)(*leaves)
            # A transform's rounding, where that is how it is done; a fault is at least 1.
            slack = 0.01 + (2 * ground.eps * size if ground.half else 0.0)
            label = f"{_named(window)}, {str(form).removeprefix('torch.')}"
            yield Answer(label, actual, expected, ulps=1, slack=slack)
            gradients = torch.autograd.grad(actual, leaves, ground.send(grad_output))
            for name, mine, slope in zip(("input", "weight"), gradients, slopes, strict=True):
                off = 2 * ground.eps * np.abs(slope).max() if ground.half else 0.0
                yield Answer(f"gradient of {name}, {label}", mine, slope, ulps=1, slack=slack + off)


def _call(window: Window) -> Callable[[Tensor, Tensor], Tensor]:
    axes, kwargs = len(window.places), {"stride": window.stride, "padding": window.padding}
    name = f"conv_transpose{axes}d" if window.turned else f"conv{axes}d"
    call = getattr(functional, name)
    return lambda x, w: call(x, w, dilation=window.dilation, groups=window.groups, **kwargs)


def _summed(
    window: Window, x: Tensor, w: Tensor, ground: CaseContext
) -> tuple[Numbers, Tensor, list[Numbers]]:
    """Return the result, its gradient, and both inputs' gradients. A convolution is a product
    with columns, and its transposed the gradient of one.
    """
    big = _grown(window) if window.turned else tuple(x.shape[2:])
    start = torch.zeros(window.count, window.channels[0], *big).double() if window.turned else x
    columns, back = _columns(window, start, w)
    if not window.turned:
        expected = columns(x, w)
        grad_output = ground.few(*expected.shape)
        return (
            array(expected),
            grad_output,
            [array(back(grad_output, w)), array(_of_weight(columns, x, w, grad_output))],
        )
    expected = back(x, w)
    grad_output = ground.few(*expected.shape)
    return (
        array(expected),
        grad_output,
        [array(columns(grad_output, w)), array(_of_weight(columns, grad_output, w, x))],
    )


def _grown(window: Window) -> tuple[int, ...]:
    return tuple(
        (place - 1) * window.stride - 2 * window.padding + window.dilation * (size - 1) + 1
        for place, size in zip(window.places, window.kernel, strict=True)
    )


Step = Callable[[Tensor, Tensor], Tensor]


def _columns(window: Window, x: Tensor, w: Tensor) -> tuple[Step, Step]:
    """Return the inputs of each place of a window, as slices: its sum over them, and
    the way back.
    """
    pad = [window.padding] * 2 * len(window.kernel)
    padded = tuple(n + 2 * window.padding for n in x.shape[2:])
    out = [
        (n - window.dilation * (size - 1) - 1) // window.stride + 1
        for n, size in zip(padded, window.kernel, strict=True)
    ]
    slices = [
        tuple(
            slice(
                start * window.dilation,
                start * window.dilation + (count - 1) * window.stride + 1,
                window.stride,
            )
            for start, count in zip(place, out, strict=True)
        )
        for place in itertools.product(*(range(size) for size in window.kernel))
    ]
    places = list(itertools.product(*(range(size) for size in window.kernel)))

    def forward(x: Tensor, w: Tensor) -> Tensor:
        wide = functional.pad(x, pad)
        total = torch.zeros(len(x), window.groups, len(w) // window.groups, *out).double()
        for place, cut in zip(places, slices, strict=True):
            visible = wide[(slice(None), slice(None), *cut)].unflatten(1, (window.groups, -1))
            total += torch.einsum("ngc...,goc->ngo...", visible, _at(window, w, place))
        return total.flatten(1, 2)

    def backward(grad_output: Tensor, w: Tensor) -> Tensor:
        wide = torch.zeros(
            len(grad_output), window.groups, window.channels[0] // window.groups, *padded
        ).double()
        parts = grad_output.unflatten(1, (window.groups, -1))
        for place, cut in zip(places, slices, strict=True):
            visible = torch.einsum("ngo...,goc->ngc...", parts, _at(window, w, place))
            wide[(slice(None), slice(None), slice(None), *cut)] += visible
        inner = tuple(slice(window.padding, n - window.padding) for n in padded)
        return wide[(slice(None), slice(None), slice(None), *inner)].flatten(1, 2)

    return forward, backward


def _at(window: Window, w: Tensor, place: tuple[int, ...]) -> Tensor:
    return w[(slice(None), slice(None), *place)].unflatten(0, (window.groups, -1))


def _of_weight(forward: Step, x: Tensor, w: Tensor, grad_output: Tensor) -> Tensor:
    """Return the weight's gradient: the result is linear in the weight, so it is the
    contribution of each number.
    """
    leaf = w.clone().requires_grad_()
    (forward(x, leaf) * grad_output).sum().backward()
    return leaf.grad


SHAPES = HazardClass(
    name="shapes",
    narrow=("windows",),
    asks="are products, windows and lone axes right whatever the shape that a kernel is chosen by",
    hazards=(
        *rows(
            {"products": _products, "repeated operands": _repeated, "reductions": _reductions},
            USUAL,
        ),
        *rows({"tall": _tall}, known=(SIDES_IN_PARTS,)),
        *rows({"windows": _convolved}, USUAL, turns=_TURNS),
        *LONE_AXES,
    ),
)
