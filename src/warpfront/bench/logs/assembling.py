"""What the lines of a log say, gathered to a run: duplicates, restarts, ranks, mixed runs. Pure.

Memory stays bounded: beyond `MOST_STEPS` lines, neighbours become their mean.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from itertools import groupby, islice, pairwise
from operator import attrgetter
from statistics import median
from typing import Any, NamedTuple

from warpfront.bench.logs.facts import Fact, LoggedStep, NextRun, Setting
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

MOST_STEPS = 8_192
_REMEMBERED = 256
_MOST_FINDINGS = 20
_LONGEST = 200
_MIXED_SHARE = 0.2
_FEWEST_MIXED = 3
# What a log should say of its run; what of it stays unknown is listed.
WANTED = (
    *("vendor", "device_name", "devices", "nodes", "precision", "global_batch", "micro_batch"),
    *("sequence", "model", "parameters"),
)
_OF_PARALLEL = "parallel."
# Products in eight bits are of a model that is kept in sixteen: the narrowest format is a run's.
_PRECISIONS = ("fp4", "fp8", "bfloat16", "float16", "float32")
_CHECKED = 0.01
# What makes two lines say the same, wherever and whenever they do.
_said = attrgetter(
    *{one.name for one in dataclasses.fields(Step)} - {"segment", "line", "at", "steps"}
)
_WHOLE = 0.001
# By so much at most one rank's time of a step is another's.
_RANKS_DIFFER = 0.05


class _Kept(NamedTuple):
    """A step and where it stands: what a step is made of again only at the end."""

    step: Step
    segment: int
    line: int


class Assembling:
    """One run in the making."""

    def __init__(self, *, averages: bool = False) -> None:
        self._averages = averages
        self._settings: dict[str, Any] = {}
        self._kept: list[_Kept] = []
        self._recent: OrderedDict[int, tuple[Step, str]] = OrderedDict()
        self._evaluations: list[Evaluation] = []
        self._findings: list[Remark] = []
        self._pending: list[_Kept] = []
        self._width = 1
        self._segment = 0
        self._last: int | None = None
        self._counts: Counter[str] = Counter()

    @property
    def has_steps(self) -> bool:
        return bool(self._kept or self._pending) or "run_seconds" in self._settings

    def add(self, fact: Fact, line: int) -> None:
        match fact:
            case Setting(name=name, value=value):
                self._set(name, value, line)
            case LoggedStep(step=step, rank=rank):
                self._see(step, rank, step.line or line)
            case Evaluation():
                if len(self._evaluations) < MOST_STEPS:
                    self._evaluations.append(fact)
            case Remark():
                self._find(fact.level, fact.message, fact.line or line)
            case NextRun():
                pass

    def _set(self, name: str, value: object, line: int) -> None:
        if isinstance(value, str) and not isinstance(value, MemoryKind):
            value = cleaned(value)[:_LONGEST]
        known = self._settings.setdefault(name, value)
        if known != value and name == "global_batch":
            self._once(f"the global batch changes from {known} to {value}", line)

    def _once(self, message: str, line: int) -> None:
        if not any(finding.message == message for finding in self._findings):
            self._find("warning", message, line)

    def _find(self, level: Any, message: str, line: int) -> None:
        if len(self._findings) < _MOST_FINDINGS:
            self._findings.append(Remark(level=level, message=cleaned(message), line=line))

    def _see(self, step: Step, rank: str, line: int) -> None:
        self._counts["lines"] += 1
        if known := self._recent.get(step.step):
            if _said(known[0]) == _said(step):
                self._counts["duplicates"] += 1
                return
            if known[1] != rank or (step.step in self._latest() and _alike(known[0], step)):
                self._counts["other ranks"] += 1
                return
            if step.step == self._last:
                self._counts["mixed"] += 1
                self._once("two lines of one step differ: the first counts", line)
                return
        if self._last is not None and step.step <= self._last:
            self._counts["restarts"] += 1
            self._segment += 1
            self._recent.clear()
            self._once(f"a restart at step {step.step}, after {self._last}", line)
        self._keep(step, rank, line)

    def _latest(self) -> list[int]:
        """Ranks of one run are a step apart at most; a restart goes back further."""
        return list(islice(reversed(self._recent), 2))

    def _keep(self, step: Step, rank: str, line: int) -> None:
        self._last = step.step
        self._recent[step.step] = (step, rank)
        if len(self._recent) > _REMEMBERED:
            self._recent.popitem(last=False)
        if self._pending and self._pending[-1].segment != self._segment:
            self._flush()
        self._pending.append(_Kept(step, self._segment, line))
        if len(self._pending) >= self._width:
            self._flush()

    def _flush(self) -> None:
        """Keep what is pending; once there is too much, twice as many lines are one."""
        if self._pending:
            self._kept.append(_mean(self._pending))
            self._pending = []
        if len(self._kept) >= MOST_STEPS:
            self._width *= 2
            self._kept = [
                _mean(pair)
                for segment in _by_segment(self._kept)
                for pair in (segment[at : at + 2] for at in range(0, len(segment), 2))
            ]

    def run(self, source: RecordSource, *, lines: int, given: Mapping[str, Any]) -> Run:
        """The run, with what options say of it beside what its log does."""
        self._flush()
        steps = [
            dataclasses.replace(one.step, segment=one.segment, line=one.line) for one in self._kept
        ]
        steps = _with_intervals(steps) if self._averages else steps
        said = {**self._settings, **given}
        fields = {one.name for one in dataclasses.fields(Run)}
        run = Run(
            source=source,
            steps=tuple(steps),
            evaluations=tuple(self._evaluations),
            parallel=_parallel(said),
            lines=lines,
            given=tuple(sorted(given)),
            findings=(*self._findings, *self._counted()),
            **{name: value for name, value in said.items() if name in fields},
        )
        return completed(run, said)

    def _counted(self) -> Iterable[Remark]:
        lines, mixed = self._counts["lines"], self._counts["mixed"] + self._counts["restarts"]
        for what, words in (("duplicates", "repeat"), ("other ranks", "are other ranks' of")):
            if count := self._counts[what]:
                message = f"{count} of {lines} lines {words} a step that is known"
                yield Remark(level="note", message=message)
        if mixed >= _FEWEST_MIXED and mixed > _MIXED_SHARE * lines:
            yield Remark(
                level="error",
                message=f"lines of several runs are mixed: {mixed} "
                f"of {lines} do not follow the one before",
            )
        if self._width > 1:
            message = f"more lines than are kept: each step is the mean of {self._width}"
            yield Remark(level="note", message=message)


def _alike(one: Step, other: Step) -> bool:
    """Whether two lines of a step are two ranks' of one run: all ranks have the same loss and
    gradients, and wait for each other.
    """
    if one.loss is None or (one.loss, one.grad_norm) != (other.loss, other.grad_norm):
        return False
    pairs = [
        (one.seconds, other.seconds),
        (one.tokens_per_second_per_device, other.tokens_per_second_per_device),
    ]
    return all(a and b and abs(a / b - 1) < _RANKS_DIFFER for a, b in pairs if a != b)


def _mean(kept: list[_Kept]) -> _Kept:
    """Neighbours as one, under the last one's number."""
    last = kept[-1]
    if len(kept) == 1:
        return last
    steps = [one.step for one in kept]
    known = [(step.seconds, step.steps) for step in steps if step.seconds is not None]
    weight = sum(each for _, each in known)
    seconds = sum(seconds * each for seconds, each in known) / weight if known else None
    count = sum(step.steps for step in steps)
    return last._replace(step=dataclasses.replace(last.step, steps=count, seconds=seconds))


def _by_segment(kept: list[_Kept]) -> list[list[_Kept]]:
    return [list(one) for _, one in groupby(kept, key=attrgetter("segment"))]


def _with_intervals(steps: list[Step]) -> list[Step]:
    """Lines every so many steps are each the mean of so many."""
    gaps = Counter(
        later.step - step.step for step, later in pairwise(steps) if later.segment == step.segment
    )
    usual = gaps.most_common(1)[0][0] if gaps else 1
    if usual <= 1 or any(step.steps > 1 for step in steps):
        return steps
    return [dataclasses.replace(step, steps=usual) for step in steps]


def _parallel(said: Mapping[str, Any]) -> Parallel:
    ways = {name: said.get(_OF_PARALLEL + name) for name in Parallel.__dataclass_fields__}
    return Parallel(**ways)


def completed(run: Run, said: Mapping[str, Any]) -> Run:
    """With what follows from other figures, and the names of what stays unknown."""
    vendor = run.vendor or vendor_of(run.device_name) or said.get("organisation")
    model = run.model or said.get("tokenizer")
    flags = (name for name in _PRECISIONS if said.get(f"is_{name}"))
    precision = run.precision or next(flags, None)
    run = dataclasses.replace(run, vendor=vendor, model=model, precision=precision)
    solved: list[str] = []
    findings = list(run.findings)
    sequence = solved_sequence(run)
    if sequence and run.sequence is None:
        run = dataclasses.replace(run, sequence=sequence)
        solved.append("sequence")
    elif sequence and run.sequence and abs(sequence / run.sequence - 1) > _CHECKED:
        message = f"its tokens/s fit a sequence of {sequence}, and it says {run.sequence}"
        findings.append(Remark(level="warning", message=message))
    steps = tuple(_filled(step, run) for step in run.steps)
    missing = tuple(name for name in WANTED if getattr(run, name) is None)
    return dataclasses.replace(
        run, steps=steps, solved=tuple(solved), findings=tuple(findings), missing=missing
    )


def solved_sequence(run: Run) -> int | None:
    """tokens/s/device * seconds * devices / batch, where that is a whole number."""
    if not run.devices or not run.global_batch:
        return None
    found = [
        step.tokens_per_second_per_device * step.seconds * run.devices / run.global_batch
        for step in run.steps
        if step.tokens_per_second_per_device and step.seconds
    ]
    if not found:
        return None
    middle = median(found)
    near = round(middle)
    return near if near and abs(middle / near - 1) < _WHOLE else None


def _filled(step: Step, run: Run) -> Step:
    """Time from rate and rate from time, where batch, sequence and devices are known."""
    batch, sequence, devices = run.global_batch, run.sequence, run.devices
    seconds, tokens = step.seconds, step.tokens_per_second_per_device
    if batch and sequence and devices:
        per_device = batch * sequence / devices
        seconds = seconds or (per_device / tokens if tokens else None)
        tokens = tokens or (per_device / seconds if seconds else None)
    rate = step.samples_per_second
    if batch and not rate and seconds:
        rate = batch / seconds
    return dataclasses.replace(
        step, seconds=seconds, tokens_per_second_per_device=tokens, samples_per_second=rate
    )
