"""Expected results of a sample of the database: float64 on the CPU; and the
exclusions. Needs torch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from warpfront_checks.check_options import STRICT
from warpfront_checks.executing import Computed, tensors_in
from warpfront_checks.opinfo.adapter import Entry, Sample
from warpfront_checks.opinfo.entry_verdicts import (
    RoundedSteps,
    SampleVerdict,
    Saturated,
    convert_sample,
    cotangents_for,
    disturbed,
    execute_entry,
    judge_results,
    widen,
    wrong_dtypes,
)

EXCLUSIONS = Path(__file__).with_name("exclusions.json")
# One draw may by chance leave a result of few numbers where it was.
DRAWS = 8
# Errors of torch where an entry has no such kernel, or a sample does not fit.
REFUSALS = (RuntimeError, NotImplementedError, TypeError, ValueError, AssertionError, IndexError)


@dataclass(frozen=True, kw_only=True)
class Exclusion:
    """An entry that is not judged, with the reason. `what` names the part: all, backward, the
    samples that exist for their options alone, or the backward of those. `dtypes` are its dtypes
    (none: all). It may apply only to devices other than the CPU.
    """

    name: str
    reason: str
    what: str
    dtypes: tuple[str, ...] = ()
    elsewhere: bool = False

    def covers(
        self, name: str, dtype: str, device: str, *, backward: bool, options: bool = False
    ) -> bool:
        if self.name != name or (self.elsewhere and device == "cpu"):
            return False
        among = {"all": True, "backward": backward, "options": options}
        covered = all(among[word] for word in self.what.split())
        return covered and (not self.dtypes or dtype in self.dtypes)


@cache
def exclusions() -> tuple[Exclusion, ...]:
    """Return the declared exclusions, with their reasons in words."""
    text = json.loads(EXCLUSIONS.read_text(encoding="utf-8"))
    return tuple(
        Exclusion(
            name=row["name"],
            reason=text["reasons"][row["reason"]],
            what=row["what"],
            dtypes=tuple(row.get("dtypes", ())),
            elsewhere=row.get("elsewhere", False),
        )
        for row in text["exclusions"]
    )


def excluded(name: str, dtype: str, device: str, *, backward: bool, options: bool = False) -> str:
    """Return the reason for an exclusion in this dtype and direction on a device, or an empty
    string. It applies to an entry, or to its samples with options.
    """
    return next(
        (
            exclusion.reason
            for exclusion in exclusions()
            if exclusion.covers(name, dtype, device, backward=backward, options=options)
        ),
        "",
    )


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The float64 results of one sample on the CPU (`exact`), with the sample in float64 (`wide`)
    and what is fed into its backward: `cotangents`, and the same in float64 (`raised`).
    """

    entry: Entry
    sample: Sample
    wide: Sample
    exact: Computed
    cotangents: list[torch.Tensor] | None
    raised: list[torch.Tensor] | None
    dtype: torch.dtype
    seed: int

    def judge(
        self, computed: Computed, device: str, profile: str = STRICT, times: float = 1.0
    ) -> SampleVerdict:
        """Judge the results of a device. The CPU's own result in the dtype is a baseline for
        other devices only, but its dtypes apply to every device. For integers the float64 results
        wrap around, and fractions are float32.
        """
        unusual = any(
            x is not None and (x.is_floating_point() or x.is_complex()) and x.dtype != self.dtype
            for x in computed.all
        )
        peer = None
        if unusual or device != "cpu":
            peer = _attempt(self.entry, self.sample, self.cotangents)
        exact = not self.dtype.is_floating_point
        faults = () if exact else wrong_dtypes(computed, self.exact, peer, self.dtype)
        if faults:
            return SampleVerdict(faults=faults)
        return judge_results(
            computed,
            self.exact,
            None if device == "cpu" else peer,
            (self.inputs_moved,),
            # A forward kernel is one step; a backward has many.
            steps=None if self.cotangents is None else self.steps_rounded,
            saturated=self.saturated,
            device=device,
            unit_dtype=torch.float32 if exact else self.dtype,
            profile=profile,
            times=times,
        )

    def inputs_moved(self) -> tuple[Computed, ...]:
        """Return the exact results of inputs that are off by a rounding. It is float32's in a
        forward, as kernels for 16 bits compute in it.
        """
        inside = torch.float32 if self.cotangents is None else self.dtype
        move = partial(disturbed, self.wide, self.raised, inside, by_matrix=self.entry.by_matrix)
        attempts = (_attempt(self.entry, *move(draw)) for draw in self._draws)
        return tuple(results for results in attempts if results is not None)

    def steps_rounded(self) -> tuple[Computed, ...]:
        attempts = []
        for draw in self._draws:
            with RoundedSteps(self.dtype, draw):
                attempts.append(_attempt(self.entry, self.wide, self.raised))
        return tuple(results for results in attempts if results is not None)

    def saturated(self) -> Computed | None:
        narrow = self.dtype if self.dtype.is_floating_point else torch.float32
        with Saturated(float(torch.finfo(narrow).max)):
            return _attempt(self.entry, self.wide, self.raised)

    @property
    def _draws(self) -> range:
        return range(self.seed, self.seed + DRAWS)


def expect_sample(
    entry: Entry, sample: Sample, dtype: torch.dtype, seed: int, *, backward: bool
) -> Expected | None:
    """Return the expected results, or None if the reference, float64 on the CPU,
    refuses the sample.
    """
    whole = not (dtype.is_floating_point or dtype.is_complex)
    if whole and any(isinstance(x, float) for x in (*sample.args, *sample.kwargs.values())):
        return None
    wide = convert_sample(sample, lambda x: x.double() if whole and x.dtype == dtype else widen(x))
    try:
        cotangents = None
        if backward:
            outputs = execute_entry(entry, sample, None, "cpu").outputs
            cotangents = cotangents_for(outputs, dtype, seed)
        raised = None if cotangents is None else [widen(c) for c in cotangents]
        exact = execute_entry(entry, wide, raised, "cpu")
    except REFUSALS:
        return None
    return Expected(
        entry=entry,
        sample=sample,
        wide=wide,
        exact=exact,
        cotangents=cotangents,
        raised=raised,
        dtype=dtype,
        seed=seed,
    )


class _Widths(TorchDispatchMode):  # type: ignore[misc]
    """A mode that records whether a result is wider than the inputs."""

    wide: bool = False

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        dispatch = operator(*args, **(kwargs or {}))
        doubles = (torch.float64, torch.complex128)
        self.wide = self.wide or any(x.dtype in doubles for x in tensors_in(dispatch))
        return dispatch


def makes_float64(entry: Entry, sample: Sample, cotangents: list[torch.Tensor] | None) -> bool:
    """Return whether the CPU computes the unchanged sample in float64."""
    with _Widths() as widths:
        _attempt(entry, sample, cotangents)
    float64: bool = widths.wide
    return float64


def _attempt(
    entry: Entry, sample: Sample, cotangents: list[torch.Tensor] | None
) -> Computed | None:
    try:
        return execute_entry(entry, sample, cotangents, "cpu")
    except REFUSALS:
        return None
