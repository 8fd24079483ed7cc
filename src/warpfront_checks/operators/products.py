"""Matrix products, convolutions, pooling, attention and transforms: sums of products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.operations import Attention, Multilinear, Operation
from warpfront_checks.operators.bounds import Derived, Moved, Spread
from warpfront_checks.operators.cases import Case, Cases, Maker, OperatorFamily, View

MATMUL = Multilinear(kind="linear", function=torch.matmul)
# Lengths with large prime factors go through a longer transform: cuFFT was off by 100 roundings of
# the root of the sum of squares for 129 numbers in float64.
LOOSE = 1024.0
BROADCAST = Multilinear(kind="broadcast product", function=torch.matmul)
BMM = Multilinear(kind="linear", function=torch.bmm)


def _mirrored(x: Tensor) -> Tensor:
    return x.mT


def _last_format(x: Tensor) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=formats[x.dim()])


def _matmul(maker: Maker) -> Iterator[Case]:
    """Return cases of rows, inner lengths and columns around waves and tiles; no rows, no
    terms, one of each.
    """
    edges = [] if maker.quick else [31, 32, 64, 127, 1023, 1024, 1025, 4096]
    shapes = [(67, 129, 65), *((17, k, 33) for k in edges), (1, 65, 1), (129, 1, 65)]
    shapes += [(0, 5, 3), (5, 0, 3)]
    if maker.floating and not maker.quick:
        shapes += [(16, 32, 24), (128, 256, 512)]
    for rows, inner, columns in shapes:
        yield _product(maker, f"{rows}x{inner}x{columns}", (rows, inner), (inner, columns))
    yield _product(maker, "vectors", (129,), (129,))
    yield _product(maker, "batch broadcast", (3, 1, 9, 65), (5, 65, 7))
    for name, views in (("left", (_mirrored, None)), ("right", (None, _mirrored))):
        lhs, rhs = ((65, 33) if views[0] else (33, 65)), ((9, 65) if views[1] else (65, 9))
        yield _product(maker, f"{name} transposed", lhs, rhs, views)


def _product(
    maker: Maker,
    name: str,
    lhs: tuple[int, ...],
    rhs: tuple[int, ...],
    views: tuple[View | None, ...] = (),
) -> Case:
    return Case(
        name,
        MATMUL if len(lhs) == len(rhs) else BROADCAST,
        (maker.normal(*lhs), maker.normal(*rhs)),
        views=views,
        backward=maker.floating,
        reduces=True,
    )


def _bmm(maker: Maker) -> Iterator[Case]:
    inner = (67, 33) if maker.quick else (67, 32, 33, 64, 129, 512)
    for k in inner:
        tensors = (maker.normal(3, 17, k), maker.normal(3, k, 9))
        yield Case(f"3x17x{k}x9", BMM, tensors, reduces=True)
    tensors = (maker.normal(1, 17, 33), maker.normal(5, 33, 9))
    yield Case("expanded", BMM, tensors, views=(lambda x: x.expand(5, -1, -1), None), reduces=True)
    yield Case("no batch", BMM, (maker.normal(0, 3, 5), maker.normal(0, 5, 7)))


def _einsum(maker: Maker) -> Iterator[Case]:
    for form, lhs, rhs in (
        ("bij,bkj->bik", (3, 17, 67), (3, 9, 67)),
        ("bhqd,bhkd->bhqk", (2, 3, 9, 33), (2, 3, 17, 33)),
        ("ij,ij->", (17, 65), (17, 65)),
    ):
        yield Case(
            form,
            Multilinear(kind="linear", function=partial(torch.einsum, form)),
            (maker.normal(*lhs), maker.normal(*rhs)),
            reduces=True,
        )


def _convolution(function: Callable[..., Tensor], width: int, *, transposed: bool = False) -> Cases:
    """Return cases of kernels of 3 and 1, stride, padding, dilation, groups, bias, channels
    last, no batch.
    """

    def cases(maker: Maker) -> Iterator[Case]:
        size = {1: 65, 2: 13, 3: 7}[width]
        kind = "transposed convolution" if transposed else "convolution"
        settings = [
            ("plain", 3, 1, {}),
            ("stride 2, padding 1", 3, 1, {"stride": 2, "padding": 1}),
            ("kernel 1", 1, 1, {}),
            ("groups of 2", 3, 2, {"groups": 2, "padding": 1}),
            ("dilation 2", 3, 1, {"dilation": 2, "padding": 2}),
        ]
        for name, kernel, groups, options in settings[: 2 if maker.quick else None]:
            for bias in (False, True) if name.startswith("stride") else (False,):
                shape = (4, 6 // groups) if not transposed else (6, 4 // groups)
                weight = maker.normal(*shape, *([kernel] * width), scale=0.2)
                x = maker.normal(2, 6, *([size] * width))
                operation = Multilinear(kind=kind, function=partial(function, **options))
                tensors = (x, weight, *((maker.normal(4),) if bias else ()))
                label = name + (", bias" if bias else "")
                yield Case(label, operation, tensors, reduces=True)
                if width > 1 and name == "plain":
                    views = (_last_format, _last_format)
                    yield Case("channels last", operation, tensors, views=views, reduces=True)
        if width == 2 and not transposed:
            yield _pictures(maker)

    return cases


def _pictures(maker: Maker) -> Case:
    """Return PyFlame's own case: 2x3x32x32, kernel 3."""
    operation = Multilinear(kind="convolution", function=partial(functional.conv2d, padding=1))
    tensors = (maker.normal(2, 3, 32, 32), maker.normal(16, 3, 3, 3))
    return Case("2x3x32x32", operation, tensors, reduces=True)


def _pool(make: str, operation: Callable[[dict[str, int]], Operation], width: int) -> Cases:
    def cases(maker: Maker) -> Iterator[Case]:
        for name, options, shape in _windows(width):
            yield Case(name, operation(options), (getattr(maker, make)(*shape),), reduces=True)

    return cases


def _max_pool(function: Callable[..., Tensor], width: int) -> Cases:
    def operation(options: dict[str, int]) -> Operation:
        return Moved(function=partial(function, **options), kind="pooling")

    return _pool("distinct", operation, width)


def _avg_pool(function: Callable[..., Tensor], width: int) -> Cases:
    def operation(options: dict[str, int]) -> Operation:
        length = float(options["kernel_size"] ** width)
        return Multilinear(kind="pooling", function=partial(function, **options), length=length)

    return _pool("normal", operation, width)


def _windows(width: int) -> Iterator[tuple[str, dict[str, int], tuple[int, ...]]]:
    size = {1: 129, 2: 17, 3: 7}[width]
    yield "kernel 2", {"kernel_size": 2}, (2, 3, *([size] * width))
    yield (
        "kernel 3, stride 2, padding 1",
        {"kernel_size": 3, "stride": 2, "padding": 1},
        (2, 3, *([size] * width)),
    )
    yield "overlapping", {"kernel_size": 3, "stride": 1}, (1, 2, *([size] * width))
    yield "last window cut", {"kernel_size": 3, "ceil_mode": True}, (1, 2, *([size - 1] * width))


def _adaptive(function: Callable[..., Tensor], width: int) -> Cases:
    def cases(maker: Maker) -> Iterator[Case]:
        for output, size in ((1, 17), (5, 17), (7, 7)):
            # Windows of two sizes where the output's does not divide: one more at both ends.
            window = -(-size // output) + (1 if size % output else 0)
            length = float(window**width)
            operation = Multilinear(
                kind="pooling",
                function=partial(function, output_size=output),
                length=length,
                # Of a single window: divided by one side after the other, and stored.
                back=0.0 if size % output else width + 1.0,
            )
            tensors = (maker.normal(2, 3, *([size] * width)),)
            yield Case(f"{size} to {output}", operation, tensors)

    return cases


def _attention(maker: Maker) -> Iterator[Case]:
    for length in (33, 65) if maker.quick else (33, 65, 129):
        tensors = tuple(maker.normal(2, length, 64) for _ in range(3))
        yield Case(f"length {length}", Attention(heads=2), tensors, reduces=True)


def _fft(maker: Maker) -> Iterator[Case]:
    """Return cases of a transform. Its error grows with the logarithm of its length; every term
    meets every output. Lengths with a prime factor above 7 use another algorithm (Bluestein's),
    with more arithmetic for each output. cuFFT's in float64 was off by 1.15 times the others'
    budget on an H100.
    """

    def transform(x: Tensor) -> Tensor:
        return torch.view_as_real(torch.fft.rfft(x))

    def spreads(length: float, inputs: Sequence[Tensor], y: Tensor, g: Tensor) -> Sequence[Spread]:
        del y
        root = inputs[0].square().sum(-1, keepdim=True).sqrt()
        back = g.square().sum((-2, -1)).sqrt()
        return (
            Spread(size=root.unsqueeze(-1), length=length),
            Spread(size=back[..., None], length=length),
        )

    for size in (67, 64, 129, 1024):
        operation: Operation = Derived(
            function=transform,
            spreads=partial(spreads, LOOSE if size in {64, 1024} else 4 * LOOSE),
            kind="transform",
        )
        yield Case(f"{size}", operation, (maker.normal(3, size),), reduces=True)


PRODUCTS = OperatorFamily(
    name="products",
    cases={
        "matmul": _matmul,
        "batch_matmul": _bmm,
        "einsum": _einsum,
        "conv1d": _convolution(functional.conv1d, 1),
        "conv2d": _convolution(functional.conv2d, 2),
        "conv3d": _convolution(functional.conv3d, 3),
        "conv_transpose2d": _convolution(functional.conv_transpose2d, 2, transposed=True),
        "max_pool1d": _max_pool(functional.max_pool1d, 1),
        "max_pool2d": _max_pool(functional.max_pool2d, 2),
        "max_pool3d": _max_pool(functional.max_pool3d, 3),
        "avg_pool1d": _avg_pool(functional.avg_pool1d, 1),
        "avg_pool2d": _avg_pool(functional.avg_pool2d, 2),
        "avg_pool3d": _avg_pool(functional.avg_pool3d, 3),
        "adaptive_avg_pool1d": _adaptive(functional.adaptive_avg_pool1d, 1),
        "adaptive_avg_pool2d": _adaptive(functional.adaptive_avg_pool2d, 2),
        "attention": _attention,
        "fft": _fft,
    },
)
