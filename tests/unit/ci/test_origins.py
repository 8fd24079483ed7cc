"""What describes a CI job: its variables, and the token that the forge signs for it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from loopback import running

from warpfront.release.origin import Origin
from warpfront.release.origin_claims import read_origins


def a_token(claims: object) -> str:
    parts = ({"alg": "RS256"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(one).encode()).decode() for one in parts]
    return ".".join([*(one.rstrip("=") for one in encoded), "c2ln"])


@contextmanager
def issuer(answer: bytes, status: int = 200) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A stand-in for the address that GitHub gives a job with `id-token: write`. Its rules:
    https://docs.github.com/en/actions/reference/security/oidc (GET with a bearer token and
    `&audience=`, the token as `value`).
    """
    requests: list[tuple[str, str]] = []

    class Issuer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.path, self.headers.get("Authorization", "")))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    with running(HTTPServer(("127.0.0.1", 0), Issuer)) as server:
        yield f"http://127.0.0.1:{server.server_port}/token?api-version=2", requests


def of_github(folder: Path, payload: Any = None, **more: str) -> tuple[Origin, ...]:
    event = folder / "event.json"
    event.write_text(json.dumps({"repository": {"default_branch": "main"}} | (payload or {})))
    job = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "me/mine",
        "GITHUB_EVENT_NAME": "schedule",
        "GITHUB_EVENT_PATH": str(event),
        "GITHUB_REF": "refs/heads/main",
        "GITHUB_REF_PROTECTED": "true",
    }
    return read_origins({**job, **more})


def test_outside_of_ci_there_is_no_witness() -> None:
    assert read_origins({"GITHUB_REF": "refs/heads/main", "CI_COMMIT_BRANCH": "main"}) == ()


def test_a_job_of_github_by_its_variables(tmp_path: Path) -> None:
    (found,) = of_github(tmp_path)
    assert found == Origin(
        forge="github",
        witness="variables",
        event="schedule",
        repository="https://github.com/me/mine",
        ref="refs/heads/main",
        protected=True,
        default_branch="main",
    )
    (found,) = of_github(tmp_path, GITHUB_REF_PROTECTED="false")
    assert not found.protected
    (found,) = of_github(tmp_path, GITHUB_REF_PROTECTED="")
    assert not found.protected


def test_a_job_that_may_ask_for_a_token_has_its_claims_as_a_second_witness(tmp_path: Path) -> None:
    claims = {
        "event_name": "workflow_dispatch",
        "repository": "me/mine",
        "ref": "refs/heads/feature",
        "ref_protected": "false",
        "job_workflow_ref": "me/mine/.github/workflows/warpfront-publish.yml@refs/heads/feature",
    }
    with issuer(json.dumps({"value": a_token(claims)}).encode()) as (url, requests):
        given = {
            "ACTIONS_ID_TOKEN_REQUEST_URL": url,
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "canary-of-the-job",
        }
        _, token = of_github(tmp_path, **given)
    assert requests == [("/token?api-version=2&audience=warpfront", "bearer canary-of-the-job")]
    assert (token.witness, token.ref, token.protected) == ("token", "refs/heads/feature", False)
    assert token.workflow.endswith("warpfront-publish.yml@refs/heads/feature")


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"{}", 500),
        (b"no JSON", 200),
        (b'{"value": "x.y"}', 200),
        (b'{"value": "a.!!!.c"}', 200),
        (b"[]", 200),
        (json.dumps({"value": a_token([])}).encode(), 200),
    ],
)
def test_a_token_that_cannot_be_read_is_a_fault_and_no_pass(
    answer: bytes, status: int, tmp_path: Path
) -> None:
    with issuer(answer, status) as (url, _):
        _, token = of_github(tmp_path, ACTIONS_ID_TOKEN_REQUEST_URL=url)
    assert token.fault


def test_a_token_that_names_no_workflow_names_one_that_never_publishes(tmp_path: Path) -> None:
    with issuer(json.dumps({"value": a_token({"ref": "refs/heads/main"})}).encode()) as (url, _):
        _, token = of_github(tmp_path, ACTIONS_ID_TOKEN_REQUEST_URL=url)
    assert token.workflow


GITLAB = {
    "GITLAB_CI": "true",
    "CI_SERVER_URL": "https://gitlab.com",
    "CI_PROJECT_URL": "https://gitlab.com/me/mine",
    "CI_PIPELINE_SOURCE": "parent_pipeline",
    "CI_COMMIT_REF_PROTECTED": "true",
    "CI_DEFAULT_BRANCH": "main",
}


@pytest.mark.parametrize(
    ("variables", "ref"),
    [
        ({"CI_COMMIT_BRANCH": "main"}, "refs/heads/main"),
        ({"CI_COMMIT_TAG": "v1"}, "refs/tags/v1"),
        ({"CI_COMMIT_REF_NAME": "main"}, ""),  # a merge request's, whose source is called so
    ],
)
def test_a_job_of_gitlab_by_its_variables(variables: dict[str, str], ref: str) -> None:
    (found,) = read_origins({**GITLAB, **variables})
    assert found.ref == ref
    assert (found.repository, found.event) == ("https://gitlab.com/me/mine", "parent_pipeline")
    assert (found.protected, found.default_branch) == (True, "main")


def test_gitlab_s_token_is_a_second_witness() -> None:
    claims = {
        "project_path": "me/mine",
        "pipeline_source": "parent_pipeline",
        "ref_path": "refs/heads/main",
        "ref_protected": "true",
        "ci_config_ref_uri": None,
    }
    given = {**GITLAB, "CI_COMMIT_BRANCH": "main"}
    _, token = read_origins({**given, "SIGSTORE_ID_TOKEN": a_token(claims)})
    assert (token.ref, token.protected, token.workflow) == ("refs/heads/main", True, "")
    assert token.repository == "https://gitlab.com/me/mine"
    _, token = read_origins({**given, "SIGSTORE_ID_TOKEN": "x"})
    assert token.fault == "the OIDC token is not a JSON Web Token"
