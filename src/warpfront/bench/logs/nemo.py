"""NeMo's console lines: those of its printer of progress, and those of its bar. Pure.

    Training epoch 0, iteration 45/99 | ... | train_step_timing in s: 6.08 | TFLOPS_per_GPU: ...
    Epoch 0: :  46%|####| 46/99 [06:19<07:13, ..., global_step=45.00, train_step_timing in s=6.080]

Figures have four digits; memory is in bytes; a line's time is that of its own step. A bar's count
is one ahead of the step, and a line later than the figures; a large step is printed as `1.23e+5`.
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
_BAR = re.compile(
    r"\bEpoch (?P<epoch>\d{1,9}):[^\[]{0,400}?\b(?P<done>\d{1,15})"
    r"(?:/(?P<total>\d{1,15})|it) \[(?P<fields>[^\]]{1,2000})\]"
)
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
        found = _found(text) if _TIMING in text else None
        if found is None:
            return
        counted, fields = found
        seconds = positive(fields.get(_TIMING, ""))
        if seconds is None:
            return
        yield Setting("framework", "nemo")
        if batch := whole(fields.get("global_batch_size", "")):
            yield Setting("global_batch", batch)
        for name, kind in _MEMORY:
            if name in fields:
                yield Setting("memory_kind", kind)
        step = _exact(fields.get("global_step", ""))
        yield LoggedStep(_step(counted if step is None else step, seconds, fields), rank_of(text))


def _found(text: str) -> tuple[int, dict[str, str]] | None:
    """The step by the line's own count, and its fields."""
    if line := _ITERATION.search(text):
        return int(line[1]), _fields(text[line.end() :].split("|"), ":")
    if bar := _BAR.search(text):
        before = int(bar["epoch"]) * int(bar["total"] or 0)
        return max(before + int(bar["done"]) - 1, 0), _fields(bar["fields"].split(", "), "=")
    return None


def _fields(pieces: Iterable[str], sign: str) -> dict[str, str]:
    halves = (piece.rpartition(sign) for piece in pieces)
    return {name.strip(): value.strip() for name, _, value in halves if name}


def _exact(text: str) -> int | None:
    """A whole number that lost no digit."""
    return None if "e" in text else whole(text)


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
        samples=_exact(fields.get("consumed_samples", "")),
        nan=int(is_no_number(loss)) or None,
        memory_bytes=size_bytes(memory),
    )


def marks(line: str) -> bool:
    return _TIMING in line and _found(line) is not None


NEMO = Format(name="nemo", marks=marks, reader=NemoReader)
