"""Who learns of a red run, and what ends a run that waits in vain."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pytest
from forge_interfaces import ForgeInterface, github_job, standing_in

from warpfront.ci.forge_api import GitHubApi, forge_api
from warpfront.ci.judging import Fault, Judgement
from warpfront.commands.ci_runs import end_waiting_runs, notify
from warpfront.errors import InputError, UnavailableError

FAULT = Fault(
    text="cell on sm_90: failed (mm is wrong)",
    cell_id="cell",
    target="sm_90",
    kind="verdict",
    repeat="warpfront verify --only cell --target sm_90",
)
RED = Judgement(failures=(FAULT.text,), unavailable=(), passed=3, faults=(FAULT,))
GREEN = Judgement(failures=(), unavailable=(), passed=4)
URL = "https://github.com/me/mine/actions/runs/1234"


@pytest.fixture
def forge() -> Iterator[ForgeInterface]:
    stood_in = ForgeInterface()
    with standing_in(stood_in, stood_in.github):
        yield stood_in


def told(
    forge: ForgeInterface, judgement: Judgement, *ways: Any, hook: str = "", scope: str = "nightly"
) -> object:
    api = forge_api(github_job(forge))
    return notify(judgement, scope, URL, ways=ways, api=api, webhook=hook)


def test_a_red_night_is_one_issue_with_cell_kind_and_the_line_that_repeats_it(
    forge: ForgeInterface,
) -> None:
    assert told(forge, RED, "issue") == ("told in issue/1",)
    assert told(forge, RED, "issue") == ("told in issue/1",)
    (issue,) = forge.issues
    assert issue["title"] == "warpfront: the nightly run is red"
    for part in (URL, "- verdict: `cell on sm_90: failed (mm is wrong)`", FAULT.repeat):
        assert part in issue["body"]
    assert told(forge, GREEN, "issue") == ("closed issue/1",)
    assert told(forge, GREEN, "issue") == ()


def test_a_merge_that_changed_another_cell_does_not_close_the_issue_of_a_red_night(
    forge: ForgeInterface,
) -> None:
    told(forge, RED, "issue")
    assert told(forge, GREEN, "issue", scope="merged") == ()
    assert forge.issues[0]["state"] == "open"


def test_a_reason_mentions_no_one_and_links_nothing_in_an_issue(forge: ForgeInterface) -> None:
    """It may be what a package in the image printed."""
    evil = "cell on sm_90: ` @me/team closes #1\n![x](https://evil.test/x.png) <img src=x>"
    fault = dataclasses.replace(FAULT, text=evil)
    told(forge, dataclasses.replace(RED, failures=(evil,), faults=(fault,)), "issue")
    lines = forge.issues[0]["body"].splitlines()
    (line,) = [one for one in lines if "@me/team" in one and one.startswith("- verdict: `")]
    assert line.count("`") == 2
    assert line.endswith("`")
    outside = [re.sub("`[^`]*`", "", one) for one in lines]
    assert not [one for one in outside if "evil.test" in one or "@me" in one or "#1" in one]


def test_a_webhook_gets_the_same_as_json(forge: ForgeInterface) -> None:
    assert told(forge, RED, "webhook", hook=f"{forge.address}/hook") == ("called the webhook",)
    (body,) = forge.hooks
    assert (body["scope"], body["url"]) == ("nightly", URL)
    assert FAULT.repeat in body["text"]
    assert body["failures"] == [
        {
            "cell": "cell",
            "target": "sm_90",
            "kind": "verdict",
            "reason": FAULT.text,
            "repeat": FAULT.repeat,
        }
    ]
    assert told(forge, GREEN, "webhook", hook=f"{forge.address}/hook") == ()


def test_a_way_that_leads_nowhere_is_an_error(forge: ForgeInterface) -> None:
    with pytest.raises(InputError, match="WARPFRONT_WEBHOOK"):
        told(forge, RED, "webhook")
    with pytest.raises(InputError, match="API_TOKEN"):
        notify(RED, "nightly", URL, ways=("issue",), api=None, webhook="")
    forge.refuses["/hook"] = 410
    with pytest.raises(UnavailableError, match="HTTP 410"):
        told(forge, RED, "webhook", hook=f"{forge.address}/hook")


def test_what_is_long_is_cut_to_what_a_forge_takes(forge: ForgeInterface) -> None:
    lines = tuple(f"cell {number}: failed" for number in range(9000))
    told(forge, Judgement(failures=lines, unavailable=(), passed=0), "issue")
    assert len(forge.issues[0]["body"]) < 65_536
    assert forge.issues[0]["body"].rstrip().endswith("more")


QUEUED = {"name": "verify-h100 1 / verify-cell-sm_90", "status": "queued"}
DONE = {"name": "plan", "status": "completed", "conclusion": "success"}
OLD, NEW, NOW = "2026-11-26T01:00:00Z", "2026-11-26T09:00:00Z", "2026-11-26T12:00:00+00:00"


@pytest.mark.parametrize(
    ("jobs", "ends"),
    [
        ([DONE, {**QUEUED, "created_at": OLD}], True),
        ([DONE, {**QUEUED, "created_at": NEW}], False),
        ([{"name": "x", "status": "in_progress"}, {**QUEUED, "created_at": OLD}], False),
        ([DONE], False),
        ([{**QUEUED, "created_at": "soon"}], False),
    ],
)
def test_a_run_that_waits_for_a_machine_ends_once_nothing_else_of_it_goes_on(
    forge: ForgeInterface, jobs: list[dict[str, Any]], *, ends: bool
) -> None:
    forge.runs = [{"id": 9, "status": "in_progress"}]
    forge.jobs_of["9"] = jobs
    api = forge_api(github_job(forge))
    assert isinstance(api, GitHubApi)
    found = end_waiting_runs(api, "warpfront.yml", hours=6, now=NOW)
    assert forge.cancelled == (["9"] if ends else [])
    if ends:
        assert found == ("run 9: no machine took verify-cell-sm_90 for 6 h; cancelled",)
