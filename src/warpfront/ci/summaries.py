"""Summaries of a run on a CI service's pages, worst first and cut to the size limit, and
annotations at a cell's line in matrix.yaml. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from warpfront.bench.nights import NightStanding
from warpfront.ci.judging import Judgement
from warpfront.ci.schedule import Omitted, Schedule
from warpfront.report.described import describe
from warpfront.step_results import Blocked, Failed, repeat_line
from warpfront.system.texts import flat, markdown_table, markdown_text
from warpfront.verify.results import Outcome, Verification
from warpfront.verify.verdict import outcome_of

SUMMARY_LIMIT_BYTES = 1_000_000
"""A step's summary is refused as a whole beyond 1 MiB."""
ISSUE_LIMIT_BYTES = 60_000
"""GitHub refuses the text of an issue beyond 65,536 characters."""
MOST_CHARACTERS = 600
ANNOTATION_LIMIT = 10
"""https://docs.github.com/en/actions/reference/limits: errors that are shown of one step."""


def cut(lines: Iterable[str], limit_bytes: int = SUMMARY_LIMIT_BYTES) -> str:
    """Return as many of the lines as there is room for, and the number of omitted ones."""
    shortened: list[str] = []
    lines = tuple(lines)
    room = limit_bytes - len(f"\nand {len(lines)} more\n".encode())
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            shortened.append(f"\nand {len(lines) - len(shortened)} more")
            break
        shortened.append(line)
    return "\n".join(shortened) + "\n"


def plan_summary(planned: Schedule) -> str:
    """Return the planned work of a run, and all that is omitted, with the reasons."""
    build, verify = len(planned.building), len(planned.selected)
    unchanged = len(planned.unchanged)
    lines = [
        f"### {planned.scope}: {build} to build, {verify} to verify, {unchanged} unchanged",
        "",
        *(f"- {_said(note)}" for note in planned.notes),
        *([""] if planned.notes else ()),
        *_omitted("unavailable: nobody can", planned.unavailable),
        *_omitted("not in this scope", planned.later),
    ]
    return cut(lines)


def _omitted(title: str, omitted: tuple[Omitted, ...]) -> list[str]:
    rows = [(row.cell_id, row.target or "-", row.reason[:MOST_CHARACTERS]) for row in omitted]
    table = markdown_table(("cell", "target", "why"), rows)
    return [f"**{title}** ({len(omitted)})", "", *table, ""] if omitted else []


# A field of a judgement, how its lines are counted, and how each begins; in the order of a summary.
_KINDS = (
    ("listed", "", "not checked, no machine of this run has it"),
    ("failures", "", "failed"),
    ("unpublished", "not published", "not published"),
    ("slower", "slower", "slower"),
    ("unavailable", "", "unavailable"),
    ("pending", "pending a GPU", "pending a GPU"),
    ("noted", "", "allowed by the channel"),
)


def judgement_summary(judgement: Judgement, notes: Iterable[str] = ()) -> str:
    """Return the end of a run as a list: what no job checked, what failed, what could not be."""
    lines = {name: getattr(judgement, name) for name, _, _ in _KINDS}
    word = "green" if judgement.error is None else "red"
    first = f"{len(judgement.listed)} NOT CHECKED, " if judgement.listed else ""
    counts = ((len(lines[name]), counted) for name, counted, _ in _KINDS if counted)
    more = "".join(f"{count} {counted}, " for count, counted in counts if count)
    counts_text = f"{first}{len(judgement.failures)} failed, {more}{len(judgement.unavailable)} "
    entries = [f"- {begin}: {_said(line)}" for name, _, begin in _KINDS for line in lines[name]]
    head = f"### {word}: {counts_text}unavailable, {judgement.passed} passed"
    return cut([head, "", *entries, *(f"- {_said(note)}" for note in notes)])


def alert_text(judgement: Judgement, scope: str, url: str, *, markdown: bool) -> str:
    """Return a red run for those who do not see its page: cells, kinds of failure, and repeat
    lines. Reasons are foreign text: in an issue's Markdown they are code, which mentions no one
    and links nothing.
    """
    say: Callable[[str], str] = _plainly
    if markdown:
        say = lambda text: f"`{_plainly(text).replace('`', chr(39))}`"  # noqa: E731
    why = judgement.error.message if judgement.error else ""
    lines = [f"The {scope} run is red: {say(why)}", "", url, ""]
    for fault in judgement.faults:
        lines += [f"- {fault.kind}: {say(fault.text)}", f"  repeat: `{flat(fault.repeat)}`"]
    cells = {fault.text for fault in judgement.faults}
    remaining = (*judgement.failures, *judgement.slower, *judgement.unavailable, *judgement.pending)
    lines += [f"- {say(line)}" for line in remaining if line not in cells]
    return cut(lines, ISSUE_LIMIT_BYTES)


def job_summary(name: str, results: Iterable[object], *, tries: Mapping[str, int]) -> str:
    """Return a job's results by cell, the worst first, each failure with its repeat line."""
    ordered = sorted(results, key=_rank)
    counts = Counter(_word(result) for result in ordered)
    totals = ", ".join(f"{count} {word}" for word, count in counts.items())
    lines = [f"### {name}: {totals or 'nothing to do'}", ""]
    for result in ordered:
        lines += _lines(result, _said)
    again = {cell: count for cell, count in tries.items() if count > 1}
    lines += [f"- {cell} was tried {count} times" for cell, count in again.items()]
    return cut(lines)


def _lines(result: object, say: Callable[[str], str]) -> list[str]:
    match result:
        case Failed():
            line = f"- **failed** ({result.kind}) `{result.cell_id}`: {say(result.reason)}"
            return [line, f"  repeat: `{result.repeat}`"]
        case Blocked():
            return [f"- **blocked** `{result.cell_id}`: {say(result.reason)}"]
        case Verification():
            outcome = outcome_of(result)
            line = f"- {outcome} `{result.cell_id}` on {result.target}"
            if outcome is Outcome.PASSED:
                return [line]
            bad = [check for check in result.checks if check.outcome is outcome]
            reasons = [f"  - {say(f'{c.session}/{c.name}: {c.reason}')}" for c in bad]
            repeat = repeat_line("verify", result.cell_id, result.target)
            return [line, *reasons[:20], f"  repeat: `{repeat}`"]
        case NightStanding():
            return [f"- `{result.cell_id}` {say(result.text)}"]
        case _:
            return [f"- {describe(result)}"]


# A skip was a decision, so it comes before what this machine lacks.
_WORST_FIRST = [
    "error",
    "failed",
    "skipped",
    "emulated",
    "undetermined",
    "unavailable",
    "blocked",
    "made",
    "passed",
]


def _rank(result: object) -> int:
    return -1 if isinstance(result, Failed) else _WORST_FIRST.index(_word(result))


def _word(result: object) -> str:
    if isinstance(result, Verification):
        return outcome_of(result).value
    return {Failed: "failed", Blocked: "blocked"}.get(type(result), "made")


def error_commands(results: Iterable[object], lines: Mapping[str, int]) -> list[str]:
    """Return GitHub's workflow commands, worst first: the failures, at the line of their row.
    `lines` are those of the cells in matrix.yaml.
    """
    ordered = sorted(results, key=_rank)
    bad = [result for result in ordered if _word(result) not in {"made", "passed"}]
    commands = []
    for result in bad:
        cell_id = getattr(result, "cell_id", "")
        title = _data(cell_id).replace(":", "%3A").replace(",", "%2C")
        text = " ".join(line.strip() for line in _lines(result, _plainly))
        plain = _data(text.replace("`", "").replace("**", ""))
        where = f"file=matrix.yaml,line={lines.get(cell_id, 1)},title={title}"
        commands.append(f"::error {where}::{plain}")
    if len(commands) <= ANNOTATION_LIMIT:
        return commands
    more = len(commands) - ANNOTATION_LIMIT + 1
    return [
        *commands[: ANNOTATION_LIMIT - 1],
        f"::error title=more::and {more} more, in the summary",
    ]


def _data(text: str) -> str:
    """Return a message with the characters escaped that would end a command
    (https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts).
    """
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _said(text: str) -> str:
    """Return foreign text as one line of Markdown, cut to the limit of a table."""
    return markdown_text(text[:MOST_CHARACTERS])


def _plainly(text: str) -> str:
    """Return the same where nothing is rendered."""
    return flat(text[:MOST_CHARACTERS])
