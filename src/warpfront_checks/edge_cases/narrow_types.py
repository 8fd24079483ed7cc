"""Eight bits: integers that wrap, products of int8, floating point by its table of codes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from warpfront_checks.edge_cases.answers import Answer, CaseContext, HazardClass, array, rows

# Exponent bits, mantissa bits, bias, whether infinities exist, and whether 0x80 is NaN (FNUZ).
FORMATS: dict[str, tuple[int, int, int, bool, bool]] = {
    "float8_e4m3fn": (4, 3, 7, False, False),
    "float8_e5m2": (5, 2, 15, True, False),
    "float8_e4m3fnuz": (4, 3, 8, False, True),
    "float8_e5m2fnuz": (5, 2, 16, False, True),
}
Numbers = Any


def _decoded(name: str) -> Numbers:
    """Return the value of each of the 256 codes, by the definition of the format."""
    exponents, mantissas, bias, infinite, fnuz = FORMATS[name]
    values = np.zeros(256)
    for code in range(256):
        sign, exponent = -1.0 if code & 0x80 else 1.0, (code >> mantissas) & (2**exponents - 1)
        mantissa = code & (2**mantissas - 1)
        if exponent:
            values[code] = sign * (1 + mantissa / 2**mantissas) * 2.0 ** (exponent - bias)
        else:
            values[code] = sign * mantissa / 2**mantissas * 2.0 ** (1 - bias)
        if fnuz:
            values[code] = np.nan if code == 0x80 else values[code]
        elif infinite and exponent == 2**exponents - 1:
            values[code] = np.nan if mantissa else sign * np.inf
        elif not infinite and code & 0x7F == 0x7F:
            values[code] = np.nan
    return values


def _codes(ground: CaseContext) -> Iterator[Answer]:
    """Check every code there and back, and every number between two codes to the nearer one."""
    for name in FORMATS:
        dtype = getattr(torch, name, None)
        if dtype is None:
            continue
        expected = _decoded(name)
        codes = torch.arange(256).to(torch.uint8).repeat(9)
        on_device = codes.to(ground.device).view(dtype)
        yield Answer(f"{name} to float32", on_device.float(), np.tile(expected, 9))
        yield Answer(f"{name} to bfloat16", on_device.bfloat16().float(), np.tile(expected, 9))
        finite = np.unique(expected[np.isfinite(expected)])
        between = (finite[1:] + finite[:-1]) / 2
        for share, towards in ((0.25, 0), (0.75, 1)):
            x = torch.from_numpy(finite[:-1] + share * np.diff(finite)).float().repeat(5)
            actual = x.to(ground.device).to(dtype).float()
            right_there = np.tile(finite[towards : len(finite) - 1 + towards], 5)
            yield Answer(f"float32 to {name}, {share} of the way", actual, right_there)
        # Half way: to the code whose last bit is 0.
        even = {v: int(c) % 2 == 0 for c, v in enumerate(expected) if np.isfinite(v)}
        nearest = np.array([a if even[a] else b for a, b in pairwise(finite)])
        actual = torch.from_numpy(between).float().to(ground.device).to(dtype).float()
        yield Answer(f"float32 to {name}, half way", actual, nearest)


def _whole_products(ground: CaseContext) -> Iterator[Answer]:
    """Check int8 times int8 in int32, to the last bit, at the ends of the range too."""
    multiply = getattr(torch, "_int_mm", None)
    sizes = ((32, 64, 32), (33, 1024, 64), (64, 8192, 32))
    # CUDA's take no fewer than eight, and cuBLASLt on an H200 not eight either.
    short = ((33, 1, 64),) if ground.device == "cpu" else ()
    for rows_of, inner, columns in (*sizes, *short):
        a = ground.index(256, rows_of, inner) - 128
        b = ground.index(256, inner, columns) - 128
        a[0], b[:, 0] = -128, -128
        on_device = a.to(torch.int8).to(ground.device), b.to(torch.int8).to(ground.device)
        if multiply is not None:
            expected = array(a) @ array(b)
            yield Answer(f"_int_mm {rows_of}x{inner}x{columns}", multiply(*on_device), expected)


def _scaled_products(ground: CaseContext) -> Iterator[Answer]:
    """Check float8 products of integers, whose sums are exact, times the scales."""
    multiply = getattr(torch, "_scaled_mm", None)
    if multiply is None or ground.device == "cpu":
        return
    for inner in (64, 1024, 8192):
        a, b = ground.few(32, inner), ground.few(inner, 48)
        for name in ("float8_e4m3fn", "float8_e4m3fnuz"):
            dtype = getattr(torch, name, None)
            if dtype is None:
                continue
            scales = [torch.tensor(x, device=ground.device) for x in (2.0, 0.25)]
            lhs = a.float().to(ground.device).to(dtype)
            rhs = b.mT.contiguous().float().to(ground.device).to(dtype).mT
            try:
                actual = multiply(
                    lhs, rhs, scale_a=scales[0], scale_b=scales[1], out_dtype=torch.bfloat16
                )
            except (RuntimeError, ValueError):
                continue
            yield Answer(f"{name}, K {inner}", actual, array(a @ b) / 2, ulps=1)


def _as(x: torch.Tensor, numbers: Any) -> Numbers:
    return array(x).astype(numbers)


def _wrapping(ground: CaseContext) -> Iterator[Answer]:
    """Check integers beyond their range, which wrap around, and quotients, which round
    towards minus infinity.
    """
    for dtype, numbers in (
        (torch.int8, np.int8),
        (torch.uint8, np.uint8),
        (torch.int16, np.int16),
        (torch.int32, np.int32),
    ):
        info = torch.iinfo(dtype)
        integers = ground.index(2**16, 1025) * 65_537 % (info.max - info.min + 1) + info.min
        x, y = integers[:1024], integers[1:]
        on_device = x.to(dtype).to(ground.device), y.to(dtype).to(ground.device)
        a, b = (_as(operand, numbers) for operand in (x, y))
        with np.errstate(all="ignore"):
            for label, actual, expected in (
                ("add", on_device[0] + on_device[1], a + b),
                ("sub", on_device[0] - on_device[1], a - b),
                ("mul", on_device[0] * on_device[1], a * b),
                ("and", on_device[0] & on_device[1], a & b),
                ("xor", on_device[0] ^ on_device[1], a ^ b),
                ("shift", on_device[0] >> 3, a >> 3),
                ("less", on_device[0] < on_device[1], a < b),
                ("sum", on_device[0].sum()[None], a.astype(np.int64).sum()[None]),
                ("amax", on_device[0].amax()[None], a.max()[None]),
                ("sort", on_device[0].sort().values, np.sort(a)),
                ("cumsum", on_device[0].cumsum(0), a.astype(np.int64).cumsum()),
            ):
                yield Answer(
                    f"{label}, {dtype}",
                    actual,
                    torch.from_numpy(np.ascontiguousarray(expected)),
                )
        divisor = torch.where(y == 0, 3, y)
        d = array(divisor).astype(numbers)
        actual = torch.div(on_device[0], divisor.to(dtype).to(ground.device), rounding_mode="floor")
        if dtype != torch.int32:
            expected = np.floor_divide(a.astype(np.int64), d.astype(np.int64)).astype(numbers)
            yield Answer(f"floor_divide, {dtype}", actual, torch.from_numpy(expected))


def _quantized(ground: CaseContext) -> Iterator[Answer]:
    """Check fake quantisation: to the nearest step, ties to even, clamped to the range."""
    x = torch.cat(
        [
            ground.whole(4096, most=300) / 2,
            torch.tensor([0.25, 0.75, 1.25, -0.25, 1e6, -1e6]).double(),
        ]
    )
    on_device = ground.send(x).requires_grad_()
    actual = torch.fake_quantize_per_tensor_affine(on_device, 0.5, 3, -128, 127)
    steps = np.rint(array(x) / 0.5) + 3
    yield Answer("value", actual, (steps.clip(-128, 127) - 3) * 0.5, ulps=1)
    actual.sum().backward()
    inside = (steps >= -128) & (steps <= 127)
    yield Answer("gradient", on_device.grad, inside.astype(float))
    scale, zero = torch.tensor([0.5, 0.25, 2.0, 0.125, 1.0]), torch.tensor([3, -2, 0, 7, 1])
    rows, (steps, codes) = x[:4095].view(5, 819), (array(y)[:, None] for y in (scale, zero))
    by_row = torch.fake_quantize_per_channel_affine(
        ground.send(rows),
        scale.to(ground.device),
        zero.int().to(ground.device),
        0,
        -128,
        127,
    )
    clipped = (np.rint(array(rows) / steps) + codes).clip(-128, 127)
    yield Answer("by row", by_row, (clipped - codes) * steps, ulps=1)


CODES = ((torch.quint8, 0, 255), (torch.qint8, -128, 127), (torch.qint32, -(2**31), 2**31 - 1))


def _codes_of_steps(ground: CaseContext) -> Iterator[Answer]:
    """Check quantised tensors: the nearest step, clamped to the range, and back again. Kernels
    differ at ties: some round before they add the zero point, some after.
    """
    x = ground.whole(5, 819, most=300) / 4 + 1 / 32
    # Steps that are powers of two: every quotient is exact.
    scales, zeros = torch.tensor([0.5, 0.25, 2.0, 0.125, 1.0]), torch.tensor([3, -2, 0, 7, 1])
    for dtype, least, most in CODES:
        zeros = zeros.clamp(min=least)
        per_tensor = torch.quantize_per_tensor(ground.send(x), 0.5, 3, dtype)
        each = torch.quantize_per_channel(ground.send(x), scales, zeros, 0, dtype)
        steps = (scales.double().numpy()[:, None], zeros.double().numpy()[:, None])
        for label, actual, (scale, zero) in (("all", per_tensor, (0.5, 3)), ("rows", each, steps)):
            expected = (np.rint(array(x) / scale) + zero).clip(least, most)
            codes = torch.from_numpy(expected.astype(np.int64)).to(actual.int_repr().dtype)
            yield Answer(f"{label}, {dtype}", actual.int_repr(), codes)
            yield Answer(f"{label} again, {dtype}", actual.dequantize(), (expected - zero) * scale)


def _learnt_codes(ground: CaseContext) -> Iterator[Answer]:
    """Check learnable zero points, which are no integers, and are rounded first."""
    x, scale = ground.whole(3, 819, most=60) / 4, torch.tensor([0.5, 0.25, 2.0])
    zero = torch.tensor([2.75, -1.625, 0.875])
    on_device = [ground.send(each) for each in (x, scale, zero)]
    actual = torch._fake_quantize_learnable_per_channel_affine(*on_device, 0, -8, 7)
    steps, codes = array(scale)[:, None], np.rint(array(zero))[:, None]
    clipped = (np.rint(array(x) / steps) + codes).clip(-8, 7)
    yield Answer("by row", actual, (clipped - codes) * steps, ulps=1)


NARROW_TYPES = HazardClass(
    name="eight bits",
    asks="are casts, products and arithmetic of 8-bit numbers right, code by code",
    hazards=(
        *rows(
            {
                "codes": _codes,
                "int8 products": _whole_products,
                "float8 products": _scaled_products,
                "wrapping": _wrapping,
                "fake quantisation": _quantized,
            }
        ),
        *rows({"quantised": _codes_of_steps, "learnt codes": _learnt_codes}, devices=("cpu",)),
    ),
)
