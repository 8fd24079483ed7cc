"""The engine for each kind of file, and one call that scans one file for one target. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from warpfront_port.scan import cuda, languages, notebooks, python, structured
from warpfront_port.scan.catalogue import catalogue
from warpfront_port.scan.findings import Context, Match, SourceText
from warpfront_port.scan.isolation import isolation_rule_matches
from warpfront_port.scan.severities import Judged, judge
from warpfront_port.scan.targets import ScanTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The inputs of one scan: the target, and the context for engines.

    `before` is the root of the tree that this one is an edit of, "" where it is none.
    """

    target: ScanTarget
    context: Context
    before: str = ""


def is_read(path: PurePosixPath) -> bool:
    """Return true if any engine reads files of this name."""
    return any(engine.reads(path) for engine in (python, cuda, structured, notebooks))


def scan_source(source: SourceText, scope: Scope, before: SourceText | None = None) -> Judged:
    """Return one file's findings, with its changes for NVIDIA if it is an edit of `before`.

    A file nested too deeply to be parsed is a finding, not a crash.
    """
    try:
        edited = isolation_rule_matches(before, source) if before is not None else ()
        source, matches = _seen(source, scope.context)
        matches = (*matches, *edited)
    except RecursionError:
        matches = (Match(rule="SC003", start=0, end=0, excerpt="nested too deeply"),)
    evidence = scope.context.evidence.get(str(source.path))
    return judge(source, matches, scope.target, catalogue(), evidence=evidence)


def _seen(source: SourceText, context: Context) -> tuple[SourceText, tuple[Match, ...]]:
    if notebooks.reads(source.path):
        try:
            source, broken = notebooks.as_python(source)
        except ValueError as error:
            return source, (Match(rule="SC003", start=0, end=0, excerpt=str(error)),)
        return source, (*broken, *python.rule_matches(source, context))
    matches: list[Match] = []
    if python.reads(source.path):
        matches += python.rule_matches(source, context, cuda.rule_matches)
    if cuda.reads(source.path):
        matches += cuda.rule_matches(source, context)
    if structured.reads(source.path):
        matches += structured.rule_matches(source)
    if not is_read(source.path):
        matches += languages.rule_matches(source)
    return source, tuple(matches)
