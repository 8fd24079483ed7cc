"""The dtypes that a device really computes: each is tried, none is assumed from the device's name.

A cast that works proves little (some devices store a type that they cannot multiply), so a probe is
a product of small integers, which are exact in every one of these types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

COMPUTED = "computed"
# Errors of a probe: torch raises each of them for "not implemented".
_REFUSALS = (RuntimeError, TypeError, AttributeError, ValueError, AssertionError)
_PLAIN = ("float64", "float32", "float16", "bfloat16", "int8")
# Largest finite numbers: OCP 8-bit floating point, and the FNUZ forms of gfx942.
_FP8 = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
_FP8 |= {"float8_e4m3fnuz": 240.0, "float8_e5m2fnuz": 57344.0}


def probe_dtypes(device: str) -> dict[str, str]:
    """Return per dtype `computed`, or the device's error instead. fp8 has two entries a
    format: `stored` (numbers up to its largest survive the way there and back) and
    `matmul` (scaled product).
    """
    answers = {name: _tried(_probe_product, name, device) for name in _PLAIN}
    for name in _FP8:
        answers[f"{name} stored"] = _tried(_probe_stored, name, device)
        answers[f"{name} matmul"] = _tried(_probe_scaled_product, name, device)
    return answers


def _tried(probe: Callable[[torch.dtype, str], str], name: str, device: str) -> str:
    dtype = getattr(torch, name, None)
    if dtype is None:
        return f"torch {torch.__version__} has no {name}"
    try:
        return probe(dtype, device) or COMPUTED
    except _REFUSALS as error:
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0][:160] if lines else 'no reason given'}"


def _probe_product(dtype: torch.dtype, device: str) -> str:
    lhs = torch.arange(256).reshape(16, 16).remainder(7).sub(3)
    rhs = torch.arange(256).reshape(16, 16).remainder(5).sub(2)
    product = lhs.to(dtype).to(device) @ rhs.to(dtype).to(device)
    return _difference(product, lhs @ rhs, device)


def _probe_stored(dtype: torch.dtype, device: str) -> str:
    largest = _FP8[str(dtype).removeprefix("torch.")]
    values = torch.tensor([0.0, 1.0, -1.5, 0.25, -6.0, largest, -largest])
    return _difference(values.to(device).to(dtype).to(torch.float32), values, device)


def _probe_scaled_product(dtype: torch.dtype, device: str) -> str:
    """`torch._scaled_mm` is the only door to fp8 products; private, so its absence is an answer."""
    multiply: Any = getattr(torch, "_scaled_mm", None)
    if multiply is None:
        return "this torch has no _scaled_mm"
    lhs = torch.arange(256.0).reshape(16, 16).remainder(3).sub(1)
    rhs = torch.arange(256.0).reshape(16, 16).remainder(5).sub(2)
    scale = torch.ones((), device=device)
    product = multiply(
        lhs.to(device).to(dtype),
        rhs.t().contiguous().to(device).to(dtype).t(),
        scale_a=scale,
        scale_b=scale,
        out_dtype=torch.bfloat16,
    )
    return _difference(product, lhs @ rhs, device)


def _difference(product: torch.Tensor, expected: torch.Tensor, device: str) -> str:
    if product.device.type != torch.device(device).type:
        return f"computed on {product.device.type} instead"
    wrong = int((product.cpu().double() != expected.double()).sum())
    return f"{wrong} of {expected.numel()} elements are wrong" if wrong else ""
