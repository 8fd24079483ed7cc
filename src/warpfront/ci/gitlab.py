"""The flow as GitLab's: a pipeline that plans, and the child that it starts, whose jobs the plan
wrote out: no matrix, no shards. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from warpfront.ci.flow import HEADER, IMAGES, LABEL, LEFT, Flow, Job, Limits, yaml_text
from warpfront.ci.schedule import Schedule, Work, works_of
from warpfront.ci.template_files import rendered
from warpfront.errors import InputError
from warpfront.matrix.runners import Runner

PARENT = ".gitlab/warpfront.yml"
CHILD = f"{LEFT}/plan/gitlab.yml"
_PLANNED = "planned"
_REQUEST = '$CI_PIPELINE_SOURCE == "merge_request_event"'
_SCHEDULE = '$CI_PIPELINE_SOURCE == "schedule"'
_NOTIFIED = frozenset({"merged", "nightly", "release"})


def _rules(flow: Flow) -> tuple[tuple[str, str], ...]:
    """Return the scope by the trigger of a pipeline. A fork's merge request runs in the fork.
    One for another branch starts none: its green result would count when its target is changed.
    """
    refs = flow.publishes
    tag = f"$CI_COMMIT_TAG =~ {_begins(refs.release_tags)}"
    pushed = f'$CI_PIPELINE_SOURCE == "push" && $CI_COMMIT_BRANCH == "{refs.branch}"'
    request = f'{_REQUEST} && $CI_MERGE_REQUEST_TARGET_BRANCH_NAME == "{refs.branch}"'
    return (
        (f'{request} && $CI_MERGE_REQUEST_EVENT_TYPE == "merge_train"', "merge_queue"),
        (f"{request} && $CI_MERGE_REQUEST_LABELS =~ /(^|,){LABEL}(,|$)/", "labelled"),
        (request, "pull_request"),
        (_SCHEDULE, "nightly"),
        *(((tag, "release"),) if refs.releases else ()),
        (pushed, "merged"),
    )


def _begins(text: str) -> str:
    """Return a pattern of GitLab's (RE2 between slashes) for texts that begin so."""
    return f"/^{re.escape(text).replace('/', chr(92) + '/')}/"


def gitlab_files(flow: Flow, templates: Mapping[str, str]) -> dict[str, str]:
    """Return the files that the project's own .gitlab-ci.yml includes."""
    plan = next(job for job in flow.jobs if job.name == "plan")
    values = {
        "artifacts": _artifacts("plan"),
        "child": CHILD,
        "machine": _machine(plan.runner, plan.minutes),
        "plan": plan,
        "rules": _rules(flow),
        "weekly": f"{_SCHEDULE} && $COMPAT",
    }
    document = yaml.safe_load(rendered(templates["gitlab.yml.j2"], values))
    return {PARENT: HEADER + yaml_text(document)}


def child_pipeline(
    flow: Flow, planned: Schedule, limits: Limits, digest: str = ""
) -> tuple[str, str]:
    """Return the pipeline of one run, and a warning where it has more jobs than GitLab's smallest
    plan takes, "" where it has not. No job is allowed to fail: what fails is red by GitLab's own
    count, and every later job runs all the same. `digest` is that of the plan, which `required`
    compares. Raises `InputError` for a pipeline that no GitLab would start.
    """
    plan = next(job for job in flow.jobs if job.name == "plan")
    # It brings the parent's plan here: each stage has the artifacts of those before it.
    bringing = {
        "stage": _PLANNED,
        **_machine(plan.runner, plan.minutes),
        "needs": [{"pipeline": "$PARENT_PIPELINE", "job": "plan"}],
        "script": [f"test -s {LEFT}/plan/plan.json"],
        "artifacts": _artifacts("plan"),
    }
    jobs: dict[str, Any] = {_PLANNED: bringing}
    in_child = [job for job in flow.jobs if _is_here(job, planned)]
    for job in in_child:
        if not job.spread:
            jobs[job.name] = _whole(flow, job, digest)
        for row, work in works_of(job, planned):
            jobs[work.name] = _spread(flow, job, work, row=row, channel=planned.channel)
    # A stage is shared by all vendors.
    stages = dict.fromkeys(job.kind or job.name for job in in_child)
    text = yaml_text({"stages": [_PLANNED, *stages], **jobs})
    if too_much := _too_much(jobs, text, limits):
        hint = "run CI for a part of the matrix: --vendor, --image, --only"
        raise InputError(too_much, hint=hint)
    # The project's plan sets the limit, which no job can read. A pipeline with more fails as a
    # whole, and with it the job that started it.
    most = limits.jobs_per_pipeline
    crowded = (
        f"{len(jobs)} jobs: gitlab.com starts {most} on the Free tier, and fails "
        "the pipeline where the project's plan takes fewer; --vendor, --image or --only make less"
    )
    return text, crowded if len(jobs) > most else ""


def _too_much(jobs: Mapping[str, Any], text: str, limits: Limits) -> str:
    if len(text) > limits.child_bytes:
        return f"a child pipeline of {len(text)} bytes, and GitLab reads {limits.child_bytes}"
    needs = {name: len(body.get("needs", ())) for name, body in jobs.items()}
    most = max(needs, key=needs.__getitem__)
    if needs[most] > limits.needs_per_job:
        return f"{most} needs {needs[most]} jobs, and GitLab takes {limits.needs_per_job}"
    return ""


def _is_here(job: Job, planned: Schedule) -> bool:
    """Return whether GitLab runs the job in this pipeline: pages are GitHub's, and pruning runs
    after a night.
    """
    if job.wanted:
        return job.wanted == "PRUNE" and planned.channel == job.environment
    if job.alerts:
        return planned.scope in _NOTIFIED
    return job.name != "plan"


def _login(flow: Flow, job: Job, channel: str = "") -> tuple[dict[str, str], list[str]]:
    """Return variables and calls. GitLab's registry takes the job's own token, another one the
    project's variables REGISTRY_USER and REGISTRY_TOKEN, of the job's environment. A job that only
    pulls has those of the same names with READ in them.
    """
    pulls = job.pulls and bool(channel)
    if "packages" not in job.powers and not pulls:
        return {}, []
    registry = flow.repository.partition("/")[0]
    variables = {}
    user, token = "$REGISTRY_READ_USER", "$REGISTRY_READ_TOKEN"
    if registry == "registry.gitlab.com":
        user, token, pulls = "$CI_REGISTRY_USER", "$CI_REGISTRY_PASSWORD", True
    if pulls:
        variables = {"REGISTRY_USER": user, "REGISTRY_TOKEN": token}
    return {"REGISTRY": registry, **variables}, ["ci/login.sh"]


def _spread(flow: Flow, job: Job, work: Work, *, row: str, channel: str) -> dict[str, Any]:
    facts = {name.upper(): fact for name, fact in work.facts(row).items() if name in job.tells}
    credentials, logs_in = _login(flow, job, channel)
    runner = next(runner for runner in job.runners if runner.name == row)
    body: dict[str, Any] = {
        "stage": job.kind,
        **_machine(runner, job.minutes),
        "variables": {**facts, **credentials, **({"CHANNEL": channel} if job.channel else {})},
        "script": ["ci/setup.sh", *logs_in, job.script],
        "artifacts": _artifacts(work.name, images=bool(work.images)),
        "when": "always",  # what failed before stops none of the others
    }
    if work.after:
        body["needs"] = list(work.after)
    if job.environment:
        body["environment"] = job.environment
    if job.channel:
        branch = f'$CI_COMMIT_BRANCH == "{flow.publishes.branch}"'
        tag = f"$CI_COMMIT_TAG =~ {_begins(flow.publishes.release_tags)}"
        may = f'$CI_COMMIT_REF_PROTECTED == "true" && ({branch} || {tag})'
        body.pop("when")
        body |= {
            "rules": [{"if": may, "when": "always"}],
            "environment": channel,
            "resource_group": f"{channel}-{work.name}",
            "interruptible": False,
            "id_tokens": {"SIGSTORE_ID_TOKEN": {"aud": "sigstore"}},
        }
    return body


def _whole(flow: Flow, job: Job, digest: str) -> dict[str, Any]:
    """Return the job at the end of a run, with the artifacts of all jobs and the parent's plan."""
    variables, logs_in = _login(flow, job)
    conditions: dict[str, Any] = {}
    if job.wanted:
        rules = [{"if": f'${job.wanted} == "yes"', "when": "always"}]
        conditions = {"rules": rules, "environment": job.environment, "allow_failure": True}
    if job.alerts:
        notified = [{"if": "$API_TOKEN || $WARPFRONT_WEBHOOK", "when": "always"}]
        conditions = {"rules": notified, "environment": job.environment}
    if "actions" in job.reads:
        variables = {**variables, "PLAN_DIGEST": digest}
    return {
        "stage": job.name,
        **_machine(job.runner, job.minutes),
        **(conditions or {"when": "always"}),
        **({"variables": variables} if variables else {}),
        "script": ["ci/setup.sh", *logs_in, job.script],
        **({"artifacts": _artifacts(job.name)} if job.leaves else {}),
    }


def _machine(runner: Runner, minutes: int) -> dict[str, Any]:
    labels = [*runner.labels, *([runner.group] if runner.group else [])]
    return {
        "tags": labels,
        "timeout": f"{minutes} minutes",
        "interruptible": True,
    }


def _artifacts(name: str, *, images: bool = False) -> dict[str, Any]:
    paths = [f"{LEFT}/{name}", *([f"{IMAGES}/{IMAGES}-{name}"] if images else [])]
    return {"when": "always", "expire_in": "14 days", "paths": paths}
