"""Tolerances in use elsewhere, beside our own bounds: what would each have said of this result?

`strict`, the default, is the bounds of `operations.py`. The others are one pair of numbers for a
dtype, whatever the operation and its size (`profiles.json`, with sources).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from warpfront_checks.check_options import STRICT, profile_names, tolerances


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How many tensors a profile accepted, refused, and had nothing to say about."""

    accepted: int = 0
    refused: int = 0
    silent: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            accepted=self.accepted + other.accepted,
            refused=self.refused + other.refused,
            silent=self.silent + other.silent,
        )

    def document(self) -> dict[str, int]:
        return {"accepted": self.accepted, "refused": self.refused, "silent": self.silent}


Tallies = Mapping[str, Tally]


def opinions(
    found: Tensor, reference: Tensor, dtype: torch.dtype, *, strict: bool
) -> dict[str, bool | None]:
    """What each profile says of one tensor (float64 values): right, wrong, or nothing.

    `strict` is the verdict of our own bounds, taken as given.
    """
    said: dict[str, bool | None] = {STRICT: strict}
    name = str(dtype).removeprefix("torch.")
    if found.shape != reference.shape or torch.equal(found, reference):
        right = found.shape == reference.shape
        return said | {p: right if name in table else None for p, table in tolerances().items()}
    # The distances once for all of them; what is infinite or NaN is close to its like alone.
    alike = (found == reference) | (found.isnan() & reference.isnan())
    apart = (found - reference).abs().masked_fill(alike, 0.0)
    size = reference.abs().masked_fill(~reference.isfinite(), 0.0)
    for profile, table in tolerances().items():
        if name not in table:
            said[profile] = None
        else:
            relative, absolute = table[name]
            said[profile] = bool((apart <= absolute + relative * size).all())
    return said


def tally(said: Mapping[str, bool | None]) -> dict[str, Tally]:
    return {
        name: Tally(
            accepted=int(right is True), refused=int(right is False), silent=int(right is None)
        )
        for name, right in said.items()
    }


def total(tallies: Iterable[Tallies]) -> dict[str, Tally]:
    """The sum of tallies, profile by profile."""
    sums = {name: Tally() for name in profile_names()}
    for one in tallies:
        for name, count in one.items():
            sums[name] = sums[name] + count
    return sums


def document(tallies: Tallies) -> dict[str, dict[str, int]]:
    return {name: count.document() for name, count in tallies.items()}
