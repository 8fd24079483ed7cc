"""Verdicts on one entry of the database on a device: structure, then the error of each result.

No bound is derived for some 600 operators. A result may be off by R times the largest of three
errors. They are one rounding of the reference, the CPU's error in the same dtype (where the device
is another), and the effect of one rounding of the inputs. The last measures how ill-conditioned the
operator is there.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from warpfront_checks.check_options import STRICT
from warpfront_checks.executing import Computed, computed, converted, tensors_in
from warpfront_checks.judge import CaseVerdict, structure_faults
from warpfront_checks.operations import floor_of, rounding_unit
from warpfront_checks.opinfo.adapter import Entry, Sample
from warpfront_checks.tolerance_profiles import opinions, tally, total

# Root mean square and worst element, over the allowed error; docs/verification.md has the figures.
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
    """Return the same numbers in another layout. It is strided, transposed, offset from the
    start of its memory, expanded along an axis (whose numbers have to be equal), or channels last.
    """
    if memory in {"", EVERY_SECOND} or x.layout != torch.strided or not x.numel():
        return x
    if memory == "gaps" and not x.dim():
        return torch.stack([torch.zeros_like(x), x])[1]
    if memory == "gaps":
        return torch.stack([x, x], -1).flatten(-2)[..., 1::2]
    if memory == "offset":
        return torch.cat([x.flatten()[:1].expand(3), x.flatten()])[3:].view(x.shape)
    if memory == "repeated" and x.dim() and bool((x == x[:1]).all()):
        return x[:1].expand(x.shape)
    axes = list(range(x.dim()))
    order = axes[::-1] if memory == "turned" else [axes[0], *axes[2:], axes[1]] if axes[2:] else []
    return x.permute(order).contiguous().permute(_inverse(order)) if order else x


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(axis) for axis in range(len(order))]


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
) -> CaseVerdict:
    """Judge one call, by `times` the bounds. Each of `sensitivities` returns the exact results
    off by one rounding of the inputs; `steps` those off by one rounding of each step. `saturated`
    returns the results if every step overflows where the dtype does. They are called only where an
    error has to be explained.
    """
    forms = [None if x is None else (x.shape, None) for x in exact.all]
    faults = list(structure_faults(actual, forms, device))
    if faults:
        return CaseVerdict(faults=tuple(faults))
    rms, element, tallies = 0.0, 0.0, []
    moved = [(cache(sensitivity), float("inf")) for sensitivity in sensitivities]
    moved += [(cache(steps), R_STEPS)] if steps else []
    for i, (x, reference) in enumerate(zip(actual.all, exact.all, strict=True)):
        if x is None or reference is None or not x.numel():
            continue
        peer = same_dtype.all[i] if same_dtype and len(same_dtype.all) > i else None
        limits = Limits.of(x, reference, peer, unit_dtype).wider(times)
        if limits.wrong and limits.numeric:
            reached = saturated()
            limits = limits.but_overflow(x, reference, reached.all[i] if reached else None)
        for sensitivity, most in moved if limits.numeric else ():
            if limits.exceeded:
                draws = [results.all[i] for results in sensitivity()]
                limits = limits.eased(draws, reference, most * times)
        rms, element = max(rms, limits.rms), max(element, limits.element)
        complaints = list(limits.faults())
        if limits.numeric and x.dtype == unit_dtype:
            notes = opinions(_real(x), _real(reference), x.dtype, strict=not limits.exceeded)
            tallies.append(tally(notes))
            if profile != STRICT:
                complaints = [] if notes[profile] is not False else [f"further off than {profile}"]
        faults += [f"{actual.names[i]}: {complaint}" for complaint in complaints]
    return CaseVerdict(
        faults=tuple(faults), budget_used=element, rms_ratio=rms, tallies=total(tallies)
    )


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of one tensor against its reference. `rms` and `element` are in units of
    the allowed error.
    """

    numeric: bool
    error: Tensor
    scale_rms: float
    scale_element: Tensor
    allowed_rms: float = R_RMS_HALF
    allowed_element: float = R_ELEMENT_HALF
    wrong: int = 0

    @classmethod
    def of(
        cls, actual: Tensor, reference: Tensor, peer: Tensor | None, unit_dtype: torch.dtype
    ) -> Limits:
        if not (actual.is_floating_point() or actual.is_complex()):
            representable = reference.abs() < EXACT if reference.is_floating_point() else True
            wrong = int(((actual != wrapped(reference, actual.dtype)) & representable).sum())
            if wrong and peer is not None and torch.equal(actual, peer):
                wrong = 0
            nothing = torch.zeros(1).double()
            return cls(
                numeric=False, error=nothing, scale_rms=1.0, scale_element=nothing + 1, wrong=wrong
            )
        values, exact = _real(actual), _real(reference)
        narrow = _narrow(actual)
        rounded = exact.to(narrow).double()
        finite = values.isfinite() & rounded.isfinite()
        agree = (values.isnan() & rounded.isnan()) | (values == rounded)
        error = torch.where(finite, values - exact, 0.0).abs()
        exact = torch.where(finite, exact, 0.0)
        coarser = max(narrow, unit_dtype, key=rounding_unit)
        unit = rounding_unit(coarser)
        size = _rms(exact)
        base = unit * size + floor_of(narrow)
        if peer is not None and peer.shape == actual.shape:
            off = torch.where(finite, _real(peer) - exact, 0.0)
            base = max(base, _rms(torch.where(off.isfinite(), off, 0.0)))
        return cls(
            numeric=True,
            error=error,
            scale_rms=base,
            scale_element=unit * exact.abs() + base,
            allowed_rms=R_RMS.get(coarser, R_RMS_HALF),
            allowed_element=R_ELEMENT.get(coarser, R_ELEMENT_HALF),
            wrong=int((~finite & ~agree).sum()),
        )

    def wider(self, times: float) -> Limits:
        rms, element = self.allowed_rms * times, self.allowed_element * times
        return self if times == 1 else replace(self, allowed_rms=rms, allowed_element=element)

    def but_overflow(self, actual: Tensor, reference: Tensor, saturated: Tensor | None) -> Limits:
        """Return limits that accept overflow. A number within its error of the largest one, on
        either side, is not wrong. Neither is one that an intermediate value beyond that number may
        have reached, in any order of computation.
        """
        values, exact = _real(actual), _real(reference)
        rounded = exact.to(_narrow(actual)).double()
        same = (values.isnan() & rounded.isnan()) | (values == rounded)
        judged = values.isfinite() & rounded.isfinite()
        off = self.allowed_element * self.scale_element
        largest = float(torch.finfo(_narrow(actual)).max)
        limited = torch.where(values.isinf(), values.sign() * largest, values)
        at_the_edge = exact.isfinite() & ~values.isnan() & ((limited - exact).abs() <= off)
        if saturated is not None and saturated.shape == reference.shape:
            reached = _real(saturated)
            # Further than by a rounding: that, another way to compute it gives, too.
            rounding = off + rounding_unit(_narrow(actual)) * exact.abs()
            overflowed = (reached != exact) & ~((reached - exact).abs() <= rounding)
            at_the_edge |= overflowed & ~values.isfinite()
        return replace(self, wrong=int((~judged & ~same & ~at_the_edge).sum()))

    def eased(
        self, moved: Sequence[Tensor | None], reference: Tensor, most: float = float("inf")
    ) -> Limits:
        """Return limits with the largest effect of one rounding on the exact result in any draw,
        allowed `most` times.
        """
        change = torch.zeros_like(_real(reference))
        for shifted in moved:
            if shifted is not None and shifted.shape == reference.shape:
                apart = (_real(shifted) - _real(reference)).abs()
                change = torch.where(apart.isfinite(), torch.maximum(change, apart), change)
        size = _rms(change)
        rms, element = (min(1.0, most / x) for x in (self.allowed_rms, self.allowed_element))
        return replace(
            self,
            scale_rms=max(self.scale_rms, size * rms),
            scale_element=self.scale_element + (size + change) * element,
        )

    @cached_property
    def rms(self) -> float:
        return _rms(self.error) / self.scale_rms if self.scale_rms else 0.0

    @cached_property
    def element(self) -> float:
        tiny = torch.finfo(torch.float64).smallest_normal
        return float((self.error / self.scale_element.clamp(min=tiny)).max())

    @property
    def exceeded(self) -> bool:
        return (
            bool(self.wrong) or self.rms > self.allowed_rms or self.element > self.allowed_element
        )

    def faults(self) -> Iterator[str]:
        if self.wrong and self.numeric:
            yield f"{self.wrong} elements are wrongly finite, infinite or NaN"
        elif self.wrong:
            yield f"{self.wrong} elements differ from the exact ones"
        elif self.rms > self.allowed_rms:
            yield f"RMS error {self.rms:.3g} times one rounding's ({self.allowed_rms:g} allowed)"
        elif self.element > self.allowed_element:
            yield f"an element is {self.element:.3g} times off ({self.allowed_element:g} allowed)"


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
