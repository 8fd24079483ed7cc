"""Products of more rows than a grid of blocks covers, and axes that kernels omit or fold."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from warpfront_checks.cases.known import KnownDefect
from warpfront_checks.edge_cases.answers import Answer, CaseContext, HazardClass, array, rows
from warpfront_checks.edge_cases.lone_axes import LONE_AXES

# More than a grid of blocks of rows covers, by any of its dimensions.
TALL = 2**19 + 70
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


SHAPES = HazardClass(
    name="shapes",
    asks="are long products and lone axes right, which kernels cut in parts or fold",
    hazards=(*rows({"tall": _tall}, known=(SIDES_IN_PARTS,)), *LONE_AXES),
)
