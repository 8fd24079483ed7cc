"""The oracle: float64 results on the CPU that no judged kernel computes.

On an accelerator the CPU's own float64 kernels are the oracle, but for transforms. On the CPU these
are judged as well, so a dispatch mode computes each operator by numpy (`numpy_kernels`) or by
torch's reference decomposition into others. Where there is neither, the kernel itself computes, and
`Independent.kernels` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from warpfront_checks.cases.numpy_kernels import NUMPY
from warpfront_checks.executing import DispatchMode, converted

# Operators that only describe memory, or that hand it on.
_VIEWED = (
    "view _unsafe_view permute t transpose expand slice select as_strided detach alias unsqueeze"
    " squeeze squeeze_ unsqueeze_ diagonal unfold split split_with_sizes unbind view_as_real"
    " view_as_complex lift_fresh resolve_conj resolve_neg empty new_empty empty_like empty_strided"
    " zeros new_zeros new_empty_strided _local_scalar_dense reshape _reshape_alias chunk narrow"
    " movedim broadcast_in_dim"
)
VIEWS = frozenset(_VIEWED.split())


# Decompositions of torch 2.13 that differ from their kernels and from the definition.
WRONG = frozenset(["multilabel_margin_loss_forward"])
# MKL's transforms write past the memory of strided planes (torch 2.13), also those of an oracle.
TRANSFORMS = frozenset(["_fft_c2c", "_fft_r2c", "_fft_c2r"])


class Independent(DispatchMode):
    """Compute float64 results without the CPU's kernels: of `replaced` operators, or of all."""

    def __init__(self, replaced: frozenset[str] | None = None) -> None:
        super().__init__()
        self.kernels: set[str] = set()
        self._replaced = replaced
        self._within: set[Any] = set()

    def computed(self, operator: Any, args: Any, kwargs: Any) -> Any:
        name, kernel, changing = _known(operator)
        replaces = name not in VIEWS and (self._replaced is None or name in self._replaced)
        if not replaces or not _is_plain(args):
            return operator(*args, **kwargs)
        out = args[0] if changing else kwargs.get("out")
        dispatch = NotImplemented
        if kernel is not None:
            named = {key: value for key, value in kwargs.items() if key not in _PLACES}
            dispatch = kernel(*converted(args, _array), **converted(named, _array))
        if dispatch is NotImplemented:
            dispatch = self._decomposed(operator, name, args, kwargs)
        else:
            dispatch = _tensors(dispatch)
            if isinstance(out, Tensor):
                np.copyto(out.detach().numpy(), dispatch.numpy(), casting="unsafe")
                return out
        if dispatch is not NotImplemented:
            return dispatch
        self.kernels.add(name)
        return operator(*args, **kwargs)

    def _decomposed(self, operator: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Return an operator's result by others, or NotImplemented."""
        if operator._can_decompose():
            with self:
                return operator.decompose(*args, **kwargs)
        decomposed = None if name in WRONG else _decompositions().get(operator)
        if decomposed is None or operator in self._within:
            return NotImplemented
        self._within.add(operator)
        try:
            with self:
                return decomposed(*args, **kwargs)
        finally:
            self._within.discard(operator)


@contextmanager
def oracle_for(device: str) -> Iterator[Independent]:
    """Compute a device's oracle: mostly by the CPU's kernels where it is another device."""
    # A fused attention's derivative takes intermediates of its own forward.
    replaced = None if device == "cpu" else TRANSFORMS
    with np.errstate(all="ignore"), sdpa_kernel(SDPBackend.MATH), Independent(replaced) as mode:
        yield mode


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    decompositions: dict[Any, Callable[..., Any]] = torch._decomp.decomposition_table
    return decompositions


@cache
def _known(operator: Any) -> tuple[str, Callable[..., Any] | None, bool]:
    """Return an operator's name, its numpy kernel, and whether it changes its first argument."""
    name = operator._schema.name.removeprefix("aten::").removeprefix("prims::")
    changing = name.endswith("_") and name[:-1] in NUMPY
    return name, NUMPY.get(name[:-1] if changing else name), changing


def _is_plain(args: Any) -> bool:
    """Return whether all tensors are dense ones of the CPU that numpy has a dtype for."""
    for x in args:
        if isinstance(x, Tensor):
            if x.layout != torch.strided or not x.is_cpu or x.dtype in _NARROW:
                return False
        elif isinstance(x, (list, tuple)) and not _is_plain(x):
            return False
    return True


_NARROW = frozenset([torch.bfloat16, torch.float16])
# Keywords that change no number.
_PLACES = {"out", "layout", "device", "pin_memory", "memory_format", "non_blocking"}


def _array(x: Tensor) -> Any:
    return x.numpy(force=True)


def _tensors(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return tuple(map(_tensors, x))
    if isinstance(x, (np.ndarray, np.generic)):
        # numpy's result may be a view of an argument, or broadcast.
        is_owned = isinstance(x, np.ndarray) and x.flags.owndata and x.flags.c_contiguous
        return torch.from_numpy(x if is_owned else np.array(x, order="C"))
    return x
