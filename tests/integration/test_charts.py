"""Comparisons as pictures: no unit test, for matplotlib takes seconds to load."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET

import pytest
from series import noisy
from training_logs import a_run

from warpfront.bench.charts import charts_of, roofline_of
from warpfront.bench.compare import ComparisonTerms, compare_runs
from warpfront.bench.forms import comparison_html
from warpfront.bench.records import Bench, Measurement, Peak

# On a machine that never drew, matplotlib asks fontconfig's program for the fonts.
pytestmark = pytest.mark.process


def test_charts_are_the_same_bytes_for_the_same_comparison() -> None:
    runs = [a_run(noisy(60, 1))], [a_run(noisy(60, 2, 1.2))]
    found = compare_runs(("a", runs[0]), ("b", runs[1]), ComparisonTerms())
    pictures = charts_of(found, runs)
    assert set(pictures) == {"steps.svg", "ratios.svg", "losses.svg"}
    assert pictures == charts_of(found, runs)
    for picture in pictures.values():
        assert ET.fromstring(picture).tag.endswith("svg")
    assert set(charts_of(found, ([], []))) == {"ratios.svg", "losses.svg"}


def test_a_roofline_has_a_roof_a_dtype_and_no_point_that_counts_half() -> None:
    peak = Peak(flop_per_second=1e12, bytes_per_second=1e11, dense=True, source="nobody")
    one = Measurement(
        id="mm", suite="matmul", op="mm", shape="512", dtype="bfloat16", direction="forward",
        outcome="passed", samples_seconds=((1e-3,),), flops=10**8, bytes=10**7, peak=peak,
    )  # fmt: skip
    other = dataclasses.replace(one, id="copy", dtype="float32", flops=None)
    bench = Bench(
        cell_id="cell", image_digest="", content_hash="", verified="", target="sm_90", at="",
        tool={}, environment={"device_name": "<GPU>"}, settings={}, results=(one, other),
    )  # fmt: skip
    (name,) = roofline_of(bench)
    drawn = roofline_of(bench)[name]
    assert ET.fromstring(drawn).tag.endswith("svg")
    assert "bfloat16" in drawn
    assert "float32" not in drawn
    assert "&lt;GPU&gt;" in drawn
    assert not roofline_of(dataclasses.replace(bench, results=(other,)))


def test_a_page_holds_its_charts_and_escapes_what_logs_say() -> None:
    runs = [a_run(noisy(60, 1))], [a_run(noisy(60, 2, 1.2))]
    found = compare_runs(("<b>a</b>", runs[0]), ("b", runs[1]), ComparisonTerms())
    page = comparison_html(found, charts_of(found, runs))
    assert page.count("<svg") == 3
    assert "<b>" not in page
    assert "B takes" in page
    assert "<?xml" not in page
