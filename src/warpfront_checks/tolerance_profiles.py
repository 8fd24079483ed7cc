"""Tolerances of other projects, for comparison with our own bounds: the verdict of each
on a result.

`strict`, the default, is our own bounds. The others are one pair of numbers for a
dtype, whatever the operation and its size (`profiles.json`, with sources).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from warpfront_checks.check_options import STRICT, profile_names, tolerances

# The number of tensors that a profile accepted, refused, and had no tolerance for.
Tally = Counter[str]
ANSWERS = {True: "accepted", False: "refused", None: "silent"}
Tallies = Mapping[str, Tally]


def opinions(
    tensor: Tensor, reference: Tensor, dtype: torch.dtype, *, strict: bool
) -> dict[str, bool | None]:
    """Return each profile's verdict on one tensor (float64 values): True, False, or None.

    `strict` is the verdict of our own bounds.
    """
    accepted_by: dict[str, bool | None] = {STRICT: strict}
    name = str(dtype).removeprefix("torch.")
    if tensor.shape != reference.shape or torch.equal(tensor, reference):
        accepted = tensor.shape == reference.shape
        tables = tolerances().items()
        return accepted_by | {p: accepted if name in table else None for p, table in tables}
    # The distances once for all of them; what is infinite or NaN is close to its like alone.
    alike = (tensor == reference) | (tensor.isnan() & reference.isnan())
    apart = (tensor - reference).abs().masked_fill(alike, 0.0)
    size = reference.abs().masked_fill(~reference.isfinite(), 0.0)
    for profile, table in tolerances().items():
        if name not in table:
            accepted_by[profile] = None
        else:
            relative, absolute = table[name]
            accepted_by[profile] = bool((apart <= absolute + relative * size).all())
    return accepted_by


def tally(accepted_by: Mapping[str, bool | None]) -> dict[str, Tally]:
    return {name: Counter([ANSWERS[accepted]]) for name, accepted in accepted_by.items()}


def total(tallies: Iterable[Tallies]) -> dict[str, Tally]:
    """Return the sum of tallies, profile by profile."""
    sums = {name: Tally() for name in profile_names()}
    for profile_tallies in tallies:
        for name, count in profile_tallies.items():
            sums[name] += count
    return sums


def document(tallies: Tallies) -> dict[str, dict[str, int]]:
    return {
        name: {answer: count[answer] for answer in ANSWERS.values()}
        for name, count in tallies.items()
    }
