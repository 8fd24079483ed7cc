"""Sparse tensors: by coordinates and by rows, summed, multiplied, converted, and as the
gradient of an embedding. Integers: every sum is exact.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.edge_cases.answers import Answer, CaseContext, HazardClass, array, rows

# Rows, columns and numbers that are not zero: fewer than rows, more than any block.
FORMS = ((7, 5, 4), (130, 70, 900), (4099, 33, 9000))
LAYOUTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "coordinates": lambda x: x.to_sparse(),
    "rows": lambda x: x.to_sparse_csr(),
    "columns": lambda x: x.to_sparse_csc(),
}
Call = Callable[[Tensor, Tensor], Tensor]
PRODUCTS: Mapping[str, Call] = {
    "with a table": lambda x, y: x @ y,
    "with a vector": lambda x, y: (x @ y[:, 0])[:, None],
    "added": lambda x, y: torch.addmm(y.sum() + torch.zeros_like(x @ y), x, y, beta=2, alpha=3),
}


def _drawn(ground: CaseContext, high: int, wide: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return indices, some of them repeated, their numbers, and the sum of them as a full table."""
    places = torch.stack([ground.index(high, count), ground.index(wide, count)])
    numbers = ground.whole(count) + 8
    full = torch.zeros(high, wide, dtype=torch.float64)
    return places, numbers, full.index_put_(tuple(places), numbers, accumulate=True)


def _gathered(ground: CaseContext) -> Iterator[Answer]:
    for form in FORMS:
        places, numbers, full = _drawn(ground, *form)
        on_device = torch.sparse_coo_tensor(
            places.to(ground.device), ground.send(numbers), form[:2], check_invariants=False
        )
        once = on_device.coalesce()
        yield Answer(f"{form}, full", on_device.to_dense(), array(full))
        yield Answer(f"{form}, places", once.indices(), array(full.nonzero().mT))
        yield Answer(f"{form}, numbers", once.values(), array(full[full != 0]))
        yield Answer(f"{form}, doubled", (on_device + once).to_dense(), array(2 * full))
        yield Answer(f"{form}, turned", on_device.mT.to_dense(), array(full.mT))
        yield Answer(f"{form}, sums", torch.sparse.sum(on_device, 0).to_dense(), array(full.sum(0)))


def _turned(layout: str, ground: CaseContext) -> Iterator[Answer]:
    for form in FORMS:
        *_, full = _drawn(ground, *form)
        on_device = LAYOUTS[layout](ground.send(full))
        yield Answer(f"{form}, full", on_device.to_dense(), array(full))
        for other, into in LAYOUTS.items():
            yield Answer(f"{form}, as {other}", into(on_device).to_dense(), array(full))


def _multiplied(layout: str, ground: CaseContext) -> Iterator[Answer]:
    for form in FORMS:
        *_, full = _drawn(ground, *form)
        table = ground.whole(form[1], 9)
        on_device, other = LAYOUTS[layout](ground.send(full)), ground.send(table)
        for name, call in PRODUCTS.items():
            yield Answer(f"{form}, {name}", call(on_device, other), array(call(full, table)))


def _learned(ground: CaseContext) -> Iterator[Answer]:
    """Check gradients of both operands of a product, and of an embedding's few rows."""
    for form in FORMS:
        *_, full = _drawn(ground, *form)
        table, grad_output = ground.whole(form[1], 9), ground.whole(form[0], 9)
        leaf = ground.send(full).to_sparse().requires_grad_()
        other = ground.send(table).requires_grad_()
        torch.sparse.mm(leaf, other).backward(ground.send(grad_output))
        yield Answer(f"{form}, table", other.grad, array(full.mT @ grad_output))
        expected = (grad_output @ table.mT) * (full != 0)
        yield Answer(f"{form}, sparse", leaf.grad.to_dense(), array(expected))
        index = ground.index(form[0], 2 * form[0])
        weight = ground.send(full).requires_grad_()
        chosen = functional.embedding(index.to(ground.device), weight, sparse=True)
        chosen.sum().backward()
        counts = index.bincount(minlength=form[0]).double()[:, None].expand_as(full)
        yield Answer(f"{form}, embedding", weight.grad.to_dense(), array(counts))


def _in_blocks(ground: CaseContext) -> Iterator[Answer]:
    """Convert tables of whole blocks, some of them zero, there and back."""
    full = (ground.whole(6, 10) * ground.few(3, 5).ne(0).repeat_interleave(2, 0).repeat(1, 2)) + (
        torch.arange(60.0).view(6, 10).double()
    )
    on_device = ground.send(full)
    for size in ((2, 2), (3, 5), (1, 10)):
        yield Answer(f"rows of {size}", on_device.to_sparse_bsr(size).to_dense(), array(full))
        yield Answer(f"columns of {size}", on_device.to_sparse_bsc(size).to_dense(), array(full))


def _quietly(
    answers: Callable[[CaseContext], Iterator[Answer]], ground: CaseContext
) -> Iterator[Answer]:
    """Suppress torch's warning that some of these are a beta, once a process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from answers(ground)


ANSWERS: Mapping[str, Callable[[CaseContext], Iterator[Answer]]] = {
    "gathered": _gathered,
    "learned": _learned,
    **{f"from {name}": partial(_turned, name) for name in LAYOUTS},
    **{f"products by {name}": partial(_multiplied, name) for name in LAYOUTS},
}
SPARSE = HazardClass(
    name="sparse",
    asks="are sparse tensors added, multiplied and converted right",
    seen_on=("cpu", "cuda"),
    hazards=(
        *rows({name: partial(_quietly, answers) for name, answers in ANSWERS.items()}),
        *rows({"blocks": partial(_quietly, _in_blocks)}, devices=("cpu",)),
    ),
)
