"""Measurements of others and of ours, from files: read, compared, and written for who reads them.

A log is looked at twice: to know its format, and to read it.
"""

from __future__ import annotations

import csv
import glob
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from warpfront.bench.compare import ComparisonTerms, compare_benches, compare_runs
from warpfront.bench.logs import FORMATS
from warpfront.bench.logs.assembling import Reading, choose
from warpfront.bench.logs.tables import KERNELS
from warpfront.bench.logs.tensorprimat import layout_name, layout_text
from warpfront.bench.nights import Night, night_of, read_nights
from warpfront.bench.record_files import NoRecordError, read_records
from warpfront.bench.records import Bench, Comparison, RecordSource, Run
from warpfront.errors import InputError, NotComparableError, StoreError
from warpfront.report.history import value_line
from warpfront.system.lines import (
    Line,
    identity_of,
    length_of,
    read_lines,
    read_start,
    standard_input,
)
from warpfront.system.progress import Watch
from warpfront.system.store import append_text, read_text, write_text
from warpfront.system.texts import counted

AUTO = "auto"
STDIN = "-"
DOCUMENT_LIMIT_BYTES = 64 * 2**20
_START_BYTES = 4096
_LINES_BETWEEN_REPORTS = 10_000
# An object, or a list of them; `[2026-11-01` and `[rank0]` begin a log's line.
_JSON = re.compile(r"\{|\[\s*[{\]]")
_EVENTS = "tfevents"
_KNOWN_FORMATS = f"known: {', '.join(FORMATS)}"
LogFacts = Mapping[str, object]


def read_all(
    where: str, watch: Watch, *, form: str = AUTO, given: LogFacts | None = None
) -> list[Run]:
    """Return every run of the files that `where` names. Raise `InputError` without any."""
    return _usable(where, read_any(where, watch, form=form, given=given))


def _usable(where: str, measured: Iterable[Run | Bench]) -> list[Run]:
    runs = [run for run in measured if isinstance(run, Run)]
    if not runs:
        hint = "read-log reads logs of trainings, and its own records"
        raise InputError(f"{where}: no run", hint=hint)
    for run in runs:
        for finding in run.findings:
            if finding.level == "error":
                message = f"{run.source.path}: {finding.message}"
                raise InputError(message, hint="split it by run or rank")
    return runs


def read_any(
    where: str, watch: Watch, *, form: str = AUTO, given: LogFacts | None = None
) -> list[Run | Bench]:
    """Return the runs and benches of a file, of several with commas between them, of a folder,
    of a glob, or of `-`. Of several files, those that are no logs are named and skipped.
    """
    if form not in {AUTO, *FORMATS}:
        raise InputError(f"--format {form}: unknown", hint=f"one of {', '.join((AUTO, *FORMATS))}")
    if where == STDIN:
        with standard_input() as path:
            return list(_read(path, STDIN, form, given or {}, watch))
    paths = files_of(where)
    measured: list[Run | Bench] = []
    for path in paths:
        try:
            measured += _read(path, str(path), form, given or {}, watch)
        except InputError as error:
            if len(paths) == 1:
                raise
            watch.say(f"left out: {error.message}")
    return measured


def files_of(where: str) -> list[Path]:
    """Return the files of a folder, of a glob, or of names with commas between them."""
    files: list[Path] = []
    for name in where.split(","):
        path = Path(name)
        if path.is_dir():
            files += sorted(entry for entry in path.iterdir() if entry.is_file())
        elif path.exists() or not glob.has_magic(name):
            files.append(path)
        else:
            files += sorted(entry for entry in map(Path, glob.glob(name)) if entry.is_file())  # noqa: PTH207
    if not files:
        raise InputError(f"{where}: names no file")
    return files


def _read(
    path: Path, name: str, form: str, log_facts: LogFacts, watch: Watch
) -> Iterable[Run | Bench]:
    sha256, size_bytes = identity_of(path)
    document = _document(path) if size_bytes <= DOCUMENT_LIMIT_BYTES else None
    if document is not None and form == AUTO:
        try:
            records = read_records(document)
        except NoRecordError as error:
            raise InputError(f"{name}: no record of this version: {error}") from None
        if records:
            return records
    chosen, evidence = FORMATS.get(form), "--format"
    if chosen is None:
        choice = choose(document, ((line.number, line.text) for line in read_lines(path)))
        if not isinstance(choice, tuple):
            near = "\n".join(f"    {line}" for line in choice)
            hint = f"lines that look nearly right:\n{near}" if near else _KNOWN_FORMATS
            raise InputError(f"{name}: no line of any known format", hint=hint)
        chosen, evidence = choice
    source = RecordSource(
        path=name, sha256=sha256, size_bytes=size_bytes, format=chosen.name, evidence=evidence
    )
    reading = Reading(chosen, source.path)
    if chosen.is_document:
        reading.feed(1, document or "")
    else:
        for line in _watched(path, name, watch):
            reading.feed(line.number, line.text, whole=line.whole)
    runs = reading.runs(source, log_facts)
    if not runs:
        raise InputError(f"{name}: no step with a time in what {chosen.name} writes", hint=evidence)
    return runs


def _document(path: Path) -> str | None:
    """Return the text of a file that begins as JSON or a table does, unless it is too large
    to be one.

    TensorBoard's event files become a table. Raise `InputError` without the extra that reads them.
    """
    if _EVENTS in path.name:
        return _events_as_table(path)
    start = read_start(path, _START_BYTES).decode("utf-8", "replace").lstrip()
    head = start.split("\n", 1)[0]
    is_table = "," in head and any(name in head for name in ("performance", "Step", "step"))
    if not _JSON.match(start) and not is_table and not KERNELS.marks(start):
        return None
    content = read_start(path, DOCUMENT_LIMIT_BYTES)
    return None if len(content) > DOCUMENT_LIMIT_BYTES else content.decode("utf-8", "replace")


def _events_as_table(path: Path) -> str:
    """Return the scalars of an event file as CSV: a row a step, a column a tag."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import (  # noqa: PLC0415
            EventAccumulator,
        )
    except ModuleNotFoundError:
        hint = "pip install 'warpfront[tensorboard]', or export the scalars as CSV"
        raise InputError(f"{path}: TensorBoard's events need its reader", hint=hint) from None
    events = EventAccumulator(str(path), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    rows: dict[int, dict[str, float]] = {}
    for tag in tags:
        for event in events.Scalars(tag):
            row = rows.setdefault(event.step, {"_timestamp": event.wall_time})
            row[tag] = event.value
    stream = io.StringIO()
    writer = csv.DictWriter(stream, ["_step", "_timestamp", *tags], restval="")
    writer.writeheader()
    writer.writerows({"_step": step, **row} for step, row in sorted(rows.items()))
    return stream.getvalue()


def _watched(path: Path, name: str, watch: Watch) -> Iterator[Line]:
    """Yield the lines of a log, and report progress of a long one."""
    progress, size, is_long = 0, max(length_of(path), 1), False
    try:
        for line in read_lines(path):
            progress += len(line.text) + 1
            if not line.number % _LINES_BETWEEN_REPORTS:
                is_long = True
                watch.advance(f"read {name}", min(progress, size - 1), size)
            yield line
    finally:
        if is_long:
            watch.advance(f"read {name}", size, size)


def read_side(where: str, watch: Watch) -> list[Run] | Bench:
    """Return a side of a comparison: the last bench, or else the runs. Raise `InputError`."""
    measured = read_any(where, watch)
    benches = [run for run in measured if isinstance(run, Bench)]
    return benches[-1] if benches else _usable(where, measured)


def compare_sides(
    a: tuple[str, list[Run] | Bench], b: tuple[str, list[Run] | Bench], terms: ComparisonTerms
) -> Comparison:
    """Compare two sides, each with its name. Raise `InputError`."""
    (a_name, first), (b_name, other) = a, b
    if isinstance(first, Bench) and isinstance(other, Bench):
        return compare_benches((a_name, first), (b_name, other), terms)
    if not isinstance(first, Bench) and not isinstance(other, Bench):
        is_serving = {bool(run.serving) for run in (*first, *other)}
        if len(is_serving) == 1:
            return compare_runs((a_name, first), (b_name, other), terms)
    raise NotComparableError(f"{a_name} and {b_name}: measurements of two kinds")


def read_benches(file: Path, watch: Watch) -> list[Bench]:
    """Return the records of `bench` in a file; none if the file is missing or cannot be read."""
    try:
        text = read_text(file, missing_ok=True)
        return [record for record in read_records(text or "") if isinstance(record, Bench)]
    except (NoRecordError, StoreError) as error:
        watch.say(f"warning: {file}: {error}; left out")
        return []


def add_nights(file: Path, where: str, watch: Watch, *, runner: str = "") -> None:
    """Append the benches that `where` names. Raise `InputError` where there is none."""
    benches = [bench for bench in read_any(where, watch) if isinstance(bench, Bench)]
    if not benches:
        hint = "`warpfront bench run` leaves build/*/bench-*.json"
        raise InputError(f"{where}: no bench", hint=hint)
    lines = "".join(value_line(night_of(bench, runner=runner)) for bench in benches)
    append_text(file, lines)


def read_nights_of(file: Path, watch: Watch) -> tuple[Night, ...]:
    """Return the nights of a file; print the number of unreadable lines. Raise `InputError`."""
    text = read_text(file, missing_ok=True)
    if text is None:
        raise InputError(f"{file}: no nights yet", hint="--add build/*/bench-*.json makes it")
    nights, unread = read_nights(text)
    if unread:
        watch.say(f"warning: {file}: left out {counted(unread, 'line')} of no night")
    return nights


def write_layout(runs: Iterable[Run], folder: Path) -> list[Path]:
    """TensorPrimat's files of these runs; a second one of a model and stack is another file."""
    written: list[Path] = []
    counts: Counter[str] = Counter()
    for run in runs:
        name = layout_name(run)
        counts[name] += 1
        again = f"-{counts[name]}.json" if counts[name] > 1 else ".json"
        written.append(folder / name.replace(".json", again))
        write_text(written[-1], layout_text(run))
    return written


def compare_layout(
    folder: Path, terms: ComparisonTerms, watch: Watch
) -> tuple[list[Comparison], list[str]]:
    """Return CUDA against ROCm by model, and a sentence for each that ran on one only."""
    runs = read_all(str(folder), watch)
    compared, unpaired = list[Comparison](), list[str]()
    for model in sorted({run.model or "" for run in runs}):
        cuda, rocm = (
            [run for run in runs if run.model == model and run.vendor == vendor]
            for vendor in ("nvidia", "amd")
        )
        if cuda and rocm:
            compared.append(compare_runs((f"cuda {model}", cuda), (f"rocm {model}", rocm), terms))
        else:
            unpaired.append(f"{model}: on one of CUDA and ROCm only")
    if not compared:
        raise NotComparableError(f"{folder}: no model that ran on both CUDA and ROCm")
    return compared, unpaired
