"""The rule catalogue, read from one file for each rule (`data/rules/<ID>.toml`). Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from warpfront_port.scan.findings import Consequence, Severity
from warpfront_port.scan.targets import CLASSES, ScanTarget

ENGINES = ("python", "cuda", "structured", "scanner")
_NAMES = ("imports", "dotted", "environment", "environment_prefixes", "distributions")
_OF_CODE = (
    *("names", "twinless", "families", "headers"),
    *("once", "once_a_file", "call", "scope", "shift"),
)
_SEEN: Final = frozenset((*_NAMES, *_OF_CODE))
_AS_WRITTEN = ("title", "phase", "message", "why", "fix")
_FIELDS = {*_AS_WRITTEN, "engines", "severity", "sources", "consequence"}
_FLAGS = ("structural", "of_amd", "of_a_package", "unless_named", "cause_by_name")
_OPTIONAL = {*_FLAGS, "seen", "detectors"}
_SEVERITIES = frozenset(Severity)
# From here on a file is for tests: a third of the text, for which a scan does not wait.
_FOR_TESTS = "\n[examples]\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A construct that does not carry over to another vendor.

    `severities` maps a target or a class of targets (`gfx942`, `wave64`, `wave32`, `gfx12`, `rocm`,
    `hpu`, `cpu`) to a severity. `message` describes the problem in one line, with `{what}` for the
    matched code. `phase` (0 to 8) is the step of a port that deals with it. `structural` rules are
    about files that no condition guards, so gates do not apply to them. `of_amd` rules are about
    code that is written for AMD; AMD's own arm does not make it worse. `consequence` is the effect
    of an error. Findings of a `cause_by_name` rule have one cause for each name; those of other
    rules share one cause. `of_a_package` rules are about an import or a program: an optional one is
    a note. An `unless_named` rule has no finding in a file that names the target. `sources` are the
    references of the claims: public places, or files of torch with its version.

    `seen` are the names that are enough for a match. In Python these are `imports` (packages and
    modules, as they are imported) and `dotted` names. A dotted name is matched after imports are
    followed, and covers the names below it. `environment` and `environment_prefixes` match
    variables that are written. `distributions` match requirements (normalised; a final `*` matches
    any ending). In C++ and CUDA they are whole `names`, expressions over one name (`families`) or
    the path in an `#include` (`headers`). The other fields there are those of `NameRow`.
    `detectors` are the modules, below this package, with code that matches. A rule has at least one
    of names and code.
    """

    id: str
    title: str
    engines: tuple[str, ...]
    phase: int
    consequence: Consequence
    severities: Mapping[str, Severity]
    message: str
    why: str
    fix: str
    sources: tuple[str, ...]
    structural: bool = False
    of_amd: bool = False
    of_a_package: bool = False
    unless_named: bool = False
    cause_by_name: bool = False
    seen: tuple[Mapping[str, Any], ...] = ()
    detectors: tuple[str, ...] = ()

    def severity_for(self, target: ScanTarget) -> Severity:
        """Return the severity of the narrowest class of `target` in this rule; none if none."""
        return self.severities.get(self._class_of(target), Severity.NONE)

    def is_about_device(self, target: ScanTarget) -> bool:
        """Return true if a class of devices decides the severity, not the vendor or toolkit."""
        deciding = self._class_of(target)
        return bool(deciding) and not deciding.startswith("rocm")

    def _class_of(self, target: ScanTarget) -> str:
        return next((name for name in target.classes if name in self.severities), "")


def rules_by_name(kind: str) -> Mapping[str, str]:
    """Return rules by name, for one of the fields of `seen` that are lists of names."""
    if kind not in _NAMES:
        raise ValueError(f"no names {kind!r}")
    rules = catalogue().values()
    return {name: rule.id for rule in rules for row in rule.seen for name in row.get(kind, ())}


@cache
def catalogue() -> Mapping[str, Rule]:
    """Return every rule by id, in the order of ids. Raises `ValueError` for an invalid file."""
    folder = resources.files("warpfront_port").joinpath("data", "rules")
    files = [file for file in folder.iterdir() if file.name.endswith(".toml")]
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    rules = (read_rule(text, name) for name, text in sorted(texts.items()))
    return MappingProxyType({rule.id: rule for rule in rules})


def read_rule(text: str, name: str) -> Rule:
    """Return the rule in the file `name` of the catalogue, without its examples and its proof.

    Raises `ValueError`, with the file's name, where the file is not a rule.
    """
    if re.fullmatch(r"[A-Z]{2}\d{3}\.toml", name) is None:
        raise _wrong(name, "has no rule's id for its name, like PY019.toml")
    try:
        record = tomllib.loads(text.partition(_FOR_TESTS)[0])
    except tomllib.TOMLDecodeError as error:
        raise _wrong(name, f"is no TOML: {error}") from error
    if record.keys() - _OPTIONAL != _FIELDS:
        odd = sorted(_FIELDS ^ (record.keys() - _OPTIONAL))
        raise _wrong(name, f"has missing or unknown fields: {', '.join(odd)}")
    if not record.get("seen") and not record.get("detectors"):
        raise _wrong(name, "has neither names (seen) nor code (detectors) to be found by")
    if not set(engines := tuple(record["engines"])) <= set(ENGINES):
        raise _wrong(name, f"names an engine that is none: {engines}")
    if record["consequence"] not in frozenset(Consequence):
        raise _wrong(name, f"has a consequence that is none: {record['consequence']!r}")
    return Rule(
        id=name.removesuffix(".toml"),
        consequence=Consequence(record["consequence"]),
        engines=engines,
        severities=_read_severities(record["severity"], name),
        sources=tuple(record["sources"]),
        seen=_read_seen(record.get("seen", ()), name),
        detectors=tuple(record.get("detectors", ())),
        **{field: record[field] for field in _AS_WRITTEN},
        **{flag: record.get(flag, False) for flag in _FLAGS},
    )


def _read_seen(records: Iterable[Mapping[str, Any]], name: str) -> tuple[Mapping[str, Any], ...]:
    if odd := sorted({key for record in records for key in record} - _SEEN):
        raise _wrong(name, f"sees by what is unknown: {', '.join(odd)}")
    return tuple(MappingProxyType(dict(record)) for record in records)


def _read_severities(record: Mapping[str, str], name: str) -> Mapping[str, Severity]:
    for target, word in record.items():
        valid = target in CLASSES or target.startswith(("gfx", "gaudi"))
        if not valid or word not in _SEVERITIES:
            raise _wrong(name, f"has a severity that is none: {target} = {word!r}")
    return MappingProxyType({target: Severity(word) for target, word in record.items()})


def _wrong(name: str, message: str) -> ValueError:
    """Return the error for an invalid rule file: a bug, as the catalogue ships with the program."""
    return ValueError(f"data/rules/{name} {message}")
