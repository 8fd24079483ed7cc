"""Publishers: CI jobs of the project's default branch and of its release tags. Pure.

A job is described by its variables and, if it can request one, by its OIDC token. Each witness has
to pass by itself: a step can change the variables, but not the token, which the CI service signs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from warpfront.matrix.language import Project
from warpfront.release.origin import (
    GITLAB_CONFIG,
    PUBLISH_WORKFLOW,
    ForgeName,
    KeylessIdentity,
    Origin,
)

# What starts a run that may publish. A child pipeline of GitLab is started by its parent.
# https://docs.github.com/en/actions/reference/workflows-and-actions/events-that-trigger-workflows
# https://docs.gitlab.com/ci/jobs/job_rules/#ci_pipeline_source-predefined-variable
_EVENTS: Mapping[ForgeName, frozenset[str]] = {
    "github": frozenset({"schedule", "workflow_dispatch", "push"}),
    "gitlab": frozenset({"schedule", "web", "push", "parent_pipeline"}),
}
_GITHUB_ISSUER = "https://token.actions.githubusercontent.com"


def publishing_refusals(origins: Iterable[Origin], project: Project) -> tuple[str, ...]:
    """Return every reason why this CI job may not publish. Without a CI job there is none."""
    return tuple(dict.fromkeys(text for origin in origins for text in _refusals(origin, project)))


def _refusals(origin: Origin, project: Project) -> Iterator[str]:
    by = "the job's variables" if origin.witness == "variables" else "the job's OIDC token"
    if origin.fault:
        yield f"{by}: {origin.fault}"
        return
    if _address(origin.repository) != _address(project.source):
        yield f"{by}: the run is of {origin.repository or 'no repository'}, not of {project.source}"
    if origin.event not in _EVENTS[origin.forge]:
        yield f"{by}: a run started by `{origin.event}` publishes nothing"
    branch, tags = f"refs/heads/{project.branch}", f"refs/tags/{project.release_tags}"
    if origin.ref != branch and (not origin.ref.startswith(tags) or origin.ref == tags):
        yield (
            f"{by}: {origin.ref or 'a run without a ref'} is neither the branch {project.branch} "
            f"nor a tag {project.release_tags}*"
        )
    elif not origin.protected:
        yield f"{by}: {origin.ref} is not protected"
    if origin.default_branch not in {"", project.branch}:
        yield (
            f"{by}: the default branch is {origin.default_branch}, and `project.branch` of "
            f"matrix.yaml is {project.branch}"
        )
    if origin.forge == "github" and origin.workflow:
        owner = urlsplit(project.source).path.strip("/")
        expected = f"{owner}/{PUBLISH_WORKFLOW}@{origin.ref}"
        if origin.workflow.lower() != expected.lower():
            yield f"{by}: the workflow is {origin.workflow}, and only {expected} publishes"


def _address(repository: str) -> str:
    """Return the address in lower case: CI services ignore case in names of repositories."""
    return repository.rstrip("/").removesuffix(".git").lower()


def keyless_identity(project: Project, forge: ForgeName) -> KeylessIdentity:
    """Return who may have signed an image of this project without a key: one workflow file, at the
    default branch or at a release tag. cosign matches the pattern against the whole identity.
    """
    source = project.source.rstrip("/")
    place = f"{source}/{PUBLISH_WORKFLOW}" if forge == "github" else f"{source}//{GITLAB_CONFIG}"
    branch, tags = re.escape(project.branch), re.escape(project.release_tags)
    refs = rf"refs/(heads/{branch}|tags/{tags}[A-Za-z0-9._+/-]+)"
    parts = urlsplit(source)
    host = f"{parts.scheme}://{parts.netloc}"
    # GitLab's issuer is the instance itself; that of a self-hosted GitHub is in
    # https://docs.github.com/en/enterprise-server/actions/reference/security/oidc.
    issuer = host if forge == "gitlab" else f"{host}/_services/token"
    if forge == "github" and parts.hostname == "github.com":
        issuer = _GITHUB_ISSUER
    return KeylessIdentity(pattern=f"^{re.escape(place)}@{refs}$", issuer=issuer)
