"""The report says what is there and nothing more: a `-` is no pass, an old
verification none either.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

import hypothesis.strategies as st
from builders import a_built_image, a_cell, a_check, a_report_row, a_verification
from hypothesis import given
from rich.text import Text

from warpfront.images.built import BuiltImage
from warpfront.images.plan import Action, PlannedCell
from warpfront.matrix.cell import Cell
from warpfront.report.described import profiles_text
from warpfront.report.rows import CellFacts, ReportRow, report_rows
from warpfront.report.text import plan_lines, report_lines, report_markdown
from warpfront.step_results import Blocked, Failed
from warpfront.system.texts import readable_size
from warpfront.verify.results import Outcome, Verification

GPU = a_cell(targets=("sm_80", "sm_90"))


def a_row(
    cell: Cell = GPU,
    *,
    build: BuiltImage | Blocked | Failed | None = None,
    verifications: Mapping[str, Verification] | None = None,
    lock: str = "",
    target: str = "sm_90",
) -> ReportRow:
    facts = CellFacts(cell=cell, lock=lock, build=build, verifications=verifications or {})
    return report_rows([facts], target=target)[0]


def shown(lines: Iterable[Text]) -> str:
    return "\n".join(line.plain for line in lines)


def test_every_target_of_a_cell_has_a_row_unless_one_is_asked_for() -> None:
    facts = CellFacts(cell=GPU, lock="", build=None, verifications={})
    assert [row.target for row in report_rows([facts])] == ["sm_80", "sm_90"]
    assert [row.target for row in report_rows([facts], target="sm_90")] == ["sm_90"]


def test_nothing_done_is_a_dash() -> None:
    row = a_row(lock="never built: it has no lock yet")
    assert (row.lock, row.build, row.verify) == ("never built: it has no lock yet", "-", "-")


def test_a_verification_of_another_content_does_not_count() -> None:
    old = a_verification(content_hash="0" * 64, target="sm_90")
    assert a_row(build=a_built_image(GPU), verifications={"sm_90": old}).verify == "-"


def test_a_verification_without_an_image_does_not_count() -> None:
    assert a_row(verifications={"sm_90": a_verification(target="sm_90")}).verify == "-"


def test_an_unavailable_device_is_shown_with_its_reason_and_counts() -> None:
    checks = (
        a_check(),
        a_check(Outcome.UNAVAILABLE, session="numerics", name="device", reason="no GPU"),
    )
    found = a_verification(*checks, target="sm_90")
    row = a_row(build=a_built_image(GPU), verifications={"sm_90": found})
    assert (row.verify, row.checks_passed, row.checks) == ("unavailable", 1, 2)
    assert row.reason == "numerics/device: no GPU"


def test_blocked_and_failed_builds_keep_their_reasons() -> None:
    blocked = a_row(build=Blocked(cell_id="c", step="lock", reason="out of reach"))
    failed = a_row(build=Failed(cell_id="c", step="build", reason="exit 1"))
    assert (blocked.build, blocked.reason) == ("blocked", "out of reach")
    assert (failed.build, failed.reason) == ("failed", "exit 1")


def test_markdown_cannot_be_broken_by_a_reason() -> None:
    row = a_row(build=Failed(cell_id="c", step="build", reason="a | b\nc"))
    lines = report_markdown([row]).splitlines()
    assert len(lines) == 3
    assert "a \\| b c" in lines[2]


def test_tables_show_every_cell_with_its_reason() -> None:
    row = a_row(build=a_built_image(GPU, reused=True))
    assert GPU.id in shown(report_lines((row,), 120))
    planned = PlannedCell(
        cell_id="c", action=Action.BLOCKED, reason="[red]no[/red] index", hint="look"
    )
    assert "[red]no[/red] index (look)" in shown(plan_lines([planned], 120))


def test_sizes_are_decimal_and_unknown_ones_say_so() -> None:
    assert [readable_size(size) for size in (None, 0, 999, 1500, 5_940_000_000)] == [
        "?",
        "0 B",
        "999 B",
        "2 kB",
        "5.9 GB",
    ]


def test_what_a_lock_relaxes_is_in_every_form_of_the_report() -> None:
    facts = CellFacts(cell=GPU, lock="", build=None, verifications={}, relaxed=("vllm",))
    rows = report_rows([facts])
    assert {row.relaxed for row in rows} == {("vllm",)}
    assert "fresh, relaxed: vllm" in report_markdown(rows)


def test_what_each_profile_says_is_added_up_over_all_checks() -> None:
    said = {"strict": {"accepted": 2, "refused": 1, "silent": 0}}
    loose = {"five-percent": {"accepted": 3, "refused": 0, "silent": 0}}
    checks = tuple(
        dataclasses.replace(a_check(Outcome.PASSED), details={"profiles": profiles})
        for profiles in (said, {**said, **loose}, None)
    )
    verification = dataclasses.replace(
        a_verification(*checks), environment={"check_options": {"profile": "strict"}}
    )
    text = profiles_text(verification)
    assert re.search(r"^strict +4 +2 +0  decides$", text, re.MULTILINE)
    assert re.search(r"^five-percent +3 +0 +0$", text, re.MULTILINE)
    assert profiles_text(a_verification(a_check(Outcome.PASSED))) == ""


def test_a_quick_pass_and_one_by_another_profile_are_shown_as_such() -> None:
    for key, options, word in (
        ("check_options", {"quick": True, "profile": "strict"}, "quick"),
        ("check_options", {"quick": False, "profile": "torch"}, "torch"),
        ("check_options", {"quick": False, "profile": "strict"}, ""),
        ("effort", {"quick": True, "profile": "strict"}, "quick"),  # of version 0.1
    ):
        found = a_verification(target="sm_90", environment={key: options})
        row = a_row(build=a_built_image(GPU), verifications={"sm_90": found})
        assert row.check_options == word
        assert (f", {word} |" in report_markdown([row])) == bool(word)


# Words of many lengths, no two alike; a pattern of letters is drawn at ten times the cost.
PIECES = st.integers(1, 10**11).map("x{}".format)
IDS = st.lists(PIECES, min_size=2, max_size=10).map("-".join)
WORDS = st.lists(
    st.one_of(PIECES, IDS, st.just("https://a.test/b-c/d")),
    max_size=30,
).map(" ".join)
ROWS = st.builds(
    a_report_row,
    cell_id=IDS,
    target=st.sampled_from(("sm_90", "gfx942", "x86_64")),
    lock=st.one_of(st.just("fresh"), WORDS),
    relaxed=st.lists(IDS, max_size=3).map(tuple),
    build=st.sampled_from(("built", "failed", "-")),
    verify=st.sampled_from(("passed", "undetermined", "-")),
    check_options=st.sampled_from(("", "quick, strict")),
    reason=WORDS,
    published=st.one_of(st.just(""), WORDS),
    repeat=IDS.map("warpfront build --locked --only {}".format),
)


@given(
    width=st.sampled_from((80, 120)),
    rows=st.lists(ROWS, min_size=1, max_size=4),
    planned=st.lists(st.tuples(IDS, WORDS), max_size=3),
)
def test_a_report_and_a_plan_fit_and_break_no_word(
    width: int, rows: list[ReportRow], planned: list[tuple[str, str]]
) -> None:
    """A line is longer than the terminal only for one word that is; no id is on two lines."""
    cells = [
        PlannedCell(cell_id=cell_id, action=Action.BLOCKED, reason=reason)
        for cell_id, reason in planned
    ]
    for is_report in (True, False):
        drawn = report_lines(tuple(rows), width) if is_report else plan_lines(cells, width)
        lines = [line.plain.rstrip() for line in drawn]
        for line in lines:
            assert len(line) <= width or len(line.removeprefix("blocked  ").split()) == 1, line
        shown_words = {word.rstrip(",") for line in lines for word in line.split()}
        expected = (
            [
                word
                for row in rows
                for word in (row.cell_id, *row.reason.split(), *row.repeat.split())
            ]
            if is_report
            else [word for cell_id, reason in planned for word in (cell_id, *reason.split())]
        )
        assert set(expected) <= shown_words
