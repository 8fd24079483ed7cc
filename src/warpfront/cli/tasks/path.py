"""The commands of the path: plan, lock, render, build, verify, report."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from warpfront import commands, pipeline
from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import (
    AllowUndetermined,
    Chosen,
    DryRun,
    HowMuch,
    Locked,
    command,
)
from warpfront.cli.tasks.showing import (
    complete_locks,
    draw_report,
    finish,
    print_plan,
    print_report,
    print_unfinished,
    raise_failure,
    workspace_here,
)
from warpfront.errors import InputError
from warpfront.system.process import environment, run
from warpfront.verify.results import Verification
from warpfront.verify.run_options import RunOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from warpfront.pipeline.verifying import Verified
    from warpfront.pipeline.workspace import Workspace
    from warpfront.report.rows import ReportRow


@command(example="plan")
def plan(display: Display, cells: Chosen) -> None:
    """List what `build` would do with each cell, and why.

    Changes nothing.
    """
    from warpfront.images.plan import Action

    planned = pipeline.plan(workspace_here(display), cells, display)
    print_plan(display, planned)
    counts = Counter(cell.action for cell in planned)
    to_build, to_reuse = counts[Action.BUILD], counts[Action.REUSE]
    print(f"{to_build} to build, {to_reuse} to reuse, {counts[Action.BLOCKED]} blocked")


@command(example='lock --only "cpu-*"')
def lock(
    display: Display,
    cells: Chosen,
    *,
    dry_run: DryRun = False,
    locked: Locked = False,
    refresh: Annotated[bool, "make locks anew even if they are current"] = False,
) -> None:
    """Pin every wheel of every cell by hash, in images/locks/.

    Builds nothing: wheels that have to be built are left to `build-wheels`.
    """
    workspace = workspace_here()
    if dry_run:
        print_plan(display, pipeline.plan(workspace, cells, display))
        return
    finish(display, pipeline.lock(workspace, cells, display, locked=locked, refresh=refresh))


@command(example="build-wheels --image devel")
def build_wheels(display: Display, cells: Chosen) -> None:
    """Build the wheels that no index has, and complete their locks."""
    finish(display, pipeline.build_wheels(workspace_here(), cells, display))


@command(example="render --target cpu")
def render(
    display: Display, cells: Chosen, *, dry_run: DryRun = False, locked: Locked = False
) -> None:
    """Write each cell's build context to build/<cell>/context/."""
    workspace = workspace_here()
    if dry_run:
        print_plan(display, pipeline.plan(workspace, cells, display))
        return
    locks = complete_locks(workspace, cells, display, locked=locked)
    finish(display, pipeline.render(workspace, cells, display, locks=locks))


@command(example="build --target gfx942")
def build(
    display: Display,
    cells: Chosen,
    *,
    dry_run: DryRun = False,
    locked: Locked = False,
    layers: Annotated[
        bool, "compose from one cached layer a wheel (containerd image store only)"
    ] = False,
    spread: Annotated[bool, "build on every engine of `builders:` in parallel"] = False,
) -> None:
    """Build images, reusing those whose content exists."""
    workspace = workspace_here()
    if dry_run:
        print_plan(display, pipeline.plan(workspace, cells, display))
    elif spread:
        finish(display, commands.spreading.spread(workspace, cells, display))
    else:
        locks = complete_locks(workspace, cells, display, locked=locked)
        finish(display, pipeline.build(workspace, cells, display, locks=locks, layers=layers))


@command(example="verify --target cpu")
def verify(
    display: Display,
    cells: Chosen,
    *,
    dry_run: DryRun = False,
    effort: HowMuch,
    selftest: Annotated[bool, "also seed faults, and require that each is caught"] = False,
    options: RunOptions,
    digest: Annotated[str, "REF  verify this image: REPOSITORY@sha256:..."] = "",
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """Run the checks inside each image (also `nox -s verify`)."""
    workspace = workspace_here()
    if digest:
        adopted = commands.adopting.adopt(workspace, digest, display)
        if adopted is None:
            external, rows = commands.adopting.verify_external_image(
                workspace, cells, display, digest, effort=effort, selftest=selftest, options=options
            )
            _print_verified(display, external, lambda: rows, allowed=allow_undetermined)
            return
        cells = replace(cells, only=adopted.id)
    if dry_run:
        print_report(display, pipeline.report(workspace, cells))
        return
    results = pipeline.verify(
        workspace, cells, display, effort=effort, selftest=selftest, options=options
    )
    reported = functools.partial(pipeline.report, workspace, cells)
    _print_verified(display, results, reported, allowed=allow_undetermined)


def _print_verified(
    display: Display,
    results: tuple[Verified, ...],
    rows: Callable[[], tuple[ReportRow, ...]],
    *,
    allowed: bool,
) -> None:
    from warpfront.report.described import profiles_text

    display.result(results, lambda: draw_report(rows()))
    print_unfinished(results)
    for result in results:  # the verdict of each requested tolerance profile
        if isinstance(result, Verification) and (text := profiles_text(result)):
            print(f"\n{result.cell_id} on {result.target}\n{text}", end="")
    raise_failure(results, allow_undetermined=allowed)


@command(example="explain build/CELL/verify-cpu/results/operators.json operators.add")
def explain(
    display: Display,
    result: Annotated[str, "SESSION.json  results of a session, from verify"],
    check: Annotated[str, "name of a failed check"],
) -> None:
    """Print a script that repeats a check's first failure.

    The script needs torch and numpy alone: inputs come from the seed, and each
    bound has its reason.
    """
    from warpfront_checks.explaining import UnexplainedError, explained

    try:
        script = explained(Path(result), check)
        display.result({"script": script}, script)
    except UnexplainedError as error:
        message, _, hint = str(error).partition("\nhint: ")
        raise InputError(message, hint=hint) from None
    except (OSError, ValueError, KeyError) as error:
        hint = "name a SESSION.json below build/<cell>/verify-<target>/results"
        raise InputError(f"{result}: {error}", hint=hint) from None


@dataclass(frozen=True)
class Page:
    """The page of `report`, and the history in it."""

    html: Annotated[str, "FILE  also write one page"] = ""
    history: Annotated[str, "FILE  with --html: runs to show and extend"] = ""
    nights: Annotated[str, "FILE  with --html: timings to show and extend"] = ""
    history_branch: Annotated[str, "BRANCH  take both from this branch of origin"] = ""


def _write_page(
    workspace: Workspace, rows: Iterable[ReportRow], display: Display, page: Page
) -> None:
    import contextlib

    from warpfront.system.provenance import read_provenance

    paging, root, branch = commands.paging, workspace.folders.root, page.history_branch
    past = paging.branch_history(branch, root, run, environment()) if branch else None
    with past or contextlib.nullcontext() as folder:
        runs = folder / paging.RUNS if folder else Path(page.history) if page.history else None
        times = folder / paging.NIGHTS if folder else Path(page.nights) if page.nights else None
        paging.write_page(
            Path(page.html),
            rows,
            {cell.id: cell for cell in workspace.matrix.cells},
            workspace.folders.store,
            provenance=read_provenance(root, run),
            history=runs,
            nights=times,
            watch=display,
        )


@command(example="report --html report.html")
def report(
    display: Display,
    cells: Chosen,
    *,
    markdown: Annotated[bool, "print a Markdown table"] = False,
    page: Page,
) -> None:
    """Show the result of each step for every cell."""
    from warpfront.report.text import report_markdown

    workspace = workspace_here()
    rows = pipeline.report(workspace, cells)
    if page.html:
        _write_page(workspace, rows, display, page)
    display.result(rows, report_markdown(rows) if markdown else lambda: draw_report(rows))
