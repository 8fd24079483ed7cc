"""What the forge itself says of a run, and what a run tells there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from forge_interfaces import ForgeInterface, github_job, gitlab_job, standing_in

from warpfront.ci.forge_api import ISSUE_LABEL, forge_api, job_states
from warpfront.errors import InputError, UnavailableError


@pytest.fixture
def github() -> Iterator[ForgeInterface]:
    forge = ForgeInterface()
    with standing_in(forge, forge.github):
        yield forge


@pytest.fixture
def gitlab() -> Iterator[ForgeInterface]:
    forge = ForgeInterface()
    with standing_in(forge, forge.gitlab):
        yield forge


def a_job(name: str, status: str, conclusion: str | None = None) -> dict[str, Any]:
    return {"name": name, "status": status, "conclusion": conclusion}


def test_outside_of_ci_and_without_a_token_no_forge_is_asked() -> None:
    assert forge_api({}) is None
    assert forge_api({"GITHUB_ACTIONS": "true"}) is None
    assert job_states(None) == (None, "")


def test_github_s_jobs_are_known_by_their_own_names_and_how_they_ended(
    github: ForgeInterface,
) -> None:
    github.jobs = [
        a_job("plan", "completed", "success"),
        a_job("verify-h100 1 / verify-cell-sm_90", "completed", "failure"),
        a_job("verify-h100 1 / verify-other-sm_90", "queued"),
    ]
    states, unknown = job_states(forge_api(github_job(github)))
    assert unknown == ""
    assert states == {
        "plan": "success",
        "verify-cell-sm_90": "failure",
        "verify-other-sm_90": "queued",
    }
    assert github.headers[0]["Authorization"] == "Bearer the-token-of-the-job"


def test_every_page_is_read(github: ForgeInterface) -> None:
    github.jobs = [a_job(f"job {number}", "completed", "success") for number in range(250)]
    states, _ = job_states(forge_api(github_job(github)))
    assert states is not None
    assert len(states) == 250


def test_of_two_jobs_of_one_name_the_worse_counts(github: ForgeInterface) -> None:
    for order in (1, -1):
        github.jobs = [a_job("x", "completed", "success"), a_job("x", "completed", "failure")][
            ::order
        ]
        assert job_states(forge_api(github_job(github)))[0] == {"x": "failure"}


def test_jobs_that_were_not_run_again_are_those_of_the_attempt_before(
    github: ForgeInterface,
) -> None:
    github.jobs = [
        {**a_job("verify-cpu 1 / verify-a", "completed", "success"), "run_attempt": 1},
        {**a_job("verify-cpu 1 / verify-b", "completed", "failure"), "run_attempt": 1},
        {**a_job("verify-cpu 1 / verify-b", "completed", "success"), "run_attempt": 2},
        {**a_job("required", "in_progress"), "run_attempt": 2},
    ]
    states, _ = job_states(forge_api(github_job(github)))
    assert states == {"verify-a": "success", "verify-b": "success", "required": "in_progress"}
    github.jobs[0] |= {"conclusion": "failure"}  # and no success of a later attempt covers it
    assert (job_states(forge_api(github_job(github)))[0] or {})["verify-a"] == "failure"


def test_gitlab_s_jobs_by_the_job_s_own_token(gitlab: ForgeInterface) -> None:
    gitlab.jobs = [a_job("verify-cell-sm_90", "failed"), a_job("required", "running")]
    states, _ = job_states(forge_api(gitlab_job(gitlab)))
    assert states == {"verify-cell-sm_90": "failed", "required": "running"}
    assert gitlab.headers[0]["JOB-TOKEN"] == "the-token-of-the-job"


@pytest.mark.parametrize("status", [401, 403, 404])
def test_states_that_the_token_may_not_read_are_not_determined(
    gitlab: ForgeInterface, status: int
) -> None:
    """GitLab before 18.0 lets no job's token read them."""
    gitlab.refuses["/jobs"] = status
    states, unknown = job_states(forge_api(gitlab_job(gitlab)))
    assert states is None
    assert unknown.startswith("states of jobs: not determined (")
    assert str(status) in unknown


@pytest.mark.parametrize("status", [500, 503, 302])
def test_a_forge_that_does_not_answer_is_an_error_of_its_own(
    gitlab: ForgeInterface, status: int
) -> None:
    gitlab.refuses["/jobs"] = status
    with pytest.raises(UnavailableError, match=str(status)):
        job_states(forge_api(gitlab_job(gitlab)))


def test_whether_a_machine_is_online_by_all_its_labels(
    github: ForgeInterface, gitlab: ForgeInterface
) -> None:
    github.runners = [
        {"status": "offline", "labels": [{"name": "self-hosted"}, {"name": "h100"}]},
        {"status": "online", "labels": [{"name": "self-hosted"}, {"name": "mi300"}]},
    ]
    api = forge_api(github_job(github))
    assert api is not None
    assert api.serves(("self-hosted", "h100")) is False
    assert api.serves(("self-hosted", "mi300")) is True
    assert api.serves(("self-hosted", "gaudi")) is None, "an organisation's are in no such listing"
    gitlab.runners = [{"status": "online", "tag_list": ["h100", "linux"]}]
    api = forge_api({**gitlab_job(gitlab), "API_TOKEN": "a-token-of-the-project"})
    assert api is not None
    assert (api.serves(("h100",)), api.serves(("mi300",))) == (True, False)
    assert gitlab.headers[-1]["PRIVATE-TOKEN"] == "a-token-of-the-project"


@pytest.mark.parametrize("which", ["github", "gitlab"])
def test_one_issue_is_opened_updated_and_closed(which: str, request: Any) -> None:
    forge: ForgeInterface = request.getfixturevalue(which)
    variables = github_job(forge) if which == "github" else gitlab_job(forge)
    api = forge_api({**variables, "API_TOKEN": "a-token"})
    assert api is not None
    assert api.settle("green") == ""
    assert api.tell("red", "first") == "issue/1"
    assert api.tell("red", "second") == "issue/1"
    (issue,) = forge.issues
    assert "second" in {issue.get("body"), issue.get("description")}
    assert ISSUE_LABEL in issue["labels"]
    assert api.settle("green") == "issue/1"
    assert issue["state"] == "closed"
    assert api.tell("red", "again") == "issue/2"


def test_what_the_token_may_not_write_is_said_with_the_status(github: ForgeInterface) -> None:
    github.refuses["/issues"] = 403
    api = forge_api(github_job(github))
    assert api is not None
    with pytest.raises(InputError, match="HTTP 403"):
        api.tell("red", "x")
