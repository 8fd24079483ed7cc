"""gather: merge the results of a run's jobs into one build folder, and judge the run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from warpfront.ci.flow import HANDOVER, LEFT
from warpfront.ci.handover import handed_over, merge
from warpfront.ci.judging import Judgement, RunEnd, demands_of, judge
from warpfront.ci.schedule import Schedule
from warpfront.commands.benching import kept_standing
from warpfront.commands.candidates import kept_candidate
from warpfront.errors import HandoverError, StoreError
from warpfront.images.built import BuiltImage
from warpfront.images.labels import BASE_SOURCE, CONTENT_HASH, RELAXED
from warpfront.matrix.cell import Cell
from warpfront.pipeline.reporting import publication_of
from warpfront.pipeline.workspace import Workspace
from warpfront.release.admission import Evidence
from warpfront.release.evidence import kept_evidence
from warpfront.report.rows import ReportRow
from warpfront.step_results import Blocked, Failed
from warpfront.system.provenance import Forge
from warpfront.system.store import Store

PLAN = "plan"


def keep_plan(planned: Schedule, root: Path) -> str:
    """Write left/plan/plan.json for later jobs. Return its digest, which the CI service stores."""
    Store(root / LEFT).save(PLAN, PLAN, planned)
    return plan_digest(root)


def plan_digest(root: Path) -> str:
    """Return the sha256 of the plan of this run, "" without one."""
    paths = (root / folder / PLAN / f"{PLAN}.json" for folder in (HANDOVER, LEFT))
    digests = (hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file())
    return next(digests, "")


def kept_plan(root: Path) -> Schedule | None:
    """Return the plan of this run, from its own job's artifact or from a downloaded one."""
    plans = (Store(root / folder).load(PLAN, PLAN, (Schedule,)) for folder in (HANDOVER, LEFT))
    return next(filter(None, plans), None)


def judge_run(
    workspace: Workspace,
    report: Callable[[], tuple[ReportRow, ...]],
    *,
    forge: Forge,
    jobs: Mapping[str, str] | None = None,
    checked_by_label: bool = False,
    now: str,
) -> Judgement:
    """Judge whether all planned work has passed. `report` reads the merged build folder. `jobs` is
    the state of each job by name, None where that is not known; `checked_by_label` is whether the
    run of the label `gpu` for the same commit is green.
    """
    matrix, store, root = workspace.matrix, workspace.folders.store, workspace.folders.root
    if forge.plan_digest is not None and plan_digest(root) not in {"", forge.plan_digest}:
        message = f"{PLAN}/{PLAN}.json is not what the job `plan` left"
        raise HandoverError(message, hint="the run has to be planned again")
    planned = kept_plan(root)
    merge(handed_over(root / HANDOVER, root / LEFT), store.folder)
    if planned is None:
        end = RunEnd(now=now, planned=forge.planned, jobs=forge.ended)
        return judge(None, (), end, demands_of("", "", ()))
    rows = report()
    channel = demands_of(planned.scope, planned.channel, matrix.channels)
    relaxed = {row.cell_id: row.relaxed for row in rows}
    chosen = {cell for cell, _ in planned.selected}
    cells = (cell for cell in matrix.cells if cell.id in chosen)
    evidence = {c.id: _evidence(c, store, jobs, relaxed.get(c.id, ())) for c in cells}
    standings = (kept_standing(store, *timed_cell) for timed_cell in planned.timed)
    # The jobs without evidence: of a kind together where the state of each is not known.
    kinds = (*planned.build.values(), *planned.bench.values(), planned.publish)
    works = (work for kind in kinds for work in kind)
    ends = forge.ended
    if jobs is not None:
        ends = tuple(jobs.get(work.name, "no job in this run") for work in works)
    end = RunEnd(
        now=now,
        planned=forge.planned,
        jobs=ends,
        evidence={cell: part for cell, part in evidence.items() if part},
        publications={cell: publication_of(cell, store) for cell in planned.publishing},
        standings=tuple(filter(None, standings)),
    )
    is_pull_request = planned.scope == "pull_request"
    return judge(
        planned,
        rows,
        end,
        channel,
        lists_unchecked=matrix.ci.unchecked == "listed" and is_pull_request,
        checked_by_label=checked_by_label and is_pull_request,
    )


def _evidence(
    cell: Cell, store: Store, jobs: Mapping[str, str] | None, relaxed: tuple[str, ...]
) -> Evidence | None:
    """Return the evidence of a cell's image from its build and verify jobs."""
    try:
        built = store.load(cell.id, "build", (BuiltImage, Blocked, Failed))
        candidate = kept_candidate(cell.id, store)
    except StoreError:
        return None
    if not isinstance(built, BuiltImage):
        return None
    labels = {CONTENT_HASH: built.content_hash, BASE_SOURCE: built.base.source}
    labels |= {RELAXED: ",".join(relaxed)}
    names = candidate.identities if candidate else ()
    return kept_evidence(cell, store, built, labels, identities=names, jobs=jobs)
