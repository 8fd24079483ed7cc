"""Operands that are slices of one memory, which kernels of many pointers have to tell apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpfront.inside.checks.hazards.answers import USUAL, Answer, Ground, Hazards, array, rows

Slices = Callable[[Tensor], list[Tensor]]
Call = Callable[[list[Tensor]], Any]
# Three of one shape, of a table of 12 by 12 for each of two.
SLICES: Mapping[str, Slices] = {
    "columns": lambda x: [x[..., at] for at in (0, 3, 11)],
    "rows": lambda x: [x[:, at] for at in (0, 3, 11)],
    "every third": lambda x: [x[..., at::3] for at in range(3)],
    "every third row": lambda x: [x[:, at::3] for at in range(3)],
    "parts": lambda x: list(x.chunk(3, -1)),
    "backwards": lambda x: [x[:, 8:], x[:, 4:8], x[:, :4]],
    "one over another": lambda x: [x[:, at : at + 8] for at in range(3)],
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


def _of_slices(call: Call, ground: Ground) -> Iterator[Answer]:
    x = ground.whole(2, 12, 12)
    sent = ground.send(x)
    for name, slices in SLICES.items():
        yield Answer(f"{name}", call(slices(sent)), array(call(slices(x))), ulps=2)


ONE_MEMORY: Hazards = rows(
    {f"{name} of slices": partial(_of_slices, call) for name, call in CALLS.items()}, USUAL
)
