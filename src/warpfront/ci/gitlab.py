"""The flow as GitLab's: a pipeline that plans, and the child that it starts, whose jobs the plan
wrote out: no matrix, no shards. Pure.
"""

from __future__ import annotations

import re
from typing import Any

from warpfront.ci.flow import FOLDERS, HEADER, LABEL, LEFT, Flow, Job, Limits, yaml_text
from warpfront.ci.schedule import Schedule, Work, works_of
from warpfront.ci.template_files import document_of
from warpfront.errors import InputError

PARENT = ".gitlab/warpfront.yml"
CHILD = f"{LEFT}/plan/gitlab.yml"
_NOTIFIED = frozenset({"merged", "nightly", "release"})


def gitlab_files(flow: Flow) -> dict[str, str]:
    """Return the files that the project's own .gitlab-ci.yml includes."""
    return {PARENT: HEADER + yaml_text(_document("parent", flow))}


def _document(part: str, flow: Flow, **values: Any) -> dict[str, Any]:
    plan = next(job for job in flow.jobs if job.name == "plan")
    # A pattern of GitLab's is RE2 between slashes.
    tags = re.escape(flow.project.release_tags).replace("/", r"\/")
    facts = {
        **FOLDERS,
        "label": LABEL,
        "part": part,
        "plan": plan,
        "flow": flow,
        "tag": f"$CI_COMMIT_TAG =~ /^{tags}/",
    }
    return document_of("gitlab.yml.j2", {**facts, **values})


def child_pipeline(
    flow: Flow, planned: Schedule, limits: Limits, digest: str = ""
) -> tuple[str, str]:
    """Return the pipeline of one run, and a warning where it has more jobs than GitLab's smallest
    plan takes, "" where it has not. No job is allowed to fail: what fails is red by GitLab's own
    count, and every later job runs all the same. `digest` is that of the plan, which `required`
    compares. Raises `InputError` for a pipeline that no GitLab would start.
    """
    in_child = [job for job in flow.jobs if _is_here(job, planned)]
    document = _document(
        "child",
        flow,
        channel=planned.channel,
        digest=digest,
        facts=_facts,
        jobs=[(job, works_of(job, planned)) for job in in_child],
        stages=[*dict.fromkeys(job.kind or job.name for job in in_child)],
    )
    jobs = {name: body for name, body in document.items() if name != "stages"}
    text = yaml_text(document)
    needs = {name: len(body.get("needs", ())) for name, body in jobs.items()}
    neediest, most = max(needs.items(), key=lambda needy: needy[1])
    facts = {
        f"a child pipeline of {len(text)} bytes, and GitLab reads": (len(text), "child_bytes"),
        f"{neediest} needs {most} jobs, and GitLab takes": (most, "needs_per_job"),
    }
    for fact, (count, limit) in facts.items():
        if count > limits[limit]:
            hint = "run CI for a part of the matrix: --vendor, --image, --only"
            raise InputError(f"{fact} {limits[limit]}", hint=hint)
    # The project's plan sets the limit, which no job can read. A pipeline with more fails as a
    # whole, and with it the job that started it.
    most = limits["jobs_per_pipeline"]
    crowded = (
        f"{len(jobs)} jobs: gitlab.com starts {most} on the Free tier, and fails "
        "the pipeline where the project's plan takes fewer; --vendor, --image or --only make less"
    )
    return text, crowded if len(jobs) > most else ""


def _is_here(job: Job, planned: Schedule) -> bool:
    """Return whether GitLab runs the job here: pages never, pruning after a night."""
    if job.wanted:
        return job.wanted == "PRUNE" and planned.channel == job.environment
    if job.alerts:
        return planned.scope in _NOTIFIED
    return job.name != "plan"


def _facts(job: Job, work: Work, row: str) -> dict[str, str]:
    return {name.upper(): fact for name, fact in work.facts(row).items() if name in job.tells}
