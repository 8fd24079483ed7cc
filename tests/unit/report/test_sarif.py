"""SARIF has the members that the standard requires and stays within what GitHub accepts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest

from warpfront.report import sarif
from warpfront.report.sarif import SarifRule, SourceFinding, sarif_text

RULES = (
    SarifRule(id="torch-moved", summary="Another torch.", help="Write `torch`.", level="error"),
    SarifRule(
        id="index-named", summary="An index.", help="Drop it.", help_uri="https://example.org/i"
    ),
)
FOUND = SourceFinding(
    rule_id="torch-moved",
    level="error",
    message="torch>=3 moves torch",
    path="a folder/requirements.txt",
    line=3,
    column=1,
    source="torch>=3",
    end_line=3,
    fix="torch",
)


def made(*findings: SourceFinding, unknown: tuple[str, ...] = ()) -> dict[str, Any]:
    text = sarif_text(findings, rules=RULES, tool="warpfront preflight", unknown=unknown)
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def run_of(document: dict[str, Any]) -> dict[str, Any]:
    assert len(document["runs"]) == 1
    run: dict[str, Any] = document["runs"][0]
    return run


def breaches(document: dict[str, Any]) -> list[str]:
    """What of the standard's required members and of GitHub's limits does not hold."""
    found = [] if document.get("version") == "2.1.0" else ["version"]
    for run in document["runs"]:
        driver = run["tool"]["driver"]
        ids = [rule["id"] for rule in driver["rules"]]
        found += [] if driver["name"] else ["driver.name"]
        found += [] if len(set(ids)) == len(ids) <= 25_000 else ["rule ids"]
        found += [f"id {one}" for one in ids if not 0 < len(one) <= 255]
        found += [] if len(run["results"]) <= 25_000 else ["results"]
        for result in run["results"]:
            found += result_breaches(result, ids)
    return found


def result_breaches(result: dict[str, Any], ids: list[str]) -> list[str]:
    found = [] if ids[result["ruleIndex"]] == result["ruleId"] else ["ruleIndex"]
    found += [] if result["level"] in {"none", "note", "warning", "error"} else ["level"]
    found += [] if result["message"]["text"] else ["message"]
    prints = result["partialFingerprints"]["primaryLocationLineHash"]
    found += [] if re.fullmatch(r"[0-9a-f]{16}:[1-9][0-9]*", prints) else ["fingerprint"]
    place = result["locations"][0]["physicalLocation"]
    artifact = place["artifactLocation"]
    relative = artifact.get("uriBaseId") == "%SRCROOT%" and not artifact["uri"].startswith("/")
    found += [] if relative or artifact["uri"].startswith("file:///") else ["uri"]
    found += [] if re.fullmatch(r"[A-Za-z0-9_.~/:%-]+", artifact["uri"]) else ["uri characters"]
    found += [f"region {value}" for value in numbers(place.get("region", {})) if value < 1]
    for fix in result.get("fixes", []):
        change = fix["artifactChanges"][0]
        region = change["replacements"][0]["deletedRegion"]
        found += [] if change["artifactLocation"] == artifact else ["fix elsewhere"]
        found += [] if region["startLine"] <= region["endLine"] else ["fix region"]
    return found


def numbers(region: dict[str, Any]) -> list[int]:
    return [value for name, value in region.items() if name != "snippet"]


def test_a_finding_has_what_the_standard_and_github_require() -> None:
    assert breaches(made(FOUND, replace(FOUND, rule_id="index-named", fix=None))) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), "2.0.0"),
        (("runs", 0, "results", 0, "ruleIndex"), 1),
        (("runs", 0, "results", 0, "level"), "fatal"),
        (("runs", 0, "results", 0, "message", "text"), ""),
        (("runs", 0, "results", 0, "partialFingerprints", "primaryLocationLineHash"), "x"),
        (
            ("runs", 0, "results", 0, "locations", 0, "physicalLocation", "artifactLocation"),
            {"uri": "/etc/x"},
        ),
    ],
)
def test_a_broken_document_would_be_noticed(path: tuple[str | int, ...], value: object) -> None:
    document = made(FOUND)
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert breaches(document)


def test_paths_are_relative_to_the_source_root_and_quoted() -> None:
    place = run_of(made(FOUND))["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uriBaseId"] == "%SRCROOT%"
    assert unquote(place["artifactLocation"]["uri"]) == FOUND.path
    assert " " not in place["artifactLocation"]["uri"]


def test_a_path_outside_the_source_stays_absolute() -> None:
    outside = replace(FOUND, path="/srv/r.txt", fix=None)
    place = run_of(made(outside))["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "file:///srv/r.txt"}


def test_a_finding_about_a_whole_file_has_no_region() -> None:
    place = run_of(made(replace(FOUND, line=0, fix=None)))["results"][0]["locations"][0]
    assert "region" not in place["physicalLocation"]


def test_a_fix_replaces_whole_lines() -> None:
    change = run_of(made(FOUND))["results"][0]["fixes"][0]["artifactChanges"][0]
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 3, "startColumn": 1, "endLine": 3},
            "insertedContent": {"text": "torch"},
        }
    ]


def fingerprints(*findings: SourceFinding) -> list[str]:
    results = run_of(made(*findings))["results"]
    return [result["partialFingerprints"]["primaryLocationLineHash"] for result in results]


def test_a_finding_stays_the_same_when_its_line_moves() -> None:
    assert fingerprints(FOUND) == fingerprints(replace(FOUND, line=90))


def test_two_findings_on_equal_lines_are_two() -> None:
    assert len(set(fingerprints(FOUND, replace(FOUND, line=90)))) == 2


def test_what_could_not_be_judged_is_said() -> None:
    invocation = run_of(made(unknown=("b.txt: no index answers",)))["invocations"][0]
    texts = [note["message"]["text"] for note in invocation["toolExecutionNotifications"]]
    assert texts == ["b.txt: no index answers"]


def test_more_findings_than_github_takes_are_cut_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "RESULT_LIMIT", 2)
    least = replace(FOUND, rule_id="index-named", level="note", fix=None, path="a")
    run = run_of(made(least, FOUND, replace(FOUND, line=9, end_line=9)))
    assert [result["level"] for result in run["results"]] == ["error", "error"]
    notes = run["invocations"][0]["toolExecutionNotifications"]
    assert "3 findings" in notes[0]["message"]["text"]


def test_a_finding_of_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="no-such-rule"):
        made(replace(FOUND, rule_id="no-such-rule"))


def test_the_order_of_the_findings_does_not_change_the_text() -> None:
    other = replace(FOUND, line=9, message="another")
    texts = {
        sarif_text(findings, rules=RULES, tool="warpfront")
        for findings in ([FOUND, other], [other, FOUND])
    }
    assert len(texts) == 1


def test_foreign_text_is_no_link_and_no_control() -> None:
    evil = "see [here](https://example.org/\x1b]0;x\x07)\n[a](1)"
    found = replace(FOUND, message=evil, fix=evil)
    document: Any = json.loads(sarif_text([found], rules=RULES, tool="t", unknown=[evil]))
    (run,) = document["runs"]
    (result,) = run["results"]
    (notice,) = run["invocations"][0]["toolExecutionNotifications"]
    for message in (result["message"], notice["message"], result["fixes"][0]["description"]):
        assert "see [here] (https://example.org/" in message["text"]
        assert not {"\x1b", "\x07", "\n"} & set(message["text"])
        assert "](" not in message["text"]
