"""What provenance calls the run of CI that built an image."""

from __future__ import annotations

import pytest

from warpfront.system.provenance import read_invocation

GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "me/mine",
    "GITHUB_WORKFLOW_REF": "me/mine/.github/workflows/nightly.yml@refs/heads/main",
    "GITHUB_RUN_ID": "7",
    "GITHUB_RUN_ATTEMPT": "2",
}
GITLAB = {
    "GITLAB_CI": "true",
    "CI_PROJECT_URL": "https://gitlab.test/me/mine",
    "CI_RUNNER_ID": "12",
    "CI_JOB_URL": "https://gitlab.test/me/mine/-/jobs/34",
}


def test_a_run_of_github_is_named_as_its_own_attestations_name_it() -> None:
    assert read_invocation(GITHUB) == (
        "https://github.com/me/mine/.github/workflows/nightly.yml@refs/heads/main",
        "https://github.com/me/mine/actions/runs/7/attempts/2",
    )


def test_a_job_of_gitlab_is_named_by_its_runner_and_its_address() -> None:
    assert read_invocation(GITLAB) == (
        "https://gitlab.test/me/mine/-/runners/12",
        "https://gitlab.test/me/mine/-/jobs/34",
    )


@pytest.mark.parametrize("here", [GITHUB, GITLAB])
def test_half_of_the_variables_name_no_run(here: dict[str, str]) -> None:
    for name in here:
        if name == "GITHUB_RUN_ATTEMPT":
            continue
        assert read_invocation({**here, name: ""}) == ("", ""), name
    assert read_invocation({}) == ("", "")
