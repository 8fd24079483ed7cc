"""Linear algebra of one matrix and of many: each solution is put back into its equation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.cases.special.rows import Answer, CaseContext, Table, complex_of, rows

# One, few and many at a time; around the sizes of warps, wavefronts and tiles.
BATCHES = ((), (3,), (2, 3), (70,))
SIZES = (1, 3, 17, 33, 65)
MANY = 65_600
CONDITION = 3.0
Matrix = Callable[..., Tensor]


def _drawn(ground: CaseContext, *shape: int) -> Tensor:
    """Return uniform numbers from -1 to 1."""
    return torch.rand(shape, generator=ground.generator, dtype=torch.float64) * 2 - 1


def _kind(ground: CaseContext, x: Tensor, *, complex_too: bool) -> Tensor:
    """Return the numbers rounded as on the device, in float64 or complex128."""
    return _rounded(ground, torch.complex(x, _drawn(ground, *x.shape) * 0.5) if complex_too else x)


def _unitary(ground: CaseContext, batch: tuple[int, ...], n: int, *, complex_too: bool) -> Tensor:
    shape = (*batch, n, n, 2) if complex_too else (*batch, n, n)
    x = torch.randn(shape, generator=ground.generator, dtype=torch.float64)
    return torch.linalg.qr(torch.view_as_complex(x) if complex_too else x).Q


def _conditioned(
    ground: CaseContext, batch: tuple[int, ...], n: int, *, complex_too: bool, positive: bool
) -> Tensor:
    """Return matrices of singular values from 1 to CONDITION between unitary factors.

    Whatever the seed, such a system has the condition number CONDITION at most. The factors are
    dense, so that an elimination has to exchange rows.
    """
    left = _unitary(ground, batch, n, complex_too=complex_too)
    right = left if positive else _unitary(ground, batch, n, complex_too=complex_too)
    sizes = 1 + (CONDITION - 1) * (_drawn(ground, *batch, 1, n) + 1) / 2
    whole = (left * sizes) @ right.mH
    return _rounded(ground, (whole + whole.mH) / 2 if positive else whole)


def _narrow(ground: CaseContext, x: Tensor) -> Tensor:
    return x.to(complex_of(ground.dtype) if x.is_complex() else ground.dtype)


def _rounded(ground: CaseContext, x: Tensor) -> Tensor:
    return _narrow(ground, x).to(x.dtype)


def _sent(ground: CaseContext, x: Tensor) -> Tensor:
    return _narrow(ground, x).to(ground.device)


def _back(x: Tensor) -> Tensor:
    return x.detach().cpu().to(torch.complex128 if x.is_complex() else torch.float64)


Equation = Callable[[CaseContext, Tensor, Tensor, Tensor], Iterator["tuple[str, Tensor, Tensor]"]]


def _solved(
    _: CaseContext, a: Tensor, b: Tensor, on_device: Tensor
) -> Iterator[tuple[str, Tensor, Tensor]]:
    rhs = b.to(on_device.dtype).to(on_device.device)
    yield "solve", a @ _back(torch.linalg.solve(on_device, rhs)), b
    yield "solve from the right", _back(torch.linalg.solve(on_device, rhs.mT, left=False)) @ a, b.mT
    if a.dim() > 2:
        shared = b.flatten(end_dim=-3)[0]
        solution = _back(
            torch.linalg.solve(on_device, shared.to(on_device.dtype).to(on_device.device))
        )
        yield "solve for one side of all", a @ solution, shared.expand_as(b)
    yield "inverse", a @ _back(torch.linalg.inv(on_device)), _one(a)
    p, lower, upper = (_back(x) for x in torch.linalg.lu(on_device))
    yield "lu", p @ lower @ upper, a
    factors, pivots = torch.linalg.lu_factor(on_device)
    p, lower, upper = (_back(x) for x in torch.lu_unpack(factors, pivots))
    yield "lu_factor", p @ lower @ upper, a
    yield "lu_solve", a @ _back(torch.linalg.lu_solve(factors, pivots, rhs)), b
    q, r = (_back(x) for x in torch.linalg.qr(on_device))
    yield "qr", q @ r, a
    yield "qr's columns", q.mH @ q, _one(a)
    if a.shape[-1] <= 17:
        sign, size = (_back(x) for x in torch.linalg.slogdet(on_device))
        exact_sign, exact_size = torch.linalg.slogdet(a)
        yield "slogdet", sign * size.exp() / exact_size.exp(), exact_sign


def _positively(
    _: CaseContext, a: Tensor, b: Tensor, on_device: Tensor
) -> Iterator[tuple[str, Tensor, Tensor]]:
    rhs = b.to(on_device.dtype).to(on_device.device)
    lower = torch.linalg.cholesky(on_device)
    yield "cholesky", _back(lower) @ _back(lower).mH, a
    yield "cholesky_solve", a @ _back(torch.cholesky_solve(rhs, lower)), b
    upper = torch.linalg.cholesky(on_device, upper=True)
    yield "cholesky, upper", _back(upper).mH @ _back(upper), a
    yield "cholesky_inverse", a @ _back(torch.cholesky_inverse(lower)), _one(a)
    solution = _back(torch.linalg.solve_triangular(lower, rhs, upper=False))
    yield "triangular", _back(lower) @ solution, b
    values, vectors = (_back(x) for x in torch.linalg.eigh(on_device))
    yield "eigh", a @ vectors, vectors * values.unsqueeze(-2)
    yield "eigh's vectors", vectors.mH @ vectors, _one(a)
    yield "eigh's order", (values.diff(dim=-1) >= 0).all().double(), torch.ones(()).double()
    yield "eigvalsh", _back(torch.linalg.eigvalsh(on_device)), values
    u, s, v = (_back(x) for x in torch.linalg.svd(on_device))
    yield "svd", (u * s.unsqueeze(-2).to(u.dtype)) @ v, a
    yield "svd's rows", v @ v.mH, _one(a)


def _halves(
    _: CaseContext, a: Tensor, b: Tensor, on_device: Tensor
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Check that functions of one triangle ignore the other one."""
    rhs = b.to(on_device.dtype).to(on_device.device)
    for upper in (False, True):
        keep, drop = (torch.triu, torch.tril) if upper else (torch.tril, torch.triu)
        half = keep(on_device) + drop(torch.full_like(on_device, 7.5), -1 if upper else 1)
        triangle = "upper" if upper else "lower"
        older = _back(torch.cholesky(half, upper=upper))
        factor = torch.linalg.cholesky(half, upper=upper)
        yield f"older cholesky, {triangle}", older, _back(factor)
        whole = _back(factor).mH @ _back(factor) if upper else _back(factor) @ _back(factor).mH
        yield f"cholesky, {triangle}", whole, a
        spoiled = factor + drop(torch.full_like(on_device, 7.5), -1 if upper else 1)
        yield f"cholesky_solve, {triangle}", a @ _back(torch.cholesky_solve(rhs, spoiled, upper)), b
        inverse = _back(torch.cholesky_inverse(spoiled, upper))
        yield f"cholesky_inverse, {triangle}", a @ inverse, _one(a)
        solution = _back(torch.linalg.solve_triangular(spoiled, rhs, upper=upper))
        yield f"triangular, {triangle}", keep(_back(factor)) @ solution, b
        plain = {"upper": upper, "unitriangular": True}
        solution = _back(torch.linalg.solve_triangular(spoiled / 8, rhs, **plain))
        ones = keep(_back(factor) / 8, 1 if upper else -1) + _one(a)
        yield f"unitriangular, {triangle}", ones @ solution, b
        values, vectors = torch.linalg.eigh(half, UPLO="U" if upper else "L")
        scaled = _back(vectors) * _back(values).unsqueeze(-2)
        yield f"eigh, {triangle}", a @ _back(vectors), scaled
        actual = torch.linalg.eigvalsh(half, UPLO="U" if upper else "L")
        yield f"eigvalsh, {triangle}", _back(actual), _back(values)


def _deficient(ground: CaseContext, batch: tuple[int, ...], n: int, *, complex_too: bool) -> Tensor:
    """Return matrices of half the rank, with a row and a column of zeros where there are
    more than two.
    """
    rank = n // 2
    x = _drawn(ground, *batch, n, rank) @ _drawn(ground, *batch, rank, n)
    x[..., 2:3, :] = x[..., :, 2:3] = 0.0
    return _kind(ground, (x + x.mT) / 2, complex_too=complex_too)


def _bases(
    ground: CaseContext, a: Tensor, b: Tensor, on_device: Tensor
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Check that vectors are a basis at any rank, and that row exchanges are reported."""
    del b
    # CUDA's kernels for batches stop at a factor that is zero (2.11 on an H200).
    if ground.device == "cpu" or a.dim() == 2:
        p, lower, upper = (_back(x) for x in torch.linalg.lu(on_device))
        yield "lu", p @ lower @ upper, a
    u, s, v = (_back(x) for x in torch.linalg.svd(on_device))
    yield "svd", (u * s.unsqueeze(-2).to(u.dtype)) @ v, a
    yield "svd's columns", u.mH @ u, _one(a)
    yield "svd's rows", v @ v.mH, _one(a)
    yield "svdvals", _back(torch.linalg.svdvals(on_device)), s
    q, r = (_back(x) for x in torch.linalg.qr(on_device))
    yield "qr", q @ r, a
    yield "qr's columns", q.mH @ q, _one(a)
    if not a.is_complex():
        values, vectors = (_back(x) for x in torch.linalg.eigh(on_device))
        yield "eigh", a @ vectors, vectors * values.unsqueeze(-2)
        yield "eigh's vectors", vectors.mH @ vectors, _one(a)


def _one(a: Tensor) -> Tensor:
    return torch.eye(a.shape[-1], dtype=a.dtype).expand_as(a)


def _asked(
    matrix: Matrix, equation: Equation, ground: CaseContext, *, complex_too: bool
) -> Iterator[Answer]:
    for batch in BATCHES:
        for n in SIZES:
            if math.prod(batch) * n > 1200:
                continue
            a = matrix(ground, batch, n, complex_too=complex_too)
            b = _rounded(ground, _drawn(ground, *batch, n, 5).to(a.dtype))
            # Backward stable: some roundings of the product for each of n steps.
            slack = 16 * math.sqrt(n) * (8 + math.sqrt(n)) * ground.eps
            for label, actual, expected in equation(ground, a, b, _sent(ground, a)):
                size = max(1.0, float(expected.abs().max()))
                where = f"{label} of {n}, {batch or 'alone'}"
                yield Answer(where, actual, expected, slack=slack * size)


_plain = partial(_conditioned, positive=False)
_positive = partial(_conditioned, positive=True)
TABLE: dict[str, Any] = {
    "systems": partial(_asked, _plain, _solved, complex_too=False),
    "complex systems": partial(_asked, _plain, _solved, complex_too=True),
    "positive systems": partial(_asked, _positive, _positively, complex_too=False),
    "complex positive systems": partial(_asked, _positive, _positively, complex_too=True),
    "bases": partial(_asked, _deficient, _bases, complex_too=False),
    "complex bases": partial(_asked, _deficient, _bases, complex_too=True),
}


def _many(ground: CaseContext) -> Iterator[Answer]:
    """Check more matrices than a grid's third dimension has blocks."""
    a = _plain(ground, (MANY,), 2, complex_too=False)
    b = _drawn(ground, MANY, 2, 1).to(ground.dtype).double()
    on_device, rhs = _sent(ground, a), ground.send(b)
    factors, pivots = torch.linalg.lu_factor(on_device)
    for label, actual in (
        ("solve", torch.linalg.solve(on_device, rhs)),
        ("lu_solve", torch.linalg.lu_solve(factors, pivots, rhs)),
        ("inverse", torch.linalg.inv(on_device) @ rhs),
    ):
        yield Answer(label, a @ _back(actual), b, slack=64 * ground.eps)


TRIANGLES: dict[str, Any] = {
    "triangles": partial(_asked, _positive, _halves, complex_too=False),
    "complex triangles": partial(_asked, _positive, _halves, complex_too=True),
}
LINEAR_SYSTEMS = Table(
    name="linear algebra",
    asks="do solutions and factors solve their equations, of one, of few and of many",
    rows=(
        *rows(TABLE),
        *rows({"many systems": _many}),
        # Not every library promises it of each.
        *rows(TRIANGLES, devices=("cpu", "cuda")),
    ),
)
