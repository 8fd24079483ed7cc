"""The flow as GitLab's: a pipeline that plans, and the child that it starts, whose jobs the plan
wrote out: no matrix, no shards. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from warpfront.ci.flow import HANDOVER, HEADER, LABEL, Flow, Job, yaml_text
from warpfront.ci.schedule import Schedule, Work

PARENT = ".gitlab/warpfront.yml"
CHILD = f"{HANDOVER}/plan/gitlab.yml"
_PLANNED = "planned"
_REQUEST = '$CI_PIPELINE_SOURCE == "merge_request_event"'
_NOTIFIED = frozenset({"merged", "nightly", "release"})
# GitLab's own limit: https://docs.gitlab.com/ci/yaml/#needs
_NEEDS_LIMIT = 50


def _rules(flow: Flow) -> tuple[tuple[str, str], ...]:
    """What starts a pipeline -> the scope. A fork's merge request runs in the fork."""
    refs = flow.publishes
    tag = f"$CI_COMMIT_TAG =~ {_begins(refs.release_tags)}"
    pushed = f'$CI_PIPELINE_SOURCE == "push" && $CI_COMMIT_BRANCH == "{refs.branch}"'
    return (
        (f'{_REQUEST} && $CI_MERGE_REQUEST_EVENT_TYPE == "merge_train"', "merge_queue"),
        (f"{_REQUEST} && $CI_MERGE_REQUEST_LABELS =~ /\\b{LABEL}\\b/", "labelled"),
        (_REQUEST, "pull_request"),
        ('$CI_PIPELINE_SOURCE == "schedule"', "nightly"),
        *(((tag, "release"),) if refs.releases else ()),
        (pushed, "merged"),
    )


def _begins(text: str) -> str:
    """A pattern of GitLab's (RE2 between slashes) for texts that begin so."""
    return f"/^{re.escape(text).replace('/', chr(92) + '/')}/"


def _may_publish(flow: Flow) -> str:
    refs = flow.publishes
    branch = f'$CI_COMMIT_BRANCH == "{refs.branch}"'
    tag = f"$CI_COMMIT_TAG =~ {_begins(refs.release_tags)}"
    return f'$CI_COMMIT_REF_PROTECTED == "true" && ({branch} || {tag})'


def gitlab_files(flow: Flow) -> dict[str, str]:
    """What the project's own .gitlab-ci.yml includes."""
    plan = next(job for job in flow.jobs if job.name == "plan")
    rules = _rules(flow)
    since = {"SINCE": "$CI_MERGE_REQUEST_DIFF_BASE_SHA"}
    merged = {"SINCE": "$CI_COMMIT_BEFORE_SHA"}
    document = {
        "stages": ["plan", "cells"],
        "plan": {
            "stage": "plan",
            **_machine(plan),
            "rules": [
                {
                    "if": rule,
                    "variables": {"SCOPE": scope, **(merged if scope == "merged" else since)},
                }
                for rule, scope in rules
            ],
            "variables": {"GIT_DEPTH": "0"},
            "script": ["ci/setup.sh", plan.script],
            "artifacts": _artifacts("plan"),
        },
        "cells": {
            "stage": "cells",
            "needs": ["plan"],
            "rules": [{"if": rule} for rule, _ in rules],
            "trigger": {
                "include": [{"artifact": CHILD, "job": "plan"}],
                "strategy": "depend",
            },
            "variables": {"PARENT_PIPELINE": "$CI_PIPELINE_ID"},
        },
    }
    return {PARENT: HEADER + yaml_text(document)}


def child_pipeline(flow: Flow, planned: Schedule, digest: str = "") -> str:
    """The jobs of one run. No job is allowed to fail: what fails is red by GitLab's own count, and
    every later job runs all the same. `digest` is that of the plan, which `required` compares.
    """
    building = "candidate" if planned.channel else "build"
    works: Mapping[str, tuple[Work, ...]] = {
        **{f"{building}-{name}": each for name, each in planned.build.items()},
        **{f"verify-{name}": each for name, each in planned.verify.items()},
        **{f"bench-{name}": each for name, each in planned.bench.items()},
        **{f"publish-{name}": each for name, each in planned.publish.items()},
    }
    jobs: dict[str, Any] = {_PLANNED: _planned(flow)}
    here = [job for job in flow.jobs if _is_here(job, planned)]
    for job in here:
        for work in works.get(job.spread, ()) if job.spread else ():
            jobs[work.name] = _spread(flow, job, work, planned.channel)
        if not job.spread:
            jobs[job.name] = _whole(flow, job, digest)
    return yaml_text({"stages": [_PLANNED, *(job.name for job in here)], **jobs})


def _is_here(job: Job, planned: Schedule) -> bool:
    """Pages are GitHub's; what clears up does so after a night."""
    if job.wanted:
        return job.wanted == "PRUNE" and planned.channel == job.environment
    if job.alerts:
        return planned.scope in _NOTIFIED
    return job.name != "plan"


def _planned(flow: Flow) -> dict[str, Any]:
    """Brings the parent's plan to the child: each stage has what those before it left."""
    plan = next(job for job in flow.jobs if job.name == "plan")
    return {
        "stage": _PLANNED,
        **_machine(plan),
        "needs": [{"pipeline": "$PARENT_PIPELINE", "job": "plan"}],
        "script": [f"test -s {HANDOVER}/plan/plan.json"],
        "artifacts": _artifacts("plan"),
    }


def _login(flow: Flow, job: Job) -> tuple[dict[str, str], list[str]]:
    """Variables and calls. GitLab's registry takes the job's own token, another one the project's
    variables REGISTRY_USER and REGISTRY_TOKEN, of the job's environment.
    """
    if "packages" not in job.powers:
        return {}, []
    registry = flow.repository.partition("/")[0]
    own = {"REGISTRY_USER": "$CI_REGISTRY_USER", "REGISTRY_TOKEN": "$CI_REGISTRY_PASSWORD"}
    known = own if registry == "registry.gitlab.com" else {}
    return {"REGISTRY": registry, **known}, ["ci/login.sh"]


def _spread(flow: Flow, job: Job, work: Work, channel: str) -> dict[str, Any]:
    facts = {"NAME": work.name, "CELLS": " ".join(work.cells), "RUNNER": job.runner.name}
    if work.target:
        facts["TARGET"] = work.target
    known, logs_in = _login(flow, job)
    body: dict[str, Any] = {
        "stage": job.name,
        **_machine(job),
        "variables": {**facts, **known, **({"CHANNEL": channel} if job.channel else {})},
        "script": ["ci/setup.sh", *logs_in, job.script],
        "artifacts": _artifacts(work.name),
        "when": "always",  # what failed before stops none of the others
    }
    if job.takes == "work" or 0 < len(work.after) < _NEEDS_LIMIT:
        body["needs"] = list(work.after)
    if job.environment:
        body["environment"] = job.environment
    if job.channel:
        body.pop("when")
        body |= {
            "rules": [{"if": _may_publish(flow), "when": "always"}],
            "environment": channel,
            "resource_group": f"{channel}-{work.name}",
            "interruptible": False,
            "id_tokens": {"SIGSTORE_ID_TOKEN": {"aud": "sigstore"}},
        }
    return body


def _whole(flow: Flow, job: Job, digest: str) -> dict[str, Any]:
    """The end of a run: with everything that the jobs before left, and what the parent planned."""
    known, logs_in = _login(flow, job)
    wanted: dict[str, Any] = {}
    if job.wanted:
        rules = [{"if": f'${job.wanted} == "yes"', "when": "always"}]
        wanted = {"rules": rules, "environment": job.environment, "allow_failure": True}
    if job.alerts:
        told = [{"if": "$API_TOKEN || $WARPFRONT_WEBHOOK", "when": "always"}]
        wanted = {"rules": told, "environment": job.environment}
    if "actions" in job.reads:
        known = {**known, "PLAN_DIGEST": digest}
    return {
        "stage": job.name,
        **_machine(job),
        **(wanted or {"when": "always"}),
        **({"variables": known} if known else {}),
        "script": ["ci/setup.sh", *logs_in, job.script],
        **({"artifacts": _artifacts(job.name)} if job.leaves else {}),
    }


def _machine(job: Job) -> dict[str, Any]:
    labels = [*job.runner.labels, *([job.runner.group] if job.runner.group else [])]
    return {
        "tags": labels,
        "timeout": f"{job.minutes} minutes",
        "interruptible": True,
    }


def _artifacts(name: str) -> dict[str, Any]:
    return {"when": "always", "expire_in": "14 days", "paths": [f"{HANDOVER}/{name}"]}
