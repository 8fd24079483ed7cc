"""The dtypes verified per device, and their arithmetic: no TF32, no reduced reductions."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import torch

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
    """Return whether the device computes float64. Gaudi's bridge stores float64 as float32,
    whatever a product of small numbers gives; of Intel's cards some have none. References are made
    on the CPU either way.
    """
    return device != "hpu" and (device != "xpu" or not probe(torch.float64, device))


def require_full_precision() -> None:
    """Turn off TF32 and reductions in low precision: verification judges the dtype it names."""
    backends: Any = torch.backends
    if hasattr(backends.cuda.matmul, "fp32_precision"):
        for backend in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):
            backend.fp32_precision = "ieee"
        for name in ("matmul", "conv", "rnn"):
            part: Any = getattr(backends.mkldnn, name, None)
            if hasattr(part, "fp32_precision"):
                part.fp32_precision = "ieee"
    else:
        backends.cuda.matmul.allow_tf32 = False
        backends.cudnn.allow_tf32 = False
    backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def kind_of(device: str) -> str:
    """Return the kind of a device: AMD's devices have kernels of their own under CUDA's name."""
    return "rocm" if device == "cuda" and torch.version.hip else device


def precision_settings() -> dict[str, object]:
    """Return the settings in force, for the results file."""
    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    names = (
        "fp32_precision",
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    )
    settings = {f"matmul.{n}": str(getattr(matmul, n)) for n in names if hasattr(matmul, n)}
    if hasattr(cudnn, "conv"):
        settings["cudnn.conv.fp32_precision"] = str(cudnn.conv.fp32_precision)
    else:
        settings["cudnn.allow_tf32"] = str(cudnn.allow_tf32)
    return dict(settings)


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
