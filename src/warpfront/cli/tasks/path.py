"""The tasks of the path: plan, lock, render, build, verify, report."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import (
    AllowUndetermined,
    Chosen,
    DryRun,
    HowMuch,
    Json,
    Locked,
    Option,
    command,
)
from warpfront.cli.tasks.showing import (
    complete_locks,
    finish,
    print_json,
    print_plan,
    print_report,
    print_unfinished,
    raise_failure,
    workspace_here,
)
from warpfront.errors import InputError
from warpfront.verify.results import Verification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from warpfront.pipeline.verifying import Verified
    from warpfront.pipeline.workspace import Workspace
    from warpfront.report.rows import ReportRow


@command
def plan(display: Display, cells: Chosen, *, json: Json = False) -> None:
    """Say what `build` would do with each cell, and why.

    Changes nothing.
    """
    from warpfront import pipeline
    from warpfront.images.plan import Action

    planned = pipeline.plan(workspace_here(display), cells, display)
    print_plan(planned, json=json)
    if not json:
        counts = Counter(cell.action for cell in planned)
        to_build, to_reuse = counts[Action.BUILD], counts[Action.REUSE]
        print(f"{to_build} to build, {to_reuse} to reuse, {counts[Action.BLOCKED]} blocked")


@command
def lock(
    display: Display,
    cells: Chosen,
    *,
    json: Json = False,
    dry_run: DryRun = False,
    locked: Locked = False,
    refresh: Annotated[bool, Option("make locks anew even where they are fresh")] = False,
) -> None:
    """Pin every wheel of every cell by hash, in images/locks/.

    Builds nothing: wheels that have to be built are left to `build-wheels`.
    """
    from warpfront import pipeline

    workspace = workspace_here()
    if dry_run:
        print_plan(pipeline.plan(workspace, cells, display), json=json)
        return
    results = pipeline.lock(workspace, cells, display, locked=locked, refresh=refresh)
    finish(results, json=json)


@command
def build_wheels(display: Display, cells: Chosen, *, json: Json = False) -> None:
    """Build the wheels that no index has, and complete the locks that name them."""
    from warpfront import pipeline

    finish(pipeline.build_wheels(workspace_here(), cells, display), json=json)


@command
def render(
    display: Display,
    cells: Chosen,
    *,
    json: Json = False,
    dry_run: DryRun = False,
    locked: Locked = False,
) -> None:
    """Write each cell's build context to build/<cell>/context/."""
    from warpfront import pipeline

    workspace = workspace_here()
    if dry_run:
        print_plan(pipeline.plan(workspace, cells, display), json=json)
        return
    locks = complete_locks(workspace, cells, display, locked=locked)
    finish(pipeline.render(workspace, cells, display, locks=locks), json=json)


@command
def build(
    display: Display,
    cells: Chosen,
    *,
    json: Json = False,
    dry_run: DryRun = False,
    locked: Locked = False,
    layers: Annotated[
        bool,
        Option("put together of layers made once for each wheel, where the engine keeps such"),
    ] = False,
    spread: Annotated[bool, Option("on every engine of `builders:` at once")] = False,
) -> None:
    """Build images of the selected cells, reusing those whose content exists."""
    from warpfront import pipeline

    workspace = workspace_here()
    if spread and not dry_run:
        from warpfront.commands.spreading import spread as build_on_all

        finish(build_on_all(workspace, cells, display), json=json)
        return
    if dry_run:
        print_plan(pipeline.plan(workspace, cells, display), json=json)
        return
    locks = complete_locks(workspace, cells, display, locked=locked)
    results = pipeline.build(workspace, cells, display, locks=locks, layers=layers)
    finish(results, json=json)


@dataclass(frozen=True)
class Running:
    """Options of `verify`'s containers: the fields of `pipeline.verifying.RunOptions`."""

    again: Annotated[
        int, Option("how many times, with other seeds each; a check that flips has failed")
    ] = 1
    limit_seconds: Annotated[
        int, Option("stop a container after so many seconds (1200 if not given)")
    ] = 1200
    user: Annotated[
        str, Option("uid or uid:gid that the checks run as, as `docker run --user` (yours)")
    ] = ""
    fresh: Annotated[
        bool, Option("run every session, also those that an interrupted run has proven")
    ] = False
    emulate: Annotated[
        str,
        Option("folder of AMD's emulator rocJITsu: run load, numerics, golden and devices in it"),
    ] = ""


@command
def verify(
    display: Display,
    cells: Chosen,
    *,
    json: Json = False,
    dry_run: Annotated[bool, Option("print what is known of each cell, and run nothing")] = False,
    effort: HowMuch,
    selftest: Annotated[bool, Option("also seed faults, each of which has to be caught")] = False,
    running: Running,
    digest: Annotated[
        str, Option("pull this image (repository@sha256:...), and verify it as its cell's own")
    ] = "",
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """Run the checks inside each selected cell's image, as `nox -s verify` does."""
    from warpfront import pipeline
    from warpfront.pipeline.verifying import RunOptions

    workspace, options = workspace_here(), RunOptions(**vars(running))
    if digest:
        from warpfront.commands.adopting import adopt

        adopted = adopt(workspace, digest, display)
        if adopted is None:
            from warpfront.commands.external_images import verify_external_image

            external, rows = verify_external_image(
                workspace, cells, display, digest, effort=effort, selftest=selftest, options=options
            )
            _print_verified(external, lambda: rows, json=json, allowed=allow_undetermined)
            return
        cells = replace(cells, only=adopted.id)
    if dry_run:
        print_report(pipeline.report(workspace, cells), json=json)
        return
    results = pipeline.verify(
        workspace, cells, display, effort=effort, selftest=selftest, options=options
    )
    reported = functools.partial(pipeline.report, workspace, cells)
    _print_verified(results, reported, json=json, allowed=allow_undetermined)


def _print_verified(
    results: tuple[Verified, ...],
    rows: Callable[[], tuple[ReportRow, ...]],
    *,
    json: bool,
    allowed: bool,
) -> None:
    if json:
        print_json(results)
    else:
        print_report(rows(), json=False)
        print_unfinished(results)
        _print_profiles(results)
    raise_failure(results, allow_undetermined=allowed)


@command
def explain(
    *,
    result: Annotated[str, Option("the results of a session, as verify left them: SESSION.json")],
    check: Annotated[str, Option("the name of a check that failed there")],
) -> None:
    """Print a script that repeats a check's first failure.

    It needs torch and numpy, and nothing of ours: inputs come from the seed,
    and it says what each bound is.
    """
    from warpfront_checks.explaining import UnexplainedError, explained

    try:
        print(explained(Path(result), check), end="")
    except UnexplainedError as error:
        message, _, hint = str(error).partition("\nhint: ")
        raise InputError(message, hint=hint) from None
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{result}: {error}",
            hint="name a SESSION.json below build/<cell>/verify-<target>/results",
        ) from None


def _print_profiles(results: Iterable[Verified]) -> None:
    """Print the verdict of each requested tolerance profile."""
    from warpfront.report.profiles import profiles_text

    for result in results:
        if isinstance(result, Verification) and (text := profiles_text(result)):
            print(f"\n{result.cell_id} on {result.target}\n{text}", end="")


def _write_page(
    workspace: Workspace,
    rows: Iterable[ReportRow],
    display: Display,
    *,
    html: str,
    history: str,
    nights: str,
    branch: str,
) -> None:
    import contextlib

    from warpfront.commands.paging import write_page
    from warpfront.commands.run_history import NIGHTS, RUNS, branch_history
    from warpfront.system.process import environment, run
    from warpfront.system.provenance import read_provenance

    root = workspace.folders.root
    past = branch_history(branch, root, run, environment()) if branch else None
    with past or contextlib.nullcontext() as folder:
        runs = folder / RUNS if folder else Path(history) if history else None
        times = folder / NIGHTS if folder else Path(nights) if nights else None
        write_page(
            Path(html),
            rows,
            {cell.id: cell for cell in workspace.matrix.cells},
            workspace.folders.store,
            provenance=read_provenance(root, run),
            history=runs,
            nights=times,
            watch=display,
        )


@command
def report(
    display: Display,
    cells: Chosen,
    *,
    json: Json = False,
    markdown: Annotated[bool, Option("print it as a Markdown table")] = False,
    html: Annotated[str, Option("also write it as one page, to this file")] = "",
    history: Annotated[str, Option("with --html: JSON lines of runs, to show and to add to")] = "",
    nights: Annotated[str, Option("with --html: the nights' times, to show and to add to")] = "",
    history_branch: Annotated[
        str, Option("as --history and --nights, of files on this branch of origin")
    ] = "",
) -> None:
    """Show what each step made of every cell, from what the steps left behind."""
    from warpfront import pipeline
    from warpfront.report.text import report_markdown

    workspace = workspace_here()
    rows = pipeline.report(workspace, cells)
    if html:
        _write_page(
            workspace,
            rows,
            display,
            html=html,
            history=history,
            nights=nights,
            branch=history_branch,
        )
    if markdown and not json:
        print(report_markdown(rows), end="")
    else:
        print_report(rows, json=json)
