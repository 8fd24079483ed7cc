"""The CI job that this process is, by its variables and by its OIDC token. Edge.

Sources of the names: https://docs.github.com/en/actions/reference/workflows-and-actions/variables,
https://docs.github.com/en/actions/reference/security/oidc,
https://docs.gitlab.com/ci/variables/predefined_variables/ and
https://docs.gitlab.com/ci/secrets/id_token_authentication/.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import requests

from warpfront.errors import InputError, keep_secret
from warpfront.release.origin import ForgeName, Origin
from warpfront.system.provenance import read_event
from warpfront.system.strict_values import object_in, text_of

_SECONDS = 30.0
_AUDIENCE = "warpfront"
_DOTS_OF_A_TOKEN = 2


def read_origins(environment: Mapping[str, str]) -> tuple[Origin, ...]:
    """Return each witness of this job. A process outside of CI has none."""
    if environment.get("GITHUB_ACTIONS") == "true":
        return tuple(_of_github(environment))
    if environment.get("GITLAB_CI") == "true":
        return tuple(_of_gitlab(environment))
    return ()


def _of_github(environment: Mapping[str, str]) -> Iterator[Origin]:
    server = environment.get("GITHUB_SERVER_URL", "https://github.com").rstrip("/")
    try:
        event = read_event(environment.get("GITHUB_EVENT_PATH", ""))
    except InputError as error:
        yield Origin(forge="github", witness="variables", fault=error.message)
        event = {}
    yield Origin(
        forge="github",
        witness="variables",
        event=environment.get("GITHUB_EVENT_NAME", ""),
        repository=f"{server}/{environment.get('GITHUB_REPOSITORY', '')}",
        ref=environment.get("GITHUB_REF", ""),
        protected=environment.get("GITHUB_REF_PROTECTED") == "true",
        default_branch=text_of(object_in(event, "repository"), "default_branch"),
    )
    if environment.get("ACTIONS_ID_TOKEN_REQUEST_URL"):  # the job has `id-token: write`
        names = ("event_name", "repository", "ref", "job_workflow_ref")
        origin = _by_token("github", lambda: _github_token(environment), server, names)
        unnamed = "" if origin.fault else "a workflow that the token does not name"
        yield dataclasses.replace(origin, workflow=origin.workflow or unnamed)


def _github_token(environment: Mapping[str, str]) -> str:
    url = f"{environment['ACTIONS_ID_TOKEN_REQUEST_URL']}&audience={_AUDIENCE}"
    key = environment.get("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "")
    keep_secret(key)
    try:
        answer = requests.get(url, headers={"Authorization": f"bearer {key}"}, timeout=_SECONDS)
        answer.raise_for_status()
        document = answer.json()
    except (requests.RequestException, ValueError) as error:
        kind = type(error).__name__
        raise InputError(f"the forge gives no token: {kind}", hint="try the job again") from None
    return text_of(object_in(document), "value")


def _of_gitlab(environment: Mapping[str, str]) -> Iterator[Origin]:
    branch, tag = environment.get("CI_COMMIT_BRANCH", ""), environment.get("CI_COMMIT_TAG", "")
    ref = f"refs/tags/{tag}" if tag else f"refs/heads/{branch}" if branch else ""
    yield Origin(
        forge="gitlab",
        witness="variables",
        event=environment.get("CI_PIPELINE_SOURCE", ""),
        repository=environment.get("CI_PROJECT_URL", ""),
        ref=ref,
        protected=environment.get("CI_COMMIT_REF_PROTECTED") == "true",
        default_branch=environment.get("CI_DEFAULT_BRANCH", ""),
    )
    if token := environment.get("SIGSTORE_ID_TOKEN", ""):
        keep_secret(token)
        server = environment.get("CI_SERVER_URL", "").rstrip("/")
        names = ("pipeline_source", "project_path", "ref_path", "ci_config_ref_uri")
        yield _by_token("gitlab", lambda: token, server, names)


def _by_token(
    forge: ForgeName, read: Callable[[], str], server: str, names: Iterable[str]
) -> Origin:
    """Return a token's job, unverified: the forge gave it to this job. `names` are its claims:
    event, project, ref and workflow file.
    """
    failed = partial(Origin, forge=forge, witness="token")
    try:
        token = read()
        payload = token.split(".")[1] if token.count(".") == _DOTS_OF_A_TOKEN else ""
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except InputError as error:
        return failed(fault=error.message)
    except (ValueError, RecursionError):
        return failed(fault="the OIDC token is not a JSON Web Token")
    if not isinstance(claims, dict):
        return failed(fault="the OIDC token has no claims")
    event, project, ref, workflow = (text_of(claims, name) for name in names)
    return Origin(
        forge=forge,
        witness="token",
        event=event,
        repository=f"{server}/{project}",
        ref=ref,
        protected=text_of(claims, "ref_protected") == "true",
        workflow=workflow,
    )
