"""Order among equals: stable sorts stay stable, and repeats are counted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import torch

from warpfront_checks.edge_cases.answers import (
    FLOATS,
    Answer,
    CaseContext,
    HazardClass,
    array,
    rows,
)
from warpfront_checks.precision import computes_float64

SPECIAL = (math.nan, math.inf, -math.inf)
SIZES = (33, 129, 1025, 2049, 4097, 20_001)


def _stable(ground: CaseContext) -> Iterator[Answer]:
    """Check few different numbers: equals stay in order, also when descending, along any axis."""
    for size, falling, axis in product(SIZES, (False, True), (0, 1)):
        x = ground.whole(3, size, most=2)
        a = array(x)
        on_device = ground.send(x if axis else x.mT.contiguous())
        values, places = on_device.sort(dim=axis, descending=falling, stable=True)
        expected = np.argsort(-a if falling else a, axis=1, kind="stable")
        actual = places if axis else places.mT
        label = f"{size}, falling {falling}, axis {axis}"
        yield Answer(label, actual, expected)
        values = values if axis else values.mT
        yield Answer(f"values of {label}", values, np.take_along_axis(a, expected, 1))
        plain = on_device.sort(dim=axis, descending=falling)
        yield Answer(
            f"unstable {label}",
            plain.values if axis else plain.values.mT,
            np.take_along_axis(a, expected, 1),
        )
        reached = on_device.gather(axis, plain.indices)
        yield Answer(
            f"unstable places of {label}",
            reached if axis else reached.mT,
            np.take_along_axis(a, expected, 1),
        )
        whole = torch.sort(plain.indices, dim=axis).values
        expected = np.broadcast_to(np.arange(size), (3, size))
        yield Answer(f"each place once, {label}", whole if axis else whole.mT, expected)


def _stable_whole(ground: CaseContext) -> Iterator[Answer]:
    for size, dtype, falling in product(
        SIZES, (torch.int64, torch.int32, torch.uint8, torch.bool), (False, True)
    ):
        x = ground.index(2 if dtype == torch.bool else 5, size)
        on_device = x.to(dtype).to(ground.device)
        actual = torch.argsort(on_device, stable=True, descending=falling)
        expected = np.argsort(-array(x) if falling else array(x), kind="stable")
        yield Answer(f"{size}, {dtype}, falling {falling}", actual, expected)


def _chosen(ground: CaseContext) -> Iterator[Answer]:
    """Check values of topk and kthvalue among many equals, and that their indices point to them."""
    for size, k in product(SIZES, (1, 7, 32)):
        x = ground.whole(3, size, most=3)
        a, on_device = array(x), ground.send(x)
        for largest in (True, False):
            top = on_device.topk(k, largest=largest)
            expected = np.sort(a, 1)[:, ::-1][:, :k] if largest else np.sort(a, 1)[:, :k]
            label = f"topk {k} of {size}, largest {largest}"
            yield Answer(label, top.values, expected.copy())
            yield Answer(f"places of {label}", on_device.gather(1, top.indices), expected.copy())
            order = top.indices.sort(1).values
            yield Answer(f"each once, {label}", (order[:, 1:] == order[:, :-1]).sum(), 0)
        yield Answer(
            f"kthvalue {k} of {size}",
            on_device.kthvalue(k).values,
            np.sort(a, 1)[:, k - 1],
        )
        first = (on_device == on_device.amax(1, keepdim=True)).to(torch.uint8).argmax(1)
        yield Answer(f"first largest of {size}", first, a.argmax(1))


def _distinct(ground: CaseContext) -> Iterator[Answer]:
    for size in SIZES:
        x = ground.index(11, size)
        a, on_device = array(x), x.to(ground.device)
        actual = on_device.unique(return_inverse=True, return_counts=True)
        expected = np.unique(a, return_inverse=True, return_counts=True)
        for label, output, exact in zip(
            ("values", "inverse", "counts"), actual, expected, strict=True
        ):
            yield Answer(f"{label} of {size}", output, exact.reshape(output.shape))
        runs = on_device.unique_consecutive(return_counts=True)
        starts = np.flatnonzero(np.concatenate([[True], a[1:] != a[:-1]]))
        yield Answer(f"runs of {size}", runs[0], a[starts])
        yield Answer(
            f"lengths of runs of {size}",
            runs[1],
            np.diff(np.append(starts, size)),
        )
        ordered = on_device.sort().values
        for side in (False, True):
            queries = torch.arange(-1, 13)
            actual = torch.searchsorted(ordered, queries.to(ground.device), right=side)
            places = np.searchsorted(np.sort(a), array(queries), side="right" if side else "left")
            yield Answer(f"searchsorted in {size}, right {side}", actual, places)
            actual = torch.bucketize(queries.to(ground.device), ordered, right=side)
            yield Answer(f"bucketize in {size}, right {side}", actual, places)
        actual = torch.bincount(
            on_device,
            weights=on_device.double() if computes_float64(ground.device) else on_device.float(),
        )
        yield Answer(f"weighted bincount of {size}", actual, np.bincount(a, weights=a))
        rows_of = x[: size - size % 3].reshape(-1, 3).remainder(3)
        actual = rows_of.to(ground.device).unique(dim=0)
        yield Answer(f"rows of {size}", actual, np.unique(array(rows_of), axis=0))
        actual = torch.isin(on_device, torch.tensor([2, 5], device=ground.device))
        yield Answer(f"isin {size}", actual, np.isin(a, [2, 5]))


def _far_whole(ground: CaseContext) -> Iterator[Answer]:
    """Check adjacent integers that float32 and float64 cannot distinguish, of both signs."""
    for exponent, sign in product((24, 31, 53, 62), (1, -1)):
        x = sign * 2**exponent + sign * ground.index(7, 300)
        a, on_device, suffix = array(x), x.to(ground.device), f"around {sign} * 2^{exponent}"
        actual = on_device.unique(return_inverse=True, return_counts=True)
        expected = np.unique(a, return_inverse=True, return_counts=True)
        for label, output, exact in zip(
            ("values", "inverse", "counts"), actual, expected, strict=True
        ):
            yield Answer(f"{label} {suffix}", output, exact.reshape(output.shape))
        yield Answer(f"runs {suffix}", on_device.sort().values.unique_consecutive(), np.unique(a))
        order = np.argsort(a, kind="stable")
        yield Answer(f"argsort {suffix}", on_device.argsort(stable=True), order)
        ordered = torch.from_numpy(np.sort(a)).to(ground.device)
        yield Answer(
            f"searchsorted {suffix}", torch.searchsorted(ordered, on_device), _first_places(a)
        )
        yield Answer(f"bucketize {suffix}", torch.bucketize(on_device, ordered), _first_places(a))
        some = on_device[:3]
        yield Answer(f"isin {suffix}", torch.isin(on_device, some), np.isin(a, a[:3]))
        yield Answer(f"largest {suffix}", on_device.amax(), a.max())
        yield Answer(f"least place {suffix}", on_device[on_device.argmin()], a.min())
        yield Answer(
            f"running largest {suffix}", on_device.cummax(0).values, np.maximum.accumulate(a)
        )
        yield Answer(f"topk {suffix}", on_device.topk(9).values, np.sort(a)[::-1][:9].copy())
        yield Answer(f"median {suffix}", on_device.median(), np.sort(a)[149])
        yield Answer(f"kthvalue {suffix}", on_device.kthvalue(77).values, np.sort(a)[76])
        yield Answer(f"equal {suffix}", on_device == on_device[0], a == a[0])
        yield Answer(f"clamp {suffix}", on_device.clamp(max=on_device[0]), a.clip(max=a[0]))


def _first_places(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.searchsorted(np.sort(a), a)


def _no_numbers(ground: CaseContext) -> Iterator[Answer]:
    """Check that NaN sorts last in searches and sorts, and infinities in their order."""
    x = torch.cat([ground.whole(40), torch.tensor(SPECIAL * 3).double()])
    ordered = ground.send(torch.cat([torch.arange(-5.0, 6).double(), torch.tensor([math.inf])]))
    sorted_values = array(ordered.cpu().double())
    for side in (False, True):
        expected = np.searchsorted(sorted_values, array(x), side="right" if side else "left")
        expected = np.where(np.isnan(array(x)), len(sorted_values), expected)
        on_device = ground.send(x)
        yield Answer(
            f"searchsorted, right {side}",
            torch.searchsorted(ordered, on_device, right=side),
            expected,
        )
        yield Answer(
            f"bucketize, right {side}", torch.bucketize(on_device, ordered, right=side), expected
        )
    yield Answer("sorted", ground.send(x).sort().values, np.sort(array(x)))


ORDERING = HazardClass(
    name="order",
    asks="are equals in a stable order, counted once each, and found where they are",
    hazards=(
        *rows({"stable sort": _stable, "choices": _chosen}, FLOATS),
        *rows(
            {
                "stable sort of integers": _stable_whole,
                "distinct": _distinct,
                "far whole numbers": _far_whole,
                "NaN in order": _no_numbers,
            }
        ),
    ),
)
