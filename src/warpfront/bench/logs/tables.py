"""Tables in CSV: exports of steps, results of madengine, and profilers' summaries of kernels. Pure.

A row is read as a line is: the meanings of the columns are in `data/logs/`.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial

from warpfront.bench.logs.declared import PLAIN, DeclaredReader, LineRule, read_declaration
from warpfront.bench.logs.facts import (
    KERNEL,
    SERVING,
    Fact,
    Format,
    LoggedStep,
    NextRun,
    Setting,
    Unused,
)
from warpfront.bench.logs.fields import positive, scaled
from warpfront.bench.records import Remark

RESULT_COLUMNS = ("model", "performance", "metric")
_KERNEL_HEADS = ('"Name","Calls","TotalDurationNs"', "Time (%),Total Time (ns),Instances")
_STEPS = ("step", "_step", "train/global_step", "trainer/global_step", "global_step")
_CLOCKS = ("wall time", "_timestamp", "_runtime")
_SPREAD = re.compile(r"__(?:MIN|MAX)$")
_TAG = re.compile(r"(?:^|[/-])(?:run-.{1,200}?-)?tag-(.{1,200})\.csv$")
_LONGEST = 200
_PASSED = {"SUCCESS", "PASSED", ""}

Row = dict[str, str]


def _steps(path: str, text: str) -> Iterator[Fact]:
    """Read exports of TensorBoard and Weights & Biases: a row a step, one run or several.

    TensorBoard's file has one tag, which its name tells, and the wall clock. Weights & Biases' has
    a column a run and metric (`run - train/loss`, with `__MIN` and `__MAX`), or the columns of a
    run's history (`_step`, `_timestamp`, `train/loss`). Clocks give the time between two rows.
    """
    rows = list(_rows(text))
    names = [name for name in (rows[0] if rows else ()) if name]
    place = next((name for name in names if name.lower() in _STEPS), None)
    if place is None:
        return
    in_name = _TAG.search(path)
    tag = in_name[1].replace("_", "/", 1) if in_name else path.rpartition("/")[2][:-4]
    runs: dict[str, Row] = {}
    for name in names:
        run, dash, metric = name.rpartition(" - ")
        if name.lower() not in _STEPS and not _SPREAD.search(name):
            runs.setdefault(run if dash else "", {})[name] = tag if metric == "Value" else metric
    shared = runs.pop("", {}) if len(runs) > 1 else {}
    for run, columns in runs.items():
        fields = {**shared, **columns}
        yield NextRun()
        yield Setting("framework", "tensorboard" if "Value" in fields else "wandb")
        if run:
            yield Setting("model", run)
        reader = DeclaredReader(read_declaration("tables"))
        clock = next((name for name in fields if name.lower() in _CLOCKS), None)
        if clock is not None:
            fields[clock] = "elapsed"
        fields[place] = "step"
        for line, row in enumerate(rows, 2):
            if scaled(row.get(place, "")) is not None:
                named = {field: row[name] for name, field in fields.items() if row.get(name)}
                yield from _at(line, reader.line(LineRule(block=True), named, ""))


def _results(text: str) -> Iterator[Fact]:
    """Read madengine's results: rows that differ in their figures alone are one run."""
    reader = DeclaredReader(read_declaration("madengine"))
    before: Row = {}
    figures: set[str] = set()
    for line, row in enumerate(_rows(text), 2):
        value, metric = row.pop("performance", ""), row.pop("metric", "").strip()
        name = f"{metric} {row.pop('unit', '').strip()}".strip().lower()
        facts: list[Fact] = []
        if positive(value) is not None:
            facts += reader.settings({name: value})
            facts += reader.line(PLAIN, {"step": "1", name: value}, "")
        if row.get("status", "").strip().upper() not in _PASSED:
            yield Remark(level="note", message=f"status {row['status'][:40]}", line=line)
        elif not facts:
            message = f"no figure that is known: {value[:40]!r} {name[:40]!r}"
            yield Remark(level="note", message=message, line=line)
        else:
            if row != before or name in figures:
                yield NextRun()
                yield Setting("model", row.get("model", "").strip() or "unknown")
                yield from reader.settings({**row, "model": ""})
                figures.clear()
            before = row
            figures.add(name)
            yield from _at(line, facts)


def _kernels(text: str) -> Iterator[Fact]:
    """Read a profiler's summary of kernels: rocprof's `*_stats.csv`, or `nsys stats --format csv`.
    The columns are those of ROCm's and NVIDIA's own tools: rocprof, rocprofv3 and Nsight Systems
    2022 to 2025.
    """
    begin = next((offset for offset in map(text.find, _KERNEL_HEADS) if offset >= 0), 0)
    spent: dict[str, float] = defaultdict(float)
    counts: dict[str, float] = defaultdict(float)
    for row in _rows(text[begin:], commas_in="Name"):
        name, calls = row.get("Name", "").strip(), row.get("Calls") or row.get("Instances", "")
        count = positive(calls)
        time = positive(row.get("TotalDurationNs") or row.get("Total Time (ns)", ""))
        if name and count and time:
            if len(name) > _LONGEST:  # of names with one beginning, different ones
                digest = hashlib.sha256(name.encode()).hexdigest()[:8]
                name = f"{name[:_LONGEST]}... {digest}"
            spent[name] += time * 1e-9
            counts[name] += count
        else:
            yield Unused("rows of kernels without a time")
    for name, seconds in spent.items():
        yield Setting(f"{SERVING}{KERNEL}{name}", seconds / counts[name])
    if spent:
        yield Setting("run_seconds", sum(spent.values()))


def _at(line: int, facts: Iterable[Fact]) -> Iterator[Fact]:
    """Yield facts, with the row as the line of a step."""
    for fact in facts:
        if isinstance(fact, LoggedStep):
            yield LoggedStep(dataclasses.replace(fact.step, line=line))
        else:
            yield fact


def _rows(text: str, *, commas_in: str = "") -> Iterator[Row]:
    """Yield the rows of a table by its first line, to the end of what is CSV.

    Where a row has too many cells, the column `commas_in` was written without quotes.
    """
    lines = csv.reader(text.replace("\0", "").splitlines())
    try:
        head = next(lines, [])
        place = head.index(commas_in) if commas_in in head else len(head)
        for cells in lines:
            end = place + 1 + max(len(cells) - len(head), 0)
            joined = [*cells[:place], ",".join(cells[place:end]), *cells[end:]]
            yield dict(zip(head, joined, strict=False))
    except csv.Error:
        return


def _has_columns(text: str) -> set[str]:
    head = text.split("\n", 1)[0].split(",")
    return {name.strip().strip('"').lower() for name in head} if len(head) > 1 else set()


TABLES = Format(
    name="tables",
    marks=lambda text: not _has_columns(text).isdisjoint(_STEPS),
    reader=lambda path: partial(_steps, path),
    is_document=True,
)
MADENGINE = Format(
    name="madengine",
    marks=lambda text: _has_columns(text) >= set(RESULT_COLUMNS),
    reader=lambda _: _results,
    is_document=True,
)
KERNELS = Format(
    name="kernels",
    marks=lambda text: any(head in text[:4096] for head in _KERNEL_HEADS),
    reader=lambda _: _kernels,
    is_document=True,
)
