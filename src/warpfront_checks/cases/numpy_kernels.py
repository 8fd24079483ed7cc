"""Operators of aten by numpy alone, for arrays in float64, integers and booleans: those that torch
does not decompose into others of them, and some that are called often.

A kernel returns NotImplemented for arguments that it does not cover.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

Array = np.ndarray[Any, Any]
KINDS = {
    torch.complex128: np.complex128,
    torch.float64: np.float64,
    torch.float32: np.float32,
    torch.int64: np.int64,
    torch.int32: np.int32,
    torch.int16: np.int16,
    torch.int8: np.int8,
    torch.uint8: np.uint8,
    torch.bool: np.bool_,
}


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, y: Any, alpha: Any = 1) -> Any:
        if isinstance(y, np.ndarray) and y.dtype.kind in "iu":
            alpha = np.asarray(alpha).astype(y.dtype)
        y = y if isinstance(alpha, int) and alpha == 1 else y * alpha
        return function(*_together(x, y))

    return call


def _together(*values: Any) -> tuple[Any, ...]:
    """Return operands in the dtype that torch computes in: a Python number has none of its own."""
    arrays = [x for x in values if isinstance(x, np.ndarray)]
    with_axes = [x for x in arrays if x.ndim] or arrays
    if not with_axes:
        return values
    kind = np.result_type(*[x.dtype for x in with_axes])
    floating = any(isinstance(x, float) or _is_float(x) for x in values)
    kind = np.result_type(kind, np.float64) if floating and kind.kind in "biu" else kind
    if any(isinstance(x, complex) for x in values):
        kind = np.result_type(kind, np.complex64)
    if kind.kind == "b" and any(type(x) is int for x in values):
        kind = np.dtype(np.int64)
    return tuple(np.asarray(x, dtype=kind) for x in values)


def _is_float(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def _axes(dim: Any) -> Any:
    several = isinstance(dim, (list, tuple))
    return None if dim is None or (several and not dim) else tuple(dim) if several else (dim,)


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        if dtype is not None:
            x = x.astype(KINDS[dtype])
        elif x.dtype.kind in "bu" and function in {np.sum, np.prod}:
            x = x.astype(np.int64)
        return function(x, axis=_axes(dim) if x.ndim else None, keepdims=keepdim)

    return call


def _var(x: Array, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Any:
    axes = _axes(dim)
    count = x.size if axes is None else math.prod(x.shape[a] for a in axes)
    mean = x.mean(axis=axes, keepdims=True)
    total = (np.abs(x - mean) ** 2).sum(axis=axes, keepdims=keepdim)
    correction = 1 if correction is None else correction
    return np.divide(total, max(0.0, count - correction))


def _place(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Array, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None or not x.ndim:
            return np.asarray(function(x.reshape(-1)), dtype=np.int64)
        return function(x, axis=dim, keepdims=keepdim).astype(np.int64)

    return call


def _with_place(function: Callable[..., Any], place: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Array, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return function(x)
        index = _place(place)(x, dim, True)
        pair = np.take_along_axis(x, index, dim) if x.ndim else x, index
        return pair if keepdim or not x.ndim else tuple(y.squeeze(dim) for y in pair)

    return call


def _sorted(x: Array, dim: int = -1, descending: bool = False, *, stable: Any = True) -> Any:
    del stable  # it always is
    if not x.ndim:
        return x, np.asarray(0, dtype=np.int64)
    if descending:
        index = x.shape[dim] - 1 - np.flip(np.argsort(np.flip(x, dim), dim, kind="stable"), dim)
    else:
        index = np.argsort(x, dim, kind="stable")
    return np.take_along_axis(x, index, dim), index


def _taken(x: Array, places: Any, dim: int = -1, largest: bool = False) -> Any:
    """Return sorted integers at `places`, and where they were."""
    # Which of equal fractions is chosen decides on gradients.
    taken = (y.take(places, dim) if x.ndim else y for y in _sorted(x, dim, largest))
    return tuple(taken) if x.dtype.kind in "bui" else NotImplemented


def _running(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Array, dim: int, *, dtype: Any = None) -> Any:
        x = x if dtype is None else x.astype(KINDS[dtype])
        x = x.astype(np.int64) if x.dtype.kind in "bu" else x
        return function(x, axis=dim) if x.ndim else x

    return call


def _furthest(function: Any) -> Callable[..., Any]:
    """Return running extremes and their last places; NaN is one from where it occurs."""

    def call(x: Array, dim: int) -> Any:
        if not x.ndim:
            return x, np.zeros((), dtype=np.int64)
        values = function.accumulate(x, axis=dim)
        steps = np.arange(x.shape[dim]).reshape(
            [-1 if i == dim % x.ndim else 1 for i in range(x.ndim)]
        )
        positions = np.where((x == values) | np.isnan(x), steps, 0)
        return values, np.maximum.accumulate(positions, axis=dim)

    return call


def _unique(
    x: Array, ordered: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    del ordered
    values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    none = np.zeros(0, dtype=np.int64)
    inverse = inverse.reshape(x.shape) if return_inverse else none
    return values, inverse, counts if return_counts else none


def _subscript(indices: Sequence[Any]) -> Any:
    return tuple(slice(None) if i is None else i for i in indices)


def _index_put(
    x: Array, indices: Sequence[Any], values: Any, accumulate: bool = False, *_: Any
) -> Any:
    result, index = x.copy(), _subscript(indices)
    if accumulate:
        np.add.at(result, index, values)
    else:
        result[index] = values
    return result


def _along(x: Array, dim: int, index: Array) -> tuple[Any, ...]:
    """Return the index of numpy that torch's index along an axis means."""
    places: list[Any] = list(np.indices(index.shape))
    places[dim] = index
    return tuple(places)


def _put(places_of: Callable[..., Any], change: Callable[..., Any] | None = None) -> Any:
    """Return a kernel that puts numbers at indices of a copy, or changes those that are there."""

    def call(x: Array, dim: int, index: Array, value: Any) -> Any:
        if not x.ndim or not index.ndim:
            return NotImplemented
        copy, places = x.copy(), places_of(x, dim, index)
        if places_of is _along and isinstance(value, np.ndarray):
            value = value[tuple(slice(n) for n in index.shape)]
        if change is None:
            copy[places] = value
        else:
            change(copy, places, value)
        return copy

    return call


def _of_axis(x: Array, dim: int, index: Array) -> tuple[Any, ...]:
    return (*[slice(None)] * (dim % x.ndim), index)


# What numbers are combined by, and the number that changes none.
_COMBINED: Mapping[str, tuple[Any, int]] = {
    "sum": (np.add, 0),
    "mean": (np.add, 0),
    "prod": (np.multiply, 1),
    "amax": (np.maximum, 0),
    "amin": (np.minimum, 0),
}


def _reduced_at(places_of: Callable[..., Any]) -> Callable[..., Any]:
    def call(
        x: Array, dim: int, index: Array, source: Array, reduce: str, *, include_self: bool = True
    ) -> Any:
        if not x.ndim or not index.ndim or reduce not in _COMBINED:
            return NotImplemented
        result, count, places = x.copy(), np.zeros(x.shape, np.int64), places_of(x, dim, index)
        numbers = source[tuple(slice(n) for n in count[places].shape)]
        combine, neutral = _COMBINED[reduce]
        if not include_self:
            result[places] = numbers if reduce in {"amax", "amin"} else neutral
        combine.at(result, places, numbers)
        if reduce != "mean":
            return result
        np.add.at(count, places, 1)
        count = np.maximum(count + include_self * (count > 0), 1)
        return _div(result, count.astype(x.dtype), rounding_mode=None if _is_float(x) else "floor")

    return call


def _windows(
    x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Array:
    """Return a view of the inputs of each position of a window: batch, channels, out..., kernel...
    Raise `ValueError` where no window fits.
    """
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    axes = tuple(range(2, x.ndim))
    windows: Array = np.lib.stride_tricks.sliding_window_view(x, reach, axes)
    steps: Any = (..., *(slice(None, None, n) for n in (*stride, *dilation)))
    placed: Array = windows[steps]
    return placed


class Geometry(NamedTuple):
    """The settings of a convolution, one for each axis of its images."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    @classmethod
    def of(cls, dims: int, groups: int, *settings: Any) -> Geometry:
        stride, padding, dilation = (list(each) * (dims // len(each)) for each in settings)
        return cls(stride, padding, dilation, groups)

    def along(self, *numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield numbers of each axis with its stride, padding and dilation."""
        return zip(*numbers, self.stride, self.padding, self.dilation, strict=True)


def _columns(x: Array, kernel: Sequence[int], out: Sequence[int], of: Geometry) -> Array:
    """Return the numbers of every window, a row for each: groups, batch and places, the rest."""
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in of.padding)])
    window: Any = (..., *map(slice, out), *map(slice, kernel))
    windows = _windows(x, kernel, of.stride, of.dilation)[window]
    batch, channels, dims = *x.shape[:2], len(kernel)
    parts: Array = windows.reshape(batch, of.groups, channels // of.groups, *out, *kernel)
    parts = np.moveaxis(parts, (1, 0, *range(3, 3 + dims)), range(2 + dims))
    rows, each = batch * math.prod(out), channels // of.groups * math.prod(kernel)
    return parts.reshape(of.groups, rows, each)


def _rows(grad: Array, groups: int) -> Array:
    """Return the numbers of every place, a row for each: groups, batch and places, channels."""
    batch, each, places = grad.shape[0], grad.shape[1] // groups, math.prod(grad.shape[2:])
    parts = grad.reshape(batch, groups, each, places).transpose(1, 0, 3, 2)
    return parts.reshape(groups, batch * places, each)


def _forward(x: Array, w: Array, of: Geometry) -> Array:
    kernel, each = w.shape[2:], w.shape[0] // of.groups
    numbers = of.along(x.shape[2:], kernel)
    out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in numbers]
    taps = w.reshape(of.groups, each, math.prod(w.shape[1:])).transpose(0, 2, 1)
    rows = _columns(x, kernel, out, of) @ taps
    rows = rows.reshape(of.groups, x.shape[0], math.prod(out), each).transpose(1, 0, 3, 2)
    return rows.reshape(x.shape[0], w.shape[0], *out)


def _to_input(grad: Array, w: Array, shape: Sequence[int], of: Geometry) -> Array:
    """Return the gradient of a convolution's input, which is also a transposed convolution."""
    batch, each, kernel = shape[0], shape[1] // of.groups, w.shape[2:]
    wide = [n + 2 * p for n, p in zip(shape[2:], of.padding, strict=True)]
    result = np.zeros((batch, of.groups, each, *wide))
    taps = w.reshape(of.groups, w.shape[0] // of.groups, math.prod(w.shape[1:]))
    added = (_rows(grad, of.groups) @ taps).reshape(
        of.groups, batch, *grad.shape[2:], each, *kernel
    )
    for place in np.ndindex(*kernel):
        numbers = of.along(place, grad.shape[2:])
        cut: Any = tuple(slice(k * d, k * d + (n - 1) * s + 1, s) for k, n, s, _, d in numbers)
        result[(..., *cut)] += np.moveaxis(added[(Ellipsis, *place)], (1, 0, -1), (0, 1, 2))
    inner: Any = tuple(slice(p, p + n) for p, n in zip(of.padding, shape[2:], strict=True))
    return result.reshape(*shape[:2], *wide)[(..., *inner)]


def _to_weight(x: Array, grad: Array, shape: Sequence[int], of: Geometry) -> Array:
    columns = _columns(x, shape[2:], grad.shape[2:], of)
    return (_rows(grad, of.groups).transpose(0, 2, 1) @ columns).reshape(shape)


def _convolution(
    x: Array, w: Array, bias: Any, stride: Any, padding: Any, dilation: Any, *rest: Any
) -> Any:
    transposed, extra, groups = rest
    if x.ndim != w.ndim:
        return NotImplemented
    dims = w.ndim - 2
    of = Geometry.of(dims, groups, stride, padding, dilation)
    if transposed:
        numbers = of.along(x.shape[2:], w.shape[2:], list(extra) * (dims // len(extra)))
        grown = [(n - 1) * s - 2 * p + d * (k - 1) + 1 + e for n, k, e, s, p, d in numbers]
        if min(grown) < 1:
            raise ValueError(f"nothing is left of {x.shape}")
        result = _to_input(x, w, (x.shape[0], w.shape[1] * groups, *grown), of)
    else:
        result = _forward(x, w, of)
    return result if bias is None else result + bias.reshape(1, -1, *[1] * dims)


def _convolution_backward(
    grad: Array, x: Array, w: Array, _: Any, stride: Any, padding: Any, dilation: Any, *rest: Any
) -> Any:
    transposed, _, groups, mask = rest
    if x.ndim != w.ndim:
        return NotImplemented
    of = Geometry.of(w.ndim - 2, groups, stride, padding, dilation)
    if transposed:
        first = _forward(grad, w, of)[tuple(slice(n) for n in x.shape)] if mask[0] else None
        second = _to_weight(grad, x, w.shape, of) if mask[1] else None
    else:
        first = _to_input(grad, w, x.shape, of) if mask[0] else None
        second = _to_weight(x, grad, w.shape, of) if mask[1] else None
    third = grad.sum(axis=(0, *range(2, grad.ndim))) if mask[2] else None
    return first, second, third


def _pad(x: Array, pads: Sequence[int], value: Any = 0) -> Any:
    width = [(0, 0)] * (x.ndim - len(pads) // 2)
    width += [(pads[i], pads[i + 1]) for i in range(0, len(pads), 2)][::-1]
    cut = tuple(
        slice(max(0, -lo), n - max(0, -hi)) for n, (lo, hi) in zip(x.shape, width, strict=True)
    )
    more = [(max(0, lo), max(0, hi)) for lo, hi in width]
    return np.pad(x[cut], more, constant_values=0 if value is None else value)


def _div(x: Any, y: Any, *, rounding_mode: Any = None) -> Any:
    x, y = (np.asarray(array) for array in _together(x, y))
    if rounding_mode is None:
        return np.true_divide(x, y)
    if x.dtype.kind in "iu":
        quotient = np.floor_divide(x, y)
        # numpy rounds down: toward 0 is one more where a negative quotient has a remainder.
        up = (x % y != 0) & ((x < 0) != (y < 0)) & (rounding_mode == "trunc")
        return quotient + up.astype(quotient.dtype)
    return np.floor(x / y) if rounding_mode == "floor" else np.trunc(x / y)


def _cast(x: Array, *, dtype: Any = None, **_: Any) -> Any:
    if dtype is not None and dtype not in KINDS:
        return NotImplemented
    return x.copy() if dtype is None else x.astype(KINDS[dtype])


def _full_like(x: Array, value: Any, *, dtype: Any = None, **_: Any) -> Any:
    if dtype not in {None, *KINDS}:
        return NotImplemented
    return np.full_like(x, value, dtype=KINDS.get(dtype))


def _searched(
    sorted_: Array, x: Any, *, out_int32: bool = False, right: bool = False, **kwargs: Any
) -> Any:
    if any(value is not None for value in kwargs.values()) or not isinstance(x, np.ndarray):
        return NotImplemented
    side: Any = "right" if right else "left"
    kind = np.int32 if out_int32 else np.int64
    if sorted_.ndim == 1:
        return np.searchsorted(sorted_, x, side).astype(kind)
    pairs = zip(sorted_.reshape(-1, sorted_.shape[-1]), x.reshape(-1, x.shape[-1]), strict=True)
    return np.stack([np.searchsorted(a, b, side) for a, b in pairs]).reshape(x.shape).astype(kind)


# Functions with the same name in numpy and torch.
SAME = (
    "abs ceil floor trunc sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh"
    " square reciprocal isnan isinf isfinite signbit logical_not bitwise_not"
)
SAME_OF_TWO = (
    "add maximum minimum fmax fmin hypot logaddexp logaddexp2 copysign logical_and logical_or"
    " logical_xor gcd lcm bitwise_and bitwise_or bitwise_xor fmod remainder"
)
TWINS = {
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "atan2": "arctan2",
}
ARCS = "asin acos atan asinh acosh atanh"
REDUCED = "sum mean amax amin prod any all"
_NORMS: Any = ("backward", "ortho", "forward")


def _c2c(x: Array, dim: Sequence[int], norm: int, forward: bool) -> Array:
    # Of a forward transform numpy's "forward" divides by n, of a backward one its "backward".
    names = _NORMS if forward else _NORMS[::-1]
    transform = np.fft.fftn if forward else np.fft.ifftn
    return transform(x, axes=tuple(dim), norm=names[norm])


def _r2c(x: Array, dim: Sequence[int], norm: int, onesided: bool) -> Array:
    whole = _c2c(x, dim, norm, forward=True)
    return whole.take(range(x.shape[dim[-1]] // 2 + 1), dim[-1]) if onesided else whole


NUMPY: Mapping[str, Callable[..., Any]] = {
    "_fft_c2c": _c2c,
    "_fft_r2c": _r2c,
    "_fft_c2r": lambda x, dim, norm, last: np.fft.irfftn(
        x, [*(x.shape[i] for i in dim[:-1]), last], dim, _NORMS[::-1][norm]
    ),
    **{name: getattr(np, name) for name in SAME.split()},
    **{name: getattr(np, f"arc{name[1:]}") for name in ARCS.split()},
    **{name: np.vectorize(getattr(math, name), otypes=[float]) for name in ("erf", "erfc")},
    "neg": np.negative,
    # NaN has no sign for torch, and lies on no side of 0.
    "sign": lambda x: np.where(np.isnan(x), 0, np.sign(x)).astype(x.dtype),
    "round": lambda x, decimals=0: np.round(x, decimals),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sigmoid_backward": lambda x, y: x * np.conj(y * (1 - y)),
    "tanh_backward": lambda x, y: x * np.conj(1 - y * y),
    "sub": _binary(np.subtract),
    "mul": _binary(np.multiply),
    "div": _div,
    "pow": lambda x, y: np.power(*_together(x, y)),
    **{name: _binary(getattr(np, name)) for name in SAME_OF_TWO.split()},
    **{name: _binary(getattr(np, twin)) for name, twin in TWINS.items()},
    "where": lambda c, x, y: np.where(c, *_together(x, y)),
    **{name: _reduced(getattr(np, name)) for name in REDUCED.split()},
    "var": _var,
    **{name: _place(getattr(np, name)) for name in ("argmax", "argmin")},
    "max": _with_place(np.max, np.argmax),
    "min": _with_place(np.min, np.argmin),
    **{f"cum{name}": _furthest(getattr(np, f"{name}imum")) for name in ("max", "min")},
    "_unique2": _unique,
    **{name: _running(getattr(np, name)) for name in ("cumsum", "cumprod")},
    "_logcumsumexp": lambda x, dim: np.logaddexp.accumulate(x, dim),
    "sort": _sorted,
    "topk": lambda x, k, dim=-1, largest=True, *_: _taken(x, range(k), dim, largest),
    "kthvalue": lambda x, k, dim=-1, keep=False: _taken(x, [k - 1] if keep else k - 1, dim),
    "addmm": lambda x, y, z, beta=1, alpha=1: alpha * (y @ z) + (beta * x if beta else 0),
    **dict.fromkeys(("mm", "bmm"), np.matmul),
    "vdot": np.vdot,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "index": lambda x, indices: x[_subscript(indices)],
    "index_put": _index_put,
    "gather": lambda x, dim, index, **_: (
        x[_along(x, dim, index)] if x.ndim and index.ndim else NotImplemented
    ),
    "scatter": _put(_along),
    "scatter_add": _put(_along, np.add.at),
    "scatter_reduce": _reduced_at(_along),
    "index_reduce": _reduced_at(_of_axis),
    "index_fill": _put(_of_axis),
    "cat": lambda x, dim=0: np.concatenate([y for y in x if y.shape != (0,)] or x[:1], dim),
    "flip": lambda x, dims: np.flip(x, tuple(dims)),
    "roll": lambda x, shifts, dims=(): np.roll(x, tuple(shifts), tuple(dims) or None),
    "constant_pad_nd": _pad,
    "clone": lambda x: x.copy(),
    "_to_copy": _cast,
    "copy": lambda x, y, *_: np.broadcast_to(y, x.shape).astype(x.dtype),
    "iota": lambda n, *, start, step, dtype, **_: _cast(start + step * np.arange(n), dtype=dtype),
    "full_like": _full_like,
    "nonzero": lambda x: np.stack(np.nonzero(x), -1) if x.ndim else NotImplemented,
    "searchsorted": _searched,
    "bincount": lambda x, weights=None, minlength=0: np.bincount(x, weights, minlength),
}
