"""NeMo 2's console lines. Pure.

    Training epoch 0, iteration 45/99 | ... | train_step_timing in s: 6.08 | TFLOPS_per_GPU: ...

Figures have four digits; memory is in bytes; a line's time is that of its own step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from warpfront.bench.logs.facts import Fact, Format, LoggedStep, Setting
from warpfront.bench.logs.fields import (
    is_no_number,
    number,
    positive,
    rank_of,
    size_bytes,
    whole,
)
from warpfront.bench.records import MemoryKind, Step

_TIMING = "train_step_timing in s"
_ITERATION = re.compile(r"\biteration (\d{1,15})/\d+ \|")
_MEMORY = (
    ("max_memory_reserved", MemoryKind.RESERVED),
    ("max_memory_allocated", MemoryKind.ALLOCATED),
    ("peak_memory_usage", MemoryKind.ALLOCATED),
)


class NemoReader:
    """Lines of the progress printer. Some versions count from 0: `global_step` is as printed."""

    def __init__(self, _path: str) -> None:
        pass

    def read(self, text: str) -> Iterable[Fact]:
        found = _ITERATION.search(text) if _TIMING in text else None
        if found is None:
            return
        pieces = (piece.rpartition(":") for piece in text[found.end() :].split("|"))
        fields = {name.strip(): value.strip() for name, _, value in pieces if name}
        seconds = positive(fields.get(_TIMING, ""))
        if seconds is None:
            return
        yield Setting("framework", "nemo")
        if batch := whole(fields.get("global_batch_size", "")):
            yield Setting("global_batch", batch)
        for name, kind in _MEMORY:
            if name in fields:
                yield Setting("memory_kind", kind)
        step = whole(fields.get("global_step", ""))
        yield LoggedStep(
            _step(int(found[1]) if step is None else step, seconds, fields), rank_of(text)
        )


def _step(step: int, seconds: float, fields: Mapping[str, str]) -> Step:
    loss = fields.get("reduced_train_loss", "")
    teraflop = positive(fields.get("TFLOPS_per_GPU", ""))
    memory = next((fields[name] for name, _ in _MEMORY if name in fields), "")
    return Step(
        step=step,
        seconds=seconds,
        tokens_per_second_per_device=positive(fields.get("tokens_per_sec_per_gpu", "")),
        flop_per_second_per_device=teraflop * 1e12 if teraflop else None,
        loss=number(loss),
        grad_norm=number(fields.get("grad_norm", "")),
        samples=whole(fields.get("consumed_samples", "")),
        nan=int(is_no_number(loss)) or None,
        memory_bytes=size_bytes(memory),
    )


def marks(line: str) -> bool:
    return _TIMING in line and _ITERATION.search(line) is not None


NEMO = Format(name="nemo", marks=marks, reader=NemoReader)
