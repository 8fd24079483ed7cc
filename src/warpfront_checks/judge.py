"""Compares what a device computed with what it should have: the form of a result, each of its
elements against a bound, and its root mean square against what the CPU manages in the same dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from warpfront_checks.executing import Computed
from warpfront_checks.operations import Budgeted
from warpfront_checks.tolerance_profiles import Tally


def form_fault(tensor: Tensor | None, shape: torch.Size | None, dtype: torch.dtype | None) -> str:
    """Return the fault in a result's form (shape or dtype), or "". None: any will do."""
    if tensor is None:
        return "missing"
    if shape is not None and tensor.shape != shape:
        return f"shape {tuple(tensor.shape)}, expected {tuple(shape)}"
    if dtype is not None and tensor.dtype != dtype:
        return f"{tensor.dtype}, expected {dtype}"
    return ""


def place_fault(places: Sequence[str], device: str) -> str:
    """Return a fault if not all results were on the device, else ""; no result counts
    as no device.
    """
    wrong = [place for place in places if place != device] if places else ["no device"]
    return f"on {wrong[0]}, expected on {device}" if wrong else ""


@dataclass(frozen=True, kw_only=True)
class CaseVerdict:
    """Faults in words, the largest share of a bound that an element used, and the largest of
    the allowed RMS error's base, with each profile's opinion of the tensors.
    """

    faults: tuple[str, ...] = ()
    budget_used: float = 0.0
    rms_ratio: float = 0.0
    tallies: Mapping[str, Tally] = field(default_factory=dict)


# What a result should be: shape and dtype, where any will do None; or no result at all.
Form = tuple["torch.Size | None", "torch.dtype | None"]


def structure_faults(
    computed: Computed, forms: Sequence[Form | None], device: str
) -> Iterator[str]:
    """Return the faults of a run that show before any number of it is compared."""
    if len(computed.all) != len(forms):
        yield f"{len(computed.all)} results, expected {len(forms)}"
        return
    for name, x, form in zip(computed.names, computed.all, forms, strict=True):
        if form is None and x is not None:
            yield f"{name}: not expected"
        elif form is not None and (fault := form_fault(x, *form)):
            yield f"{name}: {fault}"
    if computed.all and (fault := place_fault(computed.places, device)):
        yield fault


def element_fault(name: str, tensor: Tensor, budgeted: Budgeted) -> tuple[float, str]:
    """Return the largest share of its bound that any element used, and the fault in words if
    that is over 1.
    """
    error = (tensor - budgeted.reference).abs()
    tiny = torch.finfo(torch.float64).smallest_normal
    shares = torch.where(
        error == 0, torch.zeros_like(error), error / budgeted.bound.clamp(min=tiny)
    )
    position = int(shares.argmax())
    share = float(shares.flatten()[position])
    if share <= 1:
        return share, ""
    index = [int(i) for i in torch.unravel_index(torch.tensor(position), tensor.shape)]
    values = (
        t.expand_as(tensor).flatten()[position]
        for t in (tensor, budgeted.reference, error, budgeted.bound)
    )
    device, reference, worst, bound = (float(value) for value in values)
    return min(share, 1e300), (
        f"{name}: worst element {index}: device {device:.8g}, reference {reference:.8g},"
        f" error {worst:.3g} over the bound {bound:.3g};"
        f" {int((shares > 1).sum())} of {tensor.numel()} elements are over theirs"
    )
