"""Every rule sees what it is about, passes over what only looks like it, and knows its gate.

The examples are data, in the rules' files. What the scanner says of each is a golden per rule.
"""

from __future__ import annotations

import functools
from pathlib import PurePosixPath
from typing import Any

import pytest
from rule_files import KINDS, read_examples

from warpfront_port.scan.catalogue import catalogue
from warpfront_port.scan.engines import Scope, scan_source
from warpfront_port.scan.findings import Context, Gate, ScanFinding, Severity, SourceText
from warpfront_port.scan.severities import Judged
from warpfront_port.scan.targets import read_target

LEVELS = tuple(Severity)
EXAMPLES = read_examples(cuda=False)


@functools.cache
def judged(rule: str, kind: str, before: str = "") -> Judged:
    example = EXAMPLES[rule]
    target = example.get(f"{kind}_target", example.get("target", "gfx942"))
    path = example.get(f"{kind}_path", example.get("path", "module.py"))
    source = SourceText(path=PurePosixPath(path), text=before + example[kind])
    hipless = example.get(f"{kind}_hipless", example.get("hipless", False))
    scope = Scope(target=read_target(target), rules=catalogue(), context=Context(hipless=hipless))
    return scan_source(source, scope)


def of_rule(rule: str, kind: str) -> list[ScanFinding]:
    return [finding for finding in judged(rule, kind).findings if finding.rule == rule]


def worst(findings: list[ScanFinding]) -> int:
    return max((LEVELS.index(finding.severity) for finding in findings), default=0)


@pytest.mark.parametrize("rule", EXAMPLES)
def test_a_rule_sees_what_it_is_about_and_nothing_that_only_looks_so(rule: str) -> None:
    hits, gated = of_rule(rule, "hit"), of_rule(rule, "gated")
    assert hits
    assert of_rule(rule, "near") == []
    weaker = worst(gated) < worst(hits)
    assert weaker or (gated and all(finding.gate is not Gate.OPEN for finding in gated))
    moved = judged(rule, "hit", before="\n\n").findings
    assert {finding.fingerprint for finding in hits} <= {one.fingerprint for one in moved}


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


def test_a_makefile_without_hip_names_its_part_for_cuda_line_by_line() -> None:
    text = "CC = g++\nNVCC ?= nvcc # CUDA's\nall: gpu-cuda gpu-cuda.o\n"
    source = SourceText(path=PurePosixPath("Makefile.in"), text=text)
    rules = catalogue()
    scope = Scope(target=read_target("gfx942"), rules=rules, context=Context(hipless=True))
    found = scan_source(source, scope).findings
    assert [(one.line, one.rule, one.severity) for one in found] == [
        (2, "BL217", Severity.WARNING),
        (3, "BL217", Severity.WARNING),
    ]


@pytest.mark.parametrize(("beside", "lines"), [("", [1]), ("find_package(OpenCL)\n", [])])
def test_a_build_calls_cudas_part_gpu_where_it_knows_no_other_way_to_one(
    beside: str, lines: list[int]
) -> None:
    text = f"if(MINE_ENABLE_GPU)\nendif()\n{beside}"
    source = SourceText(path=PurePosixPath("CMakeLists.txt"), text=text)
    scope = Scope(target=read_target("gfx942"), rules=catalogue(), context=Context(hipless=True))
    assert [one.line for one in scan_source(source, scope).findings] == lines
