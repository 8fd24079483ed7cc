"""The CI run that this process is part of, as SLSA provenance names it. Pure.

`builder` and `invocation` have the forms that GitHub's own attestations have
(https://docs.github.com/actions/reference/workflows-and-actions/variables) and that
GitLab's have (https://docs.gitlab.com/ci/pipeline_security/slsa/provenance_v1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The address of a workflow or runner, and the address of its run; both "" outside CI."""

    builder: str = ""
    invocation: str = ""


def read_invocation(environment: Mapping[str, str]) -> Invocation:
    """Return the CI run of this process, from the variables that GitHub or GitLab sets."""
    if environment.get("GITHUB_ACTIONS") == "true":
        server, repository, workflow, run = (
            environment.get(f"GITHUB_{name}", "")
            for name in ("SERVER_URL", "REPOSITORY", "WORKFLOW_REF", "RUN_ID")
        )
        attempt = environment.get("GITHUB_RUN_ATTEMPT", "") or "1"
        if not (server and repository and workflow and run):
            return Invocation()
        address = f"{server}/{repository}/actions/runs/{run}/attempts/{attempt}"
        return Invocation(builder=f"{server}/{workflow}", invocation=address)
    if environment.get("GITLAB_CI") == "true":
        names = ("CI_PROJECT_URL", "CI_RUNNER_ID", "CI_JOB_URL")
        project, runner, job = (environment.get(name, "") for name in names)
        if not (project and runner and job):
            return Invocation()
        return Invocation(builder=f"{project}/-/runners/{runner}", invocation=job)
    return Invocation()
