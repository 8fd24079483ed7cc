"""Attention backends, in the expected order of speed. Each takes (batch, heads, length, width)
tensors; `present` is the reason for a missing one, `kernels` and `operators` are names of its work
on a device and on the CPU.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from warpfront_checks.documents import packaged

MASKS = ("none", "causal", "mask")


class RefusedError(Exception):
    """A tier does not take a case; the message is its own reason."""


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A backend. `compute` is `module:function` of (q, k, v, kind of mask, mask), so that a
    child can find it. `compiled` ones get fewer cases: each new shape is compiled. `lanes` children
    run its cases, each of which starts slowly, if there are cores for them.
    """

    name: str
    compute: str
    kernels: str
    devices: tuple[str, ...]
    operators: str = r"^$"
    needs: str = ""
    compiled: bool = False
    lanes: int = 1

    def absence(self, device: str) -> str:
        """Return why the backend is unavailable, or nothing."""
        if device not in self.devices:
            return f"it is not for {device}"
        if self.needs and find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        return ""


def _dot_product(backend: str) -> Callable[..., Tensor]:
    def compute(q: Tensor, k: Tensor, v: Tensor, kind: str, mask: Tensor | None) -> Tensor:
        attention: Any = importlib.import_module("torch.nn.attention")
        options: dict[str, Any] = {"is_causal": kind == "causal", "attn_mask": mask}
        if q.shape[1] != k.shape[1]:
            options["enable_gqa"] = True
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with attention.sdpa_kernel([getattr(attention.SDPBackend, backend)]):
                    return functional.scaled_dot_product_attention(q, k, v, **options)
            except RuntimeError as error:
                if "o available kernel" not in str(error):
                    raise
                raise RefusedError(_why(caught) or str(error)) from error

    return compute


def _why(caught: list[warnings.WarningMessage]) -> str:
    """Return torch's reason against a kernel: the last warning on this one."""
    texts = [re.sub(r"\s*\(Triggered internally.*", "", str(warning.message)) for warning in caught]
    reasons = [text for text in texts if "kernel not used because" not in text]
    return "; ".join(dict.fromkeys(reasons))[:300]


flash = _dot_product("FLASH_ATTENTION")
efficient = _dot_product("EFFICIENT_ATTENTION")
cudnn = _dot_product("CUDNN_ATTENTION")
composed = _dot_product("MATH")


def _swapped(module: str) -> Callable[..., Tensor]:
    """Both libraries take (batch, length, heads, width), and no mask but the causal one."""

    def compute(q: Tensor, k: Tensor, v: Tensor, kind: str, mask: Tensor | None) -> Tensor:
        if mask is not None:
            raise RefusedError(f"{module}.flash_attn_func takes no mask")
        library: Any = importlib.import_module(module)
        swapped = [x.transpose(1, 2) for x in (q, k, v)]
        output = library.flash_attn_func(*swapped, causal=kind == "causal")
        return (output[0] if isinstance(output, tuple) else output).transpose(1, 2)

    return compute


aiter_attention, flash_attn = _swapped("aiter"), _swapped("flash_attn")


def flex(q: Tensor, k: Tensor, v: Tensor, kind: str, mask: Tensor | None) -> Tensor:
    if mask is not None:
        raise RefusedError("not tried: a mask is code here, not a tensor")
    module: Any = importlib.import_module("torch.nn.attention.flex_attention")

    def later(score: Tensor, _: Tensor, __: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return torch.where(row >= column, score, -float("inf"))

    compiled = torch.compile(module.flex_attention, dynamic=False)
    change = later if kind == "causal" else None
    return compiled(q, k, v, score_mod=change, enable_gqa=q.shape[1] != k.shape[1])


_ROWS = packaged("attention/backends.json")["tiers"]
TIERS: Mapping[str, Tier] = {
    row["name"]: Tier(**{**row, "devices": tuple(row.get("devices", ("cuda",)))}) for row in _ROWS
}
# What no kernel of the plain way is called, and no operator.
FUSED = re.compile(r"flash|fmha|efficient_attention|cudnn_attention|attn_fwd|cutlassF")
