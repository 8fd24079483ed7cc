"""A run of CI: its jobs, a job, and its end.

The jobs follow from what changed; that needs no engine, and builds nothing. A job does one step
with the artifacts it needs, and hands over its own whatever came of it. At the end the results of
all jobs are merged into one build folder and judged, a red run is reported by an issue or a
webhook, and one that waits in vain is ended.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import requests

import warpfront_checks
from warpfront.ci.changes import CellState, changed_cells, fingerprints
from warpfront.ci.flow import HANDOVER, LEFT
from warpfront.ci.forge_api import ForgeApi, GitHubApi, forge_api
from warpfront.ci.handover import demand, handed_over, leave, merge
from warpfront.ci.judging import Judgement, RunEnd, demands_of, judge
from warpfront.ci.retrying import RETRIES, pause_seconds, with_flakiness, worth_another_try
from warpfront.ci.schedule import SCOPES, RunScope, Schedule, schedule
from warpfront.ci.summaries import alert_text
from warpfront.commands.adopting import kept_candidate
from warpfront.commands.benching import kept_standing
from warpfront.errors import (
    CommandFailedError,
    FailureKind,
    HandoverError,
    InputError,
    StoreError,
    UnavailableError,
    WarpfrontError,
    keep_secret,
)
from warpfront.images.built import BuiltImage, RenderedImage
from warpfront.images.labels import BASE_SOURCE, CONTENT_HASH, RELAXED
from warpfront.images.preparing import render_cells
from warpfront.images.render import Material, claimed_policy
from warpfront.matrix.cell import Cell, Selection
from warpfront.matrix.language import NotifyWay
from warpfront.matrix.release_channels import Channel
from warpfront.matrix.runners import Runner
from warpfront.matrix.selection import select, selected_with_parents
from warpfront.pipeline.reporting import publication_of
from warpfront.pipeline.workspace import Workspace
from warpfront.release.admission import Evidence
from warpfront.release.evidence import demanded_channel, kept_evidence
from warpfront.release.origin_claims import read_origins
from warpfront.release.publish_context import require_publisher
from warpfront.report.rows import ReportRow
from warpfront.step_results import Blocked, Failed, StepName, failed_by
from warpfront.system.digests import digest_of
from warpfront.system.process import Command, environment, run
from warpfront.system.progress import Watch
from warpfront.system.provenance import Forge
from warpfront.system.store import Store, read_tree, scratch_folder
from warpfront.system.strict_values import read_as
from warpfront.verify.image_claims import image_claims
from warpfront.verify.results import Verification
from warpfront.verify.verdict import sealed
from warpfront.wheels.lock.reading import read_locks, usable_locks
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.uv_program import uv_version


def dispatch(
    workspace: Workspace, selection: Selection, watch: Watch, *, scope: RunScope, since: str
) -> Schedule:
    """Return the jobs for the selected cells: those that changed since the commit `since`,
    unless the scope includes more. Raise `MatrixError` for a release that no channel takes, and
    `NotPublishableError` where this run may not publish to the scope's channel.
    """
    matrix, folders, material = workspace.matrix, workspace.folders, workspace.material
    scope, notes = _published(scope, matrix.channels)
    if scope.channel:
        require_publisher(read_origins(environment()), matrix.project)
    now, blocked = fingerprint(matrix.cells, material, folders)
    compares = scope.only_changed and bool(since)
    offline, unknown = _offline(matrix.runners) if scope.trusted else ({}, ())
    before = _cells_at(since, folders.root, watch) if compares else None
    planned = schedule(
        select(matrix.cells, selection),
        scope=scope,
        runners=matrix.runners,
        now={cell: state.fingerprint for cell, state in now.items()},
        before=None if before is None else {c: state.fingerprint for c, state in before.items()},
        blocked=blocked,
        offline=offline,
    )
    changed = () if before is None else changed_cells(now, before)
    return dataclasses.replace(planned, notes=(*notes, *unknown, *changed))


def _offline(runners: Iterable[Runner]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Rows of machines of one's own of which none is online, where a token may read that, and what
    could not be found out. A scale set starts its machines when a job comes; a group is shared.
    """
    variables = environment()
    api = forge_api(variables, variables.get("RUNNERS_TOKEN", ""))
    if api is None:
        return {}, ()
    rows = (runner for runner in runners if runner.trust == "self-hosted" and not runner.scale_set)
    offline: dict[str, str] = {}
    for runner in (runner for runner in rows if not runner.group):
        try:
            serves = api.serves(runner.labels)
        except (InputError, UnavailableError) as error:
            return {}, (f"whether machines are online: not determined ({error.message})",)
        if serves is False:
            row = f"the row `{runner.name}` ({', '.join(runner.labels)})"
            offline[runner.name] = f"no machine of {row} is online"
    return offline, ()


def _published(scope: RunScope, channels: tuple[Channel, ...]) -> tuple[RunScope, tuple[str, ...]]:
    """Return the scope and a note: without its channel in matrix.yaml, a nightly run verifies
    its images and publishes none.
    """
    if scope.channel in {"", *(channel.name for channel in channels)}:
        return scope, ()
    if scope.name == "release":
        demanded_channel(channels, scope.channel)
    note = f"nothing is published: matrix.yaml has no channel `{scope.channel}` (docs/release.md)"
    return dataclasses.replace(scope, channel=""), (note,)


def fingerprint(
    cells: Iterable[Cell], material: Material, folders: Folders
) -> tuple[dict[str, CellState], dict[str, str]]:
    """Return the states of `cells` and their parents, and why some of them can be made nowhere."""
    chain = selected_with_parents(tuple(cells), Selection())
    states = read_locks(chain, folders)
    blocked: dict[str, str] = {}
    for cell in chain:
        if cell.parent in blocked:
            blocked[cell.id] = f"its parent {cell.parent} is blocked"
        elif states[cell.id].reason:
            blocked[cell.id] = f"its lock: {states[cell.id].reason}"
        elif cell.base.unpinned:
            blocked[cell.id] = f"base {cell.base.name} is unpinned: {cell.base.unpinned}"
    locks = usable_locks(states)
    items = render_cells([cell for cell in chain if cell.id in locks], locks, material)
    rendered = {id_: item for id_, item in items.items() if isinstance(item, RenderedImage)}
    for cell_id, item in items.items():
        if not isinstance(item, RenderedImage):
            blocked.setdefault(cell_id, item.reason)
    ours = read_tree(Path(warpfront_checks.__file__).parent).items()
    files = {n: getattr(file, "identity", "") for n, file in ours if "__pycache__" not in n}
    by_id, checks = {cell.id: cell for cell in chain}, digest_of(files)
    verified: dict[str, list[object]] = {}
    for cell in (by_id[cell_id] for cell_id in rendered.keys() - blocked.keys()):
        lock, policy = locks[cell.id], claimed_policy(cell, by_id, locks, material.compat)
        claims = (image_claims(cell, lock, policy, target=one) for one in sorted(cell.targets))
        verified[cell.id] = [checks, *(each.document() for each in claims)]
        if cell.tree is not None:
            tree = ("git", "rev-parse", f"HEAD:./{cell.tree.path}")
            source = run(Command(argv=tree, cwd=folders.root)).stdout
            verified[cell.id] += [dataclasses.asdict(cell.tree), source]
    builder = f"uv {uv_version()}"
    values = fingerprints(chain, rendered, blocked, builder=builder, verified=verified)
    states_now = {}
    for cell_id, value in values.items():
        wheels = locks[cell_id].wheels if cell_id in locks else ()
        versions = {wheel.name: wheel.version for wheel in wheels}
        size = sum(wheel.size_bytes for wheel in wheels)
        states_now[cell_id] = CellState(fingerprint=value, wheels=versions, size_bytes=size)
    return states_now, blocked


def _cells_at(commit: str, root: Path, watch: Watch) -> Mapping[str, CellState] | None:
    """Return the cells' states at `commit`, computed by that commit's own program. Return None
    if it cannot compute them, so that everything counts as new.
    """
    with scratch_folder() as folder:
        tree = folder / "tree"
        add = ("git", "worktree", "add", "--detach", "--quiet", "--", str(tree), commit)
        try:
            run(Command(argv=add, cwd=root)).check()
            source = tree / "src"
            has_own = (source / "warpfront").is_dir()
            command = Command(
                argv=(sys.executable, "-m", "warpfront", "ci", "--fingerprints"),
                cwd=tree,
                environment={"PYTHONPATH": str(source)} if has_own else None,
                timeout_seconds=300,
            )
            try:
                return read_as(dict[str, CellState], json.loads(run(command).check().stdout))
            finally:
                run(Command(argv=("git", "worktree", "remove", "--force", str(tree)), cwd=root))
        except (CommandFailedError, ValueError) as error:
            first = str(error).splitlines()[0]
            watch.say(f"warning: nothing to compare with at {commit}, so all is new: {first}")
            return None


Pause = Callable[[float], None]
Act = Callable[[str], Sequence[object]]
"""A step of one cell: what it made of it, and of the cells that it stands on."""

STEPS_OF_JOBS = ("build", "verify", "bench", "publish")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """The step, cells and target of a CI job. `after` are the artifacts that it needs."""

    step: StepName
    name: str
    cells: tuple[str, ...]
    target: str = ""
    after: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.step not in STEPS_OF_JOBS or not self.name or not self.cells:
            steps = "|".join(STEPS_OF_JOBS)
            raise InputError(f"a job is `--step {steps}`, with --name and --cells")

    @property
    def files(self) -> str:
        """The prefix of the names of the step's result files."""
        on_target = self.step in {"verify", "bench"}
        return f"{self.step}-{self.target}" if on_target else self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The results of a job, and the number of tries of each cell."""

    results: tuple[object, ...]
    tries: Mapping[str, int]


def work(
    job_request: JobRequest,
    act: Act,
    folders: Folders,
    *,
    watch: Watch,
    prepare: Callable[[], object] = lambda: None,
    finish: Callable[[Sequence[object]], object] = lambda _results: None,
    retries: int = RETRIES,
    pause: Pause = time.sleep,
) -> Done:
    """Take what was handed over, `prepare` the machine, do the step for each cell, `finish` with
    the results, and hand over what there is. What failed for its infrastructure is tried again, so
    many times; a missing hand-over and a machine that is not ready fail every cell.
    """
    store, root, cells = folders.store, folders.root, job_request.cells
    handovers = handed_over(root / HANDOVER, root / LEFT)
    merge(handovers, store.folder)
    # Verifications of an earlier try of this job, from that try's artifact.
    earlier = (store.readable(cell, job_request.files, (Verification,)) for cell in cells)
    before = dict(zip(cells, earlier, strict=True))
    results: list[object] = []
    tries: dict[str, int] = {}
    try:
        hindrance: WarpfrontError | None = None
        try:
            demand(job_request.after, handovers.values())
            prepare()
        except WarpfrontError as error:
            if error.kind is FailureKind.INPUT:  # a mistake of the call
                raise
            hindrance = error
        for cell in cells:
            cell_results: Sequence[object]
            if hindrance is not None:
                cell_results, tries[cell] = [failed_by(hindrance, cell, job_request.step)], 1
            else:
                cell_results, tries[cell] = _tried(
                    act, cell, step=job_request.step, retries=retries, watch=watch, pause=pause
                )
            _keep_reason(cell_results, job_request, store)
            results += [_judged_again(result, before[cell], store) for result in cell_results]
        finish(results)
    finally:
        ids = dict.fromkeys((*cells, *(getattr(r, "cell_id", "") for r in results)))
        folder = root / LEFT / job_request.name
        leave(store.folder, filter(None, ids), job_request.files, folder)
    return Done(results=tuple(results), tries=tries)


def _tried(
    act: Act, cell: str, *, step: StepName, retries: int, watch: Watch, pause: Pause
) -> tuple[Sequence[object], int]:
    """Return the results of one cell, after retries of infrastructure failures."""
    tries = 0
    while True:
        tries += 1
        try:
            results = act(cell)
        except WarpfrontError as error:
            if error.kind not in {FailureKind.INFRASTRUCTURE, FailureKind.TIMEOUT}:
                raise
            results = [failed_by(error, cell, step)]
        if tries > retries or not worth_another_try(results):
            return results, tries
        seconds = pause_seconds(tries)
        watch.say(f"{cell}: infrastructure failed; the next try is in {seconds:g} s")
        pause(seconds)


def _keep_reason(results: Sequence[object], job_request: JobRequest, store: Store) -> None:
    """Store for the report why nothing was built or verified, unless the step stored a result.
    The record of an image that exists is not replaced.
    """
    name = not_run(job_request.target)
    for result in results:
        if job_request.step == "verify" and isinstance(result, Verification):
            store.drop(result.cell_id, name)
        elif job_request.step == "verify" and isinstance(result, Failed):
            store.save(result.cell_id, name, result)
        elif job_request.step == "build" and isinstance(result, Failed):
            before = store.load(result.cell_id, "build", (BuiltImage, Blocked, Failed))
            if not isinstance(before, BuiltImage):
                store.save(result.cell_id, "build", result)


def not_run(target: str) -> str:
    """Return the name of the stored reason why a verification on `target` never ran."""
    return f"verify-{target}-not-run"


def _judged_again(result: object, before: Verification | None, store: Store) -> object:
    if not isinstance(result, Verification):
        return result
    judged = with_flakiness(result, before)
    if judged != result:
        judged = sealed(judged, ended=judged.ended)
        store.save(result.cell_id, f"verify-{result.target}", judged)
    return judged


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
    """Open or update the one issue of a red run, close it after a green one of all cells, and call
    the webhook after a red one. Return what was done, one line each.
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
        if SCOPES[scope].only_changed:  # it looked at no other cell
            return ()
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
    for run_id in api.runs(workflow):
        hub_api = dataclasses.replace(api, run=run_id)
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
            jobs_late = ", ".join(late)
            names.append(f"run {run_id}: no machine took {jobs_late} for {hours} h; cancelled")
    return tuple(names)
