"""The dtypes that devices compute, and their arithmetic: no TF32, no reduced reductions."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from warpfront_checks.results import Recorder

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# What every target of a device type must compute; the rest is tested where a probe computes it.
REQUIRED = {
    "cuda": ("float32", "bfloat16", "float16"),
    "hpu": ("float32", "bfloat16"),
    "xpu": ("float32", "bfloat16", "float16"),
    "cpu": ("float32",),
}


def tested_dtypes(device: str) -> tuple[str, ...]:
    """Return the floating types that are judged here: the required and the computed."""
    required = REQUIRED[device]
    return tuple(n for n, dtype in DTYPES.items() if n in required or not probe(dtype, device))


@cache
def computes_float64(device: str) -> bool:
    """Return whether the device computes float64. Gaudi's bridge stores it as float32, whatever a
    product of small numbers gives; some of Intel's cards have none. References are the CPU's.
    """
    return device != "hpu" and (device != "xpu" or not probe(torch.float64, device))


def require_full_precision(products: str = "ieee") -> None:
    """Turn off TF32 and reductions in low precision: verification judges the dtype it names.
    `products` may be "tf32", for those of float32 and for convolutions.
    """
    backends: Any = torch.backends
    if hasattr(backends.cuda.matmul, "fp32_precision"):
        backends.cuda.matmul.fp32_precision = backends.cudnn.conv.fp32_precision = products
        backends.cudnn.rnn.fp32_precision = "ieee"
        for name in ("matmul", "conv", "rnn"):
            part: Any = getattr(backends.mkldnn, name, None)
            if hasattr(part, "fp32_precision"):
                part.fp32_precision = "ieee"
    else:
        backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = products == "tf32"
    backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def record_full_precision(recorder: Recorder) -> None:
    """Turn on full precision for a session, and record the settings that this torch has."""
    require_full_precision()
    recorder.environment["precision"] = precision_settings()


def kind_of(device: str) -> str:
    """Return the kind of a device: AMD's devices have kernels of their own under CUDA's name."""
    return "rocm" if device == "cuda" and torch.version.hip else device


def precision_settings() -> dict[str, object]:
    """Return the settings in force, for the results file."""
    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    reduced = (f"allow_{dtype}_reduced_precision_reduction" for dtype in ("fp16", "bf16"))
    names = [name for name in ("fp32_precision", *reduced) if hasattr(matmul, name)]
    settings: dict[str, object] = {f"matmul.{n}": str(getattr(matmul, n)) for n in names}
    if hasattr(cudnn, "conv"):
        return settings | {"cudnn.conv.fp32_precision": str(cudnn.conv.fp32_precision)}
    return settings | {"cudnn.allow_tf32": str(cudnn.allow_tf32)}


def probe(dtype: torch.dtype, device: str) -> str:
    """Return "" if the device computes a small product in this dtype, forward and backward,
    else its error.

    Small integers are exact in every dtype, so the answer must be exact.
    """
    if device == "hpu":
        importlib.import_module("habana_frameworks.torch.core")
    try:
        matrix = torch.arange(1.0, 5.0).reshape(2, 2).to(dtype).to(device).requires_grad_()
        product = matrix @ matrix
        product.sum().backward()
        results = (product.tolist(), matrix.grad.tolist())
    except (RuntimeError, NotImplementedError, TypeError) as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    expected = ([[7.0, 10.0], [15.0, 22.0]], [[7.0, 11.0], [9.0, 13.0]])
    return "" if results == expected else f"wrong product: {results}"


COMPUTED = "computed"
# Errors of a probe: torch raises each of them for "not implemented".
_REFUSALS = (RuntimeError, TypeError, AttributeError, ValueError, AssertionError)
_PLAIN = ("float64", "float32", "float16", "bfloat16", "int8")
# Largest finite numbers: OCP 8-bit floating point, and the FNUZ forms of gfx942.
_FP8 = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
_FP8 |= {"float8_e4m3fnuz": 240.0, "float8_e5m2fnuz": 57344.0}


# A cast that works proves little: some devices store a type that they cannot multiply. So each type
# is tried by a product of small integers, which are exact in all of them.
def probe_dtypes(device: str) -> dict[str, str]:
    """Return per dtype `computed`, or the device's error. fp8 has two entries a format: `stored`
    (its largest numbers survive the way there and back) and `matmul` (scaled product).
    """

    def answer_of(probe: Callable[[torch.dtype, str], str], name: str) -> str:
        try:
            return probe(getattr(torch, name), device) or COMPUTED
        except _REFUSALS as error:
            lines = str(error).strip().splitlines()
            return f"{type(error).__name__}: {lines[0][:160] if lines else 'no reason given'}"

    answers = {name: answer_of(_probe_product, name) for name in _PLAIN}
    for name in _FP8:
        answers[f"{name} stored"] = answer_of(_probe_stored, name)
        answers[f"{name} matmul"] = answer_of(_probe_scaled_product, name)
    return answers


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
    """Judge `torch._scaled_mm`, the only way to fp8 products; private, so it may be missing."""
    multiply: Any = torch._scaled_mm  # noqa: SLF001
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
