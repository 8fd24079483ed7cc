"""Registration of a machine at GitHub, for one job. Edge."""

from __future__ import annotations

from warpfront.ci.forge_api import github_line
from warpfront.errors import InputError

_DEFAULT_GROUP = 1
_HINTS = {
    302: "the address has moved",
    401: "the token is not known, or no longer",
    403: "the token may not administer runners (permission `Self-hosted runners`)",
    404: "the address is wrong, or the token may not see it",
    409: "a runner of that name is registered already",
}


def one_job_configuration(
    name: str, labels: tuple[str, ...], group: str, *, api: str, token: str
) -> str:
    """Return what the agent needs to take one job and no more; it is of no use after that. `api` is
    `https://api.github.com/repos/me/mine` or `.../orgs/mine`; `group` may be "".

    https://docs.github.com/en/rest/actions/self-hosted-runners#create-configuration-for-a-just-in-time-runner-for-a-repository
    """
    line = github_line(api, token, _HINTS)
    group_id = _DEFAULT_GROUP
    if group:
        groups = line.pages("actions/runner-groups", "runner_groups")
        ids = {str(entry.get("name")): entry.get("id") for entry in groups}
        if not isinstance(ids.get(group), int):
            names = ", ".join(sorted(ids)) or "none"
            raise InputError(f"{line.base} has no runner group {group!r}", hint=f"it has {names}")
        group_id = int(str(ids[group]))
    request = {
        "name": name,
        "runner_group_id": group_id,
        "labels": list(labels),
        "work_folder": "_work",
    }
    answer = line.ask("POST", "actions/runners/generate-jitconfig", request)
    configuration = answer.get("encoded_jit_config") if isinstance(answer, dict) else None
    if not isinstance(configuration, str) or not configuration:
        raise InputError(f"{api} gives no configuration for a runner", hint="is it GitHub's?")
    return configuration
