"""The commands about speed: timings in images, logs of trainings, comparisons."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from warpfront import commands
from warpfront.cli.display import Display, text_width
from warpfront.cli.tasks.declaring import AllowUndetermined, Chosen, Group, Option, Options, command
from warpfront.cli.tasks.showing import print_unfinished, raise_failure, workspace_here
from warpfront.errors import CommandFailedError, InputError, NotComparableError, SlowerError
from warpfront.matrix.selection import nearest
from warpfront.step_results import Failed, require_determined
from warpfront.system.texts import counted
from warpfront_checks.bench.options import BENCH_OPTIONS, BenchEffort, read_bench_effort
from warpfront_checks.bench.timed_cases import SUITES

if TYPE_CHECKING:
    from warpfront.bench.compare import ComparisonTerms
    from warpfront.bench.records import Comparison

_NO_NUMBER = "none"


def _read_timed(suite: tuple[str, ...], **values: object) -> BenchEffort:
    """Return the effort; `--suite` sets the flags of the suites."""
    if unknown := [name for name in suite if name not in SUITES]:
        raise ValueError(f"--suite {unknown[0]}: {nearest(unknown[0], SUITES)}")
    return read_bench_effort(**{**values, **dict.fromkeys(suite, True)})


_UNLISTED = {*SUITES, "all"}
_TIMED = {o.name: (o.default, Option(o.help, hidden=o.name in _UNLISTED)) for o in BENCH_OPTIONS}
_SUITE = Option(f"NAME  {', '.join(SUITES)}; several times")
Timed = Annotated[BenchEffort, Options({"suite": ((), _SUITE), **_TIMED}, _read_timed)]

bench_group = Group(
    name="bench", help="Time operations, read training logs, compare measurements.", default="run"
)


@command("bench run", example="bench run --target cpu --image torch --preset tiny")
def bench(display: Display, cells: Chosen, *, timed: Timed) -> None:
    """Time operations inside each selected cell's image.

    The record is build/<cell>/bench-<target>.json; `bench compare` reads it.
    """
    from warpfront.bench.forms import bench_text
    from warpfront.bench.record_files import bench_document
    from warpfront.bench.records import Bench

    results = tuple(commands.benching.bench(workspace_here(display), cells, display, effort=timed))
    benches = [result for result in results if isinstance(result, Bench)]
    text = "\n".join(bench_text(result, width=text_width()) for result in benches)
    display.result([bench_document(result) for result in benches], text)
    print_unfinished(results)
    if failed := sorted({result.cell_id for result in results if isinstance(result, Failed)}):
        raise CommandFailedError(f"not timed: {', '.join(failed)}", hint="the reasons are above")
    raise_failure(results)


# The facts that a log may lack: their types, and the field of a run where that has another name.
_FACTS: Mapping[str, type] = {
    **dict.fromkeys(("gpus", "nodes", "sequence", "batch", "parameters"), int),
    **dict.fromkeys(("model", "precision"), str),
}
_FIELDS = {"gpus": "devices", "batch": "global_batch"}


@command("bench read-log", formerly=("read-log",), example="bench read-log train.log --fact gpus=8")
def read_log(
    display: Display,
    file: Annotated[str, "a log, several separated by commas, a folder, a glob, or -"],
    *,
    fact: Annotated[
        tuple[str, ...], "NAME=VALUE  gpus=8, nodes, sequence, batch, parameters, model, precision"
    ] = (),
    format: Annotated[  # noqa: A002 - the name of the option
        str, "NAME  format of the log (default: by its lines)"
    ] = "auto",
    out: Annotated[str, "FILE  also write the record, as JSON"] = "",
    seed_layout: Annotated[str, "also write TensorPrimat's benchmark_*.json to DIR"] = "",
    perf_csv: Annotated[str, "also write madengine's perf.csv to FILE"] = "",
) -> None:
    """Read logs of trainings and serving benchmarks: steps, times, gaps.

    Formats of 20 programs (warpfront docs logs). Needs no GPU.
    """
    from warpfront.bench.forms import run_text
    from warpfront.bench.record_files import run_document
    from warpfront.bench.settling import summary_of
    from warpfront.system.store import write_json, write_text

    values: dict[str, object] = {}
    for text in fact:
        name, _, value = text.partition("=")
        if name not in _FACTS:
            raise InputError(f"--fact {text}: {nearest(name, _FACTS)}")
        if _FACTS[name] is int and not (value.isdecimal() and int(value)):
            raise InputError(f"--fact {text}: {value!r} is no number above zero")
        values[_FIELDS.get(name, name)] = _FACTS[name](value)
    runs = commands.measurements.read_all(file, display, form=format, given=values)
    summaries = [(run, summary_of(run)) for run in runs]
    documents = [run_document(*summary) for summary in summaries]
    document = documents[0] if len(documents) == 1 else documents
    if out:
        write_json(Path(out), document)
    if perf_csv:
        from warpfront.bench.logs import tensorprimat

        write_text(Path(perf_csv), tensorprimat.perf_csv(summaries))
    if seed_layout:
        for path in commands.measurements.write_layout(runs, Path(seed_layout)):
            display.say(f"wrote {path}")
    display.result(document, "\n".join(run_text(*summary) for summary in summaries))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """Options of a comparison, and accepted differences."""

    metric: Annotated[str, "NAME  step_seconds, tokens_per_second_per_device, ..."] = ""
    allow: Annotated[
        tuple[str, ...], "NAME  accept a difference: precision, ...; several times"
    ] = ()
    noise: Annotated[str, "SHARE  smallest ratio that is a difference (1%; operations 3%)"] = (
        _NO_NUMBER
    )
    max_slower: Annotated[str, "SHARE  fail if NEW is slower by more than this: 5%, 0.05"] = (
        _NO_NUMBER
    )
    same_training: Annotated[bool, "refuse sides whose losses differ, or are missing"] = False
    by_pairs: Annotated[bool, "compare runs in pairs: first with first, and so on"] = False

    def terms(self) -> ComparisonTerms:
        from warpfront.bench.comparability import ALLOWABLE
        from warpfront.bench.compare import ComparisonTerms
        from warpfront.bench.records import Metric

        allowed = tuple(name for names in self.allow for name in names.split(",") if name)
        allowable = {*ALLOWABLE, "cold", "tf32"}
        if unknown := sorted(set(allowed) - allowable):
            hint = f"one of {', '.join(sorted(allowable))}"
            raise InputError(f"--allow {unknown[0]}: no such difference", hint=hint)
        if self.metric and self.metric not in set(Metric):
            raise InputError(f"--metric {self.metric}: unknown", hint=f"one of {', '.join(Metric)}")
        return ComparisonTerms(
            metric=Metric(self.metric) if self.metric else None,
            allowed=allowed,
            noise=_share(self.noise, "--noise"),
            max_slower=_share(self.max_slower, "--max-slower"),
            same_training=self.same_training,
            paired=self.by_pairs,
        )


def _share(text: str, option: str) -> float | None:
    """`5%` or `0.05`; None where the option was not given."""
    if text == _NO_NUMBER:
        return None
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 10:
        raise InputError(f"{option} {text}: no share between 0 and 1000 %", hint="5% or 0.05")
    return value


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonForms:
    """Forms of a comparison's output."""

    markdown: Annotated[str, "FILE  also write Markdown"] = ""
    out: Annotated[str, "FILE  also write JSON"] = ""
    charts: Annotated[str, "DIR  also draw charts, as SVG"] = ""
    page: Annotated[str, "FILE  also write an HTML page with charts"] = ""


@command("bench compare", formerly=("compare",), example="bench compare amd.log nvidia.log")
def compare(
    display: Display,
    a: Annotated[str, "BASELINE  logs or benchmark records, as for read-log"],
    b: Annotated[str, "NEW  logs or records to compare with it"],
    options: ComparisonOptions,
    forms: ComparisonForms,
    *,
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """Compare two measurements: a ratio with its interval, or no difference.

    Refuses unlike work, unless --allow names what differs. Never a winner.
    """
    from warpfront.bench.charts import charts_of
    from warpfront.bench.forms import comparison_html
    from warpfront.system.store import write_text

    terms = options.terms()
    side, other = (commands.measurements.read_side(name, display) for name in (a, b))
    comparison = commands.measurements.compare_sides((a, side), (b, other), terms)
    display.result(*_written(comparison, forms))
    charts = None
    if forms.charts or forms.page:
        try:
            charts = charts_of(comparison, [side, other])
        except ImportError as error:
            display.say(f"warning: no charts: {error.name or error} is not installed")
    for name, picture in (charts or {}).items() if forms.charts else ():
        write_text(Path(forms.charts) / name, picture)
    if forms.page:
        write_text(Path(forms.page), comparison_html(comparison, charts or {}))
    _raise(comparison, allow_undetermined=allow_undetermined)
    if charts is None and (forms.charts or forms.page):
        hint = "pip install 'warpfront[charts]'"
        raise CommandFailedError("no charts: matplotlib is not installed", hint=hint)


@command("bench watch", formerly=("nights",), example="bench watch nights.jsonl --add build")
def nights(
    display: Display,
    file: Annotated[str, "history of nightly records, a line each; made by --add"],
    *,
    add: Annotated[str, "PATHS  first add these records: files, folder or glob"] = "",
    runner: Annotated[str, "NAME  name of the machine, if several have one device"] = "",
    max_slower: Annotated[str, "SHARE  fail if an operation became slower by more"] = _NO_NUMBER,
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """Find lasting performance changes in nightly benchmark history."""
    from warpfront.bench.nights import shifts_of, shifts_text, too_few_nights

    if add:
        commands.measurements.add_nights(Path(file), add, display, runner=runner)
    history = commands.measurements.read_nights_of(Path(file), display)
    shifts = shifts_of(history)
    documents = [{**dataclasses.asdict(shift), "ratio": shift.ratio} for shift in shifts]
    display.result(documents, shifts_text(history, shifts))
    most = _share(max_slower, "--max-slower")
    if slower := [shift for shift in shifts if most is not None and shift.ratio > 1 + most]:
        worst = max(slower, key=lambda shift: shift.ratio)
        message = f"{counted(len(slower), 'operation')} slower for good, {worst.case} the most"
        raise SlowerError(message, hint=f"since {worst.at}, image {worst.image_digest or 'none'}")
    few, hint = too_few_nights(history), "--add records of further nights"
    require_determined(few, allow_undetermined=allow_undetermined, hint=hint)


_STACKS = "bench compare-stacks"


@command(_STACKS, formerly=("compare-stacks",), hidden=True, example=f"{_STACKS} --folder output")
def compare_stacks(
    display: Display,
    options: ComparisonOptions,
    forms: ComparisonForms,
    *,
    folder: Annotated[str, "DIR  folder of benchmark_{cuda,rocm}_*.json"] = "output",
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """Compare results of TensorPrimat, model by model: CUDA with ROCm.

    Replaces its compare_results.py.
    """
    every, unpaired = commands.measurements.compare_layout(Path(folder), options.terms(), display)
    results = [_written(comparison, forms) for comparison in every]
    display.result([document for document, _ in results], "".join(text for _, text in results))
    for comparison in every:
        _raise(comparison, allow_undetermined=allow_undetermined)
    require_determined(unpaired, allow_undetermined=allow_undetermined, hint="run it on both")


def _written(comparison: Comparison, comparison_forms: ComparisonForms) -> tuple[object, str]:
    """Return the comparison's document and text; write the files that the options name."""
    from warpfront.bench.forms import comparison_markdown, comparison_text
    from warpfront.bench.record_files import comparison_document
    from warpfront.system.store import write_json, write_text

    document = comparison_document(comparison)
    if comparison_forms.markdown:
        write_text(Path(comparison_forms.markdown), comparison_markdown(comparison))
    if comparison_forms.out:
        write_json(Path(comparison_forms.out), document)
    return document, comparison_text(comparison, width=text_width())


def _raise(comparison: Comparison, *, allow_undetermined: bool = False) -> None:
    from warpfront.bench.forms import sentence
    from warpfront.bench.records import ComparisonOutcome

    if comparison.verdict in {ComparisonOutcome.NOT_COMPARABLE, ComparisonOutcome.TOO_SHORT}:
        refused = (each for each in comparison.differences if each.refused and not each.allowed)
        allow = " ".join(f"--allow {each.name}" for each in refused)
        hint = f"{allow} compares them all the same, and says so" if allow else ""
        raise NotComparableError(sentence(comparison), hint=hint)
    if comparison.slower:
        name, ratio = next(iter(comparison.slower.items()))
        takes = f"{name} takes {ratio.low:.3f} to {ratio.high:.3f} times A's time"
        hint = "by operation, above" if comparison.cases else ""
        text = f"B is slower than allowed: {takes}, {comparison.limit:.3f} are allowed"
        raise SlowerError(text, hint=hint)
    if comparison.verdict is ComparisonOutcome.UNDETERMINED:
        reasons, hint = comparison.reasons, "more runs a side"
        require_determined(reasons, allow_undetermined=allow_undetermined, hint=hint)
