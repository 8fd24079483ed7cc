"""Choose a log's format, read it line by line, and gather its facts to runs: duplicates, restarts,
ranks, mixed runs. Pure.

Memory stays bounded: beyond `MOST_STEPS` lines, neighbours become their mean.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter, OrderedDict
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import groupby, islice, pairwise
from operator import attrgetter
from statistics import median
from typing import Any, NamedTuple

from warpfront.bench.logs import FORMATS
from warpfront.bench.logs.facts import SERVING, Fact, Format, LoggedStep, NextRun, Setting, Unused
from warpfront.bench.logs.fields import cleaned, vendor_of
from warpfront.bench.records import (
    Evaluation,
    MemoryKind,
    Parallel,
    RecordSource,
    Remark,
    Run,
    Step,
)
from warpfront.system.texts import counted

MOST_STEPS = 8_192
_REMEMBERED = 256
_MOST_FINDINGS = 20
_LONGEST = 200
_MIXED_SHARE = 0.2
_FEWEST_MIXED = 3
# Fields that a log should have; unknown ones are listed.
WANTED = (
    "vendor",
    "device_name",
    "devices",
    "nodes",
    "precision",
    "global_batch",
    "micro_batch",
    "sequence",
    "model",
    "parameters",
)
WANTED_OF_SERVING = ("model", "device_name", "devices", "request_rate")
_OF_LOAD = {f"{SERVING}concurrency"}
_MESH = ("data", "tensor", "pipeline", "context")
_OF_PARALLEL = "parallel."
# A model that multiplies in 8 bits is stored in 16: a run's format is its narrowest.
_PRECISIONS = ("fp4", "fp8", "bfloat16", "float16", "float32")
_CHECKED = 0.01
# Two lines of one step are equal in these, wherever and whenever they are printed.
_FIGURES = {field.name for field in dataclasses.fields(Step)} - {"segment", "line", "at", "steps"}
_MERGED = _FIGURES | {"at"}
_WHOLE = 0.001
_USUAL = 0.8
"""The share of steps that have as many lines, where gradients are accumulated."""
_WORDS = {"sequence": "a sequence of {}", "devices": "{} devices"}
# By so much at most one rank's time of a step is another's.
_RANKS_DIFFER = 0.05


class _PlacedStep(NamedTuple):
    """A step and its place. `parts` are its lines of one rank, `total` the seconds of them all."""

    step: Step
    segment: int
    line: int
    rank: str = ""
    part: int | None = None
    parts: int = 1
    total: float = 0.0


class RunAssembler:
    """A run in the making."""

    def __init__(self, *, averages: bool = False) -> None:
        self._averages = averages
        self._settings: dict[str, Setting] = {}
        self._kept: list[_PlacedStep] = []
        self._recent: OrderedDict[int, _PlacedStep] = OrderedDict()
        self._evaluations: list[Evaluation] = []
        self._findings: list[Remark] = []
        self._pending: list[_PlacedStep] = []
        self._width = 1
        self._segment = 0
        self._last: int | None = None
        self._counts: Counter[str] = Counter()
        self._unused: Counter[str] = Counter()
        self._parts: Counter[int] = Counter()

    @property
    def has_steps(self) -> bool:
        figures = (n for n in self._settings if n.startswith(SERVING) and n not in _OF_LOAD)
        is_measured = "run_seconds" in self._settings or any(figures)
        return is_measured or bool(self._kept or self._pending or self._recent)

    def add(self, fact: Fact, line: int) -> None:
        match fact:
            case Setting():
                self._set(fact, line)
            case LoggedStep(step=step, rank=rank, part=part):
                place = step.line or line
                placed_step = _PlacedStep(step, 0, place, rank, part, 1, step.seconds or 0.0)
                self._see(placed_step, redrawn=fact.redrawn)
            case Evaluation():
                if len(self._evaluations) < MOST_STEPS:
                    self._evaluations.append(fact)
            case Remark():
                self._find(fact.level, fact.message, fact.line or line)
            case Unused(name=name):
                if name in self._unused or len(self._unused) < _MOST_FINDINGS:
                    self._unused[name] += 1
            case NextRun():
                pass

    def _set(self, fact: Setting, line: int) -> None:
        """Set a field once. What a step's line has replaces what a table of arguments has, and so
        does the same argument in a later table before the first step.
        """
        if isinstance(fact.value, str) and not isinstance(fact.value, MemoryKind):
            fact = dataclasses.replace(fact, value=cleaned(fact.value)[:_LONGEST])
        current = self._settings.get(fact.name)
        is_again = self._last is None and fact.word and current and current.word == fact.word
        if current is None or is_again or (fact.firm and not current.firm):
            is_firm = fact.firm or (current is not None and current.firm)
            self._settings[fact.name] = dataclasses.replace(fact, firm=is_firm)
        elif fact.name == "global_batch" and current.value != fact.value:
            text = f"the global batch changes from {current.value} to {fact.value}"
            self._once(text, line)

    def _once(self, message: str, line: int) -> None:
        if not any(finding.message == message for finding in self._findings):
            self._find("warning", message, line)

    def _find(self, level: Any, message: str, line: int) -> None:
        if len(self._findings) < _MOST_FINDINGS:
            self._findings.append(Remark(level=level, message=cleaned(message), line=line))

    def _see(self, new: _PlacedStep, *, redrawn: bool) -> None:
        step = new.step
        earlier = self._recent.get(step.step)
        if earlier and step.step == self._last and (redrawn or _completes(earlier.step, step)):
            merged = _merged(step, earlier.step) if redrawn else _merged(earlier.step, step)
            total = merged.seconds if redrawn else earlier.total or new.total
            self._recent[step.step] = earlier._replace(step=merged, total=total or 0.0)
            return
        self._counts["lines"] += 1
        if earlier and self._is_known(earlier, new):
            return
        if self._last is not None and step.step <= self._last:
            self._counts["restarts"] += 1
            self._segment += 1
            self._close()
            self._recent.clear()
            self._once(f"a restart at step {step.step}, after {self._last}", new.line)
        self._close()
        self._last = step.step
        self._recent[step.step] = new._replace(segment=self._segment)
        if len(self._recent) > _REMEMBERED:
            self._recent.popitem(last=False)

    def _is_known(self, placed_step: _PlacedStep, new: _PlacedStep) -> bool:
        """Count a further line of a step; False where it begins the step again."""
        number = new.step.step
        is_part = placed_step.part is not None and placed_step.part != new.part
        # A further line, which may be cut, has no other figure than the first.
        pairs = ((getattr(placed_step.step, f), getattr(new.step, f)) for f in _FIGURES)
        repeats = all(later is None or later == earlier for earlier, later in pairs)
        if repeats and not (is_part and placed_step.rank == new.rank):
            self._counts["duplicates"] += 1
            return True
        if placed_step.rank and new.rank and placed_step.rank != new.rank:
            self._counts["other ranks"] += 1
            return True
        if number == self._last and (is_part or placed_step.rank) and new.step.seconds:
            latest = _merged(new.step, placed_step.step)
            self._recent[number] = placed_step._replace(
                step=dataclasses.replace(latest, seconds=placed_step.step.seconds),
                part=new.part,
                parts=placed_step.parts + 1,
                total=placed_step.total + new.total,
            )
            return True
        # Ranks of one run are a step apart at most; a restart goes back further.
        latest_two = islice(reversed(self._recent), 2)
        if number in latest_two and _alike(placed_step.step, new.step):
            self._counts["other ranks"] += 1
            return True
        if number == self._last:
            self._counts["mixed"] += 1
            self._once("two lines of one step differ: the first counts", new.line)
            return True
        return False

    def _close(self) -> None:
        """Complete the latest step: no further line of it is merged."""
        if self._last is None or self._last not in self._recent:
            return
        closed_step = self._recent[self._last]
        self._parts[closed_step.parts] += 1
        if self._pending and self._pending[-1].segment != closed_step.segment:
            self._flush()
        self._pending.append(closed_step)
        if len(self._pending) >= self._width:
            self._flush()

    def _accumulates(self) -> bool:
        """Return whether one rank prints several lines of nearly every step."""
        usual, count = max(self._parts.items(), key=lambda item: item[1], default=(1, 0))
        return usual > 1 < count and count >= _USUAL * (self._parts.total() - 2)

    def _whole(self, placed_step: _PlacedStep) -> _PlacedStep:
        """Return a step of several parts with the time of all; of one odd part, the first's."""
        if placed_step.parts == 1 or not self._accumulates():
            return placed_step._replace(parts=1)
        step = dataclasses.replace(
            placed_step.step,
            seconds=placed_step.total,
            tokens_per_second_per_device=None,
            samples_per_second=None,
        )
        return placed_step._replace(step=step, parts=1)

    def _flush(self) -> None:
        """Keep what is pending; once there is too much, twice as many lines are one."""
        if self._pending:
            pending, self._pending = self._pending, []
            self._kept.append(_mean([*map(self._whole, pending)] if len(pending) > 1 else pending))
        if len(self._kept) >= MOST_STEPS:
            self._width *= 2
            self._kept = [
                _mean([*map(self._whole, pair)])
                for _, steps in groupby(self._kept, attrgetter("segment"))
                for segment in [list(steps)]
                for pair in (segment[start : start + 2] for start in range(0, len(segment), 2))
            ]

    def run(self, source: RecordSource, *, lines: int, given: Mapping[str, Any]) -> Run:
        """Return the run, with the fields that options set."""
        self._close()
        self._last = None
        self._flush()
        mixed = 0 if self._accumulates() else sum(n - 1 for n in self._parts.elements())
        self._counts["mixed"] += mixed
        if mixed:
            self._once("two lines of one step differ: the first counts", 0)
        steps = [
            dataclasses.replace(placed.step, segment=placed.segment, line=placed.line)
            for placed in map(self._whole, self._kept)
        ]
        steps = _with_intervals(steps) if self._averages else steps
        first, second = (*steps, None, None)[:2]
        if first and second and first.steps == 1 < second.steps == first.step:
            # Lines count the steps since the line before, the first from the start of the run.
            steps = [dataclasses.replace(first, steps=first.step), *steps[1:]]
        facts = {name: setting.value for name, setting in self._settings.items()} | dict(given)
        fields = {field.name for field in dataclasses.fields(Run)}
        run = Run(
            source=source,
            steps=tuple(steps),
            evaluations=tuple(self._evaluations),
            parallel=_parallel(facts),
            serving={n.removeprefix(SERVING): v for n, v in facts.items() if n.startswith(SERVING)},
            lines=lines,
            given=tuple(sorted(given)),
            findings=(*self._findings, *self._counted()),
            **{name: value for name, value in facts.items() if name in fields},
        )
        return completed(run, facts, [n for n, setting in self._settings.items() if setting.firm])

    def _counted(self) -> Iterable[Remark]:
        lines, mixed = self._counts["lines"], self._counts["mixed"] + self._counts["restarts"]
        if mixed >= _FEWEST_MIXED and mixed > _MIXED_SHARE * lines:
            some = f"{mixed} of {lines} do not follow the one before"
            yield Remark(level="error", message=f"lines of several runs are mixed: {some}")
        notes = [
            f"{count} of {lines} lines {words} a step that is known"
            for kind, words in (("duplicates", "repeat"), ("other ranks", "are other ranks' of"))
            if (count := self._counts[kind])
        ]
        if self._accumulates():
            usual = self._parts.most_common(1)[0][0]
            notes.append(f"gradient accumulation: {usual} lines a step; a step's time is their sum")
        if self._width > 1:
            notes.append(f"more lines than are kept: each step is the mean of {self._width}")
        for name, count in self._unused.items():
            notes.append(f"not read: {cleaned(name)}, {counted(count, 'time')}")
        yield from (Remark(level="note", message=note) for note in notes)


def _completes(step: Step, other: Step) -> bool:
    """Return whether a further line of a step contradicts no figure of it, and has another one."""
    pairs = [(getattr(step, name), getattr(other, name)) for name in _MERGED]
    agree = all(earlier == new for earlier, new in pairs if None not in {earlier, new})
    return agree and any(earlier is None and new is not None for earlier, new in pairs)


def _merged(step: Step, other: Step) -> Step:
    """Return a step with the figures that it lacks from another line of it."""
    lacking = (name for name in _MERGED if getattr(step, name) is None)
    added = {name: getattr(other, name) for name in lacking}
    return dataclasses.replace(step, steps=max(step.steps, other.steps), **added)


def _alike(step: Step, other: Step) -> bool:
    """Return whether two lines of a step, without ranks, are two ranks' of one run.

    All ranks have the same loss and gradients, and wait for each other.
    """
    if step.loss is None or (step.loss, step.grad_norm) != (other.loss, other.grad_norm):
        return False
    names = ("seconds", "tokens_per_second_per_device")
    pairs = ((getattr(step, name), getattr(other, name)) for name in names)
    return all(a and b and abs(a / b - 1) < _RANKS_DIFFER for a, b in pairs if a != b)


def _mean(placed_steps: list[_PlacedStep]) -> _PlacedStep:
    """Merge neighbours into one step, under the last one's number."""
    last = placed_steps[-1]
    if len(placed_steps) == 1:
        return last
    steps = [step.step for step in placed_steps]
    timed = [(step.seconds, step.steps) for step in steps if step.seconds is not None]
    weight = sum(each for _, each in timed)
    seconds = sum(seconds * each for seconds, each in timed) / weight if timed else None
    count = sum(step.steps for step in steps)
    return last._replace(step=dataclasses.replace(last.step, steps=count, seconds=seconds))


def _with_intervals(steps: list[Step]) -> list[Step]:
    """Set the number of steps of each line, where lines are means since the line before."""
    gaps = [
        step.step - (before.step if before and before.segment == step.segment else 0)
        for before, step in zip([None, *steps], steps, strict=False)
    ]
    usual = Counter(gaps[1:]).most_common(1)[0][0] if len(gaps) > 1 else 1
    if usual <= 1 or any(step.steps > 1 for step in steps):
        return steps
    return [
        dataclasses.replace(step, steps=max(1, min(gap, usual)))
        for step, gap in zip(steps, gaps, strict=True)
    ]


def _parallel(facts: dict[str, Any]) -> Parallel:
    ways = {name: facts.get(_OF_PARALLEL + name) for name in Parallel.__dataclass_fields__}
    replicas, shards = (facts.get(_OF_PARALLEL + name) for name in ("replicate", "shard"))
    if replicas and shards:
        ways["data"] = replicas * shards
        sizes = [count for name in _MESH if (count := ways[name])]
        if len(sizes) == len(_MESH):
            facts.setdefault("devices", math.prod(sizes))
    return Parallel(**ways)


def completed(run: Run, facts: Mapping[str, Any], firm: Container[str] = ()) -> Run:
    """Return a run with the fields that follow from others, and the names of unknown ones.

    `firm` are fields that the lines of its steps print themselves.
    """
    vendor = run.vendor or vendor_of(run.device_name) or facts.get("organisation")
    model = run.model or facts.get("tokenizer")
    formats = (name for name in _PRECISIONS if facts.get(f"is_{name}") or name == run.precision)
    precision = run.precision if "precision" in run.given else next(formats, run.precision)
    run = dataclasses.replace(run, vendor=vendor, model=model, precision=precision)
    is_rounded = bool(facts.get("rounded"))
    findings = list(run.findings)
    solved: dict[str, Any] = {}
    if run.tokens_per_step is None and (tokens := _tokens_per_step(run.steps)):
        solved["tokens_per_step"] = tokens
        run = dataclasses.replace(run, **solved)
    for name in ("global_batch", "devices", *(() if is_rounded else ("sequence",))):
        value = solved_fact(run, name, within=_CHECKED if is_rounded else _WHOLE)
        if getattr(run, name) is None and value:
            solved[name] = value
            run = dataclasses.replace(run, **solved)
    checked = "devices" if "sequence" in firm and _known(run)["work"] else "sequence"
    stated, value = getattr(run, checked), None if is_rounded else solved_fact(run, checked)
    if stated and value and abs(value / stated - 1) > _CHECKED:
        message = f"its tokens/s fit {_WORDS[checked].format(value)}, and it says {stated}"
        findings.append(Remark(level="warning", message=message))
        if checked in firm or checked == "devices":
            solved[checked] = value
            run = dataclasses.replace(run, **solved)
    expected = WANTED_OF_SERVING if run.serving else WANTED
    return dataclasses.replace(
        run,
        # Time from rate and rate from time, where the rest is known.
        steps=tuple(
            dataclasses.replace(step, **dict[str, Any]((n, values.get(n)) for n in _STEPS))
            for step in run.steps
            for values in [_closed(_known(run, step))]
        ),
        solved=tuple(solved),
        findings=tuple(findings),
        missing=tuple(name for name in expected if getattr(run, name) is None),
    )


def _tokens_per_step(steps: Sequence[Step]) -> int | None:
    """Return the tokens of a step by the printed counts of tokens, where it is always the same."""
    counted = [(step.step, step.tokens) for step in steps if step.tokens]
    gaps = ((b[0] - a[0], b[1] - a[1]) for a, b in pairwise(counted))
    rates = [tokens / count for count, tokens in gaps if count > 0]
    is_rounded = all(tokens % 1000 == 0 for _, tokens in counted)
    if not rates or is_rounded or min(rates) <= 0 or max(rates) / min(rates) > 1 + _WHOLE:
        return None
    return round(median(rates))


# A product and its factors, of a run and of each of its steps; `work` is the tokens of a step.
_LAWS = (
    ("work", "global_batch", "sequence"),
    ("global_batch", "micro_batch", "accumulation", "devices"),
    ("tokens_per_second", "tokens_per_second_per_device", "devices"),
    ("work", "tokens_per_second", "seconds"),
    ("global_batch", "samples_per_second", "seconds"),
)
_RUNS = ("global_batch", "micro_batch", "accumulation", "devices", "sequence")
_STEPS = ("seconds", "tokens_per_second", "tokens_per_second_per_device", "samples_per_second")


def _known(run: Run, step: Step | None = None, *, but: str = "") -> dict[str, Any]:
    """Return the quantities of a run and of a step, but one."""
    quantities: dict[str, Any] = {name: getattr(run, name) for name in _RUNS if name != but}
    batch, sequence = quantities.get("global_batch"), quantities.get("sequence")
    quantities["work"] = run.tokens_per_step or (batch and sequence and batch * sequence)
    return quantities | {name: getattr(step, name) for name in _STEPS if step}


def _closed(quantities: Mapping[str, float | None]) -> dict[str, float]:
    """Return the known quantities, and all that follow from them."""
    values = {name: value for name, value in quantities.items() if value}
    count = -1
    while count < len(values):
        count = len(values)
        for law in _LAWS:
            unknown = [name for name in law if name not in values]
            if len(unknown) == 1:
                factors = math.prod(values[name] for name in law[1:] if name in values)
                values[unknown[0]] = factors if unknown[0] == law[0] else values[law[0]] / factors
    return values


def solved_fact(run: Run, name: str, *, within: float = _WHOLE) -> int | None:
    """Return a fact of a run by its others and by its steps: their median, where it is nearly an
    integer. A batch follows from facts of the run alone.
    """
    steps = [None] if name == "global_batch" or not run.steps else run.steps
    values = [_closed(_known(run, step, but=name)).get(name) for step in steps]
    numbers = [value for value in values if value]
    middle = median(numbers) if numbers else 0.0
    near = round(middle)
    return near if near and abs(middle / near - 1) < within else None


ENOUGH_LINES = 200
_KEPT = 120
_NEAR = re.compile(r"iteration|step|elapsed|tokens|loss", re.IGNORECASE)
_MOST_NEAR = 3


def choose(
    document: str | None, lines: Iterable[tuple[int, str]]
) -> tuple[Format, str] | list[str]:
    """Return the format of a log and the reason: the one that has most of the lines, or of the
    document, that only one format has. Without such a line, return those that look nearly right.
    """
    counts: Counter[str] = Counter()
    first: dict[str, tuple[int, str]] = {}
    near: list[str] = []
    for name, log_format in FORMATS.items() if document is not None else ():
        if log_format.is_document and log_format.marks(document or ""):
            counts[name], first[name] = 1, (1, "its own names stand in it")
    readers = {name: each for name, each in FORMATS.items() if not each.is_document}
    for number, text in () if counts else lines:
        line = cleaned(text)
        # The first that has it: Megatron's mark is less strict than Primus's, which comes before.
        if name := next((name for name, each in readers.items() if each.marks(line)), ""):
            counts[name] += 1
            first.setdefault(name, (number, line.strip()[:_KEPT]))
        elif not counts and len(near) < _MOST_NEAR and _NEAR.search(line):
            near.append(f"{number}: {line.strip()[:_KEPT]}")
        if counts.total() >= ENOUGH_LINES:
            break
    if not counts:
        return near
    trainers = [name for name in counts if not FORMATS[name].fallback]
    name = max((n for n in FORMATS if n in (trainers or counts)), key=counts.__getitem__)
    number, line = first[name]
    others = [f"{count} {other}'s" for other, count in counts.items() if other != name]
    also = f" (and {', '.join(others)})" if others else ""
    return FORMATS[name], f"{counts[name]} of {name}'s lines{also}, line {number}: {line}"


class Reading:
    """A reading of one log into its runs, line by line. A document comes as one text."""

    def __init__(self, chosen: Format, path: str) -> None:
        self._format = chosen
        self._read = chosen.reader(path)
        self._runs = [RunAssembler(averages=chosen.averages)]
        self.lines = 0

    def feed(self, number: int, text: str, *, whole: bool = True) -> None:
        """Read a line. The last word of an unfinished line may be half a word."""
        self.lines = number
        if not whole and not self._format.closes and not self._format.is_document:
            text = text.rstrip().rpartition(" ")[0]
            self._runs[-1].add(Remark(level="note", message="a line without an end"), number)
        for fact in self._read(text if self._format.is_document else cleaned(text)):
            if isinstance(fact, NextRun) and self._runs[-1].has_steps:
                self._runs.append(RunAssembler(averages=self._format.averages))
            self._runs[-1].add(fact, number)

    def runs(self, source: RecordSource, given: Mapping[str, object]) -> tuple[Run, ...]:
        """Return the runs that have steps, or at least a duration."""
        runs = (run for run in self._runs if run.has_steps)
        return tuple(run.run(source, lines=self.lines, given=given) for run in runs)
