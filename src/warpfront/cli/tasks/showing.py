"""Output of tasks: one line per cell, tables, JSON, and the failure at the end."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from warpfront import pipeline
from warpfront.cli.display import text_width
from warpfront.errors import UndeterminedError
from warpfront.step_results import Blocked, Failed
from warpfront_checks.guard.visible import terminal_of, visible_json

if TYPE_CHECKING:
    from rich.text import Text

    from warpfront.cli.display import Display
    from warpfront.images.cell_locks import Locked
    from warpfront.images.plan import PlannedCell
    from warpfront.matrix.cell import Selection
    from warpfront.pipeline.workspace import Workspace
    from warpfront.report.rows import ReportRow
    from warpfront.system.progress import Watch


def workspace_here(display: Display | None = None) -> Workspace:
    """Return the project in this folder or above it; its warnings go to `display`, if any."""
    from warpfront.pipeline.workspace import open_workspace

    workspace = open_workspace(project_root())
    if display:
        for warning in workspace.matrix.warnings:
            display.say(f"warning: {warning}")
    return workspace


def complete_locks(
    workspace: Workspace, cells: Selection, watch: Watch, *, locked: bool
) -> Mapping[str, Locked]:
    """Return the results of `lock` and then `build-wheels`."""
    locks = pipeline.lock(workspace, cells, watch, locked=locked)
    return pipeline.build_wheels(workspace, cells, watch, locks=locks)


def project_root() -> Path:
    """Return this folder, or the nearest above it that has a matrix.yaml."""
    from warpfront.pipeline.workspace import root_of

    return root_of(Path.cwd())


def finish(display: Display, results: Mapping[str, object]) -> None:
    """Print one line per cell (or JSON), then fail if any cell did."""
    lines = (f"{cell_id}: {_said(result)}" for cell_id, result in results.items())
    display.result(results, lambda: print(*lines, sep="\n", end="\n" if results else ""))
    raise_failure(results.values())


def print_unfinished(results: Iterable[object]) -> None:
    """Print a line for each cell without a result, with the reason."""
    for result in results:
        if isinstance(result, Blocked | Failed):
            print(f"{result.cell_id}: {_said(result)}")


def _said(result: object) -> str:
    from warpfront.report.described import describe

    if not isinstance(result, Blocked | Failed):
        return describe(result)
    hint = f"\n    hint: {result.hint}" if result.hint else ""
    return f"{'blocked' if isinstance(result, Blocked) else 'failed'}: {result.reason}{hint}"


def raise_failure(results: Iterable[object], *, allow_undetermined: bool = False) -> None:
    """Raise the worst of what is not a success."""
    from warpfront.verify.verdict import failure_of

    failure = failure_of(results)
    if failure is not None and not (allow_undetermined and isinstance(failure, UndeterminedError)):
        raise failure


def print_json(value: object) -> None:
    from warpfront.system.store import as_json

    print(visible_json(json.dumps(as_json(value), indent=2, sort_keys=True)))


def print_plan(display: Display, planned: Iterable[PlannedCell]) -> None:
    from warpfront.report.text import plan_lines

    display.result(planned, lambda: _draw(functools.partial(plan_lines, planned)))


def print_report(display: Display, rows: Iterable[ReportRow]) -> None:
    display.result(rows, lambda: draw_report(rows))


def draw_report(rows: Iterable[ReportRow]) -> None:
    from warpfront.report.text import report_lines

    _draw(functools.partial(report_lines, tuple(rows)))


def _draw(lines_of: Callable[[int], Iterable[Text]]) -> None:
    """Print lines to stdout, as wide as the terminal. None is cut: people copy ids."""
    from warpfront.report.text import plain_console

    console = plain_console(terminal_of(sys.stdout))
    for line in lines_of(console.width if console.is_terminal else text_width()):
        if console.is_terminal:
            console.print(line, crop=False, no_wrap=True, overflow="ignore")
        else:
            print(line.plain.rstrip())
