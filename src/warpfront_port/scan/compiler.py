"""Findings that a compiler makes, in the form of the scanner's own. Pure."""

from __future__ import annotations

import re

from warpfront_port.scan.findings import ScanFinding, Severity


def compiler_finding(path: str, line: int, column: int, message: str) -> ScanFinding:
    """Return the finding for a target compiler's error at a place of the tree (1-based)."""
    column = max(column, 1)
    return ScanFinding(
        path=path,
        line=line,
        column=column,
        end_line=line,
        end_column=column + 1,
        rule="CC701",
        severity=Severity.ERROR,
        message=message[:300],
        excerpt=message[:200],
        cause=re.sub(r"<[^>]*>", "", message)[:160],
    )
