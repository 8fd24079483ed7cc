"""Formats that are data: one TOML file each, in `warpfront/data/logs/`. Pure.

A file declares the lines of its format (`[[step]]`, `[[setting]]`) or its `[document]`, and the
field of each name in them (`[names]`, or patterns of names, `[matching]`). Its `sources` name the
program that prints them: repository, file and commit.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import BeforeValidator

from warpfront.bench.logs.facts import SERVING, Fact, Format, LoggedStep, NextRun, Setting, Unused
from warpfront.bench.logs.fields import (
    is_no_number,
    json_object,
    precision_of,
    rank_of,
    scaled,
    size_bytes,
    vendor_of,
)
from warpfront.bench.records import MemoryKind, Run, Step
from warpfront.system.packaged import packaged_toml
from warpfront.system.strict_values import read_as, strict_dataclass


def _fields(record: type, *types: str) -> set[str]:
    """Return the fields of a record that have one of these types."""
    return {field.name for field in dataclasses.fields(record) if field.type in types}


_COUNTS = _fields(Step, "int", "int | None") - {"line", "segment"}
_STEP_FIELDS = _COUNTS | _fields(Step, "float | None", "Divisor | None")
_POSITION = {"step", "count", "part", "epoch", "total", "elapsed", "step_tokens"}
"""Fields that place a line: an exact step, the line's own count, ..."""
_TEXTS = {*_fields(Run, "str | None"), "tokenizer"}
_REALS = _fields(Run, "float | None", "Divisor | None")
_SETTINGS = _REALS | _fields(Run, "int | None")
_TIMES = {"seconds", "samples_per_second", "tokens_per_second", "tokens_per_second_per_device"}
_KNOWN = _STEP_FIELDS | _POSITION | _TEXTS | _SETTINGS
_FAMILIES = ("parallel.", SERVING)
_FLAG = "is_"
_UNSET = {"", "None", "null", "False", "false", "0", "no"}
_LARGEST = 2**62
_DIGITS = 100
_LOOKS_MEASURED = re.compile(
    r"tok|loss(?! scale)|/s\b|/sec|per.sec|throughput|flops?\b|\btime|tps|samples", re.IGNORECASE
)
_CLOCK = re.compile(r"(?:(\d{1,4}) days?, )?(?:(\d{1,4}):)?(\d{1,2}):(\d{2}(?:\.\d{1,6})?)")
_PART = "part"
"""The unit of names whose values add up to their field."""
_ANYWHERE = re.compile("^")
_SCALES = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9, "tera": 1e12, "giga": 1e9, "GiB": 2.0**30}


def _clock(text: str) -> float | None:
    """Return the seconds of `9 days, 1:02:03` or `02:03`."""
    if clock := _CLOCK.match(text.strip()):
        days, hours, minutes = (int(part or 0) for part in clock.groups()[:3])
        return ((days * 24 + hours) * 60 + minutes) * 60 + float(clock[4])
    return None


def _inverse(text: str) -> float | None:
    value = scaled(text)
    return 1 / value if value else None


_UNITS: Mapping[str, Callable[[str], float | None]] = {
    "clock": _clock,
    # tqdm's `1.25s/it` and `3.10it/s`
    "per_iteration": lambda text: scaled(text) if "s/" in text else _inverse(text),
    "inverse": _inverse,
    "size": size_bytes,
    "exact": lambda text: None if "e" in text else scaled(text),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """The field that a name means, and the unit of its text."""

    field: str
    unit: str

    def value(self, text: str) -> float | None:
        if self.unit in _UNITS:
            return _UNITS[self.unit](text)
        value = scaled(text)
        return value if value is None else value * _SCALES.get(self.unit, 1.0)


Named = Annotated[Target, BeforeValidator(lambda text: Target(*text.partition(" ")[::2]))]


@strict_dataclass
class LineRule:
    """A kind of line: the texts that it `has`, and the pattern it begins with.

    Names and values follow, between `split`s with a `sign` between the two, or as `pairs` finds
    them. A `block` line belongs to the step of the line before. A `quiet` line alone does not
    identify the format. A `bar` is printed again and again, of one total; a `redrawn` line has any
    total, and the last drawing of a step counts. `offset` is added to a line's count. A setting's
    line that is the format's `own` identifies it like a step's; one that `opens` another run does.
    """

    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    begin: re.Pattern[str] | None = None
    pairs: re.Pattern[str] | None = None
    split: str = ""
    sign: str = ":"
    block: bool = False
    quiet: bool = False
    bar: bool = False
    redrawn: bool = False
    opens: bool = False
    own: bool = False
    offset: int = 0
    sets: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def applies(self, line: str) -> bool:
        for text in self.has:  # a loop, because most lines fail at its first turn
            if text not in line:
                return False
        return not any(text in line for text in self.lacks)

    def beginnings(self, line: str) -> Iterable[re.Match[str]]:
        """Return the places where the rule's pattern is found in a line that it applies to."""
        return (self.begin or _ANYWHERE).finditer(line) if self.applies(line) else ()

    def named(self, beginning: re.Match[str], end: int) -> dict[str, str]:
        """Return the names with their values, from a beginning to the next one."""
        groups = {name: text for name, text in beginning.groupdict().items() if text is not None}
        body = groups.pop("fields", beginning.string[beginning.end() : end])
        return {**self._pairs(body), **groups}

    def _pairs(self, body: str) -> dict[str, str]:
        if self.pairs is not None:
            pairs = (match.groupdict() for match in self.pairs.finditer(body))
            return {pair["name"].strip(): pair["value"] or pair.get("text") or "" for pair in pairs}
        if not self.split:
            return {}
        pieces = (piece.rstrip() for piece in body.split(self.split))
        halves = (piece.rpartition(self.sign if self.sign in piece else " ") for piece in pieces)
        return {" ".join(name.split()): value.strip() for name, _, value in halves if name}


PLAIN = LineRule()


@strict_dataclass
class DocumentRule:
    """A JSON object that has one of `keys`, with facts of the run and of its steps.

    A step is an object of the list `rows`, or one value of each list in `columns`; a column with a
    single value has it in every step. `path` finds names in the path of the file.
    """

    keys: tuple[str, ...] = ()
    rows: str = ""
    columns: tuple[str, ...] = ()
    path: re.Pattern[str] | None = None

    def steps(self, document: Mapping[str, Any]) -> Iterator[dict[str, str]]:
        rows = document.get(self.rows)
        yield from (_plain(row) for row in _list(rows) if isinstance(row, dict))
        columns = {name: document[name] for name in self.columns if name in document}
        for index in range(max((len(_list(values)) for values in columns.values()), default=0)):
            row = {
                name: values[index] if isinstance(values, list) else values
                for name, values in columns.items()
                if not isinstance(values, list) or index < len(values)
            }
            yield {"step": str(index + 1), **_plain(row)}


@strict_dataclass
class Declaration:
    """The file of one format. `matching` is by patterns of names, those with a `*` among them."""

    sources: tuple[str, ...] = ()
    extends: str = ""
    step: tuple[LineRule, ...] = ()
    setting: tuple[LineRule, ...] = ()
    document: DocumentRule = DocumentRule()
    names: Mapping[str, Named] = dataclasses.field(default_factory=dict)
    matching: Mapping[re.Pattern[str], Named] = dataclasses.field(default_factory=dict)
    ignored: tuple[re.Pattern[str], ...] = ()
    fallback: bool = False
    averages: bool = False

    def target(self, name: str) -> Target | None:
        default = Target(name, "") if name in _KNOWN else None
        matching = (to for pattern, to in self.matching.items() if pattern.search(name))
        target = self.names.get(name) or next(matching, default)
        return target if target and target.field else None

    def is_unused(self, name: str) -> bool:
        """Return whether a name looks like a measurement that no rule reads."""
        return (
            name not in self.names
            and _LOOKS_MEASURED.search(name) is not None
            and not any(pattern.search(name) for pattern in self.ignored)
        )

    def marks(self, text: str) -> bool:
        if self.document.keys:
            document = json_object(text)
            return any(key in document for key in self.document.keys)
        settings = (rule for rule in self.setting if rule.opens or rule.own)
        rules = (rule for rule in (*self.step, *settings) if not rule.quiet)
        return any(True for rule in rules for _ in rule.beginnings(text))

    def pieces(self, line: str) -> Iterator[tuple[LineRule, str, dict[str, str]]]:
        """Yield the rule, the text before and the names of each step's piece of a line.

        Where two rules begin at one place, the first declared has it.
        """
        matches = ((rule, match) for rule in self.step for match in rule.beginnings(line))
        pieces: list[tuple[LineRule, re.Match[str]]] = []
        for rule, match in sorted(matches, key=lambda piece: piece[1].start()):
            if not pieces or match.start() >= pieces[-1][1].end():
                pieces.append((rule, match))
        ends = [*(match.start() for _, match in pieces[1:]), len(line)]
        for (rule, match), end in zip(pieces, ends, strict=False):
            yield rule, line[: match.start()], rule.named(match, end)


def declared(name: str) -> Format:
    """Return the format of `data/logs/NAME.toml`."""
    declaration = read_declaration(name)
    return Format(
        name=name,
        marks=declaration.marks,
        reader=lambda path: DeclaredReader(declaration, path).read,
        is_document=bool(declaration.document.keys),
        fallback=declaration.fallback,
        averages=declaration.averages,
    )


@cache
def read_declaration(name: str) -> Declaration:
    """Return `data/logs/NAME.toml`."""
    document = packaged_toml("logs", f"{name}.toml")
    if "extends" in document:
        # A variant: its own step lines before those of the format it extends, which are quiet.
        base = packaged_toml("logs", f"{document['extends']}.toml")
        quiet = ({**rule, "quiet": True} for rule in base.get("step", ()))
        document = {**base, **document, "step": [*document.get("step", ()), *quiet]}
    names: Mapping[str, str] = document.get("names", {})
    patterns = {key: ".*".join(map(re.escape, key.split("*"))) for key in names if "*" in key}
    starred = {f"^{pattern}$": names[key] for key, pattern in patterns.items()}
    document["names"] = {key: to for key, to in names.items() if "*" not in key}
    document["matching"] = {**starred, **document.get("matching", {})}
    return read_as(Declaration, document)


class DeclaredReader:
    """Reads by one declaration. Remembers the last step, its clock and the bar's total."""

    def __init__(self, declaration: Declaration, path: str = "") -> None:
        self._format, self._path = declaration, path
        self._anchor: int | None = None
        self._at: tuple[int, float] | None = None
        self._total: float | None = None
        self._epochs = 0.0
        self._blocks = 0

    def read(self, text: str) -> Iterable[Fact]:
        if self._format.document.keys:
            document = json_object(text)
            inner = {}
            for outer, entries in document.items():
                for name, value in entries.items() if isinstance(entries, dict) else ():
                    inner[f"{outer}.{name}"] = value
            yield from self._document(self._format.document, {**document, **inner})
            return
        is_read = False
        for rule, before, named in self._format.pieces(text):
            is_read = True
            yield from self.line(rule, named, rank_of(before))
        for rule in () if is_read else self._format.step:
            if rule.applies(text) and not rule.quiet:
                yield Unused(f"lines with {rule.has[0]!r} in another form")
        for rule in self._format.setting:
            beginnings = list(rule.beginnings(text))
            ends = [*(beginning.start() for beginning in beginnings[1:]), len(text)]
            for beginning, end in zip(beginnings, ends, strict=False):
                yield from self.settings(rule.named(beginning, end), rule)

    def _document(self, rule: DocumentRule, document: Mapping[str, Any]) -> Iterator[Fact]:
        """Yield the facts of a document, in the order of the declared names: the first stays."""
        plain = _plain(document)
        if in_path := rule.path and rule.path.search(self._path):
            plain |= in_path.groupdict()
        ordered = dict.fromkeys((*self._format.names, *plain))
        yield from self.settings({name: plain[name] for name in ordered if name in plain})
        for row in rule.steps(document):
            yield from self.line(LineRule(block=bool(rule.rows)), row, "")

    def settings(self, named: Mapping[str, str], rule: LineRule = PLAIN) -> Iterator[Fact]:
        if rule.opens:
            yield NextRun()
        for field, value in rule.sets.items():
            yield Setting(field, value)
        if "name" in named and "value" in named:
            named = {named["name"]: named["value"]}
        for name, text in named.items():
            if target := self._format.target(name):
                for fact in self._setting(target, text):
                    yield dataclasses.replace(fact, word=name)

    def _setting(self, target: Target, text: str, *, firm: bool = False) -> Iterator[Setting]:
        """Yield the facts of the run that a name sets. Remember epochs and number of steps."""
        name, is_set = target.field, text.strip() not in _UNSET
        if name == "is_valid":
            yield Setting("succeeded", value=text.strip() == "VALID")
        elif name.startswith(_FLAG):
            yield from (Setting(name, value=True),) if is_set else ()
        elif name == "precision":
            precision = precision_of(text) if is_set else None
            yield from (Setting(name, precision),) if precision else ()
        elif name in _TEXTS:
            yield from _named(name, text) if is_set else ()
        elif name == "epochs":
            epochs = target.value(text) or 0.0
            self._epochs = epochs if epochs < _LARGEST else 1.0  # Trainer's word for a stream
        elif name in _SETTINGS or name.startswith(_FAMILIES):
            value = target.value(text)
            if value is None or not 0 < value < _LARGEST:
                return
            if name == "total_steps":
                self._total = round(value)
            is_real = name in _REALS or name.startswith(SERVING)
            yield Setting(name, value if is_real else round(value), firm)

    def line(self, rule: LineRule, named: Mapping[str, str], rank: str) -> Iterator[Fact]:
        """Yield the facts of one step's line: settings, its step, and unread names."""
        figures: dict[str, float] = {}
        is_no_loss = False
        for field, value in rule.sets.items():
            yield Setting(field, value)
        for name, text in named.items():
            target = self._format.target(name)
            if target is None:
                if self._format.is_unused(name):
                    yield Unused(f"field {name!r}")
            elif target.field in _STEP_FIELDS | _POSITION:
                value = target.value(text)
                is_no_loss = is_no_loss or (target.field == "loss" and is_no_number(text))
                if value is not None and abs(value) < _LARGEST:
                    # Parts add up; of other names of one field, the first counts.
                    part = figures.pop(target.field, None) if target.unit == _PART else None
                    figures.setdefault(target.field, value if part is None else part + value)
                    if target.field == "memory_bytes":
                        words = name.lower()
                        kind = MemoryKind.DEVICE
                        if "reserv" in words or words == "memory":
                            kind = MemoryKind.RESERVED
                        elif "alloc" in words or "peak" in words or "active" in words:
                            kind = MemoryKind.ALLOCATED
                        yield Setting("memory_kind", kind)
                        if "hip" in words:  # ROCm builds have names with `cuda`, too
                            yield Setting("vendor", "amd")
            else:
                yield from self._setting(target, text, firm=True)
        step = self._position(rule, figures)
        if step is not None:
            yield from self._logged(rule, step, figures, rank, is_no_loss=is_no_loss)

    def _position(self, rule: LineRule, figures: dict[str, float]) -> int | None:
        """Return the step of a line: its own, by epoch and count, or that of the line before."""
        count, total, epoch = (figures.pop(name, None) for name in ("count", "total", "epoch"))
        step = figures.pop("step", None)
        if step is None and count is not None:
            step = max((epoch or 0) * (total or 0) + count + rule.offset, 0)
        if rule.bar:
            self._total = self._total or total
            if total != self._total or step == self._anchor:
                return None
        if step is None and rule.block:
            self._blocks += 1
            step = self._anchor
            if self._total and self._epochs:
                by_epoch = None if epoch is None else round(epoch / self._epochs * self._total)
                # A line may stand before its step's bar; epochs have two digits.
                is_next = step is not None and by_epoch == step + 1
                if step is None or (is_next and self._total <= _DIGITS * self._epochs):
                    step = by_epoch
            elif step is None:
                step = self._blocks
        if step is None or not 0 <= step < _LARGEST:
            return None
        self._anchor = self._anchor if rule.block else int(step)
        return int(step)

    def _logged(
        self, rule: LineRule, step: int, figures: dict[str, float], rank: str, *, is_no_loss: bool
    ) -> Iterator[Fact]:
        """Yield the step, unless its line, cut or of another kind, has no time of its own."""
        elapsed, part = figures.pop("elapsed", None), figures.pop("part", None)
        block = rule.block or elapsed is not None
        if (tokens := figures.pop("step_tokens", None)) and "seconds" in figures:
            figures.setdefault("tokens_per_second", tokens / figures["seconds"])
        if elapsed is not None:
            if self._at and step == self._at[0] and "seconds" not in figures:
                yield Unused("further lines of a step")
                return
            if self._at and step > self._at[0]:
                figures["steps"] = step - self._at[0]
                if elapsed > self._at[1]:
                    figures.setdefault("seconds", (elapsed - self._at[1]) / figures["steps"])
            self._at = step, elapsed
        printed: dict[str, Any] = {
            name: round(value) if name in _COUNTS else value
            for name, value in figures.items()
            if value > 0 or name in {"loss", "grad_norm", "skipped", "nan"}
        }
        if is_no_loss:
            printed["nan"] = 1
        if not block and (printed or rule.split or rule.pairs) and not printed.keys() & _TIMES:
            yield Unused("lines of a step without a time")
        elif printed.keys() - {"steps"}:
            number = None if part is None else int(part)
            yield LoggedStep(Step(step=step, **printed), rank, number, rule.redrawn)


def _plain(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures and texts of a JSON object, as text."""
    return {str(k): str(v) for k, v in document.items() if isinstance(v, int | float | str)}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _named(name: str, text: str) -> Iterator[Setting]:
    """Yield a text about the run, and the vendor that a device's name implies."""
    if name == "request_rate":
        rate = scaled(text)
        yield Setting(name, "inf" if rate is None else f"{rate:g}")
    elif name != "vendor":
        yield Setting(name, text.strip().removesuffix(".yaml"))
    if name in {"vendor", "device_name"} and (vendor := vendor_of(text)):
        yield Setting("vendor", vendor)
