"""What the sweeps came to, kept as evidence: docs/results/sweeps.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "sweeps.json"


class Sweeps:
    """Collects the reports of exhaustive tests; lives where reports come together."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test is what its worst phase is: what failed before it ran has not passed."""
        if "exhaustive" not in report.keywords:
            return
        if report.when == "call" or report.outcome != "passed":
            known = self.outcomes.get(report.nodeid)
            self.outcomes[report.nodeid] = report.outcome if known != "failed" else known

    def pytest_sessionfinish(self) -> None:
        """New outcomes take the place of older ones of the same tests."""
        if not self.outcomes:
            return
        before = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
        text = json.dumps({**before, **self.outcomes}, indent=1, sort_keys=True)
        RESULTS.write_text(f"{text}\n", encoding="utf-8")
