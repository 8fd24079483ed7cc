"""Complex numbers: arithmetic, views that only note a conjugate, derivatives of both parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfront_checks.edge_cases.answers import Answer, CaseContext, HazardClass, array, rows

Numbers = Any
# One argument, or two of the same shape; relative to the largest number that goes in or comes out.
CALLS: dict[str, tuple[Callable[..., Tensor], Callable[..., Numbers]]] = {
    "add": (lambda x, y: x + y, lambda a, b: a + b),
    "mul": (lambda x, y: x * y, lambda a, b: a * b),
    "div": (lambda x, y: x / y, lambda a, b: a / b),
    "conjugate product": (lambda x, y: x.conj() * y, lambda a, b: a.conj() * b),
    "resolved conjugate": (lambda x, _: x.conj().resolve_conj(), lambda a, _: a.conj()),
    "negative imaginary part": (lambda x, _: x.conj().imag, lambda a, _: -a.imag),
    "abs": (lambda x, _: x.abs(), lambda a, _: np.abs(a)),
    "angle": (lambda x, _: x.angle(), lambda a, _: np.angle(a)),
    "sqrt": (lambda x, _: x.sqrt(), lambda a, _: np.sqrt(a)),
    "exp": (lambda x, _: x.exp(), lambda a, _: np.exp(a)),
    "log": (lambda x, _: x.log(), lambda a, _: np.log(a)),
    "sin": (lambda x, _: x.sin(), lambda a, _: np.sin(a)),
    "tanh": (lambda x, _: x.tanh(), lambda a, _: np.tanh(a)),
    "reciprocal": (lambda x, _: x.reciprocal(), lambda a, _: 1 / a),
    "sum": (lambda x, _: x.sum(1), lambda a, _: a.sum(1)),
    "mean": (lambda x, _: x.mean(0), lambda a, _: a.mean(0)),
    "cumsum": (lambda x, _: x.cumsum(1), lambda a, _: a.cumsum(1)),
    "prod": (lambda x, _: x[:, :5].prod(1), lambda a, _: a[:, :5].prod(1)),
    "matmul": (lambda x, y: x @ y.mT, lambda a, b: a @ b.T),
    "adjoint product": (lambda x, y: x.mH @ y, lambda a, b: a.conj().T @ b),
    "product of conjugates": (lambda x, y: x.conj() @ y.mH, lambda a, b: a.conj() @ b.conj().T),
    "vdot": (lambda x, y: torch.vdot(x[0], y[0]), lambda a, b: np.vdot(a[0], b[0])),
    "norm": (
        lambda x, _: torch.linalg.vector_norm(x, dim=1),
        lambda a, _: np.sqrt((np.abs(a) ** 2).sum(1)),
    ),
    "fft": (lambda x, _: torch.fft.fft(x), lambda a, _: np.fft.fft(a)),
    "there and back": (lambda x, _: torch.fft.ifft(torch.fft.fft(x)), lambda a, _: a),
    "two dimensions": (lambda x, _: torch.fft.fft2(x), lambda a, _: np.fft.fft2(a)),
    "real transform": (
        lambda x, _: torch.fft.irfft(torch.fft.rfft(x.real), n=x.shape[1]),
        lambda a, _: a.real,
    ),
    "shift": (lambda x, _: torch.fft.fftshift(x), lambda a, _: np.fft.fftshift(a)),
    "polar": (lambda x, _: torch.polar(x.abs(), x.angle()), lambda a, _: a),
    "equal": (lambda x, _: x == x.conj(), lambda a, _: a == a.conj()),
    "where": (lambda x, y: torch.where(x.real > 0, x, y), lambda a, b: np.where(a.real > 0, a, b)),
    "transposed": (lambda x, _: x.mH.contiguous(), lambda a, _: a.conj().T),
    "cat of a conjugate": (
        lambda x, y: torch.cat([x.conj(), y]),
        lambda a, b: np.concatenate([a.conj(), b]),
    ),
}


def _pair(ground: CaseContext) -> tuple[Tensor, Tensor]:
    x, y = (torch.complex(ground.normal(17, 33), ground.normal(17, 33)) for _ in range(2))
    return x.to(ground.complex), y.to(ground.complex)


def _call(name: str, ground: CaseContext) -> Iterator[Answer]:
    call, numbers = CALLS[name]
    x, y = _pair(ground)
    expected = np.array(numbers(*(array(z.to(torch.complex128)) for z in (x, y))))
    actual = call(x.to(ground.device), y.to(ground.device)).resolve_conj().resolve_neg()
    slack = (
        64 * ground.eps * (1 + float(np.abs(expected).max())) if expected.dtype != np.bool_ else 0.0
    )
    yield Answer("value", actual, expected, slack=slack)


def _derivatives(ground: CaseContext) -> Iterator[Answer]:
    """Check gradients by the definition that torch states: for real results, the conjugate
    of the derivative.
    """
    x, y = _pair(ground)
    a, b = (array(z.to(torch.complex128)) for z in (x, y))
    tries: tuple[tuple[str, Callable[[Tensor, Tensor], Tensor], Numbers], ...] = (
        ("squared magnitude", lambda u, _: (u.abs() ** 2).sum(), 2 * a),
        ("magnitude", lambda u, _: u.abs().sum(), a / np.abs(a)),
        ("real part of a product", lambda u, v: (u * v).real.sum(), b.conj()),
        ("conjugate product", lambda u, v: (u.conj() * v).real.sum(), b),
        ("square", lambda u, _: (u * u).real.sum(), 2 * a.conj()),
    )
    for label, function, expected in tries:
        leaf = x.to(ground.device, copy=True).requires_grad_()
        function(leaf, y.to(ground.device)).backward()
        slack = 64 * ground.eps * (1 + float(np.abs(expected).max()))
        yield Answer(label, leaf.grad.resolve_conj(), expected, slack=slack)


# Sizes whose squares leave the range of float32 or float64, and parts where a function saturates.
FAR: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Numbers], Numbers], float]] = {
    "abs": (torch.abs, np.abs, math.inf),
    "angle": (torch.angle, np.angle, math.inf),
    "sqrt": (torch.sqrt, np.sqrt, math.inf),
    "log": (torch.log, np.log, math.inf),
    "tan": (torch.tan, np.tan, 60.0),
    "tanh": (torch.tanh, np.tanh, math.inf),
    "exp": (torch.exp, np.exp, 60.0),
}


# torch's kernel for complex128 overflows in squares; those of accelerators were not seen yet.
QUOTIENTS = {
    "quotient": (lambda x: x / (2 * x), lambda a: 0 * a + 0.5, math.inf),
}


def _hyperbolas(ground: CaseContext) -> Iterator[Answer]:
    """Check cosh and sinh where half of e^x is finite, and e^x is not."""
    far = 89.0 if ground.dtype == torch.float32 else 710.0
    x = torch.tensor([far + 1.5j, -far + 1.5j, far - 2.5j, 1 + 0.25j] * 5).to(ground.complex)
    a = array(x.to(torch.complex128))
    sign, half = np.sign(a.real), np.exp(np.abs(a.real) - math.log(2))
    tail = np.exp(-2 * np.abs(a.real))
    cosh = half * ((1 + tail) * np.cos(a.imag) + 1j * sign * (1 - tail) * np.sin(a.imag))
    sinh = half * (sign * (1 - tail) * np.cos(a.imag) + 1j * (1 + tail) * np.sin(a.imag))
    for name, call, expected in (("cosh", torch.cosh, cosh), ("sinh", torch.sinh, sinh)):
        slack = 1024 * ground.eps * np.abs(expected)
        actual = call(x.to(ground.device))
        yield Answer(name, actual, expected, slack=np.stack([slack, slack], -1))


def _far_out(ground: CaseContext) -> Iterator[Answer]:
    far = 1e20 if ground.dtype == torch.float32 else 1e200
    numbers = [
        3 + 4j,
        -3 + 4j,
        0.5 - 1j,
        50 + 1j,
        -50 + 0.5j,
        1 + 50j,
        0.25 - 50j,
        95 + 1j,
        -800 + 2j,
    ]
    numbers += [far * z for z in (3 + 4j, -4 + 3j, 1 + 1e-3j)]
    numbers += [z / far for z in (3 + 4j, 4 - 3j)]
    divides = ground.device == "cpu" and ground.dtype == torch.float32
    for name, (call, exact, most) in (FAR | QUOTIENTS if divides else FAR).items():
        x = torch.tensor([z for z in numbers if abs(z) <= most]).to(ground.complex).repeat(5)
        expected = exact(array(x.to(torch.complex128)))
        actual = call(x.to(ground.device))
        slack = 64 * ground.eps * np.abs(expected) + 1e-30
        if np.iscomplexobj(expected):
            slack = np.stack([slack, slack], -1)
        yield Answer(name, actual, expected, slack=slack)


COMPLEX_NUMBERS = HazardClass(
    name="complex",
    asks="are complex arithmetic, conjugates and derivatives right",
    hazards=rows(
        {
            **{name: partial(_call, name) for name in CALLS},
            "derivatives": _derivatives,
            "far out": _far_out,
        },
        ("float32", "float64"),
        each_seed=True,
    )
    + rows({"hyperbolas": _hyperbolas}, ("float32", "float64"), devices=("cpu",)),
)
