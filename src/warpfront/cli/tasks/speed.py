"""The tasks about speed: timings in images, logs of trainings, comparisons."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from warpfront.cli.display import Display, text_width
from warpfront.cli.tasks.declaring import (
    AllowUndetermined,
    Chosen,
    Json,
    Option,
    Options,
    command,
)
from warpfront.cli.tasks.showing import (
    print_result,
    print_unfinished,
    raise_failure,
    workspace_here,
)
from warpfront.determination import require_determined
from warpfront.errors import CommandFailedError, InputError, NotComparableError, SlowerError
from warpfront.step_results import Failed
from warpfront_checks.bench.options import BENCH_OPTIONS, BenchEffort, read_bench_effort

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warpfront.bench.compare import ComparisonTerms
    from warpfront.bench.records import Bench, Comparison, Run

_NO_NUMBER = "none"
Timed = Annotated[
    BenchEffort,
    Options(
        {option.name: (option.default, Option(option.help)) for option in BENCH_OPTIONS},
        read_bench_effort,
    ),
]


@command
def bench(display: Display, cells: Chosen, *, json: Json = False, timed: Timed) -> None:
    """Time operations inside each selected cell's image, as `nox -s bench` does.

    The record goes to build/<cell>/bench-<target>.json; `compare` reads it.
    """
    from warpfront.bench.record_files import bench_document
    from warpfront.bench.records import Bench
    from warpfront.bench.sheet import bench_text
    from warpfront.commands import benching

    results = tuple(benching.bench(workspace_here(display), cells, display, effort=timed))
    benches = [result for result in results if isinstance(result, Bench)]
    documents = [bench_document(result) for result in benches]
    print_result(documents, "\n".join(map(bench_text, benches)), json=json)
    print_unfinished(() if json else results)
    if failed := sorted({result.cell_id for result in results if isinstance(result, Failed)}):
        raise CommandFailedError(f"not timed: {', '.join(failed)}", hint="the reasons are above")
    raise_failure(results)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """Facts that a log lacks, from the command line."""

    gpus: Annotated[int, Option("how many devices, if the log does not say")] = 0
    nodes: Annotated[int, Option("how many machines")] = 0
    sequence: Annotated[int, Option("tokens of a sample")] = 0
    batch: Annotated[int, Option("samples of a step, of all devices")] = 0
    parameters: Annotated[int, Option("parameters of the model")] = 0
    model: Annotated[str, Option("the model's name")] = ""
    precision: Annotated[str, Option("the number format: bfloat16, fp8, ...")] = ""

    def said(self) -> dict[str, object]:
        """Return the facts by the names of a run's fields."""
        facts = {
            "devices": self.gpus,
            "nodes": self.nodes,
            "sequence": self.sequence,
            "global_batch": self.batch,
            "parameters": self.parameters,
            "model": self.model,
            "precision": self.precision,
        }
        if any(isinstance(value, int) and value < 0 for value in facts.values()):
            raise InputError("what is given of a run has to be more than nothing")
        return {name: value for name, value in facts.items() if value}


@command
def read_log(
    display: Display,
    file: Annotated[str, Option("a log, several with commas between them, a folder, a glob, or -")],
    given: LogFacts,
    *,
    format: Annotated[  # noqa: A002 - the name of the option
        str, Option("whose log it is, if it is not to be told by its lines")
    ] = "auto",
    out: Annotated[str, Option("also write the record to this file, as JSON")] = "",
    json: Json = False,
    seed_layout: Annotated[
        str, Option("also write TensorPrimat's files, benchmark_{cuda,rocm}_*.json, to this folder")
    ] = "",
    perf_csv: Annotated[str, Option("also write madengine's perf.csv to this file")] = "",
) -> None:
    """Read logs of trainings and serving benchmarks: steps, times, gaps.

    Formats of 20 programs (docs/logs.md), packed or not. Needs no GPU.
    """
    from warpfront.bench.forms import run_text
    from warpfront.bench.record_files import run_document
    from warpfront.bench.settling import summary_of
    from warpfront.commands import measurements
    from warpfront.system.store import write_json, write_text

    runs = measurements.read_all(file, display, form=format, given=given.said())
    summaries = [(run, summary_of(run)) for run in runs]
    documents = [run_document(*summary) for summary in summaries] if json or out else []
    document = documents[0] if len(documents) == 1 else documents
    if out:
        write_json(Path(out), document)
    if perf_csv:
        from warpfront.bench.logs import madengine

        write_text(Path(perf_csv), madengine.perf_csv(summaries))
    if seed_layout:
        for path in measurements.write_layout(runs, Path(seed_layout)):
            display.say(f"wrote {path}")
    print_result(document, "\n".join(run_text(*summary) for summary in summaries), json=json)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """Options of a comparison, and accepted differences."""

    metric: Annotated[
        str,
        Option(
            "step_seconds, tokens_per_second_per_device, samples_per_second or time_to_train "
            "(what both have, if not given)"
        ),
    ] = ""
    allow: Annotated[
        tuple[str, ...],
        Option("a difference that is accepted: precision, global_batch, ...; several times"),
    ] = ()
    noise: Annotated[
        str, Option("a ratio this near to 1 is no difference (1%, of operations 3%)")
    ] = _NO_NUMBER
    max_slower: Annotated[
        str, Option("fail if B is slower than A by more than this, 5% or 0.05, for certain")
    ] = _NO_NUMBER
    same_training: Annotated[
        bool, Option("refuse sides whose losses differ, or of which one has none")
    ] = False
    by_pairs: Annotated[
        bool, Option("compare runs in pairs: the first of A with the first of B, and so on")
    ] = False

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
            noise=None if self.noise == _NO_NUMBER else _share(self.noise, "--noise"),
            max_slower=None
            if self.max_slower == _NO_NUMBER
            else _share(self.max_slower, "--max-slower"),
            same_training=self.same_training,
            paired=self.by_pairs,
        )


def _share(text: str, option: str) -> float:
    """`5%` or `0.05`."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise InputError(f"{option} {text}: no share", hint="5% or 0.05") from None
    if not 0 <= value < 10:
        raise InputError(f"{option} {text}: no share between 0 and 1000 %", hint="5% or 0.05")
    return value


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonForms:
    """Forms of a comparison's output."""

    json: Json = False
    markdown: Annotated[str, Option("also write the comparison to this file, as Markdown")] = ""
    out: Annotated[str, Option("also write the comparison to this file, as JSON")] = ""
    charts: Annotated[
        str, Option("also draw it into this folder, as SVG (needs `warpfront[charts]`)")
    ] = ""
    page: Annotated[str, Option("also write it to this file with its charts, as one HTML page")] = (
        ""
    )


@command
def compare(
    display: Display,
    a: Annotated[str, Option("what was: logs or records, as for read-log")],
    b: Annotated[str, Option("what is, held against A")],
    asked: ComparisonOptions,
    shown: ComparisonForms,
    *,
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """Compare two measurements: a ratio, or no difference.

    Refuses unlike work, unless --allow names what differs. Never a winner.
    """
    from warpfront.commands import measurements
    from warpfront.system.store import write_text

    terms = asked.terms()
    side, other = (measurements.read_side(name, display) for name in (a, b))
    comparison = measurements.compare_sides((a, side), (b, other), terms)
    _show(comparison, shown)
    charts = _charts(comparison, [side, other], display) if shown.charts or shown.page else None
    for name, picture in (charts or {}).items() if shown.charts else ():
        write_text(Path(shown.charts) / name, picture)
    if shown.page:
        write_text(Path(shown.page), measurements.page_of(comparison, charts or {}))
    _raise(comparison, allow_undetermined=allow_undetermined)
    if charts is None and (shown.charts or shown.page):
        hint = "pip install 'warpfront[charts]'"
        raise CommandFailedError("no charts: matplotlib is not installed", hint=hint)


@command
def nights(
    display: Display,
    file: Annotated[str, Option("the nights so far, a line each; made by --add")],
    *,
    add: Annotated[
        str, Option("first add these records, build/*/bench-*.json: files, a folder, or a glob")
    ] = "",
    runner: Annotated[str, Option("the machine's name, where several have one device's")] = "",
    max_slower: Annotated[
        str, Option("fail if an operation became slower for good by more than this, 5% or 0.05")
    ] = _NO_NUMBER,
    json: Json = False,
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """Say which operations took another time for good, over benches of many nights."""
    from warpfront.bench.nights import shifts_of, shifts_text, too_few_nights
    from warpfront.commands import measurements

    if add:
        measurements.add_nights(Path(file), add, display, runner=runner)
    history = measurements.read_nights_of(Path(file), display)
    shifts = shifts_of(history)
    documents = [{**dataclasses.asdict(shift), "ratio": shift.ratio} for shift in shifts]
    print_result(documents, shifts_text(history, shifts), json=json)
    allowed = float("inf") if max_slower == _NO_NUMBER else 1 + _share(max_slower, "--max-slower")
    if slower := [shift for shift in shifts if shift.ratio > allowed]:
        worst = max(slower, key=lambda shift: shift.ratio)
        message = f"{len(slower)} operations became slower for good, {worst.case} the most"
        raise SlowerError(message, hint=f"since {worst.at}, image {worst.image_digest or 'none'}")
    require_determined(
        too_few_nights(history),
        allow_undetermined=allow_undetermined,
        hint="--add records of further nights",
    )


@command
def compare_stacks(
    display: Display,
    asked: ComparisonOptions,
    shown: ComparisonForms,
    *,
    folder: Annotated[
        str, Option("TensorPrimat's folder of benchmark_{cuda,rocm}_*.json")
    ] = "output",
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """Compare what TensorPrimat left, model by model: CUDA against ROCm.

    The place of its compare_results.py.
    """
    from warpfront.commands import measurements

    every, unpaired = measurements.compare_layout(Path(folder), asked.terms(), display)
    for comparison in every:
        _show(comparison, shown)
    for comparison in every:
        _raise(comparison, allow_undetermined=allow_undetermined)
    require_determined(unpaired, allow_undetermined=allow_undetermined, hint="run it on both")


def _charts(
    comparison: Comparison, sides: list[list[Run] | Bench], display: Display
) -> Mapping[str, str] | None:
    """Return the charts by file name; None, with a warning, where the extra is not installed."""
    from warpfront.bench.charts import charts_of

    try:
        return charts_of(comparison, sides)
    except ModuleNotFoundError as error:
        display.say(f"warning: no charts: {error.name} is not installed")
        return None


def _show(comparison: Comparison, comparison_forms: ComparisonForms) -> None:
    from warpfront.bench.forms import comparison_markdown, comparison_text
    from warpfront.bench.record_files import comparison_document
    from warpfront.system.store import write_json, write_text

    document = comparison_document(comparison)
    if comparison_forms.markdown:
        write_text(Path(comparison_forms.markdown), comparison_markdown(comparison))
    if comparison_forms.out:
        write_json(Path(comparison_forms.out), document)
    print_result(
        document, comparison_text(comparison, width=text_width()), json=comparison_forms.json
    )


def _raise(comparison: Comparison, *, allow_undetermined: bool = False) -> None:
    from warpfront.bench.forms import sentence, slowest_of
    from warpfront.bench.records import ComparisonOutcome

    refused = [
        difference.name
        for difference in comparison.differences
        if difference.refused and not difference.allowed
    ]
    if comparison.verdict in {ComparisonOutcome.NOT_COMPARABLE, ComparisonOutcome.TOO_SHORT}:
        allow = " ".join(f"--allow {name}" for name in refused)
        hint = f"{allow} compares them all the same, and says so" if allow else ""
        raise NotComparableError(sentence(comparison), hint=hint)
    if slowest := slowest_of(comparison):
        name, ratio = slowest
        raise SlowerError(
            f"B is slower than allowed: {name} takes {ratio.low:.3f} to {ratio.high:.3f} times A's "
            f"time, {comparison.limit:.3f} are allowed",
            hint="by operation, above" if comparison.cases else "",
        )
    if comparison.verdict is ComparisonOutcome.UNDETERMINED:
        require_determined(
            comparison.reasons, allow_undetermined=allow_undetermined, hint="more runs a side"
        )
