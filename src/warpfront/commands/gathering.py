"""The end of a run: results of its jobs are merged into one build folder and judged, a red run is
reported by an issue or a webhook, and one that waits in vain is ended.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import requests

from warpfront.ci.flow import HANDOVER, LEFT
from warpfront.ci.forge_api import ForgeApi, GitHubApi
from warpfront.ci.handover import handed_over, merge
from warpfront.ci.judging import Judgement, RunEnd, demands_of, judge
from warpfront.ci.schedule import Schedule
from warpfront.ci.summaries import alert_text
from warpfront.commands.adopting import kept_candidate
from warpfront.commands.benching import kept_standing
from warpfront.errors import HandoverError, InputError, StoreError, UnavailableError, keep_secret
from warpfront.images.built import BuiltImage
from warpfront.images.labels import BASE_SOURCE, CONTENT_HASH, RELAXED
from warpfront.matrix.cell import Cell
from warpfront.matrix.language import NotifyWay
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


_SECONDS = 30.0


def notify(
    judgement: Judgement,
    scope: str,
    url: str,
    *,
    ways: Iterable[NotifyWay],
    api: ForgeApi | None,
    webhook: str,
) -> tuple[str, ...]:
    """Open or update the one issue of a red run, close it after a green one, and call the webhook
    after a red one. Return what was done, one line each.
    """
    notes: list[str] = []
    for way in dict.fromkeys(ways):
        if way == "issue":
            notes += _in_an_issue(judgement, scope, url, api)
        elif judgement.error is not None:
            if not webhook:
                hint = "the environment `alerts` holds it; docs/admission.md, After the merge"
                raise InputError("no address of a webhook: WARPFRONT_WEBHOOK", hint=hint)
            keep_secret(webhook)
            keys = {"cell": "cell_id", "target": "target", "kind": "kind", "reason": "text"}
            keys["repeat"] = "repeat"
            faults = [{k: getattr(each, n) for k, n in keys.items()} for each in judgement.faults]
            # A JSON object whose `text` chat services show as it is.
            text = alert_text(judgement, scope, url, markdown=False)
            body = {"text": text, "scope": scope, "url": url, "failures": faults}
            try:
                answer = requests.post(webhook, json=body, timeout=_SECONDS, allow_redirects=False)
            except requests.RequestException as error:
                kind = type(error).__name__
                raise UnavailableError(f"the webhook does not answer: {kind}") from None
            if answer.status_code >= requests.codes.multiple_choices:
                raise UnavailableError(f"the webhook answers HTTP {answer.status_code}")
            notes.append("called the webhook")
    return tuple(notes)


def _in_an_issue(
    judgement: Judgement, scope: str, url: str, api: ForgeApi | None
) -> tuple[str, ...]:
    if api is None:
        place, without = "docs/admission.md, After the merge", "`notify: []` of `ci:` does without"
        hint = f"{place}, has the token; {without}"
        raise InputError("no token for the forge's issues: API_TOKEN", hint=hint)
    if judgement.error is None:
        closed = api.settle(f"The {scope} run is green again: {url}")
        return (f"closed {closed}",) if closed else ()
    text = alert_text(judgement, scope, url, markdown=True)
    issue = api.tell(f"warpfront: the {scope} run is red", text)
    return (f"told in {issue}",)


def end_waiting_runs(api: GitHubApi, workflow: str, *, hours: int, now: str) -> tuple[str, ...]:
    """Cancel each run of a workflow in which a job waits longer than that for a machine, once
    nothing else of the run goes on. Return one line for each.
    """
    names = []
    for run in api.runs(workflow):
        hub_api = dataclasses.replace(api, run=run)
        jobs = hub_api.jobs()
        late = []
        for job in jobs:
            try:
                age = datetime.fromisoformat(now) - datetime.fromisoformat(job.created)
            except (ValueError, TypeError):
                continue
            if job.state == "queued" and age > timedelta(hours=hours):
                late.append(job.name)
        if late and not any(job.state == "in_progress" for job in jobs):
            hub_api.cancel()
            names.append(f"run {run}: no machine took {', '.join(late)} for {hours} h; cancelled")
    return tuple(names)
