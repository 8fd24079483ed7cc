"""Operands that are slices of one memory, which kernels of many pointers have to tell apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.edge_cases.answers import USUAL, Answer, CaseContext, Hazards, array, rows

Slices = Callable[[Tensor], list[Tensor]]
Call = Callable[[list[Tensor]], Any]
# Three of one shape, of a table of 12 by 12 for each of two.
SLICES: Mapping[str, Slices] = {
    "columns": lambda x: [x[..., index] for index in (0, 3, 11)],
    "rows": lambda x: [x[:, index] for index in (0, 3, 11)],
    "every third": lambda x: [x[..., index::3] for index in range(3)],
    "every third row": lambda x: [x[:, index::3] for index in range(3)],
    "parts": lambda x: list(x.chunk(3, -1)),
    "backwards": lambda x: [x[:, 8:], x[:, 4:8], x[:, :4]],
    "one over another": lambda x: [x[:, index : index + 8] for index in range(3)],
    "turned": lambda x: list(x.mT.chunk(3, 1)),
    "the same": lambda x: [x, x, x],
}
CALLS: Mapping[str, Call] = {
    "stack": torch.stack,
    "stack at the end": partial(torch.stack, dim=-1),
    "cat": torch.cat,
    "cat at the end": partial(torch.cat, dim=-1),
    "hstack": torch.hstack,
    "addcmul": lambda s: torch.addcmul(*s, value=2),
    "where": lambda s: torch.where(s[0] > 0, s[1], s[2]),
    "lerp": lambda s: torch.lerp(*s),
    "sum": lambda s: s[0] + 2 * s[1] - 3 * s[2],
    "product": lambda s: torch.einsum("n...,n...->n", s[0], s[1]),
    "foreach": lambda s: torch.cat([x.flatten() for x in torch._foreach_mul(s, s[::-1])]),
    "foreach addcmul": lambda s: torch.cat(
        [x.flatten() for x in torch._foreach_addcmul(s, s[::-1], s, 2)]
    ),
    "clamp": lambda s: torch.clamp(s[0], torch.minimum(s[1], s[2]), torch.maximum(s[1], s[2])),
}


def _of_slices(call: Call, ground: CaseContext) -> Iterator[Answer]:
    x = ground.whole(2, 12, 12)
    on_device = ground.send(x)
    for name, slices in SLICES.items():
        yield Answer(f"{name}", call(slices(on_device)), array(call(slices(x))), ulps=2)


Written = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
# Into a table of 5 by 8: two rows at two places, and a table where a mask is set.
INTO_ONE_ROW: Mapping[str, Written] = {
    "index_add": lambda x, index, two, _: x.index_add(0, index, two),
    "index_copy": lambda x, index, two, _: x.index_copy(0, index, two),
    "index_fill": lambda x, index, _two, _: x.index_fill(0, index, 7),
    "index_put": lambda x, index, two, _: x.index_put((index,), two),
    "scatter": lambda x, index, two, _: x.scatter(0, index[:, None].expand_as(two), two),
    "scatter_add": lambda x, index, two, _: x.scatter_add(0, index[:, None].expand_as(two), two),
    "masked_fill": lambda x, _at, _two, table: x.masked_fill(table > 0, 7),
    "masked_scatter": lambda x, _at, _two, table: x.masked_scatter(table > 0, table),
    "select_scatter": lambda x, _at, two, _: x.select_scatter(two[0], 0, 3),
    "slice_scatter": lambda x, _at, two, _: x.slice_scatter(two, 0, 1, 3),
}


def _into_one_row(call: Written, ground: CaseContext) -> Iterator[Answer]:
    """Check a table whose rows share memory: its result has rows of its own."""
    row, two, table, index = ground.whole(1, 8), ground.whole(2, 8), ground.whole(5, 8), [3, 0]
    operands = ground.send(row).expand(5, 8), torch.tensor(index, device=ground.device)
    actual = call(*operands, ground.send(two), ground.send(table))
    expected = call(row.repeat(5, 1), torch.tensor(index), two, table)
    yield Answer("rows", actual, array(expected))


ONE_MEMORY: Hazards = (
    *rows({f"{name} of slices": partial(_of_slices, call) for name, call in CALLS.items()}, USUAL),
    *rows(
        {
            f"{name} into one row": partial(_into_one_row, call)
            for name, call in INTO_ONE_ROW.items()
        },
        USUAL,
    ),
)
