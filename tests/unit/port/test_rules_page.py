"""docs/rules.md says what the records of the rules say."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpfront.port.rule_page import rules_page
from warpfront.port.scan.catalogue import catalogue, read_rules

PAGE = Path(__file__).parents[3] / "docs" / "rules.md"

RECORD = """
[{id}]
title = "t"
engines = ["python"]
phase = 1
severity = {{ rocm = "{severity}" }}
message = "m"
why = "w"
fix = "f"
sources = ["s"]
{extra}
"""


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


@pytest.mark.parametrize(
    ("severity", "extra"), [("fatal", ""), ("error", "colour = 1")], ids=["severity", "field"]
)
def test_a_wrong_record_is_refused(severity: str, extra: str) -> None:
    with pytest.raises(ValueError, match="XX001"):
        read_rules(RECORD.format(id="XX001", severity=severity, extra=extra), "x.toml")
