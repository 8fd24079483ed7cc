"""The data beside the checks, and the table that is drawn from a selftest; no torch needed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import warpfront_checks
from warpfront_checks.check_options import asked_profile, current_profile, profile_names
from warpfront_checks.mutation_table import draw
from warpfront_checks.verification_page import PARTS, main, redrawn, replaced

CHECKS = Path(warpfront_checks.__file__).parent
DOCS = Path(__file__).parents[3] / "docs"
PAGE, RESULTS = DOCS / "verification.md", DOCS / "results"


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


def test_a_table_goes_between_its_markers_and_nowhere_else() -> None:
    page = "before\n<!-- counts: begin -->\nold\n<!-- counts: end -->\nafter\n"
    text = replaced(page, "counts", "new\n")
    assert text == "before\n<!-- counts: begin -->\nnew\n<!-- counts: end -->\nafter\n"
    with pytest.raises(ValueError, match="no <!-- refused: begin"):
        replaced(page, "refused", "table")


def test_every_count_of_the_page_of_verification_is_that_of_the_results() -> None:
    """Else: python -m warpfront_checks.verification_page, as the page says."""
    assert redrawn(PAGE.read_text(), RESULTS) == PAGE.read_text()


def test_no_count_of_the_page_is_written_by_hand() -> None:
    page = PAGE.read_text()
    for name in PARTS:
        page = replaced(page, name, "")
    by_hand = re.compile(
        r"\b\d{1,3}(?:,\d{3})+\b|\b\d+ of \d+\b"
        r"|\b\d+ (?:\w+ )?(?:operations|patterns|cases|entries|faults|families|checks|rows)\b"
    )
    assert by_hand.findall(page) == []
    assert by_hand.findall("| operators | 90 operations by name |") == ["90 operations"]


def test_a_page_that_is_not_current_is_said_and_rewritten_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text().replace("| all checks | ", "| all checks | 9"))
    assert main([str(RESULTS), str(page)]) == 1
    assert "page.md is not current" in capsys.readouterr().err
    assert main([str(RESULTS), str(page), "--write"]) == 0
    assert page.read_text() == PAGE.read_text()
    assert main([str(RESULTS), str(page)]) == 0


def test_strict_is_the_first_profile_and_each_other_has_a_source() -> None:
    assert profile_names() == ("strict", "torch", "float32-only", "five-percent", "by-dtype")
    profiles = json.loads((CHECKS / "profiles.json").read_text())["profiles"]
    assert all(profile["source"] for profile in profiles.values())


@pytest.mark.parametrize(
    ("old", "new"),
    [("pyflame", "float32-only"), ("skill-5e2", "five-percent"), ("skill-table", "by-dtype")],
)
def test_the_old_name_of_a_profile_is_accepted_and_not_listed(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked_profile(old) == current_profile(old) == new
    assert capsys.readouterr().err.startswith(f"note: the profile {old} is called {new} now; ")
    assert new in profile_names()
    assert old not in profile_names()
    assert asked_profile("strict") == "strict"
    assert capsys.readouterr().err == ""


def test_results_written_under_an_old_name_are_drawn_under_the_new_one() -> None:
    document: dict[str, Any] = selftest(3, 0)
    counts = document["checks"][0]["details"]["mutations"]["all zeros"]
    counts |= {"asked": {"skill-5e2": 4}, "overlooked": {"skill-5e2": 1}}
    assert "| lets pass | five-percent |" in draw([document])


def test_every_exclusion_of_the_database_has_a_declared_reason() -> None:
    document = json.loads((CHECKS / "opinfo" / "exclusions.json").read_text())
    used = {row["reason"] for row in document["exclusions"]}
    assert used == set(document["reasons"])
    keys = [
        (row["name"], row["what"], tuple(row.get("dtypes", ()))) for row in document["exclusions"]
    ]
    assert len(keys) == len(set(keys))
