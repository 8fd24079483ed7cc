"""The data of the checks; no torch needed."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import warpfront_checks
from warpfront_checks.cases.catalogue import CATALOGUE
from warpfront_checks.cases.known_defects import KnownDefect, defects_of
from warpfront_checks.check_options import current_profile, profile_names, read_effort

CHECKS = Path(warpfront_checks.__file__).parent


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
    options: dict[str, Any] = {"quick": False, "seeds": 1, "run": "0"}
    assert read_effort(profile=old, **options).profile == current_profile(old) == new
    assert capsys.readouterr().err.startswith(f"note: the profile {old} is called {new} now; ")
    assert new in profile_names()
    assert old not in profile_names()
    assert read_effort(profile="strict", **options).profile == "strict"
    assert capsys.readouterr().err == ""


def test_every_exclusion_of_the_database_has_a_declared_reason() -> None:
    document = json.loads((CHECKS / "opinfo" / "exclusions.json").read_text())
    used = {row["reason"] for row in document["exclusions"]}
    assert used == set(document["reasons"])
    keys = [
        (row["name"], row["what"], tuple(row.get("dtypes", ()))) for row in document["exclusions"]
    ]
    assert len(keys) == len(set(keys))


def test_every_known_defect_is_of_an_operation_and_says_what_was_seen() -> None:
    rows = json.loads((CHECKS / "cases" / "known_defects.json").read_text())["defects"]
    special = json.loads((CHECKS / "cases/special/distributions.json").read_text())
    known = {"operations", "why"} | {field.name for field in fields(KnownDefect)}
    for row in rows:
        assert any(
            re.fullmatch(row["operations"], name)
            for name in (*CATALOGUE, *special["distributions"])
        )
        assert row["why"]
        assert row.keys() <= known
        assert row["device"] in {"cpu", "cuda", "any"}


def test_defects_of_an_operation_are_those_whose_pattern_is_its_whole_name() -> None:
    (narrow,) = defects_of("nll_loss of places")
    assert (narrow.thread, narrow.where) == ("pytorch#85395", {"option ignored": ("4294967296",)})
    assert [defect.before for defect in defects_of("trace")] == [(2, 13), (2, 13)]
    assert defects_of("nll_loss of rows") == ()
    assert narrow.thread not in {defect.thread for defect in defects_of("nll_loss")}
