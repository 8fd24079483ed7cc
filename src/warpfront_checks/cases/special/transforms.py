"""Fourier transforms of all kinds of lengths, twice each: against numpy's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfront_checks.cases.special.rows import Answer, CaseContext, Table, array, complex_of, rows

# Powers of small primes, primes, and products of large ones, which take other algorithms.
LENGTHS = (1, 2, 7, 16, 31, 100, 257, 1000, 1024, 5999)
Pair = tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]
ALONG: dict[str, Pair] = {
    "fft": (torch.fft.fft, np.fft.fft),
    "ifft": (torch.fft.ifft, np.fft.ifft),
    "rfft": (lambda x: torch.fft.rfft(x.real), lambda a: np.fft.rfft(a.real)),
    "irfft": (lambda x: torch.fft.irfft(torch.fft.rfft(x.real), n=x.shape[-1]), lambda a: a.real),
    "hfft": (lambda x: torch.fft.hfft(torch.fft.ihfft(x.real), n=x.shape[-1]), lambda a: a.real),
    "orthonormal": (
        lambda x: torch.fft.fft(x, norm="ortho"),
        lambda a: np.fft.fft(a, norm="ortho"),
    ),
    "shorter": (
        lambda x: torch.fft.fft(x, n=max(1, x.shape[-1] // 2)),
        lambda a: np.fft.fft(a, n=max(1, a.shape[-1] // 2)),
    ),
    "longer": (
        lambda x: torch.fft.rfft(x.real, n=x.shape[-1] + 5),
        lambda a: np.fft.rfft(a.real, n=a.shape[-1] + 5),
    ),
    "down columns": (lambda x: torch.fft.fft(x.mT.contiguous(), dim=0).mT, lambda a: np.fft.fft(a)),
    "of a transposed": (lambda x: torch.fft.fft(x.mT, dim=0).mT, lambda a: np.fft.fft(a)),
    "of parts": (lambda x: torch.fft.fft(_part(x)), np.fft.fft),
    "backwards, of parts": (lambda x: torch.fft.ifft(_part(x)), np.fft.ifft),
    "rfft of parts": (lambda x: torch.fft.rfft(_part(x.real)), lambda a: np.fft.rfft(a.real)),
    "irfft of parts": (
        lambda x: torch.fft.irfft(_part(torch.fft.rfft(x.real)), n=x.shape[-1]),
        lambda a: a.real,
    ),
}
SHAPES = ((5, 16, 16), (3, 7, 9), (100, 8, 12), (2, 33, 64), (1, 5, 97), (3, 7, 1), (3, 1, 8))
ACROSS: dict[str, Pair] = {
    "fft2": (torch.fft.fft2, np.fft.fft2),
    "ifft2": (torch.fft.ifft2, np.fft.ifft2),
    "rfft2": (lambda x: torch.fft.rfft2(x.real), lambda a: np.fft.rfft2(a.real)),
    "irfft2": (
        lambda x: torch.fft.irfft2(torch.fft.rfft2(x.real), s=x.shape[-2:]),
        lambda a: a.real,
    ),
    "fftn": (torch.fft.fftn, np.fft.fftn),
    "rfftn": (lambda x: torch.fft.rfftn(x.real), lambda a: np.fft.rfftn(a.real)),
    "fftn of parts": (lambda x: torch.fft.fftn(_part(x)), np.fft.fftn),
    "rfft2 of parts": (lambda x: torch.fft.rfft2(_part(x.real)), lambda a: np.fft.rfft2(a.real)),
    "irfftn": (lambda x: torch.fft.irfftn(torch.fft.rfftn(x.real), s=x.shape), lambda a: a.real),
}

# Of its own input, which it must not work in.
INVERSE: Pair = (
    lambda x: torch.fft.irfft2(x, s=x.shape[-2:]),
    lambda a: np.fft.irfft2(a, s=a.shape[-2:]),
)


def _part(x: Tensor) -> Tensor:
    """Return the same numbers as columns of a wider table: rows begin at even and
    at odd offsets.
    """
    beside = x[..., :1] * 5
    return torch.cat([beside, x, beside, beside], -1)[..., 1:-2]


def _numbers(ground: CaseContext, *shape: int) -> Tensor:
    return torch.complex(ground.normal(*shape), ground.normal(*shape)).to(complex_of(ground.dtype))


def _spectrum(ground: CaseContext, *shape: int) -> Tensor:
    """Return the transform of real numbers: what is none has another inverse in each library."""
    spectrum = np.fft.fft2(array(ground.normal(*shape)))
    return torch.from_numpy(spectrum).to(complex_of(ground.dtype))


def _tried(
    pair: Pair,
    shapes: tuple[tuple[int, ...], ...],
    ground: CaseContext,
    made: Callable[..., Tensor] = _numbers,
) -> Iterator[Answer]:
    """Call everything twice: the first call creates and caches a plan, the second one uses it."""
    call, numbers = pair
    for shape in shapes:
        for time in ("first", "second"):
            x = made(ground, *shape)
            expected = numbers(array(x.to(torch.complex128)))
            on_device = x.to(ground.device, copy=True)
            actual = call(on_device).resolve_conj()
            yield Answer(f"{shape}, {time}, input afterwards", on_device, array(x))
            # Each of log2(n) rounds rounds once, and errors walk.
            size = float(np.sqrt((np.abs(expected) ** 2).mean())) + 1e-30
            # A prime takes as many steps as it is large, or a transform of another length.
            steps = 1 + math.log2(math.prod(shape)) + math.sqrt(shape[-1])
            yield Answer(f"{shape}, {time}", actual, expected, slack=32 * ground.eps * steps * size)


WINDOWS: dict[str, tuple[Callable[..., Tensor], Callable[..., Any]]] = {
    "hann": (torch.hann_window, np.hanning),
    "hamming": (torch.hamming_window, np.hamming),
    "blackman": (torch.blackman_window, np.blackman),
    "bartlett": (torch.bartlett_window, np.bartlett),
    "kaiser": (partial(torch.kaiser_window, beta=8.0), partial(np.kaiser, beta=8.0)),
}


def _windows(ground: CaseContext) -> Iterator[Answer]:
    """Check windows, which are computed where they are used, as are frequencies and steps; a
    periodic one lacks its last value.
    """
    on: Any = {"device": ground.device}
    for count in (2, 9, 400):
        for name, (call, numbers) in WINDOWS.items():
            for periodic in (False, True):
                expected = numbers(count + periodic)[:count]
                actual = call(count, periodic=periodic, **on)
                yield Answer(
                    f"{name} of {count}, periodic {periodic}", actual, expected, slack=1e-6
                )
        yield Answer(
            "fftfreq", torch.fft.fftfreq(count, 0.25, **on), np.fft.fftfreq(count, 0.25), slack=1e-6
        )
        yield Answer(
            "rfftfreq", torch.fft.rfftfreq(count, **on), np.fft.rfftfreq(count), slack=1e-6
        )
        yield Answer(
            "linspace", torch.linspace(-3, 5, count, **on), np.linspace(-3, 5, count), slack=1e-5
        )
        yield Answer(
            "logspace", torch.logspace(-3, 2, count, **on), np.logspace(-3, 2, count), ulps=64
        )


def _whole_steps(ground: CaseContext) -> Iterator[Answer]:
    """Check steps of 64 bits. CUDA's are steps of a float32: on an H200 2^40 + 1 was 2^40."""
    for count in (2, 7, 400):
        last = 5 + (count - 1) * (2**40 + 1)
        actual = torch.linspace(5, last, count, dtype=torch.int64, device=ground.device)
        yield Answer(f"{count} numbers", actual, 5 + np.arange(count) * (2**40 + 1))


def _framed(ground: CaseContext) -> Iterator[Answer]:
    """Check the frames of a sound, and its reconstruction."""
    sound, window = ground.normal(2, 1000), torch.hann_window(64, dtype=torch.float64)
    kwargs: Any = {"n_fft": 64, "hop_length": 16}
    expected = torch.stft(sound, window=window, return_complex=True, **kwargs)
    on_device, shaped = ground.send(sound), ground.send(window)
    actual = torch.stft(on_device, window=shaped, return_complex=True, **kwargs)
    yield Answer("frames", actual, array(expected), slack=256 * ground.eps * 8)
    back = torch.istft(actual, window=shaped, length=1000, **kwargs)
    yield Answer("sound", back, array(sound), slack=256 * ground.eps)


TRANSFORMED = tuple((3, length) for length in LENGTHS)
# Kernels are made for each small factor.
EVERY_LENGTH = tuple((4, length) for length in range(1, 65))
TRANSFORMS = Table(
    name="transforms",
    asks="are Fourier transforms right, of any length, along any axes, each time",
    rows=rows({"whole steps": _whole_steps}, devices=("cpu",))
    + rows(
        {
            **{name: partial(_tried, pair, TRANSFORMED) for name, pair in ALONG.items()},
            **{name: partial(_tried, pair, SHAPES) for name, pair in ACROSS.items()},
            "irfft2 alone": partial(_tried, INVERSE, SHAPES, made=_spectrum),
            "every length": partial(_tried, ACROSS["fft2"], EVERY_LENGTH),
            "every real length": partial(_tried, ACROSS["irfft2"], EVERY_LENGTH),
            "windows": _windows,
            "frames": _framed,
        }
    ),
)
