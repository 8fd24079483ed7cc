"""Operations that move numbers: shapes, layouts, joins, indices, order, dropout."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.operations import Multilinear
from warpfront_checks.operators.bounds import Elementwise, Moved
from warpfront_checks.operators.cases import Case, Cases, Maker, OperatorFamily

DRAWS = 100_000
SIGMAS = 6.0


def _moved(
    function: Callable[..., Tensor], *shapes: tuple[int, ...], inputs: int = 1, strides: bool = True
) -> Cases:
    """Return cases of an exact operation; strides are compared unless its result
    is always dense.
    """
    operation = Moved(function=function)

    def cases(maker: Maker) -> Iterator[Case]:
        for shape in shapes:
            yield Case(
                "x".join(str(size) for size in shape) or "0-dim",
                operation,
                tuple(maker.normal(*shape) for _ in range(inputs)),
                backward=maker.floating,
                strides=strides,
            )

    return cases


def _gather(maker: Maker) -> Iterator[Case]:
    for size in (67, *maker.edges):
        index = maker.indices(size, 5, 33)

        def gather(x: Tensor, index: Tensor = index) -> Tensor:
            return torch.gather(x, 1, index.to(x.device))

        yield Case(
            f"5x{size}",
            Moved(function=gather, kind="scatter"),
            (maker.normal(5, size),),
            backward=maker.floating,
        )


def _embedding(maker: Maker) -> Iterator[Case]:
    """Return cases of rows looked up many times: the gradient of each is a sum
    of scattered rows.
    """
    for width in (65, *maker.edges):
        index = maker.indices(9, 2, 17)

        def look_up(weight: Tensor, index: Tensor = index) -> Tensor:
            return functional.embedding(index.to(weight.device), weight)

        yield Case(
            f"width {width}", Moved(function=look_up, kind="scatter"), (maker.normal(9, width),)
        )


def _scattered(method: str) -> Cases:
    """Return cases of rows or elements added at repeated indices, by the
    device's atomic additions.
    """

    def cases(maker: Maker) -> Iterator[Case]:
        for width in (65, *maker.edges):
            index = maker.indices(9, 33)

            def add(x: Tensor, rows: Tensor, index: Tensor = index) -> Tensor:
                places = index.to(x.device)
                if method == "scatter_add":
                    places = places[:, None].expand_as(rows)
                return getattr(torch, method)(x, 0, places, rows)

            yield Case(
                f"width {width}",
                Multilinear(kind="scatter", function=add),
                (maker.normal(9, width), maker.normal(33, width)),
                backward=maker.floating,
            )

    return cases


def _ordered(order: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Cases:
    """Return cases of values, and of the numbers that the indices point to: both must be
    correct and in order.
    """

    def both(x: Tensor) -> Tensor:
        values, index = order(x)
        return torch.stack([values, x.gather(-1, index)])

    def cases(maker: Maker) -> Iterator[Case]:
        for size in (67, 32, 33, 64, 65, 129, 250):
            yield Case(
                f"5x{size}",
                Moved(function=both),
                (maker.distinct(5, size),),
                backward=maker.floating,
            )

    return cases


def _sort(x: Tensor) -> tuple[Tensor, Tensor]:
    values, index = torch.sort(x, dim=-1)
    return values, index


def _topk(x: Tensor) -> tuple[Tensor, Tensor]:
    values, index = torch.topk(x, 9, dim=-1)
    return values, index


def _dropout(maker: Maker) -> Iterator[Case]:
    """Return cases of dropout. At p = 0 nothing is dropped; at p = 1/2 the survivors
    are doubled and about half survive. Their selection is the device's own random
    stream: never compared.
    """
    yield from _moved(
        lambda x: functional.dropout(x, p=0.0, training=True), (67, 65), strides=False
    )(maker)
    yield Case(
        "survivors are doubled",
        Moved(function=_survivors),
        (maker.positive(67, 65),),
        backward=False,
    )
    share = Elementwise(
        function=_share, ulps_half=0.0, absolute=SIGMAS * 0.5 * DRAWS**-0.5, kind="random"
    )
    if maker.dtype == torch.float32:
        ones = (torch.full((DRAWS,), 1.0, dtype=maker.dtype),)
        yield Case("half survive", share, ones, backward=False)


def _survivors(x: Tensor) -> Tensor:
    survivors = functional.dropout(x, p=0.5, training=True)
    return torch.where(survivors == 0, 2 * x, survivors)


def _share(x: Tensor) -> Tensor:
    """Return the surviving share; the reference, in float64, is the probability itself."""
    if x.dtype == torch.float64:
        return torch.tensor(0.5, dtype=torch.float64)
    return (functional.dropout(x, p=0.5, training=True) != 0).to(x.dtype).mean()


MOVES = OperatorFamily(
    name="moves",
    cases={
        "transpose": _moved(lambda x: x.transpose(0, -1), (67, 129), (5, 33, 65), (0, 3)),
        "permute": _moved(lambda x: x.permute(2, 0, 1), (5, 33, 65)),
        "reshape": _moved(lambda x: x.transpose(0, 1).reshape(-1), (67, 129), (33, 5, 7), (0, 3)),
        "view": _moved(lambda x: x.view(-1, 2, x.shape[-1] // 2), (67, 128), (3, 64)),
        "squeeze": _moved(lambda x: x.squeeze(1), (67, 1, 65), (33, 1)),
        "unsqueeze": _moved(lambda x: x.unsqueeze(-1), (67, 65), (1025,), ()),
        "copy": _moved(torch.clone, (67, 129), (1025,), (), (0, 3)),
        "contiguous": _moved(lambda x: x.mT.contiguous(), (67, 129), (5, 33, 65)),
        "layout_transform": _moved(
            lambda x: x.to(memory_format=torch.channels_last), (2, 5, 7, 9), (1, 3, 32, 32)
        ),
        "concat": _moved(
            lambda a, b: torch.cat([a, b, a], dim=-1), (67, 65), (5, 33), (3, 0), inputs=2
        ),
        "stack": _moved(lambda a, b: torch.stack([a, b], dim=1), (67, 65), (33,), inputs=2),
        "slice": _moved(lambda x: x[1:-1, 3::2], (67, 129), (33, 65)),
        "broadcast": _moved(lambda x: x.expand(7, -1, 65), (67, 1), (33, 65)),
        "gather": _gather,
        "embedding": _embedding,
        "index_add": _scattered("index_add"),
        "scatter_add": _scattered("scatter_add"),
        "sort": _ordered(_sort),
        "topk": _ordered(_topk),
        "dropout": _dropout,
    },
)
