"""Foreign text in Markdown and workflow commands: words, whatever it holds."""

from __future__ import annotations

import pytest
from builders import a_check, a_report_row, a_verification
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from warpfront.ci.judging import Judgement
from warpfront.ci.summaries import error_commands, job_summary, judgement_summary
from warpfront.report.text import report_markdown
from warpfront.system.texts import flat, markdown_text
from warpfront.verify.results import Outcome

HOSTILE = (
    "x | y\n\n### green: all passed",
    "a\\| b",
    "![i](https://example.invalid/p.png)",
    "[all passed](https://example.invalid)",
    "<img src=x onerror=alert(1)><!--",
    "`| **b** ~~c~~",
    "line\u2028next\r::error::x",
    "\x1b[31m\x07\u202egnp",
)
TEXTS = st.one_of(
    st.text(max_size=60), st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=3).map("".join)
)
PARSER = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
HARMLESS = {"text", "softbreak"}


def inline_kinds(markdown: str) -> set[str]:
    return {child.type for token in PARSER.parse(markdown) for child in token.children or ()}


@given(TEXTS)
def test_a_cell_is_one_line_of_plain_words(text: str) -> None:
    found = markdown_text(text)
    assert len(found.splitlines()) <= 1
    table = f"| a | b |\n|---|---|\n| {found} | last |\n"
    assert inline_kinds(table) <= HARMLESS
    body = [token for token in PARSER.parse(table) if token.type == "td_open"]
    assert len(body) == 2


@pytest.mark.parametrize("text", HOSTILE)
def test_no_report_and_no_summary_takes_markup_from_a_reason(text: str) -> None:
    row = a_report_row(verify="failed", reason=text)
    report = report_markdown([row])
    assert len(report.splitlines()) == 3
    assert inline_kinds(report) <= HARMLESS
    judged = Judgement(failures=(text,), unavailable=(text,), passed=1, slower=(text,))
    summary = judgement_summary(judged)
    assert len(summary.splitlines()) == 5
    assert inline_kinds(summary) <= HARMLESS
    wrong = a_verification(a_check(Outcome.FAILED, name=text, reason=text))
    lines = job_summary("verify", [wrong], tries={}).splitlines()
    assert [line for line in lines if line.startswith("#")] == ["### verify: 1 failed"]
    assert inline_kinds("\n".join(lines)) <= {*HARMLESS, "code_inline"}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_workflow_command_is_one_line_and_reads_as_the_text(text: str) -> None:
    wrong = a_verification(a_check(Outcome.FAILED, name="n", reason=text))
    (command,) = error_commands([wrong], {})
    assert len(command.splitlines()) == 1
    assert command.startswith("::error file=matrix.yaml,line=1,")
    assert flat(text).replace("%", "%25").replace("`", "").replace("**", "") in command
