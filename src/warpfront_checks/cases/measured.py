"""Bounds of calls for which none is derived: what one rounding does to their exact results.

A result may be off by R times the largest of three errors: one rounding of the reference, the
CPU's error in the same dtype (where the device is another), and the effect of one rounding of the
inputs. The last measures how ill-conditioned a call is at its arguments. It is computed only where
an error has to be explained: the statements of the reference run again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.cases.bounds import (
    Bound,
    Verdict,
    agrees,
    floor_of,
    judge,
    numbers_of,
    real_parts,
    rounding_unit,
)
from warpfront_checks.cases.case import COMPLEX
from warpfront_checks.cases.rounding import (
    RoundedSteps,
    dense_in,
    differentiable,
    disturbed,
    rms_of,
)
from warpfront_checks.cases.run import DRAWS, Bounds, listed, results_again
from warpfront_checks.executing import Watched
from warpfront_checks.tolerance_profiles import opinions

# Root mean square and worst element, over the allowed error; docs/bounds.md has the figures.
R_RMS = {torch.float32: 32.0}
R_RMS_HALF = 6.0
R_ELEMENT = {torch.float32: 256.0}
R_ELEMENT_HALF = 8.0
# The roundings of all steps foretell the error itself, not its scale: times this at most.
R_STEPS = 8.0
# The CPU is a yardstick, not an authority: of what it is off by this many roundings count, of the
# result or of what was added. Beyond them the CPU itself computes wrong.
YARDSTICK = 64.0
# Integers from here on are not exact in float64.
EXACT = 2.0**53
Tensors = list["Tensor | None"]


class Measured(Bounds):
    """The bounds of one case. For integers the exact results are float64, which wrap around."""

    # A call may write an argument's own numbers again, rounded: a mean of equal ones.
    of_arguments = Bound(ulps=8.0)

    def fault_of_form(self, place: int, actual: Tensor, expected: Tensor) -> str:
        """Return the fault of a result of another dtype than the reference's has on the device,
        and than the CPU's own. Where the CPU has no such kernel, it is one of another kind
        (integer, real, complex) or a wider real one.
        """
        fault = super().fault_of_form(place, actual, expected)
        tested: torch.dtype = getattr(torch, self.case.dtype)
        whole = not (tested.is_floating_point or tested.is_complex)
        # A call may name a width for complex results of real numbers: the CPU's own has it.
        named = actual.is_complex() and not tested.is_complex
        if actual.device.type != self.case.device or not (fault or named):
            return fault
        if whole and not actual.is_complex():
            return ""
        peer = self.peers[place] if self.peers else None
        if peer is not None:
            other = fault or f"{actual.dtype}, expected {peer.dtype}"
            return "" if peer.dtype == actual.dtype else other
        kinds = {(x.is_floating_point(), x.is_complex()) for x in (actual, expected)}
        width = 0 if self.peers else tested.itemsize
        wider = actual.is_floating_point() and actual.dtype.itemsize > width
        return fault if len(kinds) > 1 or wider else ""

    def judge(self, place: int, actual: Tensor, expected: Tensor) -> Verdict:
        """Return the verdict on one result, by a bound that is eased as far as needed."""
        if not differentiable(actual):
            verdict = _judge_integers(actual, expected)
            peer = self._peer(place) if verdict.fault else None
            # The CPU's own are right.
            return verdict if peer is None or not torch.equal(actual.cpu(), peer) else Verdict()
        verdict = Verdict()
        if actual.shape != expected.shape:
            verdict = judge(actual, expected, Bound())
        elif not agrees(*real_parts(actual, expected)):
            verdict = self._explained(place, actual, expected)
        if actual.dtype == self.kind:
            values, reference = numbers_of(actual), numbers_of(expected)
            # A rounded reference is right by all of them.
            reference = reference if verdict.used else values
            strict = not verdict.fault
            profiles = opinions(values, reference, actual.dtype, strict=strict)
            verdict = replace(verdict, profiles=profiles)
        return verdict

    def _explained(self, place: int, actual: Tensor, expected: Tensor) -> Verdict:
        limits = Limits.of(actual, expected, None, self.kind)
        verdict = judge(actual, expected, limits.bound)
        if verdict.fault and (peer := self._peer(place)) is not None:
            limits = Limits.of(actual, expected, peer, self.kind)
            verdict = judge(actual, expected, limits.bound)
        if verdict.fault and not bool(actual.isfinite().all()):
            expected = limits.overflowed(actual, expected, self.saturated[place])
            verdict = judge(actual, expected, limits.bound)
        for moved, most in (("_moved", math.inf), ("_rounded", R_STEPS)):
            if verdict.fault:
                shifted = [each[place] for each in getattr(self, moved)]
                limits = limits.eased(shifted, self.plain[place], most)
                verdict = judge(actual, expected, limits.bound)
        return replace(verdict, rms=verdict.rms * limits.rms)

    @property
    def kind(self) -> torch.dtype:
        """Return the dtype of the tested numbers; float32 computes fractions of integers."""
        kind: torch.dtype = getattr(torch, self.case.dtype)
        return kind if kind.is_floating_point or kind.is_complex else torch.float32

    def _peer(self, place: int) -> Tensor | None:
        """Return the CPU's own result where another device is judged, computed when first used."""
        return self.peers[place] if self.case.device != "cpu" and self.peers else None

    @cached_property
    def peers(self) -> Tensors:
        """Return the CPU's own results in the dtype, by the reference's call: it names the CPU."""
        case = replace(self.case, device="cpu", code=self.case.definition)
        names = results_again(case, self.reference, [*case.sent(), *case.call()])
        return [*listed(names["found"]), *names.get("gradients", ())] if names else []

    @cached_property
    def plain(self) -> Tensors:
        """Return the exact results by the same kernels that the moved ones are of."""
        return self.again() or [*self.reference.expected, *self.reference.rights]

    @cached_property
    def _moved(self) -> list[Tensors]:
        """Return the exact results of inputs that are off by a rounding. It is float32's in a
        forward, as kernels for 16 bits compute in it.
        """
        inside = self.kind if self.case.leaves else torch.float32
        tries = (self.again(move=self._mover(inside, draw)) for draw in range(DRAWS))
        return [results for results in tries if results]

    @cached_property
    def _rounded(self) -> list[Tensors]:
        """Return the exact results by steps that are off by a rounding, with gradients."""
        tries = (
            self.again(RoundedSteps(self.kind, self.case.seed + draw))
            for draw in range(DRAWS if self.case.leaves else 0)
        )
        return [results for results in tries if results]

    @cached_property
    def saturated(self) -> Tensors:
        mode = saturating(float(torch.finfo(self.kind).max))
        return self.again(mode) or [None] * len(self.plain)

    def _mover(self, dtype: torch.dtype, draw: int) -> Callable[[Tensor], Tensor]:
        generator = torch.Generator().manual_seed(self.case.seed + draw + 2)
        by_matrix = self.case.by_matrix
        return partial(disturbed, dtype=dtype, generator=generator, by_matrix=by_matrix)


class ByPeer(Measured):
    """Bounds by what the CPU is off by in the same dtype, on the CPU too (`Limits.by_cpu`). It
    computes that for an error that a rounding of the result does not explain.
    """

    def fault_of_form(self, place: int, actual: Tensor, expected: Tensor) -> str:
        return Bounds.fault_of_form(self, place, actual, expected)

    def limits(self, place: int, actual: Tensor, expected: Tensor, peer: Tensor) -> Limits:
        """Return the limits of a result or gradient. A vector's is a sum of what was fed."""
        summed = place and expected.dim() == 1
        terms = float(self.reference.drawn["fed"].abs().sum()) if summed else 0.0
        added = terms / max(1, expected.numel())
        return Limits.by_cpu(actual, expected, peer, actual.dtype, added=added)

    def judge(self, place: int, actual: Tensor, expected: Tensor) -> Verdict:
        if actual.shape != expected.shape or not actual.is_floating_point():
            return judge(actual, expected, Bound())
        rounded = Limits.of(actual, expected, None, actual.dtype)
        verdict = self.compared(actual, expected, rounded.bound)
        if verdict.fault and (peer := self.peers[place]) is not None:
            limits = self.limits(place, actual, expected, peer.detach())
            verdict = self.compared(actual, expected, limits.bound)
        return verdict

    def compared(self, actual: Tensor, expected: Tensor, bound: Bound) -> Verdict:
        return judge(actual.double(), expected, bound)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The bound of a tensor: `rms` times an RMS `base`; `element` times an element's `scale`."""

    base: float
    scale: Tensor
    rms: float
    element: float

    @classmethod
    def of(
        cls, actual: Tensor, reference: Tensor, peer: Tensor | None, kind: torch.dtype
    ) -> Limits:
        narrow, exact = _narrow(actual), numbers_of(reference)
        coarser = max(narrow, kind, key=rounding_unit)
        unit = rounding_unit(coarser)
        exact = torch.where(exact.to(narrow).isfinite(), exact, 0.0)
        base = unit * rms_of(exact) + floor_of(narrow)
        if peer is not None and peer.shape == reference.shape:
            off = numbers_of(peer) - exact
            base = max(base, rms_of(torch.where(off.isfinite(), off, 0.0)))
        return cls(
            base=base,
            scale=unit * exact.abs() + base,
            rms=R_RMS.get(coarser, R_RMS_HALF),
            element=R_ELEMENT.get(coarser, R_ELEMENT_HALF),
        )

    @classmethod
    def by_cpu(
        cls,
        actual: Tensor,
        exact: Tensor,
        cpu: Tensor,
        kind: torch.dtype,
        *,
        most: float = YARDSTICK,
        added: float = 0.0,
        stored: float = 0.0,
    ) -> Limits:
        """Return limits by what the CPU is off by in the same dtype, on the CPU as well, in `most`
        roundings. `added` is the size of the terms of sums that may have cancelled, `stored` that
        of rounded partial sums.
        """
        limits = cls.of(actual, exact, None, kind)
        unit = rounding_unit(max(actual.dtype, kind, key=rounding_unit))
        off = torch.where(exact.isfinite(), (cpu.double() - exact).abs(), 0.0)
        size = rms_of(exact[exact.isfinite()])
        # Below it a result is zero but for cancellation.
        floor = torch.finfo(torch.float64).eps
        base = max(limits.base, floor, min(rms_of(off), most * unit * max(size, added)))
        scale = limits.scale + base
        # The CPU's worst element may be further off than its root mean square tells.
        peak = float((off / scale).max()) if off.numel() else 0.0
        scale = (scale * min(max(1.0, peak), most)).clamp(min=unit * stored)
        # One element alone may be that far off.
        base = max(base, unit * stored * limits.element / limits.rms / max(1, exact.numel()) ** 0.5)
        return replace(limits, base=base, scale=scale)

    @property
    def bound(self) -> Bound:
        return Bound(slack=self.element * self.scale, rms=self.rms * self.base)

    def overflowed(self, actual: Tensor, reference: Tensor, saturated: Tensor | None) -> Tensor:
        """Return the reference with the device's NaN and infinities where an intermediate value may
        be beyond the range of the dtype, in any order of computation.
        """
        if saturated is None or saturated.shape != reference.shape:
            return reference
        values, exact, reached = numbers_of(actual), numbers_of(reference), numbers_of(saturated)
        if values.shape != exact.shape:
            return reference
        # Further than by a rounding: that, another way to compute it gives, too.
        rounding = self.bound.slack + rounding_unit(_narrow(actual)) * exact.abs()
        free = (reached != exact) & ~((reached - exact).abs() <= rounding) & ~values.isfinite()
        free_values = torch.where(free, values, exact)
        return torch.view_as_complex(free_values) if actual.is_complex() else free_values

    def eased(self, moved: Tensors, reference: Tensor | None, most: float) -> Limits:
        """Return limits that allow `most` times the largest effect of one rounding in any draw."""
        if reference is None:
            return self
        change = torch.zeros_like(numbers_of(reference))
        for shifted in moved:
            if shifted is not None and shifted.shape == reference.shape:
                apart = (numbers_of(shifted) - numbers_of(reference)).abs()
                change = torch.where(apart.isfinite(), torch.maximum(change, apart), change)
        size = rms_of(change)
        rms, element = (min(1.0, most / x) for x in (self.rms, self.element))
        base, scale = max(self.base, size * rms), self.scale + (size + change) * element
        return replace(self, base=base, scale=scale)


def saturating(largest: float) -> Watched:
    """Return a mode in which every number beyond `largest` becomes infinite, in each step."""

    def saturate(_: Any, result: Any) -> None:
        for x in dense_in(result):
            if x.is_floating_point():
                # `.data`: autograd would take it for a change after the fact.
                x.data.masked_fill_(x > largest, torch.inf)
                x.data.masked_fill_(x < -largest, -torch.inf)

    return Watched(saturate)


def _judge_integers(actual: Tensor, reference: Tensor) -> Verdict:
    """Judge integers. Those beyond float64 are not compared."""
    expected = reference
    if actual.dtype != reference.dtype:
        truth = torch.bool in {actual.dtype, reference.dtype}
        expected = (reference != 0) if truth else reference.to(torch.int64).to(actual.dtype)
    if reference.is_floating_point() and actual.shape == reference.shape:
        expected = torch.where(reference.abs() < EXACT, expected, actual.cpu())
    return judge(actual, expected, Bound())


def _narrow(x: Tensor) -> torch.dtype:
    """Return the dtype of a tensor's real numbers."""
    return getattr(torch, COMPLEX.get(str(x.dtype).removeprefix("torch."), ""), x.dtype)
