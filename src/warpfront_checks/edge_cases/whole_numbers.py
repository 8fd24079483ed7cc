"""Integers of every width, over their whole range: exact, without any tolerance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfront_checks.edge_cases.answers import Answer, CaseContext, HazardClass, array, rows

Numbers = Any
KINDS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
COUNT = 1031
Two = tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Numbers, Numbers], Numbers]]
# The second operand is never 0 where something is divided by it.
PAIRS: dict[str, Two] = {
    "add": (torch.add, np.add),
    "sub": (torch.sub, np.subtract),
    "mul": (torch.mul, np.multiply),
    "mm": (lambda x, y: x @ y.mT, lambda a, b: a @ b.T),
    "mm of sums": (
        lambda x, y: torch.addmm(x[:, :7], x, y.mT, beta=3, alpha=2),
        lambda a, b: a[:, :7] * a.dtype.type(3) + (a @ b.T) * a.dtype.type(2),
    ),
    "bmm": (
        lambda x, y: torch.bmm(torch.stack([x, y]), torch.stack([y, x]).mT),
        lambda a, b: np.stack([a @ b.T, b @ a.T]),
    ),
    "mv": (lambda x, y: x.mv(y[0]), lambda a, b: a @ b[0]),
    "dot": (lambda x, y: x[0].dot(y[0]), lambda a, b: a[0] @ b[0]),
    "outer": (lambda x, y: torch.outer(x[0], y[0]), lambda a, b: np.outer(a[0], b[0])),
    "kron": (lambda x, y: torch.kron(x[:2, :9], y[:2]), lambda a, b: np.kron(a[:2, :9], b[:2])),
    "trace": (lambda x, _: x.trace(), lambda a, _: a.astype(np.int64).trace()),
    "floor_divide": (torch.floor_divide, np.floor_divide),
    "trunc": (
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        lambda a, b: ((a - np.fmod(a, b)) // b).astype(a.dtype),
    ),
    "floor": (lambda x, y: torch.div(x, y, rounding_mode="floor"), np.floor_divide),
    "floor by a number": (
        lambda x, _: torch.div(x, 7, rounding_mode="floor"),
        lambda a, _: a // a.dtype.type(7),
    ),
    "floor in place": (
        lambda x, y: x.clone().div_(y, rounding_mode="floor"),
        np.floor_divide,
    ),
    "floor_divide by a number": (lambda x, _: x // 7, lambda a, _: a // a.dtype.type(7)),
    "remainder by a number": (lambda x, _: x % 7, lambda a, _: a % a.dtype.type(7)),
    "remainder of a number": (lambda _, y: 100 % y, lambda _, b: b.dtype.type(100) % b),
    "fmod by a number": (
        lambda x, _: torch.fmod(x, 7),
        lambda a, _: np.fmod(a, a.dtype.type(7)),
    ),
    "add a large number": (lambda x, _: x + _large(x), lambda a, _: a + _large(a)),
    "times a large number": (lambda x, _: x * _large(x), lambda a, _: a * _large(a)),
    "below a large number": (lambda x, _: x < _large(x), lambda a, _: a < _large(a)),
    "clamp to a large number": (
        lambda x, _: x.clamp(max=_large(x)),
        lambda a, _: np.minimum(a, _large(a)),
    ),
    "filled with a large number": (
        lambda x, _: x.masked_fill(x > 3, _large(x)),
        lambda a, _: np.where(a > 3, _large(a), a),
    ),
    "from a large number": (
        lambda x, _: torch.arange(_large(x), _large(x) + 3, device=x.device, dtype=x.dtype),
        lambda a, _: _large(a) + np.arange(3, dtype=a.dtype),
    ),
    "addcmul": (lambda x, y: torch.addcmul(x, x, y), lambda a, b: a + a * b),
    "lcm": (lambda x, y: torch.lcm(x & 7, y & 15), lambda a, b: np.lcm(a & 7, b & 15)),
    "index_add": (
        lambda x, y: x.index_add(1, torch.arange(x.shape[1], device=x.device) // 2, y),
        lambda a, b: _added(a, b),
    ),
    "searchsorted": (
        lambda x, y: torch.searchsorted(x.flatten().sort().values, y[0]),
        lambda a, b: np.searchsorted(np.sort(a.flatten()), b[0]),
    ),
    "unique": (lambda x, _: x.unique(), lambda a, _: np.unique(a)),
    "isin": (lambda x, y: torch.isin(x, y[0]), lambda a, b: np.isin(a, b[0])),
    "diff": (lambda x, _: x.diff(), lambda a, _: np.diff(a)),
    "remainder": (torch.remainder, np.remainder),
    "fmod": (torch.fmod, np.fmod),
    "and": (torch.bitwise_and, np.bitwise_and),
    "or": (torch.bitwise_or, np.bitwise_or),
    "xor": (torch.bitwise_xor, np.bitwise_xor),
    "shift left": (lambda x, y: x << (y & 7), lambda a, b: a << (b & 7)),
    "shift right": (lambda x, y: x >> (y & 7), lambda a, b: a >> (b & 7)),
    "maximum": (torch.maximum, np.maximum),
    "minimum": (torch.minimum, np.minimum),
    "gcd": (lambda x, y: torch.gcd(x >> 1, y >> 1), lambda a, b: np.gcd(a >> 1, b >> 1)),
    "eq": (torch.eq, np.equal),
    "lt": (torch.lt, np.less),
    "ge": (torch.ge, np.greater_equal),
    "where": (lambda x, y: torch.where(x > y, x, y), lambda a, b: np.where(a > b, a, b)),
    "square": (lambda x, _: x * x, lambda a, _: a * a),
    "pow": (lambda x, _: x**3, lambda a, _: a**3),
    "neg": (lambda x, _: -x, lambda a, _: -a),
    "abs": (lambda x, _: (x >> 1).abs(), lambda a, _: np.abs(a >> 1)),
    "sign": (lambda x, _: x.sign(), lambda a, _: np.sign(a)),
    "not": (lambda x, _: ~x, lambda a, _: ~a),
    "clamp": (lambda x, _: x.clamp(3, 100), lambda a, _: a.clip(3, 100)),
    "sum": (lambda x, _: x.sum(-1), lambda a, _: a.astype(np.int64).sum(-1)),
    "sum down": (lambda x, _: x.sum(0), lambda a, _: a.astype(np.int64).sum(0)),
    "prod": (lambda x, _: (x & 3).prod(0), lambda a, _: (a & 3).astype(np.int64).prod(0)),
    "cumsum": (lambda x, _: x.cumsum(-1), lambda a, _: a.astype(np.int64).cumsum(-1)),
    "cumprod": (
        lambda x, _: (x | 1).cumprod(-1),
        lambda a, _: (a | 1).astype(np.int64).cumprod(-1),
    ),
    "cummax": (lambda x, _: x.cummax(-1).values, lambda a, _: np.maximum.accumulate(a, -1)),
    "cummin": (lambda x, _: x.cummin(-1).values, lambda a, _: np.minimum.accumulate(a, -1)),
    "amax": (lambda x, _: x.amax(-1), lambda a, _: a.max(-1)),
    "amin": (lambda x, _: x.amin(0), lambda a, _: a.min(0)),
    "argmax": (lambda x, _: x.gather(-1, x.argmax(-1, keepdim=True))[:, 0], lambda a, _: a.max(-1)),
    "sort": (lambda x, _: x.sort(-1).values, lambda a, _: np.sort(a, -1)),
    "sort down": (lambda x, _: x.sort(0).values, lambda a, _: np.sort(a, 0)),
    "topk": (lambda x, _: x.topk(7).values, lambda a, _: np.sort(a, -1)[:, ::-1][:, :7].copy()),
    "kthvalue": (lambda x, _: x.kthvalue(9).values, lambda a, _: np.sort(a, -1)[:, 8]),
    "median": (
        lambda x, _: x.median(-1).values,
        lambda a, _: np.sort(a, -1)[:, (a.shape[-1] - 1) // 2],
    ),
    "mode": (lambda x, _: (x & 1).mode(-1).values, lambda a, _: _mode(a & 1)),
    "any": (lambda x, _: (x > 120).any(-1), lambda a, _: (a > 120).any(-1)),
    "all": (lambda x, _: (x < 120).all(-1), lambda a, _: (a < 120).all(-1)),
    "all of all": (lambda x, _: (x[:1, 1:4] > 120).all(), lambda a, _: (a[:1, 1:4] > 120).all()),
    "count": (lambda x, _: x.count_nonzero(-1), lambda a, _: np.count_nonzero(a, -1)),
    "to float32": (lambda x, _: x.float(), lambda a, _: a.astype(np.float32)),
    "to int8": (lambda x, _: x.to(torch.int8), lambda a, _: a.astype(np.int8)),
    "to int32": (lambda x, _: x.to(torch.int32), lambda a, _: a.astype(np.int32)),
    "to int64": (lambda x, _: x.to(torch.int64), lambda a, _: a.astype(np.int64)),
    "flip": (lambda x, _: x.flip(-1), lambda a, _: a[:, ::-1].copy()),
    "roll": (lambda x, _: x.roll(3, -1), lambda a, _: np.roll(a, 3, -1)),
    "tril": (lambda x, _: x.tril(2), lambda a, _: np.tril(a, 2)),
    "cat": (lambda x, y: torch.cat([x, y, x], 1), lambda a, b: np.concatenate([a, b, a], 1)),
}
FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": torch.clone,
    "turned": lambda x: x.mT.contiguous().mT,
    "spread": lambda x: torch.stack([x, x ^ 1], -1).flatten(1)[:, ::2],
    "shifted": lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape),
}


def _large(x: Any) -> Any:
    """Return a number that no float of as many bits has, in the type of the tensor, or of numpy."""
    if isinstance(x, Tensor):
        return torch.iinfo(x.dtype).max - 4
    return x.dtype.type(np.iinfo(x.dtype).max - 4)


def _added(a: Numbers, b: Numbers) -> Numbers:
    """Add pairs of columns of b to a column of a."""
    pairs: Numbers = np.add.reduceat(b, np.arange(0, b.shape[1], 2), axis=1, dtype=b.dtype)
    total = a.copy()
    total[:, : pairs.shape[1]] += pairs
    return total


def _mode(a: Numbers) -> Numbers:
    """Return the more frequent of 0 and 1, and 0 if they are equally frequent."""
    return (a.astype(np.int64).sum(-1) * 2 > a.shape[-1]).astype(a.dtype)


def _operands(ground: CaseContext, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return operands of random bits, then the ends of the range, and small numbers,
    which are frequent.
    """
    info = torch.iinfo(kind)
    integers = torch.randint(-(2**62), 2**62, (2, COUNT // 7 * 7), generator=ground.generator)
    x, y = integers.to(kind)
    ends = torch.tensor([info.max, info.max - 1, 0, 1, 2, 7, 97]).to(kind)
    x[:7], x[-7:], y[10:17] = ends, ends.flip(0), ends
    x[200:300] = x[200:300] & 7
    y[300:700] = y[300:700] & 15
    # No quotient of the lowest number by -1, which does not fit.
    y = torch.where((y == 0) | (y == -1), 3, y) if kind != torch.uint8 else y.clamp(min=1)
    return x.reshape(7, -1), y.reshape(7, -1)


def _pair(name: str, ground: CaseContext) -> Iterator[Answer]:
    call, numbers = PAIRS[name]
    for kind in KINDS:
        x, y = _operands(ground, kind)
        with np.errstate(all="ignore"):
            expected = numbers(array(x), array(y))
        for form, change in FORMS.items():
            actual = call(change(x.to(ground.device)), change(y.to(ground.device)))
            yield Answer(f"{str(kind).removeprefix('torch.')}, {form}", actual, expected)


WHOLE_NUMBERS = HazardClass(
    name="whole numbers",
    asks="are whole numbers of every width exact, over their range and from any memory",
    hazards=rows({name: partial(_pair, name) for name in PAIRS}),
)
