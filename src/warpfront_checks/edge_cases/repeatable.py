"""Deterministic algorithms: the same bits every time, and no uninitialised memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.edge_cases.answers import TRUE, Answer, CaseContext, HazardClass, array, rows

TIMES = 3
COUNT = 30_011


def _leaf_gradient(call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    leaf = x.detach().clone().requires_grad_()
    y = call(leaf)
    y.backward(torch.linspace(-1, 1, y.numel(), device=y.device, dtype=y.dtype).reshape(y.shape))
    return leaf.grad


# Sums in which atomic additions would come in any order.
CALLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index_add": lambda x, index: torch.zeros(7, device=x.device).index_add(0, index, x),
    "index_put": lambda x, index: torch.zeros(7, device=x.device).index_put(
        (index,), x, accumulate=True
    ),
    "scatter_add": lambda x, index: torch.zeros(7, device=x.device).scatter_add(0, index, x),
    "gradient of indexing": lambda x, index: _leaf_gradient(lambda t: t[index], x[:7]),
    "gradient of gather": lambda x, index: _leaf_gradient(lambda t: t.gather(0, index), x[:7]),
    "gradient of embedding": lambda x, index: _leaf_gradient(
        lambda t: functional.embedding(index, t), x[:21].reshape(7, 3)
    ),
    "cumsum": lambda x, _: x.cumsum(0),
    "sum": lambda x, _: x.sum(),
    "convolution": lambda x, _: _leaf_gradient(
        lambda w: functional.conv2d(x[:24_000].reshape(5, 3, 40, 40), w, padding=1),
        x[:108].reshape(4, 3, 3, 3),
    ),
    "linear": lambda x, _: _leaf_gradient(
        lambda w: functional.linear(x[:29_970].reshape(-1, 30), w), x[:90].reshape(3, 30)
    ),
    "max_pool2d": lambda x, _: _leaf_gradient(
        lambda t: functional.max_pool2d(t, 3, 1), x[:3600].reshape(1, 1, 60, 60)
    ),
    "layer_norm": lambda x, _: _leaf_gradient(
        lambda w: functional.layer_norm(x[:29_970].reshape(-1, 30), (30,), w), x[:30]
    ),
}


@contextmanager
def _deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _repeats(name: str, ground: CaseContext) -> Iterator[Answer]:
    x, index = ground.send(ground.normal(COUNT)), ground.index(7, COUNT).to(ground.device)
    with _deterministic():
        try:
            first = CALLS[name](x, index)
        except RuntimeError as error:
            if "determinis" not in str(error):
                raise
            return
        for time in range(1, TIMES):
            again = CALLS[name](x, index)
            yield Answer(f"time {time}", again, array(first.cpu().double()))


def _unwritten(ground: CaseContext) -> Iterator[Answer]:
    """Check that new memory is filled with NaN, so that no kernel reads leftovers by chance."""
    with _deterministic():
        for label, x in (
            ("empty", torch.empty(1025, device=ground.device)),
            ("empty_like", torch.empty_like(torch.ones(65, 33, device=ground.device))),
            ("new_empty", torch.ones(3, device=ground.device).new_empty(77)),
            ("resize_", torch.ones(3, device=ground.device).resize_(99)[3:]),
        ):
            yield Answer(label, x.isnan().all(), TRUE)


REPEATABLE = HazardClass(
    name="determinism",
    asks="do deterministic algorithms give the same bits each time",
    hazards=(
        *rows({name: partial(_repeats, name) for name in CALLS}, each_seed=True),
        *rows({"memory that nobody wrote": _unwritten}),
    ),
)
