"""Tolerances of other projects, for comparison with our own bounds: the verdict of each
on a result.

`strict`, the default, is our own bounds. The others are one pair of numbers for a
dtype, whatever the operation and its size (`profiles.json`, with sources).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from warpfront_checks.check_options import STRICT, profile_names, tolerances

ANSWERS = {True: "accepted", False: "refused", None: "silent"}


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


def counted(tensors: Iterable[Mapping[str, bool | None]]) -> dict[str, dict[str, int]]:
    """Return the number of tensors that each profile accepted, refused, and cannot judge."""
    counts = {name: dict.fromkeys(ANSWERS.values(), 0) for name in profile_names()}
    for accepted_by in tensors:
        for name, accepted in accepted_by.items():
            counts[name][ANSWERS[accepted]] += 1
    return counts
