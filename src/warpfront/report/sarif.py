"""SARIF 2.1.0 of findings in sources, for code hosts and editors. Pure.

The form is OASIS's (https://docs.oasis-open.org/sarif/sarif/v2.1.0/), within what GitHub accepts
(https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import quote

from warpfront import __version__
from warpfront.system.texts import counted, flat

Level = Literal["error", "warning", "note"]

SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"
SOURCE_ROOT = "%SRCROOT%"
RESULT_LIMIT = 25_000
"""GitHub refuses a file with more results in a run."""

_NAME_LIMIT = 255
_DESCRIPTION_LIMIT = 1024
_RANKS: Mapping[Level, int] = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class SarifRule:
    """A finding's rule: a stable `id`, a `summary` of one sentence, `help` in Markdown."""

    id: str
    summary: str
    help: str
    level: Level = "warning"
    help_uri: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFinding:
    """A finding in one place.

    `path` is relative to the source's root, with `/`; an absolute one stays absolute, and code
    hosts cannot show it. `line` and `column` are 1-based, in code points; `line` 0 is the whole
    file, `column` 0 the whole line. `end_line` and `end_column` (exclusive) are optional. `source`
    is the text of the line, so that a finding stays the same when lines above it move. `fix` is the
    text to write in place of the lines up to `end_line`, without a newline at its end.
    """

    rule_id: str
    message: str
    path: str
    line: int
    level: Level = "warning"
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    source: str = ""
    fix: str | None = None
    properties: Mapping[str, object] | None = None


def sarif_text(
    findings: Iterable[SourceFinding],
    *,
    rules: Iterable[SarifRule],
    tool: str,
    tool_uri: str = "",
    unknown: Iterable[str] = (),
) -> str:
    """Return the document as UTF-8 JSON text: same findings, same text.

    `unknown` are sentences about what could not be judged; they become notifications of the run,
    because silence about a file reads as its being clean. Raise `ValueError` for a finding whose
    rule is not among `rules`.
    """
    ruled = {rule.id: rule for rule in rules}
    indexes = {rule_id: index for index, rule_id in enumerate(ruled)}
    ordered = sorted(
        findings, key=lambda f: (_RANKS[f.level], f.path, f.line, f.column, f.rule_id, f.message)
    )
    strangers = sorted({finding.rule_id for finding in ordered} - set(ruled))
    if strangers:
        raise ValueError(f"findings of unknown rules: {', '.join(strangers)}")
    notes = list(unknown)
    if len(ordered) > RESULT_LIMIT:
        notes.append(
            f"{counted(len(ordered), 'finding')}; the first {RESULT_LIMIT} are in this file"
        )
    driver: dict[str, object] = {
        "name": tool,
        "semanticVersion": __version__,
        "rules": [_rule(rule) for rule in ruled.values()],
    }
    if tool_uri:
        driver["informationUri"] = tool_uri
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {SOURCE_ROOT: {"description": {"text": "The source's root."}}},
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {"level": "warning", "message": {"text": sarif_message(text)}} for text in notes
                ],
            }
        ],
        "results": _results(ordered[:RESULT_LIMIT], indexes),
    }
    document = {"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _rule(rule: SarifRule) -> dict[str, object]:
    return {
        "id": rule.id[:_NAME_LIMIT],
        "name": rule.id[:_NAME_LIMIT],
        "shortDescription": {"text": rule.summary[:_DESCRIPTION_LIMIT]},
        "fullDescription": {"text": rule.summary[:_DESCRIPTION_LIMIT]},
        "help": {"text": rule.help, "markdown": rule.help},
        "defaultConfiguration": {"level": rule.level},
        **({"helpUri": rule.help_uri} if rule.help_uri else {}),
    }


def _results(
    findings: Iterable[SourceFinding], indexes: Mapping[str, int]
) -> list[dict[str, object]]:
    counts: Counter[str] = Counter()
    results = []
    for finding in findings:
        # Without the line's number: GitHub tells old from new alerts by it.
        parts = f"{finding.rule_id}\0{finding.path}\0{finding.source.strip() or finding.message}"
        fingerprint = hashlib.sha256(parts.encode()).hexdigest()[:16]
        counts[fingerprint] += 1
        location: dict[str, object] = {"artifactLocation": _artifact(finding.path)}
        numbers = {
            "startLine": finding.line,
            "startColumn": finding.column,
            "endLine": finding.end_line,
            "endColumn": finding.end_column,
        }
        snippet = {"snippet": {"text": finding.source}} if finding.source else {}
        if finding.line:
            location["region"] = {name: n for name, n in numbers.items() if n} | snippet
        result: dict[str, object] = {
            "ruleId": finding.rule_id[:_NAME_LIMIT],
            "ruleIndex": indexes[finding.rule_id],
            "level": finding.level,
            "message": {"text": sarif_message(finding.message)},
            "locations": [{"physicalLocation": location}],
            "partialFingerprints": {
                "primaryLocationLineHash": f"{fingerprint}:{counts[fingerprint]}"
            },
        }
        if (fix := finding.fix) is not None:
            description = f"write `{fix.strip()}`" if fix.strip() else "drop this line"
            deleted = {"startLine": finding.line, "startColumn": 1, "endLine": finding.end_line}
            replacement = {"deletedRegion": deleted, "insertedContent": {"text": fix}}
            artifact = _artifact(finding.path)
            result["fixes"] = [
                {
                    "description": {"text": sarif_message(description)},
                    "artifactChanges": [
                        {"artifactLocation": artifact, "replacements": [replacement]}
                    ],
                }
            ]
        if finding.properties:
            result["properties"] = dict(finding.properties)
        results.append(result)
    return results


def _artifact(path: str) -> dict[str, object]:
    if PurePosixPath(path).is_absolute():
        return {"uri": f"file://{quote(path)}"}
    return {"uri": quote(path), "uriBaseId": SOURCE_ROOT}


def sarif_message(text: str) -> str:
    """Return foreign text as the text of a message: one line, without an embedded link
    (SARIF 2.1.0, 3.11.6) and without control characters.
    """
    return flat(text).replace("](", "] (")
