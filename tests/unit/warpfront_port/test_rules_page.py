"""docs/rules.md says what the records of the rules say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

import pytest

from warpfront_port.scan.catalogue import Rule, catalogue
from warpfront_port.scan.findings import Severity

PAGE = Path(__file__).parents[3] / "docs" / "rules.md"

FAMILIES: Mapping[str, str] = {
    "PY": "Python source",
    "HP": "Intel Gaudi, and what of it holds on a CPU",
    "CU": "CUDA and C++ source",
    "BL": "Builds",
    "DP": "Dependencies",
    "CT": "Containers",
    "SH": "Scripts",
    "LG": "Languages that are not read",
    "CC": "A compiler for the target",
    "SC": "The scan itself",
}
HEAD = """# Rules of the scanner

<!-- Generated from src/warpfront_port/data/rules by `pytest
tests/unit/warpfront_port/test_rules_page.py --update-golden`. -->

What `invoke scan --target gfx942` looks for, beside what a compiler answers. An error decides the
verdict by its consequence: `build`, `wrong`, `runtime` or none (`check`). A severity counts for
the narrowest class that a target is in: `gfx942` before `gfx9`, that before `wave64` or `wave32`,
that before `rocm`. Code that a target never reaches is no finding; code behind a check for a
package is a warning at most; in the branch for AMD a warning is a note; test code and the
project's own CI are notes.
`# warpfront: ignore[PY019] reason` suppresses what is found on one line.
"""


def rules_page(rules: Iterable[Rule]) -> str:
    """Markdown: a table of all rules, then a section for each."""
    listed = sorted(rules, key=lambda rule: (list(FAMILIES).index(rule.id[:2]), rule.id))
    lines = [HEAD, "| rule | what | consequence | rocm | hpu | cpu |"]
    lines += ["|---|---|---|---|---|---|"]
    lines += [
        f"| [{rule.id}](#{rule.id.lower()}) | {rule.title} | {rule.consequence} | "
        + " | ".join(severity_of(rule, name) for name in ("rocm", "hpu", "cpu"))
        + " |"
        for rule in listed
    ]
    for family, members in groupby(listed, key=lambda rule: rule.id[:2]):
        lines += ["", f"## {FAMILIES[family]}"]
        for rule in members:
            lines += section_of(rule)
    return "\n".join(lines) + "\n"


def severity_of(rule: Rule, name: str) -> str:
    severity = rule.severities.get(name, Severity.NONE)
    return "-" if severity is Severity.NONE else severity.value


def section_of(rule: Rule) -> list[str]:
    severities = ", ".join(f"{name} {severity.value}" for name, severity in rule.severities.items())
    sources = "; ".join(rule.sources)
    return [
        "",
        f"### {rule.id}",
        "",
        f"**{rule.title}.** {rule.why}",
        "",
        f"Fix: {rule.fix}",
        "",
        f"Severity: {severities}. Consequence: {rule.consequence}. Phase {rule.phase}.",
        f"Sources: {sources}.",
    ]


def test_the_page_is_what_the_records_make_of_it(request: pytest.FixtureRequest) -> None:
    page = rules_page(catalogue().values())
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page


def test_every_rule_is_on_the_page_with_its_fix() -> None:
    page = PAGE.read_text()
    missing = [
        rule.id
        for rule in catalogue().values()
        if f"### {rule.id}\n" not in page or f"Fix: {rule.fix}" not in page
    ]
    assert missing == []


def test_a_message_is_one_line_and_a_source_is_named() -> None:
    for rule in catalogue().values():
        assert "\n" not in rule.message, rule.id
        assert rule.sources, rule.id
        assert all(rule.sources), rule.id
        assert rule.why, rule.id
        assert rule.fix, rule.id
        assert 0 <= rule.phase <= 8, rule.id
