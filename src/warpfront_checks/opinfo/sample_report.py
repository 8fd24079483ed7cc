"""A failed sample described in the lines that a vendor's issue needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from warpfront_checks.cases.report import environment_lines
from warpfront_checks.executing import tensors_in
from warpfront_checks.opinfo.adapter import Entry, Sample
from warpfront_checks.opinfo.entry_verdicts import sent

SHOWN_TENSORS, SHOWN_RESULTS = 6, 4


def describe_sample(
    entry: Entry,
    sample: Sample,
    *,
    device: str,
    faults: Sequence[str],
    backward: bool,
) -> Iterator[str]:
    """Yield versions, the call, its tensors as they lay on the device, and the worst elements."""
    yield f"{entry.name}: wrong on {device}{', backward' if backward else ''}"
    yield from environment_lines(device)
    moved = sent(sample, device, backward=backward)
    yield f"call: {_called(entry, moved)}"
    tensors = list(tensors_in([moved.input, moved.args, dict(moved.kwargs)]))
    for number, x in enumerate(tensors[:SHOWN_TENSORS]):
        yield f"  t{number}: {_form(x)}"
    if len(tensors) > SHOWN_TENSORS:
        yield f"  and {len(tensors) - SHOWN_TENSORS} more tensors"
    for fault in faults[:SHOWN_RESULTS]:
        yield f"wrong: {fault}"


def _form(x: Tensor) -> str:
    memory = (
        "sparse"
        if x.layout.__str__() != "torch.strided"
        else (f"strides {tuple(x.stride())}, offset {x.storage_offset()}")
    )
    gradient = ", requires grad" if x.requires_grad else ""
    return f"shape {tuple(x.shape)}, {str(x.dtype).removeprefix('torch.')}, {memory}{gradient}"


def _called(entry: Entry, sample: Sample) -> str:
    """Return the call in words of Python, tensors as t0, t1 ..."""
    count = iter(range(10**6))

    def written(x: Any) -> str:
        if isinstance(x, Tensor):
            return f"t{next(count)}"
        if isinstance(x, (list, tuple)):
            return f"[{', '.join(map(written, x))}]"
        return repr(x)[:80]

    values = [written(sample.input), *map(written, sample.args)]
    values += [f"{key}={written(value)}" for key, value in sample.kwargs.items()]
    return f"{entry.name}({', '.join(values)})"
