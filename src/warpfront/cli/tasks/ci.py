"""The tasks of CI: workflows, schedules, single jobs, verdicts, and machines for jobs."""

from __future__ import annotations

import dataclasses
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from warpfront import commands, pipeline
from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import (
    Chosen,
    DryRun,
    Group,
    HiddenEffort,
    HowMuch,
    Option,
    command,
)
from warpfront.cli.tasks.machine import print_ready
from warpfront.cli.tasks.showing import (
    complete_locks,
    print_json,
    print_report,
    raise_failure,
    workspace_here,
)
from warpfront.errors import InputError, NotVerifiedError, StaleError
from warpfront.matrix.cell import Selection
from warpfront.step_results import Blocked, Failed
from warpfront.system.foreign import remove_tree
from warpfront.system.process import environment, run, stream
from warpfront.system.texts import counted
from warpfront_checks.guard.visible import terminal_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warpfront.ci.judging import Judgement
    from warpfront.commands.ci_runs import Act, JobRequest
    from warpfront.matrix.runners import Runner
    from warpfront.pipeline.workspace import Workspace
    from warpfront.system.provenance import Forge
    from warpfront_checks.check_options import CheckOptions


ci_group = Group(name="ci", help="Workflows for GitHub and GitLab, and the jobs that they run.")


@command("ci write", example="ci write")
def write(display: Display) -> None:
    """Write the workflows and entry points for the runners of matrix.yaml."""
    workspace = workspace_here()
    files = commands.workflows.ci_files(workspace, commands.workflows.lock_here)
    changed = list(commands.workflows.write(files, workspace.folders.root))
    for name in changed:
        display.say(f"wrote {name}" if files[name] is not None else f"removed {name}")
    display.result({"changed": changed})


@command("ci check", example="ci check")
def check(display: Display) -> None:
    """Fail with a diff if a generated workflow is not current."""
    from warpfront.ci.flow import unable_to_pull

    workspace = workspace_here()
    root = workspace.folders.root
    files = commands.workflows.ci_files(workspace, None)
    flow = commands.workflows.flow_of(workspace.matrix, root)
    if note := unable_to_pull(flow, environment().get("HAS_READ_TOKEN", "")):
        display.say(note)
    diff = commands.workflows.stale(files, root)
    display.result({"diff": diff}, diff)
    if diff:
        raise StaleError("workflows are stale", hint="`warpfront ci write`, and commit the result")


@command("ci plan", hidden=True, example="ci plan --json")
def plan(
    display: Display,
    cells: Chosen,
    *,
    scope: Annotated[str, "event of the run (default: the CI service's)"] = "",
    since: Annotated[str, "commit to compare with, for changes"] = "",
) -> None:
    """List the jobs of a run, and pass them to the CI service."""
    from warpfront.ci.flow import HANDOVER, LEFT, packaged_limits, unable_to_pull
    from warpfront.ci.gitlab import CHILD, child_pipeline
    from warpfront.ci.schedule import SCOPES, outputs
    from warpfront.ci.summaries import plan_summary
    from warpfront.system.store import write_text

    workspace, forge = workspace_here(), _forge()
    root = workspace.folders.root
    flow = commands.workflows.flow_of(workspace.matrix, root)
    name = scope or forge.scope or "pull_request"
    if name not in SCOPES:
        raise InputError(f"scope {name!r} is not known", hint=f"known: {', '.join(SCOPES)}")
    dispatch, since = commands.ci_runs.dispatch, since or forge.since
    planned = dispatch(workspace, cells, display, scope=SCOPES[name], since=since)
    note = unable_to_pull(flow, environment().get("HAS_READ_TOKEN", ""))
    if planned.channel and note:
        planned = dataclasses.replace(planned, notes=(*planned.notes, note))
    limits = packaged_limits()
    values = outputs(planned, flow.jobs, limits)
    for folder in (HANDOVER, LEFT):
        remove_tree(root / folder)
    digest = commands.ci_runs.keep_plan(planned, root)
    try:
        text, crowded = child_pipeline(flow, planned, limits, digest)
        write_text(root / CHILD, text)
        if crowded and environment().get("GITLAB_CI"):
            planned = dataclasses.replace(planned, notes=(*planned.notes, crowded))
    except InputError as error:
        if environment().get("GITLAB_CI"):
            raise
        display.say(f"no pipeline for GitLab: {error.message}")
    forge.say_outputs({**values, "plan": digest})
    summary = plan_summary(planned)
    forge.say_summary(summary)
    display.result(planned, summary)


@command("ci judge", hidden=True, example="ci judge")
def judge(display: Display) -> None:
    """Decide whether everything that was planned has passed."""
    from warpfront.ci.summaries import judgement_summary

    forge = _forge()
    judgement, notes = _judgement(workspace_here(), forge)
    summary = judgement_summary(judgement, notes)
    forge.say_summary(summary)
    display.result(judgement, summary)
    if judgement.error is not None:
        raise judgement.error


@command("ci notify", hidden=True, example="ci notify")
def notify(display: Display) -> None:
    """Report a failed run: an issue, a webhook."""
    from warpfront.ci.forge_api import forge_api

    workspace, forge, variables = workspace_here(), _forge(), environment()
    judgement, _ = _judgement(workspace, forge)
    planned = commands.ci_runs.kept_plan(workspace.folders.root)
    notes = commands.ci_runs.notify(
        judgement,
        planned.scope if planned else forge.scope,
        forge.url,
        ways=workspace.matrix.ci.notify,
        api=forge_api(variables),
        webhook=variables.get("WARPFRONT_WEBHOOK", ""),
    )
    for line in notes or ("nobody had to be told",):
        display.say(line)


@command("ci queue", hidden=True, example="ci queue")
def queue(display: Display) -> None:
    """End runs that wait too long for a machine."""
    from warpfront.ci.forge_api import GitHubApi, forge_api
    from warpfront.ci.github_workflows import MAIN
    from warpfront.system.provenance import now

    api = forge_api(environment())
    if not isinstance(api, GitHubApi):
        hint = "docs/admission.md, After the merge"
        raise InputError("no run of GitHub's, or no API_TOKEN", hint=hint)
    hours = workspace_here().matrix.ci.queue_hours
    for line in commands.ci_runs.end_waiting_runs(api, f"{MAIN}.yml", hours=hours, now=now()):
        display.say(line)


@command("ci fingerprints", hidden=True, example="ci fingerprints")
def fingerprints(display: Display) -> None:
    """Print the dependencies of each cell as JSON."""
    workspace, fingerprint = workspace_here(), commands.ci_runs.fingerprint
    states, _ = fingerprint(workspace.matrix.cells, workspace.material, workspace.folders)
    display.result(states, lambda: print_json(states))


def _forge() -> Forge:
    """Return the current job; its output is read for problems from here on."""
    from warpfront.ci.flow import LABEL
    from warpfront.ci.github_workflows import MATCHERS
    from warpfront.system.provenance import read_forge

    forge = read_forge(environment(), label=LABEL)
    if forge.scope and Path(MATCHERS).is_file():
        print(f"::add-matcher::{MATCHERS}", file=terminal_of(sys.stderr))
    return forge


def _judgement(workspace: Workspace, forge: Forge) -> tuple[Judgement, tuple[str, ...]]:
    """Return the verdict on this run, and what could not be determined for it."""
    from warpfront.ci.forge_api import GitHubApi, forge_api, job_states
    from warpfront.ci.github_workflows import LABELLED
    from warpfront.system.provenance import now

    api = forge_api(environment())
    states, unknown = job_states(api)
    can_ask = states is not None and forge.head
    checked = isinstance(api, GitHubApi) and bool(
        can_ask and api.succeeded(f"{LABELLED}.yml", forge.head, forge.since)
    )
    judgement = commands.ci_runs.judge_run(
        workspace,
        lambda: pipeline.report(workspace, Selection()),
        forge=forge,
        jobs=states,
        checked_by_label=checked,
        now=now(),
    )
    return judgement, (unknown,) if unknown else ()


@command("ci merge", hidden=True, formerly=("merge",), example="ci merge --below handover")
def merge(
    display: Display,
    *,
    dry_run: DryRun = False,
    folder: Annotated[tuple[str, ...], "artifact folder; several times"] = (),
    below: Annotated[str, "DIR  merge every artifact of this folder"] = "",
) -> None:
    """Merge the artifacts of several machines into this build folder.

    Each file must match its manifest; two that differ are refused.
    """
    from warpfront.ci.handover import handed_over, merge, read_handover

    workspace = workspace_here()
    folders = [*map(Path, folder), *(handed_over(Path(below)) if below else ())]
    if dry_run:
        names = [name for folder in folders for name in read_handover(folder)]
    else:
        names = list(merge(folders, workspace.folders.store.folder))
    verb = "would merge" if dry_run else "merged"
    display.say(f"{verb} {counted(len(names), 'file')} of {counted(len(folders), 'artifact')}")
    display.result({"artifacts": folders, "files": names, "dry_run": dry_run})


@command("ci run", formerly=("job",), example="ci run --step verify --cells CELL --on sm_90")
def job(
    display: Display,
    *,
    effort: HiddenEffort,
    dry_run: DryRun = False,
    step: Annotated[
        str, Option("step of the job", choices=("build", "verify", "bench", "publish"))
    ] = "",
    name: Annotated[str, Option("name of the job and of its artifact", hidden=True)] = "",
    cells: Annotated[str, "IDS  cells of the job, separated by spaces"] = "",
    on: Annotated[str, "TARGET  target to verify or to time"] = "",
    after: Annotated[
        str, Option("JOBS  jobs whose artifacts it needs, separated by commas", hidden=True)
    ] = "",
    images: Annotated[
        str, Option("IDS  cells whose images other jobs get as files", hidden=True)
    ] = "",
    runner: Annotated[str, "ROW  row of `runners:` of this machine"] = "",
    channel: Annotated[str, "NAME  channel to publish to"] = "",
    to: Annotated[str, Option("REPOSITORY  repository for built images", hidden=True)] = "",
    retries: Annotated[
        int, Option("N  repeats after an infrastructure failure (default 2)", hidden=True)
    ] = 2,
) -> None:
    """Run one job of CI: a step for some cells. Its artifacts are for other jobs.

    Generated workflows call it; by hand, it repeats a job on another machine.
    """
    from warpfront.ci.summaries import error_commands, job_summary

    forge, workspace = _forge(), workspace_here()
    job_request = commands.ci_runs.JobRequest(
        step=step,  # type: ignore[arg-type]
        name=name,
        cells=tuple(cells.split()),
        target=on,
        after=tuple(filter(None, after.split(","))),
    )
    machine, leave_images = commands.machine, commands.adopting.leave_images
    needs_row = runner or step == "bench"
    row = machine.named_runner(workspace.matrix.runners, runner) if needs_row else None
    publish = partial(_published, workspace, display=display, channel=channel, dry_run=dry_run)
    act = _act(workspace, job_request, display, publish, effort=effort, to=to, row=row)
    outcome = commands.ci_runs.work(
        job_request,
        act,
        workspace.folders,
        watch=display,
        prepare=lambda: machine.ready(row, display) if row else None,
        finish=lambda results: leave_images(images.split(), results, name, workspace.folders),
        retries=retries,
    )
    summary = job_summary(name, outcome.results, tries=outcome.tries)
    forge.say_summary(summary)
    display.result(outcome, summary)
    if forge.scope:
        lines = {cell.id: cell.line for cell in workspace.matrix.cells}
        print("\n".join(error_commands(outcome.results, lines)), file=terminal_of(sys.stdout))
    raise_failure(outcome.results)


def _built(workspace: Workspace, cell: str, display: Display) -> Sequence[object]:
    """Return the results of `build` for a cell by its committed lock."""
    cells = Selection(only=cell)
    locks = complete_locks(workspace, cells, display, locked=True)
    return tuple(pipeline.build(workspace, cells, display, locks=locks).values())


def _act(
    workspace: Workspace,
    job_request: JobRequest,
    display: Display,
    publishing: Act,
    *,
    effort: CheckOptions,
    to: str,
    row: Runner | None,
) -> Act:
    """Run the job's step for one cell: on the image that was built, and on no other."""
    adopting, hold = commands.adopting, commands.benching.hold_against_release
    by_id = {cell.id: cell for cell in workspace.matrix.cells}

    def act(cell: str) -> Sequence[object]:
        if job_request.step == "build":
            results = _built(workspace, cell, display)
            return adopting.send_candidates(results, workspace, to, display) if to else results
        image = adopting.take_image(by_id[cell], workspace.folders, display)
        if isinstance(image, Failed | Blocked):
            return [image]
        if job_request.step == "verify":
            chosen = Selection(only=cell, target=job_request.target)
            return pipeline.verify(workspace, chosen, display, effort=effort)
        if job_request.step == "bench":
            assert row is not None
            return hold(workspace, cell, row, display, target=job_request.target)
        return publishing(cell)

    return act


def _published(
    workspace: Workspace, cell: str, display: Display, *, channel: str, dry_run: bool
) -> Sequence[object]:
    """Signed by COSIGN_KEY, or without a key, by the identity that CI gives to a workflow."""
    from warpfront.ci.forge_api import forge_api, job_states

    variables = environment()
    key = "" if variables.get("COSIGN_KEY") or dry_run else "keyless"
    states, unknown = job_states(None if dry_run else forge_api(variables))
    if unknown:
        display.say(unknown)
    chosen = Selection(only=cell)
    results = pipeline.publish(
        workspace, chosen, display, channel=channel, key=key, dry_run=dry_run, jobs=states
    )
    return tuple(results.values())


@command("ci resume", formerly=("resume",), hidden=True, example="ci resume --dry-run")
def resume(display: Display, cells: Chosen, *, dry_run: DryRun = False, effort: HowMuch) -> None:
    """Continue a run: repeat infrastructure failures and jobs that never ran.

    Other failures are listed and not repeated.
    """
    from warpfront.ci.retrying import remaining

    workspace = workspace_here()
    works = remaining(pipeline.report(workspace, cells))
    would = "would " if dry_run else ""
    for cell in works.build:
        display.say(f"{would}build {cell}")
    for cell, target in works.verify:
        display.say(f"{would}verify {cell} on {target}")
    for row in works.refused:
        display.say(f"not again: {row.cell_id} on {row.target} ({row.kind}): {row.repeat}")
    if dry_run:
        display.result(works)
        return
    results = [result for cell in works.build for result in _built(workspace, cell, display)]
    missing = {result.cell_id for result in results if isinstance(result, Failed | Blocked)}
    for cell, target in works.verify:
        if cell not in missing:
            chosen = Selection(only=cell, target=target)
            results += pipeline.verify(workspace, chosen, display, effort=effort)
    print_report(display, pipeline.report(workspace, cells))
    raise_failure(results)
    if failed := [f"{row.cell_id} on {row.target}" for row in works.refused]:
        raise NotVerifiedError(f"failed before and not tried again: {', '.join(failed)}")


Row = Annotated[str, Option("the row of `runners:` that this machine is", place=True)]

runner_group = Group(name="runner", help="Set up and run this machine as a self-hosted CI runner.")


@command("runner setup", example="runner setup gpu-1", formerly=("runner --prepare",))
def setup(display: Display, row: Row = "", *, dry_run: DryRun = False) -> None:
    """Prepare this machine for jobs: engine, devices and groups.

    `doctor --runner ROW` checks it without changing anything.
    """
    if (runner := _named(row, display, dry_run=dry_run)) is not None:
        commands.machine.prepare(runner, display, run)
        print_ready(display, runner.name)


@command("runner tidy", example="runner tidy gpu-1")
def tidy(display: Display, row: Row = "", *, dry_run: DryRun = False) -> None:
    """Remove what jobs of this project left on this machine, and nothing else."""
    if (runner := _named(row, display, dry_run=dry_run)) is not None:
        commands.machine.tidy(runner, display, commands.machine.engine_of(runner, display))


@command("runner serve", example="runner serve gpu-1 --agent ~/agent --token token.txt")
def serve(
    display: Display,
    row: Row = "",
    *,
    dry_run: DryRun = False,
    forge: Annotated[
        str, "address of the CI service's API: https://api.github.com/repos/me/mine"
    ] = "",
    agent: Annotated[str, "folder of the CI service's agent, with its run.sh"] = "",
    token: Annotated[str, "file with the registration token; - for stdin"] = "",
    jobs: Annotated[int, "N  stop after this many jobs (0: never)"] = 0,
) -> None:
    """Take jobs of CI, each with a registration of its own."""
    from warpfront.system.store import read_text

    if (runner := _named(row, display, dry_run=dry_run)) is None:
        return
    # Never as an argument: every user of the machine can read those.
    if token == "-":  # noqa: S105 - stdin's name
        token = sys.stdin.readline()
    elif token:
        token = read_text(Path(token)) or ""
    commands.machine.serve(
        runner,
        commands.machine.JobSource(api=forge.rstrip("/"), agent=Path(agent), token=token.strip()),
        display,
        lambda agent_command: stream(agent_command, display.say),
        jobs=jobs,
        pause=time.sleep,
    )


def _named(row: str, display: Display, *, dry_run: bool) -> Runner | None:
    """Return the row of this name; None, with a line on stderr, for a dry run."""
    runner = commands.machine.named_runner(workspace_here().matrix.runners, row)
    if dry_run:
        display.say(f"would be {runner.name}: {', '.join(runner.labels)}")
        display.result({"runner": runner.name, "labels": runner.labels, "dry_run": True})
        return None
    return runner
