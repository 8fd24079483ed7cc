"""The flow as GitHub's workflows: one with the triggers, and one for each kind of job, which it
calls in shards for each vendor. Their form is a template of data/ci. Pure.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from warpfront.ci.flow import (
    FOLDERS,
    HEADER,
    LABEL,
    READ_TOKEN,
    Flow,
    Job,
    Limits,
    job_of,
    yaml_text,
)
from warpfront.ci.template_files import document_of, rendered
from warpfront.errors import InputError
from warpfront.matrix.runners import Runner

FOLDER = ".github/workflows"
MAIN = "warpfront"
LABELLED = f"{MAIN}-{LABEL}"
"""The workflow that the label starts. It alone hears of labels, so that no other label restarts or
cancels a run.
"""
MATCHERS = ".github/warpfront-problems.json"
"""How a forge reads problems off what is printed: `add-matcher` names it.
https://github.com/actions/toolkit/blob/main/docs/problem-matchers.md: problems of files of the
project, and findings of `scan` and `preflight`. A warning of Python's is `path.py:12: ...`, too.
"""
Actions = Mapping[str, tuple[str, str]]

_READS = {"contents": "read"}
_KEY_SECRETS = ("COSIGN_PRIVATE_KEY", "COSIGN_PASSWORD")
"""For `COSIGN_KEY: env://COSIGN_PRIVATE_KEY`; all are empty where nobody signs with a key."""
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


def workflows(
    flow: Flow, actions: Actions, limits: Limits, templates: Mapping[str, str]
) -> dict[str, str]:
    """Return GitHub's files by path. Raises `InputError` for more workflows than it starts."""
    rows: dict[str, dict[Runner, None]] = {}
    kinds: dict[str, Job] = {}
    for job in flow.jobs:
        if job.spread:
            rows.setdefault(job.file, {}).update(dict.fromkeys(job.runners))
            kinds.setdefault(job.file, job)
    if len(kinds) > limits.called_workflows:
        raise InputError(
            f"{len(kinds)} called workflows, and GitHub starts none with more than "
            f"{limits.called_workflows}",
            hint="fewer kinds of machines in `runners:`",
        )
    spread = [dataclasses.replace(job, runners=tuple(rows[file])) for file, job in kinds.items()]
    values = {**_values(flow), "actions": actions, "kinds": spread}
    documents = document_of(templates["github.yml.j2"], values)
    # For actionlint: GitHub's larger machines have custom names, too.
    every = sorted({label for runner in flow.runners for label in runner.labels})
    documents[".github/actionlint.yaml"] = {"self-hosted-runner": {"labels": every}}
    reasons = tomllib.loads(templates["permissions.toml"])
    files = {path: _text(document, actions, reasons) for path, document in documents.items()}
    files[".github/zizmor.yml"] = HEADER + rendered(templates["zizmor.yml.j2"], values)
    return {**files, MATCHERS: templates["warpfront-problems.json"]}


def _values(flow: Flow) -> dict[str, Any]:
    """Return what the templates take from the flow."""
    jobs = [job for job in flow.jobs if job.is_own or any(runner.group for runner in job.runners)]
    reached = [*dict.fromkeys(f"{MAIN}-{job.file}.yml" for job in jobs if job.spread)]
    if any(not job.spread for job in jobs):
        reached += [f"{MAIN}.yml", f"{LABELLED}.yml"]
    # Those of a labelled pull request write nothing, at no night.
    labelled = [job for job in flow.jobs if not job.powers and job.kind != "bench"]
    names = {job.name for job in labelled}
    return {
        **FOLDERS,
        "bare_rows": lambda job: tuple(
            r for r in job.runners if r.trust == "hosted" or r.scale_set
        ),
        "by_label": _BY_LABEL,
        "compat": _by_clock("compat", flow),
        "ending": lambda job, labelled: _ending(flow, job, labelled=labelled),
        "grouped": any(not job.is_own for job in jobs),
        "guards": lambda job: _guards(flow, job),
        "is_one_of": _is_one_of,
        "jobs": flow.jobs,
        "label": LABEL,
        "labelled_jobs": [
            dataclasses.replace(job, needs=tuple(need for need in job.needs if need in names))
            for job in labelled
        ],
        "machine": _machine,
        "no_request": _NO_REQUEST,
        "own_machines": any(runner.trust == "self-hosted" for runner in flow.runners),
        "permissions": lambda job: _permissions(flow, job),
        "publishes": flow.publishes,
        "queue": _by_clock("queue", flow),
        "reached": reached,
        "registry": flow.repository.partition("/")[0],
        "secrets": lambda job: _secrets(flow, job),
        "when": lambda conditions: json.dumps(f"${{{{ {' && '.join(conditions)} }}}}"),
    }


def _may_publish(flow: Flow) -> str:
    """Return the refs that publish, also where a run is started by hand."""
    refs = flow.publishes
    branch = f"github.ref == 'refs/heads/{refs.branch}'"
    return f"({branch} || startsWith(github.ref, 'refs/tags/{refs.release_tags}'))"


def _by_clock(name: str, flow: Flow) -> Job:
    """Return a job on a hosted machine."""
    machine = dataclasses.replace(
        flow.runners[0], trust="hosted", labels=(_HOSTED,), group="", scale_set=False
    )
    return job_of(name, (machine,))


def _text(document: object, actions: Actions, reasons: Mapping[str, Mapping[str, str]]) -> str:
    """Return YAML with comments: a version after each commit, a reason after each permission."""
    text = yaml_text(document)
    for uses, version in actions.values():
        text = text.replace(f"uses: {uses}\n", f"uses: {uses} # {version}\n")
    for access, by_power in reasons.items():
        for power, reason in by_power.items():
            text = text.replace(f" {power}: {access}\n", f" {power}: {access} # {reason}\n")
    return HEADER + text


def _ending(flow: Flow, job: Job, *, labelled: bool) -> list[str]:
    """Return the conditions of a job that is not spread: always, or where it may write, at the end
    of runs that publish.
    """
    if labelled:
        return [*(["always()"] if job.needs else []), _BY_LABEL]
    if job.wanted:
        return [_NIGHTS.format(wanted=job.wanted), _may_publish(flow)]
    return ["always()", *([_NO_REQUEST, _may_publish(flow)] if job.alerts else [])]


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
    """Return the conditions that exclude forks, and other branches from publishing."""
    ours = [f"({_OURS})"] if job.is_own else []
    return [*ours, *([_NO_REQUEST, _may_publish(flow)] if job.powers else [])]


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
    cases = (f"{_is_one_of([row])} && '{json.dumps(_runs_on(row))}'" for row in job.runners)
    return f"${{{{ fromJSON({' || '.join(cases)} || 'null') }}}}"


def _is_one_of(runners: Iterable[Runner]) -> str:
    return " || ".join(f"matrix.runner == '{runner.name}'" for runner in runners)


def _permissions(flow: Flow, job: Job) -> dict[str, str]:
    pulls = {"packages": "read"} if job.pulls and _of_github(flow) else {}
    reads = {**_READS, **dict.fromkeys(job.reads, "read"), **pulls}
    return {**reads, **dict.fromkeys(job.powers, "write")}


def _runs_on(runner: Runner) -> object:
    """Return one label as a text, which is also how a scale set is named."""
    if runner.group:
        return {"group": runner.group, "labels": list(runner.labels)}
    return runner.labels[0] if len(runner.labels) == 1 else list(runner.labels)
