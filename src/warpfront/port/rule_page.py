"""The rule catalogue as a page for people, generated from its records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from warpfront.port.scan.catalogue import Rule
from warpfront.port.scan.findings import Severity

_FAMILIES: Mapping[str, str] = {
    "PY": "Python source",
    "HP": "Intel Gaudi, and what of it holds on a CPU",
    "CU": "CUDA and C++ source",
    "BL": "Builds",
    "DP": "Dependencies",
    "CT": "Containers",
    "SH": "Scripts",
    "SC": "The scan itself",
}
_HEAD = """# Rules of the scanner

<!-- Generated from src/warpfront/data/rules/*.toml by port/rule_page.py;
`pytest tests/unit/port/test_rules_page.py --update-golden` writes it anew. -->

What `invoke scan --target gfx942` looks for. A severity counts for the narrowest class that a
target is in: `gfx942` before `gfx9`, that before `wave64` or `wave32`, that before `rocm`. Code
that a target never reaches is no finding; code behind a check for a package is a warning at most;
NVIDIA code in the branch for AMD is one level worse; test code and the project's own CI are notes.
`# warpfront: ignore[PY019] reason` suppresses what is found on one line.
"""


def rules_page(rules: Iterable[Rule]) -> str:
    """Markdown: a table of all rules, then a section for each."""
    listed = sorted(rules, key=lambda rule: (list(_FAMILIES).index(rule.id[:2]), rule.id))
    lines = [_HEAD, "| rule | what | rocm | hpu | cpu |", "|---|---|---|---|---|"]
    lines += [
        f"| [{rule.id}](#{rule.id.lower()}) | {rule.title} | "
        + " | ".join(_severity(rule, name) for name in ("rocm", "hpu", "cpu"))
        + " |"
        for rule in listed
    ]
    for family, members in groupby(listed, key=lambda rule: rule.id[:2]):
        lines += ["", f"## {_FAMILIES[family]}"]
        for rule in members:
            lines += _section(rule)
    return "\n".join(lines) + "\n"


def _severity(rule: Rule, name: str) -> str:
    severity = rule.severities.get(name, Severity.NONE)
    return "-" if severity is Severity.NONE else severity.value


def _section(rule: Rule) -> list[str]:
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
        f"Severity: {severities}. Phase {rule.phase} of a port. Sources: {sources}.",
    ]
