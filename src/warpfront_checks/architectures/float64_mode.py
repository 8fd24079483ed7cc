"""A mode in which a library's code stays in float64: models cast to float32 in the middle, make
float32 numbers of their own, and call kernels without float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from warpfront_checks.executing import tensors_in

_CASTS = (Tensor.to, Tensor.float, Tensor.type)
_GROUPED = {getattr(torch, "_grouped_mm", None)} | {
    getattr(torch.nn.functional, name, None) for name in ("grouped_mm", "scaled_grouped_mm")
}
_GROUPED -= {None}


class PreserveFloat64(TorchFunctionMode):
    """A torch function mode that preserves float64. Nothing else changes, so that the same code
    in float32 is the library's own. Calls that refuse float64 together with float32 get all
    of it in float64.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        options = dict(kwargs or {})
        if not any(tensor.dtype == torch.float64 for tensor in tensors_in((args, options))):
            return function(*args, **options)
        if function in _CASTS:
            return self._cast(function, args, options)
        if function in _GROUPED:
            return _grouped(*args, **options)
        if options.get("dtype") == torch.float32:
            options["dtype"] = torch.float64
        elementary = ELEMENTARY.get(getattr(function, "__name__", ""))
        if elementary is not None:
            return elementary(*_widened(args), **_widened(options))
        try:
            return function(*args, **options)
        except RuntimeError:
            wide_args, wide_options = _widened(args), _widened(options)
            return function(*wide_args, **wide_options)

    def _cast(self, function: Any, args: Any, options: dict[str, Any]) -> Any:
        if args[0].dtype != torch.float64 or not isinstance(args[0], Tensor):
            return function(*args, **options)
        if function is Tensor.float:
            return args[0]
        narrow = (torch.float32, torch.bfloat16, torch.float16)
        rest = tuple(torch.float64 if argument in narrow else argument for argument in args[1:])
        if options.get("dtype") in narrow:
            options["dtype"] = torch.float64
        return function(args[0], *rest, **options)


def _softmax(x: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
    least = x.detach().amax(dim, keepdim=True).nan_to_num(neginf=0.0)
    parts = torch.exp(x - least)
    return parts / parts.sum(dim, keepdim=True)


def _gelu(x: Tensor, approximate: str = "none", **_: Any) -> Tensor:
    if approximate == "none":
        return x * 0.5 * (1 + torch.erf(x * math.sqrt(0.5)))
    return x * 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _layer_norm(
    x: Tensor,
    shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
    **__: Any,
) -> Tensor:
    over = tuple(range(-len(tuple(shape)), 0))
    apart = x - x.mean(over, keepdim=True)
    normal = apart * (apart.square().mean(over, keepdim=True) + eps).rsqrt()
    scaled = normal if weight is None else normal * weight
    return scaled if bias is None else scaled + bias


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Product by product, where that fits."""
    if x.numel() * weight.shape[0] > _MOST_PRODUCTS:
        product = x @ weight.T
    else:
        product = (x[..., None, :] * weight).sum(-1)
    return product if bias is None else product + bias


# What a kernel of its own computes in one, by operations that it is not made of: a kernel that is
# wrong in float64 as well would be its own judge. The gradients are autograd's of these.
ELEMENTARY: Mapping[str, Callable[..., Tensor]] = {
    "silu": lambda x, **_: x * 0.5 * (1 + torch.tanh(x * 0.5)),
    "gelu": _gelu,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "linear": _linear,
}
_MOST_PRODUCTS = 2_000_000


def _widened(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if type(value) in (tuple, list):
        return type(value)(map(_widened, value))
    if type(value) is dict:
        return {name: _widened(item) for name, item in value.items()}
    return value


def _grouped(rows: Tensor, weights: Tensor, *, offs: Tensor, **_: Any) -> Tensor:
    """Multiply groups of rows, each by its own matrix: `offs` are the ends of the groups."""
    ends = [0, *(int(end) for end in offs)]
    parts = [rows[a:b] @ weights[n] for n, (a, b) in enumerate(itertools.pairwise(ends))]
    rest = rows.new_zeros(len(rows) - ends[-1], weights.shape[-1])
    return torch.cat([*parts, rest])
