"""Every rule sees what it is about, passes over what only looks like it, and knows its gate.

The examples are data: tests/scan/*.toml. What the scanner says of each is a golden per rule.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from warpfront.port.scan.catalogue import catalogue
from warpfront.port.scan.engines import Scope, scan_source
from warpfront.port.scan.findings import Context, Finding, Gate, Severity, SourceText
from warpfront.port.scan.severities import Judged
from warpfront.port.scan.targets import read_target

FOLDER = Path(__file__).parents[2] / "scan"
FILES = ("python.toml", "structured.toml", "scanner.toml")
KINDS = ("hit", "near", "gated")
LEVELS = tuple(Severity)


def read_examples() -> Mapping[str, Mapping[str, Any]]:
    documents = [tomllib.loads((FOLDER / name).read_text()) for name in FILES]
    return {rule: example for document in documents for rule, example in document.items()}


EXAMPLES = read_examples()


def judged(rule: str, kind: str) -> Judged:
    example = EXAMPLES[rule]
    target = example.get(f"{kind}_target", example.get("target", "gfx942"))
    path = example.get(f"{kind}_path", example.get("path", "module.py"))
    source = SourceText(path=PurePosixPath(path), text=example[kind])
    scope = Scope(target=read_target(target), rules=catalogue(), context=Context())
    return scan_source(source, scope)


def of_rule(rule: str, kind: str) -> list[Finding]:
    return [finding for finding in judged(rule, kind).findings if finding.rule == rule]


def worst(findings: list[Finding]) -> int:
    return max((LEVELS.index(finding.severity) for finding in findings), default=0)


def test_every_rule_has_a_hit_a_near_miss_and_a_gated_example() -> None:
    ours = {rule.id for rule in catalogue().values() if set(rule.engines) != {"cuda"}}
    ours -= {"PY058"}  # about two trees: test_scan_isolation.py
    assert ours - EXAMPLES.keys() == set()
    assert EXAMPLES.keys() <= catalogue().keys()
    incomplete = [
        rule for rule, example in EXAMPLES.items() if not all(kind in example for kind in KINDS)
    ]
    assert incomplete == []


@pytest.mark.parametrize("rule", EXAMPLES)
def test_a_rule_sees_what_it_is_about(rule: str) -> None:
    assert of_rule(rule, "hit")


@pytest.mark.parametrize("rule", EXAMPLES)
def test_a_rule_passes_over_what_only_looks_like_it(rule: str) -> None:
    assert of_rule(rule, "near") == []


@pytest.mark.parametrize("rule", EXAMPLES)
def test_a_gate_takes_a_finding_away_or_weakens_it(rule: str) -> None:
    gated = of_rule(rule, "gated")
    weaker = worst(gated) < worst(of_rule(rule, "hit"))
    assert weaker or (gated and all(finding.gate is not Gate.OPEN for finding in gated))


@pytest.mark.parametrize("rule", EXAMPLES)
def test_a_hit_stays_one_when_its_line_moves(rule: str) -> None:
    example = EXAMPLES[rule]
    path = PurePosixPath(example.get("path", "module.py"))
    target = read_target(example.get("target", "gfx942"))
    scope = Scope(target=target, rules=catalogue(), context=Context())
    moved = scan_source(SourceText(path=path, text=f"\n\n{example['hit']}"), scope).findings
    before = {finding.fingerprint for finding in of_rule(rule, "hit")}
    assert before <= {finding.fingerprint for finding in moved}


@pytest.mark.parametrize("rule", EXAMPLES)
def test_what_is_said_of_the_examples_is_reviewed(rule: str, golden: Any) -> None:
    lines = []
    for kind in KINDS:
        result = judged(rule, kind)
        lines.append(f"{kind}: {result.suppressed} suppressed")
        lines += [
            f"  {finding.line}:{finding.column}-{finding.end_line}:{finding.end_column}"
            f" {finding.severity} {finding.rule} {finding.message} [{finding.gate}]"
            for finding in result.findings
        ]
    golden(f"scan/{rule}.txt", "\n".join(lines) + "\n")
