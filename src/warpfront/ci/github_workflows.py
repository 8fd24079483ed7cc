"""The flow as GitHub's workflows: one with the triggers, and one for each kind of job, which it
calls in shards for each vendor. Pure.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from warpfront.ci.flow import (
    HANDOVER,
    HEADER,
    IMAGES,
    LABEL,
    LEFT,
    READ_TOKEN,
    READ_USER,
    SITE,
    Flow,
    Job,
    Limits,
    yaml_text,
)
from warpfront.errors import InputError
from warpfront.matrix.runners import Runner

FOLDER = ".github/workflows"
MAIN = "warpfront"
LABELLED = f"{MAIN}-{LABEL}"
"""The workflow that the label starts. It alone hears of labels, so that no other label restarts or
cancels a run.
"""
QUEUE = f"{MAIN}-queue.yml"
COMPAT = f"{MAIN}-compat.yml"
MATCHERS = ".github/warpfront-problems.json"
"""How a forge reads problems off what is printed: `add-matcher` names it."""
PYTHON = "3.11"
Actions = Mapping[str, tuple[str, str]]

# Only files in which problems are ours: a warning of Python's is `path.py:12: ...`, too.
_PROBLEM = r"^(?:error: )?([\w@./-]+\.(?:ya?ml|toml|txt|j2|json)):(\d+): (.+)$"
_FINDING = r"^  ([^\s:][^:]*):(\d+):(\d+): (.+)$"
_READS = {"contents": "read"}
_POWERS = {
    "packages": "images are pushed",
    "contents": "a branch of its own is written",
    "pull-requests": "contents of wheel indexes are proposed",
    "pages": "the page is published",
    "id-token": "signatures, and who publishes the page, name this workflow",
    "attestations": "provenance is kept beside the image",
    "issues": "one issue names what is red",
    "actions": "runs that wait in vain are ended",
}
_READING = {"actions": "how the run's jobs ended"}
_PAGES = "github-pages"
_RESULTS = "plan,build-*,verify-*,bench-*,publish-*"
_QUEUE = {"cancel-in-progress": False, "queue": "max"}
"""Without `queue`, of three that wait for one another the second is cancelled: data/limits.toml."""
_PULLS = "candidates and releases are pulled"
_KEY_SECRETS = ("COSIGN_PRIVATE_KEY", "COSIGN_PASSWORD")
"""For `COSIGN_KEY: env://COSIGN_PRIVATE_KEY`; all are empty where nobody signs with a key."""
_ZIZMOR = """\
rules:
  # `./` is what every version of the forge, actionlint and act resolve; `$/` is not, yet.
  self-repository:
    disable: true"""
_OWN = """\
  self-hosted-runner:
    # No fork reaches them: a job's `if` says so, there and where it is called.
"""
_OUTSIDE = """\
  secrets-outside-env:
"""
_OUTSIDE_READ = """\
    # `plan` asks whether the token for reading is there, and sees nothing else of it.
"""
_OUTSIDE_RUNNERS = """\
    # `plan` reads which machines are online, by a token that reads nothing else. It runs before any
    # environment, and never with the token in a pull request.
"""
_GROUPED = "    # A group may be GitHub's own machines, too, which it throws away after each job.\n"
_NO_FORK = "github.event.pull_request.head.repo.full_name == github.repository"
_OURS = (
    f"github.event_name != 'pull_request' || ({_NO_FORK} && "
    f"contains(github.event.pull_request.labels.*.name, '{LABEL}'))"
)
_SAME_REPOSITORY = f"github.event_name != 'pull_request' || {_NO_FORK}"
_HOSTED = "ubuntu-24.04"
_NIGHTS = (
    "!cancelled() && needs.plan.result == 'success' && vars.{wanted} == 'yes' && "
    "(github.event_name == 'schedule' || github.event_name == 'workflow_dispatch')"
)
_NO_REQUEST = "github.event_name != 'pull_request'"


_BY_LABEL = f"github.event.label.name == '{LABEL}'"


def workflows(flow: Flow, actions: Actions, limits: Limits) -> dict[str, str]:
    """Return every GitHub file of the flow, by path. Raises `InputError` where there are more
    workflows than GitHub starts.
    """
    documents: dict[str, Any] = {f"{FOLDER}/{MAIN}.yml": _main(flow, actions)}
    if any(job.is_own and job.spread for job in flow.jobs):
        documents[f"{FOLDER}/{LABELLED}.yml"] = _labelled(flow, actions)
    if _has_own_machines(flow):
        # It ends runs that wait for such a machine: GitHub itself does after a day or two.
        queue = _by_clock("queue", "41 * * * *", ("actions",), flow, actions)
        documents[f"{FOLDER}/{QUEUE}"] = queue
    documents[f"{FOLDER}/{COMPAT}"] = _by_clock(
        "compat", "23 4 * * 1", ("contents", "pull-requests"), flow, actions
    )
    called: dict[str, list[Job]] = {}
    for job in flow.jobs:
        if job.spread:
            called.setdefault(job.file, []).append(job)
    if len(called) > limits.called_workflows:
        raise InputError(
            f"{len(called)} called workflows, and GitHub starts none with more than "
            f"{limits.called_workflows}",
            hint="fewer kinds of machines in `runners:`",
        )
    for file, jobs in called.items():
        documents[f"{FOLDER}/{MAIN}-{file}.yml"] = _called(flow, jobs, actions)
    files = {path: _text(document, actions) for path, document in documents.items()}
    # https://github.com/actions/toolkit/blob/main/docs/problem-matchers.md: problems of files of
    # the project, and findings of `scan` and `preflight`.
    problem = {"regexp": _PROBLEM, "file": 1, "line": 2, "message": 3}
    finding = {"regexp": _FINDING, "file": 1, "line": 2, "column": 3, "message": 4}
    matchers = [
        {"owner": MAIN, "severity": "error", "pattern": [problem]},
        {"owner": f"{MAIN}-scan", "severity": "warning", "pattern": [finding]},
    ]
    files[MATCHERS] = json.dumps({"problemMatcher": matchers}, indent=2) + "\n"
    # For actionlint: GitHub's larger machines have custom names, too.
    every = sorted({label for runner in flow.runners for label in runner.labels})
    labels = _text({"self-hosted-runner": {"labels": every}}, actions)
    return {**files, ".github/actionlint.yaml": labels, ".github/zizmor.yml": _zizmor(flow)}


def _has_own_machines(flow: Flow) -> bool:
    return any(runner.trust == "self-hosted" for runner in flow.runners)


def _may_publish(flow: Flow) -> str:
    """Return the refs that publish, also where a run is started by hand."""
    refs = flow.publishes
    branch = f"github.ref == 'refs/heads/{refs.branch}'"
    return f"({branch} || startsWith(github.ref, 'refs/tags/{refs.release_tags}'))"


def _requests(flow: Flow, *types: str) -> dict[str, Any]:
    """Return the trigger for pull requests, only to the branch that publishes. A green result
    for another base would stay when the base is changed. That change starts no run, or only a run
    like one for a new title.
    """
    return {"branches": [flow.publishes.branch], "types": list(types)}


def _by_clock(
    name: str, cron: str, powers: tuple[str, ...], flow: Flow, actions: Actions
) -> dict[str, Any]:
    """Return a workflow of one job on a hosted machine: ci/<name>.sh at these times (UTC)."""
    machine = dataclasses.replace(
        flow.runners[0], trust="hosted", labels=(_HOSTED,), group="", scale_set=False
    )
    job = Job(
        name=name,
        runners=(machine,),
        script=f"ci/{name}.sh",
        minutes=20,
        leaves=False,
        powers=powers,
    )
    return {
        "name": f"{MAIN}-{name}",
        "on": {"schedule": [{"cron": cron}]},
        "permissions": {},
        "concurrency": {"group": f"{MAIN}-{name}", "cancel-in-progress": False},
        "jobs": {name: _whole(flow, job, actions)},
    }


def _text(document: object, actions: Actions) -> str:
    """Return YAML with a version comment after each commit, which PyYAML cannot write."""
    text = yaml_text(document)
    for uses, version in actions.values():
        text = text.replace(f"uses: {uses}\n", f"uses: {uses} # {version}\n")
    for access, reasons in (("write", _POWERS), ("read", _READING)):
        for power, reason in reasons.items():
            text = text.replace(f" {power}: {access}\n", f" {power}: {access} # {reason}\n")
    text = text.replace(" packages: read\n", f" packages: read # {_PULLS}\n")
    return HEADER + text


def _zizmor(flow: Flow) -> str:
    """Return the findings that its strictest persona may report, with the reason."""
    jobs = [job for job in flow.jobs if job.is_own or any(runner.group for runner in job.runners)]
    files = [*dict.fromkeys(f"{MAIN}-{job.file}.yml" for job in jobs if job.spread)]
    if any(not job.spread for job in jobs):
        files += [f"{MAIN}.yml", f"{LABELLED}.yml"]
    grouped = any(not job.is_own for job in jobs)
    parts = [_ZIZMOR]
    if files:
        parts.append(_ignoring(_OWN + (_GROUPED if grouped else ""), files))
    outside = [_OUTSIDE_READ] if not _of_github(flow) else []
    outside += [_OUTSIDE_RUNNERS] if _has_own_machines(flow) else []
    if outside:
        reasons = "".join((_OUTSIDE, *outside))
        parts.append(_ignoring(reasons, [f"{MAIN}.yml", f"{LABELLED}.yml"]))
    return HEADER + "\n".join(parts).rstrip("\n") + "\n"


def _ignoring(reason: str, files: Iterable[str]) -> str:
    return "\n".join([f"{reason}    ignore:", *(f"      - {file}" for file in files)])


def _main(flow: Flow, actions: Actions) -> dict[str, Any]:
    jobs = {
        job.name: _calling(flow, job) if job.spread else _whole(flow, job, actions)
        for job in flow.jobs
    }
    tags = {"tags": [f"{flow.publishes.release_tags}*"]} if flow.publishes.releases else {}
    scope = {
        "description": "how far it goes",
        "type": "choice",
        "options": ["nightly", "release"],
        "default": "nightly",
    }
    return {
        "name": MAIN,
        "on": {
            "pull_request": _requests(flow, "opened", "synchronize", "reopened"),
            "merge_group": {"types": ["checks_requested"]},
            "push": {"branches": [flow.publishes.branch], **tags},
            "schedule": [{"cron": "17 2 * * *"}],
            "workflow_dispatch": {"inputs": {"scope": scope}},
        },
        "permissions": {},
        "concurrency": {
            "group": f"{MAIN}-${{{{ github.event.pull_request.number || github.run_id }}}}",
            "cancel-in-progress": "${{ github.event_name == 'pull_request' }}",
        },
        "jobs": jobs,
    }


def _labelled(flow: Flow, actions: Actions) -> dict[str, Any]:
    """Return the workflow for a labelled pull request: the run of a push to it, under names of
    its own. Another label skips every job of it, and cancels nothing.
    """
    jobs = tuple(job for job in flow.jobs if not job.powers and job.kind != "bench")
    flow, names = dataclasses.replace(flow, jobs=jobs), {job.name for job in jobs}
    pull_request = "github.event.pull_request.number"
    bodies = {}
    for each in jobs:
        job = dataclasses.replace(each, needs=tuple(need for need in each.needs if need in names))
        body = _calling(flow, job) if job.spread else _whole(flow, job, actions)
        if not job.spread:
            body["if"] = f"${{{{ {'always() && ' if job.needs else ''}{_BY_LABEL} }}}}"
            body["name"] = f"{job.name}-{LABEL}"
        bodies[job.name] = _ordered(body)
    return {
        "name": LABELLED,
        "on": {"pull_request": _requests(flow, "labeled")},
        "permissions": {},
        "concurrency": {
            "group": f"{LABELLED}-${{{{ {_BY_LABEL} && {pull_request} || github.run_id }}}}",
            "cancel-in-progress": True,
        },
        "jobs": bodies,
    }


def _ordered(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a job in the usual order."""
    first = [name for name in ("name", "needs", "if") if name in body]
    return {name: body[name] for name in (*first, *(key for key in body if key not in first))}


def _calling(flow: Flow, job: Job) -> dict[str, Any]:
    """Return the call of a job's workflow, once for each shard."""
    planned = f"needs.plan.outputs.{job.name}"
    conditions = ["!cancelled()", "needs.plan.result == 'success'", f"{planned} != '[]'"]
    conditions += _guards(flow, job)
    inputs = {"jobs": "${{ toJSON(matrix.jobs) }}"}
    if job.channel or job.pulls:
        inputs["channel"] = "${{ needs.plan.outputs.channel }}"
    # A called workflow sees no other secret, not even one of its own environment:
    # https://github.com/actions/runner/issues/1490.
    secrets = {name: f"${{{{ secrets.{name} }}}}" for name in _secrets(flow, job)}
    return {
        "name": f"{job.name} ${{{{ matrix.shard }}}}",
        "needs": list(job.needs),
        "if": f"${{{{ {' && '.join(conditions)} }}}}",
        "strategy": {
            "fail-fast": False,
            "matrix": {"include": f"${{{{ fromJSON({planned}) }}}}"},
        },
        "permissions": _permissions(flow, job),
        "uses": f"./{FOLDER}/{MAIN}-{job.file}.yml",
        "with": inputs,
        **({"secrets": secrets} if secrets else {}),
    }


def _secrets(flow: Flow, job: Job) -> tuple[str, ...]:
    """Return the secrets of a job's environment: GitHub's own registry takes the job's token."""
    if _of_github(flow):
        token: tuple[str, ...] = ()
    elif job.pulls:
        token = (READ_TOKEN,)
    else:
        token = ("REGISTRY_TOKEN",) if "packages" in job.powers else ()
    return (*token, *(_KEY_SECRETS if job.channel else ()))


def _of_github(flow: Flow) -> bool:
    return flow.repository.partition("/")[0] == "ghcr.io"


def _guards(flow: Flow, job: Job) -> list[str]:
    """Return the conditions that exclude forks from a job, and other branches from publishing,
    for any plan.
    """
    ours = [f"({_OURS})"] if job.is_own else []
    return [*ours, *([_NO_REQUEST, _may_publish(flow)] if job.powers else [])]


def _called(flow: Flow, jobs: list[Job], actions: Actions) -> dict[str, Any]:
    """Return the workflow of one kind of job on hosted machines, or on those of our own, for
    all vendors. A runner group can be opened to this file alone.
    """
    rows = dict.fromkeys(runner for job in jobs for runner in job.runners)
    job = dataclasses.replace(jobs[0], runners=tuple(rows))
    names = ("jobs", "channel") if job.channel or job.pulls else ("jobs",)
    called: dict[str, Any] = {
        "inputs": {name: {"type": "string", "required": True} for name in names}
    }
    if secrets := _secrets(flow, job):
        called["secrets"] = {name: {"required": False} for name in secrets}
    body: dict[str, Any] = {"name": "${{ matrix.name }}"}
    if guards := _guards(flow, job):
        body["if"] = f"${{{{ {' && '.join(guards)} }}}}"
    if job.environment:
        body["environment"] = job.environment
        body["concurrency"] = {"group": "${{ matrix.name }}", **_QUEUE}
    if job.channel:
        body["environment"] = "${{ inputs.channel }}"
        group = "${{ inputs.channel }}-${{ matrix.name }}"
        body["concurrency"] = {"group": group, **_QUEUE}
    return {
        "name": f"{MAIN}-{job.file}",
        "on": {"workflow_call": called},
        "permissions": {},
        "jobs": {
            job.file: {
                **body,
                "strategy": {
                    "fail-fast": False,
                    "max-parallel": sum(runner.count for runner in job.runners),
                    "matrix": {"include": "${{ fromJSON(inputs.jobs) }}"},
                },
                **_whole(flow, job, actions),
            }
        },
    }


def _whole(flow: Flow, job: Job, actions: Actions) -> dict[str, Any]:
    """Return a job with its steps: fetch, set up, download artifacts, one call, upload its own."""
    body: dict[str, Any] = {} if job.spread else {"name": job.name}
    if job.needs and not job.spread:
        body["needs"] = list(job.needs)
        # Always, or where it may write, at the end of runs that publish.
        condition = (
            f"always() && {_NO_REQUEST} && {_may_publish(flow)}" if job.alerts else "always()"
        )
        if job.wanted:
            condition = f"{_NIGHTS.format(wanted=job.wanted)} && {_may_publish(flow)}"
        body["if"] = f"${{{{ {condition} }}}}"
    if job.environment and not job.spread:
        alone = {"group": job.name, **_QUEUE}
        body |= {"environment": job.environment, "concurrency": alone}
    body |= {
        "runs-on": _machine(job),
        "timeout-minutes": job.minutes,
        "permissions": _permissions(flow, job),
    }
    if job.name == "plan":
        names = (*(job.name for job in flow.jobs if job.spread), "channel", "plan")
        body["outputs"] = {name: f"${{{{ steps.call.outputs.{name} }}}}" for name in names}
    return {**body, "steps": _Steps(flow=flow, job=job, actions=actions).all()}


def _machine(job: Job) -> object:
    """Return the machine of a job. A plan names the row, and the workflow has the labels, so a
    plan that was tampered with can choose among these rows alone.
    """
    machine = _runs_on(job.runner)
    if not (job.spread or job.wanted or job.runner.trust == "hosted"):
        # Every request starts it: a fork's on GitHub's own machine, if all of the table's are ours.
        # A skipped job would count as passed: a required check that is skipped does.
        own_json, theirs = json.dumps(machine), json.dumps(_HOSTED)
        return f"${{{{ fromJSON(({_SAME_REPOSITORY}) && '{own_json}' || '{theirs}') }}}}"
    if not job.spread or len(job.runners) == 1:
        return machine
    cases = (f"{_is_row(runner)} && '{json.dumps(_runs_on(runner))}'" for runner in job.runners)
    return f"${{{{ fromJSON({' || '.join(cases)} || 'null') }}}}"


def _is_row(runner: Runner) -> str:
    return f"matrix.runner == '{runner.name}'"


def _permissions(flow: Flow, job: Job) -> dict[str, str]:
    pulls = {"packages": "read"} if job.pulls and _of_github(flow) else {}
    reads = {**_READS, **dict.fromkeys(job.reads, "read"), **pulls}
    return {**reads, **dict.fromkeys(job.powers, "write")}


def _runs_on(runner: Runner) -> object:
    """Return one label as a text, which is also how a scale set is named."""
    if runner.group:
        return {"group": runner.group, "labels": list(runner.labels)}
    return runner.labels[0] if len(runner.labels) == 1 else list(runner.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """The steps of one job."""

    flow: Flow
    job: Job
    actions: Actions

    def all(self) -> list[dict[str, Any]]:
        job = self.job
        fetch = {"persist-credentials": False, **({"fetch-depth": 0} if job.history else {})}
        steps = [self._uses("fetch", "checkout", fetch)]
        # Hosted machines and pods may lack our Python.
        bare = [runner for runner in job.runners if runner.trust == "hosted" or runner.scale_set]
        if bare:
            only = f"${{{{ {' || '.join(map(_is_row, bare))} }}}}" if bare != [*job.runners] else ""
            steps.append(self._uses("Python", "setup-python", {"python-version": PYTHON}, only))
        steps.append({"name": "set up", "run": "ci/setup.sh"})
        if job.channel:
            steps.append(self._uses("cosign", "cosign-installer", {}))
        if "packages" in job.powers or job.pulls:
            steps.append(self._login())
        if job.takes:
            # The artifacts of a work and its own of an earlier attempt, or those with results. Each
            # contains its own folder, so that all can be extracted into one place.
            names = _RESULTS
            if job.takes == "work":
                images = f",{IMAGES}-${{{{ matrix.after }}}}" if job.kind != "publish" else ""
                names = f"${{{{ matrix.after }}}},${{{{ matrix.name }}}}{images}"
            inputs = {"pattern": f"{{{names}}}", "path": HANDOVER, "merge-multiple": True}
            steps.append(self._uses("take", "download-artifact", inputs))
        steps.append(self._call())
        if job.leaves:
            name = "${{ matrix.name }}" if job.spread else job.name
            upload = {"name": name, "path": LEFT, "if-no-files-found": "error", "overwrite": True}
            upload |= {"retention-days": 14}
            steps.append(self._uses("leave", "upload-artifact", upload, "${{ always() }}"))
        if "images" in job.tells:
            # For a day: other machines verify them, and no registry gets them.
            upload = {"name": f"{IMAGES}-${{{{ matrix.name }}}}", "path": IMAGES, "overwrite": True}
            upload |= {"compression-level": 0, "retention-days": 1}
            only = "${{ !cancelled() && matrix.images }}"
            steps.append(self._uses("leave images", "upload-artifact", upload, only))
        if "pages" in job.powers:
            # deploy-pages refuses two artifacts of one name, which a second attempt would make.
            name = f"{_PAGES}-${{{{ github.run_attempt }}}}"
            site = {"name": name, "path": SITE}
            steps.append(self._uses("site", "upload-pages-artifact", site))
            steps.append(self._uses("publish", "deploy-pages", {"artifact_name": name}))
        return steps

    def _uses(
        self, name: str, action: str, inputs: Mapping[str, object], only: str = ""
    ) -> dict[str, Any]:
        uses = {"name": name, **({"if": only} if only else {}), "uses": self.actions[action][0]}
        return {**uses, "with": dict(inputs)} if inputs else uses

    def _login(self) -> dict[str, Any]:
        """Return the login step. GitHub's registry takes the job's own token; another one those
        of the environment, and of the repository where a job only reads. No pull request has
        anything to pull.
        """
        registry, of_github = self.flow.repository.partition("/")[0], _of_github(self.flow)
        user, secret = "vars.REGISTRY_USER", "secrets.REGISTRY_TOKEN"
        if self.job.pulls:
            user, secret = f"vars.{READ_USER}", f"secrets.{READ_TOKEN}"
        if of_github:
            user, secret = "github.actor", "github.token"
        only = {"if": f"${{{{ inputs.channel != '' && {_NO_REQUEST} }}}}"} if self.job.pulls else {}
        login = {"REGISTRY_USER": f"${{{{ {user} }}}}", "REGISTRY_TOKEN": f"${{{{ {secret} }}}}"}
        login = {"REGISTRY": registry, **login}
        return {"name": "log in", **only, "env": login, "run": "ci/login.sh"}

    def _call(self) -> dict[str, Any]:
        variables = {name.upper(): f"${{{{ matrix.{name} }}}}" for name in self.job.tells}
        if self.job.channel:
            variables["CHANNEL"] = "${{ inputs.channel }}"
            variables["COSIGN_KEY"] = "${{ vars.COSIGN_KEY }}"
            variables |= {name: f"${{{{ secrets.{name} }}}}" for name in _KEY_SECRETS}
        if self.job.name == "plan" and not _of_github(self.flow):
            variables["HAS_READ_TOKEN"] = f"${{{{ secrets.{READ_TOKEN} != '' }}}}"
        if "contents" in self.job.powers and "pull-requests" not in self.job.powers:
            variables["HISTORY_TOKEN"] = "${{ github.token }}"  # noqa: S105 - an expression
        if self.job.name in {"required", "notify"}:
            variables |= {
                "PLANNED": "${{ needs.plan.result }}",
                "ENDED": "${{ join(needs.*.result) }}",
                "PLAN_DIGEST": "${{ needs.plan.outputs.plan }}",
            }
        if {"actions", "pull-requests"} & {*self.job.reads, *self.job.powers}:
            variables["API_TOKEN"] = "${{ github.token }}"  # noqa: S105 - an expression
        if self.job.name == "plan" and _has_own_machines(self.flow):
            variables["RUNNERS_TOKEN"] = f"${{{{ {_NO_REQUEST} && secrets.RUNNERS_TOKEN || '' }}}}"
        if self.job.alerts:
            variables["WARPFRONT_WEBHOOK"] = "${{ secrets.WARPFRONT_WEBHOOK }}"
        named = {"name": self.job.kind or self.job.name, "id": "call"}
        return {**named, **({"env": variables} if variables else {}), "run": self.job.script}
