"""Long: sums of many thousand terms, scans and sorts over many blocks, more rows than a grid has."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch.nn import functional

from warpfront.inside.checks.hazards.answers import (
    SINGLE,
    Answer,
    Ground,
    HazardClass,
    array,
    rows,
)

# A grid has at most 65,535 blocks in its second and third dimension.
GRID = 65_535
# Scans and sorts go block by block, blocks by blocks of blocks.
SCANNED = (1025, 4097, 65_537, 300_001)


def _many(ground: Ground, here: int, on_the_cpu: int) -> int:
    return on_the_cpu if ground.device == "cpu" or ground.quick else here


def _products(ground: Ground) -> Iterator[Answer]:
    """K of many thousands: the sum is exact, in whatever order and in however many parts."""
    for k in (8192, 16_385, 65_536):
        a, b = ground.few(17, k), ground.few(k, 33)
        right = array(a @ b)
        sent = ground.send(a), ground.send(b)
        # Whole numbers to 256 in bfloat16, to 2048 in float16: what is larger is rounded once.
        for label, found in (
            ("matmul", sent[0] @ sent[1]),
            ("linear", functional.linear(sent[0], sent[1].mT)),
            ("transposed", (sent[1].mT @ sent[0].mT).mT),
            ("bmm", torch.bmm(sent[0][None], sent[1][None])[0]),
            ("addmm", torch.addmm(ground.send(torch.ones(33)), *sent) - 1),
            ("vector", torch.mv(sent[0], sent[1][:, 0])[:, None]),
            ("dot", torch.dot(sent[0][0], sent[1][:, 0])[None, None]),
            ("einsum", torch.einsum("ik,kj->ij", *sent)),
        ):
            part = right[: found.shape[0], : found.shape[1]]
            yield Answer(label=f"{label}, K {k}", found=found, right=part, ulps=1)


def _product_gradients(ground: Ground) -> Iterator[Answer]:
    """Rows of many thousands are what a weight's gradient sums over."""
    count = 16_385
    x, fed = ground.few(count, 9), ground.few(count, 7)
    sent = ground.send(x)
    weight = ground.send(ground.few(7, 9)).requires_grad_()
    bias = ground.send(ground.few(7)).requires_grad_()
    functional.linear(sent, weight, bias).backward(ground.send(fed))
    assert weight.grad is not None
    assert bias.grad is not None
    yield Answer(label="weight", found=weight.grad, right=array(fed.mT @ x), ulps=1)
    yield Answer(label="bias", found=bias.grad, right=array(fed.sum(0)), ulps=1)


def _sums(ground: Ground) -> Iterator[Answer]:
    """Whole numbers whose every partial sum is exact in float32."""
    for count in (65_537, 1_000_003, _many(ground, 100_000_000, 4_000_037)):
        if ground.half and count > 10**7:
            continue
        x = ground.whole(count, most=1)
        sent, total = ground.send(x), float(x.sum())
        yield Answer(label=f"sum of {count}", found=sent.sum(), right=total, ulps=1)
        yield Answer(
            label=f"float32 sum of {count}", found=sent.sum(dtype=torch.float32), right=total
        )
        yield Answer(label=f"mean of {count}", found=sent.mean(), right=total / count, ulps=2)
        yield Answer(label=f"amax of {count}", found=sent.amax(), right=1.0)
        ones = (sent == 1).sum()
        yield Answer(label=f"count of {count}", found=ones, right=int((x == 1).sum()))
        del sent
    x = ground.whole(3, 65_537, most=1)
    sent = ground.send(x)
    yield Answer(label="along rows", found=sent.sum(1), right=array(x.sum(1)), ulps=1)
    yield Answer(
        label="down columns",
        found=ground.send(x.mT.contiguous()).sum(0),
        right=array(x.sum(1)),
        ulps=1,
    )
    yield Answer(
        label="many rows",
        found=ground.send(x.mT.contiguous()).sum(1),
        right=array(x.sum(0)),
        ulps=1,
    )
    yield Answer(label="both axes", found=sent.sum((0, 1)), right=float(x.sum()), ulps=1)
    yield Answer(
        label="every third", found=sent[:, ::3].sum(1), right=array(x[:, ::3].sum(1)), ulps=1
    )
    spot = torch.full((1_000_003,), -1.0).double()
    spot[777_777] = 3.0
    yield Answer(label="argmax", found=ground.send(spot).argmax(), right=777_777)
    yield Answer(label="argmin", found=ground.send(-spot).argmin(), right=777_777)
    yield Answer(label="max's index", found=ground.send(spot).max(0).indices, right=777_777)
    yield Answer(label="any", found=(ground.send(spot) > 2).any(), right=np.array(True))
    yield Answer(label="all", found=(ground.send(spot) < 2).all(), right=np.array(False))
    yield Answer(
        label="nonzero", found=(ground.send(spot) > 2).nonzero()[:, 0], right=np.array([777_777])
    )


def _scans(ground: Ground) -> Iterator[Answer]:
    """Steps of -1, 0 and 1 in turn, so that running sums stay small and exact."""
    for count in SCANNED:
        x = torch.diff(ground.whole(2, count + 1, most=8 if ground.half else 1000), dim=1)
        sent, a = ground.send(x), array(x)
        yield Answer(label=f"cumsum of {count}", found=sent.cumsum(1), right=a.cumsum(1))
        down = ground.send(x.mT.contiguous())
        yield Answer(label=f"cumsum down {count}", found=down.cumsum(0).mT, right=a.cumsum(1))
        signs = torch.where(ground.whole(2, count, most=1) > 0, -1.0, 1.0).double()
        found = ground.send(signs).cumprod(1)
        yield Answer(label=f"cumprod of {count}", found=found, right=array(signs).cumprod(1))
        yield Answer(
            label=f"cummax of {count}",
            found=sent.cummax(1).values,
            right=np.maximum.accumulate(a, 1),
        )
        leaf = ground.send(x).requires_grad_()
        leaf.cumsum(1).backward(ground.send(x))
        assert leaf.grad is not None
        yield Answer(
            label=f"gradient of cumsum of {count}",
            found=leaf.grad,
            right=a[:, ::-1].cumsum(1)[:, ::-1].copy(),
        )
    integers = ground.index(1000, 3, 100_003)
    for dtype in (torch.int64, torch.int32):
        found = integers.to(dtype).to(ground.device).cumsum(1)
        yield Answer(label=f"cumsum, {dtype}", found=found, right=array(integers).cumsum(1))


def _orders(ground: Ground) -> Iterator[Answer]:
    """Permutations: no two numbers are equal, so values and places have one right order."""
    for count in (1025, 4097, 65_537, _many(ground, 2_000_003, 300_001)):
        x = torch.randperm(count, generator=ground.generator)
        a, sent = array(x), x.float().to(ground.device)
        values, places = sent.sort()
        yield Answer(label=f"sort of {count}", found=values, right=np.sort(a).astype(np.float64))
        yield Answer(label=f"places of {count}", found=places, right=np.argsort(a, kind="stable"))
        top = sent.topk(min(100, count))
        yield Answer(
            label=f"topk of {count}",
            found=top.values,
            right=np.sort(a)[::-1][:100].astype(np.float64),
        )
        yield Answer(
            label=f"topk's places of {count}",
            found=top.indices,
            right=np.argsort(-a, kind="stable")[:100],
        )
        lowest = sent.topk(100, largest=False)
        yield Answer(label=f"lowest of {count}", found=lowest.values, right=np.arange(100.0))
        middle = sent.kthvalue(count // 3)
        yield Answer(label=f"kthvalue of {count}", found=middle.values, right=float(count // 3 - 1))
        yield Answer(label=f"median of {count}", found=sent.median(), right=float((count - 1) // 2))
        yield Answer(
            label=f"unique of {count}", found=x.to(ground.device).unique(), right=np.arange(count)
        )
        found = torch.searchsorted(torch.arange(count).to(ground.device), x.to(ground.device))
        yield Answer(label=f"searchsorted in {count}", found=found, right=a)
    wide = torch.stack([torch.randperm(2049, generator=ground.generator) for _ in range(70)])
    found = wide.to(ground.device).sort(1).values
    yield Answer(label="rows of 2049", found=found, right=np.sort(array(wide), 1))
    found = wide.mT.contiguous().to(ground.device).sort(0).values.mT
    yield Answer(label="columns of 2049", found=found, right=np.sort(array(wide), 1))


def _counts(ground: Ground) -> Iterator[Answer]:
    count = 300_001
    x = ground.index(97, count)
    sent, a = x.to(ground.device), array(x)
    yield Answer(label="bincount", found=sent.bincount(), right=np.bincount(a))
    found = torch.histc(sent.float(), bins=97, min=0, max=97)
    yield Answer(label="histc", found=found, right=np.bincount(a, minlength=97).astype(np.float64))
    values, back, counts = sent.unique(return_inverse=True, return_counts=True)
    yield Answer(label="unique", found=values[back], right=a)
    yield Answer(label="unique's counts", found=counts, right=np.bincount(a))
    mask = sent % 7 == 3
    yield Answer(label="nonzero", found=mask.nonzero()[:, 0], right=(a % 7 == 3).nonzero()[0])
    yield Answer(label="masked_select", found=sent[mask], right=a[a % 7 == 3])
    sent = sent.clone()
    sent[mask] = -1
    yield Answer(label="masked assignment", found=sent, right=np.where(a % 7 == 3, -1, a))
    pieces = [piece.to(ground.device) for piece in x[:60_000].split(60)]
    yield Answer(label="cat of a thousand", found=torch.cat(pieces), right=a[:60_000])
    yield Answer(
        label="stack of a thousand", found=torch.stack(pieces), right=a[:60_000].reshape(-1, 60)
    )


def _added(ground: Ground) -> Iterator[Answer]:
    """Ones added to few places by hundreds of thousands: each place is a sum in whatever order."""
    count, places = 200_003, 7
    index = ground.index(places, count)
    values = ground.whole(count, 3, most=1)
    right = np.zeros((places, 3))
    np.add.at(right, array(index), array(values))
    sent, at = ground.send(values), index.to(ground.device)
    start = ground.send(torch.zeros(places, 3))
    yield Answer(label="index_add", found=start.index_add(0, at, sent), right=right)
    yield Answer(
        label="scatter_add",
        found=start.scatter_add(0, at[:, None].expand(-1, 3), sent),
        right=right,
    )
    yield Answer(
        label="index_put", found=start.index_put((at,), sent, accumulate=True), right=right
    )
    weight = ground.send(torch.zeros(places, 3)).requires_grad_()
    functional.embedding(at, weight).backward(sent)
    assert weight.grad is not None
    yield Answer(label="gradient of embedding", found=weight.grad, right=right)
    leaf = ground.send(torch.zeros(places, 3)).requires_grad_()
    leaf.index_select(0, at).backward(sent)
    assert leaf.grad is not None
    yield Answer(label="gradient of index_select", found=leaf.grad, right=right)
    leaf = ground.send(torch.zeros(places, 3)).requires_grad_()
    leaf[at].backward(sent)
    assert leaf.grad is not None
    yield Answer(label="gradient of indexing", found=leaf.grad, right=right)
    leaf = ground.send(torch.zeros(places, 3)).requires_grad_()
    leaf.gather(0, at[:, None].expand(-1, 3)).backward(sent)
    assert leaf.grad is not None
    yield Answer(label="gradient of gather", found=leaf.grad, right=right)


def _wide_rows(ground: Ground) -> Iterator[Answer]:
    """Softmax, losses and norms over more numbers than one block holds."""
    for width in (32_769, 131_072):
        x = ground.whole(3, width, most=2)
        sent, a = ground.send(x), array(x)
        total = np.exp(a).sum(1, keepdims=True)
        p, logs = np.exp(a) / total, a - np.log(total)
        # The rounding of a sum of so many terms, relative to it.
        off = 2 * math.sqrt(width) * 1.2e-7 + (16 * ground.eps if ground.half else 0.0)
        yield Answer(
            label=f"softmax of {width}", found=sent.softmax(1), right=p, ulps=8, slack=off * p
        )
        found = sent.log_softmax(1)
        yield Answer(label=f"log_softmax of {width}", found=found, right=logs, ulps=4, slack=off)
        found, right = sent.logsumexp(1), np.log(total)[:, 0]
        yield Answer(label=f"logsumexp of {width}", found=found, right=right, ulps=4, slack=off)
        target = torch.tensor([0, width - 1, width // 2])
        leaf = ground.send(x).requires_grad_()
        loss = functional.cross_entropy(leaf, target.to(ground.device))
        chosen = -logs[np.arange(3), array(target)].mean()
        yield Answer(label=f"cross_entropy of {width}", found=loss, right=chosen, ulps=8, slack=off)
        loss.backward()
        assert leaf.grad is not None
        hit = np.zeros_like(a)
        hit[np.arange(3), array(target)] = 1
        right = (np.exp(a) / total - hit) / 3
        slack = 1e-9 + (16 * ground.eps + off) * p
        yield Answer(
            label=f"its gradient of {width}", found=leaf.grad, right=right, ulps=8, slack=slack
        )
        normal = functional.layer_norm(sent, (width,))
        right = (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5)
        yield Answer(
            label=f"layer_norm of {width}", found=normal, right=right, ulps=8, slack=16 * ground.eps
        )
        first = sent.clone()
        first[:, width - 7] = 9
        yield Answer(label=f"argmax of {width}", found=first.argmax(1), right=np.full(3, width - 7))


def _many_rows(ground: Ground) -> Iterator[Answer]:
    """More rows, batches and channels than a grid has blocks along an axis."""
    count = GRID + 3
    x = ground.whole(count, 3, most=2)
    sent, a = ground.send(x), array(x)
    total = np.exp(a).sum(1, keepdims=True)
    yield Answer(label="softmax", found=sent.softmax(1), right=np.exp(a) / total, ulps=8)
    right = (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5)
    slack = 16 * ground.eps
    yield Answer(
        label="layer_norm",
        found=functional.layer_norm(sent, (3,)),
        right=right,
        ulps=8,
        slack=slack,
    )
    left, other = ground.whole(count, 2, 3), ground.whole(count, 3, 2)
    found = torch.bmm(ground.send(left), ground.send(other))
    yield Answer(label="bmm", found=found, right=array(left @ other), ulps=1)
    pictures = ground.whole(count, 1, 2, 2)
    sent = ground.send(pictures)
    yield Answer(
        label="max_pool2d",
        found=functional.max_pool2d(sent, 2),
        right=array(pictures.amax((2, 3), keepdim=True)),
    )
    yield Answer(
        label="avg_pool2d",
        found=functional.avg_pool2d(sent, 2),
        right=array(pictures.mean((2, 3), keepdim=True)),
        ulps=1,
    )
    weight = ground.whole(2, 1, 2, 2)
    found = functional.conv2d(sent, ground.send(weight))
    right = np.einsum("ncij,ocij->no", array(pictures), array(weight))[:, :, None, None]
    yield Answer(label="conv2d", found=found, right=right, ulps=1)
    found = functional.interpolate(sent, scale_factor=2, mode="nearest")
    yield Answer(label="interpolate", found=found, right=array(pictures).repeat(2, 2).repeat(2, 3))
    yield Answer(
        label="sort",
        found=sent.flatten(1).sort(1).values,
        right=np.sort(array(pictures.flatten(1)), 1),
    )
    yield Answer(
        label="cumsum", found=sent.flatten(1).cumsum(1), right=array(pictures.flatten(1)).cumsum(1)
    )
    flat = sent.flatten(1)
    yield Answer(label="transpose", found=flat.mT.contiguous(), right=array(pictures.flatten(1).mT))


def _many_heads(ground: Ground) -> Iterator[Answer]:
    """Batches times heads beyond a grid: keys all alike, so that each answer is a plain mean."""
    count = GRID + 5
    v = ground.whole(count, 1, 4, 8)
    q, k = ground.whole(count, 1, 2, 8, most=1), torch.zeros(count, 1, 4, 8)
    sent = [ground.send(x) for x in (q, k, v)]
    found = functional.scaled_dot_product_attention(*sent)
    right = np.broadcast_to(array(v).mean(2, keepdims=True), (count, 1, 2, 8))
    yield Answer(label="mean of values", found=found, right=right, ulps=2, slack=4 * ground.eps)


def _long_convolutions(ground: Ground) -> Iterator[Answer]:
    """Many channels, and many places; a weight's gradient is a sum over all of these."""
    x, weight = ground.few(1, 700, 9, 9), ground.few(5, 700, 3, 3)
    right = array(functional.conv2d(x, weight, padding=1))
    found = functional.conv2d(ground.send(x), ground.send(weight), padding=1)
    yield Answer(label="700 channels", found=found, right=right, ulps=1)
    x, weight = ground.few(2, 3, 40_001), ground.few(4, 3, 5)
    sent, kernel = ground.send(x).requires_grad_(), ground.send(weight).requires_grad_()
    found = functional.conv1d(sent, kernel, padding=2)
    yield Answer(
        label="40,001 places",
        found=found,
        right=array(functional.conv1d(x, weight, padding=2)),
        ulps=1,
    )
    fed = ground.few(2, 4, 40_001)
    found.backward(ground.send(fed))
    leaves = [one.clone().requires_grad_() for one in (x, weight)]
    functional.conv1d(*leaves, padding=2).backward(fed)
    assert sent.grad is not None
    assert kernel.grad is not None
    # A native convolution keeps one sum a sample in 16 bits.
    for label, got, leaf in (("input", sent.grad, leaves[0]), ("weight", kernel.grad, leaves[1])):
        assert leaf.grad is not None
        slack = ground.eps * np.abs(array(leaf.grad)).max() if ground.half else 0.0
        yield Answer(
            label=f"gradient of the {label}", found=got, right=array(leaf.grad), ulps=2, slack=slack
        )


def _moved(ground: Ground) -> Iterator[Answer]:
    count = 1_000_003
    x = torch.arange(count)
    sent = x.to(ground.device)
    order = torch.randperm(count, generator=ground.generator)
    at, a = order.to(ground.device), array(order)
    yield Answer(label="index_select", found=sent.index_select(0, at), right=a)
    yield Answer(label="indexing", found=sent[at], right=a)
    yield Answer(label="gather", found=sent.gather(0, at), right=a)
    yield Answer(label="take", found=sent.take(at), right=a)
    yield Answer(
        label="scatter", found=torch.zeros_like(sent).scatter(0, at, sent)[at], right=array(x)
    )
    yield Answer(label="flip", found=sent.flip(0), right=array(x)[::-1].copy())
    yield Answer(label="roll", found=sent.roll(12_345), right=np.roll(array(x), 12_345))
    square = sent[:1_000_000].reshape(1000, 1000)
    yield Answer(
        label="transpose",
        found=square.mT.contiguous(),
        right=array(x[:1_000_000].reshape(1000, 1000)).T.copy(),
    )
    yield Answer(
        label="tril",
        found=square.tril(-7),
        right=np.tril(array(x[:1_000_000].reshape(1000, 1000)), -7),
    )
    yield Answer(
        label="repeat_interleave",
        found=sent[:70_001].repeat_interleave(3),
        right=array(x[:70_001]).repeat(3),
    )
    yield Answer(label="arange", found=torch.arange(count, device=ground.device), right=array(x))
    yield Answer(label="through float32", found=sent.float().long(), right=array(x))


LENGTHS = HazardClass(
    name="long",
    asks="are long sums, scans, sorts and grids right",
    hazards=(
        *rows(
            {
                "products": _products,
                "gradients of products": _product_gradients,
                "sums": _sums,
                "scans": _scans,
                "wide rows": _wide_rows,
                "many rows": _many_rows,
                "many heads": _many_heads,
                "convolutions": _long_convolutions,
            },
            once=True,
        ),
        *rows(
            {"orders": _orders, "counts": _counts, "additions": _added, "moves": _moved},
            dtypes=SINGLE,
            once=True,
        ),
    ),
)
