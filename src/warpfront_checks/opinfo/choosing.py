"""Selection of entries and of torch's own samples: some spread over the first, for the first few
are often the smallest. Samples with an option or a form that none before them has are added.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from warpfront_checks.documents import packaged

# An option's text is cut here: later differences are in numbers, not in kind.
_SAID_CHARACTERS = 60


def spread(samples: Sequence[Any], limit: int) -> list[Any]:
    """Return at most `limit` samples, as far apart as possible."""
    return list(samples[:: max(1, -(-len(samples) // limit))])


def with_options(samples: Sequence[Any], chosen: Sequence[Any]) -> Iterator[Any]:
    """Yield, in order, the samples with a form that neither the chosen ones nor earlier ones
    have. A form is a number of axes, a dtype, an empty input, an option, or a value of it.
    """
    covered = {form for sample in chosen for form in _forms(sample)}
    for sample in samples:
        if forms := _forms(sample) - covered:
            covered |= forms
            yield sample


def _forms(sample: Any) -> set[Hashable]:
    arguments: dict[Hashable, Any] = {"input": sample.input, **dict(enumerate(sample.args))}
    options = dict(sample.kwargs)
    forms: set[Hashable] = {(name, _form(x)) for name, x in {**arguments, **options}.items()}
    return forms | {tuple(sorted(options)), len(sample.args)}


def _form(x: Any) -> str:
    """Return the form of an argument, without the numbers of tensors."""
    if isinstance(x, torch.Tensor):
        size = "empty" if not x.numel() else "one" if x.numel() == 1 else "some"
        return f"{x.dtype}, {x.dim()} axes, {size}"
    if isinstance(x, (list, tuple)) and any(isinstance(element, torch.Tensor) for element in x):
        return f"{min(len(x), 3)} tensors"
    return repr(x)[:_SAID_CHARACTERS]


@dataclass(frozen=True, kw_only=True)
class Exclusion:
    """An entry that is not judged, with the reason. `what` names the part: all, backward, the
    samples that exist for their options alone, or the backward of those. `dtypes` are its dtypes
    (none: all). It may apply only to devices other than the CPU.
    """

    name: str
    reason: str
    what: str
    dtypes: Sequence[str] = ()
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
    table = packaged("opinfo/exclusions.json")
    reasons = table["reasons"]
    return tuple(
        Exclusion(**{**row, "reason": reasons[row["reason"]]}) for row in table["exclusions"]
    )


def excluded(name: str, dtype: str, device: str, *, backward: bool, options: bool = False) -> str:
    """Return the reason for an exclusion in this dtype and direction on a device, or an empty
    string. It applies to an entry, or to its samples with options.
    """
    part = {"backward": backward, "options": options}
    covering = (each for each in exclusions() if each.covers(name, dtype, device, **part))
    return next((each.reason for each in covering), "")
