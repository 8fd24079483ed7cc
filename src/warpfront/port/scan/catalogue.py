"""The rule catalogue: one record a rule, in `data/rules/*.toml`, and its one reader. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from warpfront.port.scan.findings import Severity
from warpfront.port.scan.targets import CLASSES, ScanTarget

ENGINES = ("python", "cuda", "structured", "scanner")
_NAMES = ("imports", "dotted", "environment", "environment_prefixes", "distributions")
_OF_CODE = ("names", "families", "headers", "once", "once_a_file", "call", "scope", "shift")
_SEEN: Final = frozenset((*_NAMES, *_OF_CODE))
_FIELDS = {"title", "engines", "phase", "severity", "message", "why", "fix", "sources"}
_FLAGS = ("structural", "of_amd", "of_a_folder", "of_a_package", "despite_a_port", "unless_named")
_OPTIONAL = {*_FLAGS, "seen"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that does not carry over.

    `severities` maps a target or a class of targets (`gfx942`, `wave64`, `wave32`, `gfx12`, `rocm`,
    `hpu`, `cpu`) to a severity. `message` says what is wrong in one line, with `{what}` for the
    code it is about. `phase` (0 to 8) is the step of a port that deals with it. `structural` rules
    are about files that no condition guards: gates do not touch them. `of_amd` rules are about code
    that is written for AMD: in AMD's own arm it is no worse than elsewhere. What `of_a_folder`
    rules say is one fact of a folder, said at its first place there. `of_a_package` rules are about
    an import or a program: one that may be missing is a note. What a port shows to work is a note,
    but of rules that hold `despite_a_port`: it was built for other targets, for another ROCm, is
    not finished, imports what nobody builds for AMD, or is wrong without a word. A file that names
    the target asked for has no finding of an `unless_named` rule. Where a claim comes from is in
    `sources`: public places, or files of torch with its version.

    `seen` are the names that are all it takes to see it. In Python `imports` (packages and
    modules, as they are imported), `dotted` names, imports followed (one covers what is below
    it), variables of the `environment` that are written, and `environment_prefixes`; of what is
    required `distributions` (normalised, `*` at the end for whatever follows); in C++ and CUDA
    whole `names`, and expressions over one name (`families`) or the path in an `#include`
    (`headers`), with the rest of `NameRow`'s fields.
    """

    id: str
    title: str
    engines: tuple[str, ...]
    phase: int
    severities: Mapping[str, Severity]
    message: str
    why: str
    fix: str
    sources: tuple[str, ...]
    structural: bool = False
    of_amd: bool = False
    of_a_folder: bool = False
    of_a_package: bool = False
    despite_a_port: bool = False
    unless_named: bool = False
    seen: tuple[Mapping[str, Any], ...] = ()

    def severity_for(self, target: ScanTarget) -> Severity:
        """The severity of the narrowest class of `target` that this rule names; none if none."""
        for name in target.classes:
            if name in self.severities:
                return self.severities[name]
        return Severity.NONE


def rules_by_name(kind: str) -> Mapping[str, str]:
    """Name to rule, for one of the ways of `seen` that are lists of names."""
    if kind not in _NAMES:
        raise ValueError(f"no names {kind!r}")
    rules = catalogue().values()
    return {name: one.id for one in rules for row in one.seen for name in row.get(kind, ())}


@cache
def catalogue() -> Mapping[str, Rule]:
    """Every rule by id, in the order of ids. Raises `ValueError` for a record that is not one."""
    folder = resources.files("warpfront").joinpath("data", "rules")
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".toml")),
        key=lambda file: file.name,
    )
    rules: dict[str, Rule] = {}
    for file in files:
        for rule in read_rules(file.read_text(encoding="utf-8"), file.name):
            if rule.id in rules:
                raise _wrong(file.name, rule.id, "is defined twice")
            rules[rule.id] = rule
    return MappingProxyType(dict(sorted(rules.items())))


def read_rules(text: str, name: str) -> tuple[Rule, ...]:
    """The rules of one file of the catalogue, in its order."""
    document = tomllib.loads(text)
    return tuple(_read_rule(rule_id, record, name) for rule_id, record in document.items())


def _read_rule(rule_id: str, record: Mapping[str, Any], name: str) -> Rule:
    if record.keys() - _OPTIONAL != _FIELDS:
        odd = sorted(_FIELDS ^ (record.keys() - _OPTIONAL))
        raise _wrong(name, rule_id, f"has missing or unknown fields: {', '.join(odd)}")
    engines = tuple(record["engines"])
    if not set(engines) <= set(ENGINES):
        raise _wrong(name, rule_id, f"names an engine that is none: {engines}")
    return Rule(
        id=rule_id,
        title=record["title"],
        engines=engines,
        phase=record["phase"],
        severities=_read_severities(record["severity"], rule_id, name),
        message=record["message"],
        why=record["why"].strip(),
        fix=record["fix"].strip(),
        sources=tuple(record["sources"]),
        seen=_read_seen(record.get("seen", ()), rule_id, name),
        **{flag: record.get(flag, False) for flag in _FLAGS},
    )


def _read_seen(
    records: Iterable[Mapping[str, Any]], rule_id: str, name: str
) -> tuple[Mapping[str, Any], ...]:
    if odd := sorted({key for record in records for key in record} - _SEEN):
        raise _wrong(name, rule_id, f"sees by what is unknown: {', '.join(odd)}")
    return tuple(MappingProxyType(dict(record)) for record in records)


def _read_severities(record: Mapping[str, str], rule_id: str, name: str) -> Mapping[str, Severity]:
    for target, word in record.items():
        known = target in CLASSES or target.startswith(("gfx", "gaudi"))
        if not known or word not in set(Severity):
            raise _wrong(name, rule_id, f"has a severity that is none: {target} = {word!r}")
    return MappingProxyType({target: Severity(word) for target, word in record.items()})


def _wrong(name: str, rule_id: str, message: str) -> ValueError:
    """The catalogue ships with the program: a wrong record is a bug, not somebody's input."""
    return ValueError(f"{name}: rule {rule_id} {message}")
