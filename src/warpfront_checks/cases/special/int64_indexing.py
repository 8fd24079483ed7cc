"""More than 2^31 elements, more than 2^32 bytes: where 32 bits of an index come to their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.cases.bounds import Verdict
from warpfront_checks.cases.special.rows import CaseContext, Row, Table, holds, verdict_of

EDGE = 2**31
COUNT = EDGE + 4099
WIDTH = 4096
GIB = 2**30
# Around the edges of signed and unsigned indices of elements and bytes, and the very last.
PLACES = (0, 1, EDGE // 2 - 1, EDGE // 2, EDGE - 2, EDGE - 1, EDGE, EDGE + 1, COUNT - 2, COUNT - 1)


def _marked(label: str, x: Tensor, expected: Tensor, slack: float = 0.0) -> Verdict:
    """Compare the numbers at the marked indices."""
    numbers = torch.stack([x.view(-1)[place] for place in PLACES])
    return verdict_of(label, numbers.cpu().double(), expected, slack=slack)


def _marks(ground: CaseContext, dtype: torch.dtype) -> Tensor:
    """Return zeros with a different number at each marked index."""
    x = torch.zeros(COUNT, device=ground.device, dtype=dtype)
    for number, place in enumerate(PLACES):
        x[place] = number + 1
    return x


RIGHT = torch.arange(1, len(PLACES) + 1).double()


def _elements(ground: CaseContext) -> Iterator[Verdict]:
    x = _marks(ground, torch.float16)
    for label, actual, expected in (
        ("add", lambda: x + 1, RIGHT + 1),
        ("mul", lambda: x * 2, RIGHT * 2),
        ("relu", lambda: functional.relu(x - 3), (RIGHT - 3).relu()),
        ("clone", x.clone, RIGHT),
        ("to uint8", lambda: x.to(torch.uint8), RIGHT),
        ("where", lambda: torch.where(x > 5, x, -x), torch.where(RIGHT > 5, RIGHT, -RIGHT)),
        ("exp2", lambda: torch.exp2(x), torch.exp2(RIGHT)),
        ("in place", lambda: x.clone().add_(1), RIGHT + 1),
        ("masked_fill", lambda: x.masked_fill(x > 8, 0), torch.where(RIGHT > 8, 0.0, RIGHT)),
    ):
        result = actual()
        yield _marked(label, result, expected, slack=1e-2 * (label == "exp2"))
        del result


def _reduced(ground: CaseContext) -> Iterator[Verdict]:
    x = _marks(ground, torch.uint8)
    total = int(RIGHT.sum())
    yield verdict_of("sum", x.sum(), total)
    yield verdict_of("count", x.count_nonzero(), len(PLACES))
    yield verdict_of("amax", x.amax().long(), len(PLACES))
    yield verdict_of("argmax", x.argmax(), COUNT - 1)
    x[EDGE + 77] = 200
    yield verdict_of("argmax beyond", x.argmax(), EDGE + 77)
    yield verdict_of("max's index", x.max(0).indices, EDGE + 77)
    yield verdict_of("nonzero", (x == 200).nonzero()[:, 0], torch.tensor([EDGE + 77]))
    yield holds("any", (x == 200).any())
    x[EDGE + 77] = 0
    half = x.to(torch.float16)
    yield verdict_of("float sum", half.sum(dtype=torch.float32), float(total))
    del half
    rows = x[: EDGE + WIDTH].view(-1, WIDTH)
    yield verdict_of("rows", rows.sum(1).sum(), int(RIGHT[:-2].sum()))
    yield verdict_of("columns", rows.sum(0).sum(), int(RIGHT[:-2].sum()))


def _scanned(ground: CaseContext) -> Iterator[Verdict]:
    x = _marks(ground, torch.int8)
    actual = x.cumsum(0, dtype=torch.int32)
    expected = torch.stack([RIGHT[: i + 1].sum() for i in range(len(PLACES))])
    yield _marked("cumsum", actual, expected)


def _gathered(ground: CaseContext) -> Iterator[Verdict]:
    x = _marks(ground, torch.uint8)
    index = torch.tensor(PLACES, device=ground.device)
    calls: dict[str, Callable[[], Tensor]] = {
        "index": lambda: x[index],
        "index_select": lambda: x.index_select(0, index),
        "gather": lambda: x.gather(0, index),
        "take": lambda: x.take(index),
    }
    for label, call in calls.items():
        yield verdict_of(label, call().cpu().double(), RIGHT)
    x.index_fill_(0, index, 9)
    yield _marked("index_fill_", x, torch.full_like(RIGHT, 9))
    x.scatter_(0, index, torch.arange(len(PLACES), device=x.device, dtype=x.dtype))
    yield _marked("scatter_", x, RIGHT - 1)
    x[index] = 5
    yield _marked("assigned", x, torch.full_like(RIGHT, 5))
    table = x[: EDGE + WIDTH].view(-1, WIDTH)
    table[-1] = 7
    ends = torch.tensor([0, len(table) - 1], device=x.device)
    last = functional.embedding(ends, table)[1].cpu().double()
    yield verdict_of("embedding", last, torch.full((WIDTH,), 7.0).double())


def _moved(ground: CaseContext) -> Iterator[Verdict]:
    x = _marks(ground, torch.uint8)
    both = torch.cat([x[: EDGE - 5], x[EDGE - 5 :]])
    yield _marked("cat", both, RIGHT)
    del both
    turned = x.flip(0)
    ends = torch.stack([turned[COUNT - 1 - p] for p in PLACES])
    yield verdict_of("flip", ends.cpu().double(), RIGHT)
    del turned
    table = x[: EDGE + WIDTH].view(-1, WIDTH)
    flat = table.mT.contiguous()
    inside = [(n, p) for n, p in enumerate(PLACES) if p < EDGE + WIDTH]
    pins = torch.stack([flat[p % WIDTH, p // WIDTH] for _, p in inside])
    yield verdict_of("transpose", pins.double(), RIGHT[: len(inside)])


def _products(ground: CaseContext) -> Iterator[Verdict]:
    """Check a result of more than 2^31 elements: its last rows, and those about the edge."""
    rows, columns = 2**16 + 3, 2**15
    a = ground.send(ground.whole(rows, 16, most=2)).bfloat16()
    b = ground.send(ground.whole(16, columns, most=2)).bfloat16()
    actual = a @ b
    for row in (0, 2**15, 2**16 - 1, 2**16, rows - 1):
        expected = a[row].double().cpu() @ b.double().cpu()
        yield verdict_of(f"row {row}", actual[row], expected)
    del actual
    wide = torch.zeros(rows, columns, device=ground.device, dtype=torch.bfloat16)
    wide[:, 7] = 30
    chosen = wide.softmax(1)
    yield verdict_of("softmax", chosen[-5:, 7], torch.ones(5))
    del chosen
    normal = functional.layer_norm(wide, (columns,))
    yield holds("layer_norm", (normal[-1, 7] == normal[0, 7]) & (normal[-1, 7] > 100))


def _drawn(ground: CaseContext) -> Iterator[Verdict]:
    x = torch.zeros(COUNT, device=ground.device, dtype=torch.float16).uniform_(1, 2)
    yield holds("all of it", (x[-5000:] >= 1).all() & (x[EDGE - 5000 : EDGE] >= 1).all())
    beyond = (x[:4000] == x[EDGE : EDGE + 4000]).float().mean() < 0.1
    yield holds("not the beginning again", beyond)
    x.fill_(3)
    yield _marked("fill_", x, torch.full_like(RIGHT, 3))


def _pictures(ground: CaseContext) -> Iterator[Verdict]:
    """Check images of one plane: more of them than 2^31 / 64, and more elements than 2^31."""
    count = EDGE // 64 + 5
    x = torch.zeros(count, 1, 8, 8, device=ground.device, dtype=torch.float16)
    x[-1, 0, 7, 7] = 4
    pooled = functional.max_pool2d(x, 2)
    yield verdict_of("max_pool2d", pooled[-1, 0, 3, 3], 4.0)
    pooled = functional.avg_pool2d(x, 2)
    yield verdict_of("avg_pool2d", pooled[-1, 0, 3, 3], 1.0)
    del pooled
    grown = functional.interpolate(x[:, :, 4:, 4:], scale_factor=2, mode="nearest")
    yield verdict_of("nearest", grown[-1, 0, 7, 7], 4.0)


TRIES = {
    "elements": (_elements, 14 * GIB),
    "reductions": (_reduced, 10 * GIB),
    "scans": (_scanned, 20 * GIB),
    "indices": (_gathered, 6 * GIB),
    "moves": (_moved, 8 * GIB),
    "products": (_products, 16 * GIB),
    "random numbers": (_drawn, 8 * GIB),
    "pictures": (_pictures, 12 * GIB),
}
INT64_INDEXING: Table = tuple(
    Row(name=name, answers=attempt, devices=("cuda", "rocm"), needed_bytes=size)
    for name, (attempt, size) in TRIES.items()
)
