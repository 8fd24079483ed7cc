"""The outcome of cases: one type for operations, tables of rows, and sweeps of the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from warpfront_checks.cases.bounds import Verdict
from warpfront_checks.tolerance_profiles import ANSWERS, counted


@dataclass(kw_only=True)
class Tally:
    """The outcome of cases; grows. `refused` ones have no oracle, `lacking` no kernel, `too_large`
    no memory; `excluded` ones are not judged, by reason. `defects` are faults of torch itself, by
    thread. `largest` is the largest share of a bound without a fault, and `ratios` are the root
    mean square errors. `first` is the first fault with the axes of its case; `report` describes it.
    """

    entries: int = 0
    cases: int = 0
    refused: int = 0
    largest: float = 0.0
    faults: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)
    report: list[str] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
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
