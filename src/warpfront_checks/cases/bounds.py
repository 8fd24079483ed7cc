"""The comparison of a result with its oracle: one function, `judge`, for every kind of case, and
the tally of its verdicts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.check_options import STRICT
from warpfront_checks.results import SKIPPED, CheckFinding, failed, judged
from warpfront_checks.tolerance_profiles import ANSWERS, counted, opinions

OVER = 1e300
SHOWN = 200
# The bits of the exponent of a float64: with no others, the power of 2 that is no larger.
POWERS_OF_TWO = 0x7FF << 52


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The largest error of an element. It is the sum of `ulps` units in the last place of the
    expected value, of `slack` (one number, or one per element), and of `roundings`. Those
    are of the dtype `unit` times the largest expected number and `least`. Integers and
    booleans have to be equal. `rms` is the largest root mean square error of all elements.
    """

    ulps: float = 0.0
    slack: Any = 0.0
    roundings: float = 0.0
    least: float = 0.0
    unit: torch.dtype = torch.float32
    rms: float = math.inf

    def allowed(self, expected: Tensor) -> Tensor:
        """Return the absolute part of the bound, of one element or of each."""
        slack = torch.as_tensor(self.slack, dtype=torch.float64)
        if not self.roundings:
            return slack
        size = expected.abs()
        most = float(size.max()) if size.numel() else 0.0
        if not math.isfinite(most):
            most = float(size.nan_to_num(nan=0.0, posinf=0.0).max())
        return slack + self.roundings * torch.finfo(self.unit).eps * (self.least + most)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome for one tensor of any session. `name` is the tensor's, `layer` and `kind` its
    layer's in a model. `share` is the largest error as a share of its bound, and `rms` the root
    mean square error as a share of its own. Both are at most 1 where `fault` is empty. `index` is
    that of the worst element of a fault. `profiles` has the verdict of each profile of
    tolerances: nothing without numbers to compare. `describe` returns details of a fault.
    """

    name: str = ""
    layer: str = ""
    kind: str = ""
    fault: str = ""
    share: float = 0.0
    rms: float = 0.0
    index: tuple[int, ...] = ()
    profiles: Mapping[str, bool | None] = field(default_factory=dict)
    describe: Callable[[], Mapping[str, object]] | None = field(default=None, compare=False)

    @classmethod
    def failed(cls, name: str, fault: str, *, layer: str = "", kind: str = "") -> Verdict:
        """Return a fault that shows before any number is compared."""
        return cls(name=name, fault=fault, share=OVER, layer=layer, kind=kind)

    @classmethod
    def raised(cls, error: Exception) -> Verdict:
        """Return an exception of the judged call as a fault."""
        first = next(iter(str(error).strip().splitlines()), "")[:300]
        return cls.failed("raised", f"{type(error).__name__}: {first}")

    @property
    def used(self) -> float:
        """Return the larger share of the two bounds."""
        return max(self.share, self.rms)

    def fault_by(self, profile: str = STRICT) -> str:
        """Return the fault by a profile's tolerances, with the tensor's place. A tensor without
        numbers to compare is judged by our bounds.
        """
        fault = self.fault
        if profile != STRICT and self.profiles:
            wrong = self.profiles[profile] is False
            fault = f"further off than {profile} allows" if wrong else ""
        layer = f"{self.layer} ({self.kind})" if self.kind else self.layer
        return ": ".join(filter(None, (layer, self.name, fault))) if fault else ""


def rounding_unit(dtype: torch.dtype) -> float:
    """Return half the distance from 1 to the next number of the dtype."""
    return float(torch.finfo(dtype).eps) / 2


def floor_of(dtype: torch.dtype) -> float:
    """Return half the smallest subnormal: the error of rounding a number too small to be normal."""
    info = torch.finfo(dtype)
    return float(info.smallest_normal) * float(info.eps) / 2


def spacing(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the distance of neighbours of `dtype` at float64 values: a unit in the last place."""
    info = torch.finfo(dtype)
    sizes = values.abs().clamp_(info.smallest_normal, info.max)
    sizes.view(torch.int64).bitwise_and_(POWERS_OF_TWO)
    return sizes.nan_to_num_(1.0, 1.0).mul_(info.eps)


def numbers_of(x: Tensor) -> Tensor:
    """Return float64 numbers on the CPU, detached; complex ones as pairs."""
    x = x.detach().cpu().resolve_neg()
    return (
        torch.view_as_real(x.resolve_conj().to(torch.complex128)) if x.is_complex() else x.double()
    )


def real_parts(actual: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Return both on the CPU; complex numbers as pairs."""
    actual = actual.detach().cpu().resolve_conj().resolve_neg()
    expected = expected.detach().resolve_conj().resolve_neg()
    if actual.is_complex() or expected.is_complex():
        actual, expected = (
            torch.view_as_real(x if x.is_complex() else x.to(torch.complex128))
            for x in (actual, expected)
        )
    return actual, expected


def agrees(actual: Tensor, expected: Tensor) -> bool:
    """Return whether a result's real parts are the expected ones, rounded to their dtype."""
    if actual.shape != expected.shape:
        return False
    if not actual.numel() or (actual.dtype == expected.dtype and torch.equal(actual, expected)):
        return True
    if not actual.is_floating_point():
        return False
    return bool(torch.equal(actual, expected.double().to(actual.dtype)))


def judge(actual: Tensor, expected: Tensor, bound: Bound) -> Verdict:
    """Compare a result of any device with its float64 oracle on the CPU."""
    if actual.shape != expected.shape:
        fault = f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
        return Verdict(fault=fault, share=OVER)
    actual, expected = real_parts(actual, expected)
    if agrees(actual, expected):
        return Verdict()
    if not actual.is_floating_point():
        wrong = actual != expected
        return _worst(actual, expected, wrong) if bool(wrong.any()) else Verdict()
    expected = expected.double()
    off, allowed = errors_and_bounds(actual, expected, bound)
    share = off / allowed.clamp(min=1e-310)
    limited = bound.rms < math.inf
    root = float(off.square().mean().sqrt()) if limited else 0.0
    rms, most = root / max(bound.rms, 1e-300), float(share.max())
    if most <= 1 and rms <= 1:
        return Verdict(share=most, rms=rms)
    wrong = ~(share <= 1)
    verdict = _worst(actual, expected, wrong, share)
    place = verdict.index
    over = f"off by {float(off[place]):.3g} of {float(allowed[place]):.3g} allowed"
    fault = f"{verdict.fault}, {over}"
    if 1 < rms < math.inf:
        fault = f"RMS error {root:.3g}, {rms:.3g} times what is allowed; {fault}"
    return replace(verdict, fault=fault, rms=min(rms, OVER))


def judge_by_all(actual: Tensor, expected: Tensor, bound: Bound, dtype: torch.dtype) -> Verdict:
    """Compare float64 values by a bound, and by each profile's tolerances for a dtype."""
    verdict = judge(actual.double(), expected, bound)
    strict = not verdict.fault
    return replace(verdict, profiles=opinions(actual.double(), expected, dtype, strict=strict))


def errors_and_bounds(actual: Tensor, expected: Tensor, bound: Bound) -> tuple[Tensor, Tensor]:
    """Return the error of each element and its bound. The error is infinite where only one side is
    infinite or NaN; beyond the dtype's largest number both its ends are correct.
    """
    narrow = actual.dtype
    values, rounded = actual.double(), expected.to(narrow).double()
    largest = float(torch.finfo(narrow).max)
    allowed = bound.allowed(expected)
    if bound.ulps:
        # Results may be flushed to zero below the normal numbers; float16's are large.
        half = narrow == torch.float16
        least = 4 * floor_of(narrow) if half else torch.finfo(narrow).smallest_normal
        allowed = spacing(rounded, narrow).mul_(bound.ulps).add_(allowed + least)
    off = (values - rounded).abs_()
    if not off.numel() or math.isfinite(float(off.max())):
        return off, allowed.expand_as(values)
    same = (values == rounded) | (values.isnan() & rounded.isnan())
    edge = expected.isfinite() & ~values.isnan() & (values.isinf() | rounded.isinf())
    limited = torch.where(values.isinf(), values.sign() * largest, values)
    off = torch.where(edge, limited - expected, values - rounded).abs()
    off = torch.where(off.isnan() | (~edge & values.isinf()), torch.inf, off)
    return torch.where(same, 0.0, off), allowed.expand_as(off)


def _worst(
    actual: Tensor, reference: Tensor, wrong: Tensor, share: Tensor | None = None
) -> Verdict:
    """Describe the first wrong element, or with `share` the one that is furthest off."""
    weight = wrong.double() if share is None else share.nan_to_num(OVER, OVER)
    place = int(weight.flatten().argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), actual.shape))
    gave, expected = actual.flatten()[place].item(), reference.flatten()[place].item()
    count = int(wrong.sum())
    return Verdict(
        fault=f"element {list(index)} is {gave!r}, right is {expected!r}"
        f" ({count} of {actual.numel()} are wrong)",
        share=OVER if share is None else min(float(weight.flatten()[place]), OVER),
        index=index,
    )


@dataclass(kw_only=True)
class Tally:
    """The outcome of cases; grows. `refused` ones have no oracle, `lacking` no kernel, `too_large`
    no memory; `excluded` ones are not judged, by reason. `defects` are faults of torch itself, by
    thread. `largest` is the largest share of a bound without a fault. `first` is the first fault
    with the axes of its case; `report` describes it.
    """

    entries: int = 0
    cases: int = 0
    refused: int = 0
    largest: float = 0.0
    faults: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)
    report: list[str] = field(default_factory=list)
    excluded: Counter[str] = field(default_factory=Counter)
    defects: Counter[str] = field(default_factory=Counter)
    profiles: dict[str, dict[str, int]] = field(default_factory=lambda: counted(()))
    first: tuple[Mapping[str, Any], Verdict] | None = None

    def enter(self, verdict: Verdict, fault: str, thread: str = "") -> bool:
        """Count a verdict; return whether it is a fault, and none of torch itself."""
        if not verdict.fault:
            self.largest = max(self.largest, verdict.share)
        elif thread:
            self.defects[thread] += 1
        else:
            self.faults.append(fault)
        return bool(verdict.fault) and not thread

    def enter_profiles(self, verdict: Verdict) -> None:
        """Count the verdict of each profile of tolerances on a tensor."""
        for name, accepted in verdict.profiles.items():
            self.profiles[name][ANSWERS[accepted]] += 1

    def finding(self, noun: str, **more: object) -> CheckFinding:
        """Return the finding of all cases, whose `noun` is a plural; none at all is no pass."""
        details: dict[str, object] = {
            noun: self.cases,
            "budget_used": float(f"{self.largest:.4g}"),
            "without an oracle": self.refused,
            "no such kernel": sorted(set(self.lacking))[:SHOWN],
            "no memory": self.too_large,
            "not judged": dict(self.excluded),
            "known defects of torch": dict(self.defects),
            **more,
        }
        if self.faults:
            details["faults"] = self.faults[:SHOWN]
        elif not self.cases and self.too_large:
            return CheckFinding(outcome=SKIPPED, reason=self.too_large[0], details=details)
        elif not self.cases:
            return failed(f"none of its {noun} could be computed", **details)
        suffix = "".join(f"; torch gets {thread} wrong" for thread in self.defects)
        return judged(self.faults, f"{self.cases} {noun}{suffix}", **details)

    def as_json(self) -> dict[str, Any]:
        """Return itself as JSON, for `add_part` of another."""
        return {name: value for name, value in vars(self).items() if name != "first"}

    def add_part(self, part: Mapping[str, Any]) -> None:
        """Add the counts of cases that another process judged."""
        for name, value in part.items():
            mine = getattr(self, name)
            if isinstance(mine, Counter):
                mine.update(value)
            elif name == "profiles":
                for profile, answers in value.items():
                    mine[profile] = {each: mine[profile][each] + n for each, n in answers.items()}
            elif name == "largest":
                self.largest = max(mine, value)
            else:
                setattr(self, name, mine + value)
