"""Verdicts on one entry of the database on a device: structure, then the error of each result.

No bound is derived for some 600 operators. A result may be off by R times the largest of three
errors. They are one rounding of the reference, the CPU's error in the same dtype (where the device
is another), and the effect of one rounding of the inputs. The last measures how ill-conditioned the
operator is there.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from warpfront_checks.cases.bounds import Bound, Verdict, judge
from warpfront_checks.check_options import STRICT
from warpfront_checks.executing import Computed, computed, converted, tensors_in
from warpfront_checks.operations import floor_of, rounding_unit
from warpfront_checks.opinfo.adapter import Entry, Sample
from warpfront_checks.tolerance_profiles import Tally, opinions, tally, total

# Root mean square and worst element, over the allowed error; docs/bounds.md has the figures.
R_RMS = {torch.float32: 32.0}
R_RMS_HALF = 6.0
R_ELEMENT = {torch.float32: 256.0}
R_ELEMENT_HALF = 8.0
# The roundings of all steps foretell the error itself, not its scale: times this at most.
R_STEPS = 8.0
# Integers from here on are not exact in float64.
EXACT = 2.0**53


# The first, third ... as they are, the others with gaps: kernels of several tensors may take the
# strides of one for all.
EVERY_SECOND = "every second with gaps"
Execute = Callable[[Entry, Sample, "Sequence[Tensor] | None", str], Computed]


def convert_sample(sample: Sample, change: Callable[[Tensor], Tensor]) -> Sample:
    return Sample(
        input=converted(sample.input, change),
        args=converted(sample.args, change),
        kwargs=converted(dict(sample.kwargs), change),
        settle=sample.settle,
        memory=sample.memory,
    )


def arranged(x: Tensor, memory: str) -> Tensor:
    """Return the same numbers in another layout: with gaps, at an offset, or axes in reverse."""
    if memory in {"", EVERY_SECOND} or x.layout != torch.strided or not x.numel():
        return x
    if memory == "gaps" and not x.dim():
        return torch.stack([torch.zeros_like(x), x])[1]
    if memory == "gaps":
        return torch.stack([x, x], -1).flatten(-2)[..., 1::2]
    if memory == "offset":
        return torch.cat([x.flatten()[:1].expand(3), x.flatten()])[3:].view(x.shape)
    turned = list(range(x.dim()))[::-1]
    return x.permute(turned).contiguous().permute(turned)


def widen(x: Tensor) -> Tensor:
    """Return the same numbers in float64, or complex128; differentiable
    tensors stay differentiable.
    """
    if not _differentiable(x):
        return x
    wide = torch.complex128 if x.is_complex() else torch.float64
    return x.detach().cpu().to(wide).requires_grad_(x.requires_grad)


def execute_entry(
    entry: Entry, sample: Sample, cotangents: Sequence[Tensor] | None, device: str
) -> Computed:
    """Call an entry on a device; with gradients if there is a cotangent for each output
    that has one.
    """
    backward = cotangents is not None

    moved = sent(sample, device, backward=backward)
    leaves = [x for x in tensors_in([moved.input, moved.args, moved.kwargs]) if x.requires_grad]
    grad_outputs = cotangents and [arranged(x.to(device), sample.memory) for x in cotangents]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return computed(lambda: entry(moved, device), leaves, grad_outputs)


def sent(sample: Sample, device: str, *, backward: bool) -> Sample:
    """Return a sample's tensors on a device, in their memory layouts."""

    places = itertools.cycle(("", "gaps") if sample.memory == EVERY_SECOND else (sample.memory,))

    def send(x: Tensor) -> Tensor:
        destination = arranged(x.detach().to(device), next(places)).detach()
        return destination.requires_grad_(backward and x.requires_grad)

    return convert_sample(sample, send)


def cotangents_for(results: Sequence[Tensor], dtype: torch.dtype, seed: int) -> list[Tensor]:
    """Return random numbers of each differentiable output's shape, in its dtype."""
    generator = torch.Generator().manual_seed(seed + 1)
    cotangents = []
    for x in results:
        if _differentiable(x):
            both = dtype.is_complex and x.is_complex()
            wide = torch.complex128 if both else torch.float64
            cotangent = torch.randn(x.shape, generator=generator, dtype=wide)
            cotangents.append((cotangent if dtype.is_complex else cotangent.to(dtype)).to(x.dtype))
    return cotangents


class Saturated(TorchDispatchMode):  # type: ignore[misc]
    """A mode in which every number that leaves a dtype's range becomes infinite, in each step."""

    def __init__(self, largest: float) -> None:
        super().__init__()
        self.largest = largest

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        dispatch = operator(*args, **(kwargs or {}))
        for x in tensors_in(dispatch):
            dense = x.is_floating_point() and x.layout == torch.strided and x.numel()
            # A zero tensor, as some gradients are, has no memory to read.
            if dense and not x._is_zerotensor():  # noqa: SLF001 - it has no other name
                # `.data`: autograd would take it for a change after the fact.
                x.data.masked_fill_(x > self.largest, torch.inf)
                x.data.masked_fill_(x < -self.largest, -torch.inf)
        return dispatch


class RoundedSteps(TorchDispatchMode):  # type: ignore[misc]
    """A mode that rounds the result of each step of a float64 call to a dtype, up or down by
    chance (Monte Carlo arithmetic: D. S. Parker, UCLA CSD-970002, 1997).

    Results that the dtype represents, such as selected or copied numbers, stay as they are.
    """

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        super().__init__()
        self.real = torch.empty(0, dtype=dtype).real.dtype
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        dispatch = operator(*args, **(kwargs or {}))
        aliases = [result.alias_info for result in operator._schema.returns]  # noqa: SLF001
        if any(alias is not None and not alias.is_write for alias in aliases):
            return dispatch
        for x in tensors_in(dispatch):
            wide = x.dtype in {torch.float64, torch.complex128}
            if wide and x.layout == torch.strided and x.numel() and not x._is_zerotensor():  # noqa: SLF001 - it has no other name
                self._round(x.data)
        return dispatch

    def _round(self, x: Tensor) -> None:
        numbers = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
        down = numbers.to(self.real).double()
        noise = torch.rand(down.shape, generator=self.generator, dtype=torch.float64) - 0.5
        step = 2 * (rounding_unit(self.real) * numbers.abs() + floor_of(self.real))
        rounded = (numbers + noise * step).to(self.real).double()
        rounded = torch.where((down == numbers) | ~numbers.isfinite(), numbers, rounded)
        x.copy_(torch.view_as_complex(rounded) if x.is_complex() else rounded)


@dataclass(frozen=True, kw_only=True)
class SampleVerdict:
    """Faults in words, the largest share of a bound that an element used, and the largest of
    the allowed RMS error's base, with each profile's opinion of the tensors.
    """

    faults: tuple[str, ...] = ()
    budget_used: float = 0.0
    rms_ratio: float = 0.0
    tallies: Mapping[str, Tally] = field(default_factory=dict)


def structure_faults(actual: Computed, exact: Computed, device: str) -> Iterator[str]:
    """Return the faults of a run that show before any number of it is compared."""
    if len(actual.all) != len(exact.all):
        yield f"{len(actual.all)} results, expected {len(exact.all)}"
        return
    for name, x, reference in zip(actual.names, actual.all, exact.all, strict=True):
        if x is None or reference is None:
            if x is not reference:
                yield f"{name}: {'missing' if x is None else 'not expected'}"
        elif x.shape != reference.shape:
            yield f"{name}: shape {tuple(x.shape)}, expected {tuple(reference.shape)}"
    places = actual.places or ("no device",)
    if actual.all and (wrong := [place for place in places if place != device]):
        yield f"on {wrong[0]}, expected on {device}"


def judge_results(
    actual: Computed,
    exact: Computed,
    same_dtype: Computed | None,
    sensitivities: Sequence[Callable[[], tuple[Computed, ...]]],
    *,
    steps: Callable[[], tuple[Computed, ...]] | None = None,
    saturated: Callable[[], Computed | None] = lambda: None,
    device: str,
    unit_dtype: torch.dtype,
    profile: str = STRICT,
    times: float = 1.0,
) -> SampleVerdict:
    """Judge one call, by `times` the bounds. Each of `sensitivities` returns the exact results
    off by one rounding of the inputs; `steps` those off by one rounding of each step. `saturated`
    returns the results if every step overflows where the dtype does. They are called only where an
    error has to be explained.
    """
    faults = list(structure_faults(actual, exact, device))
    if faults:
        return SampleVerdict(faults=tuple(faults))
    rms, element, tallies = 0.0, 0.0, []
    moved = [(cache(sensitivity), math.inf) for sensitivity in sensitivities]
    moved += [(cache(steps), R_STEPS)] if steps else []
    explained = Explained(moved=moved, saturated=saturated)
    for i, (x, reference) in enumerate(zip(actual.all, exact.all, strict=True)):
        if x is None or reference is None or not x.numel():
            continue
        peer = same_dtype.all[i] if same_dtype and len(same_dtype.all) > i else None
        if not _differentiable(x):
            fault = _integer_fault(x, reference, peer)
            faults += [f"{actual.names[i]}: {fault}"] if fault else []
            continue
        limits = Limits.of(x, reference, peer, unit_dtype, times)
        verdict = explained.judge(i, x, reference, limits)
        rms, element = max(rms, verdict.rms * limits.rms), max(element, verdict.share)
        fault = verdict.fault
        if x.dtype == unit_dtype:
            notes = opinions(_real(x), _real(reference), x.dtype, strict=not fault)
            tallies.append(tally(notes))
            if profile != STRICT:
                fault = f"further off than {profile}" if notes[profile] is False else ""
        faults += [f"{actual.names[i]}: {fault}"] if fault else []
    return SampleVerdict(
        faults=tuple(faults), budget_used=element, rms_ratio=rms, tallies=total(tallies)
    )


@dataclass(frozen=True, kw_only=True)
class Explained:
    """Explanations of an error: the exact results `moved` by a rounding, each counted up to so
    many times, and those of a dtype that overflows in each step (`saturated`).
    """

    moved: Sequence[tuple[Callable[[], tuple[Computed, ...]], float]]
    saturated: Callable[[], Computed | None]

    def judge(self, place: int, actual: Tensor, exact: Tensor, limits: Limits) -> Verdict:
        """Return the verdict on one result, by limits that are eased as far as needed."""
        verdict = judge(actual, exact, limits.bound)
        if verdict.fault and not bool(actual.isfinite().all()):
            reached = self.saturated()
            exact = limits.overflowed(actual, exact, reached.all[place] if reached else None)
            verdict = judge(actual, exact, limits.bound)
        for sensitivity, most in self.moved:
            if verdict.fault:
                limits = limits.eased([each.all[place] for each in sensitivity()], exact, most)
                verdict = judge(actual, exact, limits.bound)
        return verdict


def _integer_fault(actual: Tensor, reference: Tensor, peer: Tensor | None) -> str:
    """Return the fault of integers. Those beyond float64 are not compared, and the
    CPU's own are right as well.
    """
    if peer is not None and torch.equal(actual, peer):
        return ""
    expected = wrapped(reference, actual.dtype)
    if reference.is_floating_point():
        expected = torch.where(reference.abs() < EXACT, expected, actual)
    return judge(actual, expected, Bound()).fault


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The bound of one tensor: `rms` times a root mean square `base`, and for an element `element`
    times its `scale`.
    """

    base: float
    scale: Tensor
    rms: float
    element: float
    times: float

    @classmethod
    def of(
        cls,
        actual: Tensor,
        reference: Tensor,
        peer: Tensor | None,
        unit_dtype: torch.dtype,
        times: float,
    ) -> Limits:
        narrow, exact = _narrow(actual), _real(reference)
        coarser = max(narrow, unit_dtype, key=rounding_unit)
        unit = rounding_unit(coarser)
        exact = torch.where(exact.to(narrow).isfinite(), exact, 0.0)
        base = unit * _rms(exact) + floor_of(narrow)
        if peer is not None and peer.shape == reference.shape:
            off = _real(peer) - exact
            base = max(base, _rms(torch.where(off.isfinite(), off, 0.0)))
        return cls(
            base=base,
            scale=unit * exact.abs() + base,
            rms=R_RMS.get(coarser, R_RMS_HALF),
            element=R_ELEMENT.get(coarser, R_ELEMENT_HALF),
            times=times,
        )

    @property
    def bound(self) -> Bound:
        slack = self.times * self.element * self.scale
        return Bound(slack=slack, rms=self.times * self.rms * self.base)

    def overflowed(self, actual: Tensor, reference: Tensor, saturated: Tensor | None) -> Tensor:
        """Return the reference with the device's NaN and infinities where an intermediate value may
        be beyond the range of the dtype, in any order of computation.
        """
        if saturated is None or saturated.shape != reference.shape:
            return reference
        values, exact, reached = _real(actual), _real(reference), _real(saturated)
        # Further than by a rounding: that, another way to compute it gives, too.
        rounding = self.bound.slack + rounding_unit(_narrow(actual)) * exact.abs()
        free = (reached != exact) & ~((reached - exact).abs() <= rounding) & ~values.isfinite()
        free_values = torch.where(free, values, exact)
        return torch.view_as_complex(free_values) if actual.is_complex() else free_values

    def eased(self, moved: Sequence[Tensor | None], reference: Tensor, most: float) -> Limits:
        """Return limits with the largest effect of one rounding on the exact result in any draw,
        allowed `most` times.
        """
        change = torch.zeros_like(_real(reference))
        for shifted in moved:
            if shifted is not None and shifted.shape == reference.shape:
                apart = (_real(shifted) - _real(reference)).abs()
                change = torch.where(apart.isfinite(), torch.maximum(change, apart), change)
        size = _rms(change)
        rms, element = (min(1.0, most / x) for x in (self.rms, self.element))
        base, scale = max(self.base, size * rms), self.scale + (size + change) * element
        return replace(self, base=base, scale=scale)


def disturbed(
    sample: Sample,
    cotangents: Sequence[Tensor] | None,
    dtype: torch.dtype,
    seed: int,
    *,
    by_matrix: bool = False,
) -> tuple[Sample, list[Tensor] | None]:
    """Move every number of a float64 sample, and of the gradients of its results, by up to one
    rounding of `dtype`. Integers stay: they may be classes, signs or exponents. With `by_matrix`, a
    number moves by a rounding of its matrix's root mean square, where that is more. Decompositions
    are stable for a matrix, not for its numbers (LAPACK Users' Guide, 4.1 to 4.9).
    """
    generator = torch.Generator().manual_seed(seed + 2)

    def move(x: Tensor) -> Tensor:
        if not _differentiable(x) or x.layout != torch.strided:
            return x
        noise = torch.rand(x.shape, generator=generator, dtype=torch.float64) * 2 - 1
        size = x.detach()
        if by_matrix and x.dim() > 1:
            size = size.abs()
            size = size.maximum(size.square().mean((-2, -1), keepdim=True).sqrt())
        moved = x.detach() + rounding_unit(dtype) * noise * size
        if not x.is_complex():
            moved = torch.where(x == x.round(), x.detach(), moved)
        return moved.requires_grad_(x.requires_grad)

    return convert_sample(sample, move), None if cotangents is None else converted(cotangents, move)


def wrong_dtypes(
    actual: Computed, exact: Computed, peer: Computed | None, dtype: torch.dtype
) -> tuple[str, ...]:
    """Return faults of results of another kind than the reference's (integer, real,
    complex), or of another dtype than the CPU's. Where the CPU has no such kernel, the
    tested dtype is expected.
    """
    if len(actual.all) != len(exact.all):
        return (f"{len(actual.all)} results, expected {len(exact.all)}",)
    peers = peer.all if peer and len(peer.all) == len(actual.all) else (None,) * len(actual.all)
    faults = []
    for i, (x, reference, same) in enumerate(zip(actual.all, exact.all, peers, strict=True)):
        if x is None or reference is None:
            continue
        kinds = {(y.is_floating_point(), y.is_complex()) for y in (x, reference)}
        expected_dtype = dtype if same is None else same.dtype
        real = x.is_floating_point() and (peer is not None or x.dtype.itemsize > dtype.itemsize)
        if len(kinds) > 1 or ((real or same is not None) and x.dtype != expected_dtype):
            faults.append(f"result {i}: {x.dtype}, expected {expected_dtype}")
    return tuple(faults)


def wrapped(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return integers wrapped to a narrower dtype."""
    if x.dtype == dtype:
        return x
    return (x != 0) if torch.bool in {dtype, x.dtype} else x.to(torch.int64).to(dtype)


def _differentiable(x: Tensor) -> bool:
    return bool(x.is_floating_point() or x.is_complex())


def _real(x: Tensor) -> Tensor:
    """Return float64 values; complex numbers as pairs."""
    if x.is_complex():
        return torch.view_as_real(x.resolve_conj().to(torch.complex128))
    return x.double()


def _narrow(x: Tensor) -> torch.dtype:
    """Return the dtype of a tensor's real numbers."""
    return torch.view_as_real(x.resolve_conj()).dtype if x.is_complex() else x.dtype


def _rms(x: Tensor) -> float:
    return float(x.square().mean().sqrt()) if x.numel() else 0.0
