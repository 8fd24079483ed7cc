"""The APIs of CI services: the state of a run's jobs, online machines, one issue, runs that wait in
vain, and the registration of a machine for one job. Edge.

GitHub: https://docs.github.com/en/rest/actions/workflow-jobs, .../self-hosted-runners,
.../actions/workflow-runs and https://docs.github.com/en/rest/issues/issues. GitLab:
https://docs.gitlab.com/api/jobs/, .../api/issues/ and .../api/runners/. The permissions of a job's
token are in https://docs.gitlab.com/ci/jobs/fine_grained_permissions/ (the jobs of a pipeline:
from 18.0 on).
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.parse import quote

import requests

from warpfront.errors import InputError, UnavailableError, keep_secret
from warpfront.system.packaged import packaged_toml

_SECONDS = 30.0
_PAGE = 100
_PAGES = 100
_LATER = frozenset({408, 425, 429})
_NAMES = {forge: SimpleNamespace(**names) for forge, names in packaged_toml("forges.toml").items()}
ISSUE_LABEL: str = _NAMES["gitlab"].labels
"""By this label a run finds the one issue that is open for red runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job of a run: its name in the plan, its state or how it ended, and since when it is so."""

    name: str
    state: str
    created: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change of one file (path, whole text) as a pull request, GitLab's merge request."""

    branch: str
    path: str
    text: str
    title: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Requests with a token, to one address and those below it. `hints` are by status."""

    base: str
    headers: Mapping[str, str] = field(repr=False)
    hints: Mapping[int, str] = field(default_factory=dict)

    def ask(self, verb: str, path: str, body: object | None = None, /, **query: object) -> Any:
        """Return the JSON of an answer. Raises `InputError` where another try changes nothing, else
        `UnavailableError` for an answer that is none.
        """
        url = f"{self.base}/{path}".rstrip("/")
        try:
            answer = requests.request(
                verb,
                url,
                params={name: str(value) for name, value in query.items()},
                json=body,
                headers=dict(self.headers),
                timeout=_SECONDS,
                allow_redirects=False,
            )
            document = answer.json() if answer.content and answer.ok else {}
        except (requests.RequestException, ValueError) as error:
            kind = type(error).__name__
            raise UnavailableError(f"{url}: {kind}", hint="is the forge up?") from None
        status, usual = answer.status_code, "the token may not; docs/admission.md has what it needs"
        if status in self.hints or (400 <= status < 500 and status not in _LATER):
            raise InputError(f"{url}: HTTP {status}", hint=self.hints.get(status, usual))
        if status >= requests.codes.multiple_choices:
            raise UnavailableError(f"{url}: HTTP {status}", hint="it may pass; try again")
        return document

    def pages(self, path: str, inside: str = "", /, **query: object) -> Iterator[Mapping[str, Any]]:
        """Yield every entry of a listing; `inside` is the key with the entries."""
        for page in range(1, _PAGES + 1):
            document = self.ask("GET", path, per_page=_PAGE, page=page, **query)
            is_inside = inside and isinstance(document, dict)
            entries = document.get(inside, []) if is_inside else document
            if not isinstance(entries, list):
                raise UnavailableError(f"{self.base}/{path}: no listing", hint="try it again")
            yield from (entry for entry in entries if isinstance(entry, dict))
            if len(entries) < _PAGE:
                return
        raise UnavailableError(f"{self.base}/{path}: more than {_PAGES * _PAGE} entries")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeApi(ABC):
    """The interface of a forge for one project, and one run in it. Each method raises `InputError`
    where the token may not do that, and `UnavailableError` where the forge does not answer.
    """

    line: Line
    run: str
    names: ClassVar[SimpleNamespace]

    @abstractmethod
    def jobs(self) -> tuple[Job, ...]: ...

    @abstractmethod
    def serves(self, labels: tuple[str, ...]) -> bool | None: ...

    @abstractmethod
    def _put(self, change: Proposal, base: str) -> None: ...

    def propose(self, change: Proposal) -> str:
        """Put one file onto a branch of its own, at the end of the default branch, and open or
        update the request to merge it. Return its address.
        """
        names, base = self.names, str(self.line.ask("GET", "").get("default_branch", ""))
        self._put(change, base)
        fields = {"title": change.title, names.text: change.body}
        opened = {"state": names.opened, names.base: base}
        for page in self.line.pages(names.requests, **opened):
            head = page.get(names.head)
            if (head.get("ref") if isinstance(head, dict) else head) == change.branch:
                self.line.ask(names.change, f"{names.requests}/{page[names.number]}", fields)
                return str(page.get(names.address, ""))
        ends = {names.head: change.branch, names.base: base}
        return str(self.line.ask("POST", names.requests, fields | ends).get(names.address, ""))

    def tell(self, title: str, text: str) -> str:
        """Update the open issue, or open it. Return its address."""
        body = {"title": title, self.names.text: text}
        for issue in self._open():
            return self._change(issue, body, text)
        opened = self.line.ask("POST", "issues", {**body, "labels": self.names.labels})
        return str(opened.get(self.names.address, ""))

    def settle(self, text: str) -> str:
        """Close the open issue with a word on why. Return its address, "" where none is open."""
        for issue in self._open():
            return self._change(issue, self.names.closes, text)
        return ""

    def _change(self, issue: Mapping[str, Any], change: object, comment: str) -> str:
        path = f"issues/{issue[self.names.number]}"
        self.line.ask(self.names.change, path, change)
        self.line.ask("POST", f"{path}/{self.names.comments}", {"body": comment})
        return str(issue.get(self.names.address, ""))

    def _open(self) -> list[Mapping[str, Any]]:
        issues = self.line.pages("issues", state=self.names.opened, labels=ISSUE_LABEL)
        return [issue for issue in issues if "pull_request" not in issue]


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHubApi(ForgeApi):
    """A repository on GitHub, and one run in it."""

    names = _NAMES["github"]

    def jobs(self) -> tuple[Job, ...]:
        """Return the latest attempt of each job. A called workflow's job is `caller / name`.

        GitHub's own `filter=latest` has listed the jobs of the last attempt
        alone since 2025-05, so that those which were not run again seemed to
        be none (https://github.com/r-universe-org/help/issues/607).
        """
        latest: dict[str, int] = {}
        attempts: list[tuple[int, Job]] = []
        for page in self.line.pages(f"actions/runs/{self.run}/jobs", "jobs", filter="all"):
            attempt, state = int(page.get("run_attempt") or 1), page.get("status")
            job = Job(
                name=str(page.get("name", "")).rpartition(" / ")[2],
                state=str(page.get("conclusion") if state == "completed" else state),
                created=str(page.get("created_at", "")),
            )
            latest[job.name] = max(attempt, latest.get(job.name, 0))
            attempts.append((attempt, job))
        return tuple(job for attempt, job in attempts if attempt == latest[job.name])

    def serves(self, labels: tuple[str, ...]) -> bool | None:
        """Return whether a machine with these labels is online; None where the repository has no
        such machine of its own. Those of an organisation are in no listing of it.
        """
        labelled = [
            page.get("status") == "online"
            for page in self.line.pages("actions/runners", "runners")
            if {str(label.get("name")) for label in page.get("labels", ())}.issuperset(labels)
        ]
        return any(labelled) if labelled else None

    def _put(self, change: Proposal, base: str) -> None:
        """https://docs.github.com/en/rest/repos/contents and .../rest/pulls/pulls."""
        tip = self.line.ask("GET", f"git/ref/heads/{base}")["object"]["sha"]
        ref = f"heads/{change.branch}"
        listed = self.line.ask("GET", f"git/matching-refs/{ref}")
        if any(branch.get("ref") == f"refs/{ref}" for branch in listed):
            self.line.ask("PATCH", f"git/refs/{ref}", {"sha": tip, "force": True})
        else:
            self.line.ask("POST", "git/refs", {"ref": f"refs/{ref}", "sha": tip})
        folder = change.path.rpartition("/")[0]
        files = self.line.ask("GET", f"contents/{folder}", ref=change.branch)
        old = [file["sha"] for file in files if file.get("path") == change.path]
        content = base64.b64encode(change.text.encode()).decode()
        body = {"message": change.title, "content": content, "branch": change.branch}
        body |= {"sha": old[0]} if old else {}
        self.line.ask("PUT", f"contents/{change.path}", body)

    def succeeded(self, workflow: str, commit: str, base: str) -> bool:
        """Return whether a run of a workflow file for a commit ended with success, and began after
        the commit `base`: an earlier one was of another merge.
        """
        path = f"actions/workflows/{workflow}/runs"
        runs = self.line.pages(path, "workflow_runs", head_sha=commit, status="success")
        passed = (commit, "success")
        ours = (run for run in runs if (run.get("head_sha"), run.get("conclusion")) == passed)
        ran = [str(run.get("created_at", "")) for run in ours]
        if not ran:
            return False
        since = self.line.ask("GET", f"commits/{quote(base, safe='')}")
        moment = since.get("commit", {}).get("committer", {}).get("date")
        # Both are RFC 3339 in UTC, to the second.
        return isinstance(moment, str) and moment.endswith("Z") and max(ran) >= moment

    def runs(self, workflow: str) -> tuple[str, ...]:
        """Return the runs of a workflow file that have not ended."""
        path, runs = f"actions/workflows/{workflow}/runs", dict[str, None]()
        for state in ("queued", "in_progress"):
            for run in self.line.pages(path, "workflow_runs", status=state):
                runs[str(run.get("id"))] = None
        return tuple(runs)

    def cancel(self) -> None:
        self.line.ask("POST", f"actions/runs/{self.run}/cancel")


@dataclass(frozen=True, slots=True, kw_only=True)
class GitLabApi(ForgeApi):
    """A project on GitLab, and one pipeline in it."""

    names = _NAMES["gitlab"]

    def jobs(self) -> tuple[Job, ...]:
        """Return the jobs of the pipeline; the listing leaves out those that were tried again."""
        jobs = self.line.pages(f"pipelines/{self.run}/jobs")
        return tuple(
            Job(
                name=str(job.get("name", "")),
                state=str(job.get("status")),
                created=str(job.get("created_at", "")),
            )
            for job in jobs
        )

    def serves(self, labels: tuple[str, ...]) -> bool | None:
        """Return whether a machine with these tags is online, of all that the project may use."""
        tags = ",".join(labels)
        return any(True for _ in self.line.pages("runners", status="online", tag_list=tags))

    def _put(self, change: Proposal, base: str) -> None:
        """https://docs.gitlab.com/api/commits/ and .../api/merge_requests/."""
        folder = change.path.rpartition("/")[0]
        files = self.line.pages("repository/tree", path=folder, ref=base)
        is_known = any(file.get("path") == change.path for file in files)
        action = {"action": "update" if is_known else "create", "file_path": change.path}
        commit = {
            "branch": change.branch,
            "start_branch": base,
            "force": True,
            "commit_message": change.title,
            "actions": [{**action, "content": change.text}],
        }
        self.line.ask("POST", "repository/commits", commit)


def github_line(base: str, token: str, hints: Mapping[int, str] | None = None) -> Line:
    """Return requests to GitHub, in the version of its interface that is known here."""
    headers = {
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
        "Authorization": f"Bearer {token}",
    }
    return Line(base=base, headers=headers, hints=hints or {})


def forge_api(environment: Mapping[str, str], token: str = "") -> ForgeApi | None:
    """Return the interface of the forge that runs this job, by API_TOKEN or, on GitLab, the job's
    own token; None outside of CI and without a token.
    """
    token = token or environment.get("API_TOKEN", "")
    keep_secret(token, environment.get("CI_JOB_TOKEN", ""))
    if environment.get("GITHUB_ACTIONS") == "true" and token:
        api = environment.get("GITHUB_API_URL", "https://api.github.com").rstrip("/")
        line = github_line(f"{api}/repos/{environment.get('GITHUB_REPOSITORY', '')}", token)
        return GitHubApi(line=line, run=environment.get("GITHUB_RUN_ID", ""))
    if environment.get("GITLAB_CI") == "true":
        api = environment.get("CI_API_V4_URL", "").rstrip("/")
        job_token = {"JOB-TOKEN": environment.get("CI_JOB_TOKEN", "")}
        headers = {"PRIVATE-TOKEN": token} if token else job_token
        project = quote(environment.get("CI_PROJECT_ID", ""), safe="")
        line = Line(base=f"{api}/projects/{project}", headers=headers)
        return GitLabApi(line=line, run=environment.get("CI_PIPELINE_ID", ""))
    return None


def job_states(api: ForgeApi | None) -> tuple[Mapping[str, str] | None, str]:
    """Return the state of each job of this run by name, and why that is not known, "" if it is. Of
    two jobs of one name the worse counts.
    """
    if api is None:
        return None, ""
    try:
        jobs = api.jobs()
    except InputError as error:
        return None, f"states of jobs: not determined ({error.message})"
    states: dict[str, str] = {}
    for job in jobs:
        if states.get(job.name, "success") == "success":
            states[job.name] = job.state
    return states, ""


_DEFAULT_GROUP = 1
_RUNNER_HINTS = {
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
    line = github_line(api, token, _RUNNER_HINTS)
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
