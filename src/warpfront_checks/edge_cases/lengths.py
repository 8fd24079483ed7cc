"""Long: sums of many thousand terms, scans and sorts of many blocks, more rows than a grid has."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from warpfront_checks.cases.known import KnownDefect
from warpfront_checks.edge_cases.answers import (
    FALSE,
    FLOATS,
    TRUE,
    Answer,
    CaseContext,
    Hazard,
    HazardClass,
    array,
    rows,
)
from warpfront_checks.edge_cases.layouts import both_ways

# Convolutions through a transform (Winograd's, Fourier's) round on the way; a fault in whole
# numbers is at least 1.
TRANSFORMED = 0.01
# A grid has at most 65,535 blocks in its second and third dimension.
GRID = 65_535
# Scans and sorts go block by block, blocks by blocks of blocks.
SCANNED = (1025, 4097, 65_537, 300_001)


def _many(ground: CaseContext, on_the_device: int, on_the_cpu: int) -> int:
    return on_the_cpu if ground.device == "cpu" or ground.quick else on_the_device


def _products(ground: CaseContext) -> Iterator[Answer]:
    """Check products with K of many thousands: the sum is exact in any order and in any
    number of parts.
    """
    for k in (8192, 16_385, 65_536):
        a, b = ground.few(17, k), ground.few(k, 33)
        expected = array(a @ b)
        on_device = ground.send(a), ground.send(b)
        # Integers to 256 in bfloat16, to 2048 in float16: larger ones are rounded once.
        for label, actual in (
            ("matmul", on_device[0] @ on_device[1]),
            ("linear", functional.linear(on_device[0], on_device[1].mT)),
            ("transposed", (on_device[1].mT @ on_device[0].mT).mT),
            ("bmm", torch.bmm(on_device[0][None], on_device[1][None])[0]),
            ("addmm", torch.addmm(ground.send(torch.ones(33)), *on_device) - 1),
            ("vector", torch.mv(on_device[0], on_device[1][:, 0])[:, None]),
            ("dot", torch.dot(on_device[0][0], on_device[1][:, 0])[None, None]),
            ("einsum", torch.einsum("ik,kj->ij", *on_device)),
        ):
            part = expected[: actual.shape[0], : actual.shape[1]]
            yield Answer(f"{label}, K {k}", actual, part, ulps=1)


def _product_gradients(ground: CaseContext) -> Iterator[Answer]:
    """Check the gradient of a weight: a sum over many thousands of rows."""
    count = 16_385
    x, grad_output = ground.few(count, 9), ground.few(count, 7)
    on_device = ground.send(x)
    weight = ground.send(ground.few(7, 9)).requires_grad_()
    bias = ground.send(ground.few(7)).requires_grad_()
    functional.linear(on_device, weight, bias).backward(ground.send(grad_output))
    yield Answer("weight", weight.grad, array(grad_output.mT @ x), ulps=1)
    yield Answer("bias", bias.grad, array(grad_output.sum(0)), ulps=1)


def _sums(ground: CaseContext) -> Iterator[Answer]:
    """Check sums of integers whose every partial sum is exact in float32."""
    for count in (65_537, 1_000_003, _many(ground, 100_000_000, 4_000_037)):
        if ground.half and count > 10**7:
            continue
        x = ground.whole(count, most=1)
        on_device, total = ground.send(x), float(x.sum())
        # Threads and blocks may pass partial sums in the tensors' dtype.
        off = 2 * ground.eps * math.sqrt(count) if ground.half else 0.0
        yield Answer(f"sum of {count}", on_device.sum(), total, ulps=1, slack=off)
        yield Answer(f"float32 sum of {count}", on_device.sum(dtype=torch.float32), total)
        yield Answer(f"mean of {count}", on_device.mean(), total / count, ulps=2, slack=off / count)
        yield Answer(f"amax of {count}", on_device.amax(), 1.0)
        ones = (on_device == 1).sum()
        yield Answer(f"count of {count}", ones, int((x == 1).sum()))
        del on_device
    x = ground.whole(3, 65_537, most=1)
    off = 2 * ground.eps * math.sqrt(x.numel()) if ground.half else 0.0
    on_device = ground.send(x)
    yield Answer("along rows", on_device.sum(1), array(x.sum(1)), ulps=1, slack=off)
    turned = ground.send(x.mT.contiguous())
    yield Answer("down columns", turned.sum(0), array(x.sum(1)), ulps=1, slack=off)
    yield Answer("many rows", turned.sum(1), array(x.sum(0)), ulps=1, slack=off)
    yield Answer("both axes", on_device.sum((0, 1)), float(x.sum()), ulps=1, slack=off)
    yield Answer(
        "every third", on_device[:, ::3].sum(1), array(x[:, ::3].sum(1)), ulps=1, slack=off
    )
    spot = torch.full((1_000_003,), -1.0).double()
    spot[777_777] = 3.0
    yield Answer("argmax", ground.send(spot).argmax(), 777_777)
    yield Answer("argmin", ground.send(-spot).argmin(), 777_777)
    yield Answer("max's index", ground.send(spot).max(0).indices, 777_777)
    yield Answer("any", (ground.send(spot) > 2).any(), TRUE)
    yield Answer("all", (ground.send(spot) < 2).all(), FALSE)
    yield Answer("nonzero", (ground.send(spot) > 2).nonzero()[:, 0], np.array([777_777]))


def _scans(ground: CaseContext) -> Iterator[Answer]:
    """Check scans over -1, 0 and 1 in turn, so that running sums stay small and exact."""
    for count in SCANNED:
        x = torch.diff(ground.whole(2, count + 1, most=8 if ground.half else 1000), dim=1)
        on_device, a = ground.send(x), array(x)
        yield Answer(f"cumsum of {count}", on_device.cumsum(1), a.cumsum(1))
        down = ground.send(x.mT.contiguous())
        yield Answer(f"cumsum down {count}", down.cumsum(0).mT, a.cumsum(1))
        signs = torch.where(ground.whole(2, count, most=1) > 0, -1.0, 1.0).double()
        actual = ground.send(signs).cumprod(1)
        yield Answer(f"cumprod of {count}", actual, array(signs).cumprod(1))
        yield Answer(
            f"cummax of {count}",
            on_device.cummax(1).values,
            np.maximum.accumulate(a, 1),
        )
        leaf = ground.send(x).requires_grad_()
        leaf.cumsum(1).backward(ground.send(x))
        yield Answer(
            f"gradient of cumsum of {count}",
            leaf.grad,
            a[:, ::-1].cumsum(1)[:, ::-1].copy(),
        )
    integers = ground.index(1000, 3, 100_003)
    for dtype in (torch.int64, torch.int32):
        actual = integers.to(dtype).to(ground.device).cumsum(1)
        yield Answer(f"cumsum, {dtype}", actual, array(integers).cumsum(1))


def _orders(ground: CaseContext) -> Iterator[Answer]:
    """Check permutations: no two numbers are equal, so values and indices have
    one correct order.
    """
    for count in (1025, 4097, 65_537, _many(ground, 2_000_003, 300_001)):
        x = torch.randperm(count, generator=ground.generator)
        a, on_device = array(x), x.float().to(ground.device)
        values, places = on_device.sort()
        yield Answer(f"sort of {count}", values, np.sort(a).astype(np.float64))
        yield Answer(f"places of {count}", places, np.argsort(a, kind="stable"))
        top = on_device.topk(min(100, count))
        yield Answer(
            f"topk of {count}",
            top.values,
            np.sort(a)[::-1][:100].astype(np.float64),
        )
        yield Answer(
            f"topk's places of {count}",
            top.indices,
            np.argsort(-a, kind="stable")[:100],
        )
        lowest = on_device.topk(100, largest=False)
        yield Answer(f"lowest of {count}", lowest.values, np.arange(100.0))
        middle = on_device.kthvalue(count // 3)
        yield Answer(f"kthvalue of {count}", middle.values, float(count // 3 - 1))
        yield Answer(f"median of {count}", on_device.median(), float((count - 1) // 2))
        yield Answer(f"unique of {count}", x.to(ground.device).unique(), np.arange(count))
        actual = torch.searchsorted(torch.arange(count).to(ground.device), x.to(ground.device))
        yield Answer(f"searchsorted in {count}", actual, a)
    wide = torch.stack([torch.randperm(2049, generator=ground.generator) for _ in range(70)])
    actual = wide.to(ground.device).sort(1).values
    yield Answer("rows of 2049", actual, np.sort(array(wide), 1))
    actual = wide.mT.contiguous().to(ground.device).sort(0).values.mT
    yield Answer("columns of 2049", actual, np.sort(array(wide), 1))


def _alignments(ground: CaseContext) -> Iterator[Answer]:
    """Check the CTC loss of targets as long as the input. They leave one alignment only, so its
    loss and its gradient are known.
    """
    for count in (5, 300, 1100):
        x = ground.whole(count, 2, 7, most=2)
        logs = array(x) - np.log(np.exp(array(x)).sum(2, keepdims=True))
        target = (torch.arange(count) % 6 + 1).repeat(2, 1)
        hit = np.zeros_like(logs)
        hit[np.arange(count)[:, None], np.arange(2)[None], array(target).T] = 1
        leaf = ground.send(torch.from_numpy(logs)).requires_grad_()
        lengths = torch.full((2,), count)
        loss = functional.ctc_loss(
            leaf, target.to(ground.device), lengths, lengths, reduction="none"
        )
        expected = -(hit * logs).sum((0, 2))
        yield Answer(f"loss of {count}", loss, expected, slack=1e-5 * expected)
        loss.sum().backward()
        # Sums of logarithms as large as the loss are subtracted. Each of two has a rounding of its
        # value a step, 0.22 roundings in the mean square: 0.18 sqrt(count) together, six times.
        off = max(16, 1.1 * math.sqrt(count)) * ground.eps * (1 + float(expected.max()))
        yield Answer(f"its gradient of {count}", leaf.grad, np.exp(logs) - hit, slack=off)


# A line longer than a grid of blocks, or 16 bits, count.
LONG_LINE = 70_003
LONG_LINES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "reflected": lambda x: functional.pad(x, (3, 4), mode="reflect"),
    "replicated": lambda x: functional.pad(x, (3, 4), mode="replicate"),
    "circular": lambda x: functional.pad(x, (3, 4), mode="circular"),
    "padded": lambda x: functional.pad(x, (3, -4), value=7.0),
    "avg_pool1d": lambda x: functional.avg_pool1d(x, 4, 2, 2),
    "nearest": lambda x: functional.interpolate(x, scale_factor=2.0),
    "unfold": lambda x: x.unfold(-1, 4, 3),
    "flip": lambda x: x.flip(-1),
    "roll": lambda x: x.roll(65_537, -1),
    "joined": lambda x: torch.cat([x[..., 1:], x], -1),
    "repeated": lambda x: x.repeat_interleave(2, -1),
    "clamp": lambda x: x.clamp(-3, 5),
    "where": lambda x: torch.where(x > 0, x, x * 2),
    "differences": lambda x: x.diff(dim=-1),
    "picked": lambda x: x.index_select(-1, torch.arange(1, x.shape[-1], 2, device=x.device)),
}


def _long_volume(ground: CaseContext) -> Iterator[Answer]:
    """Check windows of one long side, the largest of each alone."""
    for shape in ((1, 1, 2, 4, 9000), (1, 1, 2, 9000, 4), (1, 1, 9000, 2, 4)):
        x = torch.randperm(72_000, generator=ground.generator).view(shape).double()
        call = partial(functional.max_pool3d, kernel_size=2)
        yield from both_ways(call, ground, [x], said=f" of {shape}")


def _frames(ground: CaseContext) -> Iterator[Answer]:
    """Check frames of more than 65,536 pixels, with padding before and after them."""
    x = ground.whole(1, 1, 3, 256, 257)
    for pads in ((0, 0, 0, 0, 2, 0), (0, 0, 0, 0, 0, 1), (1, 0, 0, 2, 1, 1)):
        expected = functional.pad(x, pads, value=9.0)
        actual = functional.pad(ground.send(x), pads, value=9.0)
        yield Answer(f"padded by {pads}", actual, array(expected))


def _long_line(call: Callable[[Tensor], Tensor], ground: CaseContext) -> Iterator[Answer]:
    """Check integers and their quarters, forward and backward."""
    yield from both_ways(call, ground, [ground.whole(1, 3, LONG_LINE)], ["shifted"])


# Each thread's part of a whole sum on the CPU is stored in the result's dtype.
PARTS_OF_THREADS = KnownDefect(thread="pytorch#59863", label=r"^sum$", device="cpu", before=None)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _cancelled(ground: CaseContext) -> Iterator[Answer]:
    """Check sums whose parts leave float16's range, though they do not."""
    half = 2**21
    x = ground.send(torch.ones(2 * half))
    x[half:] = -1
    yield Answer("sum", x.sum(), 0.0)
    with _one_thread():
        alone = x.sum()
    yield Answer("sum by one thread", alone, 0.0)
    yield Answer("mean", x.mean(), 0.0)
    yield Answer("sum of rows", x.view(2, -1).sum(0)[:9], np.zeros(9))


def _rows_by_millions(ground: CaseContext) -> Iterator[Answer]:
    """Check more rows than 2^23, each of an odd length."""
    count = 2**23 + 9
    x = ground.whole(7, 5).repeat(count // 7 + 1, 1)[:count]
    actual = functional.layer_norm(ground.send(x), (5,))[-20:]
    last = array(x[-20:])
    expected = last - last.mean(1, keepdims=True)
    expected /= np.sqrt(last.var(1, keepdims=True) + 1e-5)
    yield Answer("layer_norm", actual, expected, ulps=8, slack=16 * ground.eps)
    total = ground.send(x).softmax(1)[-20:]
    yield Answer("softmax", total, np.exp(last) / np.exp(last).sum(1, keepdims=True), ulps=8)


def _counts(ground: CaseContext) -> Iterator[Answer]:
    count = 300_001
    x = ground.index(97, count)
    on_device, a = x.to(ground.device), array(x)
    yield Answer("bincount", on_device.bincount(), np.bincount(a))
    actual = torch.histc(on_device.float(), bins=97, min=0, max=97)
    yield Answer("histc", actual, np.bincount(a, minlength=97).astype(np.float64))
    values, back, counts = on_device.unique(return_inverse=True, return_counts=True)
    yield Answer("unique", values[back], a)
    yield Answer("unique's counts", counts, np.bincount(a))
    for dtype in (torch.uint8, torch.int16, torch.int32):
        positions = torch.tensor([3, 100, 3, 127 if dtype == torch.uint8 else 32_767])
        positions = torch.cat([positions, positions * 2]) if dtype == torch.int32 else positions
        yield Answer(
            f"bincount, {dtype}",
            positions.to(dtype).to(ground.device).bincount(),
            np.bincount(positions),
        )
    mask = on_device % 7 == 3
    yield Answer("nonzero", mask.nonzero()[:, 0], (a % 7 == 3).nonzero()[0])
    yield Answer("masked_select", on_device[mask], a[a % 7 == 3])
    on_device = on_device.clone()
    on_device[mask] = -1
    yield Answer("masked assignment", on_device, np.where(a % 7 == 3, -1, a))
    pieces = [piece.to(ground.device) for piece in x[:60_000].split(60)]
    yield Answer("cat of a thousand", torch.cat(pieces), a[:60_000])
    yield Answer("stack of a thousand", torch.stack(pieces), a[:60_000].reshape(-1, 60))


def _added(ground: CaseContext) -> Iterator[Answer]:
    """Add ones to few indices by hundreds of thousands: each sum is exact in any order."""
    count, places = 200_003, 7
    index = ground.index(places, count)
    values = ground.whole(count, 3, most=1)
    expected = np.zeros((places, 3))
    np.add.at(expected, array(index), array(values))
    on_device, indices = ground.send(values), index.to(ground.device)
    start = ground.send(torch.zeros(places, 3))
    yield Answer("index_add", start.index_add(0, indices, on_device), expected)
    yield Answer(
        "scatter_add",
        start.scatter_add(0, indices[:, None].expand(-1, 3), on_device),
        expected,
    )
    yield Answer("index_put", start.index_put((indices,), on_device, accumulate=True), expected)
    takes: dict[str, Callable[[Tensor], Tensor]] = {
        "embedding": lambda table: functional.embedding(indices, table),
        "index_select": lambda table: table.index_select(0, indices),
        "indexing": lambda table: table[indices],
        "gather": lambda table: table.gather(0, indices[:, None].expand(-1, 3)),
    }
    for name, take in takes.items():
        leaf = start.clone().requires_grad_()
        take(leaf).backward(on_device)
        yield Answer(f"gradient of {name}", leaf.grad, expected)


def _wide_rows(ground: CaseContext) -> Iterator[Answer]:
    """Check softmax, losses and norms over more numbers than one block has threads."""
    for width in (32_769, 131_072):
        x = ground.whole(3, width, most=2)
        on_device, a = ground.send(x), array(x)
        total = np.exp(a).sum(1, keepdims=True)
        p, logs = np.exp(a) / total, a - np.log(total)
        # The rounding of a sum of so many terms, relative to it.
        off = 2 * math.sqrt(width) * 1.2e-7 + (16 * ground.eps if ground.half else 0.0)
        yield Answer(f"softmax of {width}", on_device.softmax(1), p, ulps=8, slack=off * p)
        actual = on_device.log_softmax(1)
        yield Answer(f"log_softmax of {width}", actual, logs, ulps=4, slack=off)
        actual, expected = on_device.logsumexp(1), np.log(total)[:, 0]
        yield Answer(f"logsumexp of {width}", actual, expected, ulps=4, slack=off)
        target = torch.tensor([0, width - 1, width // 2])
        leaf = ground.send(x).requires_grad_()
        loss = functional.cross_entropy(leaf, target.to(ground.device))
        chosen = -logs[np.arange(3), array(target)].mean()
        yield Answer(f"cross_entropy of {width}", loss, chosen, ulps=8, slack=off)
        loss.backward()
        hit = np.zeros_like(a)
        hit[np.arange(3), array(target)] = 1
        expected = (np.exp(a) / total - hit) / 3
        slack = 1e-9 + (16 * ground.eps + off) * p
        yield Answer(f"its gradient of {width}", leaf.grad, expected, ulps=8, slack=slack)
        normal = functional.layer_norm(on_device, (width,))
        expected = (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5)
        yield Answer(f"layer_norm of {width}", normal, expected, ulps=8, slack=16 * ground.eps)
        first = on_device.clone()
        first[:, width - 7] = 9
        yield Answer(f"argmax of {width}", first.argmax(1), np.full(3, width - 7))


def _many_rows(ground: CaseContext) -> Iterator[Answer]:
    """Check more rows, batches and channels than a grid has blocks along an axis."""
    count = GRID + 3
    x = ground.whole(count, 3, most=2)
    on_device, a = ground.send(x), array(x)
    total = np.exp(a).sum(1, keepdims=True)
    yield Answer("softmax", on_device.softmax(1), np.exp(a) / total, ulps=8)
    expected = (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5)
    slack = 16 * ground.eps
    yield Answer(
        "layer_norm",
        functional.layer_norm(on_device, (3,)),
        expected,
        ulps=8,
        slack=slack,
    )
    lhs, other = ground.whole(count, 2, 3), ground.whole(count, 3, 2)
    actual = torch.bmm(ground.send(lhs), ground.send(other))
    yield Answer("bmm", actual, array(lhs @ other), ulps=1)
    flat = ground.whole(count, 4)
    on_device, a = ground.send(flat), array(flat)
    yield Answer("sort", on_device.sort(1).values, np.sort(a, 1))
    yield Answer("cumsum", on_device.cumsum(1), a.cumsum(1))
    yield Answer("transpose", on_device.mT.contiguous(), a.T)


def _many_pictures(ground: CaseContext) -> Iterator[Answer]:
    """Check the same of images, one channel each."""
    pictures = ground.whole(GRID + 3, 1, 2, 2)
    on_device = ground.send(pictures)
    yield Answer(
        "max_pool2d",
        functional.max_pool2d(on_device, 2),
        array(pictures.amax((2, 3), keepdim=True)),
    )
    yield Answer(
        "avg_pool2d",
        functional.avg_pool2d(on_device, 2),
        array(pictures.mean((2, 3), keepdim=True)),
        ulps=1,
    )
    weight = ground.whole(2, 1, 2, 2)
    actual = functional.conv2d(on_device, ground.send(weight))
    expected = np.einsum("ncij,ocij->no", array(pictures), array(weight))[:, :, None, None]
    yield Answer("conv2d", actual, expected, ulps=1, slack=TRANSFORMED)
    actual = functional.interpolate(on_device, scale_factor=2, mode="nearest")
    yield Answer("interpolate", actual, array(pictures).repeat(2, 2).repeat(2, 3))


MANY = GRID + 3
# Calls on a batch of more samples than 16 bits count, and gradients that sum over all of them.
# (A transposed convolution takes the CPU's threads seconds.)
MANY_SAMPLES: Mapping[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "conv1d": (functional.conv1d, ((MANY, 1, 3), (2, 1, 2), (2,))),
    "conv2d": (functional.conv2d, ((MANY, 1, 2, 2), (2, 1, 2, 2), (2,))),
    "linear": (functional.linear, ((MANY, 3), (2, 3), (2,))),
    "bilinear": (functional.bilinear, ((MANY, 2), (MANY, 2), (3, 2, 2), (3,))),
    "prelu": (functional.prelu, ((MANY, 2, 2), (2,))),
    "avg_pool1d": (partial(functional.avg_pool1d, kernel_size=2), ((MANY, 2, 4),)),
    "embedding_bag": (
        lambda w: functional.embedding_bag(
            torch.arange(2 * MANY, device=w.device).view(MANY, 2) % 5, w, mode="sum"
        ),
        ((5, 3),),
    ),
}


def _many_samples(name: str, ground: CaseContext) -> Iterator[Answer]:
    """Check sums of integers, exact in any order."""
    call, shapes = MANY_SAMPLES[name]
    tensors = [ground.few(*shape) for shape in shapes]
    yield from both_ways(call, ground, tensors, slack=TRANSFORMED)


# Blocks of 8, 16, 32 and 64 rows, and five more.
NORMED = 2053
NORMED_ROWS: Mapping[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "layer_norm": (lambda x, w, b: functional.layer_norm(x, (5,), w, b), ((NORMED, 5), (5,), (5,))),
    # The default epsilon, which divides a row of zeros, differs by dtype.
    "rms_norm": (lambda x, w: functional.rms_norm(x, (5,), w, 1e-5), ((NORMED, 5), (5,))),
    "group_norm": (
        lambda x, w, b: functional.group_norm(x, 2, w, b),
        ((NORMED, 4, 3), (4,), (4,)),
    ),
    "batch_norm": (
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        ((NORMED, 5), (5,), (5,)),
    ),
}
# CUDA's writes to a wrong address, and raises (pytorch#192016; 2.11 on an H200).
NORMED_PLANES: Mapping[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "layer_norm of two axes": (
        lambda x, w, b: functional.layer_norm(x, (2, 2), w, b),
        ((GRID + 5, 2, 2), (2, 2), (2, 2)),
    ),
}


def _normed_rows(name: str, ground: CaseContext) -> Iterator[Answer]:
    """Check gradients of a norm's weight and bias: sums over thousands of rows, the
    last ones included.
    """
    call, shapes = {**NORMED_ROWS, **NORMED_PLANES}[name]
    tensors = [ground.whole(*shape) for shape in shapes]
    yield from both_ways(call, ground, tensors, roundings=16 * math.sqrt(shapes[0][0]), size=1)


def _pairs(ground: CaseContext) -> Iterator[Answer]:
    """Check pdist of thousands of points: the pair of a distance is computed from its
    index among millions.
    """
    x = ground.whole(4001, 2, most=9)
    expected = functional.pdist(x)
    yield Answer("distances", functional.pdist(ground.send(x)), array(expected), ulps=4)


def _many_heads(ground: CaseContext) -> Iterator[Answer]:
    """Check batches times heads beyond a grid: all keys are equal, so that each output is
    a plain mean.
    """
    count = GRID + 5
    v = ground.whole(count, 1, 4, 8)
    q, k = ground.whole(count, 1, 2, 8, most=1), torch.zeros(count, 1, 4, 8)
    on_device = [ground.send(x) for x in (q, k, v)]
    actual = functional.scaled_dot_product_attention(*on_device)
    expected = np.broadcast_to(array(v).mean(2, keepdims=True), (count, 1, 2, 8))
    yield Answer("mean of values", actual, expected, ulps=2, slack=4 * ground.eps)


def _long_convolutions(ground: CaseContext) -> Iterator[Answer]:
    """Check many channels and positions: a weight's gradient is a sum over all of them."""
    x, weight = ground.few(1, 700, 9, 9), ground.few(5, 700, 3, 3)
    expected = array(functional.conv2d(x, weight, padding=1))
    actual = functional.conv2d(ground.send(x), ground.send(weight), padding=1)
    yield Answer("700 channels", actual, expected, ulps=1, slack=TRANSFORMED)
    x, weight = ground.few(2, 3, 40_001), ground.few(4, 3, 5)
    on_device, kernel = ground.send(x).requires_grad_(), ground.send(weight).requires_grad_()
    actual = functional.conv1d(on_device, kernel, padding=2)
    yield Answer(
        "40,001 places",
        actual,
        array(functional.conv1d(x, weight, padding=2)),
        ulps=1,
        slack=TRANSFORMED,
    )
    grad_output = ground.few(2, 4, 40_001)
    actual.backward(ground.send(grad_output))
    leaves = [element.clone().requires_grad_() for element in (x, weight)]
    functional.conv1d(*leaves, padding=2).backward(grad_output)
    # A native convolution keeps one sum a sample in 16 bits.
    for label, got, leaf in (
        ("input", on_device.grad, leaves[0]),
        ("weight", kernel.grad, leaves[1]),
    ):
        slack = ground.eps * np.abs(array(leaf.grad)).max() if ground.half else TRANSFORMED
        yield Answer(f"gradient of the {label}", got, array(leaf.grad), ulps=2, slack=slack)


def _moved(ground: CaseContext) -> Iterator[Answer]:
    count = 1_000_003
    x = torch.arange(count)
    on_device = x.to(ground.device)
    order = torch.randperm(count, generator=ground.generator)
    index, a = order.to(ground.device), array(order)
    yield Answer("index_select", on_device.index_select(0, index), a)
    yield Answer("indexing", on_device[index], a)
    yield Answer("gather", on_device.gather(0, index), a)
    yield Answer("take", on_device.take(index), a)
    yield Answer(
        "scatter", torch.zeros_like(on_device).scatter(0, index, on_device)[index], array(x)
    )
    yield Answer("flip", on_device.flip(0), array(x)[::-1].copy())
    yield Answer("roll", on_device.roll(12_345), np.roll(array(x), 12_345))
    square = on_device[:1_000_000].reshape(1000, 1000)
    yield Answer(
        "transpose",
        square.mT.contiguous(),
        array(x[:1_000_000].reshape(1000, 1000)).T.copy(),
    )
    yield Answer(
        "tril",
        square.tril(-7),
        np.tril(array(x[:1_000_000].reshape(1000, 1000)), -7),
    )
    yield Answer(
        "repeat_interleave",
        on_device[:70_001].repeat_interleave(3),
        array(x[:70_001]).repeat(3),
    )
    yield Answer("arange", torch.arange(count, device=ground.device), array(x))
    yield Answer("through float32", on_device.float().long(), array(x))


def _among(ground: CaseContext) -> Iterator[Answer]:
    """Check bins beyond 16 bits, and membership in none, few and many elements."""
    far = torch.cat([torch.arange(70_001), ground.index(70_001, 5000)])
    weights = ground.whole(len(far))
    values = far.to(ground.device)
    counted = np.bincount(array(far), array(weights), 70_010)
    yield Answer("bincount", torch.bincount(values), np.bincount(array(far)))
    yield Answer("weighed", torch.bincount(values, ground.send(weights), 70_010), counted)
    on_device = values[:1031]
    for count, inverted, unlike in itertools.product((0, 1, 5, 3000), (False, True), (False, True)):
        elements = torch.arange(count) * 3
        kwargs: dict[str, bool] = {"invert": inverted, "assume_unique": unlike}
        actual = torch.isin(on_device, elements.to(ground.device), **kwargs)
        expected = np.isin(array(far[:1031]), array(elements), invert=inverted)
        yield Answer(f"among {count}, {kwargs}", actual, expected)


def _indices(ground: CaseContext) -> Iterator[Answer]:
    """Check indices of both widths, fewer and more of them than a warp reads at once."""
    x = ground.whole(60, 5)
    on_device, a = ground.send(x), array(x)
    for kind, count in itertools.product((torch.int32, torch.int64), (3, 33, 70, 1031)):
        index = ground.index(60, count)
        indices, places, where = index.to(ground.device, kind), array(index), f"{count} of {kind}"
        grad_output = ground.whole(count, 5)
        added, values = a.copy(), ground.send(grad_output)
        np.add.at(added, places, array(grad_output))
        yield Answer(f"index_select, {where}", on_device.index_select(0, indices), a[places])
        yield Answer(f"indexing, {where}", on_device[indices], a[places])
        yield Answer(f"index_add, {where}", on_device.index_add(0, indices, values), added)
        actual = on_device.index_put((indices,), values, accumulate=True)
        yield Answer(f"index_put, {where}", actual, added)
        leaf = on_device.clone().requires_grad_()
        actual = functional.embedding(indices, leaf)
        actual.backward(values)
        yield Answer(f"embedding, {where}", actual, a[places])
        yield Answer(f"gradient of embedding, {where}", leaf.grad, added - a)
        starts = torch.arange(0, count, 3)
        bags = functional.embedding_bag(indices, on_device, starts.to(indices), mode="sum")
        expected = np.add.reduceat(a[places], array(starts))
        yield Answer(f"embedding_bag, {where}", bags, expected)
        repeats = index % 4
        actual = torch.arange(count, device=ground.device).repeat_interleave(repeats.to(indices))
        expected = np.arange(count).repeat(array(repeats))
        yield Answer(f"repeat_interleave, {where}", actual, expected)
        yield Answer(f"bincount, {where}", torch.bincount(indices), np.bincount(places))


def _many_judged(ground: CaseContext) -> Iterator[Answer]:
    """Check means over more rows than 16 bits count. Half of them are ignored only where
    torch's own CPU kernel, which adds one by one in the dtype, is correct.
    """
    positions = ground.index(3, 5000)
    target_sets = {"all": positions}
    if not ground.half:
        target_sets["half"] = positions.masked_fill(torch.arange(5000) % 2 == 0, -100)
    for name, targets in target_sets.items():
        on_device = targets.to(ground.device)
        losses = ground.send(torch.full((5000, 3), -1.0))
        yield Answer(f"nll_loss of {name}", functional.nll_loss(losses, on_device), 1.0, ulps=1)
        actual = functional.cross_entropy(ground.send(torch.zeros(5000, 4)), on_device)
        slack = (4 if ground.half else 5000) * ground.eps  # added one by one
        yield Answer(f"cross_entropy of {name}", actual, math.log(4), ulps=2, slack=slack)
    zeros, ones = (ground.send(torch.full((5000,), x)) for x in (0.0, 1.0))
    for name, loss in LOSSES.items():
        yield Answer(name, loss(zeros, ones), 1.0, ulps=1)


LOSSES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse_loss": functional.mse_loss,
    "l1_loss": functional.l1_loss,
    "smooth_l1_loss": lambda x, y: 2 * functional.smooth_l1_loss(x, y),
    "poisson_nll_loss": functional.poisson_nll_loss,
}


def _many_sequences(ground: CaseContext) -> Iterator[Answer]:
    """Check more sequences than a grid has blocks along one axis, with weights and biases."""
    x = ground.normal(1, 65_540, 1)
    for make in (nn.LSTM, nn.GRU, nn.RNN):
        exact, destination = ground.module(partial(make, 1, 1))
        with torch.no_grad():
            actual, expected = destination(ground.send(x))[0], exact(x)[0]
        yield Answer(make.__name__, actual, array(expected), slack=32 * ground.eps)


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
                "many pictures": _many_pictures,
                "many heads": _many_heads,
                "convolutions": _long_convolutions,
            },
            FLOATS,
        ),
        *rows(
            {
                "alignments": _alignments,
                "orders": _orders,
                "counts": _counts,
                "additions": _added,
                "moves": _moved,
                "indices": _indices,
                "among": _among,
                "long volumes": _long_volume,
                "pairs": _pairs,
                **{f"many samples, {name}": partial(_many_samples, name) for name in MANY_SAMPLES},
                **{f"long {name}": partial(_long_line, call) for name, call in LONG_LINES.items()},
            }
        ),
        *rows(
            {f"rows of {name}": partial(_normed_rows, name) for name in NORMED_ROWS},
        ),
        *rows(
            {f"rows of {name}": partial(_normed_rows, name) for name in NORMED_PLANES},
            devices=("cpu",),
        ),
        *rows({"many judged": _many_judged}, FLOATS),
        *rows({"many sequences": _many_sequences, "frames": _frames}, devices=("cpu",)),
        Hazard(
            name="cancelled", answers=_cancelled, dtypes=("float16",), known=(PARTS_OF_THREADS,)
        ),
        Hazard(
            name="rows by millions",
            answers=_rows_by_millions,
            dtypes=FLOATS,
            devices=("cuda", "rocm"),
            needed_bytes=2 * 2**30,
        ),
    ),
)
