"""Outcomes of the sweeps, as evidence: docs/results/sweeps.json has their counts by test."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "sweeps.json"


class Sweeps:
    """Collect the reports of exhaustive tests, where the reports of all workers come together."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the worst phase of a test: one whose fixture failed has not passed."""
        if "exhaustive" not in report.keywords:
            return
        if report.when == "call" or report.outcome != "passed":
            known = self.outcomes.get(report.nodeid)
            self.outcomes[report.nodeid] = report.outcome if known != "failed" else known

    def pytest_sessionfinish(self) -> None:
        """Write the counts of the tests that ran in the place of their older ones."""
        if not self.outcomes:
            return
        before = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
        ran = {_test(node) for node in self.outcomes}
        others = {name: count for name, count in before.items() if _test(name) not in ran}
        text = json.dumps({**others, **counts_by_test(self.outcomes)}, indent=1, sort_keys=True)
        RESULTS.write_text(f"{text}\n", encoding="utf-8")


def counts_by_test(outcomes: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Return how often each outcome came, by test; a case that did not pass has its own line."""
    counts: dict[str, Counter[str]] = {}
    for node, outcome in outcomes.items():
        test = _test(node) if outcome == "passed" else node
        counts.setdefault(test, Counter())[outcome] += 1
    return {test: dict(count) for test, count in counts.items()}


def _test(node: str) -> str:
    return node.partition("[")[0]
