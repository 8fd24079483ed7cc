"""A machine makes itself known to GitHub, for one job: the one caller of its interface. Edge."""

from __future__ import annotations

from typing import Any

import requests

from warpfront.errors import InputError, UnavailableError

SECONDS = 30.0
_DEFAULT_GROUP = 1
_VERSION = {
    "Accept": "application/vnd.github+json",
    "X-GitHub-Api-Version": "2022-11-28",
}
_HINTS = {
    401: "the token is not known, or no longer",
    403: "the token may not administer runners (permission `Self-hosted runners`)",
    404: "the address is wrong, or the token may not see it",
    409: "a runner of that name is registered already",
}


def one_job_configuration(
    name: str, labels: tuple[str, ...], group: str, *, api: str, token: str
) -> str:
    """What the agent needs to take one job and no more, and is of no use after it. `api` is
    `https://api.github.com/repos/me/mine` or `.../orgs/mine`; `group` may be "".

    https://docs.github.com/en/rest/actions/self-hosted-runners#create-configuration-for-a-just-in-time-runner-for-a-repository
    """
    with requests.Session() as session:
        session.headers.update({**_VERSION, "Authorization": f"Bearer {token}"})
        asked = {
            "name": name,
            "runner_group_id": _group(session, api, group),
            "labels": list(labels),
            "work_folder": "_work",
        }
        answer = _asked(session, "POST", f"{api}/actions/runners/generate-jitconfig", asked)
    configuration = answer.get("encoded_jit_config")
    if not isinstance(configuration, str) or not configuration:
        raise InputError(f"{api} gives no configuration for a runner", hint="is it GitHub's?")
    return configuration


def _group(session: requests.Session, api: str, name: str) -> int:
    if not name:
        return _DEFAULT_GROUP
    groups = _asked(session, "GET", f"{api}/actions/runner-groups").get("runner_groups", [])
    found = {one.get("name"): one.get("id") for one in groups}
    if not isinstance(found.get(name), int):
        known = ", ".join(sorted(map(str, found))) or "none"
        raise InputError(f"{api} has no runner group {name!r}", hint=f"it has {known}")
    return int(found[name])


def _asked(
    session: requests.Session, verb: str, url: str, body: object | None = None
) -> dict[str, Any]:
    try:
        answer = session.request(verb, url, json=body, timeout=SECONDS, allow_redirects=False)
        said = answer.json() if answer.status_code < requests.codes.multiple_choices else {}
    except (requests.RequestException, ValueError) as error:
        kind = type(error).__name__
        raise UnavailableError(f"{url} does not answer: {kind}", hint="is the forge up?") from None
    if answer.status_code >= requests.codes.server_error:
        raise UnavailableError(f"{url}: {answer.status_code}", hint="it may pass; try again")
    if answer.status_code >= requests.codes.multiple_choices or not isinstance(said, dict):
        hint = _HINTS.get(answer.status_code, "docs/ci.md, A machine of one's own")
        raise InputError(f"{url}: {answer.status_code}", hint=hint)
    return said
