"""The data beside the checks, and the table that is drawn from a selftest; no torch needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import warpfront.inside.checks
from warpfront.inside.checks.effort import profile_names
from warpfront.inside.checks.mutation_table import BEGIN, END, draw, main, replaced

CHECKS = Path(warpfront.inside.checks.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "verification.md"


def selftest(caught: int, missed: int, **excused: int) -> dict[str, Any]:
    counts = {"caught": caught, "missed": missed, "not demanded": excused}
    return {"checks": [{"details": {"mutations": {"all zeros": counts}}}, {"details": {}}]}


def test_the_table_adds_up_every_selftest() -> None:
    text = draw([selftest(3, 0, why=2), selftest(4, 1)])
    assert "| all zeros | 7 | 1 | 2 |" in text
    assert "| all | 7 | 1 | 2 |" in text
    assert "| why | 2 |" in text


def test_what_each_profile_lets_pass_is_a_table_of_its_own() -> None:
    document: dict[str, Any] = selftest(3, 0)
    counts = document["checks"][0]["details"]["mutations"]["all zeros"]
    counts |= {"asked": {"strict": 3, "torch": 4}, "overlooked": {"strict": 0, "torch": 1}}
    text = draw([document, selftest(1, 0)])
    assert "| lets pass | strict | torch |" in text
    assert "| all zeros | 0 of 3 (0 %) | 1 of 4 (25 %) |" in text


def test_the_table_goes_between_the_markers_and_nowhere_else(tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", tmp_path / "selftest.json"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    results.write_text(json.dumps(selftest(1, 0)))
    assert main([str(results), "--write", str(page)]) == 0
    assert "old" not in page.read_text()
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("\nafter\n")
    with pytest.raises(ValueError, match="no <!-- mutations: begin"):
        replaced("a page without markers", "table")


def test_the_page_of_verification_has_the_markers() -> None:
    assert replaced(PAGE.read_text(), "| new |\n").count("| new |") == 1


def test_strict_is_the_first_profile_and_each_other_has_a_source() -> None:
    assert profile_names() == ("strict", "torch", "pyflame", "skill-5e2", "skill-table")
    profiles = json.loads((CHECKS / "profiles.json").read_text())["profiles"]
    assert all(profile["source"] for profile in profiles.values())


def test_every_exclusion_of_the_database_has_a_declared_reason() -> None:
    document = json.loads((CHECKS / "opinfo" / "exclusions.json").read_text())
    used = {row["reason"] for row in document["exclusions"]}
    assert used == set(document["reasons"])
    keys = [
        (row["name"], row["what"], tuple(row.get("dtypes", ()))) for row in document["exclusions"]
    ]
    assert len(keys) == len(set(keys))
