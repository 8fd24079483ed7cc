"""Calls that run with each of their sizes in turn (`sized`), by kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.edge_cases.answers import SINGLE, Hazard, HazardClass
from warpfront_checks.edge_cases.sized import (
    Call,
    Sized,
    Sizes,
    answers_of,
    exactly,
    nearly,
)


def _of(module: Any, name: str, *rest: Any, **options: Any) -> Call:
    """Return a call of tensors, with fixed arguments after them."""
    return lambda _, *tensors: getattr(module, name)(*tensors, *rest, **options)


_torch, _nn, _linalg, _fft = (
    partial(_of, module) for module in (torch, functional, torch.linalg, torch.fft)
)


def _places(x: Tensor, count: int, among: int) -> Tensor:
    """Return `count` indices below `among`, in no order, some of them twice."""
    return (torch.arange(count, device=x.device) * 7 + 2) % among


def _across(x: Tensor, index: Tensor) -> Tensor:
    """Return the same indices along the second of three axes for all lines."""
    return index.view(1, -1, 1).expand(x.shape[0], -1, x.shape[2])


def _turned(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT


Maker = Callable[..., Sized]


def _channels_last(call: Call) -> Call:
    return lambda sizes, *tensors: call(
        sizes,
        *(x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in tensors),
    )


_PICTURES: Mapping[str, Any] = {"b": 1, "c": 2, "o": 2, "y": 4, "x": 5}
_TAPS: Mapping[str, Any] = {"s": (3, 131), "t": (3, 131), "r": (2, 67)}
# Windows of which the largest are alone.
_largest: Maker = partial(exactly, **_PICTURES, z=4, apart=True)
_pooled: Maker = partial(nearly, **_PICTURES, z=4, least=0.0)
_RESIZED = (
    ("nearest", "b c y x"),
    ("linear", "b c x"),
    ("bilinear", "b c y x"),
    ("bicubic", "b c y x"),
    ("trilinear", "b c z y x"),
)
_PADDED = ("constant", "replicate", "circular")


def _looked(_: Sizes, x: Tensor, where: Tensor) -> Tensor:
    """Sample an image between its pixels."""
    return functional.grid_sample(x, where.sin() * 0.9, align_corners=False)


PICTURES: Mapping[str, Sized] = {
    "max_pool1d": _largest(_nn("max_pool1d", 3, 2, 1), "b c x"),
    "max_pool2d": _largest(_nn("max_pool2d", 3, 2, 1), "b c y x"),
    "max_pool2d of channels_last": _largest(_channels_last(_nn("max_pool2d", 3, 2, 1)), "b c y x"),
    "max_pool3d": _largest(_nn("max_pool3d", 2, 2, 1), "b c z y x"),
    "adaptive_max_pool1d": _largest(_nn("adaptive_max_pool1d", 3), "b c x"),
    "adaptive_max_pool2d": _largest(_nn("adaptive_max_pool2d", (2, 3)), "b c y x"),
    "avg_pool1d": _pooled(_nn("avg_pool1d", 3, 2, 1), "b c x"),
    "avg_pool2d": _pooled(_nn("avg_pool2d", (2, 3), (1, 2), 1), "b c y x"),
    "avg_pool3d": _pooled(
        lambda _, x: functional.avg_pool3d(functional.pad(x, (1,) * 6), 2), "b c z y x"
    ),
    "adaptive_avg_pool1d": _pooled(_nn("adaptive_avg_pool1d", 3), "b c x"),
    "adaptive_avg_pool2d": _pooled(_nn("adaptive_avg_pool2d", (2, 3)), "b c y x"),
    "adaptive_avg_pool3d": _pooled(_nn("adaptive_avg_pool3d", (2, 3, 2)), "b c z y x"),
    **{
        f"resized, {mode}": _pooled(
            _nn("interpolate", scale_factor=2, mode=mode), shape, least=1.0, roundings=128.0
        )
        for mode, shape in _RESIZED
    },
    **{f"padded, {mode}": _pooled(_nn("pad", (1, 1), mode=mode), "b c x") for mode in _PADDED},
    **{
        f"frames padded, {mode}": _pooled(_nn("pad", (1, 0, 0, 1), mode=mode), "b c y x")
        for mode in _PADDED
    },
    "reflected": _pooled(_nn("pad", (2, 1, 0, 0), mode="reflect"), "b c y 4"),
    "pixel_shuffle": _pooled(
        lambda _, x: functional.pixel_shuffle(x.flatten(1, 2), 2), "b c 4 y x"
    ),
    "looked at": _pooled(
        _looked, "b c y x, b p q 2", least=8.0, roundings=256.0, y=(4, 259), x=(5, 259)
    ),
}
# Along the middle one of three axes.
_LINES = "a k b"
_along: Maker = partial(exactly, a=2, b=2)
_along_nearly: Maker = partial(nearly, a=2, b=2)
_in_order: Maker = partial(exactly, a=2, b=2, apart=True)
# Where all numbers are alike, the rounding error of them is divided by the root of it.
EPS = 0.125
NORMS: Mapping[str, Sized] = {
    "layer_norm": nearly(
        lambda s, x, w, b: functional.layer_norm(x, (s.k,), w, b, EPS), "n k, k, k"
    ),
    "layer_norm of two axes": nearly(
        lambda s, x, w, b: functional.layer_norm(x, (s.j, s.k), w, b, EPS), "n j k, j k, j k"
    ),
    "rms_norm": nearly(lambda s, x, w: functional.rms_norm(x, (s.k,), w, EPS), "n k, k"),
    "group_norm": nearly(
        lambda s, x, w, b: functional.group_norm(
            x.flatten(1, 2), s.g, w.flatten(), b.flatten(), EPS
        ),
        "n g c x, g c, g c",
    ),
    "batch_norm": nearly(
        lambda _, x, w, b: functional.batch_norm(x, None, None, w, b, training=True, eps=EPS),
        "n c 2, c, c",
    ),
    "batch_norm of places": nearly(
        lambda _, x, w, b: functional.batch_norm(x, None, None, w, b, training=True, eps=EPS),
        "2 c y x, c, c",
    ),
    "batch_norm, inferred": nearly(
        lambda _, x, w, b: functional.batch_norm(
            x, w.detach(), b.detach().abs() + 1, w, b, training=False
        ),
        "n c x, c, c",
    ),
    "instance_norm": nearly(
        lambda _, x, w, b: functional.instance_norm(x, weight=w, bias=b, eps=EPS), "n c x 2, c, c"
    ),
    "normalize": nearly(lambda _, x: functional.normalize(x + 5, dim=1), _LINES),
    "prelu": nearly(_nn("prelu"), "n c x, c"),
    "glu": nearly(lambda _, x: functional.glu(x.flatten(1, 2), 1), "n 2 c x"),
    "weight_norm": nearly(
        lambda _, v, g: torch._weight_norm(v + 5, g, 0), "m n, m 1", fit=lambda x: x / 4
    ),
    "cosine_similarity": nearly(_nn("cosine_similarity"), "a k b, a k b", fit=lambda x: x / 4 + 3),
    "pairwise_distance": nearly(
        lambda _, x, y: functional.pairwise_distance(x, y + 40), "n k, n k", roundings=128.0
    ),
    "cdist": nearly(
        lambda _, x, y: torch.cdist(x, y + 40, compute_mode="donot_use_mm_for_euclid_dist"),
        "b m k, b n k",
        roundings=128.0,
    ),
}


def _heavy(x: Tensor) -> Tensor:
    """Return a matrix whose diagonal outweighs the rest, in an order that requires pivoting."""
    n = x.shape[-1]
    return (x / (32 * n) + 2 * torch.eye(n, dtype=x.dtype, device=x.device)).roll(1, -1)


def _positive(x: Tensor) -> Tensor:
    n = x.shape[-1]
    return x @ x.mT / (16 * n) + torch.eye(n, dtype=x.dtype, device=x.device)


_solved: Maker = partial(nearly, fit=lambda x: x, n=(3, 259), b=2, roundings=256.0)
SOLVED: Mapping[str, Sized] = {
    # One by one: of batches of large ones torch's own factors are wrong on the CPU where several
    # threads factor at once, the reference's too (pytorch#142815, #181570).
    "solve": _solved(lambda _, x, y: torch.linalg.solve(_heavy(x), y), "b n n, b n m", b=1),
    "solve, one for all": _solved(lambda _, x, y: torch.linalg.solve(_heavy(x), y), "n n, b n m"),
    "inverse": _solved(lambda _, x: torch.linalg.inv(_heavy(x)), "b n n", b=1),
    "determinant": _solved(
        lambda _, x: torch.linalg.slogdet(_heavy(x)).logabsdet, "b n n", backward=False, b=1
    ),
    "triangles": _solved(
        lambda _, x, y: torch.linalg.solve_triangular(_positive(x).tril(), y, upper=False),
        "b n n, b n m",
        # More right sides than a launch takes are solved in parts (pytorch#187717).
        m=(3, 4099),
    ),
    "cholesky": _solved(lambda _, x: torch.linalg.cholesky(_positive(x)), "b n n"),
    "cholesky_solve": _solved(
        lambda _, x, y: torch.cholesky_solve(y, torch.linalg.cholesky(_positive(x))), "b n n, b n m"
    ),
    "qr, multiplied": _solved(
        lambda _, x: torch.matmul(*torch.linalg.qr(_heavy(x))), "b n n", backward=False
    ),
    "eigenvalues": _solved(
        # Jacobi's, by which NVIDIA finds them, are off by some roundings a row (2e-4 of 2.8, H200).
        lambda _, x: torch.linalg.eigvalsh(_positive(x)),
        "b n n",
        backward=False,
        roundings=1024.0,
    ),
    "singular values": _solved(
        lambda _, x: torch.linalg.svdvals(_heavy(x)), "b n n", backward=False, n=(3, 67)
    ),
    "matrix_exp": _solved(lambda _, x: torch.matrix_exp(x / 32), "b n n", n=(3, 64)),
}


def _parts(x: Tensor) -> Tensor:
    return torch.view_as_real(x).movedim(-1, 0)


_waves: Maker = partial(nearly, a=2, b=2, least=0.0, roundings=256.0)
TRANSFORMED: Mapping[str, Sized] = {
    "rfft": _waves(lambda _, x: _parts(torch.fft.rfft(x, dim=1)), _LINES),
    "rfft of the last": _waves(lambda _, x: _parts(torch.fft.rfft(x)), _LINES),
    "fft": _waves(lambda _, x: _parts(torch.fft.fft(x, dim=1)), _LINES),
    # The ends' imaginary parts do not count.
    "irfft": _waves(lambda s, x: torch.fft.irfft(torch.complex(*x), s.k, 1), "2 a k b"),
    "fft2": _waves(lambda _, x: _parts(torch.fft.fft2(x)), _LINES),
}


# The case engine crosses other topics with sizes (`cases.session.SEEN_ON`).
EACH: Mapping[str, Sized] = {**PICTURES, **NORMS, **SOLVED, **TRANSFORMED}
SIZES = HazardClass(
    name="sizes",
    asks="is an operation right whichever of its sizes is one, odd, whole tiles or long",
    seen_on=("cpu", "cuda"),
    hazards=tuple(
        Hazard(name=f"sizes of {name}", answers=partial(answers_of, sized_call), dtypes=SINGLE)
        for name, sized_call in EACH.items()
    ),
)
