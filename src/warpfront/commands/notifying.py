"""notify: an issue or a webhook for red runs, and an end for runs that wait in vain."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import datetime, timedelta

import requests

from warpfront.ci.forge_api import ForgeApi, GitHubApi
from warpfront.ci.judging import Judgement
from warpfront.ci.summaries import alert_text
from warpfront.errors import InputError, UnavailableError, keep_secret
from warpfront.matrix.language import NotifyWay

_SECONDS = 30.0


def notify(
    judgement: Judgement,
    scope: str,
    url: str,
    *,
    ways: Iterable[NotifyWay],
    api: ForgeApi | None,
    webhook: str,
) -> tuple[str, ...]:
    """Open or update the one issue of a red run, close it after a green one, and call the webhook
    after a red one. Return what was done, one line each.
    """
    notes: list[str] = []
    for way in dict.fromkeys(ways):
        if way == "issue":
            notes += _in_an_issue(judgement, scope, url, api)
        elif judgement.error is not None:
            if not webhook:
                hint = "the environment `alerts` holds it; docs/admission.md, After the merge"
                raise InputError("no address of a webhook: WARPFRONT_WEBHOOK", hint=hint)
            keep_secret(webhook)
            keys = {"cell": "cell_id", "target": "target", "kind": "kind", "reason": "text"}
            keys["repeat"] = "repeat"
            faults = [{k: getattr(each, n) for k, n in keys.items()} for each in judgement.faults]
            # A JSON object whose `text` chat services show as it is.
            text = alert_text(judgement, scope, url, markdown=False)
            body = {"text": text, "scope": scope, "url": url, "failures": faults}
            try:
                answer = requests.post(webhook, json=body, timeout=_SECONDS, allow_redirects=False)
            except requests.RequestException as error:
                kind = type(error).__name__
                raise UnavailableError(f"the webhook does not answer: {kind}") from None
            if answer.status_code >= requests.codes.multiple_choices:
                raise UnavailableError(f"the webhook answers HTTP {answer.status_code}")
            notes.append("called the webhook")
    return tuple(notes)


def _in_an_issue(
    judgement: Judgement, scope: str, url: str, api: ForgeApi | None
) -> tuple[str, ...]:
    if api is None:
        place, without = "docs/admission.md, After the merge", "`notify: []` of `ci:` does without"
        hint = f"{place}, has the token; {without}"
        raise InputError("no token for the forge's issues: API_TOKEN", hint=hint)
    if judgement.error is None:
        closed = api.settle(f"The {scope} run is green again: {url}")
        return (f"closed {closed}",) if closed else ()
    text = alert_text(judgement, scope, url, markdown=True)
    issue = api.tell(f"warpfront: the {scope} run is red", text)
    return (f"told in {issue}",)


def end_waiting_runs(api: GitHubApi, workflow: str, *, hours: int, now: str) -> tuple[str, ...]:
    """Cancel each run of a workflow in which a job waits longer than that for a machine, once
    nothing else of the run goes on. Return one line for each.
    """
    names = []
    for run in api.runs(workflow):
        hub_api = dataclasses.replace(api, run=run)
        jobs = hub_api.jobs()
        late = []
        for job in jobs:
            try:
                age = datetime.fromisoformat(now) - datetime.fromisoformat(job.created)
            except (ValueError, TypeError):
                continue
            if job.state == "queued" and age > timedelta(hours=hours):
                late.append(job.name)
        if late and not any(job.state == "in_progress" for job in jobs):
            hub_api.cancel()
            names.append(f"run {run}: no machine took {', '.join(late)} for {hours} h; cancelled")
    return tuple(names)
