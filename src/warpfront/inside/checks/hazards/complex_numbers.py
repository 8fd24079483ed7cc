"""Complex numbers: arithmetic, views that only note a conjugate, derivatives of both parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfront.inside.checks.hazards.answers import Answer, Ground, HazardClass, array, rows

Numbers = Any
# One argument, or two of the same shape; relative to the largest number that goes in or comes out.
CALLS: dict[str, tuple[Callable[..., Tensor], Callable[..., Numbers]]] = {
    "add": (lambda x, y: x + y, lambda a, b: a + b),
    "mul": (lambda x, y: x * y, lambda a, b: a * b),
    "div": (lambda x, y: x / y, lambda a, b: a / b),
    "conjugate product": (lambda x, y: x.conj() * y, lambda a, b: a.conj() * b),
    "resolved conjugate": (lambda x, y: x.conj().resolve_conj(), lambda a, b: a.conj()),
    "negative imaginary part": (lambda x, y: x.conj().imag, lambda a, b: -a.imag),
    "abs": (lambda x, y: x.abs(), lambda a, b: np.abs(a)),
    "angle": (lambda x, y: x.angle(), lambda a, b: np.angle(a)),
    "sqrt": (lambda x, y: x.sqrt(), lambda a, b: np.sqrt(a)),
    "exp": (lambda x, y: x.exp(), lambda a, b: np.exp(a)),
    "log": (lambda x, y: x.log(), lambda a, b: np.log(a)),
    "sin": (lambda x, y: x.sin(), lambda a, b: np.sin(a)),
    "tanh": (lambda x, y: x.tanh(), lambda a, b: np.tanh(a)),
    "reciprocal": (lambda x, y: x.reciprocal(), lambda a, b: 1 / a),
    "sum": (lambda x, y: x.sum(1), lambda a, b: a.sum(1)),
    "mean": (lambda x, y: x.mean(0), lambda a, b: a.mean(0)),
    "cumsum": (lambda x, y: x.cumsum(1), lambda a, b: a.cumsum(1)),
    "prod": (lambda x, y: x[:, :5].prod(1), lambda a, b: a[:, :5].prod(1)),
    "matmul": (lambda x, y: x @ y.mT, lambda a, b: a @ b.T),
    "adjoint product": (lambda x, y: x.mH @ y, lambda a, b: a.conj().T @ b),
    "product of conjugates": (lambda x, y: x.conj() @ y.mH, lambda a, b: a.conj() @ b.conj().T),
    "vdot": (lambda x, y: torch.vdot(x[0], y[0]), lambda a, b: np.vdot(a[0], b[0])),
    "norm": (
        lambda x, y: torch.linalg.vector_norm(x, dim=1),
        lambda a, b: np.sqrt((np.abs(a) ** 2).sum(1)),
    ),
    "fft": (lambda x, y: torch.fft.fft(x), lambda a, b: np.fft.fft(a)),
    "there and back": (lambda x, y: torch.fft.ifft(torch.fft.fft(x)), lambda a, b: a),
    "two dimensions": (lambda x, y: torch.fft.fft2(x), lambda a, b: np.fft.fft2(a)),
    "real transform": (
        lambda x, y: torch.fft.irfft(torch.fft.rfft(x.real), n=x.shape[1]),
        lambda a, b: a.real,
    ),
    "shift": (lambda x, y: torch.fft.fftshift(x), lambda a, b: np.fft.fftshift(a)),
    "polar": (lambda x, y: torch.polar(x.abs(), x.angle()), lambda a, b: a),
    "equal": (lambda x, y: x == x.conj(), lambda a, b: a == a.conj()),
    "where": (lambda x, y: torch.where(x.real > 0, x, y), lambda a, b: np.where(a.real > 0, a, b)),
    "transposed": (lambda x, y: x.mH.contiguous(), lambda a, b: a.conj().T),
    "cat of a conjugate": (
        lambda x, y: torch.cat([x.conj(), y]),
        lambda a, b: np.concatenate([a.conj(), b]),
    ),
}


def _pair(ground: Ground) -> tuple[Tensor, Tensor]:
    shape = (17, 33)
    kind = torch.complex64 if ground.dtype == torch.float32 else torch.complex128
    x, y = (torch.complex(ground.normal(*shape), ground.normal(*shape)) for _ in range(2))
    return x.to(kind), y.to(kind)


def _call(name: str, ground: Ground) -> Iterator[Answer]:
    call, numbers = CALLS[name]
    x, y = _pair(ground)
    right = np.array(numbers(*(array(z.to(torch.complex128)) for z in (x, y))))
    found = call(x.to(ground.device), y.to(ground.device)).resolve_conj().resolve_neg()
    slack = 64 * ground.eps * (1 + float(np.abs(right).max())) if right.dtype != np.bool_ else 0.0
    yield Answer(label="value", found=found, right=right, slack=slack)


def _derivatives(ground: Ground) -> Iterator[Answer]:
    """By the definition that torch states: the conjugate of the derivative, for real results."""
    x, y = _pair(ground)
    a, b = (array(z.to(torch.complex128)) for z in (x, y))
    for label, function, right in (
        ("squared magnitude", lambda u, v: (u.abs() ** 2).sum(), 2 * a),
        ("magnitude", lambda u, v: u.abs().sum(), a / np.abs(a)),
        ("real part of a product", lambda u, v: (u * v).real.sum(), b.conj()),
        ("conjugate product", lambda u, v: (u.conj() * v).real.sum(), b),
        ("square", lambda u, v: (u * u).real.sum(), 2 * a.conj()),
    ):
        leaf = x.to(ground.device, copy=True).requires_grad_()
        function(leaf, y.to(ground.device)).backward()
        assert leaf.grad is not None
        slack = 64 * ground.eps * (1 + float(np.abs(right).max()))
        yield Answer(label=label, found=leaf.grad.resolve_conj(), right=right, slack=slack)


COMPLEX_NUMBERS = HazardClass(
    name="complex",
    asks="are complex arithmetic, conjugates and derivatives right",
    hazards=rows(
        {**{name: partial(_call, name) for name in CALLS}, "derivatives": _derivatives},
        dtypes=("float32", "float64"),
    ),
)
