"""Who may publish: each witness of a CI job has to pass, and each reason against has its words."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from warpfront.ci.github_workflows import FOLDER
from warpfront.matrix.language import Project
from warpfront.release.admission import keyless_identity, publishing_refusals
from warpfront.release.origin import PUBLISH_WORKFLOW, ForgeName, Origin

PROJECT = Project(
    name="mine",
    source="https://github.com/me/mine",
    licenses="MIT",
    repository="ghcr.io/me",
)
NIGHT = Origin(
    forge="github",
    witness="variables",
    event="schedule",
    repository="https://github.com/Me/Mine",
    ref="refs/heads/main",
    protected=True,
    default_branch="main",
)
TOKEN = dataclasses.replace(
    NIGHT, witness="token", default_branch="", workflow=f"Me/Mine/{PUBLISH_WORKFLOW}@{NIGHT.ref}"
)
CHILD = dataclasses.replace(
    NIGHT, forge="gitlab", event="parent_pipeline", repository="https://github.com/me/mine"
)


def test_the_default_branch_and_release_tags_publish() -> None:
    assert publishing_refusals((), PROJECT) == ()
    assert publishing_refusals((NIGHT, TOKEN), PROJECT) == ()
    assert publishing_refusals((CHILD,), PROJECT) == ()
    tag = "refs/tags/v1.2"
    of_tag = dataclasses.replace(NIGHT, event="push", ref=tag)
    token = dataclasses.replace(
        TOKEN, event="push", ref=tag, workflow=f"me/mine/{PUBLISH_WORKFLOW}@{tag}"
    )
    assert publishing_refusals((of_tag, token), PROJECT) == ()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"ref": "refs/heads/feature"}, "refs/heads/feature is neither the branch main nor a tag v"),
    ({"ref": "refs/heads/main2"}, "neither"),
    ({"ref": "refs/heads/v1"}, "neither"),
    ({"ref": "refs/tags/main"}, "neither"),
    ({"ref": "refs/tags/v"}, "neither"),
    ({"ref": "main"}, "neither"),
    ({"ref": ""}, "a run without a ref is neither"),
    ({"ref": "refs/pull/7/merge"}, "neither"),
    ({"protected": False}, "refs/heads/main is not protected"),
    ({"event": "pull_request"}, "a run started by `pull_request` publishes nothing"),
    ({"event": "pull_request_target"}, "publishes nothing"),
    ({"event": "workflow_run"}, "publishes nothing"),
    ({"event": "merge_group"}, "publishes nothing"),
    ({"event": ""}, "publishes nothing"),
    ({"repository": "https://github.com/fork/mine"}, "the run is of https://github.com/fork/mine"),
    ({"repository": "https://github.example/me/mine"}, "the run is of"),
    ({"repository": ""}, "the run is of no repository"),
    ({"fault": "the forge gives no token"}, "the forge gives no token"),
]


@pytest.mark.parametrize("witness", [NIGHT, TOKEN], ids=["variables", "token"])
@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_either_witness_alone_refuses(
    witness: Origin, changes: dict[str, Any], reason: str
) -> None:
    other = TOKEN if witness is NIGHT else NIGHT
    found = publishing_refusals((dataclasses.replace(witness, **changes), other), PROJECT)
    assert any(reason in text for text in found), found
    word = "variables" if witness is NIGHT else "OIDC token"
    assert all(text.startswith(f"the job's {word}: ") for text in found)


def test_a_default_branch_of_another_name_is_named_with_the_key_to_set() -> None:
    (text,) = publishing_refusals((dataclasses.replace(NIGHT, default_branch="master"),), PROJECT)
    assert "the default branch is master, and `project.branch` of matrix.yaml is main" in text


@pytest.mark.parametrize(
    "workflow",
    [
        "me/mine/.github/workflows/other.yml@refs/heads/main",
        f"else/mine/{PUBLISH_WORKFLOW}@refs/heads/main",
        f"me/mine/{PUBLISH_WORKFLOW}@refs/heads/feature",
        f"me/mine/{PUBLISH_WORKFLOW}",
    ],
)
def test_another_workflow_of_the_repository_publishes_nothing(workflow: str) -> None:
    token = dataclasses.replace(TOKEN, workflow=workflow)
    (text,) = publishing_refusals((NIGHT, token), PROJECT)
    assert f"the workflow is {workflow}, and only" in text


@pytest.mark.parametrize(
    ("forge", "place"),
    [
        ("github", "https://github.com/me/mine/.github/workflows/warpfront-publish.yml"),
        ("gitlab", "https://github.com/me/mine//.gitlab-ci.yml"),
    ],
)
def test_keyless_only_one_file_at_refs_that_publish_is_an_identity(
    forge: ForgeName, place: str
) -> None:
    """The form: https://docs.gitlab.com/ci/yaml/signing_examples/ and Fulcio's docs/oidc.md."""
    identity = re.compile(keyless_identity(PROJECT, forge).pattern)
    for ref in ("refs/heads/main", "refs/tags/v1", "refs/tags/v1.2.3-rc1"):
        assert identity.search(f"{place}@{ref}")
    wrong = (
        f"{place}@refs/heads/feature",
        f"{place}@refs/heads/main2",
        f"{place}@refs/heads/v1",
        f"{place}@refs/tags/main",
        f"{place}@refs/tags/v",
        f"{place}@refs/pull/7/merge",
        f"{place}@refs/heads/main evil",
        f"https://evil.test/{place}@refs/heads/main",
        place.replace("warpfront-publish", "warpfront-verify") + "@refs/heads/x",
        place.replace("/me/", "/me-evil/") + "@refs/heads/main",
        place.replace("github.com", "githubxcom") + "@refs/heads/main",
        place.replace(".yml", "xyml") + "@refs/heads/main",
    )
    assert [one for one in wrong if identity.search(one)] == []


@pytest.mark.parametrize(
    ("source", "forge", "issuer"),
    [
        ("https://github.com/me/mine", "github", "https://token.actions.githubusercontent.com"),
        ("https://git.test/me/mine", "github", "https://git.test/_services/token"),
        ("https://gitlab.com/me/mine", "gitlab", "https://gitlab.com"),
        ("https://git.test:8443/me/mine/", "gitlab", "https://git.test:8443"),
    ],
)
def test_the_issuer_is_exact(source: str, forge: ForgeName, issuer: str) -> None:
    project = dataclasses.replace(PROJECT, source=source)
    assert keyless_identity(project, forge).issuer == issuer


def test_the_workflow_that_signs_is_one_that_is_generated() -> None:
    assert PUBLISH_WORKFLOW.startswith(f"{FOLDER}/")
