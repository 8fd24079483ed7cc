"""The same operations on many kinds of numbers. They are all on one side of zero, so that
padding of a block shows; equal; with NaN and infinities; large. Their count is one, none, or one
that no block divides.

The expected result is float64's on the CPU. Indices are judged by the numbers that they point to,
for among equals any index may be returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.edge_cases.answers import (
    FLOATS,
    Answer,
    CaseContext,
    HazardClass,
    array,
    rows,
)

Call = Callable[[Tensor], Any]
LENGTHS = (1, 2, 3, 20, 33, 100, 257, 1025, 20_001)
QUICK_LENGTHS = (20,)


def _positive(ground: CaseContext, n: int) -> Tensor:
    return ground.index(100, 3, n).double() + 1


def _broken(ground: CaseContext, n: int) -> Tensor:
    """Return a row with NaN among its numbers, one with both infinities, and one
    of infinity alone.
    """
    x = ground.whole(3, n, most=40)
    x[0, :: max(n // 3, 1)] = math.nan
    x[1, ground.index(n, 1)], x[1, ground.index(n, 1)] = math.inf, -math.inf
    x[2] = -math.inf
    return x


WORLDS: Mapping[str, Callable[[CaseContext, int], Tensor]] = {
    "above nought": _positive,
    "below nought": lambda ground, n: -_positive(ground, n),
    "equal": lambda ground, n: torch.full((3, n), -7.0, dtype=torch.float64),
    "broken": _broken,
}


def _at(values_and_places: Any, x: Tensor) -> tuple[Tensor, ...]:
    values, places = values_and_places
    if values.dim() < x.dim():
        return values, x.gather(-1, places[..., None])[..., 0]
    return values, x.gather(-1, places)


def _there(places: Tensor, x: Tensor) -> Tensor:
    return x.gather(-1, places[..., None])[..., 0]


def _few(x: Tensor) -> int:
    return min(int(x.shape[-1]), 5)


def _low(x: Tensor) -> Tensor:
    """Clamp numbers so that the sum of 20,001 of their third powers is below 2^24, and exact."""
    return torch.where(x.isfinite(), x.clamp(-3, 3), x)


# Of any numbers, NaN among them.
CHOOSING: Mapping[str, Call] = {
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: x.amin(-1),
    "amax of all": lambda x: x.amax(),
    "amin of all": lambda x: x.amin(),
    "aminmax": lambda x: tuple(x.aminmax(dim=-1)),
    "argmax": lambda x: _there(x.argmax(-1), x),
    "argmin": lambda x: _there(x.argmin(-1), x),
    "argmax of all": lambda x: x.flatten()[x.argmax()],
    "argmin of all": lambda x: x.flatten()[x.argmin()],
    "argmax down": lambda x: _there(x.mT.contiguous().argmax(0), x),
    "argmin down": lambda x: _there(x.mT.contiguous().argmin(0), x),
    "max": lambda x: _at(x.max(-1), x),
    "min": lambda x: _at(x.min(-1), x),
    "cummax": lambda x: _at(x.cummax(-1), x),
    "cummin": lambda x: _at(x.cummin(-1), x),
    "sort": lambda x: _at(x.sort(-1), x),
    "sort, falling": lambda x: _at(x.sort(-1, descending=True), x),
    "topk": lambda x: _at(x.topk(_few(x)), x),
    "topk, smallest": lambda x: _at(x.topk(_few(x), largest=False), x),
    "kthvalue": lambda x: _at(x.kthvalue(_few(x)), x),
    "median": lambda x: _at(x.median(-1), x),
    "nanmedian": lambda x: x.nanmedian(-1).values,
    "median of all": lambda x: x.median(),
    "any": lambda x: x.any(-1),
    "all": lambda x: x.all(-1),
    "all of few": lambda x: (x > 3)[:, :2].all(),
    "any of few": lambda x: (x > 3)[:, :2].any(),
    "count_nonzero": lambda x: x.count_nonzero(-1),
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "fmin": lambda x: torch.fmin(x, x.flip(0)),
    "clamp": lambda x: x.clamp(-3, 5),
    "max_pool1d": lambda x: functional.max_pool1d(x[None], 3, 2, 1) if x.shape[1] > 2 else x,
    "max_pool2d": lambda x: functional.max_pool2d(x[None], 3, 2, 1),
    "scatter, largest": lambda x: torch.full_like(x, -200.0).scatter_reduce(
        1, torch.zeros(x.shape, dtype=torch.int64, device=x.device), x, "amax", include_self=False
    ),
    "index, smallest": lambda x: torch.full_like(x, 200.0).index_reduce(
        1, torch.zeros(x.shape[1], dtype=torch.int64, device=x.device), x, "amin"
    ),
}
# Whole numbers, so that sums are exact.
ADDING: Mapping[str, Call] = {
    "sum": lambda x: x.sum(-1),
    "sum of all": lambda x: x.sum(),
    "nansum": lambda x: x.nansum(-1),
    "mean": lambda x: x.mean(-1),
    "mean down": lambda x: x.mT.contiguous().mean(0),
    "cumsum": lambda x: x.cumsum(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "softmax down": lambda x: x.mT.contiguous().softmax(0),
    "norm": lambda x: torch.linalg.vector_norm(_low(x), dim=-1),
    "norm of order 1": lambda x: torch.linalg.vector_norm(x, 1, dim=-1),
    "norm of order 3": lambda x: torch.linalg.vector_norm(_low(x), 3, dim=-1),
    "norm of order infinity": lambda x: torch.linalg.vector_norm(x, math.inf, dim=-1),
    "norm of order 0": lambda x: torch.linalg.vector_norm(x, 0, dim=-1),
    "avg_pool1d": lambda x: functional.avg_pool1d(x[None], 3, 2, 1, count_include_pad=False),
    "diff": lambda x: x.diff(dim=-1),
}


def _of_a_world(call: Call, exact: bool, ground: CaseContext) -> Iterator[Answer]:
    if ground.quick and ground.half:
        return
    for world in ("above nought", "broken") if ground.quick else WORLDS:
        make = WORLDS[world]
        for n in QUICK_LENGTHS if ground.quick else LENGTHS:
            x = make(ground, n)
            reference, actual = call(x), call(ground.send(x))
            single = isinstance(reference, Tensor)
            pairs = [(actual, reference)] if single else list(zip(actual, reference, strict=True))
            for place, (mine, expected) in enumerate(pairs):
                label = f"result {place} of {n}, {world}"
                yield _judged(label, mine, expected, exact, ground)


def _judged(label: str, mine: Tensor, expected: Tensor, exact: bool, ground: CaseContext) -> Answer:
    """Return an answer with its bound. Sums of these integers are below 2^24 and exact in
    float32, except squares and sums after exponentials. Those may be sqrt(n) roundings off, and
    logarithms as many of their arguments.
    """
    if exact or not expected.is_floating_point():
        return Answer(label, mine, array(expected))
    finite = expected[expected.isfinite()].abs()
    most = float(finite.max()) if finite.numel() else 0.0
    steps = 32 + math.sqrt(mine.shape[-1] if mine.dim() else 1)
    slack = steps * float(torch.finfo(torch.float32).eps) * (1 + most)
    return Answer(label, mine, array(expected), ulps=4, slack=slack)


MATRIX: Mapping[str, tuple[Callable[..., Tensor], tuple[int, ...], tuple[tuple[int, ...], ...]]] = {
    "addmm": (torch.addmm, (5, 7), ((5, 3), (3, 7))),
    "addmm with a vector": (torch.addmm, (7,), ((5, 3), (3, 7))),
    "addmv": (torch.addmv, (5,), ((5, 3), (3,))),
    "addr": (torch.addr, (5, 7), ((5,), (7,))),
    "addbmm": (torch.addbmm, (5, 7), ((2, 5, 3), (2, 3, 7))),
    "baddbmm": (torch.baddbmm, (2, 5, 7), ((2, 5, 3), (2, 3, 7))),
}


def _ignored(name: str, ground: CaseContext) -> Iterator[Answer]:
    """Check that beta of 0 ignores its operand whatever its values, as documented, in place too."""
    call, shape, shapes = MATRIX[name]
    operands = [ground.whole(*operand_shape) for operand_shape in shapes]
    expected = array(call(torch.zeros(shape, dtype=torch.float64), *operands, beta=0, alpha=2))
    on_device = [ground.send(operand) for operand in operands]
    for spoil in (math.nan, math.inf, -math.inf):
        destination = ground.send(torch.full(shape, spoil, dtype=torch.float64))
        actual = call(destination, *on_device, beta=0, alpha=2)
        yield Answer(f"{spoil}", actual, expected, ulps=1)
        if destination.shape == expected.shape:
            changed = getattr(destination, f"{call.__name__}_")(*on_device, beta=0, alpha=2)
            yield Answer(f"{spoil}, in place", changed, expected, ulps=1)


def _neighbours(x: Tensor, y: Tensor) -> Tensor:
    """Return the next number of the dtype towards y, from its bits: they count up
    away from zero.
    """
    whole = torch.int32 if x.dtype == torch.float32 else torch.int16
    bits = x.view(whole)
    step = torch.where((x < y) == (x > 0), 1, -1).to(whole)
    moved = torch.where(x == 0, torch.where(y > 0, 1, torch.iinfo(whole).min + 1), bits + step)
    moved = torch.where(x == y, bits, moved.to(whole))
    near = moved.to(whole).view(x.dtype)
    return torch.where(x.isnan() | y.isnan(), math.nan, near)


EXACTLY: Mapping[str, tuple[Callable[[Tensor, Tensor], Any], Callable[[Tensor, Tensor], Any]]] = {
    "nextafter": (torch.nextafter, _neighbours),
    "copysign": (torch.copysign, lambda x, y: torch.where(_signs(x) == _signs(y), x, -x)),
    "atan2 of noughts": (
        lambda x, _: torch.atan2(torch.copysign(torch.zeros_like(x), x), -torch.ones_like(x)),
        lambda x, _: torch.where(_signs(x), -math.pi, math.pi).double(),
    ),
    "signbit": (lambda x, _: x.signbit(), lambda x, _: _signs(x)),
    "frexp, mantissa": (lambda x, _: x.frexp().mantissa, lambda x, _: x.double().frexp().mantissa),
    "ldexp": (lambda x, _: x.ldexp(torch.tensor(3, device=x.device)), lambda x, _: x.double() * 8),
    "nan_to_num": (lambda x, _: x.nan_to_num(), lambda x, _: _held(x)),
    # Infinity would pass for the largest number.
    "nan_to_num, finite": (
        lambda x, _: x.nan_to_num().isfinite(),
        lambda x, _: x.isnan() | ~x.isnan(),
    ),
    "neg": (lambda x, _: -x, lambda x, _: -x.double()),
    "to float32 and back": (lambda x, _: x.float().to(x.dtype), lambda x, _: x),
    "trunc": (lambda x, _: x.trunc(), lambda x, _: x.double().trunc()),
    "round": (lambda x, _: x.round(), lambda x, _: torch.from_numpy(np.round(array(x.double())))),
    "floor": (lambda x, _: x.floor(), lambda x, _: x.double().floor()),
}


def _signs(x: Tensor) -> Tensor:
    return x.view(torch.int32 if x.dtype == torch.float32 else torch.int16) < 0


def _held(x: Tensor) -> Tensor:
    most = float(torch.finfo(x.dtype).max)
    return torch.where(x.isnan(), 0.0, x.double()).clamp(-most, most)


def _exactly(name: str, ground: CaseContext) -> Iterator[Answer]:
    """Check numbers of every size, halves, the ends of the range and beyond."""
    call, numbers = EXACTLY[name]
    info = torch.finfo(ground.dtype)
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, -1.5, info.max, info.min]
    edges += [info.smallest_normal, math.inf, -math.inf, math.nan]
    normals = ground.normal(200) * 2.0 ** ground.index(20, 200).double()
    x = torch.cat([torch.tensor(edges, dtype=torch.float64), normals]).to(ground.dtype)
    x = x.masked_fill(x.isnan(), math.nan)
    y = torch.cat([x[: len(edges)].flip(0), x[len(edges) :].flip(0)])
    if name == "ldexp":
        x = x[len(edges) :]
    with np.errstate(all="ignore"):
        expected = numbers(x, y)
    expected = expected.double() if expected.is_floating_point() else expected
    yield Answer("", call(ground.send(x), ground.send(y)), array(expected))


def _definite(ground: CaseContext) -> Tensor:
    x = ground.whole(6, 6)
    return x @ x.mT + 6 * torch.eye(6, dtype=torch.float64)


# By input: kernels that work in their input's memory have to copy it.
KEEPING: Mapping[Callable[[CaseContext], Tensor], Mapping[str, Call]] = {
    lambda ground: torch.complex(ground.whole(6, 10), ground.whole(6, 10)): {
        name: getattr(torch.fft, name)
        for name in [
            "fft",
            "ifft",
            "irfft",
            "hfft",
            "fft2",
            "ifft2",
            "irfft2",
            "fftn",
            "ifftn",
            "irfftn",
            "hfftn",
        ]
    },
    lambda ground: ground.whole(6, 10): {
        **{name: getattr(torch.fft, name) for name in ["rfft", "ihfft", "rfft2", "rfftn"]},
        "sort": torch.sort,
        "qr": torch.linalg.qr,
        "svd": torch.linalg.svd,
        "pinv": torch.linalg.pinv,
        "lstsq": lambda x: torch.linalg.lstsq(x.mT, x.mT),
        "median": torch.median,
        "cumsum": lambda x: x.cumsum(0),
        "topk": lambda x: x.topk(3),
        "kthvalue": lambda x: x.kthvalue(3),
        "unique": torch.unique,
    },
    _definite: {
        "inv": torch.linalg.inv,
        "cholesky": torch.linalg.cholesky,
        "eigh": torch.linalg.eigh,
        "lu_factor": torch.linalg.lu_factor,
        "solve": lambda x: torch.linalg.solve(x, x),
        "slogdet": torch.linalg.slogdet,
        "matrix_exp": lambda x: torch.linalg.matrix_exp(x / 1024),
    },
}


def _kept(ground: CaseContext) -> Iterator[Answer]:
    """Check that calls do not change their inputs."""
    for make, calls in KEEPING.items():
        for name, call in calls.items():
            x = make(ground)
            narrow = torch.complex64 if x.is_complex() else torch.float32
            for form, source in (("whole", x), ("turned", x.mT.contiguous().mT)):
                destination = source.to(ground.device, narrow, copy=True)
                call(destination)
                yield Answer(f"{name}, {form}", destination, array(x))


# 6 standard deviations of the correlation of independent numbers, for each of 16 distances.
DRAWING: Mapping[str, Callable[[Tensor], Tensor]] = {
    "uniform_": lambda x: x.uniform_(),
    "normal_": lambda x: x.normal_(),
    "bernoulli_": lambda x: x.bernoulli_(0.5),
    "bernoulli": lambda x: torch.bernoulli(torch.full_like(x, 0.3)),
    "dropout": lambda x: functional.dropout(torch.ones_like(x), 0.4),
    "exponential_": lambda x: x.exponential_().clamp(max=3),
    "random_": lambda x: x.random_(0, 100),
    "log_normal_": lambda x: x.log_normal_().clamp(max=3),
    "geometric_": lambda x: x.geometric_(0.3).clamp(max=5),
    "cauchy_": lambda x: x.cauchy_().clamp(-3, 3),
    "randperm": lambda x: torch.randperm(x.numel(), device=x.device).to(x.dtype),
}


def _apart(name: str, ground: CaseContext) -> Iterator[Answer]:
    """Check that numbers some distance apart are independent: across blocks, lanes and vectors."""
    torch.manual_seed(ground.seed)
    count = 2**16
    x = DRAWING[name](torch.empty(count, device=ground.device)).double().cpu()
    x = (x - x.mean()) / x.std()
    for distance in (2**k for k in range(16)):
        pairs = count - distance
        off = (x[distance:] * x[:pairs]).mean().abs() * math.sqrt(pairs)
        yield Answer(f"{distance} apart", (off > 6).to(torch.int64), 0)


KINDS_OF_NUMBERS = HazardClass(
    name="kinds of numbers",
    asks="do operations hold on numbers of one side of nought, equal, broken, and of any length",
    narrow=tuple(f"bits of {name}" for name in EXACTLY),
    seen_on=("cpu", "cuda"),
    hazards=(
        *rows({n: partial(_of_a_world, c, True) for n, c in CHOOSING.items()}, FLOATS),
        *rows({n: partial(_of_a_world, c, False) for n, c in ADDING.items()}),
        *rows({f"beta of 0, {name}": partial(_ignored, name) for name in MATRIX}, FLOATS),
        *rows({"inputs afterwards": _kept}),
        *rows({f"{name} apart": partial(_apart, name) for name in DRAWING}, each_seed=True),
        *rows({f"bits of {name}": partial(_exactly, name) for name in EXACTLY}, FLOATS),
    ),
)
