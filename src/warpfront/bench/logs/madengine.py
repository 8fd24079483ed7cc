"""madengine's perf.csv: a row a result, its figure and the figure's unit in two columns. Pure.

A row is a run with one figure, so only several rows of one model say how much it varies.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping

from warpfront.bench.logs.facts import Fact, Format, LoggedStep, NextRun, Setting
from warpfront.bench.logs.fields import positive, precision_of, vendor_of, whole
from warpfront.bench.records import Remark, Step

COLUMNS = ("model", "performance", "metric")
_RATES = {
    "tokens_per_second_per_gpu": "tokens_per_second_per_device",
    "tokens/s/gpu": "tokens_per_second_per_device",
    "tps": "tokens_per_second_per_device",
    "samples_per_second": "samples_per_second",
    "samples/s": "samples_per_second",
    "samples_per_sec": "samples_per_second",
}
_TIMES = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "step_time_seconds": 1.0, "step_time_ms": 1e-3}
_TOKENS = {"tokens_per_second", "tokens/s", "tokens_per_sec"}


class MadengineReader:
    """Every row with a figure whose unit is known; the others are findings."""

    def __init__(self, _path: str) -> None:
        pass

    def read(self, text: str) -> Iterable[Fact]:
        rows = csv.DictReader(text.replace("\0", "").splitlines())
        number = 1
        while True:
            number += 1
            try:
                row = next(rows, None)
            except csv.Error as error:
                yield Remark(level="warning", message=f"no CSV: {error}", line=number)
                continue
            if row is None:
                return
            kept = {str(k): v for k, v in row.items() if isinstance(v, str)}
            yield from _row(kept, number)


def _row(row: Mapping[str, str], line: int) -> Iterator[Fact]:
    step = _figure(row, line)
    if row.get("status", "SUCCESS").strip().upper() not in {"SUCCESS", "PASSED", ""}:
        yield Remark(level="note", message=f"status {row['status'][:40]}", line=line)
    elif step is None:
        said = f"{row.get('performance', '')[:40]!r} {row.get('metric', '')[:40]!r}"
        yield Remark(level="note", message=f"no figure that is known: {said}", line=line)
    else:
        yield NextRun()
        yield Setting("model", row.get("model", "").strip()[:200] or "unknown")
        if devices := whole(row.get("n_gpus", "")):
            yield Setting("devices", devices)
        if nodes := whole(row.get("nnodes", "")):
            yield Setting("nodes", nodes)
        if precision := precision_of(row.get("training_precision", "")):
            yield Setting("precision", precision)
        if architecture := row.get("gpu_architecture", "").strip()[:60]:
            yield Setting("device_name", architecture)
            vendor = "amd" if architecture.startswith("gfx") else vendor_of(architecture)
            if vendor:
                yield Setting("vendor", vendor)
        yield LoggedStep(step)


def _figure(row: Mapping[str, str], line: int) -> Step | None:
    value = positive(row.get("performance", ""))
    metric = row.get("metric", "").strip().lower()
    devices = whole(row.get("n_gpus", ""))
    if value is None:
        return None
    if metric in _TIMES:
        return Step(step=1, seconds=value * _TIMES[metric], line=line)
    if metric in _TOKENS and devices:
        return Step(step=1, tokens_per_second_per_device=value / devices, line=line)
    match _RATES.get(metric):
        case "tokens_per_second_per_device":
            return Step(step=1, tokens_per_second_per_device=value, line=line)
        case "samples_per_second":
            return Step(step=1, samples_per_second=value, line=line)
        case _:
            return None


def marks(text: str) -> bool:
    header = text.split("\n", 1)[0].strip().lower().split(",")
    return set(COLUMNS) <= {name.strip().strip('"') for name in header}


MADENGINE = Format(name="madengine", marks=marks, reader=MadengineReader, is_document=True)
