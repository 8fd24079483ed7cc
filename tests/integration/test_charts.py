"""Comparisons as pictures: no unit test, for matplotlib takes seconds to load."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from series import noisy
from training_logs import a_run

from warpfront.bench.charts import charts_of
from warpfront.bench.compare import ComparisonTerms, compare_runs


def test_charts_are_the_same_bytes_for_the_same_comparison() -> None:
    runs = [a_run(noisy(60, 1))], [a_run(noisy(60, 2, 1.2))]
    found = compare_runs(("a", runs[0]), ("b", runs[1]), ComparisonTerms())
    pictures = charts_of(found, runs)
    assert set(pictures) == {"steps.svg", "ratios.svg", "losses.svg"}
    assert pictures == charts_of(found, runs)
    for picture in pictures.values():
        assert ET.fromstring(picture).tag.endswith("svg")
    assert set(charts_of(found, ([], []))) == {"ratios.svg", "losses.svg"}
