"""madengine's perf.csv, read and written: a row a result, its figure and the figure's unit in
two columns. Pure.

A row is a run with one figure, so only several rows of one model say how much it varies.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources

from warpfront.bench.logs.facts import Fact, Format, LoggedStep, NextRun, Setting
from warpfront.bench.logs.fields import positive, precision_of, vendor_of, whole
from warpfront.bench.records import Remark, Run, Step, Summary
from warpfront.system.markdown import flat

COLUMNS = ("model", "performance", "metric")
# The field of each unit in `metric`, and the unit's size.
_FIGURES = {
    "tokens_per_second_per_gpu": ("tokens_per_second_per_device", 1.0),
    "tokens/s/gpu": ("tokens_per_second_per_device", 1.0),
    "tps": ("tokens_per_second_per_device", 1.0),
    "tokens_per_second": ("tokens_per_second", 1.0),
    "tokens/s": ("tokens_per_second", 1.0),
    "tokens_per_sec": ("tokens_per_second", 1.0),
    "samples_per_second": ("samples_per_second", 1.0),
    "samples/s": ("samples_per_second", 1.0),
    "samples_per_sec": ("samples_per_second", 1.0),
    "s": ("seconds", 1.0),
    "seconds": ("seconds", 1.0),
    "step_time_seconds": ("seconds", 1.0),
    "ms": ("seconds", 1e-3),
    "step_time_ms": ("seconds", 1e-3),
}


class MadengineReader:
    """A reader of the rows whose figure has a known unit; the others are findings."""

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
            cells = {str(k): v for k, v in row.items() if isinstance(v, str)}
            yield from _row(cells, number)


def _row(row: Mapping[str, str], line: int) -> Iterator[Fact]:
    step = _figure(row, line)
    if row.get("status", "SUCCESS").strip().upper() not in {"SUCCESS", "PASSED", ""}:
        yield Remark(level="note", message=f"status {row['status'][:40]}", line=line)
    elif step is None:
        shown_value = f"{row.get('performance', '')[:40]!r} {row.get('metric', '')[:40]!r}"
        yield Remark(level="note", message=f"no figure that is known: {shown_value}", line=line)
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
    name, scale = _FIGURES.get(row.get("metric", "").strip().lower(), ("", 1.0))
    of_all = name == "tokens_per_second"
    if value is None or not name or (of_all and not whole(row.get("n_gpus", ""))):
        return None
    return Step(step=1, line=line, **{name: value * scale})  # type: ignore[arg-type]


def marks(text: str) -> bool:
    header = text.split("\n", 1)[0].strip().lower().split(",")
    return set(COLUMNS) <= {name.strip().strip('"') for name in header}


MADENGINE = Format(name="madengine", marks=marks, reader=MadengineReader, is_document=True)


def perf_csv(runs: Iterable[tuple[Run, Summary]]) -> str:
    """Return runs as a table that madengine's own programs read.

    The figure is the median of settled steps: tokens/s of a device where they are known, else
    seconds. Fields that no log has are empty.
    """
    head = resources.files("warpfront").joinpath("data", "logs", "madengine.csv").read_text("ascii")
    stream = io.StringIO()
    stream.write(head)
    columns = head.strip().split(",")
    writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
    writer.writerows(_perf_row(run, summary) for run, summary in runs)
    return stream.getvalue()


def _perf_row(run: Run, summary: Summary) -> dict[str, object]:
    rate, seconds = summary.tokens_per_second_per_device, summary.median_seconds
    figure, metric = (rate, "tokens_per_second_per_gpu") if rate else (None, "")
    if not rate and seconds:
        figure, metric = seconds.value, "step_time_seconds"
    per_node = run.devices // run.nodes if run.devices and run.nodes else None
    row = {
        "model": run.model or run.benchmark or run.source.path.rpartition("/")[2],
        "n_gpus": run.devices,
        "nnodes": run.nodes,
        "gpus_per_node": per_node,
        "training_precision": run.precision,
        "gpu_architecture": run.device_name,
        "performance": figure,
        "metric": metric,
        "status": "SUCCESS" if figure and run.succeeded is not False else "FAILURE",
    }
    return {name: "" if value is None else csv_value(value) for name, value in row.items()}


def csv_value(value: object) -> object:
    """Return a value of a log as a cell that no spreadsheet takes for a formula: text that begins
    like one gets an apostrophe (https://owasp.org/www-community/attacks/CSV_Injection).
    """
    if not isinstance(value, str):
        return value
    text = flat(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
