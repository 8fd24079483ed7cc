"""Findings that a project has accepted: a JSON file that outlives moved lines and renames. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from warpfront.errors import MatrixError, Problem
from warpfront_port.scan.findings import ScanFinding

SCHEMA = 2


def baseline_text(findings: Iterable[ScanFinding]) -> str:
    """Return the sorted text of the file: a counted record for every rule, path and line text."""
    counts: Counter[tuple[str, str, str, str]] = Counter(
        (finding.path, finding.rule, finding.excerpt, finding.fingerprint) for finding in findings
    )
    records = [
        {"path": path, "rule": rule, "excerpt": excerpt, "fingerprint": print_, "count": count}
        for (path, rule, excerpt, print_), count in sorted(counts.items())
    ]
    document = {"schema": SCHEMA, "findings": records}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def read_baseline(text: str, name: str) -> Mapping[str, int]:
    """Return the number of accepted findings by fingerprint.

    Raises `MatrixError` for a file that is not a baseline.
    """
    accepted: Counter[str] = Counter()
    try:
        document: Any = json.loads(text)
        rows: Any = document["findings"] if document["schema"] == SCHEMA else None
        for row in rows:
            accepted[str(row["fingerprint"])] += int(row["count"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        problem = Problem(
            path=name,
            line=0,
            message=f"not a baseline of this version: {error!r}",
            hint="write it anew with `warpfront port scan --write-baseline`",
        )
        raise MatrixError((problem,)) from error
    return accepted


def beyond(findings: Iterable[ScanFinding], accepted: Mapping[str, int]) -> tuple[ScanFinding, ...]:
    """Return the findings that the baseline does not cover; of equal ones, those further down."""
    remaining = Counter(dict(accepted))
    new = []
    for finding in findings:
        if remaining[finding.fingerprint] > 0:
            remaining[finding.fingerprint] -= 1
        else:
            new.append(finding)
    return tuple(new)
